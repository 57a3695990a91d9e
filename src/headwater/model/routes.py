"""Which way does data take between two sites?

Takes `Sites`, gives `Routes`: least total latency in whole nanoseconds; on a tie the fewest links; on a
tie the lexicographically smallest sequence of site names, read from the alphabetically smaller end.
On a tree there is one way, found by climbing; on any other graph one search per site, kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.model import kernels
from headwater.model.sites import Sites

__all__ = ["Ints", "Numbers", "Routes", "Row"]

Ints = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.float64]

TREE_ROOT_KINDS = ("root", "middle", "leaf")


class Row(NamedTuple):
    """Every route from one site of a graph, by vertex."""

    last: Ints  # direction code of the last link on the way; -1 at the origin and where no way leads
    latency_s: Numbers
    inverse: Numbers  # seconds for one byte, summed over the links: 8 / bandwidth
    links: Ints  # number of links; -1 where no way leads


class Routes:
    """Routes between the sites of one network.

    A vertex is a site's number here: its place in preorder on a tree, in the order of names otherwise.
    A direction code names one direction of a link: `2 * link` from its first end `a` to `b`,
    `2 * link + 1` back.
    """

    def __init__(self, sites: Sites) -> None:
        """Number the sites; searches wait until they are asked for."""
        self.sites = sites
        names = sorted(site.name for site in sites.sites)
        number = {name: i for i, name in enumerate(names)}
        count, links = len(names), sites.links
        first = np.fromiter((number[link.a] for link in links), np.int32, len(links))
        second = np.fromiter((number[link.b] for link in links), np.int32, len(links))
        ends, towards = np.empty(2 * len(links), np.int32), np.empty(2 * len(links), np.int32)
        ends[0::2], ends[1::2] = first, second
        towards[0::2], towards[1::2] = second, first
        self.latency_s: Numbers = np.fromiter((link.latency_s for link in links), np.float64, len(links))
        self.bandwidth_bps: Numbers = np.fromiter((link.bandwidth_bps for link in links), np.float64, len(links))
        self.inverse: Numbers = 8.0 / self.bandwidth_bps
        self.is_tree = len(links) == count - 1
        if self.is_tree:
            root = min(sites.sites, key=lambda site: (TREE_ROOT_KINDS.index(site.kind), site.name))
            vertex, self.table, self.way = kernels.tree_order(
                count, number[root.name], ends, towards, self.latency_s, self.inverse
            )
            self.is_tree = bool(vertex.min(initial=0) >= 0)  # a part that cannot be reached: not one tree
        if self.is_tree:
            order = np.argsort(vertex)
            self.names: tuple[str, ...] = tuple(names[i] for i in order)
            self.ends, self.towards = vertex[ends], vertex[towards]
        else:
            self.names = tuple(names)
            self.ends, self.towards = ends, towards
        self._rows: dict[int, Row] = {}

    @cached_property
    def vertex(self) -> Mapping[str, int]:
        """Vertices by site name."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def up(self) -> tuple[Numbers, Numbers]:
        """Latency and inverse bandwidth of the link from each vertex of a tree to its parent."""
        lat, inv = np.zeros(len(self.names)), np.zeros(len(self.names))
        link = self.table[1:, 2] // 2
        lat[1:], inv[1:] = self.latency_s[link], self.inverse[link]
        return lat, inv

    @cached_property
    def outgoing(self) -> tuple[Ints, Ints]:
        """Direction codes leaving each vertex: starts, and the codes."""
        count = np.bincount(self.ends, minlength=len(self.names))
        start = np.concatenate(([0], np.cumsum(count))).astype(np.int32)
        return start, np.argsort(self.ends, kind="stable").astype(np.int32)

    @cached_property
    def nanoseconds(self) -> npt.NDArray[np.int64]:
        """Latency of each link in whole nanoseconds, so that sums are exact."""
        return np.rint(self.latency_s * 1e9).astype(np.int64)

    def row(self, vertex: int) -> Row:
        """Return every route from one vertex of a graph, read from there."""
        found = self._rows.get(vertex)
        if found is None:
            found = self._rows[vertex] = self.fresh_row(vertex)
        return found

    def fresh_row(self, vertex: int) -> Row:
        """Return every route from one vertex of a graph without keeping it."""
        start, out = self.outgoing
        found = kernels.graph_row(
            vertex, len(self.names), start, out, self.towards, self.nanoseconds, self.latency_s, self.inverse
        )
        return Row(*found)

    def between(self, a: int, b: int) -> tuple[int, ...] | None:
        """Return the direction codes of the route from vertex a to vertex b; None where no way leads."""
        if a == b:
            return ()
        if self.is_tree:
            return self._climb(a, b)
        low, high = min(a, b), max(a, b)
        row = self.row(low)
        if row.links[high] < 0:
            return None
        codes: list[int] = []
        v = high
        while v != low:
            code = int(row.last[v])
            codes.append(code)
            v = int(self.ends[code])
        return tuple(reversed(codes)) if a == low else tuple(code ^ 1 for code in codes)

    def _climb(self, a: int, b: int) -> tuple[int, ...]:
        table = self.table
        rise: list[int] = []
        fall: list[int] = []
        while not a <= b < table[a, 1]:
            rise.append(int(table[a, 2]))
            a = int(table[a, 0])
        while b != a:
            fall.append(int(table[b, 2]) ^ 1)
            b = int(table[b, 0])
        return (*rise, *reversed(fall))
