"""Where is an operator best put, given those before it? The compiled loop of greedy placement."""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.place.atoms import allows, delay_of, fits_apart
from headwater.place.kernels import I1, PROBLEM, STATE, U8
from headwater.place.steps import commit, try_move

__all__ = ["construct", "may_move", "saving", "tidy"]


@njit(f"void({PROBLEM}, {STATE}, {U8}, {I1}, int64)", cache=True)
def construct(problem, state, is_floating, extra, width):
    """Place operators in topological order, each where F is least, given where the others are.

    A floating operator stands on a host without taking a slot until its turn comes. Candidates are its
    own host, its neighbours' hosts, the hosts nearest to its writers (about `width`, by links), the
    `extra` ones and, where none of them has room, every host.
    """
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    n = host_at.size
    m = hosts.shape[0]
    for t in range(where.size):
        if is_floating[t]:
            used[where[t]] -= 1
    stamp = np.zeros(n, np.int32)
    is_candidate = np.zeros(m, np.int32)
    queue = np.empty(n, np.int32)
    candidates = np.empty(m, np.int32)
    for t in range(where.size):
        unit = ops[t, 6]
        size = unit_at[unit + 1] - unit_at[unit]
        if unit_ops[unit_at[unit]] != t:
            continue
        found = 0
        a = where[t]
        if not is_floating[t]:
            candidates[0] = a
            is_candidate[a] = t + 1
            found = 1
        for j in range(unit_at[unit], unit_at[unit + 1]):
            o = unit_ops[j]
            for e in range(ops[o, 1], ops[o, 2]):
                h = where[streams[e, 0]]
                if is_candidate[h] != t + 1:
                    is_candidate[h] = t + 1
                    candidates[found] = h
                    found += 1
            for k in range(ops[o, 3], ops[o, 4]):
                h = where[streams[outs[k], 1]]
                if is_candidate[h] != t + 1:
                    is_candidate[h] = t + 1
                    candidates[found] = h
                    found += 1
        for k in range(extra.size):
            if is_candidate[extra[k]] != t + 1:
                is_candidate[extra[k]] = t + 1
                candidates[found] = extra[k]
                found += 1
        centre = hosts[a, 2]
        if ops[t, 2] > ops[t, 1]:
            best_head = -np.inf
            for e in range(ops[t, 1], ops[t, 2]):
                if mark[streams[e, 0], 0] > best_head:
                    best_head = mark[streams[e, 0], 0]
                    centre = hosts[where[streams[e, 0]], 2]
        if ops[t, 5] >= 0 and rule_at[ops[t, 5] + 1] - rule_at[ops[t, 5]] <= 4 * width:
            for k in range(rule_at[ops[t, 5]], rule_at[ops[t, 5] + 1]):
                if is_candidate[rule_hosts[k]] != t + 1:
                    is_candidate[rule_hosts[k]] = t + 1
                    candidates[found] = rule_hosts[k]
                    found += 1
        else:
            queue[0] = centre
            stamp[centre] = t + 1
            filled = 1
            at = 0
            close = 0
            while at < filled and close < width and at < 12 * width:
                v = queue[at]
                at += 1
                h = host_at[v]
                if h >= 0 and is_candidate[h] != t + 1 and used[h] + size <= hosts[h, 1]:
                    is_candidate[h] = t + 1
                    candidates[found] = h
                    found += 1
                    close += 1
                for k in range(start[v], min(start[v + 1], start[v] + 4 * width)):
                    w = towards[leaving[k]]
                    if stamp[w] != t + 1:
                        stamp[w] = t + 1
                        queue[filled] = w
                        filled += 1
        best_f = np.inf
        best = -1
        for attempt in range(2):
            if attempt == 1:
                if best >= 0:
                    break
                found = 0
                for h in range(m):
                    candidates[found] = h
                    found += 1
            for k in range(found):
                h = candidates[k]
                is_here = h == a and not is_floating[t]
                fits = is_here or used[h] + size <= hosts[h, 1]
                for j in range(unit_at[unit], unit_at[unit + 1]):
                    fits = fits and allows(unit_ops[j], h, ops, rule_at, rule_hosts)
                    fits = fits and fits_apart(unit_ops[j], h, -1, apart_at, apart, where)
                if not fits:
                    continue
                f = try_move(
                    t, h, best_f, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room,
                    weigh, starts, finals, where, mark, delay, load, sums, seen, near, pull,
                )
                if f < best_f or best < 0:
                    best_f = f
                    best = h
                if attempt == 1 and m > 4096 and k > 4096:
                    break
        if best < 0:
            continue
        for j in range(unit_at[unit], unit_at[unit + 1]):
            o = unit_ops[j]
            if is_floating[o]:
                used[where[o]] += 1
                is_floating[o] = 0
            commit(
                o, best, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh,
                finals, where, mark, delay, load, used, chain, sums, dirty, seen,
            )


@njit(cache=False)
def saving(t, b, ops, outs, streams, flow, hosts, tree, way, pairs, where):
    """Return how much less traffic there is when t moves to host b."""
    a = where[t]
    less = 0.0
    for e in range(ops[t, 1], ops[t, 2]):
        h = where[streams[e, 0]]
        less += flow[e, 1] * (
            delay_of(h, a, 0.0, hosts, tree, way, pairs) - delay_of(h, b, 0.0, hosts, tree, way, pairs)
        )
    for k in range(ops[t, 3], ops[t, 4]):
        e = outs[k]
        h = where[streams[e, 1]]
        less += flow[e, 1] * (
            delay_of(a, h, 0.0, hosts, tree, way, pairs) - delay_of(b, h, 0.0, hosts, tree, way, pairs)
        )
    return less


@njit(cache=False)
def may_move(t, b, ops, hosts, rule_at, rule_hosts, apart_at, apart, unit_at, where, used):
    """Return whether t by itself may move to host b."""
    return (
        b != where[t]
        and used[b] < hosts[b, 1]
        and unit_at[ops[t, 6] + 1] - unit_at[ops[t, 6]] == 1
        and allows(t, b, ops, rule_at, rule_hosts)
        and fits_apart(t, b, -1, apart_at, apart, where)
    )


@njit(f"float64({PROBLEM}, {STATE}, int64, float64)", cache=True)
def tidy(problem, state, width, limit):
    """Move operators while that saves traffic and F stays within `limit`; return the traffic saved.

    Traffic is bit/s times seconds of latency: what is under way on the links. F often does not tell
    placements apart, because only the longest path counts; among equals less on the network is better.
    Hosts looked at: those of neighbours, and all of them where there are at most `width`; then also moves
    of an operator and one of its neighbours together.
    """
    (ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
     rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    m = hosts.shape[0]
    count = where.size
    is_small = m <= width
    candidates = np.empty(count + width + 1, np.int32)
    total = 0.0
    for _ in range(8):
        saved = 0.0
        for t in range(count):
            found = 0
            if is_small:
                for h in range(m):
                    candidates[found] = h
                    found += 1
            else:
                for e in range(ops[t, 1], ops[t, 2]):
                    candidates[found] = where[streams[e, 0]]
                    found += 1
                for k in range(ops[t, 3], ops[t, 4]):
                    candidates[found] = where[streams[outs[k], 1]]
                    found += 1
            best = -1
            most = 1e-9
            for c in range(found):
                b = candidates[c]
                if not may_move(t, b, ops, hosts, rule_at, rule_hosts, apart_at, apart, unit_at, where, used):
                    continue
                less = saving(t, b, ops, outs, streams, flow, hosts, tree, way, pairs, where)
                if less > most and try_move(
                    t, b, limit, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room,
                    weigh, starts, finals, where, mark, delay, load, sums, seen, near, pull,
                ) <= limit:
                    most = less
                    best = b
            if best >= 0:
                saved += most
                commit(
                    t, best, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room,
                    weigh, finals, where, mark, delay, load, used, chain, sums, dirty, seen,
                )
        if is_small and saved == 0.0:
            for t in range(count):
                a = where[t]
                for b in range(m):
                    if where[t] != a:
                        break
                    if not may_move(t, b, ops, hosts, rule_at, rule_hosts, apart_at, apart, unit_at, where, used):
                        continue
                    less = saving(t, b, ops, outs, streams, flow, hosts, tree, way, pairs, where)
                    commit(
                        t, b, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room,
                        weigh, finals, where, mark, delay, load, used, chain, sums, dirty, seen,
                    )
                    best = -1
                    other = -1
                    most = 1e-9
                    ins = ops[t, 2] - ops[t, 1]
                    for k in range(ins + ops[t, 4] - ops[t, 3]):
                        o = streams[ops[t, 1] + k, 0] if k < ins else streams[outs[ops[t, 3] + k - ins], 1]
                        for h in range(m):
                            if not may_move(
                                o, h, ops, hosts, rule_at, rule_hosts, apart_at, apart, unit_at, where, used
                            ):
                                continue
                            both = less + saving(o, h, ops, outs, streams, flow, hosts, tree, way, pairs, where)
                            if both > most and try_move(
                                o, h, limit, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends,
                                room, weigh, starts, finals, where, mark, delay, load, sums, seen, near, pull,
                            ) <= limit:
                                most = both
                                best = h
                                other = o
                    if best >= 0:
                        saved += most
                        commit(
                            other, best, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends,
                            room, weigh, finals, where, mark, delay, load, used, chain, sums, dirty, seen,
                        )
                    else:
                        commit(
                            t, a, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room,
                            weigh, finals, where, mark, delay, load, used, chain, sums, dirty, seen,
                        )
        total += saved
        if saved == 0.0:
            break
    return total
