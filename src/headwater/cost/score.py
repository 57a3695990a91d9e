"""How good is one placement?

Takes a `Problem` and a placement, gives a `Score`: the formulas of docs/model.md, evaluated plainly
and in full. The search kernels of `place` compute the same F step by step; laws hold them to this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.model.pipeline import Operator

if TYPE_CHECKING:
    from headwater.cost.problem import Problem

__all__ = ["Bounds", "Congestion", "Score", "evaluate", "f_of", "faults", "link_loads", "listed"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values that scale the three terms of F."""

    rt_min_s: float
    rt_max_s: float
    rf_max: float
    bw_max_bps: float


@dataclass(frozen=True, slots=True)
class Congestion:
    """A link that is asked to carry more than it can, in one direction."""

    link: tuple[str, str]  # as the sites file names it
    toward: str
    over_bps: float


@dataclass(frozen=True, slots=True)
class Score:
    """What a placement costs; a placement that is not valid has reasons instead of numbers."""

    valid: bool
    bounds: Bounds
    f: float | None = None
    rt_s: float | None = None  # longest source-to-sink path
    rf: int | None = None  # missing levels, summed over operators
    bw_bps: float | None = None  # load above bandwidth, summed over links and directions
    critical_path: tuple[str, ...] = ()  # operators of the longest path
    load_cores: Mapping[str, float] | None = None  # processor load of each site that runs something
    overloaded: tuple[str, ...] = ()  # sites whose load is above their cores
    congested: tuple[Congestion, ...] = ()
    reasons: tuple[str, ...] = ()  # why it is not valid


def evaluate(problem: Problem, placement: Mapping[str, str]) -> Score:
    """Return the score of a placement, or the reasons why it is not valid."""
    reasons = faults(problem, placement)
    if reasons:
        return Score(False, problem.bounds, reasons=reasons)
    pipeline, sites, routes = problem.pipeline, problem.sites.by_name, problem.routes
    loads = _code_loads(problem, placement)
    delay = []
    for i, stream in enumerate(pipeline.streams):
        codes = _route(problem, placement[stream.source], placement[stream.target]) or ()
        size = problem.flow.size_bytes[i]
        delay.append(float(sum(routes.latency_s[c // 2] + 8.0 * size / routes.bandwidth_bps[c // 2] for c in codes)))
    processing = [operator.work_s / sites[placement[operator.name]].speed for operator in pipeline.operators]
    rt, path = problem.longest_path(processing, delay)
    rf = sum(max(0, operator.needs - sites[placement[operator.name]].level) for operator in pipeline.operators)
    congested = []
    for code, load in sorted(loads.items()):
        over = load - float(routes.bandwidth_bps[code // 2])
        if over > 0.0:
            link = problem.sites.links[code // 2]
            congested.append(Congestion((link.a, link.b), link.a if code % 2 else link.b, over))
    bw = sum((congestion.over_bps for congestion in congested), 0.0)
    load_cores: dict[str, float] = {}
    for operator in pipeline.operators:
        site = sites[placement[operator.name]]
        work = problem.flow.in_rate_rps[operator.name] * operator.work_s / site.speed
        load_cores[site.name] = load_cores.get(site.name, 0.0) + work
    overloaded = tuple(
        name for name, load in load_cores.items() if (cores := sites[name].cores) is not None and load > cores
    )
    f = f_of(problem, rt, rf, bw)
    return Score(True, problem.bounds, f, rt, rf, bw, path, load_cores, overloaded, tuple(congested))


def f_of(problem: Problem, rt_s: float, rf: float, bw_bps: float) -> float:
    """Return F from its three parts; a part whose scale is empty counts nothing."""
    bounds, objective = problem.bounds, problem.pipeline.objective
    f = 0.0
    if bounds.rt_max_s != bounds.rt_min_s:
        f += objective.weight_rt * (rt_s - bounds.rt_min_s) / (bounds.rt_max_s - bounds.rt_min_s)
    if bounds.rf_max:
        f += objective.weight_rf * rf / bounds.rf_max
    if bounds.bw_max_bps:
        f += objective.weight_bw * bw_bps / bounds.bw_max_bps
    return f


def link_loads(problem: Problem, placement: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Return the load in bit/s of every direction (from site, to site) that carries something."""
    routes = problem.routes
    return {
        (routes.names[routes.ends[code]], routes.names[routes.towards[code]]): load
        for code, load in _code_loads(problem, placement).items()
    }


def faults(problem: Problem, placement: Mapping[str, str]) -> tuple[str, ...]:
    """Return why a placement is not valid, a sentence each; empty when it is."""
    reasons: list[str] = []
    filled: dict[str, list[str]] = {}
    for operator in problem.pipeline.operators:
        name = placement.get(operator.name)
        if name is None:
            reasons.append(f"operator '{operator.name}' has no site")
        elif name not in problem.sites.by_name:
            reasons.append(f"operator '{operator.name}' is on '{name}', which is no site")
        else:
            filled.setdefault(name, []).append(operator.name)
            number = problem.host_number.get(name)
            if number is None:
                reasons.append(f"operator '{operator.name}' is on site '{name}', which has no slots")
            elif number not in problem.allowed_set(operator):
                reasons.append(_breach(problem, operator, name))
            reasons.extend(_company(operator, placement))
    reasons += [
        f"'{name}' is placed but is no operator of the pipeline"
        for name in placement
        if name not in problem.pipeline.by_name
    ]
    reasons += [
        f"site '{site.name}' has {site.slots} slots and {len(here)} operators: {listed(here)}"
        for site in problem.hosts
        if len(here := filled.get(site.name, [])) > site.slots
    ]
    return tuple(reasons or _cut_off(problem, placement))


def _cut_off(problem: Problem, placement: Mapping[str, str]) -> list[str]:
    return [
        f"no route from '{placement[stream.source]}' ('{stream.source}') to "
        f"'{placement[stream.target]}' ('{stream.target}')"
        for stream in problem.pipeline.streams
        if _route(problem, placement[stream.source], placement[stream.target]) is None
    ]


def _breach(problem: Problem, operator: Operator, site: str) -> str:
    kind = problem.sites.by_name[site].kind
    if operator.at is not None:
        return f"operator '{operator.name}' is on '{site}', but its 'at' allows only {listed(operator.at)}"
    wanted = "source" if operator.is_source else "sink"
    return f"operator '{operator.name}' is a {wanted} and needs a {problem.rule(operator)} site; '{site}' is a {kind}"


def _company(operator: Operator, placement: Mapping[str, str]) -> list[str]:
    here = placement[operator.name]
    reasons = []
    for other in operator.together:
        if other in placement and placement[other] != here:
            reasons.append(
                f"operator '{operator.name}' must be with '{other}', but they are on '{here}' and '{placement[other]}'"
            )
    for other in operator.apart:
        if placement.get(other) == here:
            reasons.append(f"operator '{operator.name}' must be apart from '{other}', but both are on '{here}'")
    return reasons


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return quoted names with commas, the first few of them and how many more there are."""
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _route(problem: Problem, a: str, b: str) -> tuple[int, ...] | None:
    vertex = problem.routes.vertex
    return problem.routes.between(vertex[a], vertex[b])


def _code_loads(problem: Problem, placement: Mapping[str, str]) -> dict[int, float]:
    loads: dict[int, float] = {}
    for i, stream in enumerate(problem.pipeline.streams):
        load = problem.flow.load_bps(i)
        here, there = placement.get(stream.source, ""), placement.get(stream.target, "")
        if here not in problem.sites.by_name or there not in problem.sites.by_name or load == 0.0:
            continue
        for code in _route(problem, here, there) or ():
            loads[code] = loads.get(code, 0.0) + load
    return loads
