"""What comes of a scenario whose latency goals are held?

One `Holder` for each machine, as at every site: it reads what is measured of the instances that stand there, decides
every interval and sets limits. `hold` runs a scenario so and tells how late the records of each class and of each
application were, what was used, and which goals gave way when. The goal of an application is about the time from
coming in to being processed there.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from headwater.control.mpc import Settings
from headwater.model.quality import quality_of
from headwater.model.scenario import Scenario
from headwater.model.units import show
from headwater.ports import Journal
from headwater.run.qos import Holder, Roster
from headwater.sim.arrays import Floats
from headwater.sim.classes import Look, Watch, late_part, spans
from headwater.sim.result import Simulated
from headwater.sim.simulation import Simulation

__all__ = ["WINDOW_S", "Course", "Figures", "GaveWay", "Held", "hold"]

Say = Callable[[str, float | None], None]
WINDOW_S = 10.0  # of which the worst is told, in whole intervals
LEAST_PART = 0.05  # of an equal share: below that nobody is pressed
BREAK_STEPS = 3  # without giving way, after which it counts as another time


@dataclass(frozen=True, slots=True)
class Figures:
    """How late the records of an application were, or of all applications of a class."""

    name: str
    quality: str  # the class
    goal_s: float  # of a class: the least of its applications'
    most_goal_s: float  # and the greatest
    applications: int
    done: float  # records
    waiting: float  # at the end
    overdue: float  # of them, those that have waited for longer than the goal
    dropped: float
    p50_s: float | None  # None where nothing was done
    p99_s: float | None
    violations: float  # part that is late: of the records done, and of those that are overdue at the end
    worst: float  # the same in the worst window
    worst_s: float | None  # when that window ends; None where there is none
    used: float  # part of the machines


@dataclass(frozen=True, slots=True)
class GaveWay:
    """A time in which goals of a class gave way at a machine."""

    machine: str
    quality: str
    begin_s: float
    end_s: float
    lacking: float  # cores, at the worst moment
    because: str  # at the worst moment


@dataclass(frozen=True)
class Course:
    """What happened when: a row for each interval, a column for each class; parts are of all machines that run."""

    times_s: Floats  # at which an interval ends
    p99_s: Floats  # of what was done in it; NaN where nothing was
    violations: Floats
    queue: Floats  # records that wait
    used: Floats
    share: Floats  # part that was decided; infinite where nothing is limited
    demand: Floats  # part that the goals ask for


@dataclass(frozen=True)
class Held:
    """What came of it."""

    policy: str
    every_s: float  # between two decisions: whole steps
    step_s: float  # of the scenario: what is quicker cannot be told apart
    classes: tuple[Figures, ...]  # the heaviest first
    applications: tuple[Figures, ...]  # operators of the scenario, in its order
    gave_way: tuple[GaveWay, ...]  # by time
    course: Course
    steps: int  # decisions, over all machines
    window_s: float  # of which the worst is told
    simulated: Simulated


def hold(
    scenario: Scenario,
    policy: str = "predictive",
    seed: int | None = None,
    every_s: float = 1.0,
    say: Say | None = None,
    journal: Callable[[str], Journal | None] = lambda _: None,
) -> Held:
    """Run a scenario with a holder for each machine.

    Args:
        scenario: What is to happen.
        policy: By name.
        seed: In the place of the scenario's own.
        every_s: How often it is decided; at least a step of the scenario.
        say: Takes progress.
        journal: Gives what takes the decisions of a machine.

    Raises:
        KeyError: There is no such policy.
    """
    run = _Run(Simulation(scenario, seed), policy, every_s, journal)
    end_s = scenario.steps * scenario.step_s
    while not run.simulation.is_over:
        run.step()
        if say is not None:
            say(f"{show(run.simulation.now_s, 'time')} of {show(end_s, 'time')}", run.simulation.now_s / end_s)
    return run.held()


class _Run:
    """A scenario as it goes on, with its holders."""

    def __init__(
        self, simulation: Simulation, policy: str, every_s: float, journal: Callable[[str], Journal | None]
    ) -> None:
        self.simulation, self._plant, self._policy = simulation, simulation.plant, policy
        self._every = max(1, round(every_s / self._plant.dt))
        cast = self._plant.cast
        self._qualities = [quality_of(one.quality, one.goal_s) for one in cast.operators]
        ranks = sorted({one.name: one.weight for one in self._qualities}.items(), key=lambda pair: -pair[1])
        self._names = tuple(name for name, _ in ranks)
        of = [self._names.index(one.name) for one in self._qualities]
        self._class_of = np.array(of, np.int64)[cast.operator_of]
        goals = np.array([one.goal_s for one in self._qualities])[cast.operator_of]
        self._watch = Watch(self._plant, self._class_of, goals)
        self._number = dict(zip(cast.instances, self._class_of.tolist(), strict=True))
        settings = Settings(interval_s=self._every * self._plant.dt)
        self._holders = {
            one.name: Holder(
                simulation.meter_of(one.name), simulation.governor, self._roster(number, one.capacity),
                partial(float, one.capacity), policy, journal(one.name), settings=settings, is_there=lambda _: False,
            )
            for number, one in enumerate(cast.machines)
        }  # fmt: skip
        self._stops = sorted({simulation.scenario.step_at(one.at_s) for one in simulation.scenario.events})
        self._rows: list[tuple[float, ...]] = []
        self._capacity_s = 0.0  # of machines that run, summed over time
        self._before = self._watch.look()
        window = max(1, round(WINDOW_S / (self._every * self._plant.dt)))
        self._window_s = window * self._every * self._plant.dt
        self._by_class, self._by_operator = (_Worst(count, window) for count in (len(ranks), len(cast.operators)))
        self._ways = _Ways(self._every * self._plant.dt)

    def _most(self) -> dict[str, float]:
        """Return what instances may use at most, whatever is decided."""
        cast = self._plant.cast
        shares = [cast.operators[number].share for number in cast.operator_of]
        return {name: share for name, share in zip(cast.instances, shares, strict=True) if share < math.inf}

    def _roster(self, machine: int, capacity: float) -> Callable[[], Roster]:
        """Return what applications are held to; the least share follows how many stand on the machine."""
        plant, most = self._plant, self._most()
        qualities = {
            name: self._qualities[number]
            for name, number in zip(plant.cast.instances, plant.cast.operator_of.tolist(), strict=True)
        }
        made: dict[int, Roster] = {}

        def roster() -> Roster:
            count = max(1, int(np.count_nonzero(plant.machine == machine)))
            if count not in made:
                made[count] = Roster(qualities, LEAST_PART * capacity / count, most)
            return made[count]

        return roster

    def step(self) -> None:
        """Go on for an interval, look, and decide."""
        capacity_s = self._advance(self._plant.step + self._every)
        look = self._watch.look()
        self._capacity_s += capacity_s
        asked = np.zeros((2, len(self._names)))
        for name, holder in self._holders.items():
            if not self._plant.is_up(name):  # there is nothing to share
                self._ways.take(name, "out", look.at_s, self._left_behind(name, look))
                continue
            decision = holder.step(look.at_s)
            if decision is not None:
                mine = np.array([self._number[one] for one in decision.names], np.int64)
                for row, values in enumerate((decision.shares, decision.demand)):
                    np.add.at(asked[row], mine, values)
                ways = ((one.quality, one.lacking, str(one)) for one in decision.gives_way)
                self._ways.take(name, "short", decision.now_s, ways)
        self._note(look, capacity_s, asked)
        self._before = look

    def _advance(self, until: int) -> float:
        """Go on to a step; return the processor seconds of the machines that ran, for as long as each one did."""
        plant, capacity_s = self._plant, 0.0
        self.simulation.advance(plant.step * plant.dt)  # what happens at this very moment has happened
        while not self.simulation.is_over and plant.step < until:
            k = bisect_right(self._stops, plant.step)
            begin, stop = plant.step, min(until, self._stops[k]) if k < len(self._stops) else until
            up = sum(one.capacity for one in plant.cast.machines if plant.is_up(one.name))
            self.simulation.advance(stop * plant.dt)
            capacity_s += up * (plant.step - begin) * plant.dt
        return capacity_s

    def _left_behind(self, machine: str, look: Look) -> Iterator[tuple[str, float, str]]:
        """Give the classes whose records wait at a machine that is out: class, what they would use, and a sentence."""
        plant, before = self._plant, self._before
        here = (plant.machine == plant.cast.machine_number[machine]) & (look.overdue >= 1.0)
        seconds = max(look.at_s - before.at_s, 1e-300)
        would = (look.came - before.came) * plant.knobs.work[: len(look.came)] / seconds
        for k, name in enumerate(self._names):
            mine = np.flatnonzero(here & (self._class_of == k))
            if len(mine):
                first = plant.cast.operators[int(plant.cast.operator_of[mine[0]])].name
                others = "" if len(mine) == 1 else f" and {len(mine) - 1} more of '{name}'"
                because = (
                    f"'{first}'{others} stand{'s' if len(mine) == 1 else ''} still: the machine is out, and "
                    f"{float(look.overdue[mine].sum()):.0f} records have waited for longer than their goal"
                )
                yield name, float(would[mine].sum()), because

    def _note(self, look: Look, capacity_s: float, asked: Floats) -> None:
        """Keep what came of an interval; shares are parts of the machines that ran in it, in the mean."""
        before = self._before
        seconds = max(look.at_s - before.at_s, 1e-300)
        whole = max(capacity_s / seconds, 1e-300)
        found = spans(self._watch, before, look)
        late, done = look.late - before.late, look.done - before.done
        first = self._plant.cast.first[:-1]
        all_ = late, done, look.overdue
        self._by_class.take(look.at_s, *(self._watch.by_class(one) for one in all_))
        self._by_operator.take(look.at_s, *(np.add.reduceat(one, first) for one in all_))
        self._rows.append(
            (
                look.at_s,
                *(math.nan if one.p99_s is None else one.p99_s for one in found),
                *(one.violations for one in found),
                *self._watch.by_class(look.waiting).tolist(),
                *(one.used / (whole * seconds) for one in found),
                *(asked / whole).ravel().tolist(),
            )
        )

    def held(self) -> Held:
        """Return what came of it."""
        rows = np.array(self._rows).reshape(len(self._rows), -1)
        columns = np.split(rows[:, 1:], 6, axis=1)
        return Held(
            self._policy,
            self._every * self._plant.dt,
            self._plant.dt,
            tuple(self._classes()),
            tuple(self._applications()),
            self._ways.all(self.simulation.now_s),
            Course(rows[:, 0], *columns),
            sum(one.steps for one in self._holders.values()),
            self._window_s,
            self.simulation.result(),
        )

    def _classes(self) -> Iterator[Figures]:
        end = self._before
        nothing = Look(0.0, np.zeros_like(end.delays), *(np.zeros_like(end.done) for _ in range(7)))
        lost = self._watch.by_class(end.lost)
        for k, (name, span) in enumerate(zip(self._names, spans(self._watch, nothing, end), strict=True)):
            mine = [one for one in self._qualities if one.name == name]
            goals = [one.goal_s for one in mine]
            yield Figures(
                name, name, min(goals), max(goals), len(mine), span.done, span.waiting, span.overdue, float(lost[k]),
                span.p50_s, span.p99_s, span.violations, *self._by_class.of(k), self._part(span.used),
            )  # fmt: skip

    def _applications(self) -> Iterator[Figures]:
        end, first = self._before, self._plant.cast.first[:-1]
        late, used, overdue = (np.add.reduceat(one, first) for one in (end.late, end.used, end.overdue))
        for k, (one, quality) in enumerate(zip(self.simulation.result().operators, self._qualities, strict=True)):
            yield Figures(
                one.name, quality.name, quality.goal_s, quality.goal_s, 1, one.done, one.waiting, float(overdue[k]),
                one.dropped, one.p50_s, one.p99_s, late_part(late[k], one.done, overdue[k]),
                *self._by_operator.of(k), self._part(float(used[k])),
            )  # fmt: skip

    def _part(self, used: float) -> float:
        return used / self._capacity_s if self._capacity_s > 0.0 else 0.0


class _Worst:
    """The worst window of each of several, as intervals come in."""

    def __init__(self, count: int, intervals: int) -> None:
        self._late, self._done = np.zeros(count), np.zeros(count)
        self._kept: deque[tuple[Floats, Floats]] = deque(maxlen=intervals)
        self._worst, self._at_s = np.zeros(count), np.full(count, np.nan)

    def take(self, at_s: float, late: Floats, done: Floats, overdue: Floats) -> None:
        """Take an interval, and what is overdue at its end; a run shorter than a window is one."""
        self._kept.append((late, done))
        lates, dones = (np.sum([one[i] for one in self._kept], axis=0) + overdue for i in range(2))
        part = np.divide(lates, dones, out=np.zeros(len(dones)), where=dones > 0.0)
        is_worse = part > self._worst
        self._worst = np.where(is_worse, part, self._worst)
        self._at_s = np.where(is_worse, at_s, self._at_s)

    def of(self, number: int) -> tuple[float, float | None]:
        """Return the violations of the worst window of one of them, and when it ended."""
        at_s = float(self._at_s[number])
        return float(self._worst[number]), None if math.isnan(at_s) else at_s


class _Ways:
    """Times in which goals gave way, as decisions come in."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._open: dict[tuple[str, str, str], GaveWay] = {}
        self._closed: list[GaveWay] = []

    def take(self, machine: str, kind: str, now_s: float, ways: Iterable[tuple[str, float, str]]) -> None:
        """Take the classes that give way at a moment, what each lacks, and why; each kind of reason by itself."""
        for quality, lacking, because in ways:
            key = (machine, quality, kind)
            before = self._open.get(key)
            if before is not None and now_s - before.end_s > (BREAK_STEPS - 0.5) * self._every_s:
                self._closed.append(before)
                before = None
            begin_s, end_s = now_s if before is None else before.begin_s, now_s + self._every_s
            if before is None or lacking >= before.lacking:
                self._open[key] = GaveWay(machine, quality, begin_s, end_s, lacking, because)
            else:
                self._open[key] = replace(before, end_s=end_s)

    def all(self, until_s: float) -> tuple[GaveWay, ...]:
        """Return them all, by time; what is decided at the end is about nothing any more."""
        found = [one for one in (*self._closed, *self._open.values()) if one.begin_s < until_s]
        found.sort(key=lambda one: (one.begin_s, one.machine))
        return tuple(replace(one, end_s=min(one.end_s, until_s)) for one in found)
