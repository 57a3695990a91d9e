"""Is anything left that could be better? All columns that a better packing may use, and an integer programme over them.

Let z be the linear programme's cost, v its prices and f its fees. A packing that costs c uses columns whose costs
exceed their worth, together, by c - z. So one that costs less than the best known can use only columns that lack
less than the distance from z to it. Where these are few enough to be written down, HiGHS finds the best packing over
them: it is the best of all, or there is nothing better than what is known. Work is bounded by counts, not by a clock.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from headwater.pack.columns import WORTH, Pool, Relaxed
from headwater.pack.dive import placed
from headwater.pack.loads import Floats, Ints
from headwater.pack.price import MOST_IN_SET, price
from headwater.pack.result import Limits

__all__ = ["Closed", "close"]

MOST_COLUMNS = 40_000
STEPS = 200_000_000
MOST_CELLS = 400_000  # columns times operators of an integer programme: above that HiGHS takes minutes
NODES = 2_000  # of the branch and bound of HiGHS

Closed = tuple[Ints | None, bool]  # something better, and whether nothing is better than that (or than what is known)


def close(pool: Pool, relaxed: Relaxed, cost: float, limits: Limits) -> Closed:
    """Return the best packing that costs less than `cost`, and whether that was decided."""
    loads = pool.loads
    better = cost - 1.0 + 1e-6 if loads.is_plain else cost * (1.0 - 1e-9)
    operators = np.arange(len(loads.names))
    floor = float(relaxed.values.sum()) - float((relaxed.fees * loads.counts).sum())
    gap = better - floor + 1e-6 + 2.0 * WORTH * len(operators)  # prices may be wrong by WORTH for each machine
    sets: list[tuple[int, ...]] = []
    kinds: list[int] = []
    costs: list[float] = []
    for kind in range(len(loads.counts)):
        least = float(loads.prices[kind] + relaxed.fees[kind]) - gap
        found = _every(pool, operators, relaxed.values, kind, least)
        if found is None or len(sets) + len(found) > MOST_COLUMNS:
            return None, False
        for column in found:
            pool.add(column, kind)
            sets.append(column)
            kinds.append(kind)
            costs.append(pool.cost(column, kind))
    if gap < 0.0 or not sets:
        return None, True
    if len(sets) * len(loads.names) > MOST_CELLS:
        return None, False
    return _solved(pool, sets, np.array(kinds), np.array(costs), better, limits)


def _every(pool: Pool, operators: Ints, values: Floats, kind: int, least: float) -> list[tuple[int, ...]] | None:
    """Return all columns of a kind that are worth more than `least`; None where they are too many."""
    loads = pool.loads
    order = operators[np.argsort(-(values / np.maximum(loads.means, 1e-12)), kind="stable")]
    sets = np.zeros((MOST_COLUMNS, MOST_IN_SET), np.int64)
    sizes, worths = np.zeros(MOST_COLUMNS, np.int64), np.zeros(MOST_COLUMNS)
    steps = np.array([STEPS // max(1, loads.vectors.shape[1] // 8)], np.int64)
    most = price(
        np.ascontiguousarray(loads.vectors[order]), loads.is_wave, np.ascontiguousarray(values[order]),
        np.ascontiguousarray(loads.means[order]), float(loads.capacities[kind]), loads.overload_price, least, sets,
        sizes, worths, steps, True,
    )  # fmt: skip
    if most == np.inf:
        return None
    count = int((sizes > 0).sum())
    return [tuple(sorted(order[sets[i, : sizes[i]]].tolist())) for i in range(count)]


def _solved(
    pool: Pool, sets: list[tuple[int, ...]], kinds: Ints, costs: Floats, better: float, limits: Limits
) -> Closed:
    """Return the cheapest packing over some columns, if it costs no more than `better`, and whether that is decided."""
    loads = pool.loads
    count = len(sets)
    rows = np.fromiter((op for column in sets for op in column), np.int64)
    ends = np.concatenate(([0], np.cumsum([len(column) for column in sets])))
    holds = csc_array((np.ones(len(rows)), rows, ends), shape=(len(loads.names), count))
    of_kind = csc_array((np.ones(count), (kinds, np.arange(count))), shape=(len(loads.counts), count))
    answer = milp(
        costs,
        integrality=np.ones(count),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(holds, 1, np.inf),
            LinearConstraint(of_kind, -np.inf, loads.counts),
            LinearConstraint(costs.reshape(1, -1), -np.inf, better),
        ],
        options={"node_limit": NODES, "mip_rel_gap": 0.0, "time_limit": max(0.1, min(1e6, limits.remaining_s()))},
    )
    if answer.status == 2:
        return None, True
    if answer.x is None:
        return None, False
    taken, left = [], np.ones(len(loads.names), bool)
    for i in np.flatnonzero(answer.x > 0.5):
        members = tuple(op for op in sets[i] if left[op])
        left[list(members)] = False
        if members:
            taken.append((members, int(kinds[i])))
    if left.any():
        return None, False
    return placed(pool, taken), answer.status == 0
