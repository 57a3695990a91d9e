"""How is the search run fast? The compiled loops of placement.

Each kernel takes a problem and a state as tuples of arrays (`PROBLEM` and `STATE` give their order) and
unpacks them once; the work is in `place.steps`. Explicit signatures, cached on disk: compiled once.
Chance comes from `seed`, an array of one number, so that the same seed gives the same answer.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.model.chance import chance
from headwater.place.atoms import allows, fits_apart
from headwater.place.steps import commit, refresh, try_move, try_swap

__all__ = ["PROBLEM", "STATE", "fill", "find_critical", "improve", "probe", "wander"]

I1, I2, N1, N2, N3 = "int32[::1]", "int32[:, ::1]", "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]"
U8 = "uint8[::1]"
W1, W2 = "uint64[::1]", "uint64[:, ::1]"
# ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
# rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach
PROBLEM = (
    f"Tuple(({I2},{N2},{I1},{I2},{N2},{I2},{N1},{I2},{N2},{N3},{I2},{I1},{N1},{N1},{I1},{I1},"
    f"{I1},{I1},{I1},{I1},{I1},{I1},{I1},{I1},{I1},{I1},{W2}))"
)
# where, mark, delay, load, used, chain, sums, dirty, seen, near, pull
STATE = f"Tuple(({I1},{N2},{N1},{N2},{I1},{I2},{N1},{W1},{I1},{I1},{N1}))"


@njit(f"void({PROBLEM}, {STATE})", cache=True)
def fill(problem, state):
    """Compute the whole state from the placement in it."""
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    refresh(
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals, where, mark,
        delay, load, used, chain, sums, seen,
    )


@njit(f"float64({PROBLEM}, {STATE}, uint64[::1], int64)", cache=True)
def probe(problem, state, seed, steps):
    """Evaluate random moves exactly, make none of them, and return the mean change of F."""
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    total = 0.0
    for _ in range(steps):
        t = np.int64(chance(seed) * where.size)
        b = np.int64(chance(seed) * hosts.shape[0])
        f = try_move(
            t, b, np.inf, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh,
            starts, finals, where, mark, delay, load, sums, seen, near, pull,
        )
        total += abs(f - sums[3])
    return total / steps


@njit(cache=False)
def wander(vertex, start, leaving, host_at, towards, seed):
    """Return a host a few random links away from a vertex, or -1."""
    v = vertex
    for step in range(8):
        if start[v + 1] == start[v]:
            return -1
        v = towards[leaving[start[v] + np.int64(chance(seed) * (start[v + 1] - start[v]))]]
        if host_at[v] >= 0 and v != vertex and chance(seed) < (0.6 if step > 0 else 0.36):
            return host_at[v]
    return host_at[v]


@njit(cache=False)
def find_critical(ops, streams, outs, finals, starts, work, delay, mark, path):
    """Write the operators of one longest path into `path`, last first; return how many."""
    v = -1
    for k in range(finals.size):
        if v < 0 or mark[finals[k], 0] > mark[v, 0]:
            v = finals[k]
    count = 0
    while v >= 0:
        path[count] = v
        count += 1
        before = -1
        best = work[v, 1]
        for e in range(ops[v, 1], ops[v, 2]):
            u = streams[e, 0]
            if mark[u, 0] + delay[e] > best:
                best = mark[u, 0] + delay[e]
                before = u
        v = before
    return count


@njit(f"float64({PROBLEM}, {STATE}, {I1}, uint64[::1], int64, int64, int64, float64, float64, float64)", cache=True)
def improve(problem, state, best, seed, done, steps, total, hot, cold, best_f):
    """Anneal for `steps` of `total` steps, `done` already made; hot = 0 only descends. Return the best F.

    `best` holds the best placement so far and `best_f` its F; both are kept up to date.
    """
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    count = where.size
    m = hosts.shape[0]
    path = np.empty(count, np.int32)
    critical = 0
    version = -1.0
    commits = 0
    for step in range(done, done + steps):
        heat = 0.0
        if hot > 0.0:
            heat = hot * (cold / hot) ** (step / total)
        if version != sums[4]:
            version = sums[4]
            critical = 0
        t = np.int64(chance(seed) * count)
        if chance(seed) < 0.35 and finals.size > 0 and weigh[0] > 0.0:
            if critical == 0:
                critical = find_critical(ops, streams, outs, finals, starts, work, delay, mark, path)
            if critical > 0:
                t = path[np.int64(chance(seed) * critical)]
        a = where[t]
        degree = ops[t, 2] - ops[t, 1] + ops[t, 4] - ops[t, 3]
        b = -1
        draw = chance(seed)
        if degree > 0 and draw < 0.5:
            k = np.int64(chance(seed) * degree)
            if k < ops[t, 2] - ops[t, 1]:
                o = streams[ops[t, 1] + k, 0]
            else:
                o = streams[outs[ops[t, 3] + k - (ops[t, 2] - ops[t, 1])], 1]
            b = where[o]
            if chance(seed) < 0.5:
                b = wander(hosts[b, 2], start, leaving, host_at, towards, seed)
        elif draw < 0.65:
            b = wander(hosts[a, 2], start, leaving, host_at, towards, seed)
        elif ops[t, 5] < 0:
            b = np.int64(chance(seed) * m)
        if b < 0 or (ops[t, 5] >= 0 and draw >= 0.65):
            if ops[t, 5] < 0:
                b = np.int64(chance(seed) * m)
            else:
                low = rule_at[ops[t, 5]]
                b = rule_hosts[low + np.int64(chance(seed) * (rule_at[ops[t, 5] + 1] - low))]
        if b == a or not allows(t, b, ops, rule_at, rule_hosts):
            continue
        bar = sums[3]
        if heat > 0.0:
            bar -= heat * np.log(1.0 - chance(seed))
        unit = ops[t, 6]
        size = unit_at[unit + 1] - unit_at[unit]
        if size > 1:
            fits = used[b] + size <= hosts[b, 1]
            for k in range(unit_at[unit], unit_at[unit + 1]):
                o = unit_ops[k]
                fits = fits and allows(o, b, ops, rule_at, rule_hosts)
                fits = fits and fits_apart(o, b, -1, apart_at, apart, where)
            if not fits:
                continue
            sums[5] += 1.0
            for k in range(unit_at[unit], unit_at[unit + 1]):
                commit(
                    unit_ops[k], b, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room,
                    weigh, finals, where, mark, delay, load, used, chain, sums, dirty, seen,
                )
            if sums[3] > bar:
                for k in range(unit_at[unit], unit_at[unit + 1]):
                    commit(
                        unit_ops[k], a, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends,
                        room, weigh, finals, where, mark, delay, load, used, chain, sums, dirty, seen,
                    )
                continue
        elif used[b] < hosts[b, 1]:
            if not fits_apart(t, b, -1, apart_at, apart, where):
                continue
            f = try_move(
                t, b, bar, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh,
                starts, finals, where, mark, delay, load, sums, seen, near, pull,
            )
            if f > bar:
                continue
            commit(
                t, b, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals,
                where, mark, delay, load, used, chain, sums, dirty, seen,
            )
        else:
            o = chain[count + b, 0]
            skip = np.int64(chance(seed) * min(used[b], 16))
            while skip > 0 and chain[o, 0] >= 0:
                o = chain[o, 0]
                skip -= 1
            if unit_at[ops[o, 6] + 1] - unit_at[ops[o, 6]] > 1 or not allows(o, a, ops, rule_at, rule_hosts):
                continue
            if not fits_apart(t, b, o, apart_at, apart, where) or not fits_apart(o, a, t, apart_at, apart, where):
                continue
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
            if f > bar:
                commit(
                    t, a, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh,
                    finals, where, mark, delay, load, used, chain, sums, dirty, seen,
                )
                continue
            commit(
                o, a, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals,
                where, mark, delay, load, used, chain, sums, dirty, seen,
            )
        commits += 1
        if commits % 50000 == 0:  # sums drift by rounding
            refresh(
                ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals, where,
                mark, delay, load, used, chain, sums, seen,
            )
        if sums[3] < best_f - 1e-13:
            best_f = sums[3]
            best[:] = where
    return best_f
