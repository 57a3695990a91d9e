"""Random scenarios, and the equations of paper 004 once more: plainly, slowly, one record count at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from headwater.model.pipeline import Stream
from headwater.model.scenario import (
    Event,
    KillMachine,
    KillOperator,
    LinkChange,
    Machine,
    NewMachine,
    NewOperator,
    RateChange,
    Samples,
    Scenario,
    Schedule,
    Simulated,
)
from headwater.model.sites import Link, Site, Sites
from headwater.model.workload import Sinusoid
from tests.strategies import Dice

__all__ = ["Plain", "random_scenario"]

STEPS = 40
RATES = (100.0, 10.0, 250.0, 33.3, 0.0)
PERIODS_S = (40.0, 7.0, 300.0, 13.3)
WORKS_S = (1.0, 0.5, 0.0, 2.5)
FACTORS = (1.0, 0.5, 2.0, 0.0)
CAPACITIES = (500.0, 100.0, 60.0, 1000.0)


def random_scenario(dice: Dice, *, has_events: bool = True, has_sites: bool = False, has_chance: bool = False,
                    has_schedules: bool = False) -> Scenario:  # fmt: skip
    """Return a scenario of few operators on few machines in which everything may happen."""
    step_s = dice.pick((1.0, 0.5, 2.0))
    names = [f"m{i}" for i in range(dice.whole(1, 3))]
    machines = [Machine(name, dice.pick((1.0, 2.0)), dice.pick(CAPACITIES), dice.pick((0.0, 1.5))) for name in names]
    operators: list[Simulated] = []
    for i in range(dice.whole(1, 5)):
        operators.append(_operator(dice, i, [one.name for one in operators], names, has_chance))
    sites = _sites(dice, names) if has_sites else None
    return Scenario(
        "random", STEPS * step_s, tuple(machines), tuple(operators),
        tuple(_events(dice, operators, names, STEPS * step_s, sites, has_schedules)) if has_events else (),
        step_s, dice.whole(0, 9), sites,
    )  # fmt: skip


def _operator(dice: Dice, number: int, before: list[str], machines: list[str], has_chance: bool) -> Simulated:
    inputs = []
    if before and dice.chance(60):
        sources = dice.shuffle(before)[: dice.pick((1, 2))]
        inputs = [Stream(source, f"o{number}", dice.pick(FACTORS), 1.0) for source in sources]
    load: Sinusoid | Samples | None = None
    if not inputs or dice.chance(20):
        base = dice.pick(RATES)
        load = Sinusoid(base, base * dice.pick((0.0, 0.5, 1.0)), dice.pick(PERIODS_S), dice.pick((0.0, 1.0, 4.0)))
        if dice.chance(30):
            load = Samples(tuple(dice.pick(RATES) for _ in range(dice.whole(1, 6))), dice.pick((2.0, 5.0)))
    instances = dice.pick((1, 1, 2, 3))
    parts = [float(dice.whole(1, 4)) for _ in range(instances)]
    return Simulated(
        f"o{number}", load, tuple(inputs), dice.pick(WORKS_S), dice.pick(FACTORS), 1000.0, 1.0,
        tuple(one / sum(parts) for one in parts), dice.pick((math.inf, math.inf, 50.0, 0.0)),
        is_poisson=has_chance and dice.chance(50), is_exponential=False,
        lane=dice.pick((None, "real-time", "micro-batch")),
        on=tuple(dice.pick(machines) for _ in range(instances)) if dice.chance(80) else (),
        share=dice.pick((math.inf, math.inf, 20.0)),
    )  # fmt: skip


def _sites(dice: Dice, names: list[str]) -> Sites:
    sites = [Site(name, slots=9) for name in names] + [Site("hub", slots=0)]
    links = [Link(name, "hub", dice.pick((0.0, 0.3, 1.0, 3.0)), dice.pick((1e5, 1e6, 1e9))) for name in names]
    return Sites(tuple(sites), tuple(links))


def _events(dice: Dice, operators: list[Simulated], machines: list[str], end_s: float, sites: Sites | None,
            has_schedules: bool) -> list[Event]:  # fmt: skip
    found: list[Event] = []
    gone: set[str] = set()
    down: set[str] = set()
    fresh = 0
    for at_s in sorted(dice.whole(0, int(end_s)) for _ in range(dice.whole(0, 5))):
        kind = dice.whole(0, 6)
        left = [one for one in operators if one.name not in gone]
        up = [one for one in machines if one not in down]
        if kind == 0 and up:
            down.add(dice.pick(up))
            found.append(Event(float(at_s), KillMachine(sorted(down)[-1], dice.chance(40))))
            down = {one for one in machines if _is_down(one, found)}
        elif kind == 1 and down:
            name = sorted(down)[0]
            down.discard(name)
            found.append(Event(float(at_s), NewMachine(Machine(name))))
        elif kind == 2 and left:
            name = dice.pick(left).name
            gone.add(name)
            found.append(Event(float(at_s), KillOperator(name)))
        elif kind == 3:
            fresh += 1
            found.append(
                Event(float(at_s), NewOperator(Simulated(f"new{fresh}", Sinusoid(30.0), on=(dice.pick(machines),))))
            )
        elif kind == 4 and [one for one in left if one.load is not None]:
            chosen = dice.pick([one for one in left if one.load is not None])
            found.append(Event(float(at_s), RateChange(chosen.name, dice.pick((0.0, 0.5, 3.0)))))
        elif kind == 5 and sites is not None:
            link = dice.pick(sites.links)
            found.append(Event(float(at_s), LinkChange((link.a, link.b), dice.pick((0.0, 2.0)), dice.pick((1e4, 1e9)))))
        elif kind == 6 and has_schedules and up:
            found.append(Event(float(at_s), Schedule(dice.pick(("bestfit", "balance", "random")))))
    return found


def _is_down(machine: str, events: list[Event]) -> bool:
    is_down = False
    for event in events:
        if isinstance(event.change, KillMachine) and event.change.machine == machine:
            is_down = True
        if isinstance(event.change, NewMachine) and event.change.machine.name == machine:
            is_down = False
    return is_down


@dataclass
class Instance:
    """One instance: what waits by input (None: from outside), and what was counted."""

    operator: Simulated
    weight: float
    machine: str | None
    queues: dict[str | None, float]
    is_there: bool
    coming: dict[str, float] = field(default_factory=dict)  # what arrives with the next step, by writer
    came: float = 0.0
    done: float = 0.0
    lost: float = 0.0


class Plain:
    """A scenario without sites, chance and schedules, by equations 4 to 11."""

    def __init__(self, scenario: Scenario) -> None:
        """Make all instances."""
        self.scenario = scenario
        self.factor: dict[str, float] = {}
        self.capacity = {one.name: one.capacity for one in scenario.machines}
        self.up = set(self.capacity)
        self.instances: dict[str, Instance] = {}
        for one in scenario.operators:
            self._add(one, is_there=True)
        for event in scenario.events:
            if isinstance(event.change, NewOperator):
                self._add(event.change.operator, is_there=False)
        self.step = 0
        self.pending = [(scenario.step_at(event.at_s), event.change) for event in scenario.events]

    def _add(self, one: Simulated, *, is_there: bool) -> None:
        for i, weight in enumerate(one.weights):
            queues: dict[str | None, float] = {}
            if one.load is not None:
                queues[None] = 0.0
            machine = one.on[i % len(one.on)] if one.on else None
            self.instances[one.instance(i)] = Instance(one, weight, machine, queues, is_there)

    def of(self, operator: str) -> list[Instance]:
        """Return the instances of an operator."""
        return [one for one in self.instances.values() if one.operator.name == operator]

    def advance(self) -> None:  # noqa: PLR0912 - the equations in one piece, to be read beside the paper
        """Make one step."""
        while self.pending and self.pending[0][0] <= self.step:
            self._happen(self.pending.pop(0)[1])
        dt, now_s = self.scenario.step_s, self.step * self.scenario.step_s
        wishes: dict[str, float] = {}
        for name, one in self.instances.items():
            fresh = dict(one.coming)
            one.coming = {}
            if one.operator.load is not None and one.is_there:
                rate = self._rate(one.operator, now_s)
                fresh[""] = rate * one.weight * self.factor.get(one.operator.name, 1.0) * dt
            for key, count in fresh.items():
                source = key or None
                one.queues[source] = one.queues.get(source, 0.0) + count
                one.came += count
            there = sum(one.queues.values())
            runs = one.machine is not None and one.machine in self.up
            wishes[name] = min(one.operator.work_s * there, one.operator.share * dt) if runs else 0.0
        asked = {machine: 0.0 for machine in self.capacity}
        for name, one in self.instances.items():
            if one.machine is not None:
                asked[one.machine] += wishes[name]
        sent: list[tuple[Instance, str, float]] = []
        for name, one in self.instances.items():
            there = sum(one.queues.values())
            if not one.is_there:
                one.lost += there
                one.queues = dict.fromkeys(one.queues, 0.0)
                continue
            if one.machine is None or one.machine not in self.up or there <= 0.0:
                processed = 0.0
            elif one.operator.work_s == 0.0:
                processed = there
            else:
                can = self.capacity[one.machine] * dt
                got = wishes[name] * min(1.0, can / asked[one.machine])  # equation 10, and never more than is asked
                processed = min(there, got / one.operator.work_s)
            one.done += processed
            rest = there - processed
            kept = min(rest, one.operator.queue)
            one.lost += rest - kept
            if there > 0.0:
                one.queues = {key: count * kept / there for key, count in one.queues.items()}
            for other in self.instances.values():
                for stream in other.operator.inputs:
                    if stream.source == one.operator.name and other.is_there:
                        part = stream.rate_factor * other.weight * one.operator.rate_factor
                        sent.append((other, name, processed * part))
        for other, name, count in sent:
            other.coming[name] = other.coming.get(name, 0.0) + count
        self.step += 1

    @staticmethod
    def _rate(one: Simulated, now_s: float) -> float:
        if isinstance(one.load, Sinusoid):
            return max(0.0, one.load.at(now_s))
        assert one.load is not None
        return one.load.rates_rps[int(now_s / one.load.step_s + 1e-9) % len(one.load.rates_rps)]

    def _happen(self, change: object) -> None:
        if isinstance(change, KillMachine):
            self.up.discard(change.machine)
            for one in self.instances.values():
                if one.machine == change.machine and change.drops:
                    one.lost += sum(one.queues.values())
                    one.queues = dict.fromkeys(one.queues, 0.0)
        elif isinstance(change, NewMachine):
            self.up.add(change.machine.name)
        elif isinstance(change, NewOperator):
            for one in self.of(change.operator.name):
                one.is_there = True
        elif isinstance(change, KillOperator):
            for one in self.of(change.operator):
                one.is_there, one.machine = False, None
                one.lost += sum(one.queues.values())
                one.queues = dict.fromkeys(one.queues, 0.0)
        elif isinstance(change, RateChange):
            self.factor[change.operator] = change.factor
        else:
            raise AssertionError(f"not in the plain form: {change}")
