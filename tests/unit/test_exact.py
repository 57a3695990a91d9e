"""What is proven: by branch and bound, by the integer programme, and what is said when neither ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import instances
from headwater.cost.problem import Problem
from headwater.model.pipeline import Objective, Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites
from headwater.place import Limits, Result, place
from headwater.place.arrays import arrays
from headwater.place.bounds import lower_bound
from headwater.place.exact import prove, twins
from headwater.place.programme import programme
from headwater.place.search import Found, anneal
from headwater.place.state import State

OPTIMUM = 0.08649630048732532


@pytest.mark.parametrize("times", [1, 2, 4])
def test_the_optimum_of_fire_is_proven(times: int) -> None:
    answer = place(instances.fire(times), "exact")
    assert isinstance(answer, Result)
    assert answer.proved
    assert answer.f == pytest.approx(OPTIMUM, rel=1e-9)
    assert answer.score.rt_s == pytest.approx(0.11193, rel=1e-9)
    assert answer.gap == pytest.approx(0.0, abs=2e-6)
    assert any("proven" in note for note in answer.because)


def test_a_proof_that_may_not_take_a_step_gives_the_bound_it_had() -> None:
    made = arrays(instances.fire(2))
    floor = lower_bound(made)
    first = anneal(made, 0, Limits(), most=6000)
    found = prove(made, first, floor, Limits(), pairs=1, cells=0)
    assert floor <= found.lower_bound <= OPTIMUM + 1e-9
    assert State(made, found.where).f <= State(made, first.where).f


def test_the_integer_programme_proves_fire_where_no_table_of_pairs_exists() -> None:
    made = arrays(instances.fire(1), 0)
    first = anneal(made, 0, Limits())
    found = prove(made, first, lower_bound(made), Limits())
    assert State(made, found.where).f == pytest.approx(OPTIMUM, rel=2e-6)
    assert found.lower_bound == pytest.approx(OPTIMUM, rel=3e-6)
    assert found.lower_bound <= OPTIMUM + 1e-9


def test_the_integer_programme_counts_only_the_paths_that_count() -> None:
    """A slow stream from a source outside `between` must not raise RT, nor rule out what is better."""
    sites = Sites(
        (Site("l", "leaf", slots=2), Site("far", "leaf", slots=1), Site("r", "root", slots=2, speed=10.0)),
        (Link("l", "r", 0.001, 1e9), Link("far", "r", 10.0, 1e9)),
    )
    operators = (
        Operator("a", is_source=True, rate_rps=1.0, size_bytes=1.0, at=("l",)),
        Operator("b", is_source=True, rate_rps=1.0, size_bytes=1.0, at=("far",)),
        Operator("m", (Stream("a", "m"), Stream("b", "m")), work_s=1.0),
        Operator("z", (Stream("m", "z"),), is_sink=True),
    )
    problem = Problem(Pipeline("between", operators, Objective(between=("a", "z"))), sites)
    best = place(problem, "exhaustive")
    assert isinstance(best, Result)
    assert best.placement["m"] == "r"
    made = arrays(problem, 0)
    number = {site.name: i for i, site in enumerate(problem.hosts)}
    bad = State(made, made.hosts[[0] * 4, 0])
    for op, site in {"a": "l", "b": "far", "m": "l", "z": "r"}.items():
        bad.where[made.number[op]] = number[site]
    bad.fill()
    assert bad.f > best.f
    _, bound, note, _ = programme(made, bad.f, Limits())
    assert bound <= best.f + 1e-9, note
    found = prove(made, Found(bad.where.copy(), 1), lower_bound(made), Limits())
    assert State(made, found.where).f == pytest.approx(best.f, rel=1e-6)


def test_twins_are_hosts_that_nothing_tells_apart() -> None:
    problem = instances.fire(1)
    number = dict(zip((site.name for site in problem.hosts), twins(arrays(problem)).tolist(), strict=True))
    assert number["dc-1"] == number["dc-2"] == number["dc-3"] != number["dc-high"]
    faster = replace(problem.sites, sites=tuple(
        replace(site, speed=9.0) if site.name == "dc-2" else site for site in problem.sites.sites
    ))  # fmt: skip
    number_then = dict(
        zip(
            (site.name for site in problem.hosts),
            twins(arrays(Problem(problem.pipeline, faster))).tolist(),
            strict=True,
        )
    )
    assert number_then["dc-1"] == number_then["dc-3"] != number_then["dc-2"]
    assert number["edge-a-1"] == number["edge-a-2"] != number["edge-b-1"]  # their tags are in rules
