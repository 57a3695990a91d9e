"""How do routes run? The compiled loops behind `model.routes`.

Few kernels with explicit signatures, cached on disk. A direction code names one direction of a link:
`2 * link` runs from its first end to its second, `2 * link + 1` back; `code ^ 1` turns round.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["graph_row", "tree_farthest", "tree_order"]


@njit(
    "Tuple((int32[::1], int32[:, ::1], float64[:, ::1]))(int64, int64, int32[::1], int32[::1], float64[::1], "
    "float64[::1])",
    cache=True,
)
def tree_order(n, root, ends, towards, lat, inv):
    """Return vertex numbers in preorder (-1: not reached), and parent, subtree end, up code, depth, way up for each.

    `ends[code]` and `towards[code]` are the sites where a direction starts and arrives. Vertices are
    numbered in preorder, so that the subtree of v is the range v <= x < end(v).
    """
    start = np.zeros(n + 1, np.int32)
    for code in range(ends.size):
        start[ends[code] + 1] += 1
    for site in range(n):
        start[site + 1] += start[site]
    fill = start[:n].copy()
    out = np.empty(ends.size, np.int32)
    for code in range(ends.size):
        out[fill[ends[code]]] = code
        fill[ends[code]] += 1
    vertex = np.full(n, -1, np.int32)
    table = np.zeros((n, 4), np.int32)
    way = np.zeros((n, 2), np.float64)
    stack = np.empty(n, np.int32)
    via = np.full(n, -1, np.int32)
    stack[0] = root
    top = 1
    count = 0
    while top > 0:
        top -= 1
        site = stack[top]
        v = count
        count += 1
        vertex[site] = v
        code = via[site]
        if code < 0:
            table[v, 0] = -1
            table[v, 2] = -1
        else:
            p = vertex[ends[code]]
            table[v, 0] = p
            table[v, 2] = code ^ 1
            table[v, 3] = table[p, 3] + 1
            way[v, 0] = way[p, 0] + lat[code // 2]
            way[v, 1] = way[p, 1] + inv[code // 2]
        for k in range(start[site + 1] - 1, start[site] - 1, -1):
            code = out[k]
            if towards[code] == root or via[towards[code]] >= 0:  # met before: the way back, or a ring
                continue
            via[towards[code]] = code
            stack[top] = towards[code]
            top += 1
    for v in range(n):
        table[v, 1] = v + 1
    for v in range(n - 1, 0, -1):
        p = table[v, 0]
        if table[v, 1] > table[p, 1]:
            table[p, 1] = table[v, 1]
    return vertex, table, way


@njit(
    "Tuple((float64, float64, float64, int64))(int32[:, ::1], float64[::1], float64[::1], uint8[::1], float64)",
    cache=True,
)
def tree_farthest(table, lat, inv, is_host, size):
    """Return (delay, latency, inverse bandwidth) of the worst route between hosts for a record size, and most links.

    `lat[v]` and `inv[v]` belong to the link from v to its parent.
    """
    n = table.shape[0]
    far = np.full((n, 3), -1.0)  # the worst way from v down to a host: delay, latency, inverse bandwidth
    deep = np.full(n, -1, np.int64)
    best = 0.0
    best_lat = 0.0
    best_inv = 0.0
    most = 0
    for v in range(n):
        if is_host[v]:
            far[v, 0] = 0.0
            far[v, 1] = 0.0
            far[v, 2] = 0.0
            deep[v] = 0
    for v in range(n - 1, 0, -1):
        if deep[v] < 0:
            continue
        p = table[v, 0]
        delay = far[v, 0] + lat[v] + size * inv[v]
        links = deep[v] + 1
        if deep[p] >= 0:
            if deep[p] + links > most:
                most = deep[p] + links
            if far[p, 0] + delay > best:
                best = far[p, 0] + delay
                best_lat = far[p, 1] + far[v, 1] + lat[v]
                best_inv = far[p, 2] + far[v, 2] + inv[v]
        if links > deep[p]:
            deep[p] = links
        if delay > far[p, 0]:
            far[p, 0] = delay
            far[p, 1] = far[v, 1] + lat[v]
            far[p, 2] = far[v, 2] + inv[v]
    return best, best_lat, best_inv, most


@njit(
    "Tuple((int32[::1], float64[::1], float64[::1], int32[::1]))(int64, int64, int32[::1], int32[::1], int32[::1], "
    "int64[::1], float64[::1], float64[::1])",
    cache=True,
)
def graph_row(origin, n, start, out, towards, nano, lat, inv):
    """Return every route from one site: last code on the way (-1: none), latency, inverse bandwidth, links.

    Sites are numbered in the order of their names. Least latency in whole nanoseconds, then fewest
    links, then the smallest sequence of numbers read from `origin`: all ways that tie have the same
    number of links, so vertices are ranked layer by layer by (rank of the one before, own number).
    """
    far = np.int64(2) ** 62
    scale = np.int64(n + 1)
    key = np.full(n, far, np.int64)  # latency * scale + links
    is_done = np.zeros(n, np.bool_)
    heap_key = np.empty(2 * out.size + 2, np.int64)
    heap_at = np.empty(2 * out.size + 2, np.int32)
    heap_key[0] = 0
    heap_at[0] = origin
    filled = 1
    key[origin] = 0
    order = np.empty(n, np.int32)
    reached = 0
    while filled > 0:
        k = heap_key[0]
        v = heap_at[0]
        filled -= 1
        if filled > 0:  # sift the last entry down from the top
            hk = heap_key[filled]
            hv = heap_at[filled]
            i = 0
            while True:
                child = 2 * i + 1
                if child >= filled:
                    break
                if child + 1 < filled and heap_key[child + 1] < heap_key[child]:
                    child += 1
                if heap_key[child] >= hk:
                    break
                heap_key[i] = heap_key[child]
                heap_at[i] = heap_at[child]
                i = child
            heap_key[i] = hk
            heap_at[i] = hv
        if is_done[v]:
            continue
        is_done[v] = True
        order[reached] = v
        reached += 1
        for j in range(start[v], start[v + 1]):
            code = out[j]
            w = towards[code]
            nk = k + nano[code // 2] * scale + 1
            if nk < key[w]:
                key[w] = nk
                i = filled
                filled += 1
                while i > 0:
                    up = (i - 1) // 2
                    if heap_key[up] <= nk:
                        break
                    heap_key[i] = heap_key[up]
                    heap_at[i] = heap_at[up]
                    i = up
                heap_key[i] = nk
                heap_at[i] = w
    last = np.full(n, -1, np.int32)
    has_tie = False
    for i in range(reached):
        v = order[i]
        for j in range(start[v], start[v + 1]):
            code = out[j]
            w = towards[code]
            if key[v] + nano[code // 2] * scale + 1 == key[w]:
                if last[w] >= 0:
                    has_tie = True
                else:
                    last[w] = code
    links = np.zeros(n, np.int32)
    for i in range(reached):
        links[order[i]] = key[order[i]] % scale
    if has_tie:
        by_links = np.argsort(links, kind="mergesort")
        rank = np.zeros(n, np.int64)
        behind = np.empty(n, np.int64)
        i = 0
        while i < n:
            stop = i
            while stop < n and links[by_links[stop]] == links[by_links[i]]:
                stop += 1
            for j in range(i, stop):
                v = by_links[j]
                behind[j] = v
                if v == origin or not is_done[v]:
                    continue
                least = far
                for q in range(start[v], start[v + 1]):
                    code = out[q]
                    u = towards[code]
                    if is_done[u] and key[u] + nano[code // 2] * scale + 1 == key[v] and rank[u] < least:
                        least = rank[u]
                        last[v] = code ^ 1
                behind[j] = least * n + v
            place = np.argsort(behind[i:stop])
            for j in range(stop - i):
                rank[by_links[i + place[j]]] = j
            i = stop
    way = np.zeros(n, np.float64)
    cost = np.zeros(n, np.float64)
    for i in range(1, reached):
        v = order[i]
        code = last[v]
        u = towards[code ^ 1]
        way[v] = way[u] + lat[code // 2]
        cost[v] = cost[u] + inv[code // 2]
    for v in range(n):
        if not is_done[v]:
            links[v] = -1
    return last, way, cost, links
