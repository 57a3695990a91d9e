"""How are machines filled fast? The compiled loops of packing.

A machine's load is a vector that operators add to; `peak_of` says how high it rises and `above_of` how much of
it, in the mean over time, is above capacity. Explicit signatures, cached on disk: compiled once. Chance comes
from `seed`, an array of one number, so that the same seed gives the same answer.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["above_of", "fit_decreasing", "peak_of", "peak_with"]

N1, N2, L1, L2, B1 = "float64[::1]", "float64[:, ::1]", "int64[::1]", "int64[:, ::1]", "boolean"


@njit(f"float64({N1}, boolean)", cache=True)
def peak_of(load, is_wave):
    """Return the highest value of a load."""
    if is_wave:
        return load[0] + np.sqrt(load[1] * load[1] + load[2] * load[2])
    top = 0.0
    for value in load:
        if value > top:
            top = value
    return top


@njit(f"float64({N1}, {N1}, boolean)", cache=True)
def peak_with(load, more, is_wave):
    """Return the highest value of the sum of two loads."""
    if is_wave:
        x = load[1] + more[1]
        y = load[2] + more[2]
        return load[0] + more[0] + np.sqrt(x * x + y * y)
    top = 0.0
    for t in range(load.size):
        value = load[t] + more[t]
        if value > top:
            top = value
    return top


@njit(f"float64({N1}, float64, boolean)", cache=True)
def above_of(load, capacity, is_wave):
    """Return the mean over time of what is above capacity."""
    if is_wave:
        swing = np.sqrt(load[1] * load[1] + load[2] * load[2])
        room = capacity - load[0]
        if room >= swing:
            return 0.0
        if room <= -swing:
            return -room
        angle = np.arccos(room / swing)
        return (swing * np.sin(angle) - room * angle) / np.pi
    total = 0.0
    for value in load:
        if value > capacity:
            total += value - capacity
    return total / load.size


@njit(f"int64({N2}, boolean, {L1}, {N1}, {N1}, float64, {L1})", cache=True)
def fit_decreasing(vectors, is_wave, order, capacities, prices, fine, where):
    """Put operators, in an order, where the least room is left at the peak; return how many found no place.

    Machines are opened in the order given. Where overload has a price (`fine` is finite), an operator goes to the
    machine whose cost rises least, and only then to the one with the least room left.
    """
    machines = capacities.size
    load = np.zeros((machines, vectors.shape[1]))
    above = np.zeros(machines)
    used = np.zeros(machines, np.bool_)
    opened = 0  # machines below this have been used, or passed over as too small
    left = 0
    for item in order:
        best = -1
        least = np.inf
        cheapest = np.inf
        for m in range(opened):
            peak = peak_with(load[m], vectors[item], is_wave)
            room = capacities[m] - peak
            rise = 0.0 if used[m] else prices[m]
            if room < 0.0:
                if fine == np.inf:
                    continue
                rise += fine * (above_of(load[m] + vectors[item], capacities[m], is_wave) - above[m])
                room = 0.0
            if rise < cheapest - 1e-12 or (rise <= cheapest + 1e-12 and room < least):
                best, least, cheapest = m, room, rise
        if opened < machines and (best < 0 or cheapest > 0.0):
            m = opened
            while m < machines and fine == np.inf and peak_with(load[m], vectors[item], is_wave) > capacities[m]:
                m += 1
            if m < machines:
                rise = prices[m]
                if fine < np.inf:
                    rise += fine * above_of(vectors[item], capacities[m], is_wave)
                if rise < cheapest:
                    best = m
                    if m + 1 > opened:
                        opened = m + 1
        if best < 0:
            left += 1
            continue
        where[item] = best
        used[best] = True
        load[best] += vectors[item]
        if fine < np.inf:
            above[best] = above_of(load[best], capacities[best], is_wave)
    return left
