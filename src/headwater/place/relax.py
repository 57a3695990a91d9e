"""How short could the longest path be? The compiled part of the lower bound.

For operator v on host x, head(v, x) = processing + max over its streams (u, v) of
min over y of head(u, y) + delay(y, x). Each stream takes the best host of its writer by itself, so this
is never more than the true head; the largest over the sinks of the least over their hosts bounds RT
from below. On a tree the inner minimum for all x at once is two passes over the vertices; on a graph
it is a scan of the table of pairs. A host with a single slot never holds both ends of a stream.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.place.kernels import N1, PROBLEM, U8

__all__ = ["insert", "relax"]


@njit(cache=False)
def insert(v, value, origin, one, two, from_one, from_two):
    """Offer a value to the two least values of a vertex, which have different origins."""
    if origin == from_one[v]:
        if value < one[v]:
            one[v] = value
        return
    if value < one[v]:
        two[v] = one[v]
        from_two[v] = from_one[v]
        one[v] = value
        from_one[v] = origin
    elif value < two[v]:
        two[v] = value
        from_two[v] = origin


@njit(f"float64({PROBLEM}, {N1}, {N1}, {U8}, int64)", cache=True)
def relax(problem, up_lat, up_inv, is_alone, live):
    """Return a bound from below on RT; `is_alone` marks hosts with one slot, `live` is how many heads wait at once."""
    (
        ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, starts, finals,
        rule_at, rule_hosts, apart_at, apart, unit_at, unit_ops, start, leaving, host_at, towards, reach,
    ) = problem
    count = ops.shape[0]
    m = hosts.shape[0]
    n = host_at.size
    is_tree = tree.shape[0] > 0
    any_alone = False
    for x in range(m):
        any_alone = any_alone or is_alone[x] == 1
    waiting = np.empty((live + 1, m))
    slot = np.full(count, -1, np.int32)
    free = np.arange(live + 1).astype(np.int32)
    top = live + 1
    head = np.empty(m)
    one = np.empty(n)
    two = np.empty(n)
    from_one = np.empty(n, np.int32)
    from_two = np.empty(n, np.int32)
    reach = np.empty(m)
    rt = 0.0
    for v in range(count):
        rule = ops[v, 5]
        if rule < 0:
            for x in range(m):
                before = work[v, 1]
                if slot[v] >= 0:
                    before = max(before, waiting[slot[v], x])
                head[x] = before + work[v, 0] * pace[x]
        else:
            head[:] = np.inf
            for k in range(rule_at[rule], rule_at[rule + 1]):
                x = rule_hosts[k]
                before = work[v, 1]
                if slot[v] >= 0:
                    before = max(before, waiting[slot[v], x])
                head[x] = before + work[v, 0] * pace[x]
        if slot[v] >= 0:
            free[top] = slot[v]
            top += 1
        if work[v, 2] == 0.0:
            least = np.inf
            for x in range(m):
                least = min(least, head[x])
            rt = max(rt, least)
        size = -1.0
        is_join = False
        for k in range(ops[v, 3], ops[v, 4]):
            e = outs[k]
            w = streams[e, 1]
            is_one_unit = ops[v, 6] == ops[w, 6]
            if flow[e, 0] != size or is_one_unit or is_join:
                size = flow[e, 0]
                is_join = is_one_unit
                if is_one_unit:
                    reach[:] = head
                elif not is_tree:
                    for x in range(m):
                        least = np.inf
                        for y in range(m):
                            way_yx = head[y] + pairs[y, x, 0] + size * pairs[y, x, 1]
                            if way_yx < least and (y != x or is_alone[x] == 0):
                                least = way_yx
                        reach[x] = least
                elif any_alone:
                    one[:] = np.inf
                    two[:] = np.inf
                    from_one[:] = -1
                    from_two[:] = -2
                    for x in range(m):
                        one[hosts[x, 2]] = head[x]
                        from_one[hosts[x, 2]] = x
                    for z in range(n - 1, 0, -1):
                        step = up_lat[z] + size * up_inv[z]
                        insert(tree[z, 0], one[z] + step, from_one[z], one, two, from_one, from_two)
                        insert(tree[z, 0], two[z] + step, from_two[z], one, two, from_one, from_two)
                    for z in range(1, n):
                        p = tree[z, 0]
                        step = up_lat[z] + size * up_inv[z]
                        insert(z, one[p] + step, from_one[p], one, two, from_one, from_two)
                        insert(z, two[p] + step, from_two[p], one, two, from_one, from_two)
                    for x in range(m):
                        z = hosts[x, 2]
                        reach[x] = two[z] if is_alone[x] == 1 and from_one[z] == x else one[z]
                else:
                    one[:] = np.inf
                    for x in range(m):
                        one[hosts[x, 2]] = head[x]
                    for z in range(n - 1, 0, -1):
                        step = one[z] + up_lat[z] + size * up_inv[z]
                        if step < one[tree[z, 0]]:
                            one[tree[z, 0]] = step
                    for z in range(1, n):
                        step = one[tree[z, 0]] + up_lat[z] + size * up_inv[z]
                        if step < one[z]:
                            one[z] = step
                    for x in range(m):
                        reach[x] = one[hosts[x, 2]]
            if slot[w] < 0:
                top -= 1
                slot[w] = free[top]
                for x in range(m):
                    waiting[slot[w], x] = reach[x]
            else:
                for x in range(m):
                    if reach[x] > waiting[slot[w], x]:
                        waiting[slot[w], x] = reach[x]
    return rt
