"""Where should it run?

`place(problem, method, seed, limits)` answers with a `Result` or with `Infeasible`. `METHODS` is a plain
mapping from names to methods, in the order in which they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

import numpy as np

from headwater.cost.problem import Problem
from headwater.cost.score import evaluate
from headwater.errors import BrokenInvariant, Mistake, SpecError
from headwater.model.routes import Ints
from headwater.place import search
from headwater.place.arrays import Arrays, arrays
from headwater.place.bounds import lower_bound
from headwater.place.constructive import hlf, td
from headwater.place.exact import exact
from headwater.place.feasible import explain
from headwater.place.mix import auto
from headwater.place.result import Infeasible, Limits, Result, Unplaced
from headwater.place.search import Found

__all__ = ["METHODS", "Infeasible", "Limits", "Method", "Prepared", "Result", "Unplaced", "method_named", "place"]

Search = Callable[[Arrays, int, Limits], Found]


@dataclass(frozen=True, slots=True)
class Method:
    """One way to place operators."""

    name: str
    summary: str
    place: Search
    is_search: bool = True  # looks at F; otherwise at the structure only


def _structural(build: Callable[[Arrays], Ints | None], note: str) -> Search:
    def run(arrays: Arrays, seed: int, limits: Limits) -> Found:
        del seed, limits
        where = build(arrays)
        assert where is not None, "feasibility was checked before"
        return Found(where, 1, because=(note,))

    return run


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method("auto", "greedy, then search, then proof where the size allows; always a bound and the gap", auto),
            Method(
                "td",
                "top down: fill the sites nearest to the roots, from the sinks back (structure only)",
                _structural(td, "filled from the roots downward"),
                False,
            ),
            Method(
                "hlf",
                "highest level first: stay near the sources, climb when full (structure only)",
                _structural(hlf, "followed the data from the sources upward"),
                False,
            ),
            Method("sd", "steepest descent over all switch and swap steps from a random start", search.sd),
            Method("ts", "tabu search over all switch and swap steps from a random start", search.ts),
            Method("ga", "genetic algorithm: population 100, 1 000 generations", search.ga),
            Method("anneal", "simulated annealing with delta evaluation", search.anneal),
            Method(
                "exact", "branch and bound and integer programming: the proven optimum, or the bound reached", exact
            ),
            Method("exhaustive", "every valid placement; for small problems only", search.exhaustive),
        )
    }
)


def method_named(name: str) -> Method:
    """Return a method by its name, or raise with the known names."""
    if name in METHODS:
        return METHODS[name]
    near = get_close_matches(name, METHODS, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise SpecError(Mistake("HW1402", f"no method is called '{name}'; there are {', '.join(METHODS)}.{hint}"))


class Prepared:
    """A problem made ready once for several methods: its arrays, its bound, and why it may be infeasible."""

    def __init__(self, problem: Problem, limits: Limits | None = None) -> None:
        """Compile the problem; the bound waits until it is asked for."""
        self.problem = problem
        (limits or Limits()).say("preparing the network", None)
        self.arrays = arrays(problem)
        self.infeasible = _no_hosts(problem) if not problem.hosts else explain(self.arrays)
        self._bound: float | None = None

    def bound(self, limits: Limits) -> float:
        """Return the proven bound that needs no search."""
        if self._bound is None:
            limits.say("bounding from below", None)
            self._bound = lower_bound(self.arrays)
        return self._bound


def place(
    problem: Problem,
    method: str = "auto",
    seed: int = 0,
    limits: Limits | None = None,
    prepared: Prepared | None = None,
) -> Result | Infeasible:
    """Return a valid placement with its score and a proven bound, or why there is none."""
    chosen = method_named(method)
    limits = limits or Limits()
    ready = prepared or Prepared(problem, limits)
    if ready.infeasible is not None:
        return ready.infeasible
    found = chosen.place(ready.arrays, seed, limits)
    placement = ready.arrays.named(found.where)
    score = evaluate(problem, placement)
    if not score.valid or score.f is None:
        raise BrokenInvariant(f"HW9001 method '{method}' gave a placement that is not valid: {score.reasons[0]}")
    bound = found.lower_bound if np.isfinite(found.lower_bound) else ready.bound(limits)
    return Result(
        method,
        MappingProxyType(placement),
        score,
        min(bound, score.f),
        found.evaluations,
        found.cut_short,
        found.because,
    )


def _no_hosts(problem: Problem) -> Infeasible:
    names = [operator.name for operator in problem.pipeline.operators]
    unplaced = tuple(Unplaced(name, ("no slots: every site",)) for name in names)
    return Infeasible(unplaced, (f"no site has any slots, and '{names[0]}' needs one",))
