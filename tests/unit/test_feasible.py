"""Infeasible is an answer: what rules out each site, and the demands that cannot hold together."""

from __future__ import annotations

import numpy as np
import pytest

from bench import instances
from headwater.cost.problem import Problem
from headwater.cost.score import evaluate
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites
from headwater.place import METHODS, Infeasible, Prepared, place
from headwater.place.arrays import arrays
from headwater.place.feasible import random_start

SITES = Sites(
    (Site("l1", "leaf", slots=1), Site("l2", "leaf", slots=1), Site("hub", slots=0), Site("r", "root", slots=2)),
    tuple(Link(name, "hub", 0.001, 1e9) for name in ("l1", "l2", "r")),
)


def source(name: str, at: tuple[str, ...] | None = None, together: tuple[str, ...] = ()) -> Operator:
    return Operator(name, is_source=True, rate_rps=1.0, size_bytes=1.0, at=at, together=together)


def sink(name: str, *writers: str, apart: tuple[str, ...] = (), together: tuple[str, ...] = ()) -> Operator:
    inputs = tuple(Stream(writer, name) for writer in writers)
    return Operator(name, inputs, is_sink=True, apart=apart, together=together)


def why(*operators: Operator, sites: Sites = SITES) -> Infeasible:
    answer = place(Problem(Pipeline("p", operators), sites), "auto")
    assert isinstance(answer, Infeasible)
    return answer


def named(answer: Infeasible) -> list[str]:
    return [each.operator for each in answer.unplaced]


def test_too_few_slots_are_counted() -> None:
    answer = why(source("a"), source("b"), source("c"), sink("z", "a", "b", "c"))
    assert answer.conflict == ("3 operators must share 2 slots on 'l1', 'l2': 'a', 'b', 'c'",)
    assert named(answer) == ["a", "b", "c"]
    assert answer.unplaced[0].because == (
        "slots needed by operators that can go nowhere else: 'l1', 'l2'",
        "no slots: 'hub'",
        "not a leaf: 'r'",
    )


def test_the_conflict_is_as_small_as_it_can_be() -> None:
    """Of five operators only the two that want the same single slot are named."""
    answer = why(source("a", ("l1",)), source("b", ("l1",)), source("c", ("l2",)), sink("y", "a"), sink("z", "b", "c"))
    assert named(answer) == ["a", "b"]
    assert len(answer.conflict) == 1


def test_an_at_that_names_only_a_switch_is_told() -> None:
    answer = why(source("a", ("hub",)), sink("z", "a"))
    assert answer.conflict == ("'a' allows only 'hub'",)
    assert answer.unplaced[0].because == ("not in its 'at': 'l1', 'l2', 'r'", "no slots: 'hub'")


def test_with_across_two_kinds_of_site_is_told() -> None:
    answer = why(source("a"), sink("z", "a", together=("a",)))
    assert named(answer) == ["a", "z"]
    assert answer.conflict == (
        "'a', 'z' must share one site with 2 slots: 'a' is a source and needs a leaf with slots; "
        "'z' is a sink and needs a root with slots",
    )


def test_a_group_that_no_site_can_hold_is_told() -> None:
    answer = why(source("a"), source("b", together=("a",)), sink("z", "a", "b"))
    assert named(answer) == ["a", "b"]
    assert "must share one site" in answer.conflict[0]


def test_apart_on_the_only_site_is_told() -> None:
    answer = why(source("a"), sink("y", "a", apart=("z",)), sink("z", "a"))
    assert named(answer) == ["y", "z"]
    assert "'y' must be apart from 'z'" in answer.conflict


def test_with_and_apart_at_once_are_told() -> None:
    answer = why(source("a"), sink("y", "a", apart=("z",), together=("z",)), sink("z", "a"))
    assert named(answer) == ["y", "z"]
    assert answer.conflict


def test_a_network_without_slots_is_told_in_few_words() -> None:
    sites = Sites((Site("l", "leaf", slots=0), Site("r", "root", slots=0)), (Link("l", "r", 0.001, 1e9),))
    answer = why(source("a"), sink("z", "a"), sites=sites)
    assert answer.conflict == ("no site has any slots, and 'a' needs one",)


def test_many_sites_are_grouped_and_the_list_is_short() -> None:
    names = [f"m{i:03d}" for i in range(300)]
    sites = Sites(
        (Site("r", "root"), *(Site(name) for name in names)), tuple(Link("r", name, 0.001, 1e9) for name in names)
    )
    answer = why(source("a"), sink("z", "a"), sites=sites)
    assert answer.unplaced[0].because == ("not a leaf: 'r', 'm000', 'm001', 'm002' and 297 more",)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_reasons(method: str) -> None:
    problem = Problem(Pipeline("p", (source("a"), source("b"), source("c"), sink("z", "a", "b", "c"))), SITES)
    assert place(problem, method) == place(problem, "td")


def test_others_make_room_along_a_chain() -> None:
    """a only on l1, b on l1 or l2: wherever b was put first, both find a place."""
    problem = Problem(Pipeline("p", (source("b"), source("a", ("l1",)), sink("z", "a", "b"))), SITES)
    made = arrays(problem)
    for seed in range(20):
        where = random_start(made, np.random.default_rng(seed))
        assert where is not None
        placement = made.named(where)
        assert (placement["a"], placement["b"]) == ("l1", "l2")


def test_a_random_start_is_valid_and_random() -> None:
    problem = instances.fire(1)
    made = arrays(problem)
    starts = set()
    for seed in range(20):
        where = random_start(made, np.random.default_rng(seed))
        assert where is not None
        assert evaluate(problem, made.named(where)).valid
        starts.add(where.tobytes())
    assert len(starts) == 20


def test_a_problem_is_prepared_once_for_all_methods() -> None:
    problem = instances.fire(1)
    prepared = Prepared(problem)
    assert prepared.infeasible is None
    assert place(problem, "td", prepared=prepared) == place(problem, "td")
