"""What will the arrival rates of many applications be in the next steps?

Takes one reading of every application after another, gives the expected rates of the next steps and how far off they
may be. Which quantile to plan for is left to the controller.

The model is ARIMA(p, 1, q). With r the rate, y[t] = r[t] - r[t-1] and e the innovations:

    y[t] = a[1] y[t-1] + ... + a[p] y[t-p] + c[1] e[t-1] + ... + c[q] e[t-q] + e[t]

Extended least squares: past innovations are regressors like past changes. The normal equations forget by a factor at
each reading and are solved anew; that is recursive least squares in its information form. The covariance cannot wind
up, because what a constant load lets fade is replaced by the prior, and nothing can lose its positive pivots. Both
sides are divided by the running size of the changes: the unit of a rate does not matter, and a burst counts little.
Coefficients are brought back inside the unit circle by their reflection coefficients, so that no path explodes.

Beside the model run simple forecasts: the last rate, three smoothed levels, and a level with a trend. A model of
changes needs a root at one to see a constant rate in counting noise, and has no constant term for a slow ramp under
noise; the simple ones need neither. What `ahead` gives is weighted by one over the 16th power of the mean squared
one-step errors. One over the first power (Bates and Granger) had larger one-step errors on four measured traces and on
eight simulated series alike: of six forecasts most are poor at a time, and together they keep too much weight. The
best one alone is about as good, but jumps from one forecast to another between two steps.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

__all__ = ["Ahead", "Bools", "Floats", "History", "Ints", "Settings", "ahead", "begin", "error_rps", "observe", "taken"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MOST_RPS = 1e100  # readings above count as this much, so that squares stay finite
LEAST_SQUARE = 1e-200  # below, a square is nothing
INSIDE = 0.98  # largest reflection coefficient: roots stay away from the unit circle
FASTEST = 4.0  # no step of the path is larger than so many times the usual change
DOUBLINGS = 4  # weights are one over the squared errors to the power of 2 ** 4
YOUNG = 30.0  # with fewer readings the deviation says that little is known


@dataclass(frozen=True, slots=True)
class Settings:
    """How forecasts are made."""

    order: int = 3  # p, past changes
    averages: int = 1  # q, past innovations
    forgetting: float = 0.99  # of the coefficients, per reading; 1: nothing is forgotten
    memory: float = 0.98  # of mean squared errors, per reading
    prior: float = 3.0  # for how many readings the first guess, coefficients of 0, counts
    gains: tuple[float, ...] = (0.5, 0.2, 0.05)  # of the smoothed levels
    trend: tuple[float, float] = (0.3, 0.1)  # gain of the level with a trend; of its trend, relative to that
    is_combined: bool = True  # False: `ahead` gives the model alone


@dataclass(frozen=True, slots=True)
class History:
    """What is known of each application; first axis: application. Columns lie together in memory."""

    settings: Settings
    seen: Floats  # readings until now
    expected_rps: Floats  # next rate by: last rate, levels, level with trend, model, combination
    trend_rps: Floats  # rise per step of the level with trend
    squares: Floats  # mean squared one-step errors, in the order of expected_rps
    past: Floats  # the last p changes and q innovations, newest first
    normal: Floats  # normal equations: columns of the lower triangle, each with its right side at the end
    coefficients: Floats  # a[1] .. a[p], c[1] .. c[q]


@dataclass(frozen=True, slots=True)
class Ahead:
    """Forecasts; first axis: step, second: application."""

    mean_rps: Floats
    deviation_rps: Floats  # standard deviation of the forecast error


def begin(count: int, settings: Settings = Settings()) -> History:  # noqa: B008 - a frozen value
    """Return the history of applications of which nothing was read.

    >>> ahead(begin(2), 3).mean_rps.shape
    (3, 2)
    """
    unknowns = settings.order + settings.averages
    forecasts = len(settings.gains) + 4
    normal = np.zeros((unknowns * (unknowns + 3) // 2, count))
    normal[_pivots(unknowns)] = settings.prior
    return History(
        settings,
        np.zeros(count),
        np.zeros((forecasts, count)).T,
        np.zeros(count),
        np.zeros((forecasts, count)).T,
        np.zeros((unknowns, count)).T,
        normal.T,
        np.zeros((unknowns, count)).T,
    )


def observe(history: History, rates_rps: Floats, is_known: Bools) -> History:
    """Return the history with one more reading; an application whose reading is unknown or no number keeps its state.

    >>> history = begin(1)
    >>> for rate in (10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0):
    ...     history = observe(history, np.array([rate]), np.array([True]))
    >>> bool(82.0 < ahead(history, 1).mean_rps[0, 0] < 90.0)
    True
    """
    settings = history.settings
    order = settings.order
    knows = is_known & np.isfinite(rates_rps)
    rates = np.where(knows, rates_rps, 0.0)
    np.clip(rates, 0.0, MOST_RPS, out=rates)
    expected = history.expected_rps.T
    if history.seen.size and not history.seen.all():
        expected = np.where(history.seen == 0.0, rates, expected)  # the first reading is nobody's error

    errors = rates - expected
    seen = history.seen + 1.0
    squares = errors * errors
    squares -= history.squares.T
    squares *= np.maximum(1.0 / np.maximum(history.seen, 1.0), 1.0 - settings.memory)
    squares += history.squares.T
    np.maximum(squares, 0.0, out=squares)

    change, past = errors[0], history.past.T
    normal, coefficients = _fitted(settings, history.normal.T, past, change, squares[0])
    newer = np.empty_like(past)
    newer[1:] = past[:-1]
    if order:
        newer[0] = change
    if settings.averages:
        newer[order] = change - _dot(coefficients, past)

    following = np.empty_like(expected)
    gains = _gains(settings)
    smoothed = following[:-2]
    np.multiply(np.maximum(gains, 1.0 / seen), errors[:-2], out=smoothed)  # a young level is the mean until then
    smoothed += expected[:-2]
    trend = errors[-3] * (settings.trend[0] * settings.trend[1])
    trend += history.trend_rps
    smoothed[-1] += trend
    following[0] = rates
    fastest = _fastest(squares[0])
    np.clip(_dot(coefficients, newer), -fastest, fastest, out=following[-2])
    following[-2] += rates
    np.maximum(following[-2], 0.0, out=following[-2])
    np.maximum(_dot(_weights(settings, squares), following[:-1]), 0.0, out=following[-1])

    found = History(settings, seen, following.T, trend, squares.T, newer.T, normal.T, coefficients.T)
    return found if knows.all() else _merged(found, history, knows)


def ahead(history: History, steps: int) -> Ahead:
    """Return the rates to expect in the next steps; 0 with no deviation where nothing was read.

    The deviation grows by the psi weights, by which an innovation moves the forecasts: after h steps its square is
    the squared one-step error times the sum of the first h squared weights.
    """
    settings = history.settings
    order, averages = settings.order, settings.averages
    expected, squares = history.expected_rps.T, history.squares.T
    coefficients, past = history.coefficients.T, history.past.T
    count = expected.shape[1]
    weights = _weights(settings, squares)
    model = weights[-1]
    gain = _dot(_gains(settings), weights[:-1])
    slope, bend = weights[-2] * history.trend_rps, weights[-2] * (settings.trend[0] * settings.trend[1])
    steady = _dot(weights[:-1], expected[:-2])

    # Changes, and what an innovation of 1 adds to them, follow one recursion, so they go through it together.
    run = [np.stack((past[lag], np.zeros(count))) for lag in range(order)]  # newest first
    fastest = _fastest(squares[0])
    rate, response, spread = expected[0], np.ones(count), np.ones(count)
    mean, deviation = np.empty((steps, count)), np.empty((steps, count))
    for step in range(steps):
        both = np.zeros((2, count))
        for coefficient, earlier in zip(coefficients[:order], run, strict=True):
            both += coefficient * earlier
        if step < averages:
            both[0] += _dot(coefficients[order + step :], past[order : order + averages - step])
        if step == 0:
            both[1] = 1.0
        else:
            if step <= averages:
                both[1] += coefficients[order + step - 1]
            response += both[1]
            spread += np.square(gain + step * bend + model * response)
        np.clip(both[0], -fastest, fastest, out=both[0])
        run = [both, *run][:order]
        rate = np.maximum(rate + both[0], 0.0)
        np.multiply(model, rate, out=mean[step])
        mean[step] += steady + step * slope
        deviation[step] = spread
    np.maximum(mean, 0.0, out=mean)
    deviation *= squares[-1 if settings.is_combined else -2]
    np.sqrt(deviation, out=deviation)
    if count and history.seen.min() < YOUNG:
        deviation += mean / np.square(np.maximum(history.seen, 1.0)) * (history.seen < YOUNG)
    return Ahead(mean, deviation)


def taken(history: History, places: Ints) -> History:
    """Return entry places[i] as entry i, and one of which nothing was read where places[i] is negative.

    >>> taken(begin(2), np.array([1, -1, 0])).seen
    array([0., 0., 0.])
    """
    found = begin(len(places), history.settings)
    keeps = places >= 0
    chosen = places[keeps]
    for name in _ARRAYS:
        getattr(found, name)[keeps] = getattr(history, name)[chosen]
    return found


def error_rps(history: History) -> Floats:
    """Return the running root mean square of the one-step errors of the model alone."""
    error: Floats = np.sqrt(history.squares[:, -2])
    return error


_ARRAYS = tuple(each.name for each in fields(History) if each.name != "settings")


def _merged(newer: History, older: History, knows: Bools) -> History:
    for name in _ARRAYS:
        np.copyto(getattr(newer, name).T, getattr(older, name).T, where=~knows)
    return newer


def _pivots(unknowns: int) -> list[int]:
    """Return where the diagonal stands in the columns of the normal equations."""
    return [column * (unknowns + 1) - column * (column - 1) // 2 for column in range(unknowns)]


def _fitted(settings: Settings, normal: Floats, past: Floats, change: Floats, square: Floats) -> tuple[Floats, Floats]:
    """Return the normal equations with one more reading, and the coefficients that solve them, made stable."""
    order, unknowns = settings.order, len(past)
    each = np.empty((unknowns + 1, len(change)))
    each[:-1] = past
    each[-1] = change
    each /= np.sqrt(np.maximum(square, LEAST_SQUARE))
    normal = normal * settings.forgetting
    pivots = _pivots(unknowns)
    for column, start in enumerate(pivots):
        normal[start : start + unknowns + 1 - column] += each[column] * each[column:]
        normal[start] += (1.0 - settings.forgetting) * settings.prior
    found = _solved(normal, pivots, unknowns)
    _stabilise(found[:order])
    if settings.averages > 0:
        found[order:] *= -1.0  # the polynomial of averages has the other sign
        _stabilise(found[order:])
        found[order:] *= -1.0
    return normal, found


def _solved(normal: Floats, pivots: list[int], unknowns: int) -> Floats:
    """Solve by elimination in the lower triangle; the right sides are its last row, so they follow by themselves.

    One pass over all applications for each entry: for so few unknowns several times faster than a solver for each.
    """
    left = normal.copy()
    factors = []
    for column, start in enumerate(pivots):
        below = left[start + 1 : start + unknowns + 1 - column]
        factor = below / left[start]
        factors.append(factor)
        for row in range(len(below) - 1):
            other = pivots[column + 1 + row]
            left[other : other + len(below) - row] -= factor[row] * below[row:]
    found = np.empty((unknowns, normal.shape[1]))
    for column in range(unknowns - 1, -1, -1):
        factor = factors[column]
        found[column] = factor[-1]
        if len(factor) > 1:
            found[column] -= _dot(factor[:-1], found[column + 1 :])
    return found


def _stabilise(rows: Floats) -> None:
    """Bring 1 - rows[0] z - rows[1] z^2 - ... to have its roots outside the unit circle, in place.

    Levinson's recursion downwards gives the reflection coefficients; all of them inside (-1, 1) means stable.
    Those that are not are clipped, and the recursion goes up again.
    """
    reflections = []
    lower = rows
    for size in range(len(rows), 0, -1):
        reflection = np.clip(lower[size - 1], -INSIDE, INSIDE)
        reflections.append(reflection)
        if size > 1:
            lower = lower[:-1] + reflection * lower[-2::-1]
            lower /= 1.0 - reflection * reflection
    for size, reflection in enumerate(reversed(reflections)):
        if size:
            rows[:size] -= reflection * rows[size - 1 :: -1]
        rows[size] = reflection


def _gains(settings: Settings) -> Floats:
    """Return by how much of its error each simple forecast is corrected; the last rate is one with a gain of 1."""
    return np.array((1.0, *settings.gains, settings.trend[0]))[:, None]


def _fastest(square: Floats) -> Floats:
    """Return the largest change of a step of the path, from the mean square of changes."""
    fastest: Floats = np.sqrt(square)
    fastest *= FASTEST
    return fastest


def _weights(settings: Settings, squares: Floats) -> Floats:
    """Return the weight of each forecast but the combination."""
    each = squares[:-1]
    if not settings.is_combined:
        alone = np.zeros_like(each)
        alone[-1] = 1.0
        return alone
    least = np.maximum(each.min(axis=0), LEAST_SQUARE)
    weights: Floats = least / np.maximum(each, least)
    for _ in range(DOUBLINGS):
        weights *= weights
    weights /= weights.sum(axis=0)
    return weights


def _dot(left: Floats, right: Floats) -> Floats:
    """Return sums of products over the first axis, the same for an application whatever stands beside it."""
    product: Floats = (left * right).sum(axis=0)
    return product
