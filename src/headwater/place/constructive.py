"""Where would the structure alone put things? Top down and highest level first.

Both need neither rates nor latencies: only the shape of the pipeline and of the network, where the level
of a site is its distance in links to the nearest root. `td` fills the sites nearest to the roots, going
from the sinks toward the sources. `hlf` follows the data from the sources: an operator stays with its
writer or beside it (same level, over one link or one switch without slots) while there is room, and
otherwise climbs toward a root. What the rules pin is placed first in both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from headwater.model.routes import Ints
from headwater.place.arrays import IN, IN_END, OUT, OUT_END, RULE, SLOTS, UNIT, VERTEX, Arrays
from headwater.place.feasible import random_start, unit_hosts

__all__ = ["hlf", "levels", "td"]

MOST_VISITED = 2000


def levels(arrays: Arrays) -> Ints:
    """Return the distance in links of every vertex to the nearest root site; to the first host if there is no root."""
    sites, routes = arrays.problem.sites.by_name, arrays.problem.routes
    level = np.full(len(routes.names), -1, np.int32)
    roots = [v for v, name in enumerate(routes.names) if sites[name].kind == "root"] or [int(arrays.hosts[0, VERTEX])]
    queue = deque(roots)
    level[roots] = 0
    while queue:
        v = queue.popleft()
        for k in range(arrays.start[v], arrays.start[v + 1]):
            w = int(routes.towards[arrays.leaving[k]])
            if level[w] < 0:
                level[w] = level[v] + 1
                queue.append(w)
    return level


class _Room:
    """Slots left while a placement grows; hosts are offered nearest to a root first.

    Lists, not arrays: entries are fetched one by one, and that is several times faster.
    """

    def __init__(self, arrays: Arrays, level: Ints) -> None:
        self.arrays = arrays
        towards = arrays.problem.routes.towards[arrays.leaving].tolist()
        start = arrays.start.tolist()
        self.near = [towards[start[v] : start[v + 1]] for v in range(len(start) - 1)]  # vertices one link away
        self.host_at = arrays.host_at.tolist()
        self.vertex = arrays.hosts[:, VERTEX].tolist()
        self.height = level.tolist()  # of a vertex, in links above nothing: its level
        self.size = np.diff(arrays.unit_at).tolist()
        self.free = arrays.hosts[:, SLOTS].tolist()
        self.level = level[arrays.hosts[:, VERTEX]].tolist()
        self.by_level = np.lexsort((np.arange(len(self.free)), self.level)).tolist()
        self.members = [
            arrays.unit_ops[arrays.unit_at[unit] : arrays.unit_at[unit + 1]].tolist() for unit in range(len(self.size))
        ]
        self.has_apart = len(arrays.apart) > 0
        self.skip = 0  # hosts at the front of by_level that are full
        self.where = np.full(len(arrays.names), -1, np.int32)
        self.hosts = unit_hosts(arrays)

    def fits(self, unit: int, host: int) -> bool:
        a = self.arrays
        if self.free[host] < self.size[unit]:
            return False
        for op in self.members[unit] if self.has_apart else ():
            if any(self.where[other] == host for other in a.apart[a.apart_at[op] : a.apart_at[op + 1]]):
                return False
        return True

    def put(self, unit: int, candidates: Iterable[int]) -> bool:
        for host in candidates:
            if self.fits(unit, host):
                self.where[self.members[unit]] = host
                self.free[host] -= self.size[unit]
                return True
        return False

    def put_top(self, unit: int) -> bool:
        while self.skip < len(self.by_level) and self.free[self.by_level[self.skip]] == 0:
            self.skip += 1
        return self.put(unit, self.by_level[self.skip :])

    def put_pinned(self) -> bool:
        """Place the units whose rules leave a choice of some hosts only, fewest first, nearest to a root first."""
        a = self.arrays
        pinned = [
            unit
            for unit in range(len(self.hosts))
            if (a.ops[a.unit_ops[a.unit_at[unit] : a.unit_at[unit + 1]], RULE] >= 0).any()
        ]
        pinned.sort(key=lambda unit: (len(self.hosts[unit]), unit))
        order: dict[int, list[int]] = {}
        for unit in pinned:
            hosts = self.hosts[unit]
            if id(hosts) not in order:
                order[id(hosts)] = sorted(hosts.tolist(), key=lambda h: (self.level[h], h))
            ordered = order[id(hosts)]
            while ordered and self.free[ordered[0]] == 0:
                ordered.pop(0)
            if not self.put(unit, ordered):
                return False
        return True


def td(arrays: Arrays) -> Ints | None:
    """Return the placement of the top down method, or None where nothing is valid."""
    room = _Room(arrays, levels(arrays))
    is_done = room.put_pinned()
    for op in range(len(arrays.names) - 1, -1, -1):
        if is_done and room.where[op] < 0:
            is_done = room.put_top(int(arrays.ops[op, UNIT]))
    return room.where if is_done else random_start(arrays, np.random.default_rng(0))


def hlf(arrays: Arrays) -> Ints | None:
    """Return the placement of the highest level first method, or None where nothing is valid."""
    level = levels(arrays)
    room = _Room(arrays, level)
    is_done = room.put_pinned()
    height = np.zeros(len(arrays.names), np.int32)
    for op in range(len(arrays.names) - 1, -1, -1):
        readers = [arrays.streams[arrays.outs[k], 1] for k in range(arrays.ops[op, OUT], arrays.ops[op, OUT_END])]
        height[op] = max((int(height[r]) + 1 for r in readers), default=0)
    for op in np.lexsort((np.arange(len(height)), -height)).tolist():
        if not is_done or room.where[op] >= 0:
            continue
        unit = int(arrays.ops[op, UNIT])
        writers = [
            int(room.where[arrays.streams[e, 0]])
            for e in range(arrays.ops[op, IN], arrays.ops[op, IN_END])
            if room.where[arrays.streams[e, 0]] >= 0
        ]
        writers.sort(key=lambda h: (room.level[h], h))
        is_done = room.put(unit, _near(room, writers)) or room.put_top(unit)
    return room.where if is_done else random_start(arrays, np.random.default_rng(0))


def _near(room: _Room, writers: list[int]) -> Iterable[int]:
    """Yield hosts for an operator whose writers stand on some hosts: theirs, those beside, then upward."""
    if not writers:
        return
    top = min(room.level[h] for h in writers)
    highest = [h for h in writers if room.level[h] == top]
    beside = [_beside(room, host) for host in dict.fromkeys(highest)]
    common = set.intersection(*beside)  # next to every writer of that level
    yield from (h for h in highest if h in common)
    yield from sorted(common.difference(highest))
    seen = {room.vertex[h] for h in highest}
    queue = deque(sorted(seen))
    while queue and len(seen) < MOST_VISITED:
        v = queue.popleft()
        if room.host_at[v] >= 0 and room.height[v] < top:
            yield room.host_at[v]
        for w in room.near[v]:
            # upward, and from a switch to what hangs on it at a higher place than the writers
            if w not in seen and (room.height[w] < room.height[v] or (room.host_at[v] < 0 and room.height[w] < top)):
                seen.add(w)
                queue.append(w)
    yield from highest  # nothing higher: at least the same level


def _beside(room: _Room, host: int) -> set[int]:
    """Return a host and those of its level that are one link away, or share a switch without slots with it."""
    v = room.vertex[host]
    near = [v]
    for w in room.near[v]:
        near += [w] if room.host_at[w] >= 0 else room.near[w]
    return {room.host_at[w] for w in near if room.host_at[w] >= 0 and room.height[w] == room.height[v]}
