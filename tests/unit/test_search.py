"""The methods that look at F, on examples: steps, tabu list, settings, seeds, the fence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench import instances
from headwater.cost.problem import Problem
from headwater.errors import SpecError
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites
from headwater.place import METHODS, Limits, Prepared, Result, neighbourhood, place, population, search
from headwater.place.arrays import arrays
from headwater.place.state import State

NONE = np.full(1, -1, np.int32)
NO_TIME = Limits(remaining_s=lambda: 0.0)
OPTIMUM = 0.08649630048732532  # of fire, times any number: proven by `exact`


def two_machines(slots: int) -> Problem:
    """A slow and a fast machine side by side; a source on a leaf feeds a heavy and a light step."""
    sites = Sites(
        (Site("leaf", "leaf", slots=1), Site("slow", "root", slots=slots), Site("fast", "root", 1, slots, 10.0)),
        (Link("leaf", "slow", 0.001, 1e9), Link("leaf", "fast", 0.001, 1e9)),
    )
    operators = (
        Operator("in", is_source=True, rate_rps=1.0, size_bytes=1.0),
        Operator("heavy", (Stream("in", "heavy"),), work_s=1.0, is_sink=True),
        Operator("light", (Stream("in", "light"),), work_s=0.1, is_sink=True),
    )
    return Problem(Pipeline("two", operators), sites)


def state_of(problem: Problem, **where: str) -> State:
    made = arrays(problem)
    number = {site.name: i for i, site in enumerate(problem.hosts)}
    return State(made, np.array([number[where[name]] for name in made.names], np.int32))


def best_step(state: State, tabu: tuple[str, str] | None = None, aspiration: float = -np.inf) -> tuple[str, ...]:
    made = state.arrays
    hosts = [site.name for site in made.problem.hosts]
    ops, sites = NONE, NONE
    if tabu is not None:
        ops = np.array([made.number[tabu[0]]], np.int32)
        sites = np.array([hosts.index(tabu[1])], np.int32)
    _, kind, one, two = neighbourhood.best_step(state.problem, state.parts, ops, sites, aspiration, 10**6)
    if kind < 0:
        return ()
    return ("switch", made.names[one], hosts[two]) if kind == 0 else ("swap", made.names[one], made.names[two])


def test_a_switch_moves_one_operator_to_a_site_with_room() -> None:
    state = state_of(two_machines(2), **{"in": "leaf", "heavy": "slow", "light": "fast"})
    assert best_step(state) == ("switch", "heavy", "fast")


def test_a_swap_exchanges_two_operators_where_no_site_has_room() -> None:
    state = state_of(two_machines(1), **{"in": "leaf", "heavy": "slow", "light": "fast"})
    assert best_step(state) == ("swap", "heavy", "light")


def test_a_tabu_step_is_not_taken_unless_it_is_better_than_anything_seen() -> None:
    state = state_of(two_machines(2), **{"in": "leaf", "heavy": "slow", "light": "fast"})
    assert best_step(state, tabu=("heavy", "fast")) != ("switch", "heavy", "fast")
    assert best_step(state, tabu=("heavy", "fast"), aspiration=state.f) == ("switch", "heavy", "fast")


def test_steepest_descent_ends_where_no_step_helps() -> None:
    problem = instances.fire(1)
    made = arrays(problem)
    for seed in range(5):
        state = State(made, search.sd(made, seed, Limits()).where)
        f, *_ = neighbourhood.best_step(state.problem, state.parts, NONE, NONE, -np.inf, 10**6)
        assert f >= state.f - 1e-12


def test_tabu_search_is_never_worse_than_descent_from_the_same_start() -> None:
    made = arrays(instances.fire(2))
    for seed in range(5):
        down, tabu = (State(made, method(made, seed, Limits()).where).f for method in (search.sd, search.ts))
        assert tabu <= down + 1e-12


def test_the_tabu_list_forgets_after_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round notes the place that an operator leaves; the list that the kernel gets never grows."""
    seen: list[list[tuple[int, int]]] = []
    original = neighbourhood.best_step

    def watched(problem, state, ops, hosts, aspiration, budget):
        seen.append(list(zip(ops.tolist(), hosts.tolist(), strict=True)))
        return original(problem, state, ops, hosts, aspiration, budget)

    monkeypatch.setattr(neighbourhood, "best_step", watched)
    search.ts(arrays(instances.fire(1)), 0, Limits())
    assert seen[0] == [(-1, -1)] * search.TABU_LENGTH
    assert {len(tabu) for tabu in seen} == {search.TABU_LENGTH}
    assert all(entry in later for entry, later in zip((tabu[-1] for tabu in seen[1:]), seen[2:], strict=False))
    assert (-1, -1) not in seen[search.TABU_LENGTH + 1]


def test_the_genetic_algorithm_has_the_settings_of_paper_004(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = population.evolve

    def watched(problem, state, people, fitness, seed, generations, mating, mutation, elite):
        calls.append((people.shape, generations, mating, mutation, elite))
        original(problem, state, people, fitness, seed, generations, mating, mutation, elite)

    monkeypatch.setattr(population, "evolve", watched)
    problem = instances.fire(1)
    found = search.ga(arrays(problem), 0, Limits())
    assert {call[0] for call in calls} == {(100, 13)}
    assert {call[2:] for call in calls} == {(0.3, 0.2, 3)}
    assert sum(call[1] for call in calls) == 1000
    assert found.because == ("1000 generations of 100",)


def test_evolution_keeps_the_best_three() -> None:
    made = arrays(instances.fire(1))
    state = State(made, search.ga(made, 1, NO_TIME).where)
    rng = np.random.default_rng(0)
    people = np.array([[rng.choice(made.allowed(op)) for op in range(13)] for _ in range(100)], np.int32)
    fitness = np.zeros(100)
    seed = np.array([7], np.uint64)
    before = np.full(3, np.inf)
    for _ in range(30):
        population.evolve(state.problem, state.parts, people, fitness, seed, 1, 0.3, 0.2, 3)
        assert (np.diff(fitness) >= 0).all(), "best first"
        assert (fitness[:3] <= before + 1e-12).all()
        before = fitness[:3].copy()


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("seed", range(10))
def test_annealing_reaches_the_proven_optimum_of_fire(times: int, seed: int) -> None:
    problem = instances.fire(times)
    found = place(problem, "anneal", seed)
    assert isinstance(found, Result)
    assert found.f == pytest.approx(OPTIMUM, rel=1e-9)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed > 2 else []) for seed in range(10)]
)
def test_annealing_reaches_the_proven_optimum_of_fire_times_four(seed: int) -> None:
    found = place(instances.fire(4), "anneal", seed)
    assert isinstance(found, Result)
    assert found.f == pytest.approx(OPTIMUM, rel=1e-9)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "exhaustive"])
def test_another_seed_may_answer_otherwise_but_the_same_seed_never_does(method: str) -> None:
    problem = instances.fire(2)
    prepared = Prepared(problem)
    for seed in (0, 5):
        one, two = (place(problem, method, seed, prepared=prepared) for _ in range(2))
        assert isinstance(one, Result)
        assert one == two


def test_random_starts_differ_between_seeds() -> None:
    made = arrays(instances.fire(2))
    starts = {search._start(made, seed).tobytes() for seed in range(10)}
    assert len(starts) == 10


@pytest.mark.parametrize("method", ["sd", "ts", "ga", "anneal", "auto", "exact"])
def test_an_answer_that_the_fence_cut_short_says_so_and_is_still_valid(method: str) -> None:
    answer = place(instances.fire(4), method, 0, NO_TIME)
    assert isinstance(answer, Result)
    assert answer.score.valid
    assert answer.cut_short or answer.proved  # a proof that came in time is not cut short
    assert answer.lower_bound <= OPTIMUM + 1e-9


@pytest.mark.parametrize("method", ["td", "hlf"])
def test_what_takes_no_time_is_not_cut_short(method: str) -> None:
    answer = place(instances.fire(4), method, 0, NO_TIME)
    assert isinstance(answer, Result)
    assert not answer.cut_short


def test_exhaustive_refuses_what_it_cannot_finish() -> None:
    with pytest.raises(SpecError, match=r"HW1401 .*'exhaustive' would have to try up to .* Use 'exact' or 'auto'"):
        place(instances.fire(1), "exhaustive")


def test_auto_uses_the_network_no_more_than_it_must() -> None:
    """Among placements with the same F it takes one with less on the links."""
    idle = Operator("idle", (Stream("in", "idle"),), is_sink=True, at=("leaf", "slow", "fast"))
    small = two_machines(3)
    roomy = replace(small.sites, sites=(replace(small.sites.sites[0], slots=2), *small.sites.sites[1:]))
    problem = Problem(Pipeline("two", (*small.pipeline.operators, idle)), roomy)
    answer = place(problem, "auto")
    assert isinstance(answer, Result)
    assert answer.placement["idle"] == "leaf"


def test_progress_is_told_with_a_share() -> None:
    said: list[tuple[str, float | None]] = []
    place(instances.fire(1), "anneal", 0, Limits(say=lambda text, share: said.append((text, share))))
    shares = [share for _, share in said if share is not None]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
