"""How does a population of packings evolve? The compiled loop of the genetic algorithm of paper 004.

A packing is the machine of each operator. Fitness, to be made small: the price of the machines used, less their
mean utilisation (which never outweighs a machine), plus `fine` for overload where it has a price, plus `heavy`
for each capacity that peaks exceed where it is forbidden: a penalty, so the best may overload.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.model.chance import chance
from headwater.pack.kernels import L2, N1, N2, above_of, peak_of

__all__ = ["evolve", "fitness_of"]


@njit(cache=False)
def fitness_of(person, vectors, means, is_wave, capacities, prices, unit, fine, heavy, load, held):
    """Return the fitness of one packing; `load` and `held` are room to work in."""
    load[:] = 0.0
    held[:] = 0.0
    for i in range(person.size):
        m = person[i]
        held[m] += means[i] + 1e-12
        for t in range(vectors.shape[1]):
            load[m, t] += vectors[i, t]
    cost = 0.0
    used = 0
    fullness = 0.0
    for m in range(capacities.size):
        if held[m] == 0.0:
            continue
        used += 1
        cost += prices[m] / unit
        fullness += min(1.0, held[m] / capacities[m])
        peak = peak_of(load[m], is_wave)
        if peak > capacities[m]:
            if fine < np.inf:
                cost += fine * above_of(load[m], capacities[m], is_wave) / unit
            else:
                cost += heavy * (peak - capacities[m]) / capacities[m]
    return cost - fullness / used


@njit(f"void({N2}, {N1}, boolean, {N1}, {N1}, float64, float64, {L2}, {N1}, uint64[::1], int64, float64, float64,"
      f" int64)", cache=True)
def evolve(vectors, means, is_wave, capacities, prices, fine, heavy, people, fitness, seed, generations, mating,
           mutation, elite):
    """Evolve a population; `people` and `fitness` hold it before and after, best first.

    Uniform crossover of two parents with probability `mating`; mutation with its probability either moves one
    operator or lets two change machines; the `elite` survive as they are. Parents come from tournaments of two.
    """
    size, count = people.shape
    machines = capacities.size
    load = np.zeros((machines, vectors.shape[1]))
    held = np.zeros(machines)
    unit = prices.min()
    heirs = people.copy()
    for generation in range(generations + 1):
        for i in range(size):
            if generation > 0 and i < elite:
                continue
            fitness[i] = fitness_of(
                people[i], vectors, means, is_wave, capacities, prices, unit, fine, heavy, load, held
            )
        order = np.argsort(fitness, kind="mergesort")
        heirs[:] = people
        copied = fitness.copy()
        for i in range(size):
            people[i] = heirs[order[i]]
            fitness[i] = copied[order[i]]
        if generation == generations:
            break
        heirs[:] = people
        for i in range(elite, size):
            first = min(np.int64(chance(seed) * size), np.int64(chance(seed) * size))
            people[i] = heirs[first]
            if chance(seed) < mating:
                second = min(np.int64(chance(seed) * size), np.int64(chance(seed) * size))
                for k in range(count):
                    if chance(seed) < 0.5:
                        people[i, k] = heirs[second, k]
            if chance(seed) < mutation:
                k = np.int64(chance(seed) * count)
                if chance(seed) < 0.5:
                    people[i, k] = np.int64(chance(seed) * machines)
                else:
                    other = np.int64(chance(seed) * count)
                    people[i, k], people[i, other] = people[i, other], people[i, k]
