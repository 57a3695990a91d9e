"""What do many placements at once tell? Evolution, and every valid placement in turn."""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.model.chance import chance
from headwater.place.atoms import allows, fits_apart
from headwater.place.kernels import I1, I2, N1, PROBLEM, STATE
from headwater.place.steps import refresh

__all__ = ["enumerate_all", "evolve"]


@njit(f"int64({PROBLEM}, {STATE}, {I1}, float64[::1], int64)", cache=True)
def enumerate_all(problem, state, best, best_f, most):
    """Try every valid placement, one by one and in full; return how many there are, -1 if more than `most` steps."""
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    units = unit_at.size - 1
    taken = np.zeros(hosts.shape[0], np.int32)
    at = np.full(units + 1, -1, np.int32)
    depth = 0
    valid = 0
    steps = 0
    where[:] = -1
    best_f[0] = np.inf
    while depth >= 0:
        if depth == units:
            refresh(
                ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals, where,
                mark, delay, load, used, chain, sums, seen,
            )
            sums[5] += 1.0
            valid += 1
            if sums[3] < best_f[0]:
                best_f[0] = sums[3]
                best[:] = where
            depth -= 1
            continue
        steps += 1
        if steps > most:
            return -1
        first = unit_at[depth]
        stop = unit_at[depth + 1]
        if at[depth] >= 0:
            taken[at[depth]] -= stop - first
            for k in range(first, stop):
                where[unit_ops[k]] = -1
        h = at[depth] + 1
        while h < hosts.shape[0]:
            fits = taken[h] + stop - first <= hosts[h, 1]
            for k in range(first, stop):
                fits = fits and allows(unit_ops[k], h, ops, rule_at, rule_hosts)
                fits = fits and fits_apart(unit_ops[k], h, -1, apart_at, apart, where)
            if fits:
                break
            h += 1
        if h == hosts.shape[0]:
            at[depth] = -1
            depth -= 1
            continue
        at[depth] = h
        taken[h] += stop - first
        for k in range(first, stop):
            where[unit_ops[k]] = h
        depth += 1
        at[depth] = -1
    return valid


@njit(f"void({PROBLEM}, {STATE}, {I2}, {N1}, uint64[::1], int64, float64, float64, int64)", cache=True)
def evolve(problem, state, people, fitness, seed, generations, mating, mutation, elite):
    """Evolve a population of placements by units; `people` and `fitness` hold it before and after, best first.

    Uniform crossover between two parents with probability `mating`; mutation with its probability is
    either one unit on another host it may use or the hosts of two units exchanged; the `elite` survive.
    Parents come from tournaments of two. What breaks a rule is fined by more than F can ever be.
    """
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    size, units = people.shape
    heirs = people.copy()
    for generation in range(generations + 1):
        for i in range(size):
            if generation > 0 and i < elite:
                continue
            for unit in range(units):
                for k in range(unit_at[unit], unit_at[unit + 1]):
                    where[unit_ops[k]] = people[i, unit]
            refresh(
                ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals, where,
                mark, delay, load, used, chain, sums, seen,
            )
            sums[5] += 1.0
            fine = 0.0
            for t in range(where.size):
                h = where[t]
                if used[h] > hosts[h, 1]:
                    fine += 1.0
                if not allows(t, h, ops, rule_at, rule_hosts) or not fits_apart(t, h, -1, apart_at, apart, where):
                    fine += 1.0
            fitness[i] = sums[3] + 1e6 * fine
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
            one = min(np.int64(chance(seed) * size), np.int64(chance(seed) * size))
            people[i] = heirs[one]
            if chance(seed) < mating:
                two = min(np.int64(chance(seed) * size), np.int64(chance(seed) * size))
                for unit in range(units):
                    if chance(seed) < 0.5:
                        people[i, unit] = heirs[two, unit]
            if chance(seed) < mutation:
                unit = np.int64(chance(seed) * units)
                if chance(seed) < 0.5:
                    t = unit_ops[unit_at[unit]]
                    if ops[t, 5] < 0:
                        people[i, unit] = np.int64(chance(seed) * hosts.shape[0])
                    else:
                        low = rule_at[ops[t, 5]]
                        people[i, unit] = rule_hosts[low + np.int64(chance(seed) * (rule_at[ops[t, 5] + 1] - low))]
                else:
                    other = np.int64(chance(seed) * units)
                    people[i, unit], people[i, other] = people[i, other], people[i, unit]
