"""Laws of the score: it is what the contract says, in whatever order the files say it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from headwater.cost.problem import Problem
from headwater.cost.score import Score, evaluate, link_loads
from headwater.errors import SpecError
from headwater.model.pipeline import Objective, Pipeline
from tests.reference import Reference, Verdict
from tests.strategies import Drawn, Size, Thrown, any_placement, problem, problems, rule_following, shuffled

TANGLED = Size(sites=7, operators=7, more_links=6, slots=(3, 2, 3, 1, 0))
EQUAL = Size(sites=7, operators=2, more_links=9, latencies_s=(0.001, 0.001, 0.002, 0.0010000003, 0.0009999997))
ROOMY = Size(sites=6, operators=7, more_links=5, slots=(9, 9, 9, 0), rules=0, fits=True)


def same(value: float) -> object:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def same_bits(value: float) -> object:
    return pytest.approx(
        value, rel=1e-9, abs=1e-6
    )  # a difference of loads: a millionth of a bit per second is rounding


def agree(problem: Problem, score: Score, verdict: Verdict, reference: Reference) -> None:
    assert score.valid == verdict.valid, score.reasons
    if reference.has_bounds:
        rt_min, rt_max, rf_max, bw_max = reference.bounds
        assert score.bounds.rt_min_s == same(rt_min)
        assert score.bounds.rt_max_s == same(rt_max)
        assert score.bounds.rf_max == rf_max
        assert score.bounds.bw_max_bps == same(bw_max)
    if not verdict.valid:
        assert score.reasons
        assert all(reason.strip() for reason in score.reasons)
        assert (score.f, score.rt_s, score.rf, score.bw_bps, score.load_cores) == (None,) * 5
        return
    assert score.reasons == ()
    assert verdict.f is not None
    assert verdict.rt_s is not None
    assert verdict.bw_bps is not None
    assert verdict.load_cores is not None
    assert score.rt_s == same(verdict.rt_s)
    assert score.rf == verdict.rf
    assert score.bw_bps == same_bits(verdict.bw_bps)
    assert score.f == same(verdict.f)
    assert score.load_cores == {name: same(load) for name, load in verdict.load_cores.items()}
    cores = {site.name: site.cores for site in problem.sites.sites}
    for name, load in verdict.load_cores.items():
        most = cores[name]
        if most is not None and abs(load - most) > 1e-9:
            assert (name in score.overloaded) == (load > most)
        elif most is None:
            assert name not in score.overloaded
    agree_on_links(score, verdict)
    agree_on_path(reference, score)


def agree_on_links(score: Score, verdict: Verdict) -> None:
    assert verdict.over_bps is not None
    told = {}
    for each in score.congested:
        away = each.link[0] if each.toward == each.link[1] else each.link[1]
        told[away, each.toward] = each.over_bps
    for pair in told.keys() | verdict.over_bps.keys():
        assert told.get(pair, 0.0) == same_bits(verdict.over_bps.get(pair, 0.0))


def agree_on_path(reference: Reference, score: Score) -> None:
    """The critical path is one of the paths that count, and none where none counts."""
    known = [tuple(names) for names, _ in reference.paths]
    assert score.critical_path in known if known else score.critical_path == ()


def length(reference: Reference, placement: Mapping[str, str], names: tuple[str, ...]) -> float:
    """The longest way along a path of operators (two streams may join the same two)."""
    total = sum(reference.operator[name].work_s / reference.site[placement[name]].speed for name in names)
    for writer, reader in itertools.pairwise(names):
        way = reference.route(placement[writer], placement[reader])
        assert way is not None
        total += max(reference.delay(way, size) for u, v, _, size in reference.streams if (u, v) == (writer, reader))
    return total


@given(st.data())
def test_the_score_is_what_the_contract_says(data: st.DataObject) -> None:
    problem = data.draw(problems(TANGLED))
    placement = any_placement(Drawn(data.draw), problem)
    reference = Reference(problem.pipeline, problem.sites)
    verdict = reference.score(placement)
    event(f"valid: {verdict.valid}")
    agree(problem, evaluate(problem, placement), verdict, reference)


@given(st.data(), st.booleans())
def test_the_score_of_a_valid_placement_is_what_the_contract_says(data: st.DataObject, is_tree: bool) -> None:
    problem = data.draw(problems(ROOMY, is_tree))
    placement = rule_following(Drawn(data.draw), problem)
    reference = Reference(problem.pipeline, problem.sites)
    verdict = reference.score(placement)
    assert verdict.valid
    score = evaluate(problem, placement)
    agree(problem, score, verdict, reference)
    if score.critical_path:
        assert length(reference, placement, score.critical_path) == same(verdict.rt_s or 0.0)


@pytest.mark.parametrize("part", range(4))
def test_every_route_of_a_thousand_graphs_is_the_one_that_the_contract_names(part: int) -> None:
    ties = 0
    for seed in range(250 * part, 250 * part + 250):
        sites = problem(Thrown(seed), EQUAL, is_tree=seed % 5 == 0).sites
        made = Problem(Pipeline("none", ()), sites)
        reference = Reference(made.pipeline, sites)
        routes = made.routes
        for a in reference.site:
            for b in reference.site:
                way = reference.route(a, b)
                codes = routes.between(routes.vertex[a], routes.vertex[b])
                assert way is not None
                assert codes is not None
                taken = (a, *(routes.names[routes.towards[code]] for code in codes))
                assert taken == way, f"seed {seed}"
                assert all(routes.names[routes.ends[code]] == name for code, name in zip(codes, way, strict=False))
                ways = list(reference.simple_ways(a, b)) if a < b else []
                worth = [(nanoseconds(reference, one), len(one)) for one in ways]
                ties += worth.count(min(worth)) > 1 if worth else 0
    assert ties > 100, "the graphs must have ties to be worth anything"


def nanoseconds(reference: Reference, way: tuple[str, ...]) -> int:
    return sum(round(reference.link[pair].latency_s * 1e9) for pair in itertools.pairwise(way))


@given(st.data())
def test_the_order_in_the_files_does_not_change_the_score(data: st.DataObject) -> None:
    problem = data.draw(problems(TANGLED))
    dice = Drawn(data.draw)
    placement = any_placement(dice, problem)
    other = shuffled(dice, problem)
    turned = dict(dice.shuffle(list(placement.items())))
    one, two = evaluate(problem, placement), evaluate(other, turned)
    assert one.valid == two.valid
    assert sorted(one.reasons) == sorted(two.reasons) or not one.valid  # lists inside reasons follow the file
    assert one.rf == two.rf
    for first, second in ((one.f, two.f), (one.rt_s, two.rt_s)):
        assert first == second if first is None else second == same(first)
    assert two.bw_bps == (None if one.bw_bps is None else same_bits(one.bw_bps))
    assert two.load_cores == (
        None if one.load_cores is None else {name: same(load) for name, load in one.load_cores.items()}
    )
    if one.valid:
        loads, again = link_loads(problem, placement), link_loads(other, turned)
        assert again == {pair: same_bits(load) for pair, load in loads.items()}


@given(problems(ROOMY), st.sampled_from([0.0, 0.5, 0.999]))
def test_a_scale_of_rt_that_is_turned_round_is_refused(made: Problem, share: float) -> None:
    """A `max` below the `min` would make slower placements better: it is a mistake, not a score."""
    assume(made.bounds.rt_min_s > 0.0)
    objective = Objective(rt_max_s=made.bounds.rt_min_s * share, between=made.pipeline.objective.between)
    turned = Problem(Pipeline("turned", made.pipeline.operators, objective), made.sites)
    assume(Reference(turned.pipeline, turned.sites).bounds[0] > (objective.rt_max_s or 0.0))
    with pytest.raises(SpecError, match="HW1405"):
        evaluate(turned, rule_following(Thrown(0), turned))
