"""Which operators together are worth more than a machine?

Given a value for each operator, `price` finds sets that fit on one machine and are worth the most. Notation:
v_i value and w_i mean load of operator i, sorted by falling v_i / w_i; C the capacity. No load is below 0, so
adding an operator never lowers a peak, and a set that does not fit has no superset that does: depth first over
sets in the sorted order, cut where the values so far and the most that could be added are not above the best set
known. What could be added is bounded by two linear measures of load, neither of which exceeds the peak: the mean,
with the best fractional filling; and the load at one moment, the one of a few `probes` at which the machine is
fullest. A wave's load at an angle is baseline + amplitude * cos(phase - angle); at an angle no operator's peak is
missed by more than the angle between two probes. Every operator is tried as the first of its set, so that one
call gives many sets. Exact unless the steps run out.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.pack.kernels import L1, L2, N1, N2, above_of, peak_of

__all__ = ["MOST_IN_SET", "fullest", "look", "price", "reach"]

MOST_IN_SET = 64  # operators of one set that are looked at
TINY = 1e-9
SELECTIVE = 0.3  # how near, between the least and the most known, a set must come to be wanted
PROBES = 32  # moments at which loads are looked at


@njit(cache=False)
def reach(first, room, values, means, fine):
    """Return the most that operators from `first` on add: fill `room` by falling worth, then pay for overload."""
    total = 0.0
    for k in range(first, values.size):
        if means[k] <= room:
            total += values[k]
            room -= means[k]
            continue
        worth = values[k] / means[k]
        total += worth * room
        if fine < worth:
            total += (worth - fine) * (means[k] - room)
            for rest in range(k + 1, values.size):
                if values[rest] <= fine * means[rest]:
                    break
                total += values[rest] - fine * means[rest]
        return total
    return total


@njit(cache=False)
def look(vectors, is_wave, values, means, probes, weight, worth, mixed, lightest):
    """Fill tables by probe and first operator: the most value per load from there on, and the least load."""
    count, width = vectors.shape
    for s in range(PROBES):
        if is_wave:
            probes[s] = 2.0 * np.pi * s / PROBES
        else:
            probes[s] = s * width // PROBES
        for k in range(count - 1, -1, -1):
            if is_wave:
                w = vectors[k, 0] + vectors[k, 1] * np.cos(probes[s]) + vectors[k, 2] * np.sin(probes[s])
            else:
                w = vectors[k, np.int64(probes[s])]
            weight[s, k] = w
            lightest[s, k] = w
            worth[s, k] = np.inf
            if w > TINY:
                worth[s, k] = values[k] / w
            mixed[s, k] = np.inf
            if w + means[k] > TINY:
                mixed[s, k] = 2.0 * values[k] / (w + means[k])
            if k + 1 < count:
                lightest[s, k] = min(lightest[s, k], lightest[s, k + 1])
                worth[s, k] = max(worth[s, k], worth[s, k + 1])
                mixed[s, k] = max(mixed[s, k], mixed[s, k + 1])


@njit(cache=False)
def fullest(load, is_wave, probes):
    """Return the probe at which a load is highest."""
    if is_wave:
        turn = np.arctan2(load[2], load[1]) / (2.0 * np.pi) * PROBES
        return np.int64(np.floor(turn + 0.5 + PROBES)) % PROBES
    best = 0
    for s in range(1, PROBES):
        if load[np.int64(probes[s])] > load[np.int64(probes[best])]:
            best = s
    return best


@njit(f"float64({N2}, boolean, {N1}, {N1}, float64, float64, float64, {L2}, {L1}, {N1}, {L1}, boolean)",
      cache=True)
def price(vectors, is_wave, values, means, capacity, fine, least, sets, sizes, worths, steps, every):
    """Find for each first operator the best set worth more than `least`; return the most that any set is worth.

    Operators come sorted by falling value over mean load. Row i of `sets` takes the best set whose first operator
    is i, `sizes` how many it has (0: none above `least`), `worths` what it is worth. `steps[0]` is how many steps
    may be made, and what is left of them after; when none is left the answer is infinite, for nothing is proven.
    With `every`, all sets worth more than `least` are taken, row by row; infinite also when the rows run out.
    """
    count, width = vectors.shape
    most = -np.inf
    chosen = np.empty(MOST_IN_SET + 1, np.int64)
    load = np.zeros((MOST_IN_SET + 1, width))
    value = np.zeros(MOST_IN_SET + 1)
    mean = np.zeros(MOST_IN_SET + 1)
    probes = np.empty(PROBES)
    weight = np.empty((PROBES, count))
    worth = np.empty((PROBES, count))
    mixed = np.empty((PROBES, count))
    lightest = np.empty((PROBES, count))
    look(vectors, is_wave, values, means, probes, weight, worth, mixed, lightest)
    at = np.zeros(MOST_IN_SET + 1, np.int64)  # by depth: the probe at which the machine is fullest
    space = np.zeros(MOST_IN_SET + 1)  # by depth: what is left of the capacity there
    left = steps[0]
    sizes[:] = 0
    rows = 0
    for root in range(count):
        best = least
        if most > least and not every:  # only sets that come near the best one are wanted
            best = least + SELECTIVE * (most - least)
        if reach(root, capacity, values, means, fine) <= best + TINY:
            continue
        depth = 0
        chosen[0] = root - 1
        load[0] = 0.0
        value[0] = 0.0
        mean[0] = 0.0
        while depth >= 0:
            item = chosen[depth] + 1
            is_over = depth == 0 and item > root
            if is_over or item >= count:
                depth -= 1
                continue
            room = capacity - mean[depth]
            paid = 0.0
            if room < 0.0:
                paid = fine * room if fine < np.inf else 0.0
                room = 0.0
            if value[depth] + paid + reach(item, room, values, means, fine) <= best + TINY:
                depth -= 1
                continue
            if depth > 0 and fine == np.inf:
                s = at[depth]
                if space[depth] < lightest[s, item]:
                    depth -= 1
                    continue
                if value[depth] + min(space[depth] * worth[s, item],
                                      0.5 * (space[depth] + room) * mixed[s, item]) <= best + TINY:
                    depth -= 1
                    continue
                if weight[s, item] > space[depth]:
                    chosen[depth] = item
                    continue
            left -= 1
            if left < 0 or depth == MOST_IN_SET - 1:
                steps[0] = 0
                return np.inf
            chosen[depth] = item
            for t in range(width):
                load[depth + 1, t] = load[depth, t] + vectors[item, t]
            gross = value[depth] + values[item]
            net = gross
            if peak_of(load[depth + 1], is_wave) > capacity:
                if fine == np.inf:
                    continue
                net -= fine * above_of(load[depth + 1], capacity, is_wave)
            if net > best:
                row = root
                if every:
                    if rows == sizes.size:
                        steps[0] = left
                        return np.inf
                    row = rows
                    rows += 1
                    most = max(most, net)
                else:
                    best = net
                sizes[row] = depth + 1
                worths[row] = net
                for k in range(depth + 1):
                    sets[row, k] = chosen[k]
            depth += 1
            value[depth] = gross
            mean[depth] = mean[depth - 1] + means[item]
            chosen[depth] = item
            s = fullest(load[depth], is_wave, probes)
            at[depth] = s
            if is_wave:
                space[depth] = (
                    capacity - load[depth, 0] - load[depth, 1] * np.cos(probes[s]) - load[depth, 2] * np.sin(probes[s])
                )
            else:
                space[depth] = capacity - load[depth, np.int64(probes[s])]
        if not every and sizes[root] > 0 and best > most:
            most = best
    steps[0] = left
    return most
