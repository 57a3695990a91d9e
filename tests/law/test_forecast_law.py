"""Laws of forecasts: finite, never negative, the same in any unit, and as far off as they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from headwater.control.forecast import History, Settings, ahead, begin, error_rps, observe, taken

SHAPES = array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40)
ANY = arrays(np.float64, SHAPES, elements=st.floats(allow_nan=False, allow_infinity=False))
COMMON = arrays(np.float64, SHAPES, elements=st.floats(0.0, 1e6).map(lambda rate: round(rate, 3)))
SETTINGS = st.builds(
    Settings,
    order=st.integers(0, 4),
    averages=st.integers(0, 2),
    forgetting=st.floats(0.5, 1.0),
    is_combined=st.booleans(),
)


def after(rates: np.ndarray, settings: Settings = Settings()) -> History:  # noqa: B008 - a frozen value
    history = begin(rates.shape[1], settings)
    for row in rates:
        history = observe(history, row, np.ones(len(row), bool))
    return history


@given(rates=ANY, settings=SETTINGS)
def test_forecasts_are_finite_and_never_negative_whatever_is_read(rates: np.ndarray, settings: Settings) -> None:
    history = after(rates, settings)
    forecast = ahead(history, 12)
    for values in (forecast.mean_rps, forecast.deviation_rps, error_rps(history)):
        assert np.isfinite(values).all()
        assert (values >= 0.0).all()
    assert np.isfinite(history.normal).all()


@given(rates=COMMON, power=st.integers(-24, 40))
def test_the_unit_of_a_rate_does_not_matter(rates: np.ndarray, power: int) -> None:
    # Powers of two: the arithmetic is then the same, bit by bit.
    unit = 2.0**power
    plain, scaled = ahead(after(rates), 5), ahead(after(rates * unit), 5)
    assert scaled.mean_rps == pytest.approx(plain.mean_rps * unit)
    assert scaled.deviation_rps == pytest.approx(plain.deviation_rps * unit)


@given(rate=st.floats(0.0, 1e9), length=st.integers(1, 60), settings=SETTINGS)
def test_a_constant_load_stays(rate: float, length: int, settings: Settings) -> None:
    forecast = ahead(after(np.full((length, 2), rate), settings), 5)
    assert forecast.mean_rps == pytest.approx(np.full((5, 2), rate))


@given(rates=COMMON, data=st.data())
def test_unknown_readings_between_known_ones_change_nothing(rates: np.ndarray, data: st.DataObject) -> None:
    # Each application's known readings alone, one after another, give the same as all with gaps.
    known = data.draw(arrays(np.bool_, rates.shape))
    history = begin(rates.shape[1])
    for row, is_known in zip(rates, known, strict=True):
        history = observe(history, row, is_known)
    found = ahead(history, 3).mean_rps
    for i in range(rates.shape[1]):
        alone = ahead(after(rates[known[:, i], i][:, None]), 3).mean_rps
        assert found[:, i] == pytest.approx(alone[:, 0])


@given(rates=COMMON, data=st.data())
def test_taken_keeps_what_is_known_of_each_application(rates: np.ndarray, data: st.DataObject) -> None:
    count = rates.shape[1]
    places = np.array(data.draw(st.lists(st.integers(-1, count - 1), max_size=8)), np.int64)
    history = after(rates)
    found, whole = ahead(taken(history, places), 4), ahead(history, 4)
    for i, place in enumerate(places):
        expected = whole.mean_rps[:, place] if place >= 0 else np.zeros(4)
        deviation = whole.deviation_rps[:, place] if place >= 0 else np.zeros(4)
        assert found.mean_rps[:, i] == pytest.approx(expected, rel=1e-12)
        assert found.deviation_rps[:, i] == pytest.approx(deviation, rel=1e-12)


@given(rates=COMMON)
def test_a_deviation_never_shrinks_with_the_step(rates: np.ndarray) -> None:
    deviation = ahead(after(np.concatenate([rates] * (30 // len(rates) + 1))), 8).deviation_rps
    assert (np.diff(deviation, axis=0) >= -1e-9 * deviation[:-1]).all()


def series(kind: str, rng: np.random.Generator) -> np.ndarray:
    length, count = 300, 60
    if kind == "poisson":
        return rng.poisson(rng.uniform(2.0, 500.0, count), (length, count)).astype(float)
    noise = rng.normal(0.0, 10.0, (length, count))
    changes = np.zeros((length, count))
    for t in range(3, length):
        changes[t] = 0.5 * changes[t - 1] - 0.3 * changes[t - 2] + 0.2 * changes[t - 3] + noise[t] + 0.4 * noise[t - 1]
    return np.asarray(1e4 + np.cumsum(changes, axis=0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["poisson", "arima"])
def test_two_deviations_hold_what_they_promise(kind: str, seed: int) -> None:
    rates = series(kind, np.random.default_rng(seed))
    history = begin(rates.shape[1])
    inside = []
    for t in range(len(rates) - 5):
        history = observe(history, rates[t], np.ones(rates.shape[1], bool))
        if t >= 100:
            forecast = ahead(history, 5)
            inside.append(np.abs(rates[t + 1 : t + 6] - forecast.mean_rps) <= 2.0 * forecast.deviation_rps)
    coverage = np.mean(inside, axis=(0, 2))
    assert (coverage >= 0.90).all(), coverage
    assert (coverage <= 0.99).all(), coverage
