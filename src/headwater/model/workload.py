"""Which loads rise and fall, and on which machines may they share?

A `Workload` is what a workload file says, already checked by `model.workload_file`: the signal of each
operator, the machines that may be used, and whether overload is forbidden or has a price. How operators
share machines is for `pack`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Forecast", "Kind", "Signal", "Sinusoid", "Trace", "Workload"]


@dataclass(frozen=True, slots=True)
class Sinusoid:
    """A load that rises and falls evenly: baseline + amplitude * sin(2 * pi * t / period + phase)."""

    baseline: float  # records per time unit; at least the amplitude, for no load is below 0
    amplitude: float = 0.0  # records per time unit
    period: float = 1.0  # time units
    phase: float = 0.0  # radians

    def at(self, time: float) -> float:
        """Return the load at a time.

        >>> Sinusoid(120.0, 45.0, 40.0).at(10.0)
        165.0
        """
        if self.amplitude == 0.0:
            return self.baseline
        return self.baseline + self.amplitude * math.sin(2.0 * math.pi * time / self.period + self.phase)


@dataclass(frozen=True, slots=True)
class Trace:
    """A load for every time unit, repeated."""

    loads: tuple[float, ...]  # records per time unit, at least one

    def at(self, time: float) -> float:
        """Return the load at a time: that of the time unit which it falls into.

        >>> Trace((120.0, 130.0, 110.0)).at(4.5)
        130.0
        """
        return self.loads[math.floor(time) % len(self.loads)]


@dataclass(frozen=True, slots=True)
class Forecast:
    """Loads that were measured, and how far ahead to look; `pack.forecast` makes a `Trace` of it."""

    loads: tuple[float, ...]  # records per time unit, oldest first
    season: int | None = None  # time units after which the load repeats; None: to be found in the loads
    horizon: int | None = None  # time units to look ahead; None: one season
    margin: float = 0.0  # added on top, as a share of the forecast


Signal = Sinusoid | Trace | Forecast


@dataclass(frozen=True, slots=True)
class Kind:
    """Machines of one size and price."""

    capacity: float  # records per time unit
    count: int  # how many may be used
    price: float = 1.0  # of one machine; 1 everywhere: cost is the number of machines


@dataclass(frozen=True, slots=True)
class Workload:
    """Operators whose loads rise and fall, and the machines for them.

    Machines are numbered from 0, those of the first kind first.
    """

    operators: Mapping[str, Signal]  # in file order
    kinds: tuple[Kind, ...]  # at least one
    overload_price: float | None = None  # of a record per time unit above capacity; None: overload is forbidden
    horizon: int | None = None  # time units over which signals without a common period are judged; None: as needed

    @property
    def machines(self) -> int:
        """How many machines may be used."""
        return sum(kind.count for kind in self.kinds)

    @property
    def capacity(self) -> float:
        """Records per time unit of the largest machine."""
        return max(kind.capacity for kind in self.kinds)

    @property
    def is_plain(self) -> bool:
        """Whether the least number of equal machines without overload is asked for."""
        return len(self.kinds) == 1 and self.kinds[0].price == 1.0 and self.overload_price is None

    def kind_of(self, machine: int) -> Kind:
        """Return the kind of a machine by its number."""
        for kind in self.kinds:
            if machine < kind.count:
                return kind
            machine -= kind.count
        raise IndexError(f"there are {self.machines} machines")
