"""What does a method of placement answer?

Either a `Result`, a valid placement with its score and a proven bound, or `Infeasible`, which is an
answer too: it says what rules out each site. Nothing here acts or decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.cost.score import Score
from headwater.model.limits import Limits

__all__ = ["Infeasible", "Limits", "Result", "Unplaced", "is_proven"]

PROOF_TOLERANCE = 2e-6  # a bound this close to F, relative to max(F, 1e-3), counts as a proof: HiGHS works to 1e-6


def is_proven(f: float, lower_bound: float) -> bool:
    """Return whether a bound is as good as F."""
    return f - lower_bound <= PROOF_TOLERANCE * max(f, 1e-3)


@dataclass(frozen=True, slots=True)
class Result:
    """A valid placement and what is known about it."""

    method: str
    placement: Mapping[str, str]  # operator -> site
    score: Score
    lower_bound: float  # proven: no valid placement has a smaller F
    evaluations: int  # candidate placements whose F was computed
    cut_short: bool = False  # the outer fence ended the search early
    because: tuple[str, ...] = ()  # how the answer and the bound came about

    @property
    def gap(self) -> float:
        """Distance from F to the bound, relative to F."""
        return (self.f - self.lower_bound) / max(self.f, 1e-12)

    @property
    def f(self) -> float:
        """F of the placement."""
        assert self.score.f is not None, "a result is valid"
        return self.score.f

    @property
    def proved(self) -> bool:
        """Whether nothing better exists."""
        return is_proven(self.f, self.lower_bound)


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Why one operator has no place."""

    operator: str
    because: tuple[str, ...]  # what rules out the sites, grouped: 'no slots: hub-a, hub-b'


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No valid placement exists."""

    unplaced: tuple[Unplaced, ...]
    conflict: tuple[str, ...]  # a small set of demands that cannot hold together, each a sentence
