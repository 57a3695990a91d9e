"""How is a packing made better by chance? The compiled loop of annealing.

The energy of a machine is its price if it is used, what its overload costs, and `heavy` times its peak above
capacity where overload is forbidden. A step moves one operator to another machine or lets two change places; it
is made if the energy falls, and sometimes if it rises, less often as the heat falls.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.model.chance import chance
from headwater.pack.kernels import L1, N1, N2, above_of, peak_of

__all__ = ["energy_of", "shake"]


@njit(cache=False)
def energy_of(load, held, capacity, price, fine, heavy, is_wave):
    """Return the energy of one machine."""
    if held == 0:
        return 0.0
    peak = peak_of(load, is_wave)
    if peak <= capacity:
        return price
    if fine < np.inf:
        return price + fine * above_of(load, capacity, is_wave)
    return price + heavy * (peak - capacity)


@njit(f"float64({N2}, boolean, {N1}, {N1}, float64, float64, {L1}, {L1}, uint64[::1], int64, int64, int64, float64,"
      f" float64, float64, float64)", cache=True)
def shake(vectors, is_wave, capacities, prices, fine, heavy, where, best, seed, done, steps, total, hot, cold, goal,
          least):
    """Anneal for `steps` of `total` steps, `done` already made; stop at an energy of `goal`. Return the least energy.

    `where` is moved; `best` holds the packing with the least energy so far, `least`.
    """
    count, width = vectors.shape
    machines = capacities.size
    load = np.zeros((machines, width))
    held = np.zeros(machines, np.int64)
    energy = np.zeros(machines)
    for i in range(count):
        load[where[i]] += vectors[i]
        held[where[i]] += 1
    now = 0.0
    for m in range(machines):
        energy[m] = energy_of(load[m], held[m], capacities[m], prices[m], fine, heavy, is_wave)
        now += energy[m]
    if now < least:
        least = now
        best[:] = where
    one = np.empty(width)
    two = np.empty(width)
    for step in range(done, done + steps):
        if least <= goal:
            break
        heat = hot * (cold / hot) ** (step / total)
        i = np.int64(chance(seed) * count)
        a = where[i]
        swaps = chance(seed) < 0.5
        j = -1
        if swaps:
            j = np.int64(chance(seed) * count)
            b = where[j]
        else:
            b = np.int64(chance(seed) * machines)
        if a == b:
            continue
        for t in range(width):
            one[t] = load[a, t] - vectors[i, t]
            two[t] = load[b, t] + vectors[i, t]
        if swaps:
            for t in range(width):
                one[t] += vectors[j, t]
                two[t] -= vectors[j, t]
        move = 0 if swaps else 1
        new_a = energy_of(one, held[a] - move, capacities[a], prices[a], fine, heavy, is_wave)
        new_b = energy_of(two, held[b] + move, capacities[b], prices[b], fine, heavy, is_wave)
        rise = new_a + new_b - energy[a] - energy[b]
        if rise > 0.0 and rise > -heat * np.log(1.0 - chance(seed)):
            continue
        load[a] = one
        load[b] = two
        held[a] -= move
        held[b] += move
        energy[a] = new_a
        energy[b] = new_b
        where[i] = b
        if swaps:
            where[j] = a
        now += rise
        if step % 4096 == 0:  # sums drift by rounding
            load[:] = 0.0
            for k in range(count):
                load[where[k]] += vectors[k]
            now = 0.0
            for m in range(machines):
                energy[m] = energy_of(load[m], held[m], capacities[m], prices[m], fine, heavy, is_wave)
                now += energy[m]
        if now < least - 1e-12:
            least = now
            best[:] = where
    return least
