"""How many rows does it take to tell what an operator costs?

Takes a way to run rows with and without the operator, and gives the operator's time for a row. The first trials are
small: an operator may take a microsecond or a second for a row. They also warm everything up, and none of them
counts. Knows nothing of Spark: `serve.profile_main` runs the trials.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Timing", "Trial", "timed"]

FIRST_ROWS = 256  # of the first trial
MOST_ROWS, MOST_BYTES = 3_000_000, 4e9  # of one trial
GROWTH = 16.0  # from one trial to the next, at most
ENOUGH = 0.8  # of the time wanted
SHORT_S = 1e-3  # no trial counts as shorter
TICK_S = 0.02  # what the system's clocks of processor time leave open


class Trial(NamedTuple):
    """One run of rows without an operator and one with it."""

    rows: int
    without_s: float  # processor seconds
    with_s: float

    @property
    def added_s(self) -> float:
        """Return what the operator added."""
        return self.with_s - self.without_s


@dataclass(frozen=True, slots=True)
class Timing:
    """What an operator costs for a row."""

    work_s: float  # processor seconds, the median of all repetitions; never below 0
    spread_s: float  # how far another measurement may lie from that: as far as repetitions lie apart
    rows: int  # of each repetition

    @property
    def is_told(self) -> bool:
        """Return whether it can be told from noise."""
        return self.work_s > self.spread_s


def timed(run: Callable[[int, int], Trial], total: int, mean_bytes: float, least_s: float, repeat: int) -> Timing:
    """Return what an operator costs for a row.

    A query with an operator costs more than one without it before the first row comes: it is planned, compiled, and
    keeps state. So each trial is compared with one of a single row, and what is left is the rows' own.

    Args:
        run: Makes a trial of about so many rows; is told the number of the repetition, 0 for what does not count.
        total: Rows that there are; more are the same ones again.
        mean_bytes: Of a row.
        least_s: What the operator should add to a trial, if that can be had: where the rest of the trial takes as
            long by itself, more rows would only take longer.
        repeat: Trials that count.
    """
    run(1, 0)
    idle = run(1, 0)
    most = max(2, int(min(MOST_ROWS, MOST_BYTES / max(1.0, mean_bytes))))
    count = _enough(run, idle, min(max(2, total), FIRST_ROWS, most), most, least_s)
    while True:
        idles, trials = [], []
        for i in range(repeat):
            idles.append(run(1, i + 1))
            trials.append(run(count, i + 1))
        # A cold start may have made too few rows seem enough; all repetitions together know better.
        takes_s = _takes_s(_middle(idles), _middle(trials))
        if takes_s >= ENOUGH / 2 * least_s or count >= most:
            break
        count = _enough(run, idle, _more(count, most, least_s, takes_s), most, least_s)
    fixed = [each.added_s for each in idles]
    more = max(1, trials[0].rows - idle.rows)
    works = [(each.added_s - statistics.median(fixed)) / more for each in trials]
    middle = statistics.median(works)
    spread = max(works) - min(works) + (TICK_S + (max(fixed) - min(fixed)) / 2) / more
    return Timing(max(0.0, middle), spread, trials[0].rows)


def _enough(run: Callable[[int, int], Trial], idle: Trial, count: int, most: int, least_s: float) -> int:
    """Return how many rows it takes, `count` or more; the first trial is not believed, for it may be a cold start."""
    is_warm = False
    while True:
        trial = run(count, 0)
        takes_s = _takes_s(idle, trial)
        if is_warm and (takes_s >= ENOUGH * least_s or count >= most):
            return count
        count = _more(count, most, least_s, takes_s)
        is_warm = True


def _more(count: int, most: int, least_s: float, takes_s: float) -> int:
    return min(most, math.ceil(count * min(GROWTH, max(1.0, least_s / takes_s))))


def _takes_s(idle: Trial, trial: Trial) -> float:
    """Return what the rows of a trial take, by the operator or by the rest, whichever is more."""
    return max(trial.added_s - idle.added_s, trial.without_s - idle.without_s, SHORT_S)


def _middle(trials: Sequence[Trial]) -> Trial:
    """Return the trial in the middle of several of as many rows."""
    without_s = statistics.median(each.without_s for each in trials)
    return Trial(trials[0].rows, without_s, without_s + statistics.median(each.added_s for each in trials))
