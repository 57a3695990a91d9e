"""Who stands where from now on?

Asks the methods of the product: `pack` for operators that share machines, `place` for a pipeline on sites. They see
what a scheduler sees: what came to each operator so far (`sim.forecast`), and which machines run. An operator that
nothing is known of yet goes to a machine by chance, as in paper 004. Two methods are the simulator's own: `random`,
and `balance`, the largest mean load first, each to the machine that is least full. `balance` also stands in where a
method finds no packing: some operators then wait, but all of them run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from headwater.cost.problem import Problem
from headwater.errors import PlanError
from headwater.model.pipeline import Pipeline
from headwater.model.scenario import Machine, Samples
from headwater.model.sites import Sites
from headwater.model.workload import Kind, Signal, Sinusoid, Trace, Workload
from headwater.pack import METHODS, Packing, pack
from headwater.pack import Limits as PackLimits
from headwater.place import Infeasible, Limits, place
from headwater.sim.forecast import signals
from headwater.sim.plant import Plant

__all__ = ["OWN_METHODS", "Decision", "decide", "decide_pipeline", "pack_methods"]

OWN_METHODS: Mapping[str, str] = {
    "balance": "largest mean load first, each to the machine that is least full",
    "random": "every operator to some machine",
}
Say = Callable[[str, float | None], None]


def pack_methods() -> tuple[str, ...]:
    """Return the methods that a schedule of operators on machines may name."""
    return (*METHODS, *OWN_METHODS)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a schedule came to."""

    method: str
    placement: Mapping[str, str]  # instance -> machine; those that are not named stay
    known: int  # instances whose load was known
    unknown: int
    because: str = ""  # why it is not what the method was asked for


def decide(plant: Plant, began: Sequence[int], method: str, seed: int, knows: str, say: Say) -> Decision:
    """Return which machine runs each instance that is there.

    Args:
        plant: As it is.
        began: By instance: the step at which it appeared.
        method: Of packing, or one of `OWN_METHODS`.
        seed: Of the method's chance.
        knows: 'measured': only what came so far; 'declared': what the scenario says.
        say: Takes progress.
    """
    machines = [one for one in plant.cast.machines if plant.is_up(one.name)]
    names, of = plant.cast.instances, plant.cast.operator_of
    there = [i for i in range(len(names)) if plant.knobs.is_active[i]]
    rng = Random(f"{seed}/{plant.step}")
    if method == "random":
        return Decision(method, {names[i]: rng.choice(machines).name for i in there}, 0, len(there))
    expected = _declared(plant) if knows == "declared" else _measured(plant, began)
    known = {i: signal for i in there if (signal := expected[i]) is not None}
    works = {i: plant.cast.operators[of[i]].work_s for i in known}
    loads = {i: _times(signal, works[i]) for i, signal in known.items()}
    because = ""
    placement: dict[str, str] = {}
    if loads and method == "balance":
        placement = _balanced(loads, names, machines)
    elif loads:
        kinds = _kinds(machines)
        workload = Workload({names[i]: load for i, load in loads.items()}, tuple(kind for kind, _ in kinds))
        answer: object
        try:
            answer = pack(workload, method, seed, PackLimits(say=say))
        except PlanError as refusal:
            answer = str(refusal)
        if isinstance(answer, Packing):
            placement = _named(answer.assignment, kinds, plant)
        else:
            reasons = answer if isinstance(answer, str) else "; ".join(getattr(answer, "reasons", ()))
            because = f"{method} found no packing ({reasons}); balanced instead"
            placement = _balanced(loads, names, machines)
    unknown = [i for i in there if i not in known]
    placement |= {names[i]: rng.choice(machines).name for i in unknown}
    if unknown and not because:
        because = f"nothing is known of {len(unknown)} of {len(there)} yet: placed by chance"
    return Decision(method, placement, len(known), len(unknown), because)


def decide_pipeline(
    plant: Plant, pipeline: Pipeline, began: Sequence[int], method: str, seed: int, say: Say
) -> Decision:
    """Return which site runs each operator of a pipeline, at the rates that were measured where there are any."""
    assert plant.sites is not None, "a pipeline is placed on sites"
    sites = Sites(
        tuple(
            site if site.slots == 0 or plant.is_up(site.name) else replace(site, slots=0) for site in plant.sites.sites
        ),
        plant.sites.links,
    )
    rates = _rates(plant, began)
    operators = tuple(
        replace(one, rate_rps=rates[one.name]) if one.is_source and rates.get(one.name) else one
        for one in pipeline.operators
    )
    answer = place(Problem(replace(pipeline, operators=operators), sites), method, seed, Limits(say=say))
    if isinstance(answer, Infeasible):
        because = "; ".join(answer.conflict) or "no valid placement exists"
        return Decision(method, {}, len(operators), 0, f"{method} found no placement ({because}); nothing is moved")
    return Decision(method, dict(answer.placement), len(operators), 0)


def _measured(plant: Plant, began: Sequence[int]) -> list[Signal | None]:
    if not plant.is_detailed:  # only sums are kept: steady loads
        seconds = (plant.step - np.array(began)) * plant.dt
        rates = plant.counts.came[: len(began)] / np.maximum(seconds, plant.dt)
        return [Sinusoid(float(rate)) if rate > 0.0 else None for rate in rates]
    first = -(-np.array(began, np.int64) // plant.sample_steps)
    found = signals(plant.arrivals(), first)
    sample_s = plant.sample_steps * plant.dt
    return [None if one is None else _times(one, 1.0 / sample_s) for one in found]


def _declared(plant: Plant) -> list[Signal | None]:
    """Return the loads of instances as the scenario has them; what operators write follows only if they are sources."""
    found: list[Signal | None] = []
    unit_s = plant.sample_steps * plant.dt
    for one in plant.cast.operators:
        for weight in one.weights:
            load: Signal | None = None
            if isinstance(one.load, Sinusoid):
                phase = one.load.phase + 2.0 * np.pi * plant.step * plant.dt / one.load.period
                load = Sinusoid(
                    one.load.baseline * weight, one.load.amplitude * weight, one.load.period / unit_s, float(phase)
                )
            elif isinstance(one.load, Samples):
                step_s, rates = one.load.step_s, one.load.rates_rps
                count = max(1, round(len(rates) * step_s / unit_s))
                at = (plant.step * plant.dt + np.arange(count) * unit_s) / step_s
                load = Trace(tuple(rates[int(i + 1e-9) % len(rates)] * weight for i in at))
            found.append(load)
    return found


def _rates(plant: Plant, began: Sequence[int]) -> dict[str, float]:
    seconds = (plant.step - np.array(began)) * plant.dt
    came = plant.counts.came[: len(began)]
    return {name: float(came[i] / seconds[i]) for i, name in enumerate(plant.cast.instances) if seconds[i] >= 1.0 / 1e9}


def _times(signal: Signal, factor: float) -> Signal:
    if isinstance(signal, Sinusoid):
        return replace(signal, baseline=signal.baseline * factor, amplitude=signal.amplitude * factor)
    assert isinstance(signal, Trace), "forecasts are made into traces"
    return Trace(tuple(load * factor for load in signal.loads))


def _mean(signal: Signal) -> float:
    return signal.baseline if isinstance(signal, Sinusoid) else float(np.mean(signal.loads))


def _balanced(loads: Mapping[int, Signal], names: Sequence[str], machines: Sequence[Machine]) -> dict[str, str]:
    filled = [0.0] * len(machines)
    placement = {}
    for i in sorted(loads, key=lambda i: (-_mean(loads[i]), i)):
        load = _mean(loads[i])
        best = min(range(len(machines)), key=lambda m: ((filled[m] + load) / machines[m].capacity, m))
        filled[best] += load
        placement[names[i]] = machines[best].name
    return placement


def _kinds(machines: Sequence[Machine]) -> list[tuple[Kind, list[str]]]:
    """Return machines of equal capacity and price together, with their names."""
    groups: dict[tuple[float, float], list[str]] = {}
    for one in machines:
        groups.setdefault((one.capacity, one.price), []).append(one.name)
    is_priced = all(price > 0.0 for _, price in groups) and len({price for _, price in groups}) > 1
    return [
        (Kind(capacity, len(names), price if is_priced else 1.0), names) for (capacity, price), names in groups.items()
    ]


def _named(assignment: Mapping[str, int], kinds: Sequence[tuple[Kind, list[str]]], plant: Plant) -> dict[str, str]:
    """Return a packing on machines by name; of those that are alike, each group goes where most of it is already."""
    here = {
        name: plant.cast.machines[int(m)].name
        for name, m in zip(plant.cast.instances, plant.machine, strict=True)
        if m >= 0
    }
    groups: dict[int, list[str]] = {}
    for name, number in assignment.items():
        groups.setdefault(number, []).append(name)
    placement: dict[str, str] = {}
    first = 0
    for kind, machines in kinds:
        mine = {number: members for number, members in groups.items() if first <= number < first + kind.count}
        first += kind.count
        offers = []
        for number, members in mine.items():
            at: dict[str, int] = {}
            for name in members:
                if here.get(name) in machines:
                    at[here[name]] = at.get(here[name], 0) + 1
            offers += [(-count, number, machine) for machine, count in at.items()]
        taken: dict[int, str] = {}
        free = dict.fromkeys(machines)
        for _, number, machine in sorted(offers):
            if number not in taken and machine in free:
                taken[number] = machine
                del free[machine]
        for number, members in mine.items():
            if number not in taken:
                taken[number] = next(iter(free))
                del free[taken[number]]
            placement |= dict.fromkeys(members, taken[number])
    return placement
