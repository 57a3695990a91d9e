"""How late are the records of each class of applications?

A `Watch` looks at a plant now and then and keeps what was counted by class, so that figures of any span between two
looks can be made: percentiles from histograms, and violations, the part of the records that were later than the goal
of their own application. A record counts when it is done, or when it waits and has waited for longer than the goal
already, so that whoever gets nothing does not look good; one that may still be in time counts as neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.sim.advance import BINS, BINS_PER_OCTAVE, LEAST_BIN_S
from headwater.sim.arrays import Floats, Ints
from headwater.sim.plant import Plant
from headwater.sim.result import percentile

__all__ = ["Look", "Span", "Watch", "late_part", "spans"]


@dataclass(frozen=True)
class Look:
    """What was counted until a moment; columns over instances, except for `delays`."""

    at_s: float
    delays: Floats  # by class and bin of delay: records
    came: Floats  # records
    done: Floats
    late: Floats  # of them, later than the goal
    used: Floats  # processor seconds at speed 1
    waiting: Floats  # at that moment
    overdue: Floats  # of them, those that have waited for longer than the goal
    lost: Floats  # records that found no room, or went with their operator


@dataclass(frozen=True, slots=True)
class Span:
    """What came of one class between two looks."""

    seconds: float
    p50_s: float | None  # None where nothing was done
    p99_s: float | None
    violations: float  # part that is late: of the records done, and of those that are overdue at the end
    done: float
    used: float  # processor seconds at speed 1
    waiting: float  # records, at the end
    overdue: float  # of them, those that have waited for longer than the goal


class Watch:
    """Looks at a plant."""

    def __init__(self, plant: Plant, class_of: Sequence[int] | Ints, goal_s: Sequence[float] | Floats) -> None:
        """Choose what to look at.

        Args:
            plant: One that keeps histograms.
            class_of: The number of the class of each instance.
            goal_s: The goal of each instance.
        """
        assert plant.is_detailed, "without histograms nobody knows how late records are"
        self._plant = plant
        self.class_of: Ints = np.asarray(class_of, np.int64)
        count = int(self.class_of.max(initial=-1)) + 1
        self._is_of = (self.class_of == np.arange(count)[:, None]).astype(np.float64)
        self._goal_s: Floats = np.asarray(goal_s, np.float64)
        self._above = _above(self._goal_s)
        self._came: list[tuple[float, Floats]] = [(0.0, np.zeros(len(self.class_of)))]  # until when, and how much

    def look(self) -> Look:
        """Return what was counted so far."""
        plant, count = self._plant, len(self.class_of)
        plant.settle()
        delays, counts = plant.detail.delays[:count], plant.counts
        done, at_s = counts.done[:count].copy(), plant.step * plant.dt
        waiting = plant.waiting()[:count].copy()
        return Look(
            at_s,
            self._is_of @ delays,
            counts.came[:count].copy(),
            done,
            np.einsum("ij,ij->i", delays, self._above),
            done * plant.knobs.work[:count],
            waiting,
            self._overdue(at_s, counts.came[:count] - counts.lost[:count], waiting),
            counts.lost[:count].copy(),
        )

    def _overdue(self, at_s: float, came: Floats, waiting: Floats) -> Floats:
        """Return how many of those that wait came longer ago than their goal: more wait than came since then.

        `came` is what came and was not dropped: it falls where what waits is dropped. What came between two looks is
        taken to have come evenly, and to be served in the order in which it came.
        """
        if at_s > self._came[-1][0]:
            self._came.append((at_s, came.copy()))
        times = np.array([one for one, _ in self._came])
        since = np.zeros(len(came))
        for goal_s in np.unique(self._goal_s):
            mine = self._goal_s == goal_s
            k = int(np.clip(np.searchsorted(times, at_s - goal_s, "right"), 1, max(1, len(times) - 1)))
            (begin_s, before), (end_s, after) = self._came[k - 1], self._came[min(k, len(times) - 1)]
            part = (at_s - goal_s - begin_s) / (end_s - begin_s) if end_s > begin_s else 0.0
            then = before[mine] + np.clip(part, 0.0, 1.0) * (after[mine] - before[mine])
            since[mine] = came[mine] - then
        oldest_s = at_s - float(self._goal_s.max(initial=0.0))
        del self._came[: max(0, int(np.searchsorted(times, oldest_s, "right")) - 1)]
        return np.asarray(np.clip(waiting - since, 0.0, waiting), np.float64)

    def by_class(self, values: Floats) -> Floats:
        """Return a column over instances summed by class."""
        return np.asarray(self._is_of @ values, np.float64)


def spans(watch: Watch, begin: Look, end: Look) -> tuple[Span, ...]:
    """Return what came of each class between two looks."""
    done, late, used = (watch.by_class(getattr(end, key) - getattr(begin, key)) for key in ("done", "late", "used"))
    bins = end.delays - begin.delays
    waiting, overdue = watch.by_class(end.waiting), watch.by_class(end.overdue)
    return tuple(
        Span(
            end.at_s - begin.at_s,
            percentile(bins[k], 0.5),
            percentile(bins[k], 0.99),
            late_part(late[k], done[k], overdue[k]),
            float(done[k]),
            float(used[k]),
            float(waiting[k]),
            float(overdue[k]),
        )
        for k in range(len(bins))
    )


def late_part(late: float, done: float, overdue: float) -> float:
    """Return which part of the records is late, of those that were done and of those that are overdue.

    >>> late_part(0.0, 90.0, 10.0)
    0.1
    """
    known = float(done + overdue)
    return float(late + overdue) / known if known > 0.0 else 0.0


def _above(goal_s: Floats) -> Floats:
    """Return which part of each bin is above a goal, straight within the bin; by instance and bin."""
    ends = LEAST_BIN_S * 2.0 ** (np.arange(BINS) / BINS_PER_OCTAVE)
    begins = np.concatenate(([0.0], ends[:-1]))
    return np.asarray(np.clip((ends - goal_s[:, None]) / (ends - begins), 0.0, 1.0), np.float64)
