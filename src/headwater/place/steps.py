"""What does F become when one operator moves? The inner functions of the search kernels.

Notation: operator t moves from host a to host b; head[v] is the longest path that ends in v, tail[v]
the longest that starts in v, both with v's own processing. A path through t is as long as the best
head before it plus its processing plus the best tail after it; a path that avoids t jumps over its
place in topological order by one stream, so one scan of the streams finds the longest of those, and
only where t is critical. On a tree a move changes the load only of links between a and b.

State of a search: `where` (N,) host of each operator; `mark` (N, 4) head, tail, longest path avoiding
it and the version for which that holds; `delay` (E,); `load` (2L, 3) bit/s and two columns of scratch; `used` (M,)
slots taken; `chain` (N + M, 2) operators of a host as a list; `sums` (6,) RT, RF, BW, F, version,
evaluations. `dirty`, a bit for each operator, and `seen` (2L + 1,) are scratch, as are
`near` and `pull`, an entry for each stream of one operator.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from headwater.place.atoms import ONE, ZERO, delay_of, highest_bit, link_in, lowest_bit, note_dirty, over

__all__ = [
    "commit",
    "longest_avoiding",
    "near_change",
    "refresh",
    "settle",
    "shift",
    "through",
    "try_move",
    "try_swap",
    "walk",
]


@njit(cache=False)
def walk(a, b, amount, hosts, tree, last, ends, load, seen):
    """Add an amount to the scratch column of every direction on the route from host a to host b; note them in seen."""
    if a == b:
        return
    if last.shape[0] == 0:
        x = hosts[a, 2]
        y = hosts[b, 2]
        z = x
        while z > y or y >= tree[z, 1]:
            code = tree[z, 2]
            if load[code, 2] == 0.0:
                load[code, 2] = 1.0
                seen[0] += 1
                seen[seen[0]] = code
            load[code, 1] += amount
            z = tree[z, 0]
        while y != z:
            code = tree[y, 2] ^ 1
            if load[code, 2] == 0.0:
                load[code, 2] = 1.0
                seen[0] += 1
                seen[seen[0]] = code
            load[code, 1] += amount
            y = tree[y, 0]
        return
    low = min(a, b)
    turn = 0 if a < b else 1
    v = hosts[max(a, b), 2]
    stop = hosts[low, 2]
    while v != stop:
        code = last[low, v]
        v = ends[code]
        code ^= turn
        if load[code, 2] == 0.0:
            load[code, 2] = 1.0
            seen[0] += 1
            seen[seen[0]] = code
        load[code, 1] += amount


@njit(cache=False)
def settle(is_real, room, load, seen):
    """Return the change of BW that the scratch column means, and clear it; with `is_real` make it so."""
    change = 0.0
    for k in range(1, seen[0] + 1):
        code = seen[k]
        change += over(load[code, 0] + load[code, 1], room[code]) - over(load[code, 0], room[code])
        if is_real:
            load[code, 0] += load[code, 1]
        load[code, 1] = 0.0
        load[code, 2] = 0.0
    seen[0] = 0
    return change


@njit(cache=False)
def shift(t, a, b, ops, outs, streams, flow, hosts, tree, last, ends, where, load, seen):
    """Note in the scratch column what the move of t from host a to host b means for every direction."""
    for e in range(ops[t, 1], ops[t, 2]):
        if flow[e, 1] > 0.0:
            u = where[streams[e, 0]]
            walk(u, a, -flow[e, 1], hosts, tree, last, ends, load, seen)
            walk(u, b, flow[e, 1], hosts, tree, last, ends, load, seen)
    for k in range(ops[t, 3], ops[t, 4]):
        e = outs[k]
        if flow[e, 1] > 0.0:
            v = where[streams[e, 1]]
            walk(a, v, -flow[e, 1], hosts, tree, last, ends, load, seen)
            walk(b, v, flow[e, 1], hosts, tree, last, ends, load, seen)


@njit(cache=False)
def longest_avoiding(t, streams, starts, finals, delay, mark, sums):
    """Return the longest path that does not pass t, remembered until something moves."""
    if mark[t, 3] == sums[4]:
        return mark[t, 2]
    best = -np.inf
    for e in range(streams.shape[0] - 1, -1, -1):
        if streams[e, 1] <= t:  # streams are sorted by reader
            break
        if streams[e, 0] < t:
            path = mark[streams[e, 0], 0] + delay[e] + mark[streams[e, 1], 1]
            best = max(best, path)
    for k in range(starts.size):
        if starts[k] > t:
            best = max(best, mark[starts[k], 1])
    for k in range(finals.size):
        if finals[k] < t:
            best = max(best, mark[finals[k], 0])
    mark[t, 2] = best
    mark[t, 3] = sums[4]
    return best


@njit(cache=False)
def through(t, b, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, where, mark):
    """Return the longest path through t if it stood on host b and nothing else moved."""
    before = work[t, 1]
    for e in range(ops[t, 1], ops[t, 2]):
        u = streams[e, 0]
        before = max(before, mark[u, 0] + delay_of(where[u], b, flow[e, 0], hosts, tree, way, pairs))
    after = work[t, 2]
    for k in range(ops[t, 3], ops[t, 4]):
        e = outs[k]
        v = streams[e, 1]
        after = max(after, mark[v, 1] + delay_of(b, where[v], flow[e, 0], hosts, tree, way, pairs))
    return before + work[t, 0] * pace[b] + after


@njit(cache=False)
def near_change(x, y, sign, count, tree, room, load, near, pull):
    """Return the change of BW on the links from vertex x up to where y is below; sign 1: t leaves, -1: t arrives.

    `near` holds the vertices of the `count` operators around t, `pull` the bit/s of each: from a writer
    above 0, to a reader below 0.
    """
    change = 0.0
    z = x
    while z > y or y >= tree[z, 1]:
        end = tree[z, 1]
        rise = 0.0
        fall = 0.0
        for k in range(count):
            if (z <= near[k] < end) == (pull[k] > 0.0):
                rise += pull[k]
            else:
                fall -= pull[k]
        up = tree[z, 2]
        down = up ^ 1
        change += over(load[up, 0] + sign * rise, room[up]) - over(load[up, 0], room[up])
        change += over(load[down, 0] + sign * fall, room[down]) - over(load[down, 0], room[down])
        z = tree[z, 0]
    return change


@njit(cache=False)
def try_move(
    t, b, bar, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh,
    starts, finals, where, mark, delay, load, sums, seen, near, pull,
):
    """Return F after t moved to host b, or something above `bar` as soon as it is certain that F is above it."""
    sums[5] += 1.0
    a = where[t]
    if a == b:
        return sums[3]
    need = ops[t, 0]
    rf = sums[1] + max(0, need - hosts[b, 0]) - max(0, need - hosts[a, 0])
    rest = weigh[1] * rf + weigh[3]
    y = hosts[b, 2]
    is_tabled = pairs.shape[0] > 0
    count = 0
    before = work[t, 1]
    for e in range(ops[t, 1], ops[t, 2]):
        u = streams[e, 0]
        h = where[u]
        x = hosts[h, 2]
        near[count] = x
        pull[count] = flow[e, 1]
        count += 1
        size = flow[e, 0]
        if h == b:
            took = 0.0
        elif is_tabled:
            took = pairs[h, b, 0] + size * pairs[h, b, 1]
        else:
            z = y
            while z > x or x >= tree[z, 1]:
                z = tree[z, 0]
            took = way[x, 0] + way[y, 0] - 2.0 * way[z, 0] + size * (way[x, 1] + way[y, 1] - 2.0 * way[z, 1])
        before = max(before, mark[u, 0] + took)
    after = work[t, 2]
    for k in range(ops[t, 3], ops[t, 4]):
        e = outs[k]
        v = streams[e, 1]
        h = where[v]
        x = hosts[h, 2]
        near[count] = x
        pull[count] = -flow[e, 1]
        count += 1
        size = flow[e, 0]
        if h == b:
            took = 0.0
        elif is_tabled:
            took = pairs[b, h, 0] + size * pairs[b, h, 1]
        else:
            z = y
            while z > x or x >= tree[z, 1]:
                z = tree[z, 0]
            took = way[x, 0] + way[y, 0] - 2.0 * way[z, 0] + size * (way[x, 1] + way[y, 1] - 2.0 * way[z, 1])
        after = max(after, mark[v, 1] + took)
    rt = before + work[t, 0] * pace[b] + after
    if weigh[0] * rt + rest > bar:
        return weigh[0] * rt + rest
    if mark[t, 0] + mark[t, 1] - work[t, 0] * pace[a] < sums[0] * (1.0 - 1e-12):
        rt = max(rt, sums[0])
    else:
        rt = max(rt, longest_avoiding(t, streams, starts, finals, delay, mark, sums))
    f = weigh[0] * rt + rest
    if weigh[2] > 0.0 and f <= bar:
        if last.shape[0] == 0:
            x = hosts[a, 2]
            change = near_change(x, y, 1.0, count, tree, room, load, near, pull)
            change += near_change(y, x, -1.0, count, tree, room, load, near, pull)
        else:
            shift(t, a, b, ops, outs, streams, flow, hosts, tree, last, ends, where, load, seen)
            change = settle(False, room, load, seen)
        f += weigh[2] * max(0.0, sums[2] + change)
    return f


@njit(cache=False)
def try_swap(
    t, o, bar, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, reach, where,
    mark, load, sums, seen,
):
    """Return a bound from below on F after t and o have exchanged hosts, cheap enough to sort out most swaps.

    Where neither is critical RT does not fall. Where no path passes both, paths through each of them
    are known exactly. BW is exact unless one reads the other; then it is taken as nothing.
    """
    sums[5] += 1.0
    a = where[t]
    b = where[o]
    rf = sums[1] + max(0, ops[t, 0] - hosts[b, 0]) - max(0, ops[t, 0] - hosts[a, 0])
    rf += max(0, ops[o, 0] - hosts[a, 0]) - max(0, ops[o, 0] - hosts[b, 0])
    rest = weigh[1] * rf + weigh[3]
    line = sums[0] * (1.0 - 1e-12)
    rt = 0.0
    if mark[t, 0] + mark[t, 1] - work[t, 0] * pace[a] < line and mark[o, 0] + mark[o, 1] - work[o, 0] * pace[b] < line:
        rt = sums[0]
    low = min(t, o)
    high = max(t, o)
    if weigh[0] * rt + rest <= bar and reach.shape[0] > 0 and not (reach[low, high >> 6] >> np.uint64(high & 63)) & ONE:
        rt = max(rt, through(t, b, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, where, mark))
        rt = max(rt, through(o, a, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, where, mark))
    f = weigh[0] * rt + rest
    if weigh[2] > 0.0 and f <= bar:
        for e in range(ops[high, 1], ops[high, 2]):
            if streams[e, 0] == low:
                return f
        shift(t, a, b, ops, outs, streams, flow, hosts, tree, last, ends, where, load, seen)
        shift(o, b, a, ops, outs, streams, flow, hosts, tree, last, ends, where, load, seen)
        f += weigh[2] * max(0.0, sums[2] + settle(False, room, load, seen))
    return f


@njit(cache=False)
def commit(
    t, b, ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals, where, mark,
    delay, load, used, chain, sums, dirty, seen,
):
    """Move t to host b and bring every sum and label up to date."""
    a = where[t]
    if a == b:
        return
    count = where.size
    if weigh[2] > 0.0:
        shift(t, a, b, ops, outs, streams, flow, hosts, tree, last, ends, where, load, seen)
        sums[2] += settle(True, room, load, seen)
        if sums[2] < 1e-9:
            sums[2] = max(0.0, sums[2])
    need = ops[t, 0]
    sums[1] += max(0, need - hosts[b, 0]) - max(0, need - hosts[a, 0])
    where[t] = b
    used[a] -= 1
    used[b] += 1
    follower = chain[t, 0]
    leader = chain[t, 1]
    chain[leader, 0] = follower
    if follower >= 0:
        chain[follower, 1] = leader
    link_in(t, b, chain, count)
    for e in range(ops[t, 1], ops[t, 2]):
        delay[e] = delay_of(where[streams[e, 0]], b, flow[e, 0], hosts, tree, way, pairs)
    for k in range(ops[t, 3], ops[t, 4]):
        e = outs[k]
        delay[e] = delay_of(b, where[streams[e, 1]], flow[e, 0], hosts, tree, way, pairs)
    note_dirty(t, dirty)
    top = t >> 6
    for k in range(ops[t, 3], ops[t, 4]):
        v = streams[outs[k], 1]
        note_dirty(v, dirty)
        top = max(top, v >> 6)
    word = t >> 6
    while word <= top:
        while dirty[word] != ZERO:
            v = (word << 6) + lowest_bit(dirty[word])
            dirty[word] &= dirty[word] - ONE
            head = work[v, 1]
            for e in range(ops[v, 1], ops[v, 2]):
                head = max(head, mark[streams[e, 0], 0] + delay[e])
            head += work[v, 0] * pace[where[v]]
            if head != mark[v, 0]:
                mark[v, 0] = head
                for k in range(ops[v, 3], ops[v, 4]):
                    w = streams[outs[k], 1]
                    note_dirty(w, dirty)
                    top = max(top, w >> 6)
        word += 1
    note_dirty(t, dirty)
    bottom = t >> 6
    for e in range(ops[t, 1], ops[t, 2]):
        u = streams[e, 0]
        note_dirty(u, dirty)
        bottom = min(bottom, u >> 6)
    word = t >> 6
    while word >= bottom:
        while dirty[word] != ZERO:
            bit = highest_bit(dirty[word])
            v = (word << 6) + bit
            dirty[word] ^= ONE << np.uint64(bit)
            tail = work[v, 2]
            for k in range(ops[v, 3], ops[v, 4]):
                e = outs[k]
                tail = max(tail, mark[streams[e, 1], 1] + delay[e])
            tail += work[v, 0] * pace[where[v]]
            if tail != mark[v, 1]:
                mark[v, 1] = tail
                for e in range(ops[v, 1], ops[v, 2]):
                    u = streams[e, 0]
                    note_dirty(u, dirty)
                    bottom = min(bottom, u >> 6)
        word -= 1
    rt = 0.0
    for k in range(finals.size):
        rt = max(rt, mark[finals[k], 0])
    sums[0] = rt
    sums[3] = weigh[0] * rt + weigh[1] * sums[1] + weigh[2] * sums[2] + weigh[3]
    sums[4] += 1.0


@njit(cache=False)
def refresh(
    ops, work, outs, streams, flow, hosts, pace, tree, way, pairs, last, ends, room, weigh, finals, where, mark,
    delay, load, used, chain, sums, seen,
):
    """Compute the whole state from `where`, all over again."""
    count = where.size
    used[:] = 0
    chain[:] = -1
    sums[1] = 0.0
    for t in range(count):
        used[where[t]] += 1
        link_in(t, where[t], chain, count)
        sums[1] += max(0, ops[t, 0] - hosts[where[t], 0])
    sums[2] = 0.0
    load[:] = 0.0
    seen[0] = 0
    if weigh[2] > 0.0:
        for e in range(streams.shape[0]):
            if flow[e, 1] > 0.0:
                walk(where[streams[e, 0]], where[streams[e, 1]], flow[e, 1], hosts, tree, last, ends, load, seen)
        sums[2] = settle(True, room, load, seen)
    for t in range(count):
        head = work[t, 1]
        for e in range(ops[t, 1], ops[t, 2]):
            u = streams[e, 0]
            delay[e] = delay_of(where[u], where[t], flow[e, 0], hosts, tree, way, pairs)
            head = max(head, mark[u, 0] + delay[e])
        mark[t, 0] = head + work[t, 0] * pace[where[t]]
    for t in range(count - 1, -1, -1):
        tail = work[t, 2]
        for k in range(ops[t, 3], ops[t, 4]):
            e = outs[k]
            tail = max(tail, mark[streams[e, 1], 1] + delay[e])
        mark[t, 1] = tail + work[t, 0] * pace[where[t]]
    rt = 0.0
    for k in range(finals.size):
        rt = max(rt, mark[finals[k], 0])
    sums[0] = rt
    sums[3] = weigh[0] * rt + weigh[1] * sums[1] + weigh[2] * sums[2] + weigh[3]
    sums[4] += 1.0
