"""What does a method of packing answer?

Either a `Packing`, with what is known about it, or `Unpackable`, which is an answer too: it says why and
how many machines would be needed. Nothing here acts or decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.model.limits import Limits
from headwater.pack.measure import Measured

__all__ = ["Limits", "Packing", "Unpackable", "is_reached"]

CLOSE = 1e-6  # a cost this close to its bound, relative to it, has reached it: HiGHS works to 1e-7


def is_reached(cost: float, lower_bound: float) -> bool:
    """Return whether a cost is as low as its bound."""
    return cost - lower_bound <= CLOSE * max(1.0, abs(cost))


@dataclass(frozen=True, slots=True)
class Packing:
    """Which machine runs each operator, and what is known about that."""

    method: str
    assignment: Mapping[str, int]  # operator -> machine, numbered from 0, those of the first kind first
    measured: Measured  # plainly and in full
    lower_bound: float  # proven: nothing that is allowed costs less
    cut_short: bool = False  # the outer fence ended the search early
    because: tuple[str, ...] = ()  # how the answer and the bound came about

    @property
    def used(self) -> int:
        """Machines with at least one operator."""
        return self.measured.used

    @property
    def utilisation(self) -> float:
        """Mean over used machines and time of min(load, capacity) / capacity."""
        return self.measured.utilisation

    @property
    def overload(self) -> float:
        """Over machines that exceed capacity at any time, the mean over time of max(0, load - capacity) / capacity."""
        return self.measured.overload

    @property
    def cost(self) -> float:
        """Prices of the used machines and of overload; the number of machines where nothing has a price."""
        return self.measured.cost

    @property
    def gap(self) -> float:
        """Distance from the cost to the bound, relative to the cost; 0 where overload undercuts the bound."""
        return max(0.0, (self.cost - self.lower_bound) / max(self.cost, 1e-12))

    @property
    def proved(self) -> bool:
        """Whether it is allowed and nothing that is allowed costs less."""
        return self.measured.is_allowed and is_reached(self.cost, self.lower_bound)


@dataclass(frozen=True, slots=True)
class Unpackable:
    """No packing was found, or none exists."""

    reasons: tuple[str, ...]  # each a sentence
    is_proven: bool  # none exists; otherwise only this method found none
    needed: int | None = None  # machines that would be enough, if known
    at_least: int | None = None  # machines that are needed in any case
