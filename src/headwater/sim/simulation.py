"""What happens in a scenario, from its first moment to its last?

A `Simulation` runs a `Plant` from event to event and lets things happen to it. Where a run is cut into pieces
(`advance`) changes nothing. A controller reads and sets what it may through `meter` and `governor`, which keep the
ports of the same names, between any two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from headwater.model.scenario import (
    Change,
    KillMachine,
    KillOperator,
    LinkChange,
    NewMachine,
    NewOperator,
    RateChange,
    Scenario,
    Schedule,
)
from headwater.model.units import show
from headwater.ports import Governor, Meter
from headwater.sim.metering import PlantMeter
from headwater.sim.plant import Plant
from headwater.sim.result import Moment, Simulated, gathered
from headwater.sim.schedule import decide, decide_pipeline
from headwater.sim.steering import steer

__all__ = ["Simulation", "simulate"]

Say = Callable[[str, float | None], None]
PIECES = 200  # of a run between which progress is told


def _silent(text: str, share: float | None) -> None:
    del text, share


class Simulation:
    """A scenario as it goes on."""

    def __init__(
        self, scenario: Scenario, seed: int | None = None, method: str | None = None, say: Say = _silent
    ) -> None:
        """Begin at time 0.

        Args:
            scenario: What is to happen.
            seed: In the place of the scenario's own.
            method: Of all schedules, in the place of theirs.
            say: Takes progress.
        """
        self.scenario = scenario
        self.seed = scenario.seed if seed is None else seed
        self.plant = Plant(scenario, self.seed)
        self._method = method
        self._say = say
        self._events = [(scenario.step_at(event.at_s), event) for event in scenario.events]
        self._next = 0
        cast = self.plant.cast
        starts = {one.name: 0 for one in scenario.operators}
        for step, event in self._events:
            if isinstance(event.change, NewOperator):
                starts[event.change.operator.name] = step
        self._began = [starts[cast.operators[number].name] for number in cast.operator_of]
        self._gone: dict[int, int] = {}  # by instance: the step at which it went
        self._up, self._used = np.zeros(len(cast.machines)), np.zeros(len(cast.machines))
        self._moments: list[Moment] = []
        self._meter = PlantMeter(self.plant)

    @property
    def now_s(self) -> float:
        """Simulated seconds since the beginning."""
        return self.plant.step * self.plant.dt

    @property
    def is_over(self) -> bool:
        """Return whether the scenario is at its end."""
        return self.plant.step >= self.scenario.steps

    @property
    def moments(self) -> tuple[Moment, ...]:
        """What has happened so far."""
        return tuple(self._moments)

    @property
    def meter(self) -> Meter:
        """What a controller of everything reads."""
        return self._meter

    def meter_of(self, machine: str) -> Meter:
        """Return what a controller of one machine reads; it counts from now on."""
        return PlantMeter(self.plant, machine)

    @property
    def governor(self) -> Governor:
        """What a controller sets."""
        return _PlantGovernor(self.plant)

    def advance(self, until_s: float) -> None:
        """Go on to a time, or to the end; what happens at that time has then happened, too."""
        until = min(self.scenario.steps, round(until_s / self.plant.dt))
        while True:
            while self._next < len(self._events) and self._events[self._next][0] <= self.plant.step:
                event = self._events[self._next][1]
                self._next += 1
                self._happen(event.change)
            if self.plant.step >= until:
                return
            stop = min(until, self._events[self._next][0]) if self._next < len(self._events) else until
            self._run(stop)

    def result(self) -> Simulated:
        """Return what came of it so far."""
        present = [
            self._gone.get(i, self.plant.step) - min(began, self.plant.step) for i, began in enumerate(self._began)
        ]
        return gathered(
            self.plant, self.scenario.name, self.seed, present, self._up, self._used, self._moments
        )  # fmt: skip

    def _run(self, until: int) -> None:
        steps = until - self.plant.step
        count = len(self.plant.cast.machines)
        is_up = self.plant.knobs.is_up[:count] > 0
        here = self.plant.machine[(self.plant.machine >= 0) & self._is_active()]
        is_used = is_up & (np.bincount(here, minlength=count) > 0)
        self.plant.run(until)
        self._up += steps * is_up
        self._used += steps * is_used

    def _is_active(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return self.plant.knobs.is_active[: len(self.plant.machine)] > 0

    def _happen(self, change: Change) -> None:
        """Let one thing happen."""
        plant, moment = self.plant, Moment(self.now_s, "")
        if isinstance(change, NewMachine):
            plant.switch_machine(change.machine.name, True)
            moment = replace(moment, text=f"machine '{change.machine.name}' comes")
        elif isinstance(change, KillMachine):
            plant.switch_machine(change.machine, False, change.drops)
            what = "and what waited there is dropped" if change.drops else "and what waits there is kept"
            moment = replace(moment, text=f"machine '{change.machine}' dies, {what}")
        elif isinstance(change, NewOperator):
            plant.switch_operator(change.operator.name, True)
            moment = replace(moment, text=f"operator '{change.operator.name}' comes")
        elif isinstance(change, KillOperator):
            for i in plant.cast.own(plant.cast.operator_number[change.operator]):
                self._gone[i] = plant.step
            plant.switch_operator(change.operator, False)
            moment = replace(moment, text=f"operator '{change.operator}' goes")
        elif isinstance(change, RateChange):
            plant.multiply(change.operator, change.factor)
            moment = replace(moment, text=f"load of operator '{change.operator}' times {change.factor:g}")
        elif isinstance(change, LinkChange):
            plant.change_link(change.between, change.latency_s, change.bandwidth_bps)
            moment = replace(moment, text=f"link '{change.between[0]}' - '{change.between[1]}' {_told(change)}")
        else:
            moment = self._schedule(change)
        self._moments.append(moment)

    def _schedule(self, change: Schedule) -> Moment:
        plant, method = self.plant, self._method or change.method
        before = plant.machine.copy()
        failures: tuple[str, ...] = ()
        if self.scenario.pipeline is not None:
            decision = decide_pipeline(plant, self.scenario.pipeline, self._began, method, self.seed, self._say)
            if decision.placement:
                _, failures = steer(plant, decision.placement)
        else:
            decision = decide(plant, self._began, method, self.seed, self.scenario.knows, self._say)
            plant.place(decision.placement)
        machines = plant.cast.machines
        standing = {
            name: machines[int(number)].name
            for name, number in zip(plant.cast.instances, plant.machine, strict=True)
            if number >= 0
        }
        used = len(set(standing.values()))
        text = f"schedule by {method}: {len(standing)} instances on {used} machines"
        because = "; ".join(part for part in (decision.because, *failures) if part)
        return Moment(self.now_s, text, standing, int((plant.machine != before).sum()), because)


def _told(change: LinkChange) -> str:
    parts = []
    if change.latency_s is not None:
        parts.append(f"has a latency of {show(change.latency_s, 'time')}")
    if change.bandwidth_bps is not None:
        parts.append(f"has a bandwidth of {show(change.bandwidth_bps, 'bandwidth')}")
    return " and ".join(parts)


class _PlantGovernor:
    """The port `Governor`."""

    weighs = False

    def __init__(self, plant: Plant) -> None:
        self._plant = plant

    def set(self, limits: Mapping[str, float], shares: Mapping[str, float] | None = None) -> None:
        """Limit what instances may use; machines that are full are shared by demand, whatever the shares are."""
        del shares
        self._plant.share(limits)


def simulate(
    scenario: Scenario,
    seed: int | None = None,
    method: str | None = None,
    say: Say = _silent,
    control: Callable[[float, Meter, Governor], None] | None = None,
    every_s: float = 1.0,
) -> Simulated:
    """Return what comes of a scenario.

    Args:
        scenario: What is to happen.
        seed: In the place of the scenario's own.
        method: Of all schedules, in the place of theirs.
        say: Takes progress.
        control: A controller, called with the time, a meter and a governor.
        every_s: How often, in simulated seconds.
    """
    simulation = Simulation(scenario, seed, method, say)
    end_s = scenario.steps * scenario.step_s
    if control is None:
        for piece in range(1, PIECES + 1):
            simulation.advance(end_s * piece / PIECES)
            say(f"{show(simulation.now_s, 'time')} of {show(end_s, 'time')}", piece / PIECES)
        return simulation.result()
    every = max(1, round(every_s / scenario.step_s))
    while not simulation.is_over:
        simulation.advance((simulation.plant.step + every) * scenario.step_s)
        control(simulation.now_s, simulation.meter, simulation.governor)
        say(f"{show(simulation.now_s, 'time')} of {show(end_s, 'time')}", simulation.now_s / end_s)
    return simulation.result()
