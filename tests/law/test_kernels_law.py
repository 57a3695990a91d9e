"""Laws of the kernels: what they compute step by step is what full evaluation gives, and bounds are bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from bench import instances
from headwater.cost.problem import Problem
from headwater.cost.score import evaluate
from headwater.model.pipeline import Pipeline
from headwater.model.routes import Ints
from headwater.model.sites import Sites
from headwater.place import bounds, condense, kernels, neighbourhood, relax
from headwater.place.arrays import SLOTS, Arrays, arrays
from headwater.place.feasible import random_start
from headwater.place.state import State, problem_parts, seeded
from tests.reference import Reference
from tests.strategies import Size, seeded_problem

RT, RF, BW, F = range(4)  # of a state's sums
SMALL = Size(sites=7, operators=8, fewest=4, slots=(2, 3, 1, 2, 0), rules=16, fits=True)
HOT = 10.0  # so hot that nearly every step is taken: a random walk


def roomy(problem: Problem) -> Problem:
    """Return the problem with room for everything everywhere, and nobody with a rule."""
    operators = tuple(replace(operator, at=None, together=(), apart=()) for operator in problem.pipeline.operators)
    sites = tuple(replace(site, slots=1000 if site.slots else 0) for site in problem.sites.sites)
    return Problem(Pipeline("roomy", operators, problem.pipeline.objective), Sites(sites, problem.sites.links))


def with_ties(rng: np.random.Generator, sites: Sites) -> Sites:
    return Sites(sites.sites, tuple(replace(link, latency_s=0.001 * int(rng.integers(1, 4))) for link in sites.links))


def large_problems() -> dict[str, Problem]:
    rng = np.random.default_rng(5)
    graph = instances.random_graph(rng, 30)
    leaves = [site.name for site in graph.sites if site.kind == "leaf"]
    pipeline = instances.layered_pipeline(rng, 25, leaves)
    return {
        "fire": instances.fire(1),
        "fire x2": instances.fire(2),
        "tree": instances.tree_problem(40, 30),
        "narrow tree": instances.tree_problem(70, 8),  # more than 64 operators: more than one word of bits
        "graph": Problem(pipeline, graph),
        "graph with ties": Problem(pipeline, with_ties(rng, graph)),
    }


LARGE = large_problems()


def same_as_full(state: State, problem: Problem) -> None:
    """Check every sum of a state against full evaluation."""
    score = evaluate(problem, state.arrays.named(state.where))
    assert score.valid, score.reasons
    assert state.f == pytest.approx(score.f, rel=1e-9, abs=1e-12)
    assert state.sums[RT] == pytest.approx(score.rt_s, rel=1e-9)
    assert state.sums[RF] == score.rf
    if state.arrays.weigh[2] > 0.0:  # otherwise BW is not followed, because it cannot count
        assert state.sums[BW] == pytest.approx(score.bw_bps, rel=1e-9, abs=1e-3)
    taken = np.bincount(state.where, minlength=len(state.arrays.hosts))
    assert (state.used == taken).all()


def wandered(made: Arrays, start: Ints, problem: Problem, seed: int, rounds: int, steps: int) -> None:
    state = State(made, start)
    same_as_full(state, problem)
    best, best_f = start.copy(), state.f
    for number in range(rounds):
        best_f = kernels.improve(
            state.problem, state.parts, best, seeded(seed, number), 0, steps, steps, HOT, HOT, best_f
        )
        same_as_full(state, problem)
    assert State(made, best).f == pytest.approx(best_f, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("tabled", [0, 1500], ids=["without pairs", "with pairs"])
@pytest.mark.parametrize("name", LARGE)
def test_after_any_walk_the_sums_are_those_of_full_evaluation(name: str, tabled: int) -> None:
    problem = LARGE[name]
    made = arrays(problem, tabled)
    start = random_start(made, np.random.default_rng(1))
    assert start is not None
    wandered(made, start, problem, 1, rounds=15, steps=60)
    wandered(made, start, problem, 2, rounds=2, steps=20_000)


@pytest.mark.parametrize("tabled", [0, 1500], ids=["without pairs", "with pairs"])
def test_the_same_holds_on_small_problems_with_rules_in_every_corner(tabled: int) -> None:
    moved = 0
    for number in range(60):
        problem = seeded_problem(number, SMALL, is_tree=number % 2 == 0)
        made = arrays(problem, tabled)
        start = random_start(made, np.random.default_rng(number))
        if start is not None:
            moved += 1
            wandered(made, start, problem, number, rounds=4, steps=100)
    assert moved > 20


def next_chance(seed: int) -> tuple[int, float]:
    """xorshift64*, written again: the next state, and the number in [0, 1) that it gives."""
    mask = (1 << 64) - 1
    x = seed ^ (seed >> 12)
    x ^= (x << 25) & mask
    x ^= x >> 27
    return x, ((x * 2685821657736338717 & mask) >> 11) / 2**53


@pytest.mark.parametrize("tabled", [0, 1500], ids=["without pairs", "with pairs"])
@pytest.mark.parametrize("name", LARGE)
def test_a_single_move_is_foretold_exactly(name: str, tabled: int) -> None:
    problem = roomy(LARGE[name])
    foretold(problem, arrays(problem, tabled), seeds=range(60))


@pytest.mark.parametrize("tabled", [0, 1500], ids=["without pairs", "with pairs"])
def test_a_single_move_is_foretold_exactly_on_small_problems(tabled: int) -> None:
    for number in range(60):
        problem = roomy(seeded_problem(number, SMALL, is_tree=number % 2 == 0))
        foretold(problem, arrays(problem, tabled), seeds=range(8))


def foretold(problem: Problem, made: Arrays, seeds: range) -> None:
    """`probe` of one move gives the change of F that full evaluation gives, and moves nothing."""
    free = replace(made, ops=made.ops)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        start = random_start(free, rng)
        assert start is not None
        state = State(free, start)
        chance = seeded(seed, 9)
        word, first = next_chance(int(chance[0]))
        word, second = next_chance(word)
        op, host = int(first * len(start)), int(second * len(made.hosts))
        change = kernels.probe(state.problem, state.parts, chance, 1)
        assert int(chance[0]) == word
        assert (state.where == start).all()
        after = start.copy()
        after[op] = host
        # the rules of kinds stay, and a probe looks past them: F of the parts, not of a valid placement
        f = State(free, after).f
        assert change == pytest.approx(abs(f - state.f), rel=1e-9, abs=1e-12)
        score = evaluate(unruled(problem), made.named(after))
        assert f == pytest.approx(score.f, rel=1e-9, abs=1e-12)


def unruled(problem: Problem) -> Problem:
    """Return the problem where every operator may stand anywhere, judged on the scale of the original."""
    scale = problem.bounds
    objective = replace(
        problem.pipeline.objective,
        rt_min_s=scale.rt_min_s,
        rt_max_s=scale.rt_max_s,
        rf_max=scale.rf_max,
        bw_max_bps=scale.bw_max_bps,
    )
    everywhere = tuple(site.name for site in problem.hosts)
    operators = tuple(replace(operator, at=everywhere) for operator in problem.pipeline.operators)
    return Problem(Pipeline("unruled", operators, objective), problem.sites)


def steps(problem: Problem, placement: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yield every switch of a unit and every swap of two operators that are alone in their units."""
    units: list[set[str]] = []
    for operator in problem.pipeline.operators:
        mine = {operator.name, *operator.together}
        apart = [unit for unit in units if not unit & mine]
        units = [*apart, mine.union(*(unit for unit in units if unit & mine))]
    for unit in units:
        for site in problem.hosts:
            yield {**placement, **dict.fromkeys(unit, site.name)}
    alone = [name for unit in units if len(unit) == 1 for name in unit]
    for one in alone:
        for two in alone:
            yield {**placement, one: placement[two], two: placement[one]}


def test_the_best_step_is_the_best_of_all_switches_and_swaps() -> None:
    none = np.full(1, -1, np.int32)
    kinds = set()
    for number in range(150):
        problem = seeded_problem(number, SMALL, is_tree=number % 2 == 0)
        made = arrays(problem)
        start = random_start(made, np.random.default_rng(number))
        if start is None:
            continue
        state = State(made, start)
        placement = made.named(start)
        others = [evaluate(problem, step).f for step in steps(problem, placement) if step != placement]
        valid = [f for f in others if f is not None]
        f, kind, one, two = neighbourhood.best_step(state.problem, state.parts, none, none, -np.inf, 10**6)
        assert (kind < 0) == (not valid), f"number {number}"
        if valid:
            assert f == pytest.approx(min(valid), rel=1e-9, abs=1e-12), f"number {number}"
            kinds.add(kind)
            assert (state.where == start).all()
            neighbourhood.make_step(state.problem, state.parts, kind, one, two)
            same_as_full(state, problem)
            assert state.f == pytest.approx(f, rel=1e-9, abs=1e-12)
    assert kinds == {0, 1}


def rt_bounds(made: Arrays) -> tuple[float, float]:
    """Return the bound of RT on the whole tree and on the condensed one."""
    count = len(made.names)
    up_lat, up_inv = made.problem.routes.up
    is_alone = (made.hosts[:, SLOTS] == 1).astype(np.uint8)
    whole = float(relax.relax(problem_parts(made), up_lat, up_inv, is_alone, count))
    small, lat, inv, nobody = condense.condense(made)
    assert len(small.hosts) <= len(made.hosts)
    return whole, float(relax.relax(problem_parts(small), lat, inv, nobody, count))


@pytest.mark.parametrize("long_rule", [0, 2, 64])
def test_a_condensed_tree_bounds_less_and_both_bound_every_placement(
    long_rule: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(condense, "LONG_RULE", long_rule)
    tried = 0
    for number in range(60):
        problem = seeded_problem(number, SMALL, is_tree=True)
        made = arrays(problem, 0)
        if random_start(made, np.random.default_rng(0)) is None:
            continue
        whole, condensed = rt_bounds(made)
        assert condensed <= whole * (1 + 1e-12), f"number {number}"
        reference = Reference(problem.pipeline, problem.sites)
        if reference.choices() <= 3000:
            tried += 1
            scores = [reference.score(placement) for placement in reference.valid_placements()]
            assert whole <= min(score.rt_s or 0.0 for score in scores) * (1 + 1e-9), f"number {number}"
            least = min(score.f for score in scores if score.f is not None)
            assert bounds.lower_bound(made) <= least + 1e-9, f"number {number}"
    assert tried > 10


@pytest.mark.parametrize("long_rule", [1, 8, 64])
@pytest.mark.parametrize("size", [(30, 60), (60, 300)])
def test_the_same_holds_on_larger_trees(size: tuple[int, int], long_rule: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condense, "LONG_RULE", long_rule)
    problem = instances.tree_problem(*size)
    made = arrays(problem, 0)
    whole, condensed = rt_bounds(made)
    assert 0.0 < condensed <= whole * (1 + 1e-12)
    floor = bounds.lower_bound(made)
    rng = np.random.default_rng(0)
    for _ in range(20):
        where = random_start(made, rng)
        assert where is not None
        state = State(made, where)
        best = where.copy()
        kernels.improve(state.problem, state.parts, best, seeded(0), 0, 20_000, 20_000, 0.0, 0.0, state.f)
        state.set(best)
        assert whole <= state.sums[RT] * (1 + 1e-12)
        assert floor <= state.f + 1e-12


def test_the_bound_of_a_graph_holds_too() -> None:
    tried = 0
    for number in range(120):
        problem = seeded_problem(number, SMALL, is_tree=False)
        made = arrays(problem)
        reference = Reference(problem.pipeline, problem.sites)
        if reference.choices() <= 2000 and (best := reference.best()) is not None:
            assert bounds.lower_bound(made) <= best[0] + 1e-9, f"number {number}"
            tried += 1
    assert tried > 20
