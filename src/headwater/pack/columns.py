"""What can no packing undercut, and which sets of operators would get there?

Column generation. A column is a set of operators that one machine of a kind holds; x_S says how often it is used:

    least sum of cost_S * x_S   such that every operator is in at least one column and no kind is used up

over all columns is a linear programme with a bound far better than that of mean loads. It has too many columns to
write down, so it begins with a few (`master`, solved by HiGHS); `pack.price` then asks, at the prices v_i that the
programme puts on operators, whether any column is worth more than it costs, and the best ones join. At any time

    sum v_i + sum over kinds of count * min(0, price - most that a column of this kind is worth)     (Lagrange)
    sum v_i * min over kinds of price / most that a column of this kind is worth                     (Farley)

are below every packing's cost, whether the end is reached or not. Of whole machines at one price a fraction counts
as a whole one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import gcd

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csc_array, hstack, vstack

from headwater.pack.kernels import above_of
from headwater.pack.loads import Floats, Ints, Loads
from headwater.pack.price import MOST_IN_SET, price
from headwater.pack.result import Limits

__all__ = ["WORTH", "Pool", "Relaxed", "relax", "whole_cost"]

STEPS = 30_000_000  # of one search for columns
ROUNDS = 400  # searches for columns in all
WORTH = 1e-7  # a column must be worth this much more than it costs
SHAVE = 1e-7  # taken off bounds for the rounding of HiGHS
MOST_BLIND = 3  # searches that may run out of steps
PULL = 0.5  # how near to the best prices known new ones are asked for: prices that swing find bad columns
KEPT = 4  # columns, as a multiple of the operators, that stay in the programme

Column = tuple[int, ...]  # operators, ascending


@dataclass(slots=True)
class Pool:
    """Columns of one workload, each once."""

    loads: Loads
    sets: list[Column] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    known: set[tuple[Column, int]] = field(default_factory=set)

    def add(self, operators: Iterable[int], kind: int) -> bool:
        """Add a column; return whether it is new."""
        column = tuple(sorted(operators))
        if (column, kind) in self.known:
            return False
        self.known.add((column, kind))
        self.sets.append(column)
        self.kinds.append(kind)
        self.costs.append(self.cost(column, kind))
        return True

    def cost(self, column: Sequence[int], kind: int) -> float:
        """Return what a machine of a kind costs with these operators."""
        loads = self.loads
        cost = float(loads.prices[kind])
        if not loads.is_hard:
            total = loads.vectors[list(column)].sum(axis=0)
            cost += loads.overload_price * float(above_of(total, float(loads.capacities[kind]), loads.is_wave))
        return cost

    def add_packing(self, where: Ints) -> None:
        """Add what each machine of a packing holds."""
        kinds = np.repeat(np.arange(len(self.loads.counts)), self.loads.counts)
        for machine in np.unique(where):
            self.add(np.flatnonzero(where == machine).tolist(), int(kinds[machine]))


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What the linear programme over columns says."""

    bound: float  # proven, not rounded up
    value: float  # of the programme over the columns so far
    values: Floats  # operator -> price, of the programme or of the best bound
    fees: Floats  # kind -> price of using one more where they are used up
    shares: Floats  # column -> how often it is used
    chosen: tuple[int, ...]  # columns of the pool that the shares are of
    is_whole: bool  # no column is missing
    cut_short: bool


def whole_cost(loads: Loads, bound: float) -> float:
    """Return the least cost of whole machines that is not below a bound, where overload is forbidden."""
    if not loads.is_hard:
        return bound
    units = [round(price * 1e6) for price in loads.prices]
    if any(abs(unit - price * 1e6) > 1e-6 or unit < 1 for unit, price in zip(units, loads.prices, strict=True)):
        return bound
    unit = reduce(gcd, units) / 1e6
    return float(np.ceil(bound / unit - 1e-6) * unit)


def relax(pool: Pool, operators: Ints, counts: Ints, limits: Limits, rounds: int = ROUNDS,
          enough: float | None = np.inf, pull: float = PULL) -> Relaxed:  # fmt: skip
    """Return the programme for some operators and machines, with columns added to the pool until none is missing.

    `enough` is a bound at which it may stop, as it may where a better one would round up to the same; None: never.
    """
    loads = pool.loads
    bound, most_bound = 0.0, 0.0
    # prices by mean load are worth a full machine at most: a sound point to begin from
    center = loads.means[operators] * float((loads.prices / loads.capacities)[counts > 0].min())
    keep = _columns_of(pool, operators)
    shares, values, fees, value = _master(pool, keep, operators, counts)
    is_cut, first_pull, blind = False, pull, 0
    for _ in range(rounds):
        asked = pull * center + (1.0 - pull) * values
        fresh, most = _priced(pool, operators, asked, fees, counts)
        blind += most is None
        if blind > MOST_BLIND:
            break
        if most is not None:
            reached = _bound(loads, asked, counts, most)
            bound = max(bound, reached)
            if reached > most_bound:
                most_bound, center = reached, asked
        if not fresh and pull == 0.0:
            return Relaxed(bound, value, asked, fees, shares, tuple(keep), most is not None, False)
        if enough is not None and whole_cost(loads, bound) >= min(enough, whole_cost(loads, value - 1e-9)):
            break
        is_cut = limits.remaining_s() <= 0.0
        if is_cut:
            break
        if not fresh:
            pull = 0.0 if pull < 0.2 else pull / 2.0
            continue
        worth = np.zeros(len(loads.names))
        worth[operators] = values
        gains = [worth[list(pool.sets[i])].sum() - pool.costs[i] for i in fresh]
        pull = first_pull if max(gains) > WORTH else (0.0 if pull < 0.2 else pull / 2.0)
        keep = _kept(pool, keep, operators, worth, shares) + fresh
        shares, values, fees, value = _master(pool, keep, operators, counts)
    return Relaxed(bound, value, values, fees, shares, tuple(keep), False, is_cut)


def _columns_of(pool: Pool, operators: Ints) -> list[int]:
    """Return the columns of the pool that hold nothing but these operators."""
    inside = np.zeros(len(pool.loads.names), bool)
    inside[operators] = True
    return [i for i, column in enumerate(pool.sets) if inside[list(column)].all()]


def _kept(pool: Pool, keep: list[int], operators: Ints, worth: Floats, shares: Floats) -> list[int]:
    """Return the columns that stay: those in use, and of the others the ones nearest to it."""
    most = KEPT * len(operators) + 200
    if len(keep) <= 2 * most:
        return keep
    short = np.array([pool.costs[i] - worth[list(pool.sets[i])].sum() for i in keep])
    short[shares > 0.0] = -1.0
    return [keep[i] for i in np.sort(np.argsort(short, kind="stable")[:most])]


def _master(pool: Pool, keep: Sequence[int], operators: Ints, counts: Ints) -> tuple[Floats, Floats, Floats, float]:
    """Return shares of columns, values of operators, fees of kinds and the cost of the programme over columns."""
    loads = pool.loads
    row = np.full(len(loads.names), -1)
    row[operators] = np.arange(len(operators))
    sizes = [len(pool.sets[i]) for i in keep]
    rows = row[np.fromiter((op for i in keep for op in pool.sets[i]), np.int64, sum(sizes))]
    is_counted = len(counts) > 1
    columns, n = len(keep), len(operators)
    ends = np.concatenate(([0], np.cumsum(sizes)))
    dear = 10.0 * float(loads.prices.max()) * (1.0 + max(0.0, loads.overload_price if not loads.is_hard else 0.0))
    # an operator that no column holds costs more than a machine of its own, so that there is always a solution
    matrix = csc_array((np.full(len(rows), -1.0), rows, ends), shape=(n, columns))
    blocks = [matrix, csc_array((np.full(n, -1.0), np.arange(n), np.arange(n + 1)), shape=(n, n))]
    whole = csc_array(hstack(blocks, format="csc"))
    limits = -np.ones(n)
    if is_counted:
        marks = np.array([pool.kinds[i] for i in keep], np.int64)
        extra = csc_array(
            (np.ones(columns), (marks, np.arange(columns))), shape=(len(counts), columns + n), dtype=np.float64
        )
        whole = csc_array(vstack([whole, extra], format="csc"))
        limits = np.concatenate((limits, counts.astype(np.float64)))
    cost = np.concatenate(([pool.costs[i] for i in keep], np.full(n, dear)))
    answer = linprog(cost, A_ub=whole, b_ub=limits, bounds=(0, None), method="highs-ds" if n < 400 else "highs")
    marginals = -np.asarray(answer.ineqlin.marginals)
    values = np.maximum(0.0, marginals[:n])
    fees = np.maximum(0.0, marginals[n:]) if is_counted else np.zeros(len(counts))
    return np.asarray(answer.x[:columns]), values, fees, float(answer.fun)


def _priced(pool: Pool, operators: Ints, values: Floats, fees: Floats, counts: Ints) -> tuple[list[int], Floats | None]:
    """Return new columns, and for each kind the most that a column is worth; None when the steps ran out."""
    loads = pool.loads
    means = loads.means[operators]
    wanted = np.flatnonzero(values > 1e-12)
    order = wanted[np.argsort(-(values[wanted] / np.maximum(means[wanted], 1e-12)), kind="stable")]
    picked = operators[order]
    vectors = np.ascontiguousarray(loads.vectors[picked])
    most = np.zeros(len(counts))
    fresh: list[int] = []
    is_proven = True
    for kind in range(len(counts)):
        if counts[kind] == 0:
            continue
        count = len(picked)
        sets = np.zeros((count, MOST_IN_SET), np.int64)
        sizes, worths = np.zeros(count, np.int64), np.zeros(count)
        least = float(loads.prices[kind] + fees[kind]) + WORTH
        steps = np.array([STEPS // max(1, vectors.shape[1] // 8)], np.int64)
        top = price(
            vectors, loads.is_wave, np.ascontiguousarray(values[order]), np.ascontiguousarray(means[order]),
            float(loads.capacities[kind]), loads.overload_price, least, sets, sizes, worths, steps, False,
        )  # fmt: skip
        is_proven = is_proven and bool(np.isfinite(top) or top == -np.inf)
        most[kind] = max(top, least)
        for root in np.flatnonzero(sizes):
            if pool.add(picked[sets[root, : sizes[root]]].tolist(), kind):
                fresh.append(len(pool.sets) - 1)
    return fresh, most if is_proven else None


def _bound(loads: Loads, values: Floats, counts: Ints, most: Floats) -> float:
    total = float(values.sum())
    live = counts > 0
    lagrange = total + float((counts[live] * np.minimum(0.0, loads.prices[live] - most[live])).sum())
    farley = total * min(1.0, float((loads.prices[live] / most[live]).min()))
    return max(lagrange, farley) * (1.0 - SHAVE)
