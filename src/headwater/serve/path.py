"""Where does the time of the longest path go?

Takes a problem, a placement and its score; gives the steps of the critical path with the processing of
each operator and the delay on the way to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loading routes would compile them
    from headwater.cost.problem import Problem
    from headwater.cost.score import Score

__all__ = ["PathStep", "path_steps"]


@dataclass(frozen=True, slots=True)
class PathStep:
    """One operator of the critical path."""

    operator: str
    site: str
    delay_s: float  # on the network, from the operator before
    processing_s: float
    route: tuple[str, ...]  # sites on the way from the one before, both ends included; empty when they are the same


def path_steps(problem: Problem, placement: Mapping[str, str], score: Score) -> tuple[PathStep, ...]:
    """Return the steps of the critical path, source first; their times add up to RT."""
    steps: list[PathStep] = []
    before: str | None = None
    for name in score.critical_path:
        site = problem.sites.by_name[placement[name]]
        delay_s, route = (0.0, ()) if before is None else _way(problem, placement, before, name)
        processing_s = problem.pipeline.by_name[name].work_s / site.speed
        steps.append(PathStep(name, site.name, delay_s, processing_s, route))
        before = name
    return tuple(steps)


def _way(problem: Problem, placement: Mapping[str, str], writer: str, reader: str) -> tuple[float, tuple[str, ...]]:
    routes = problem.routes
    codes = routes.between(routes.vertex[placement[writer]], routes.vertex[placement[reader]])
    if not codes:
        return 0.0, ()
    size_bytes = max(
        problem.flow.size_bytes[i]
        for i, stream in enumerate(problem.pipeline.streams)
        if (stream.source, stream.target) == (writer, reader)
    )
    delay_s = sum(
        float(routes.latency_s[code // 2] + 8.0 * size_bytes / routes.bandwidth_bps[code // 2]) for code in codes
    )
    names = (routes.names[routes.ends[codes[0]]], *(routes.names[routes.towards[code]] for code in codes))
    return delay_s, names
