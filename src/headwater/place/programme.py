"""What is the optimum on a tree? The integer programme along its links, solved by HiGHS.

Notation: x[u, h] = 1 when unit u is on host h. For a link l with the part of the tree below it,
S_l(v) = sum of x over the hosts below. Stream e from v to w crosses l upward when S_l(v) > S_l(w):

    up[e, l] >= S_l(v) - S_l(w)        down[e, l] >= S_l(w) - S_l(v)        both >= 0
    delay(e) = sum over l of (latency_l + size_e * inverse_l) * (up + down)
    head(w) >= head(v) + delay(e) + work_w * sum of x / speed         RT >= head(sink)
    over(l, direction) >= sum over e of load_e * up[e, l] - bandwidth_l

minimise w_rt RT + w_rf RF + w_bw sum of over, with one host per unit, slots and apart as rows. No
product of two placements occurs, so the size is streams times links, not streams times pairs.
"""

from __future__ import annotations

import numpy as np

from headwater.model.routes import Ints
from headwater.place.arrays import IN, IN_END, LEVEL, NEED, SLOTS, UNIT, VERTEX, Arrays
from headwater.place.feasible import unit_hosts
from headwater.place.result import Limits

__all__ = ["MOST_CELLS", "programme"]

MOST_CELLS = 60_000  # streams times links; above this HiGHS finds nothing in reasonable time
SECONDS = 60.0
NODES = 1_000_000
TOLERANCE = 1e-6  # of HiGHS, on rows and integers
SCALE = 1000.0  # the objective and the times, so that tolerances are small beside them
MEGA = 1e6  # loads are in Mbit/s


def programme(arrays: Arrays, f: float, limits: Limits) -> tuple[Ints | None, float, str, bool]:
    """Look for something better than `f`; return (placement or None, proven bound, what happened, was it cut short)."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import, not always needed

    limits.say("integer programme (HiGHS)", None)
    rows = _Rows()
    column = _columns(arrays, rows)
    _paths(arrays, rows, column)
    objective = np.zeros(rows.columns)
    for j, weight in column.objective:
        objective[j] += weight
    entries = [(j, float(objective[j])) for j in np.flatnonzero(objective).tolist()]
    rows.add(entries, -np.inf, SCALE * (f - float(arrays.weigh[3])) + TOLERANCE)  # nothing worse than what is known
    answer = milp(
        objective,
        integrality=np.array(rows.integer),
        bounds=Bounds(np.zeros(rows.columns), np.array(rows.most)),
        constraints=LinearConstraint(rows.matrix(), np.array(rows.low), np.array(rows.high)),
        options={"time_limit": max(0.1, min(SECONDS, limits.remaining_s())), "mip_rel_gap": 1e-9, "node_limit": NODES},
    )
    dual = answer.mip_dual_bound
    is_cut = answer.status == 1 and "time" in answer.message.lower()
    margin = TOLERANCE * max(f, 1e-3)
    lower = -np.inf if dual is None or not np.isfinite(dual) else float(dual) / SCALE + float(arrays.weigh[3]) - margin
    if answer.x is None:
        # every placement that is better than the known one was ruled out, or the limit came first
        is_closed = answer.status == 2
        note = "integer programme " + ("closed" if is_closed else "reached its limit")
        return None, f - margin if is_closed else lower, note, is_cut
    where = np.empty(len(arrays.names), np.int32)
    for (unit, host), j in column.at.items():
        if answer.x[j] > 0.5:
            where[arrays.unit_ops[arrays.unit_at[unit] : arrays.unit_at[unit + 1]]] = host
    return where, lower, "integer programme " + ("solved" if answer.status == 0 else "reached its limit"), is_cut


class _Rows:
    """A programme under construction."""

    def __init__(self) -> None:
        self.columns = 0
        self.integer: list[int] = []
        self.most: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.cells: list[tuple[int, int, float]] = []

    def column(self, most: float = np.inf, *, is_integer: bool = False) -> int:
        self.integer.append(int(is_integer))
        self.most.append(most)
        self.columns += 1
        return self.columns - 1

    def add(self, entries: list[tuple[int, float]], low: float, high: float = np.inf) -> None:
        self.cells += [(len(self.low), j, value) for j, value in entries]
        self.low.append(low)
        self.high.append(high)

    def matrix(self) -> object:
        from scipy.sparse import coo_array  # noqa: PLC0415

        i, j, value = (np.array(part) for part in zip(*self.cells, strict=True))
        return coo_array((value, (i, j)), shape=(len(self.low), self.columns)).tocsr()


class _Columns:
    """Which variable is which."""

    def __init__(self) -> None:
        self.at: dict[tuple[int, int], int] = {}  # unit, host -> x
        self.objective: list[tuple[int, float]] = []
        self.hosts: list[list[int]] = []


def _columns(arrays: Arrays, rows: _Rows) -> _Columns:
    """Add x with one host per unit, slots, apart and RF."""
    column = _Columns()
    column.hosts = [some.tolist() for some in unit_hosts(arrays)]
    size = np.diff(arrays.unit_at)
    taken: dict[int, list[tuple[int, float]]] = {}
    for unit, hosts in enumerate(column.hosts):
        members = arrays.unit_ops[arrays.unit_at[unit] : arrays.unit_at[unit + 1]]
        for host in hosts:
            j = column.at[unit, host] = rows.column(1.0, is_integer=True)
            taken.setdefault(host, []).append((j, float(size[unit])))
            short = int(np.maximum(0, arrays.ops[members, NEED] - arrays.hosts[host, LEVEL]).sum())
            if short:
                column.objective.append((j, SCALE * float(arrays.weigh[1]) * short))
        rows.add([(column.at[unit, host], 1.0) for host in hosts], 1.0, 1.0)
    for host, entries in taken.items():
        if sum(value for _, value in entries) > arrays.hosts[host, SLOTS]:
            rows.add(entries, -np.inf, float(arrays.hosts[host, SLOTS]))
    unit_of = arrays.ops[:, UNIT]
    for op in range(len(arrays.names)):
        for other in arrays.apart[arrays.apart_at[op] : arrays.apart_at[op + 1]]:
            if op < other:
                one, two = int(unit_of[op]), int(unit_of[other])
                for host in set(column.hosts[one]) & set(column.hosts[two]):
                    rows.add([(column.at[one, host], 1.0), (column.at[two, host], 1.0)], -np.inf, 1.0)
    return column


def _paths(arrays: Arrays, rows: _Rows, column: _Columns) -> None:
    """Add crossings of links, delays, heads, RT and BW."""
    lat, inv = arrays.problem.routes.up
    vertex = arrays.hosts[:, VERTEX]
    below: dict[tuple[int, int], int | float] = {}  # unit, vertex below a link -> S, or 0 or 1 where it is known

    def part(unit: int, v: int) -> int | float:
        if (unit, v) not in below:
            end = arrays.tree[v, 1]
            inside = [h for h in column.hosts[unit] if v <= vertex[h] < end]
            if not inside or len(inside) == len(column.hosts[unit]):
                below[unit, v] = float(bool(inside))
            else:
                j = rows.column(1.0)
                rows.add([(j, -1.0), *((column.at[unit, h], 1.0) for h in inside)], 0.0, 0.0)
                below[unit, v] = j
        return below[unit, v]

    head = [rows.column() for _ in arrays.names]
    counts = _counted(arrays)
    rt = rows.column()
    column.objective.append((rt, float(arrays.weigh[0])))  # heads are in milliseconds: SCALE is in them
    carried: dict[int, list[tuple[int, float]]] = {}
    unit_of = arrays.ops[:, UNIT].tolist()
    for op in range(len(arrays.names)):
        hosts = column.hosts[unit_of[op]]
        processing = [(column.at[unit_of[op], h], -SCALE * float(arrays.work[op, 0] * arrays.pace[h])) for h in hosts]
        if arrays.work[op, 1] == 0.0:
            rows.add([(head[op], 1.0), *processing], 0.0)
        if arrays.work[op, 2] == 0.0 and counts[op]:
            rows.add([(rt, 1.0), (head[op], -1.0)], 0.0)
        for e in range(arrays.ops[op, IN], arrays.ops[op, IN_END]):
            writer = int(arrays.streams[e, 0])
            delay: list[tuple[int, float]] = []
            for v in range(1, len(arrays.tree)):
                one, two = part(unit_of[writer], v), part(unit_of[op], v)
                if unit_of[writer] == unit_of[op] or (isinstance(one, float) and isinstance(two, float) and one == two):
                    continue
                weight = SCALE * float(lat[v] + arrays.flow[e, 0] * inv[v])
                up, down = rows.column(1.0), rows.column(1.0)
                for j, sign in ((up, 1.0), (down, -1.0)):
                    entries, constant = [(j, 1.0)], 0.0
                    for s, factor in ((one, -sign), (two, sign)):
                        if isinstance(s, float):
                            constant += factor * s
                        else:
                            entries.append((s, factor))
                    rows.add(entries, -constant)
                delay += [(up, -weight), (down, -weight)]
                code = int(arrays.tree[v, 2])
                carried.setdefault(code, []).append((up, -float(arrays.flow[e, 1]) / MEGA))
                carried.setdefault(code ^ 1, []).append((down, -float(arrays.flow[e, 1]) / MEGA))
            if counts[writer]:
                rows.add([(head[op], 1.0), (head[writer], -1.0), *processing, *delay], 0.0)
    if arrays.weigh[2] > 0.0:
        _loads(arrays, rows, column, carried)


def _counted(arrays: Arrays) -> list[bool]:
    """Return which operators lie on a path from a source that counts."""
    counts: list[bool] = []
    for op in range(len(arrays.names)):
        writers = arrays.streams[arrays.ops[op, IN] : arrays.ops[op, IN_END], 0].tolist()
        counts.append(bool(arrays.work[op, 1] == 0.0) or any(counts[writer] for writer in writers))
    return counts


def _loads(arrays: Arrays, rows: _Rows, column: _Columns, carried: dict[int, list[tuple[int, float]]]) -> None:
    """Add what each direction carries above its bandwidth; `carried` has the crossings with negative loads."""
    for code, entries in carried.items():
        room = float(arrays.room[code]) / MEGA
        if -sum(value for _, value in entries) > room:
            over = rows.column()
            column.objective.append((over, SCALE * float(arrays.weigh[2]) * MEGA))
            rows.add([(over, 1.0), *entries], -room)
