"""Which whole packing is hidden in the linear programme?

The programme over columns (`pack.columns`) uses parts of columns. A dive takes the column that is used most, and
others that are used almost wholly, for good, asks the programme again for the operators that are left, with new
columns for them, and so on until none is left. A dive that can no longer come to the cost wanted is given up, and
the next one takes other columns first: chance comes from the seed.
"""

from __future__ import annotations

import numpy as np

from headwater.pack.columns import Pool, Relaxed, relax, whole_cost
from headwater.pack.loads import Ints
from headwater.pack.result import Limits

__all__ = ["dive", "placed"]

SURE = 0.8  # a column used this much is taken at once
ROUNDS = 6  # searches for columns after each step


def dive(pool: Pool, start: Relaxed, wanted: float, rng: np.random.Generator, noise: float, limits: Limits,
         ) -> Ints | None:  # fmt: skip
    """Return a packing that costs no more than `wanted`, or None."""
    loads = pool.loads
    left = np.ones(len(loads.names), bool)
    counts = loads.counts.copy()
    taken: list[tuple[tuple[int, ...], int]] = []
    cost = 0.0
    relaxed = start
    while left.any():
        order = np.argsort(-relaxed.shares * (1.0 + noise * rng.random(len(relaxed.shares))), kind="stable")
        is_first = True
        for k in order:
            share = relaxed.shares[k]
            if share < 1e-9 or (share < SURE and not is_first):
                break
            column, kind = pool.sets[relaxed.chosen[k]], pool.kinds[relaxed.chosen[k]]
            members = [op for op in column if left[op]]
            if counts[kind] == 0 or not members or (len(members) < len(column) and not is_first):
                continue
            is_first = False
            taken.append((tuple(members), kind))
            left[members] = False
            counts[kind] -= 1
            cost += pool.costs[relaxed.chosen[k]]
        if is_first or limits.remaining_s() <= 0.0:
            return None
        if not left.any():
            break
        for k in np.flatnonzero(relaxed.shares > 1e-9):  # what is left of a column is a column too
            column = pool.sets[relaxed.chosen[k]]
            rest = [op for op in column if left[op]]
            if rest and len(rest) < len(column):
                pool.add(rest, pool.kinds[relaxed.chosen[k]])
        operators = np.flatnonzero(left)
        relaxed = relax(pool, operators, counts, limits, ROUNDS, pull=0.0)
        if cost + whole_cost(loads, relaxed.bound) > wanted + 1e-9:
            return None
    return placed(pool, taken) if cost <= wanted + 1e-9 else None


def placed(pool: Pool, taken: list[tuple[tuple[int, ...], int]]) -> Ints:
    """Return the machine of each operator."""
    loads = pool.loads
    where = np.full(len(loads.names), -1, np.int64)
    free = np.concatenate(([0], np.cumsum(loads.counts)))[:-1].copy()
    for members, kind in taken:
        where[list(members)] = free[kind]
        free[kind] += 1
    return where
