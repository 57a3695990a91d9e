"""Do allocations keep their laws: bounds, order of classes, no leaps, and as good as the optimum?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.control.allocate import by_delay, by_weight, classes, spread
from headwater.control.bellman import bellman, value

WEIGHTS = st.sampled_from([6.0, 3.0, 1.0])
AMOUNT = st.floats(0.0, 100.0)


def columns(draw, *elements, most: int = 12) -> list[np.ndarray]:
    """Draw columns of the same length."""
    rows = draw(st.lists(st.tuples(*elements), min_size=1, max_size=most))
    return [np.array(column, np.float64) for column in zip(*rows, strict=True)]


@given(st.data())
def test_shares_are_within_least_and_demand_and_together_within_the_machine(data) -> None:
    demand, least, weights = columns(data.draw, AMOUNT, st.floats(0.0, 10.0), WEIGHTS)
    capacity = data.draw(st.floats(0.0, 500.0))
    shares = by_weight(demand, capacity, classes(weights), least)
    first = np.minimum(demand, least)
    if first.sum() > capacity:
        first = first * (capacity / first.sum())
    assert (shares >= first * (1.0 - 1e-12)).all()
    assert (shares <= demand * (1.0 + 1e-12)).all()
    assert shares.sum() <= capacity * (1.0 + 1e-12) + 1e-300  # numbers next to nothing have fewer digits
    if demand.sum() >= capacity:  # nothing is wasted
        assert shares.sum() == pytest.approx(capacity, rel=1e-9, abs=1e-12)


@given(st.data())
def test_a_larger_machine_takes_nothing_away_from_anybody(data) -> None:
    demand, least, weights = columns(data.draw, AMOUNT, st.floats(0.0, 10.0), WEIGHTS)
    small, large = sorted(data.draw(st.tuples(st.floats(0.0, 500.0), st.floats(0.0, 500.0))))
    grouped = classes(weights)
    assert (by_weight(demand, large, grouped, least) >= by_weight(demand, small, grouped, least) - 1e-9).all()


@given(st.data())
def test_nobody_heavier_gets_a_smaller_part_of_what_it_asks_for_and_equals_get_the_same(data) -> None:
    demand, weights = columns(data.draw, st.floats(0.1, 100.0), WEIGHTS)
    part = by_weight(demand, data.draw(st.floats(0.0, 500.0)), classes(weights)) / demand
    for weight in (6.0, 3.0, 1.0):
        mine = part[weights == weight]
        lighter = part[weights < weight]
        if len(mine):
            assert mine.min() == pytest.approx(mine.max(), rel=1e-12)
        if len(mine) and len(lighter) and lighter.max() > 1e-12:
            assert mine.min() >= 1.0 - 1e-12  # a lighter class gets something only when this one is whole


@given(st.data())
def test_shares_change_no_more_than_twice_as_much_as_demands_and_the_machine_do(data) -> None:
    demand, other, least, weights = columns(data.draw, AMOUNT, AMOUNT, st.floats(0.0, 10.0), WEIGHTS)
    capacity, other_capacity = data.draw(st.floats(0.0, 300.0)), data.draw(st.floats(0.0, 300.0))
    if data.draw(st.booleans()):  # a small change
        other = demand * (1.0 + 1e-6)
    grouped = classes(weights)
    moved = np.abs(by_weight(demand, capacity, grouped, least) - by_weight(other, other_capacity, grouped, least)).sum()
    assert moved <= 2.0 * np.abs(demand - other).sum() + abs(capacity - other_capacity) + 1e-9


@given(st.data())
def test_the_order_of_applications_does_not_matter(data) -> None:
    demand, least, weights = columns(data.draw, AMOUNT, st.floats(0.0, 10.0), WEIGHTS)
    capacity = data.draw(st.floats(0.0, 300.0))
    order = np.array(data.draw(st.permutations(range(len(demand)))))
    shares = by_weight(demand, capacity, classes(weights), least)
    mixed = by_weight(demand[order], capacity, classes(weights[order]), least[order])
    np.testing.assert_allclose(mixed, shares[order], rtol=1e-9, atol=1e-12)


@given(st.data())
def test_filling_by_class_is_worth_exactly_what_dynamic_programming_finds(data) -> None:
    weight = data.draw(st.sampled_from([WEIGHTS, st.integers(1, 20).map(float)]))
    demand, weights = columns(data.draw, st.integers(0, 15).map(float), weight, most=8)
    capacity = data.draw(st.integers(0, 60))
    mine = value(by_weight(demand, float(capacity), classes(weights)), demand, weights)
    theirs = value(bellman(demand.astype(np.int64), capacity, weights), demand, weights)
    assert theirs == round(theirs)
    assert mine == pytest.approx(theirs, rel=1e-13, abs=1e-11)  # whole numbers: what is left is rounding


@given(st.data())
def test_what_is_spare_is_handed_out_in_proportion_until_somebody_has_the_most(data) -> None:
    shares, room, by = columns(data.draw, AMOUNT, st.one_of(st.floats(0.0, 50.0), st.just(math.inf)), AMOUNT)
    most, capacity = shares + room, data.draw(st.floats(0.0, 1500.0))
    found = spread(shares, capacity, by, most)
    assert (found >= shares).all()
    assert (found <= most * (1.0 + 1e-12)).all()
    left = max(0.0, capacity - shares.sum())
    assert (found - shares).sum() <= left * (1.0 + 1e-9) + 1e-9
    can_take = float(room[by > 1e-200 * by.sum()].sum())
    assert (found - shares).sum() == pytest.approx(min(left, can_take), rel=1e-9, abs=1e-7)
    is_open = (found < most * (1.0 - 1e-9)) & (by > 1e-3)
    if is_open.any():
        per = ((found - shares) / np.where(by > 0.0, by, 1.0))[is_open]
        assert per == pytest.approx(np.full(len(per), per[0]), rel=1e-6, abs=1e-9)


LOGS = {"rate_rps": (-1.0, 4.0), "work_s": (-5.0, 0.0)}


def busy_machine(draw, most_full: float = 0.999) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    rates, works, weights = columns(draw, st.floats(*LOGS["rate_rps"]), st.floats(*LOGS["work_s"]), WEIGHTS)
    rate_rps, work_s = 10.0**rates, 10.0**works
    return rate_rps, work_s, weights, float((rate_rps * work_s).sum()) / draw(st.floats(0.01, most_full))


def weighted_wait(shares: np.ndarray, rate_rps: np.ndarray, work_s: np.ndarray, weights: np.ndarray) -> float:
    load = rate_rps * work_s
    with np.errstate(divide="ignore"):
        wait_s = np.where(shares > load, work_s * load / shares / (shares - load), np.inf)
    return float((weights * rate_rps * wait_s).sum())


@given(st.data())
def test_shares_by_delay_are_the_whole_machine_and_all_marginal_waits_are_the_same(data) -> None:
    rate_rps, work_s, weights, capacity = busy_machine(data.draw)
    shares = by_delay(rate_rps, work_s, weights, capacity)
    assert shares.sum() == pytest.approx(capacity, rel=1e-9)
    load = rate_rps * work_s
    slack = shares - load
    assert (slack > 0.0).all()
    assume((slack > 1e-8 * shares).all())  # else the difference of the two has too few digits to be checked with
    marginal = weights * rate_rps * work_s * load * (shares + slack) / (shares * slack) ** 2
    assert marginal == pytest.approx(np.full(len(marginal), marginal[0]), rel=1e-6)
    for nearly in (0.0, 1e-300):  # somebody without a load changes nothing
        more = by_delay(np.append(rate_rps, nearly), np.append(work_s, 1.0), np.append(weights, 6.0), capacity)
        assert more == pytest.approx(np.append(shares, nearly), rel=1e-12, abs=0.0)


@given(st.data())
def test_no_simple_rule_waits_less_than_shares_by_delay(data) -> None:
    rate_rps, work_s, weights, capacity = busy_machine(data.draw)
    load = rate_rps * work_s
    best = weighted_wait(by_delay(rate_rps, work_s, weights, capacity), rate_rps, work_s, weights)
    room = capacity - load.sum()
    for by in (load, np.ones(len(load)), np.sqrt(weights * rate_rps * work_s), weights * load):
        assert best <= weighted_wait(load + room * by / by.sum(), rate_rps, work_s, weights) * (1.0 + 1e-9)


@given(st.data())
def test_where_loads_are_more_than_the_machine_the_heaviest_are_served_first(data) -> None:
    rate_rps, work_s, weights, capacity = busy_machine(data.draw)
    load = rate_rps * work_s
    small = data.draw(st.floats(0.0, 1.0)) * float(load.sum())
    np.testing.assert_array_equal(by_delay(rate_rps, work_s, weights, small), by_weight(load, small, classes(weights)))
    idle = np.zeros(len(load))
    np.testing.assert_array_equal(by_delay(idle, work_s, weights, capacity), idle)
