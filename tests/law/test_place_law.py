"""Laws of placement: valid, never better than the best, bounded from below, repeatable, and infeasible only if so.

Loops over seeds, not hypothesis, so that the counts are exact: `exhaustive` equals `exact` on 200 problems.
`HYPOTHESIS_PROFILE=long` (make law) tries ten times as many.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product

import pytest

from headwater.cost.problem import Problem
from headwater.place import METHODS, Infeasible, Limits, Prepared, Result, place
from headwater.place.arrays import arrays
from headwater.place.programme import programme
from tests.reference import Reference
from tests.strategies import Size, seeded_problem

MORE = 10 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 1
PARTS = 8  # of each law, so that two processes can share it and none takes long
MOST_CHOICES = 300_000  # placements that exhaustive tries in a moment
CLOSE = 1e-9

LARGER = Size(sites=7, operators=8, fewest=5, slots=(2, 3, 1, 2, 0), rules=12, fits=True)
CROWDED = Size(sites=5, operators=6, fewest=3, slots=(1, 2, 1, 3, 0), rules=20, fits=True)
TINY = Size(sites=4, operators=4, slots=(2, 1, 2, 3), rules=16, fits=True)


def shares(count: int) -> pytest.MarkDecorator:
    """Run a law over `count` problems in a few parts."""
    each = count * MORE // PARTS
    return pytest.mark.parametrize("numbers", [range(i * each, (i + 1) * each) for i in range(PARTS)], ids=str)


def feasible(numbers: range, size: Size) -> Iterator[tuple[int, Problem, Prepared]]:
    """Yield as many feasible problems as there are numbers, trees and graphs in turn, few enough choices to try all."""
    for number in numbers:
        for again in range(100):
            problem = seeded_problem(1_000_003 * again + number, size, is_tree=number % 2 == 0)
            if 1 < Reference(problem.pipeline, problem.sites).choices() <= MOST_CHOICES:
                prepared = Prepared(problem)
                if prepared.infeasible is None:
                    yield number, problem, prepared
                    break
        else:
            pytest.fail(f"no feasible problem for number {number}")


def solved(problem: Problem, method: str, prepared: Prepared, seed: int = 0) -> Result:
    answer = place(problem, method, seed, prepared=prepared)
    assert isinstance(answer, Result)
    return answer


def told(number: int, problem: Problem) -> str:
    return f"number {number}: {problem.pipeline} {problem.sites}"


@shares(200)
def test_exact_finds_and_proves_what_exhaustive_finds(numbers: range) -> None:
    count = 0
    for number, problem, prepared in feasible(numbers, LARGER):
        best = solved(problem, "exhaustive", prepared)
        found = solved(problem, "exact", prepared, seed=number)
        assert abs(found.f - best.f) <= CLOSE * max(1.0, abs(best.f)), told(number, problem)
        assert found.proved, told(number, problem)
        assert found.lower_bound <= best.f + CLOSE, told(number, problem)
        count += 1
    assert count == len(numbers)


@shares(40)
def test_every_method_is_valid_bounded_repeatable_and_never_beats_exhaustive(numbers: range) -> None:
    for number, problem, prepared in feasible(numbers, small_size(numbers)):
        reference = Reference(problem.pipeline, problem.sites)
        best = solved(problem, "exhaustive", prepared)
        for method in METHODS:
            what = f"{method}, {told(number, problem)}"
            result = solved(problem, method, prepared, seed=number)
            verdict = reference.score(result.placement)
            assert verdict.valid, what
            assert result.f == pytest.approx(verdict.f, rel=CLOSE, abs=1e-12), what
            assert result.f >= best.f - CLOSE, what
            assert result.lower_bound <= best.f + CLOSE, what
            assert result.lower_bound <= result.f, what
            again = solved(problem, method, Prepared(problem), seed=number)
            assert again.placement == result.placement, what
            assert (again.f, again.lower_bound, again.evaluations) == (
                result.f,
                result.lower_bound,
                result.evaluations,
            ), what


def small_size(numbers: range) -> Size:
    """Half of the parts have rules in every corner, half have little but the pipeline itself."""
    return Size(6, 6, 4, slots=(2, 3, 1, 2, 0), rules=30 if numbers.start % 4 else 8, fits=True)


@shares(48)
def test_exhaustive_finds_what_brute_force_over_the_contract_finds(numbers: range) -> None:
    for number, problem, prepared in feasible(numbers, TINY):
        reference = Reference(problem.pipeline, problem.sites)
        wanted = reference.best()
        assert wanted is not None, told(number, problem)
        best = solved(problem, "exhaustive", prepared)
        assert best.f == pytest.approx(wanted[0], rel=CLOSE, abs=1e-12), told(number, problem)
        assert best.proved
        count = sum(1 for _ in reference.valid_placements())
        assert best.because == (f"all {count} valid placements tried",), told(number, problem)


@shares(400)
def test_infeasible_is_said_exactly_when_nothing_is_valid(numbers: range) -> None:
    said = 0
    for number in numbers:
        problem = seeded_problem(number, CROWDED, is_tree=number % 2 == 0)
        reference = Reference(problem.pipeline, problem.sites)
        answer = place(problem, "hlf")
        is_possible = next(reference.valid_placements(), None) is not None
        assert isinstance(answer, Result) == is_possible, told(number, problem)
        if isinstance(answer, Infeasible):
            said += 1
            explains(answer, reference, told(number, problem))
    assert 0.1 * len(numbers) < said < 0.9 * len(numbers), "both answers must be common for this law to mean anything"


def explains(answer: Infeasible, reference: Reference, what: str) -> None:
    """The reasons name operators that together cannot be placed, whatever becomes of the others."""
    assert answer.conflict, what
    assert answer.unplaced, what
    named = [each.operator for each in answer.unplaced]
    assert len(named) == len(set(named)), what
    assert set(named) <= set(reference.operator), what
    assert all(each.because for each in answer.unplaced), what
    text = " ".join(answer.conflict)
    if reference.hosts:
        assert any(f"'{name}'" in text for name in named), what
    assert not can_stand_together(reference, named), what


def can_stand_together(reference: Reference, named: list[str]) -> bool:
    """Return whether some operators alone could be placed: slots, own rules, company among themselves."""
    operators = [reference.operator[name] for name in named]
    for sites in product(*(reference.allowed(operator) for operator in operators)):
        here = dict(zip(named, sites, strict=True))
        if (
            all(sites.count(site) <= reference.site[site].slots for site in sites)
            and all(here[one.name] == here[two] for one in operators for two in one.together if two in here)
            and all(here[one.name] != here[two] for one in operators for two in one.apart if two in here)
        ):
            return True
    return False


def test_the_smallest_conflict_loses_its_point_when_one_operator_leaves() -> None:
    checked = 0
    for number in range(600 * MORE):
        problem = seeded_problem(number, CROWDED)
        reference = Reference(problem.pipeline, problem.sites)
        answer = Prepared(problem).infeasible
        if answer is None or not all(allowed_together(reference, one) for one in reference.operator):
            continue
        named = [each.operator for each in answer.unplaced]
        for name in named:
            unit = joined(reference, name)
            rest = [other for other in named if other not in unit]
            assert can_stand_together(reference, rest), f"without {unit}: {told(number, problem)}"
        checked += 1
    assert checked > 20


def joined(reference: Reference, name: str) -> set[str]:
    """Return the operators that `with` puts on one site with an operator, directly or through others."""
    unit = {name}
    while True:
        more = {
            other
            for one in reference.operator.values()
            for other in (one.name, *one.together)
            if unit & {one.name, *one.together}
        }
        if more <= unit:
            return unit
        unit |= more


def allowed_together(reference: Reference, name: str) -> bool:
    """Return whether a unit could be placed if it were alone."""
    return can_stand_together(reference, sorted(joined(reference, name)))


@shares(40)
def test_the_integer_programme_finds_the_optimum_of_trees(numbers: range) -> None:
    for number in numbers:
        for _, problem, prepared in feasible(range(2 * number, 2 * number + 1), small_size(numbers)):
            best = solved(problem, "exhaustive", prepared)
            large = arrays(problem, 0)  # no table of pairs, as on a large tree
            start = solved(problem, "hlf", prepared)
            where, bound, note, is_cut = programme(large, start.f, Limits())
            assert not is_cut
            assert bound <= best.f + CLOSE, told(number, problem)
            if where is None:
                assert start.f <= best.f + 2e-6, f"{note}, {told(number, problem)}"
            else:
                reference = Reference(problem.pipeline, problem.sites)
                verdict = reference.score(large.named(where))
                assert verdict.valid, told(number, problem)
                assert verdict.f is not None
                assert verdict.f <= best.f + 2e-6 * max(1e-3, best.f), f"{note}, {told(number, problem)}"
