"""How many rows does it take to tell what an operator costs?

Takes a way to run rows with and without the operator, and gives the operator's time for a row. The first trials are
small: an operator may take a microsecond or a second for a row. They also warm everything up, and none of them
counts. Knows nothing of Spark: `serve.profile_main` runs the trials.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Timing", "Trial", "timed"]

FIRST_ROWS = 256  # of the first trial
MOST_ROWS, MOST_BYTES = 3_000_000, 4e9  # of one trial
GROWTH = 16.0  # from one trial to the next, at most
ENOUGH = 0.8  # of the time wanted
TICK_S = 0.02  # what the system's clocks of processor time leave open
LEAST_SPREAD = 0.1  # relative; from one start of the JVM to the next, its compiler decides otherwise


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

    Args:
        run: Makes a trial of about so many rows; is told the number of the repetition, 0 for what does not count.
        total: Rows that there are; more are the same ones again.
        mean_bytes: Of a row.
        least_s: What the operator should add to a trial, if that can be had: where the rest of the trial takes as
            long by itself, more rows would only take longer.
        repeat: Trials that count.
    """
    most = max(1, int(min(MOST_ROWS, MOST_BYTES / max(1.0, mean_bytes))))
    count, is_warm, fixed_s = min(total, FIRST_ROWS, most), False, math.inf
    while True:
        trial = run(count, 0)
        fixed_s = min(fixed_s, trial.without_s)  # what a query costs before its first row
        takes_s = max(trial.added_s, trial.without_s - fixed_s, 1e-3)
        is_enough = takes_s >= ENOUGH * least_s or count >= most
        if is_enough and is_warm:
            break
        growth = min(GROWTH, max(1.0, least_s / takes_s))
        count = min(most, math.ceil(count * growth))
        is_warm = True
    trials = [run(count, i + 1) for i in range(repeat)]
    rows = trials[0].rows
    works = [trial.added_s / trial.rows for trial in trials]
    middle = statistics.median(works)
    spread = max(works) - min(works) + TICK_S / rows
    return Timing(max(0.0, middle), max(spread, LEAST_SPREAD * middle), rows)
