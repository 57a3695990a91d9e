"""How bad can a route be?

For a record of size s the worst route between two hosts takes max over pairs of (latency + s * inverse
bandwidth): the upper envelope of one line per pair. A few lines of it serve every stream, so it is
found by asking for the worst pair at one size at a time and never kept per pair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from headwater.model import kernels
from headwater.model.routes import Ints, Numbers, Routes

__all__ = ["Worst", "worst_routes"]

Line = tuple[float, float]  # latency, inverse bandwidth


class Worst(NamedTuple):
    """The worst routes between any two hosts."""

    delay_s: tuple[float, ...]  # for each size that was asked
    most_links: int


def worst_routes(routes: Routes, hosts: Ints, sizes: Sequence[float]) -> Worst:
    """Return the worst delay for each record size, and the most links of any route between two hosts."""
    if len(hosts) < 2:
        return Worst((0.0,) * len(sizes), 0)
    asked: Callable[[float], Line]
    if routes.is_tree:
        is_host = np.zeros(len(routes.names), np.uint8)
        is_host[hosts] = 1
        lat, inv = routes.up

        def asked(size: float) -> Line:
            _, latency, inverse, _ = kernels.tree_farthest(routes.table, lat, inv, is_host, size)
            return latency, inverse

        most = int(kernels.tree_farthest(routes.table, lat, inv, is_host, 0.0)[3])
    else:
        points, most = _graph_lines(routes, hosts)

        def asked(size: float) -> Line:
            latency, inverse = points[int(np.argmax(points[:, 0] + size * points[:, 1]))]
            return float(latency), float(inverse)

    if not sizes:
        return Worst((), most)
    lines = np.array(sorted(_envelope(asked, min(sizes), max(sizes))))
    delay = (lines[:, 0][None, :] + np.asarray(sizes, np.float64)[:, None] * lines[:, 1][None, :]).max(axis=1)
    return Worst(tuple(delay.tolist()), most)


def _envelope(asked: Callable[[float], Line], low: float, high: float) -> set[Line]:
    """Return lines that reach the upper envelope everywhere in [low, high]."""
    lines = {asked(low), asked(high)}
    todo = [(low, asked(low), high, asked(high))]
    while todo:
        left, one, right, other = todo.pop()
        if one == other or one[1] == other[1]:
            continue
        cross = (one[0] - other[0]) / (other[1] - one[1])
        if not left < cross < right:
            continue
        found = asked(cross)
        if found in lines or found[0] + cross * found[1] <= (one[0] + cross * one[1]) * (1 + 1e-15):
            continue
        lines.add(found)
        todo += [(left, one, cross, found), (cross, found, right, other)]
    return lines


def _graph_lines(routes: Routes, hosts: Ints) -> tuple[Numbers, int]:
    """Return one (latency, inverse) row for every pair that can be worst for some size, and the most links."""
    kept = np.zeros((1, 2))
    most = 0
    for number, host in enumerate(hosts):
        row = routes.fresh_row(int(host))
        others = hosts[number + 1 :]
        others = others[row.links[others] >= 0]
        if not len(others):
            continue
        most = max(most, int(row.links[others].max()))
        kept = _upper_right(np.concatenate((kept, np.column_stack((row.latency_s[others], row.inverse[others])))))
    return kept, most


def _upper_right(points: Numbers) -> Numbers:
    """Return the points that no other point exceeds in both coordinates, by falling latency."""
    points = points[np.lexsort((-points[:, 1], -points[:, 0]))]
    best = np.maximum.accumulate(points[:, 1])
    keep = np.concatenate(([True], points[1:, 1] > best[:-1]))
    return points[keep]
