"""What will a load be that was measured?

Harmonic regression: the load is taken for a level and the first harmonics of a season, fitted to what was
measured by least squares; what comes next follows the fit. Where no season is given, the one with the
highest correlation of the load with itself is taken. Less than two seasons of measurements say nothing
about what is chance: then the last season repeats itself. No clock, no chance: the same loads give the
same forecast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["forecast", "season_of"]

HARMONICS = 3  # waves per season: enough for a day with two peaks
STEADY = 1e-9  # variance below this share of the squared mean: nothing rises or falls


def season_of(loads: Sequence[float]) -> int:
    """Return after how many time units the loads repeat best; 1 if they do not rise and fall.

    >>> season_of([1, 2, 3, 2] * 6)
    4
    """
    values = np.asarray(loads, np.float64)
    values = values - values.mean()
    power = float(values @ values)
    if power <= STEADY * max(1.0, float(np.square(np.asarray(loads)).sum())) or len(values) < 4:
        return 1
    longest = len(values) // 2
    likeness = [float(values[lag:] @ values[:-lag]) / (len(values) - lag) for lag in range(1, longest + 1)]
    fallen = next((i for i, each in enumerate(likeness) if each <= 0.0), None)
    if fallen is None:  # a drift: nothing comes back
        return 1
    best = max(likeness[fallen:])
    if best <= 0.0:
        return 1
    return next(i for i in range(fallen, longest) if likeness[i] >= 0.98 * best) + 1


def forecast(
    loads: Sequence[float], season: int | None = None, horizon: int | None = None, margin: float = 0.0
) -> tuple[float, ...]:
    """Return the loads to expect for the next time units, one season of them unless a horizon is given.

    >>> forecast([10.0, 20.0] * 4, horizon=3)
    (10.0, 20.0, 10.0)
    """
    values = np.asarray(loads, np.float64)
    length = season or season_of(values.tolist())
    ahead = np.arange(len(values), len(values) + (horizon or length))
    if len(values) < 2 * length:
        expected = values[-length:][(ahead - len(values)) % length]
    else:
        waves = range(1, min(HARMONICS, length // 2) + 1)

        def terms(times: np.ndarray) -> np.ndarray:
            angle = 2.0 * np.pi * times / length
            return np.column_stack([np.ones(len(times)), *(f(k * angle) for k in waves for f in (np.cos, np.sin))])

        fit, *_ = np.linalg.lstsq(terms(np.arange(len(values))), values, rcond=None)
        expected = terms(ahead) @ fit
    return tuple(float(each) for each in np.round(np.maximum(0.0, expected) * (1.0 + margin), 9))
