"""What comes by chance in a simulation?

Every draw is a function of the seed, of who draws, of the step and of which draw it is: no state is kept, so that
neither the order in which things are computed nor where a run is cut into pieces can change a result.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["poisson", "uniform"]

_A, _B, _C = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
FEW = 10.0  # a mean below this is drawn by inversion, else by rejection


@njit("uint64(uint64)", cache=True, inline="always")
def _mixed(z):
    """Return a number in which every bit depends on every bit of the given one (splitmix64)."""
    z = z + _A
    z = (z ^ (z >> _S30)) * _B
    z = (z ^ (z >> _S27)) * _C
    return z ^ (z >> _S31)


@njit("float64(uint64, int64, int64, int64)", cache=True)
def uniform(seed, who, step, draw):
    """Return a number above 0 and below 1."""
    z = _mixed(seed ^ _mixed(np.uint64(who) ^ _mixed(np.uint64(step) ^ _mixed(np.uint64(draw)))))
    return (np.float64(z >> _S11) + 0.5) * (1.0 / 9007199254740992.0)


@njit("float64(float64, uint64, int64, int64, int64)", cache=True)
def poisson(mean, seed, who, step, draw):
    """Return a whole number from the Poisson distribution of this mean; takes draws from `draw` on.

    Inversion for small means; for large ones the transformed rejection of Hoermann (1993), which is exact too.
    """
    if mean <= 0.0:
        return 0.0
    if mean < FEW:
        u = uniform(seed, who, step, draw)
        p = math.exp(-mean)
        total = p
        k = 0.0
        while u > total and k < 200.0:
            k += 1.0
            p *= mean / k
            total += p
        return k
    root = math.sqrt(mean)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    edge = 0.9277 - 3.6224 / (b - 2.0)
    log_mean = math.log(mean)
    while True:
        u = uniform(seed, who, step, draw) - 0.5
        v = uniform(seed, who, step, draw + 1)
        draw += 2
        us = 0.5 - abs(u)
        k = math.floor((2.0 * a / us + b) * u + mean + 0.43)
        if us >= 0.07 and v <= edge:
            return k
        if k < 0.0 or (us < 0.013 and v > us):
            continue
        if math.log(v) + math.log(inverse) - math.log(a / (us * us) + b) <= k * log_mean - mean - math.lgamma(k + 1.0):
            return k
