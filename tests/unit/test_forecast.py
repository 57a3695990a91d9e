"""Do forecasts follow the rates, agree with a known implementation, and know how far off they are?"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from statsmodels.tsa.arima.model import ARIMA

from headwater.control.forecast import History, Settings, ahead, begin, error_rps, observe, taken


def after(rates: np.ndarray, settings: Settings = Settings()) -> History:  # noqa: B008 - a frozen value
    """Return the history after readings: first axis time, second application."""
    history = begin(rates.shape[1], settings)
    for row in rates:
        history = observe(history, row, np.ones(len(row), bool))
    return history


def column(*rates: float) -> np.ndarray:
    return np.array(rates, float)[:, None]


def same(left: History, right: History) -> bool:
    return all(
        np.array_equal(getattr(left, each.name), getattr(right, each.name))
        for each in fields(History)
        if each.name != "settings"
    )


def arima(rng: np.random.Generator, length: int, count: int = 1, level: float = 1e4) -> np.ndarray:
    """Return series of ARIMA(3, 1, 1) with the coefficients of TRUE."""
    noise = rng.normal(0.0, 10.0, (length, count))
    changes = np.zeros((length, count))
    for t in range(3, length):
        changes[t] = TRUE[:3] @ changes[t - 3 : t][::-1] + noise[t] + TRUE[3] * noise[t - 1]
    return level + np.cumsum(changes, axis=0)


TRUE = np.array([0.5, -0.3, 0.2, 0.4])


def test_before_any_reading_nothing_is_expected() -> None:
    forecast = ahead(begin(2), 4)
    assert forecast.mean_rps.shape == forecast.deviation_rps.shape == (4, 2)
    assert not forecast.mean_rps.any()
    assert not forecast.deviation_rps.any()
    assert ahead(begin(0), 4).mean_rps.shape == (4, 0)


def test_after_one_reading_it_is_expected_to_stay_and_anything_may_come() -> None:
    forecast = ahead(after(column(40.0)), 3)
    assert forecast.mean_rps == pytest.approx(np.full((3, 1), 40.0))
    assert forecast.deviation_rps == pytest.approx(np.full((3, 1), 40.0))


def test_the_model_starts_as_the_last_value() -> None:
    forecast = ahead(after(column(40.0, 90.0), Settings(is_combined=False)), 3)
    assert forecast.mean_rps == pytest.approx(np.full((3, 1), 90.0))


def test_a_constant_load_is_foretold_exactly_and_winds_nothing_up() -> None:
    history = after(np.full((3000, 1), 123.4))
    forecast = ahead(history, 5)
    assert forecast.mean_rps == pytest.approx(np.full((5, 1), 123.4))
    assert forecast.deviation_rps == pytest.approx(np.zeros((5, 1)), abs=1e-9)
    assert history.normal.max() == pytest.approx(Settings().prior)
    later = ahead(observe(history, np.array([150.0]), np.array([True])), 5)
    assert later.mean_rps.max() <= 150.0


@pytest.mark.parametrize("slope", [7.0, -7.0])
def test_a_ramp_is_followed(slope: float) -> None:
    times = np.arange(200.0)
    forecast = ahead(after(column(*(5000.0 + slope * times))), 5)
    coming = 5000.0 + slope * np.arange(200, 205)
    assert forecast.mean_rps[:, 0] == pytest.approx(coming, abs=1.0)  # of a rise of 35


def test_a_ramp_under_noise_is_followed_better_than_by_the_last_value() -> None:
    rng = np.random.default_rng(3)
    rates = 500.0 + 2.0 * np.arange(400)[:, None] + rng.normal(0.0, 5.0, (400, 50))
    error = ahead(after(rates[:395]), 5).mean_rps[4] - rates[399]
    naive = rates[394] - rates[399]
    assert np.sqrt(np.mean(error**2)) < 0.6 * np.sqrt(np.mean(naive**2))


def test_counting_noise_is_smoothed() -> None:
    rng = np.random.default_rng(4)
    rates = rng.poisson(20.0, (400, 200)).astype(float)
    error = ahead(after(rates), 1).mean_rps[0] - 20.0
    assert np.sqrt(np.mean(error**2)) < 0.3 * np.sqrt(20.0)


def test_a_wave_is_turned_in_time() -> None:
    wave = 1000.0 + 800.0 * np.sin(2.0 * np.pi * np.arange(405) / 40.0)
    forecast = ahead(after(wave[:400, None]), 5).mean_rps[:, 0]
    assert np.abs(forecast - wave[400:]).max() < 0.2 * np.abs(wave[399] - wave[400:]).max()


def test_the_deviation_of_a_random_walk_grows_by_the_root_of_the_step() -> None:
    walks = 1e4 + np.cumsum(np.random.default_rng(5).normal(0.0, 10.0, (500, 200)), axis=0)
    deviation = ahead(after(walks), 9).deviation_rps.mean(axis=1)
    assert deviation[0] == pytest.approx(10.0, rel=0.1)
    assert deviation[8] / deviation[0] == pytest.approx(3.0, rel=0.15)


def test_an_unknown_reading_or_one_that_is_no_number_changes_nothing() -> None:
    history = after(np.random.default_rng(6).poisson(50.0, (40, 3)).astype(float))
    for rates, known in (([1.0, 2.0, 3.0], [False] * 3), ([np.nan, np.inf, -np.inf], [True] * 3)):
        assert same(history, observe(history, np.array(rates), np.array(known)))
    mixed = observe(history, np.array([10.0, 20.0, 30.0]), np.array([True, False, True]))
    alone = observe(taken(history, np.array([0, 2])), np.array([10.0, 30.0]), np.ones(2, bool))
    assert same(taken(mixed, np.array([1])), taken(history, np.array([1])))
    assert same(taken(mixed, np.array([0, 2])), alone)


def test_a_fresh_entry_of_taken_is_one_that_was_never_read() -> None:
    history = after(np.random.default_rng(7).poisson(50.0, (40, 2)).astype(float))
    moved = taken(history, np.array([-1, 1, 0, 1]))
    assert same(taken(moved, np.array([2, 1])), history)
    assert same(taken(moved, np.array([0])), begin(1))
    assert same(taken(moved, np.array([1])), taken(moved, np.array([3])))


def test_readings_are_values_and_histories_are_never_changed() -> None:
    history = after(np.random.default_rng(8).poisson(50.0, (40, 2)).astype(float))
    kept = taken(history, np.arange(2))
    observe(history, np.array([1.0, 2.0]), np.array([True, False]))
    ahead(history, 5)
    assert same(history, kept)


def test_a_drop_from_a_huge_rate_leaves_no_rest_of_it() -> None:
    assert ahead(after(column(1e17, 1e17, 3.0), Settings(is_combined=False)), 2).mean_rps[:, 0].tolist() == [3.0, 3.0]


@pytest.mark.parametrize("growth", [1.1, 1.5, 3.0])
def test_growth_without_end_leaves_coefficients_stable_and_the_path_bounded(growth: float) -> None:
    # Least squares alone would find that changes grow for ever.
    history = after(column(*[1.0] * 200, *(growth ** np.arange(25.0))), Settings(is_combined=False))
    assert np.abs(np.roots([1.0, *-history.coefficients[0, :3]])).max() < 1.0
    assert np.abs(history.coefficients[0, 3]) < 1.0
    path = ahead(history, 200).mean_rps[:, 0]
    usual = np.sqrt(history.squares[0, 0])
    assert np.abs(np.diff(path, prepend=growth**24.0)).max() <= 4.0 * usual * (1.0 + 1e-9)


@pytest.mark.parametrize(("order", "averages"), [(0, 0), (0, 2), (1, 0), (5, 3)])
def test_other_orders_work_too(order: int, averages: int) -> None:
    rates = np.random.default_rng(10).poisson(50.0, (60, 4)).astype(float)
    history = after(rates, Settings(order, averages))
    assert history.coefficients.shape == (4, order + averages)
    assert ahead(history, 5).mean_rps == pytest.approx(np.full((5, 4), 50.0), rel=0.5)


def test_coefficients_and_errors_agree_with_those_of_statsmodels() -> None:
    """Coefficients to 0.12 each, one-step errors to 2 %, the five-step forecast to a tenth of its deviation."""
    rates = arima(np.random.default_rng(11), 2000, 3)
    history = after(rates, Settings(forgetting=1.0, memory=0.999, is_combined=False))
    forecast = ahead(history, 5)
    for i in range(3):
        fit = ARIMA(rates[:, i], order=(3, 1, 1)).fit()
        assert history.coefficients[i] == pytest.approx(fit.params[:4], abs=0.12)
        theirs = np.sqrt(np.average(fit.resid[1:] ** 2, weights=0.999 ** np.arange(1998, -1, -1)))
        assert error_rps(history)[i] == pytest.approx(theirs, rel=0.02)
        wanted = fit.get_forecast(5)
        apart = np.abs(forecast.mean_rps[:, i] - wanted.predicted_mean) / wanted.se_mean
        assert apart.max() < 0.1
        assert forecast.deviation_rps[:, i] == pytest.approx(wanted.se_mean, rel=0.1)
