"""What do the figures of repeated trials say?

Medians of distributions, means of repeated runs with confidence intervals (Student's t over the runs, 95 %), and
differences of runs that were made in pairs. Nothing is said of an interval where there was one run only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["Estimate", "estimate", "in_ms", "median", "paired", "percent_lower", "quantile"]

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over repeated runs."""

    mean: float
    half_width: float | None  # of the confidence interval; None: there was one run
    runs: int

    @property
    def low(self) -> float:
        """Return the lower end of the interval."""
        return self.mean - (self.half_width or 0.0)

    @property
    def high(self) -> float:
        """Return the upper end of the interval."""
        return self.mean + (self.half_width or 0.0)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies; nan of none.

    >>> quantile([1.0, 2.0, 3.0], 0.5)
    2.0
    """
    return float(np.quantile(np.asarray(values), share)) if values else math.nan


def median(values: Sequence[float]) -> float:
    """Return the middle of values."""
    return quantile(values, 0.5)


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of runs and its confidence interval; runs without a figure (nan) do not count.

    >>> estimate([1.0, 2.0, 3.0]).mean, round(estimate([1.0, 2.0, 3.0]).half_width, 2), estimate([4.0]).half_width
    (2.0, 2.48, None)
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Estimate(math.nan, None, 0)
    mean = float(np.mean(known))
    if len(known) == 1:
        return Estimate(mean, None, 1)
    error = float(np.std(known, ddof=1)) / math.sqrt(len(known))
    return Estimate(mean, float(stats.t.ppf((1 + CONFIDENCE) / 2, len(known) - 1)) * error, len(known))


def paired(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Return how much the first is above the second, run by run: what a whole round shares does not count.

    >>> paired([3.0, 5.0], [2.0, 4.0])
    Estimate(mean=1.0, half_width=0.0, runs=2)
    """
    return estimate([one - other for one, other in zip(first, second, strict=True)])


def percent_lower(value: float, than: float) -> float:
    """Return by how many percent a value is lower than another; below 0 if it is higher.

    >>> percent_lower(50.0, 200.0)
    75.0
    """
    return 100 * (1 - value / than) if than else math.nan


def in_ms(value: Estimate, digits: int = 0) -> str:
    """Return an estimate of seconds as text.

    >>> in_ms(Estimate(0.1234, 0.0056, 3)), in_ms(Estimate(0.1234, None, 1), digits=1)
    ('123 ± 6 ms', '123.4 ms')
    """
    width = "" if value.half_width is None else f" ± {value.half_width * 1000:.{digits}f}"
    return f"{value.mean * 1000:.{digits}f}{width} ms"
