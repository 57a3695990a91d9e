"""What does F cost to compute in full, in plain Python, with nothing that F does not need?

The measure that incremental evaluation is held against: `cost.score.evaluate` also checks validity and
names the critical path, which would flatter the ratio. Lists only, trees only, everything looked up
beforehand; the formulas of model.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headwater.cost.problem import Problem
from headwater.cost.score import f_of

__all__ = ["evaluator"]


def evaluator(problem: Problem) -> Callable[[Mapping[str, str]], float]:
    """Return a function that gives F of a valid placement on a tree."""
    pipeline, routes, flow = problem.pipeline, problem.routes, problem.flow
    assert routes.is_tree, "plain evaluation climbs a tree"
    parent, end, code = (routes.table[:, column].tolist() for column in range(3))
    latency, inverse = (column.tolist() for column in routes.up)
    room = routes.bandwidth_bps.repeat(2).tolist()
    vertex, sites = routes.vertex, problem.sites.by_name
    first, count = {}, 0
    for operator in pipeline.operators:
        first[operator.name] = count
        count += len(operator.inputs)
    number = {name: i for i, name in enumerate(pipeline.order)}
    steps = []
    for name in pipeline.order:
        operator = pipeline.by_name[name]
        inputs = [
            (number[stream.source], flow.size_bytes[i], flow.load_bps(i))
            for i, stream in enumerate(operator.inputs, first[name])
        ]
        steps.append((name, operator.work_s, operator.needs, operator.is_sink, inputs))

    def evaluate(placement: Mapping[str, str]) -> float:
        at: list[int] = []
        head: list[float] = []
        loads: dict[int, float] = {}
        rt, rf = 0.0, 0
        for name, work, needs, is_sink, inputs in steps:
            site = sites[placement[name]]
            here = vertex[site.name]
            longest = 0.0
            for writer, size, load in inputs:
                delay = head[writer]
                x, y = at[writer], here
                while not x <= y < end[x]:
                    delay += latency[x] + size * inverse[x]
                    loads[code[x]] = loads.get(code[x], 0.0) + load
                    x = parent[x]
                while y != x:
                    delay += latency[y] + size * inverse[y]
                    loads[code[y] ^ 1] = loads.get(code[y] ^ 1, 0.0) + load
                    y = parent[y]
                if delay > longest:  # noqa: PLR1730 - a comparison is faster than a call of max
                    longest = delay
            longest += work / site.speed
            at.append(here)
            head.append(longest)
            if needs > site.level:
                rf += needs - site.level
            if is_sink and longest > rt:
                rt = longest
        bw = 0.0
        for link, load in loads.items():
            if load > room[link]:
                bw += load - room[link]
        return f_of(problem, rt, rf, bw)

    return evaluate
