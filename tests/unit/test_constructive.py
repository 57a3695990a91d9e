"""Where the structure alone puts things: top down, and highest level first."""

from __future__ import annotations

import itertools
from dataclasses import replace

from bench import instances
from headwater.cost.problem import Problem
from headwater.cost.score import evaluate
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites
from headwater.place.arrays import arrays
from headwater.place.constructive import hlf, levels, td


def line(slots: int = 2) -> Sites:
    """leaf - mid - root, in a row."""
    sites = (Site("leaf", "leaf", slots=slots), Site("mid", slots=slots), Site("root", "root", slots=slots))
    return Sites(sites, (Link("leaf", "mid", 0.001, 1e9), Link("mid", "root", 0.001, 1e9)))


def chain(count: int) -> Pipeline:
    """A source, `count` steps and a sink, in a row."""
    names = ["in", *(f"step-{i}" for i in range(count)), "out"]
    operators = [Operator("in", is_source=True, rate_rps=1.0, size_bytes=1.0)]
    operators += [Operator(name, (Stream(before, name),)) for before, name in itertools.pairwise(names)]
    return Pipeline("chain", (*operators[:-1], replace(operators[-1], is_sink=True)))


def placed(problem: Problem, method: str) -> dict[str, str]:
    made = arrays(problem)
    where = {"td": td, "hlf": hlf}[method](made)
    assert where is not None
    assert evaluate(problem, made.named(where)).valid
    return made.named(where)


def test_a_level_is_the_distance_in_links_to_the_nearest_root() -> None:
    made = arrays(Problem(chain(1), line()))
    by_name = dict(zip(made.problem.routes.names, levels(made).tolist(), strict=True))
    assert by_name == {"root": 0, "mid": 1, "leaf": 2}


def test_levels_exist_on_a_graph_with_a_ring() -> None:
    ring = Sites(
        (Site("r", "root"), Site("a", "leaf"), Site("b"), Site("c")),
        tuple(Link(a, b, 0.001, 1e9) for a, b in ("rb", "rc", "ba", "ca")),
    )
    made = arrays(Problem(chain(1), ring))
    by_name = dict(zip(made.problem.routes.names, levels(made).tolist(), strict=True))
    assert by_name == {"r": 0, "b": 1, "c": 1, "a": 2}


def test_top_down_fills_the_root_first_going_back_from_the_sink() -> None:
    assert placed(Problem(chain(3), line()), "td") == {
        "in": "leaf", "step-0": "mid", "step-1": "mid", "step-2": "root", "out": "root",
    }  # fmt: skip


def test_highest_level_first_stays_with_the_source_and_climbs_when_full() -> None:
    assert placed(Problem(chain(3), line()), "hlf") == {
        "in": "leaf", "step-0": "leaf", "step-1": "mid", "step-2": "mid", "out": "root",
    }  # fmt: skip


def test_both_look_at_the_structure_only() -> None:
    """Rates, sizes, latencies and speeds change nothing."""
    problem = instances.fire(1)
    sites = Sites(
        tuple(replace(site, speed=1.0 + i) for i, site in enumerate(problem.sites.sites)),
        tuple(replace(link, latency_s=0.5 / (i + 1), bandwidth_bps=1e3) for i, link in enumerate(problem.sites.links)),
    )
    operators = tuple(
        replace(operator, work_s=0.5, rate_rps=7.0 * operator.is_source) for operator in problem.pipeline.operators
    )
    other = Problem(Pipeline("other", operators), sites)
    for method in ("td", "hlf"):
        assert placed(problem, method) == placed(other, method)


def test_units_and_operators_apart_are_kept() -> None:
    pipeline = chain(3)
    by_name = {operator.name: operator for operator in pipeline.operators}
    by_name["step-2"] = replace(by_name["step-2"], together=("step-0",))
    by_name["step-1"] = replace(by_name["step-1"], apart=("step-0", "out"))
    problem = Problem(Pipeline("rules", tuple(by_name.values())), line(3))
    for method in ("td", "hlf"):
        where = placed(problem, method)
        assert where["step-0"] == where["step-2"] != where["step-1"] != where["out"]


def test_the_longer_way_to_a_sink_is_served_first() -> None:
    """The one slot left beside the source goes to the branch with more steps to come, whatever the file order."""
    operators = (
        Operator("in", is_source=True, rate_rps=1.0, size_bytes=1.0),
        Operator("short", (Stream("in", "short"),)),
        Operator("long", (Stream("in", "long"),)),
        Operator("longer", (Stream("long", "longer"),)),
        Operator("out", (Stream("short", "out"), Stream("longer", "out")), is_sink=True),
    )
    where = placed(Problem(Pipeline("branches", operators), line()), "hlf")
    assert (where["long"], where["short"]) == ("leaf", "mid")
