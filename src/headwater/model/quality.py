"""What is an application held to?

A quality says how late records may be, how much that matters beside others, and how many may be later (paper 003
calls the pair of the first and the last a QoS class). In files it is `class`, beside a `p99` that a pipeline may set
for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

__all__ = ["LEAST_GOAL_S", "LOWEST", "MOST_GOAL_S", "QUALITIES", "Quality", "quality_of"]


@dataclass(frozen=True, slots=True)
class Quality:
    """How late, how much it matters, how many may be later."""

    name: str
    goal_s: float  # that the 99th percentile of latency is held within
    weight: float  # of a core that it lacks, beside others
    tolerated: float  # part of the records of a window that may be later than the goal


# Goals and weights of paper 003; it leaves the tolerated rates open.
QUALITIES: Mapping[str, Quality] = MappingProxyType(
    {
        one.name: one
        for one in (
            Quality("gold", 0.3, 6.0, 0.01),
            Quality("silver", 0.5, 3.0, 0.05),
            Quality("bronze", 0.8, 1.0, 0.10),
        )
    }
)
LOWEST = QUALITIES["bronze"]
LEAST_GOAL_S, MOST_GOAL_S = 0.001, 1e6  # that may be set; nobody holds less, and more is none


def quality_of(name: str | None, goal_s: float | None = None) -> Quality:
    """Return a quality by its name, with a goal of its own if there is one.

    >>> quality_of("gold", 0.1).goal_s, quality_of(None).name
    (0.1, 'bronze')

    Raises:
        KeyError: There is none of this name.
    """
    found = LOWEST if name is None else QUALITIES[name]
    return found if goal_s is None else replace(found, goal_s=goal_s)
