"""How can a tree of a million sites be bounded quickly?

Only the hosts that short rules name (a pinned source, a data centre) and the ways between them can make a
path long; all else hangs off those ways. `condense` keeps them and folds everything else into clouds,
so that the bound on RT over the small tree is at most that over the large one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.model.routes import Ints, Numbers
from headwater.place.arrays import SLOTS, VERTEX, Arrays

__all__ = ["Condensed", "condense"]

LONG_RULE = 64  # a rule that allows more hosts than this does not keep each of them
Numbered = npt.NDArray[np.int64]


class Condensed(NamedTuple):
    """A small tree and what the bound needs of its links and hosts."""

    arrays: Arrays
    up_lat: Numbers  # latency of the link from each vertex to its parent
    up_inv: Numbers
    is_alone: npt.NDArray[np.uint8]  # none: a folded host stands for many


def condense(arrays: Arrays) -> Condensed:
    """Return a small tree on which the bound of RT is at most that on the large one.

    What hangs on a kept vertex becomes one cloud there: as far away as the nearest host in it, with no
    distance inside, and one host for each speed and each set of long rules.
    """
    table, vertex = arrays.tree, arrays.hosts[:, VERTEX]
    is_long = np.diff(arrays.rule_at) > LONG_RULE
    keep, anchor = _kept(arrays, is_long)
    kept = np.flatnonzero(keep)
    number = np.full(len(table), -1, np.int64)
    number[kept] = np.arange(len(kept))
    belongs = np.zeros((len(vertex), int(is_long.sum())), bool)
    for column, rule in enumerate(np.flatnonzero(is_long)):
        belongs[arrays.allowed_by(int(rule)), column] = True
    inside, outside = np.flatnonzero(keep[vertex]), np.flatnonzero(~keep[vertex])
    at = anchor[vertex[outside]]
    kinds = np.unique(np.column_stack((number[at], arrays.pace[outside], belongs[outside])), axis=0)
    near = np.full((len(kept), 2), np.inf)
    np.minimum.at(near, number[at], arrays.way[vertex[outside]] - arrays.way[at])
    clouds = np.unique(number[at])
    cloud_of = np.full(len(kept), -1, np.int64)
    cloud_of[clouds] = len(kept) + np.arange(len(clouds))
    # vertices: kept ones, clouds, hosts of clouds; then in preorder
    parent = np.concatenate(
        (np.where(table[kept, 0] >= 0, number[table[kept, 0]], -1), clouds, cloud_of[kinds[:, 0].astype(np.int64)])
    )
    lat, inv = arrays.problem.routes.up
    nothing = np.zeros(len(kinds))
    up_lat = np.concatenate((lat[kept], near[clouds, 0], nothing))
    up_inv = np.concatenate((inv[kept], near[clouds, 1], nothing))
    order, tree = _preorder(parent)
    place = np.empty(len(parent), np.int64)
    place[order] = np.arange(len(parent))
    host_vertex = place[np.concatenate((number[vertex[inside]], len(kept) + len(clouds) + np.arange(len(kinds))))]
    small = _small(
        arrays,
        is_long,
        inside,
        host_vertex,
        np.concatenate((arrays.pace[inside], kinds[:, 1])),
        np.concatenate((belongs[inside], kinds[:, 2:].astype(bool))),
        tree,
    )
    return Condensed(small, up_lat[order], up_inv[order], np.zeros(len(small.hosts), np.uint8))


def _kept(arrays: Arrays, is_long: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.bool_], Numbered]:
    """Return which vertices stay: named hosts and all above them; and for every vertex the one it hangs on."""
    table, vertex = arrays.tree, arrays.hosts[:, VERTEX]
    keep = np.zeros(len(table), bool)
    keep[0] = True
    for rule in np.flatnonzero(~is_long):
        for host in arrays.allowed_by(int(rule)).tolist():
            v = int(vertex[host])
            while not keep[v]:
                keep[v] = True
                v = int(table[v, 0])
    anchor = np.where(keep, np.arange(len(table)), -1)
    deepest = int(table[:, 3].max(initial=0))
    by_depth = np.argsort(table[:, 3], kind="stable")
    starts = np.searchsorted(table[by_depth, 3], np.arange(deepest + 2))
    for depth in range(1, deepest + 1):
        level = by_depth[starts[depth] : starts[depth + 1]]
        loose = level[~keep[level]]
        anchor[loose] = anchor[table[loose, 0]]
    return keep, anchor


def _small(
    arrays: Arrays,
    is_long: npt.NDArray[np.bool_],
    inside: Numbered,
    host_vertex: Numbered,
    pace: Numbers,
    members: npt.NDArray[np.bool_],
    tree: Ints,
) -> Arrays:
    """Return the arrays with the hosts, rules and tree replaced; hosts in the order of their vertices."""
    by_vertex = np.argsort(host_vertex)
    position = np.empty(len(by_vertex), np.int64)
    position[by_vertex] = np.arange(len(by_vertex))
    moved = np.full(len(arrays.hosts), -1, np.int64)
    moved[inside] = position[: len(inside)]
    columns = np.cumsum(is_long) - 1
    lists: list[Numbered] = [
        np.flatnonzero(members[by_vertex, columns[rule]]) if is_long[rule] else np.sort(moved[arrays.allowed_by(rule)])
        for rule in range(len(is_long))
    ]
    hosts = np.zeros((len(by_vertex), 3), np.int32)
    hosts[:, SLOTS] = 2
    hosts[:, VERTEX] = host_vertex[by_vertex]
    host_at = np.full(len(tree), -1, np.int32)
    host_at[hosts[:, VERTEX]] = np.arange(len(hosts))
    return replace(
        arrays,
        hosts=hosts,
        pace=pace[by_vertex],
        tree=tree,
        way=np.zeros((len(tree), 2)),
        host_at=host_at,
        pairs=np.empty((0, 0, 2)),
        rule_at=np.concatenate(([0], np.cumsum([len(some) for some in lists]))).astype(np.int32),
        rule_hosts=np.concatenate(lists).astype(np.int32) if lists else np.zeros(0, np.int32),
    )


def _preorder(parent: Numbered) -> tuple[Numbered, Ints]:
    """Return the vertices in preorder, and parent, subtree end, nothing, depth by their new numbers."""
    children: dict[int, list[int]] = {}
    for v, above in enumerate(parent.tolist()):
        children.setdefault(above, []).append(v)
    order: list[int] = []
    table = np.zeros((len(parent), 4), np.int32)
    place = [0] * len(parent)
    stack = list(reversed(children[-1]))
    while stack:
        v = stack.pop()
        above = int(parent[v])
        place[v] = len(order)
        table[len(order), 0] = place[above] if above >= 0 else -1
        order.append(v)
        stack += reversed(children.get(v, []))
    table[:, 1] = np.arange(1, len(parent) + 1)
    for v in range(len(parent) - 1, 0, -1):
        above = int(table[v, 0])
        table[above, 1] = max(table[above, 1], table[v, 1])
    return np.array(order), table
