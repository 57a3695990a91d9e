"""How is one machine filled as well as possible from a window of operators? The compiled loop for large workloads."""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.pack.kernels import L1, N1, N2, peak_of
from headwater.pack.price import MOST_IN_SET

__all__ = ["fill"]


@njit(f"int64({N2}, boolean, {N1}, float64, float64, int64, {L1})", cache=True)
def fill(vectors, is_wave, means, capacity, enough, steps, best):
    """Find the set with the first operator and the highest mean load that fits; return how many it has.

    Operators after the first come by falling mean load. Depth first, ended at a mean load of `enough` or after so
    many steps. `best` takes the set.
    """
    count, width = vectors.shape
    chosen = np.zeros(MOST_IN_SET + 1, np.int64)
    load = np.zeros((MOST_IN_SET + 1, width))
    mean = np.zeros(MOST_IN_SET + 1)
    load[1] = vectors[0]
    mean[1] = means[0]
    best[0] = 0
    size = 1
    most = means[0]
    depth = 1
    while depth >= 1:
        item = chosen[depth] + 1
        if item >= count or depth == MOST_IN_SET - 1 or steps == 0:
            depth -= 1
            continue
        steps -= 1
        chosen[depth] = item
        mean[depth + 1] = mean[depth] + means[item]
        if mean[depth + 1] > capacity:
            continue
        for t in range(width):
            load[depth + 1, t] = load[depth, t] + vectors[item, t]
        if peak_of(load[depth + 1], is_wave) > capacity:
            continue
        depth += 1
        chosen[depth] = item
        if mean[depth] > most:
            most = mean[depth]
            size = depth
            for k in range(1, depth):
                best[k] = chosen[k]
            if most >= enough:
                return size
    return size
