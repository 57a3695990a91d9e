"""What was measured of the applications of one machine?

A `Readings` holds columns, one entry for each application: at thousands of applications a row for each would cost
more than the decision. Read as a mapping, it gives rows. What a meter says may be nonsense; `cleaned` says which
entries can be believed, and counts the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLUMNS", "Bools", "Cleaned", "Floats", "Ints", "Reading", "Readings", "cleaned", "oddities", "of_rows"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Reading:
    """What was measured of one application since it was read last."""

    seconds: float  # that it is about
    arrivals_rps: float  # records that came in
    throughput_rps: float  # records that were processed
    queue: float  # records that wait at present
    latency_s: float  # from coming in to being processed, mean over what was processed; 0 where nothing was
    used: float  # processor: seconds of work at speed 1 in a second
    share: float  # of processor that it gets at most, in the same unit; infinite where nothing limits it
    late_s: float = math.nan  # 99th percentile of latency, where it is measured
    run_delay: float = 0.0  # seconds in a second that its threads waited for a processor, summed over threads
    throttled: float = 0.0  # likewise, because of its own share


COLUMNS = ("arrivals_rps", "throughput_rps", "queue", "latency_s", "used", "share", "late_s", "run_delay", "throttled")
UNKNOWN_IS_FINE = ("late_s",)  # not measured everywhere
MOST = 1e15  # of anything; a larger number is nonsense


@dataclass(frozen=True)
class Readings(Mapping[str, Reading]):
    """Columns of readings, all about the same time."""

    names: tuple[str, ...]
    seconds: float
    columns: Mapping[str, Floats] = field(repr=False)
    memory_bps: float | None = None  # bytes a second that the machine exchanges with its memory; None: not counted

    def __getitem__(self, name: str) -> Reading:
        """Return the reading of one application."""
        i = self.places[name]
        return Reading(self.seconds, **{key: float(column[i]) for key, column in self.columns.items()})

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(self.names)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        """Compare as rows; what was not measured in both is the same in both."""
        return (
            isinstance(other, Readings)
            and (self.names, self.memory_bps) == (other.names, other.memory_bps)
            and np.array_equal(self.seconds, other.seconds, equal_nan=True)
            and self.columns.keys() == other.columns.keys()
            and all(np.array_equal(column, other.columns[key], equal_nan=True) for key, column in self.columns.items())
        )

    __hash__ = None  # type: ignore[assignment]  # arrays inside

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place of each name in the columns."""
        return {name: i for i, name in enumerate(self.names)}


def of_rows(rows: Mapping[str, Reading]) -> Readings:
    """Return rows as columns; they are about the longest of their times."""
    seconds = max((row.seconds for row in rows.values() if math.isfinite(row.seconds)), default=0.0)
    columns = {key: np.array([getattr(row, key) for row in rows.values()], np.float64) for key in COLUMNS}
    return Readings(tuple(rows), seconds, columns)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Columns in which what cannot be believed is replaced, and which entries were believed."""

    columns: Mapping[str, Floats]
    is_known: Mapping[str, Bools]
    nonsense: int  # entries that were not believed
    memory_bps: float | None = None  # that can be believed

    def __getitem__(self, key: str) -> Floats:
        """Return a column."""
        return self.columns[key]

    @property
    def measured_s(self) -> Floats:
        """Latency as it was measured: the percentile where there is one, else the mean."""
        return np.where(self.is_known["late_s"], self["late_s"], self["latency_s"])


def cleaned(readings: Readings, names: Sequence[str]) -> Cleaned:
    """Return the columns for these applications, in their order; what is missing or nonsense becomes 0 and unknown.

    Negative numbers, numbers that are none and numbers beyond all reason are nonsense; a share without a limit and
    a percentile that was not measured are not. Applications that are missing are not counted here.
    """
    places = None
    if tuple(names) != readings.names:
        places = np.array([readings.places.get(name, -1) for name in names], np.int64)
    columns: dict[str, Floats] = {}
    known: dict[str, Bools] = {}
    nonsense = 0
    for key in COLUMNS:
        column = _column(readings, key, places, len(names))
        is_there = None if places is None else places >= 0
        good = (column >= 0.0) & (column <= (math.inf if key == "share" else MOST))  # false for NaN, too
        bad = ~good
        if is_there is not None:
            bad &= is_there
            good &= is_there
        if key in UNKNOWN_IS_FINE:
            bad &= ~np.isnan(column)
        nonsense += int(np.count_nonzero(bad))
        columns[key] = column if good.all() else np.where(good, column, 0.0)
        known[key] = good
    told = readings.memory_bps
    is_odd = told is not None and not 0.0 <= told <= MOST
    return Cleaned(columns, known, nonsense + is_odd, None if is_odd else told)


def oddities(readings: Readings, names: Sequence[str], now_s: float, before_s: float, longest_s: float) -> int:
    """Return how much is wrong with readings as a whole: applications that are missing, times that cannot be.

    Args:
        readings: What was measured.
        names: Whom it should be about.
        now_s: When.
        before_s: When it was measured the last time; NaN: never.
        longest_s: A clock that went on by more is not believed.
    """
    missing = sum(name not in readings.places for name in names) if readings.names != tuple(names) else 0
    is_odd_time = not math.isfinite(now_s) or (math.isfinite(before_s) and not 0.0 < now_s - before_s <= longest_s)
    is_odd_span = not (math.isfinite(readings.seconds) and readings.seconds > 0.0)
    return missing + int(is_odd_time) + int(is_odd_span)


def _column(readings: Readings, key: str, places: Any, count: int) -> Floats:
    column: Floats = np.asarray(readings.columns[key], np.float64)
    if places is None:
        return column
    if not len(column):
        return np.zeros(count)
    return np.where(places >= 0, column[places], 0.0)
