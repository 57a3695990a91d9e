"""Where does chance come from? From a seed, and from nothing else.

`seeded` makes the state of a generator; the compiled `chance` draws from it and moves it on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

__all__ = ["chance", "seeded"]


def seeded(seed: int, salt: int = 0) -> npt.NDArray[np.uint64]:
    """Return the state of a generator for a seed; different salts give unrelated sequences."""
    mask = (1 << 64) - 1
    x = (seed * 0x9E3779B97F4A7C15 + salt * 0xD1B54A32D192ED03 + 0x2545F4914F6CDD1D) & mask
    for _ in range(3):  # splitmix64
        x = (x + 0x9E3779B97F4A7C15) & mask
        z = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        x = z ^ (z >> 31)
    return np.array([x or 1], np.uint64)


@njit(cache=False)
def chance(seed):
    """Return the next number in [0, 1) of a xorshift64* generator whose state is `seed[0]`."""
    x = seed[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    seed[0] = x
    return np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)
