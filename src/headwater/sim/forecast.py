"""What will come to each operator, by what has come so far?

Takes the arrivals of many operators, sampled evenly, and gives a signal for each, with time counted from now in
samples: a sinusoid where one explains what came, a steady load where only chance is left, else the trace that
`pack.forecast` expects. None where too little was seen. All operators are fitted at once.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from headwater.model.workload import Signal, Sinusoid, Trace
from headwater.pack.forecast import forecast

__all__ = ["FEWEST", "signals"]

FEWEST = 8  # samples; fewer say nothing about what rises and falls
EXPLAINED = 0.9  # of the variance: then it is a sinusoid
STEADY = 1e-3  # standard deviation relative to the mean below which nothing rises or falls
PERIOD_DIGITS = 4  # significant digits of a period: equal ones are found to be equal
GOLDEN_STEPS = 8  # that narrow the interval in which the number of waves is searched
PARABOLAS = (0.02, 0.002)  # waves to both sides, through which the rest is found

Floats = npt.NDArray[np.float64]


def signals(arrivals: Floats, began: npt.NDArray[np.int64]) -> list[Signal | None]:
    """Return what to expect of each operator, from the end of the samples on.

    Args:
        arrivals: By sample and operator: records that came.
        began: By operator: its first whole sample.
    """
    found: list[Signal | None] = [None] * arrivals.shape[1]
    for first in np.unique(began):
        members = np.flatnonzero(began == first)
        seen = arrivals[first:, members]
        if len(seen) >= FEWEST:
            for member, signal in zip(members, _fitted(seen), strict=True):
                found[member] = signal
    return found


def _fitted(seen: Floats) -> list[Signal | None]:
    """Return a signal for each column."""
    count = len(seen)
    mean = seen.mean(axis=0)
    spread = seen.std(axis=0)
    power = np.abs(np.fft.rfft(seen - mean, axis=0)) ** 2
    peak = 1.0 + np.argmax(power[1:], axis=0)  # waves within all samples
    low, high = np.maximum(peak - 1.0, 0.5), np.minimum(peak + 1.0, count / 2)
    golden = (math.sqrt(5.0) - 1.0) / 2.0
    a, b = high - golden * (high - low), low + golden * (high - low)
    at_a, at_b = _left(seen, a), _left(seen, b)
    for _ in range(GOLDEN_STEPS):  # golden section, for all columns at once
        is_a = at_a < at_b
        low, high = np.where(is_a, low, a), np.where(is_a, b, high)
        new = np.where(is_a, high - golden * (high - low), low + golden * (high - low))
        at_new = _left(seen, new)
        a, b = np.where(is_a, new, b), np.where(is_a, a, new)
        at_a, at_b = np.where(is_a, at_new, at_b), np.where(is_a, at_a, at_new)
    waves = np.where(at_a < at_b, a, b)
    at_waves = np.minimum(at_a, at_b)
    for beside in PARABOLAS:  # near its least the error is a parabola
        before, after = _left(seen, waves - beside), _left(seen, waves + beside)
        bend = before - 2.0 * at_waves + after
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = np.where(bend > 0.0, 0.5 * beside * (before - after) / bend, 0.0)
        waves = np.maximum(waves + np.clip(shift, -2.0 * beside, 2.0 * beside), 0.25)
        at_waves = _left(seen, waves)
    period = _rounded(count / waves)
    base, sine, cosine, left = _fit(seen, count / period)
    signals: list[Signal | None] = []
    for i in range(seen.shape[1]):
        if mean[i] <= 0.0:
            signals.append(None)
            continue
        swing = math.hypot(sine[i], cosine[i])
        is_chance = left[i] / count <= 1.5 * mean[i]  # as much as a Poisson process varies
        if spread[i] <= STEADY * mean[i]:
            signals.append(Sinusoid(float(mean[i])))
        elif left[i] <= (1.0 - EXPLAINED) * spread[i] ** 2 * count or (
            is_chance and swing**2 > 20.0 * left[i] / count**2
        ):
            phase = math.atan2(cosine[i], sine[i]) + 2.0 * math.pi * count / period[i]
            swing = min(swing, float(base[i]))
            signals.append(Sinusoid(float(base[i]), swing, float(period[i]), math.remainder(phase, 2.0 * math.pi)))
        elif is_chance:
            signals.append(Sinusoid(float(mean[i])))
        else:
            signals.append(Trace(forecast(seen[:, i].tolist())))
    return signals


def _rounded(values: Floats) -> Floats:
    scale = 10.0 ** (PERIOD_DIGITS - 1 - np.floor(np.log10(values)))
    return np.round(values * scale) / scale


def _left(seen: Floats, waves: Floats) -> Floats:
    return _fit(seen, waves)[3]


def _fit(seen: Floats, waves: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return level, sine and cosine parts that fit best for given numbers of waves, and the squares that are left."""
    count = len(seen)
    angle = np.multiply.outer(np.arange(count), 2.0 * np.pi * waves / count)
    s, c = np.sin(angle), np.cos(angle)
    ones = np.full(len(waves), float(count))
    normal = np.array(
        [
            [ones, s.sum(0), c.sum(0)],
            [s.sum(0), (s * s).sum(0), (s * c).sum(0)],
            [c.sum(0), (s * c).sum(0), (c * c).sum(0)],
        ]
    ).transpose(2, 0, 1)
    right = np.array([seen.sum(0), (seen * s).sum(0), (seen * c).sum(0)]).T
    normal[:, [0, 1, 2], [0, 1, 2]] += 1e-9 * count
    solved = np.linalg.solve(normal, right[:, :, None])[:, :, 0]
    base, sine, cosine = solved.T
    left = np.square(seen - base - sine * s - cosine * c).sum(0)
    return base, sine, cosine, left
