"""How does a problem look to the search kernels?

`Arrays` is a `Problem` in flat arrays: operators in topological order, streams sorted by reader, hosts
and links as `model.routes` numbers them. Columns are packed by what is used together, because the
kernels spend their time fetching it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from headwater.cost.problem import Problem
from headwater.errors import BrokenInvariant, Mistake, SpecError
from headwater.model.routes import Ints, Numbers

__all__ = ["MOST_GRAPH_HOSTS", "Arrays", "arrays", "ragged"]

MOST_REACH = 20_000  # operators for which a bit for every two is kept
MOST_GRAPH_HOSTS = 6000  # a graph that is no tree needs a table of all pairs: 20 bytes each

NEED, IN, IN_END, OUT, OUT_END, RULE, UNIT = range(7)  # columns of ops
LEVEL, SLOTS, VERTEX = range(3)  # columns of hosts


@dataclass(frozen=True)
class Arrays:
    """One problem in flat arrays; N operators, E streams, M hosts, V vertices, L links."""

    problem: Problem
    names: tuple[str, ...]  # operators in topological order
    ops: Ints  # (N, 7): level needed, first and end of inputs, of outputs, rule, unit
    work: Numbers  # (N, 3): seconds at speed 1, head at a start (else -inf), tail at an end (else -inf)
    streams: Ints  # (E, 2): writer, reader; sorted by reader
    flow: Numbers  # (E, 2): bytes of a record, bit/s
    outs: Ints  # (E,): streams by writer
    hosts: Ints  # (M, 3): level, slots, vertex
    pace: Numbers  # (M,): 1 / speed
    tree: Ints  # (V, 4): parent, end of subtree, code up, depth; empty for a graph
    way: Numbers  # (V, 2): latency and inverse bandwidth up to the root; empty for a graph
    pairs: Numbers  # (M, M, 2): latency and inverse bandwidth between hosts; empty for a large tree
    last: Ints  # (M, V): last code on the way from the lower host; empty for a tree
    ends: Ints  # (2L,): vertex where a direction starts
    room: Numbers  # (2L,): bandwidth of a direction
    start: Ints  # (V + 1,): directions leaving a vertex ...
    leaving: Ints  # (2L,): ... their codes
    host_at: Ints  # (V,): host of a vertex, -1 where it has no slots
    rule_at: Ints  # (R + 1,): hosts allowed by a rule ...
    rule_hosts: Ints  # ... ascending; rule -1 allows every host
    apart_at: Ints  # (N + 1,): operators that must stand elsewhere ...
    apart: Ints
    unit_at: Ints  # (U + 1,): operators that share a site, as one unit ...
    unit_ops: Ints
    weigh: Numbers  # (4,): F = weigh[0] * RT + weigh[1] * RF + weigh[2] * BW + weigh[3]

    @cached_property
    def number(self) -> Mapping[str, int]:
        """Operators' numbers by name."""
        return MappingProxyType({name: i for i, name in enumerate(self.names)})

    @cached_property
    def reach(self) -> npt.NDArray[np.uint64]:
        """Return for each operator a row of bits: which operators its output reaches; empty for very many."""
        count = len(self.names)
        if count > MOST_REACH:
            return np.zeros((0, 0), np.uint64)
        bits = np.zeros((count, count // 64 + 1), np.uint64)
        for op in range(count - 1, -1, -1):
            readers = self.streams[self.outs[self.ops[op, OUT] : self.ops[op, OUT_END]], 1]
            if len(readers):
                bits[op] = np.bitwise_or.reduce(bits[readers], axis=0)
                np.bitwise_or.at(bits[op], readers >> 6, np.uint64(1) << (readers & 63).astype(np.uint64))
        return bits

    def named(self, where: npt.NDArray[np.int32]) -> dict[str, str]:
        """Return host numbers as a placement, in the file order of the operators."""
        hosts, number = self.problem.hosts, self.number
        return {op.name: hosts[where[number[op.name]]].name for op in self.problem.pipeline.operators}

    def allowed(self, op: int) -> Ints:
        """Return the hosts that an operator's own rules allow."""
        rule = self.ops[op, RULE]
        if rule < 0:
            return np.arange(len(self.hosts), dtype=np.int32)
        return self.allowed_by(int(rule))

    def allowed_by(self, rule: int) -> Ints:
        """Return the hosts that a rule allows, ascending; not for rule -1, which allows all."""
        return self.rule_hosts[self.rule_at[rule] : self.rule_at[rule + 1]]


def arrays(problem: Problem, pairs_up_to: int = 1500) -> Arrays:
    """Return the problem in arrays; on a tree of at most `pairs_up_to` hosts delays are tabled too."""
    pipeline, routes, bounds = problem.pipeline, problem.routes, problem.bounds
    names = pipeline.order
    number = {name: i for i, name in enumerate(names)}
    count = len(names)
    ordered = [pipeline.by_name[name] for name in names]
    streams = np.array([(number[s.source], number[s.target]) for op in ordered for s in op.inputs], np.int32).reshape(
        -1, 2
    )
    origin = [pipeline.first_stream[op.name] + i for op in ordered for i in range(len(op.inputs))]
    size = np.asarray(problem.flow.size_bytes, np.float64)[origin]
    rate = np.asarray(problem.flow.rate_rps, np.float64)[origin]
    ops = np.zeros((count, 7), np.int32)
    ops[:, NEED] = [op.needs for op in ordered]
    ops[:, IN_END] = np.cumsum([len(op.inputs) for op in ordered])
    ops[1:, IN] = ops[:-1, IN_END]
    ops[:, OUT_END] = np.cumsum(np.bincount(streams[:, 0], minlength=count))
    ops[1:, OUT] = ops[:-1, OUT_END]
    between = pipeline.objective.between
    work = np.full((count, 3), -np.inf)
    work[:, 0] = [op.work_s for op in ordered]
    for i, op in enumerate(ordered):
        if op.is_source and (between is None or op.name == between[0]):
            work[i, 1] = 0.0
        if op.is_sink and (between is None or op.name == between[1]):
            work[i, 2] = 0.0
    rules: dict[object, int] = {"any": -1}
    rule_lists: list[tuple[int, ...]] = []
    for i, op in enumerate(ordered):
        rule = problem.rule(op)
        if rule not in rules:
            rules[rule] = len(rule_lists)
            rule_lists.append(problem.allowed(op))
        ops[i, RULE] = rules[rule]
    unit_lists = _units(number, [op.together for op in ordered])
    for unit, members in enumerate(unit_lists):
        ops[members, UNIT] = unit
    apart: list[set[int]] = [set() for _ in names]
    for i, op in enumerate(ordered):
        for other in op.apart:
            apart[i].add(number[other])
            apart[number[other]].add(i)
    hosts = np.array(
        [(site.level, min(site.slots, 2**30), v) for site, v in zip(problem.hosts, problem.host_vertices, strict=True)],
        np.int32,
    ).reshape(-1, 3)
    host_at = np.full(len(routes.names), -1, np.int32)
    host_at[hosts[:, VERTEX]] = np.arange(len(hosts))
    span = bounds.rt_max_s - bounds.rt_min_s
    objective = pipeline.objective
    weigh = np.array(
        [
            objective.weight_rt / span if span != 0 else 0.0,
            objective.weight_rf / bounds.rf_max if bounds.rf_max else 0.0,
            objective.weight_bw / bounds.bw_max_bps if bounds.bw_max_bps else 0.0,
            -objective.weight_rt * bounds.rt_min_s / span if span != 0 else 0.0,
        ]
    )
    room = np.repeat(routes.bandwidth_bps, 2)
    if float((8.0 * rate * size).sum()) <= room.min(initial=np.inf):
        weigh[2] = 0.0  # all streams together fit on every link: nothing can be congested
    start, leaving = routes.outgoing
    pairs, last = _pairs(problem, pairs_up_to)
    return Arrays(
        problem,
        names,
        ops,
        work,
        streams,
        np.column_stack((size, 8.0 * rate * size)),
        np.argsort(streams[:, 0], kind="stable").astype(np.int32),
        hosts,
        np.array([1.0 / site.speed for site in problem.hosts]),
        routes.table if routes.is_tree else np.empty((0, 4), np.int32),
        routes.way if routes.is_tree else np.empty((0, 2)),
        pairs,
        last,
        routes.ends,
        room,
        start,
        leaving,
        host_at,
        *ragged(rule_lists),
        *ragged([sorted(others) for others in apart]),
        *ragged(unit_lists),
        weigh,
    )


def ragged(lists: Sequence[Sequence[int] | Ints]) -> tuple[Ints, Ints]:
    """Return lists of different lengths as one: where each begins, and their entries."""
    at = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([len(entry) for entry in lists], out=at[1:])
    flat = np.fromiter((i for entry in lists for i in entry), np.int32, int(at[-1]))
    return at, flat


def _units(number: Mapping[str, int], together: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return operators that must share a site, joined; units in the order of their first operator."""
    leader = list(range(len(together)))

    def lead(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    for i, others in enumerate(together):
        for other in others:
            one, two = sorted((lead(i), lead(number[other])))
            leader[two] = one
    members: dict[int, list[int]] = {}
    for i in range(len(together)):
        members.setdefault(lead(i), []).append(i)
    return list(members.values())


def _pairs(problem: Problem, pairs_up_to: int) -> tuple[Numbers, Ints]:
    """Return delays between hosts and, on a graph, how to walk back along each route."""
    routes, at = problem.routes, problem.host_vertices
    count = len(at)
    none = np.empty((0, 0), np.int32)
    if routes.is_tree:
        if count > pairs_up_to:
            return np.empty((0, 0, 2)), none
        meet = _meeting(routes.table, at)
        return routes.way[at][:, None, :] + routes.way[at][None, :, :] - 2.0 * routes.way[meet], none
    if count > MOST_GRAPH_HOSTS:
        text = (
            f"{count} sites have slots on a network that is not a tree; at most {MOST_GRAPH_HOSTS} can be searched "
            "there. Give slots only to the sites that may run something, or leave out redundant links."
        )
        raise SpecError(Mistake("HW1403", text))
    pairs = np.zeros((count, count, 2))
    last = np.empty((count, len(routes.names)), np.int32)
    for i, vertex in enumerate(at):
        row = routes.fresh_row(int(vertex))
        last[i] = row.last
        if row.links[at].min() < 0:
            raise BrokenInvariant("HW9002 placement on a network that is not connected")
        pairs[i, i:, 0], pairs[i, i:, 1] = row.latency_s[at[i:]], row.inverse[at[i:]]
    pairs += np.triu(pairs.transpose(2, 0, 1), 1).transpose(2, 1, 0)
    return pairs, last


def _meeting(table: Ints, at: Ints) -> Ints:
    """Return the lowest common ancestor of every two vertices of `at`."""
    a, b = (np.ascontiguousarray(grid) for grid in np.broadcast_arrays(at[:, None], at[None, :]))
    a = a.copy()
    while True:
        is_below = ~((a <= b) & (b < table[a, 1]))
        if not is_below.any():
            return a
        a[is_below] = table[a[is_below], 0]
