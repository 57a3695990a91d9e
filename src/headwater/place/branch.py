"""Is there anything better? A branch and bound over where units go, for networks with a table of pairs.

Notation: D(u) the hosts still open to unit u. For operator v on host x, head(v, x) and tail(v, x) are
bounds from below on the longest path that ends or starts there: each stream takes the best host of its
other end by itself, so that an operator may stand in two places for two readers; that is the
relaxation, together with slots, of which only two neighbours on one host are counted. Then

    bound(v, x) = w_rt * (head + tail - processing) + w_rf * (least RF of the others + its own)
                + w_bw * (BW of the streams whose two ends are settled) + constant

A host whose bound is not below the best F known leaves D(u), until nothing changes; then the unit with
the fewest hosts left is settled on each of them in turn, most promising first. Hosts that are twins
and still empty are tried once. Depth first; the least bound among what is still open holds for all.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.place.kernels import I1, PROBLEM, STATE
from headwater.place.steps import refresh, settle, walk

__all__ = ["branch", "joined", "relax", "same_site_fits"]

TINY = 1e-12  # what a bound may be wrong by through rounding


@njit(cache=False)
def same_site_fits(u, v, x, ops, hosts, apart_at, apart, unit_at, settled, taken):
    """Return whether the units of two operators may both stand on host x, as far as slots and apart tell."""
    one = ops[u, 6]
    two = ops[v, 6]
    if one == two:
        return True
    for k in range(apart_at[u], apart_at[u + 1]):
        if apart[k] == v:
            return False
    more = 0
    if settled[one] < 0:
        more += unit_at[one + 1] - unit_at[one]
    if settled[two] < 0:
        more += unit_at[two + 1] - unit_at[two]
    return taken[x] + more <= hosts[x, 1]


@njit(cache=False)
def joined(head, tail, own):
    """Return the length of a path from its two halves; infinite where one half has no way at all."""
    if max(head, tail) == np.inf:
        return np.inf
    return head + tail - own


@njit(cache=False)
def relax(
    ops, work, outs, streams, flow, hosts, pace, pairs, apart_at, apart, unit_at, settled, taken, size, open_at, head,
    tail,
):
    """Fill head and tail for the hosts that are open to each operator's unit."""
    count = ops.shape[0]
    for v in range(count):
        uv = ops[v, 6]
        for j in range(size[uv]):
            x = open_at[uv, j]
            best = work[v, 1]
            for e in range(ops[v, 1], ops[v, 2]):
                u = streams[e, 0]
                uu = ops[u, 6]
                least = np.inf
                s = flow[e, 0]
                for i in range(size[uu]):
                    y = open_at[uu, i]
                    way = head[u, i] + pairs[y, x, 0] + s * pairs[y, x, 1]
                    if (
                        way < least
                        and (y != x or same_site_fits(u, v, x, ops, hosts, apart_at, apart, unit_at, settled, taken))
                        and (uu != uv or y == x)
                    ):
                        least = way
                best = max(best, least)
            head[v, j] = best + work[v, 0] * pace[x]
    for v in range(count - 1, -1, -1):
        uv = ops[v, 6]
        for j in range(size[uv]):
            x = open_at[uv, j]
            best = work[v, 2]
            for k in range(ops[v, 3], ops[v, 4]):
                e = outs[k]
                w = streams[e, 1]
                uw = ops[w, 6]
                least = np.inf
                s = flow[e, 0]
                for i in range(size[uw]):
                    y = open_at[uw, i]
                    way = tail[w, i] + pairs[x, y, 0] + s * pairs[x, y, 1]
                    if (
                        way < least
                        and (y != x or same_site_fits(v, w, x, ops, hosts, apart_at, apart, unit_at, settled, taken))
                        and (uw != uv or y == x)
                    ):
                        least = way
                best = max(best, least)
            tail[v, j] = best + work[v, 0] * pace[x]


@njit(
    f"Tuple((float64, float64, int64))({PROBLEM}, {STATE}, {I1}, {I1}, {I1}, {I1}, float64, float64, int64)", cache=True
)
def branch(problem, state, first_at, first_hosts, twin, best, best_f, floor, most):
    """Search below `best_f`; return (best F, proven bound, what is left of `most` pairs of hosts; -1: cut off).

    `first_at` and `first_hosts` are the hosts open to each unit, `twin` gives hosts that can stand for
    each other the same number, `floor` is a bound known already. `best` is replaced when something
    better is found. The bound is F itself when the search ended by itself.
    """
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    where, mark, delay, load, used, chain, sums, dirty, seen, near, pull = state
    count = ops.shape[0]
    units = unit_at.size - 1
    m = hosts.shape[0]
    size = np.zeros((units + 1, units), np.int32)
    widest = 0
    for u in range(units):
        widest = max(widest, first_at[u + 1] - first_at[u])
    open_at = np.zeros((units + 1, units, widest), np.int32)
    for u in range(units):
        size[0, u] = first_at[u + 1] - first_at[u]
        for k in range(size[0, u]):
            open_at[0, u, k] = first_hosts[first_at[u] + k]
    head = np.zeros((count, widest))
    tail = np.zeros((count, widest))
    bound = np.zeros((units, widest))
    settled = np.full(units, -1, np.int32)
    taken = np.zeros(m, np.int32)
    least_rf = np.zeros(units)
    # one entry for each level of the tree: which unit is branched on, its hosts in order, the bounds
    unit_of = np.full(units + 1, -1, np.int32)
    choice = np.zeros((units + 1, widest), np.int32)
    promise = np.zeros((units + 1, widest))
    choices = np.zeros(units + 1, np.int32)
    at = np.zeros(units + 1, np.int32)
    node_bound = np.zeros(units + 1)
    tried = np.zeros(m, np.int32)
    depth = 0
    node_bound[0] = floor
    is_new = True
    left = most
    is_cut = False
    while depth >= 0:
        if is_new:
            left -= 1
            if left < 0:
                is_cut = True
                break
            # settle what has one host left, count slots, cut full hosts, bound, cut; until nothing changes
            is_dead = False
            rounds = 0
            is_changed = True
            lower = node_bound[depth]
            while is_changed and not is_dead:
                is_changed = False
                rounds += 1
                taken[:] = 0
                for u in range(units):
                    settled[u] = open_at[depth, u, 0] if size[depth, u] == 1 else -1
                    if settled[u] >= 0:
                        taken[settled[u]] += unit_at[u + 1] - unit_at[u]
                for u in range(units):
                    if settled[u] >= 0:
                        if taken[settled[u]] > hosts[settled[u], 1]:
                            is_dead = True
                        for k in range(unit_at[u], unit_at[u + 1]):
                            o = unit_ops[k]
                            for j in range(apart_at[o], apart_at[o + 1]):
                                if settled[ops[apart[j], 6]] == settled[u]:
                                    is_dead = True
                        continue
                    kept = 0
                    for j in range(size[depth, u]):
                        x = open_at[depth, u, j]
                        fits = taken[x] + unit_at[u + 1] - unit_at[u] <= hosts[x, 1]
                        for k in range(unit_at[u], unit_at[u + 1]):
                            o = unit_ops[k]
                            for i in range(apart_at[o], apart_at[o + 1]):
                                if settled[ops[apart[i], 6]] == x:
                                    fits = False
                        if fits:
                            open_at[depth, u, kept] = x
                            kept += 1
                    if kept < size[depth, u]:
                        size[depth, u] = kept
                        is_changed = True
                        if kept == 0:
                            is_dead = True
                if is_dead:
                    break
                if is_changed:
                    continue
                left -= 300 * streams.shape[0]  # routes of settled streams and copies of what is open
                for e in range(streams.shape[0]):
                    left -= 2 * np.int64(size[depth, ops[streams[e, 0], 6]]) * size[depth, ops[streams[e, 1], 6]]
                relax(
                    ops, work, outs, streams, flow, hosts, pace, pairs, apart_at, apart, unit_at, settled, taken,
                    size[depth], open_at[depth], head, tail,
                )
                rf = 0.0
                for u in range(units):
                    least_rf[u] = np.inf
                    for j in range(size[depth, u]):
                        short = 0.0
                        for k in range(unit_at[u], unit_at[u + 1]):
                            short += max(0, ops[unit_ops[k], 0] - hosts[open_at[depth, u, j], 0])
                        least_rf[u] = min(least_rf[u], short)
                    rf += least_rf[u]
                bw = 0.0
                if weigh[2] > 0.0:
                    seen[0] = 0
                    for e in range(streams.shape[0]):
                        a = settled[ops[streams[e, 0], 6]]
                        b = settled[ops[streams[e, 1], 6]]
                        if a >= 0 and b >= 0 and a != b and flow[e, 1] > 0.0:
                            walk(a, b, flow[e, 1], hosts, tree, last, ends, load, seen)
                    load[:, 0] = 0.0
                    bw = settle(False, room, load, seen)
                rest = weigh[1] * rf + weigh[2] * bw + weigh[3]
                rt = 0.0
                for v in range(count):
                    u = ops[v, 6]
                    least = np.inf
                    for j in range(size[depth, u]):
                        x = open_at[depth, u, j]
                        least = min(least, joined(head[v, j], tail[v, j], work[v, 0] * pace[x]))
                    rt = max(rt, least)
                lower = max(lower, weigh[0] * rt + rest)
                if lower >= best_f - TINY:
                    is_dead = True
                    break
                removed = 0
                for u in range(units):
                    if size[depth, u] == 1:
                        bound[u, 0] = lower
                        continue
                    kept = 0
                    for j in range(size[depth, u]):
                        x = open_at[depth, u, j]
                        longest = rt
                        short = 0.0
                        for k in range(unit_at[u], unit_at[u + 1]):
                            o = unit_ops[k]
                            longest = max(longest, joined(head[o, j], tail[o, j], work[o, 0] * pace[x]))
                            short += max(0, ops[o, 0] - hosts[x, 0])
                        value = max(lower, weigh[0] * longest + rest + weigh[1] * (short - least_rf[u]))
                        if value < best_f - TINY:
                            open_at[depth, u, kept] = x
                            bound[u, kept] = value
                            kept += 1
                    removed += size[depth, u] - kept
                    size[depth, u] = kept
                    if kept == 0:
                        is_dead = True
                if removed > 0:
                    is_changed = True
            node_bound[depth] = lower
            if is_dead:
                depth -= 1
                is_new = False
                continue
            pick = -1
            for u in range(units):
                if size[depth, u] > 1 and (pick < 0 or size[depth, u] < size[depth, pick]):
                    pick = u
            if pick < 0:
                for u in range(units):
                    for k in range(unit_at[u], unit_at[u + 1]):
                        where[unit_ops[k]] = open_at[depth, u, 0]
                refresh(
                    ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals,
                    where, mark, delay, load, used, chain, sums, seen,
                )
                sums[5] += 1.0
                if sums[3] < best_f - TINY:
                    best_f = sums[3]
                    best[:] = where
                depth -= 1
                is_new = False
                continue
            unit_of[depth] = pick
            at[depth] = 0
            order = np.argsort(bound[pick, : size[depth, pick]], kind="mergesort")
            listed = 0
            tried[:] = 0
            for j in range(order.size):
                x = open_at[depth, pick, order[j]]
                if taken[x] == 0:
                    if tried[twin[x]]:
                        continue
                    tried[twin[x]] = 1
                choice[depth, listed] = x
                promise[depth, listed] = bound[pick, order[j]]
                listed += 1
            choices[depth] = listed
            is_new = False
        if at[depth] >= choices[depth] or promise[depth, at[depth]] >= best_f - TINY:
            depth -= 1
            continue
        x = choice[depth, at[depth]]
        size[depth + 1] = size[depth]
        for u in range(units):
            for j in range(size[depth, u]):
                open_at[depth + 1, u, j] = open_at[depth, u, j]
        size[depth + 1, unit_of[depth]] = 1
        open_at[depth + 1, unit_of[depth], 0] = x
        node_bound[depth + 1] = promise[depth, at[depth]]
        at[depth] += 1
        depth += 1
        is_new = True
    lower = best_f
    if is_cut:  # cut off: what is still open, and the node that was not looked at
        lower = min(lower, node_bound[depth])
        for d in range(depth):
            if at[d] < choices[d]:
                lower = min(lower, promise[d, at[d]])
    return best_f, max(lower, floor), np.int64(-1) if is_cut else max(left, 0)
