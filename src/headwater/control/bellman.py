"""What does dynamic programming allocate? The optimiser of paper 003 as it is written (equation 4).

Demands and the machine are cut into quanta, and Bellman's equation is solved application by application. It is here
to be compared with: `control.allocate` gives the same value in one pass.
"""

from __future__ import annotations

import numpy as np

from headwater.control.readings import Floats, Ints

__all__ = ["bellman", "value"]


def value(shares: Floats | Ints, demand: Floats | Ints, weights: Floats) -> float:
    """Return the reward of paper 003: the sum of `weight * (share - demand)` (equations 2 and 3).

    >>> value(np.array([2.0, 1.0]), np.array([2.0, 3.0]), np.array([6.0, 1.0]))
    -2.0
    """
    return float((weights * (np.asarray(shares) - np.asarray(demand))).sum())


def bellman(demand: Ints, capacity: int, weights: Floats) -> Ints:
    """Return how many quanta each application gets; of equally good answers, one of them.

    Takes time and memory of applications times quanta.
    """
    from scipy.ndimage import maximum_filter1d  # noqa: PLC0415 - loads for a tenth of a second, and only this needs it

    # best[i, left]: the most that the first i applications can be worth with so many quanta. A linear reward turns the
    # maximum of equation 4 over what one application gets into that of a window that slides over the quanta.
    count, quanta = len(demand), np.arange(capacity + 1)
    best = np.zeros((count + 1, capacity + 1))
    for i in range(count):
        size, weight = int(min(demand[i], capacity)) + 1, float(weights[i])
        reduced = best[i] - weight * quanta
        window = maximum_filter1d(reduced, size, mode="constant", cval=-np.inf, origin=(size - 1) // 2)
        best[i + 1] = window + weight * quanta
    shares = np.zeros(count, np.int64)
    left = capacity
    for i in range(count - 1, -1, -1):
        amounts = np.arange(int(min(demand[i], left)) + 1)
        shares[i] = int(np.argmax(best[i, left - amounts] + float(weights[i]) * amounts))
        left -= int(shares[i])
    return shares
