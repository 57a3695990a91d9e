"""How few machines hold the load?

`pack(workload, method, seed, limits)` answers with a `Packing` or with `Unpackable`. `METHODS` is a plain
mapping from names to methods, in the order in which they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from headwater.errors import BrokenInvariant, Mistake, SpecError
from headwater.model.workload import Workload
from headwater.pack.exact import auto, exact
from headwater.pack.loads import Found, Loads, loads_of, volume_bound
from headwater.pack.measure import Machine, Measured, measure
from headwater.pack.result import Limits, Packing, Unpackable
from headwater.pack.search import anneal, ga
from headwater.pack.simple import bestfit, rstorm
from headwater.pack.unpackable import never_fits, too_few

__all__ = ["METHODS", "Limits", "Machine", "Measured", "Method", "Packing", "Unpackable", "measure", "method_named",
           "pack"]  # fmt: skip

Search = Callable[[Loads, int, Limits], Found]


@dataclass(frozen=True, slots=True)
class Method:
    """One way to pack operators."""

    name: str
    summary: str
    pack: Search
    may_overload: bool = False  # also where that is forbidden; the answer then says so


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method("auto", "best fit, columns, dives, annealing; large workloads taken apart; always a bound", auto),
            Method("rstorm", "best fit with one number for each operator, as in R-Storm; may overload", rstorm, True),
            Method("ga", "genetic algorithm of paper 004: population 100, 1 000 generations; may overload", ga, True),
            Method("bestfit", "largest first, each where the least room is left at the peak", bestfit),
            Method("anneal", "simulated annealing from best fit: machines emptied one by one", anneal),
            Method("exact", "column generation: the proven optimum, or the bound reached", exact),
        )
    }
)


def method_named(name: str) -> Method:
    """Return a method by its name, or raise with the known names."""
    if name in METHODS:
        return METHODS[name]
    near = get_close_matches(name, METHODS, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise SpecError(
        Mistake("HW1450", f"no method of packing is called '{name}'; there are {', '.join(METHODS)}.{hint}")
    )


def pack(workload: Workload, method: str = "auto", seed: int = 0, limits: Limits | None = None) -> Packing | Unpackable:
    """Return which machine runs each operator, with a proven bound on the cost, or why there is no answer."""
    chosen = method_named(method)
    limits = limits or Limits()
    loads = loads_of(workload)
    impossible = never_fits(workload, loads)
    if impossible is not None:
        return impossible
    found = chosen.pack(loads, seed, limits)
    bound = max(found.lower_bound, volume_bound(loads))
    if found.where is None:
        return too_few(workload, loads, method, bound, found)
    assignment = dict(zip(loads.names, map(int, found.where), strict=True))
    measured = measure(workload, assignment)
    if not measured.is_allowed and not chosen.may_overload:
        raise BrokenInvariant(f"HW9050 method '{method}' gave a packing that overloads a machine")
    if measured.is_allowed and measured.cost < bound * (1.0 - 1e-6):
        raise BrokenInvariant(f"HW9051 method '{method}' found less than its bound of {bound:g}")
    return Packing(
        method,
        MappingProxyType(assignment),
        measured,
        min(bound, measured.cost) if measured.is_allowed else bound,
        found.cut_short,
        found.because,
    )
