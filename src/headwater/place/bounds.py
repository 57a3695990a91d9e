"""How good could any placement be?

`lower_bound` gives a proven bound on F over all valid placements, part by part: RT by `place.relax`,
RF by counting slots of each class, BW by what pinned sources must push over a link because only so
many operators fit behind it. The sum of three least values is never more than the least sum.
"""

from __future__ import annotations

import numpy as np

from headwater.place import relax
from headwater.place.arrays import LEVEL, NEED, RULE, SLOTS, VERTEX, Arrays
from headwater.place.condense import condense
from headwater.place.state import problem_parts

__all__ = ["bw_bound", "lower_bound", "rf_bound", "rt_bound"]

MOST_STEPS = 20_000_000  # streams times vertices; above this the tree is condensed first ...
FEW_STEPS = 500_000  # ... and above this where no host has a single slot, for then nothing is lost by it
MOST_PAIR_STEPS = 4_000_000_000  # streams times pairs of hosts that the RT bound may look at on a graph
SAFE = 1.0 - 1e-12  # rounding must not lift a bound above the truth


def lower_bound(arrays: Arrays) -> float:
    """Return a bound on F that no valid placement undercuts."""
    rt = rt_bound(arrays)
    weigh = arrays.weigh
    return float(
        weigh[0] * rt * SAFE
        + weigh[3]
        + weigh[1] * rf_bound(arrays)
        + (weigh[2] * bw_bound(arrays) * SAFE if weigh[2] > 0.0 else 0.0)
    )


def rt_bound(arrays: Arrays) -> float:
    """Return a bound on RT: each stream takes its best ends by itself, slots hardly counted."""
    if not len(arrays.tree) and len(arrays.streams) * len(arrays.hosts) ** 2 > MOST_PAIR_STEPS:
        return arrays.problem.bounds.rt_min_s if arrays.problem.pipeline.objective.rt_min_s is None else 0.0
    routes = arrays.problem.routes
    none = np.zeros(0)
    up_lat, up_inv = routes.up if routes.is_tree else (none, none)
    is_alone = (arrays.hosts[:, SLOTS] == 1).astype(np.uint8)
    waiting = _most_waiting(arrays)
    work = len(arrays.streams) * len(arrays.tree)
    if routes.is_tree and (work > MOST_STEPS or (work > FEW_STEPS and not is_alone.any())):
        arrays, up_lat, up_inv, is_alone = condense(arrays)
    return float(relax.relax(problem_parts(arrays, with_reach=False), up_lat, up_inv, is_alone, waiting))


def _most_waiting(arrays: Arrays) -> int:
    """Return how many operators at once have got something of their input but are not reached yet."""
    is_waiting = np.zeros(len(arrays.names), bool)
    count = most = 0
    for op in range(len(arrays.names)):
        if is_waiting[op]:
            count -= 1
        for k in range(arrays.ops[op, 3], arrays.ops[op, 4]):
            reader = arrays.streams[arrays.outs[k], 1]
            if not is_waiting[reader]:
                is_waiting[reader] = True
                count += 1
        most = max(most, count)
    return most


def rf_bound(arrays: Arrays) -> int:
    """Return a bound on RF: operators that need a level, less the slots of that level or above."""
    needs, levels = arrays.ops[:, NEED], arrays.hosts[:, LEVEL]
    counted = 0
    for level in (2, 3):
        slots = int(arrays.hosts[levels >= level, SLOTS].astype(np.int64).sum())
        counted += max(0, int((needs >= level).sum()) - slots)
    alone = 0
    best: dict[int, int] = {}
    for rule, need in zip(arrays.ops[:, RULE].tolist(), needs.tolist(), strict=True):
        if need > 1:
            if rule not in best:
                hosts = (
                    levels if rule < 0 else levels[arrays.rule_hosts[arrays.rule_at[rule] : arrays.rule_at[rule + 1]]]
                )
                best[rule] = int(hosts.max(initial=0))
            alone += max(0, need - best[rule])
    return max(counted, alone)


def bw_bound(arrays: Arrays) -> float:
    """Return a bound on BW: what operators pinned behind a link send over it, whatever else fits there.

    Behind the link stand the pinned operators and at most as many others as slots are left; each of
    those can at best take in all that the pinned ones send to it. Likewise for what comes in.
    """
    problem = arrays.problem
    routes = problem.routes
    pinned = np.full(len(arrays.names), -1, np.int64)
    for op in range(len(arrays.names)):
        rule = arrays.ops[op, RULE]
        if rule >= 0 and arrays.rule_at[rule + 1] - arrays.rule_at[rule] == 1:
            pinned[op] = arrays.hosts[arrays.rule_hosts[arrays.rule_at[rule]], VERTEX]
    if (pinned < 0).all():
        return 0.0
    slots = np.zeros(len(routes.names), np.int64)
    slots[arrays.hosts[:, VERTEX]] = arrays.hosts[:, SLOTS]
    if routes.is_tree:
        behind = [(v, int(routes.table[v, 1]), int(routes.table[v, 2])) for v in range(1, len(routes.names))]
    else:
        start, out = routes.outgoing
        behind = [(v, v + 1, int(out[start[v]])) for v in np.flatnonzero(np.diff(start) == 1).tolist()]
    total_slots = np.concatenate(([0], np.cumsum(slots)))
    load = arrays.flow[:, 1]
    writer, reader = pinned[arrays.streams[:, 0]], pinned[arrays.streams[:, 1]]
    sent, got = np.zeros(len(routes.names)), np.zeros(len(routes.names))
    np.add.at(sent, writer[writer >= 0], load[writer >= 0])
    np.add.at(got, reader[reader >= 0], load[reader >= 0])
    sum_sent, sum_got = np.concatenate(([0.0], np.cumsum(sent))), np.concatenate(([0.0], np.cumsum(got)))
    ops_at = np.sort(pinned[pinned >= 0])
    bound = 0.0
    for first, end, up in behind:
        for is_out, code in ((True, up), (False, up ^ 1)):
            sums = sum_sent if is_out else sum_got
            if sums[end] - sums[first] <= arrays.room[code]:
                continue
            here = writer if is_out else reader
            other = arrays.streams[:, 1] if is_out else arrays.streams[:, 0]
            mine = (here >= first) & (here < end)
            far = pinned[other]
            is_settled_inside = (far >= first) & (far < end)
            crossing = mine & ~is_settled_inside
            forced = float(load[crossing & (far >= 0)].sum())
            loose = crossing & (far < 0)
            by_op = np.bincount(other[loose], load[loose], minlength=1)
            used = int(np.searchsorted(ops_at, end) - np.searchsorted(ops_at, first))
            room_left = int(total_slots[end] - total_slots[first]) - used
            kept = np.sort(by_op)[::-1][max(0, room_left) :].sum()
            bound += max(0.0, forced + float(kept) - float(arrays.room[code]))
    return bound
