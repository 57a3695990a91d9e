"""Laws of interference: bounds hold whatever is read, calm learns nothing from nothing, noise saturates nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from headwater.control.saturation import Interference, State, begin, observe, taken

ANY = arrays(np.float64, (12, 4, 3), elements=st.floats())  # interval, column, application
NUMBERS = st.none() | st.floats()
SEEDS = st.integers(0, 2**32 - 1)


def learned(rng: np.random.Generator, count: int, noise: float) -> tuple[State, np.ndarray]:
    """Return the state after calm with noise, and what a record costs each application."""
    cost_s, state = rng.uniform(1e-5, 1e-2, count), begin(count)
    for _ in range(80):
        state, found = step(state, rng, cost_s, noise)
        assert not found.is_saturated
    return state, cost_s


def step(state: State, rng: np.random.Generator, cost_s: np.ndarray, noise: float) -> tuple[State, Interference]:
    """Observe applications that all use half a processor, their limit: they do less when a record costs more."""
    used = rng.uniform(0.45, 0.55, len(cost_s))
    rates = used / cost_s * rng.lognormal(0.0, noise, len(cost_s))
    throttled = np.full(len(cost_s), 0.5)
    return observe(state, used, throttled, throttled, rates, 1.0)


@given(read=ANY, interval_s=st.floats(), memory_bps=NUMBERS, ceiling_bps=NUMBERS)
def test_bounds_hold_whatever_is_read(
    read: np.ndarray, interval_s: float, memory_bps: float | None, ceiling_bps: float | None
) -> None:
    for length_s in (interval_s, 1.0):
        state = begin(3)
        for used, delay, throttled, rates in read:
            state, found = observe(state, used, delay, throttled, rates, length_s, memory_bps, ceiling_bps)
            assert ((found.slowdown >= 1.0) & (found.slowdown < np.inf)).all()
            assert ((found.contention >= 0.0) & (found.contention <= 1.0)).all()
            assert found.because.endswith(".")
            assert np.isfinite([state.baseline, state.records, state.used, state.usual]).all()


@given(used=arrays(np.float64, 3, elements=st.floats(0.0, 1e6)), count=st.integers(1, 30))
def test_without_traffic_nothing_is_learned(used: np.ndarray, count: int) -> None:
    state = begin(3)
    for _ in range(count):
        state, found = observe(state, used, used, used, np.zeros(3), 1.0)
        assert not found.is_saturated
        assert (found.slowdown == 1.0).all()
    for each in (state.seen, state.records, state.used, state.baseline, state.usual):
        assert not each.any()


@given(seed=SEEDS, count=st.integers(2, 12), slowdown=st.floats(1.5, 4.0))
def test_a_slowdown_of_all_is_found_within_ten_intervals(seed: int, count: int, slowdown: float) -> None:
    rng = np.random.default_rng(seed)
    state, cost_s = learned(rng, count, 0.03)
    for _ in range(10):
        state, found = step(state, rng, cost_s * slowdown, 0.03)
    assert found.is_saturated
    for _ in range(10):
        state, found = step(state, rng, cost_s * slowdown, 0.03)
    assert found.is_saturated
    assert found.slowdown == pytest.approx(np.full(count, slowdown), rel=0.15)


@given(seed=SEEDS, count=st.integers(2, 12), factor=st.floats(0.1, 10.0))
def test_one_application_that_changes_its_own_work_saturates_nothing(seed: int, count: int, factor: float) -> None:
    rng = np.random.default_rng(seed)
    state, cost_s = learned(rng, count, 0.03)
    cost_s[0] *= factor
    for _ in range(40):
        state, found = step(state, rng, cost_s, 0.03)
        assert not found.is_saturated
        assert (found.slowdown[1:] < 1.2).all()


@given(seed=SEEDS, count=st.integers(1, 6), data=st.data())
def test_taken_then_observed_is_observed_then_taken(seed: int, count: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    state, cost_s = learned(rng, count, 0.03)
    places = np.array(data.draw(st.permutations(range(count))), np.int64)
    rates, nothing = 1.0 / cost_s, np.zeros(count)
    one, _ = observe(taken(state, places), np.ones(count), nothing, nothing, rates[places], 1.0)
    other, _ = observe(state, np.ones(count), nothing, nothing, rates, 1.0)
    assert one.baseline.tolist() == other.baseline[places].tolist()
    assert one.slowdown.tolist() == other.slowdown[places].tolist()
