"""Which single step is best? The whole neighbourhood of a placement, as paper 001 searches it.

A switch moves a unit to a host with room; a swap exchanges the hosts of two operators.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.place.atoms import allows, fits_apart
from headwater.place.kernels import I1, PROBLEM, STATE
from headwater.place.steps import commit, try_move, try_swap

__all__ = ["best_step", "make_step"]


@njit(f"Tuple((float64, int64, int64, int64))({PROBLEM}, {STATE}, {I1}, {I1}, float64, int64)", cache=True)
def best_step(problem, state, tabu_ops, tabu_hosts, aspiration, budget):
    """Return (F, kind, operator, host or other operator) of the best switch (kind 0) or swap (kind 1) of all.

    A step that brings an operator back to a host named in the tabu list counts only if F falls below
    `aspiration`. Kind -1: no step exists. At most `budget` steps are evaluated.
    """
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    best_f = np.inf
    kind = -1
    one = -1
    two = -1
    limit = sums[5] + budget
    units = unit_at.size - 1
    for unit in range(units):
        t = unit_ops[unit_at[unit]]
        a = where[t]
        size = unit_at[unit + 1] - unit_at[unit]
        for b in range(hosts.shape[0]):
            if b == a or used[b] + size > hosts[b, 1] or sums[5] >= limit:
                continue
            fits = True
            for k in range(unit_at[unit], unit_at[unit + 1]):
                fits = fits and allows(unit_ops[k], b, ops, rule_at, rule_hosts)
                fits = fits and fits_apart(unit_ops[k], b, -1, apart_at, apart, where)
            if not fits:
                continue
            bar = best_f
            for k in range(tabu_ops.size):
                if tabu_ops[k] == t and tabu_hosts[k] == b:
                    bar = min(bar, aspiration)
            if size == 1:
                f = try_move(
                    t, b, bar, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh,
                    starts, finals, where, mark, delay, load, sums, seen, near, pull,
                )
            else:
                sums[5] += 1.0
                for k in range(unit_at[unit], unit_at[unit + 1]):
                    commit(
                        unit_ops[k], b, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends,
                        room, weigh, finals, where, mark, delay, load, used, chain, sums, dirty, seen,
                    )
                f = sums[3]
                for k in range(unit_at[unit], unit_at[unit + 1]):
                    commit(
                        unit_ops[k], a, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends,
                        room, weigh, finals, where, mark, delay, load, used, chain, sums, dirty, seen,
                    )
            if f < bar:
                best_f = f
                kind = 0
                one = t
                two = b
    for unit in range(units):
        if unit_at[unit + 1] - unit_at[unit] > 1:
            continue
        t = unit_ops[unit_at[unit]]
        a = where[t]
        for other in range(unit + 1, units):
            o = unit_ops[unit_at[other]]
            b = where[o]
            if sums[5] >= limit or b == a or unit_at[other + 1] - unit_at[other] > 1:
                continue
            if not allows(t, b, ops, rule_at, rule_hosts) or not allows(o, a, ops, rule_at, rule_hosts):
                continue
            if not fits_apart(t, b, o, apart_at, apart, where) or not fits_apart(o, a, t, apart_at, apart, where):
                continue
            bar = best_f
            for k in range(tabu_ops.size):
                if (tabu_ops[k] == t and tabu_hosts[k] == b) or (tabu_ops[k] == o and tabu_hosts[k] == a):
                    bar = min(bar, aspiration)
            if (
                try_swap(
                    t, o, bar, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh,
                    reach, where, mark, load, sums, seen,
                )
                > bar
            ):
                continue
            commit(
                t, b, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals,
                where, mark, delay, load, used, chain, sums, dirty, seen,
            )
            sums[5] -= 1.0
            f = try_move(
                o, a, bar, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh,
                starts, finals, where, mark, delay, load, sums, seen, near, pull,
            )
            commit(
                t, a, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals,
                where, mark, delay, load, used, chain, sums, dirty, seen,
            )
            if f < bar:
                best_f = f
                kind = 1
                one = t
                two = o
    return best_f, kind, one, two


@njit(f"void({PROBLEM}, {STATE}, int64, int64, int64)", cache=True)
def make_step(problem, state, kind, one, two):
    """Make a step that `best_step` named."""
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    a = where[one]
    b = two if kind == 0 else where[two]
    unit = ops[one, 6]
    for k in range(unit_at[unit], unit_at[unit + 1]):
        commit(
            unit_ops[k], b, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh,
            finals, where, mark, delay, load, used, chain, sums, dirty, seen,
        )
    if kind == 1:
        commit(
            two, a, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals,
            where, mark, delay, load, used, chain, sums, dirty, seen,
        )
