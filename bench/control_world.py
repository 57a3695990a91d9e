"""Which world do the simulated measurements of latency control happen in?

That of paper 003: four machines with eight cores, applications of three classes, a burst of the lowest class. The
paper says nothing of the work of a record. Here it is chosen so that 1 600 records a second for each application fill
the machines to a stated part before the burst; low and middle traffic are what that makes of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.control.decision import Applications, applications
from headwater.control.policies import Policy
from headwater.model.quality import QUALITIES, Quality
from headwater.model.scenario import Event, Machine, RateChange, Samples, Scenario, Simulated
from headwater.model.workload import Sinusoid

if TYPE_CHECKING:  # compiles
    from headwater.sim.classes import Look, Span

__all__ = ["CLASSES", "Run", "World", "played", "world"]

MACHINES, CORES = 4, 8.0
CLASSES = tuple(QUALITIES.values())
STEP_S = 0.01
WARM_S = 20.0  # before anything is counted
BEFORE_S, BURST_S, AFTER_S = 20.0, 30.0, 30.0
LEAST_PART = 0.05  # of an equal share: below that nobody is pressed


@dataclass(frozen=True)
class World:
    """A scenario, and whose application is whose."""

    scenario: Scenario
    quality: tuple[int, ...]  # by application: the number of its class
    traffic_rps: float
    full: float  # of the machines, before the burst


def world(
    count: int, rate_rps: float, full: float, seed: int = 0, traces: Sequence[Sequence[float]] = (),
    full_rate_rps: float = 1600.0, factor: float = 3.0,
) -> World:  # fmt: skip
    """Return applications of three kinds of work (0.5, 1 and 1.5 times the mean) and of three classes.

    Args:
        count: Applications.
        rate_rps: Of each of them.
        full: The part of the machines that all of them at the full rate take.
        seed: Of classes, kinds and phases.
        traces: Loads that rise and fall, one value a second, with a mean of 1; else the rate is steady.
        full_rate_rps: The full rate.
        factor: Of the load of the lowest class in the burst.
    """
    rng = np.random.default_rng(seed)
    quality, kinds = np.zeros(count, int), np.zeros(count, int)
    for j in range(MACHINES):  # each machine has as many of each, so that each is as full
        mine = np.arange(j, count, MACHINES)
        quality[mine] = rng.permutation(np.arange(len(mine)) % len(CLASSES))
        kinds[mine] = rng.permutation(np.arange(len(mine)) % 3)
    mean_work_s = full * MACHINES * CORES / (count * full_rate_rps)
    made = []
    for i in range(count):
        load: Sinusoid | Samples = Sinusoid(rate_rps)
        if traces:
            trace = traces[int(rng.integers(len(traces)))]
            begin = int(rng.integers(len(trace)))
            load = Samples(tuple(rate_rps * one for one in (*trace[begin:], *trace[:begin])))
        made.append(
            Simulated(
                f"a{i}",
                load,
                work_s=mean_work_s * (0.5, 1.0, 1.5)[kinds[i]],
                is_poisson=True,
                is_exponential=True,
                on=(f"m{i % MACHINES}",),
            )
        )
    begin_s, end_s = WARM_S + BEFORE_S, WARM_S + BEFORE_S + BURST_S
    lowest = [one.name for one, of in zip(made, quality, strict=True) if of == len(CLASSES) - 1]
    events = [Event(begin_s, RateChange(name, factor)) for name in lowest]
    events += [Event(end_s, RateChange(name, 1.0)) for name in lowest]
    machines = tuple(Machine(f"m{j}", CORES) for j in range(MACHINES))
    scenario = Scenario("burst", end_s + AFTER_S, machines, tuple(made), tuple(events), STEP_S, seed)
    return World(scenario, tuple(int(one) for one in quality), rate_rps, full * rate_rps / full_rate_rps)


@dataclass(frozen=True)
class Run:
    """What came of a run: by phase and class."""

    phases: dict[str, tuple[Span, ...]]
    above: dict[str, tuple[int, ...]]  # applications of which more is late than is tolerated: a goal is about each one
    shares: tuple[tuple[float, ...], ...]  # every second: the part of the machines that each class used
    control_s: float  # processor seconds of one step of all machines, in the mean
    gave_way: int  # seconds in which some goal gave way


def played(the: World, make: Any, seed: int | None = None) -> Run:
    """Run a world with one controller for each machine; `make` makes a policy."""
    from headwater.sim.classes import Watch, spans  # noqa: PLC0415 - compiles
    from headwater.sim.simulation import Simulation  # noqa: PLC0415 - compiles

    simulation = Simulation(the.scenario, the.scenario.seed if seed is None else seed)
    plant = simulation.plant
    quality = np.array(the.quality)
    watch = Watch(plant, quality, [CLASSES[one].goal_s for one in the.quality])
    names = [one.name for one in the.scenario.operators]
    hands: list[tuple[Any, Policy, Applications]] = []
    for j in range(MACHINES):
        mine = [i for i in range(len(names)) if i % MACHINES == j]
        qualities: tuple[Quality, ...] = tuple(CLASSES[quality[i]] for i in mine)
        least = LEAST_PART * CORES / max(1, len(mine))
        apps = applications(tuple(names[i] for i in mine), qualities, least)
        hands.append((simulation.meter_of(f"m{j}"), make(), apps))
    marks = {"before": WARM_S, "burst": WARM_S + BEFORE_S, "after": WARM_S + BEFORE_S + BURST_S, "end": -1.0}
    looks: dict[str, Look] = {}
    shares, spent, gave_way = [], 0.0, 0
    work = plant.knobs.work[: len(names)]
    used_before = np.zeros(len(names))
    second = 0
    while not simulation.is_over:
        for name, at_s in marks.items():
            if at_s == second:
                looks[name] = watch.look()
        second += 1
        simulation.advance(float(second))
        used = plant.counts.done[: len(names)] * work
        shares.append(tuple(float(x) / (MACHINES * CORES) for x in np.bincount(quality, used - used_before, 3)))
        used_before = used.copy()
        is_way = False
        for meter, policy, apps in hands:
            readings = meter.read()
            begun_s = time.process_time()
            decision = policy.decide(simulation.now_s, readings, apps, CORES)
            spent += time.process_time() - begun_s
            simulation.governor.set(decision.alone_of)
            is_way |= bool(decision.gives_way)
        gave_way += is_way
    looks["end"] = watch.look()
    phases = {begin: spans(watch, looks[begin], looks[end]) for begin, end in pairwise(looks)}
    above = {begin: _above(looks[begin], looks[end], quality) for begin, end in pairwise(looks)}
    return Run(phases, above, tuple(shares), spent / second, gave_way)


def _above(begin: Look, end: Look, quality: Any) -> tuple[int, ...]:
    """Return of how many applications of each class more is late than is tolerated, what is overdue included."""
    known = end.done - begin.done + end.overdue
    late = (end.late - begin.late + end.overdue) / np.maximum(known, 1e-9)
    return tuple(int(np.count_nonzero(late[quality == k] > one.tolerated)) for k, one in enumerate(CLASSES))
