"""What is the best possible placement?

`exact` starts from annealing, then proves: branch and bound where a table of pairs exists, an integer
programme along the links of a tree where that is not enough. It answers with the optimum, or with the
best bound it reached at its limits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.model.routes import Ints
from headwater.place import branch
from headwater.place.arrays import Arrays, ragged
from headwater.place.bounds import lower_bound
from headwater.place.feasible import unit_hosts
from headwater.place.programme import MOST_CELLS, programme
from headwater.place.result import Limits, is_proven
from headwater.place.search import Found, anneal
from headwater.place.state import State

__all__ = ["FEW_PAIRS", "FEW_STEPS", "can_branch", "exact", "prove", "twins"]

PROVEN = "proven: no valid placement is better"
FEW_STEPS = 120_000  # of a first annealing: often enough for a proof
FEW_PAIRS = 200_000_000  # pairs of hosts that a first, short proof may look at
MOST_PAIRS = 6_300_000_000  # and a long one: runs of one, four and sixteen chunks
MOST_OPEN = 100_000_000  # hosts open to units, on all levels of the search: 4 bytes each
CHUNK_PAIRS = 300_000_000  # pairs looked at between looks at the clock


def exact(arrays: Arrays, seed: int, limits: Limits) -> Found:
    """Return the optimum, or the best found and the bound reached."""
    floor = lower_bound(arrays)
    first = prove(arrays, anneal(arrays, seed, limits, floor=floor, most=FEW_STEPS), floor, limits, FEW_PAIRS, 0)
    if is_proven(State(arrays, first.where).f, first.lower_bound) or first.cut_short:
        return first
    longer = anneal(arrays, seed, limits, where=first.where, floor=floor)
    found = prove(arrays, longer, first.lower_bound, limits)
    return replace(found, evaluations=first.evaluations + found.evaluations, because=first.because + found.because)


def prove(
    arrays: Arrays, first: Found, floor: float, limits: Limits, pairs: int = MOST_PAIRS, cells: int = MOST_CELLS
) -> Found:
    """Return something better than `first` or a proof that there is none, as far as the limits reach."""
    best, lower, count, is_cut, because = first.where, floor, first.evaluations, first.cut_short, first.because
    f = State(arrays, best).f
    has_programme = 0 < len(arrays.streams) * len(arrays.tree) <= cells
    if has_programme:
        pairs = min(pairs, CHUNK_PAIRS)  # what a short search leaves open, the programme closes sooner
    if can_branch(arrays) and not is_proven(f, lower):
        best, f, lower, more, is_done, is_cut = _branch(arrays, best, f, lower, pairs, limits)
        count += more
        because += ("branch and bound closed",) if is_done else ("branch and bound reached its limit",)
    if has_programme and not is_proven(f, lower) and not is_cut:
        where, dual, note, is_cut = programme(arrays, f, limits)
        if where is not None and (other := State(arrays, where).f) < f:
            best, f = where, other
        lower = max(lower, min(dual, f))
        because += (note,)
    if is_proven(f, lower) and PROVEN not in because:
        because += (PROVEN,)
    return Found(best, count, is_cut, lower, because)


def can_branch(arrays: Arrays) -> bool:
    """Return whether branch and bound has the table it needs and fits into memory."""
    units = len(arrays.unit_at) - 1
    return len(arrays.pairs) > 0 and units * units * len(arrays.hosts) <= MOST_OPEN


def _branch(
    arrays: Arrays, best: Ints, f: float, lower: float, pairs: int, limits: Limits
) -> tuple[Ints, float, float, int, bool, bool]:
    at, flat = ragged(unit_hosts(arrays))
    alike = twins(arrays)
    state = State(arrays, best)
    best = best.copy()
    limits.say("branch and bound", None)
    # growing limits: a run that is cut off starts again with the better placement and bound it found
    spent, some = 0, min(pairs, CHUNK_PAIRS)
    while True:
        f, bound, left = branch.branch(state.problem, state.parts, at, flat, alike, best, f, lower, some)
        lower = max(lower, bound)
        spent += some
        is_done = left >= 0
        is_cut = not is_done and limits.remaining_s() <= 0
        if is_done or is_cut or spent >= pairs:
            return best, f, lower, state.evaluations, is_done, is_cut
        limits.say(f"branch and bound, F {f:.6g}, bound {lower:.6g}", spent / pairs)
        some = min(4 * some, pairs - spent)


def twins(arrays: Arrays) -> Ints:
    """Return the same number for hosts that can stand for each other.

    Twins hang on the same site by one link each with the same latency and bandwidth, have the same
    class, speed and slots, and no rule tells them apart.
    """
    number: dict[tuple[object, ...], int] = {}
    answer = np.empty(len(arrays.hosts), np.int32)
    rules: list[list[int]] = [[] for _ in range(len(arrays.hosts))]
    for rule in range(len(arrays.rule_at) - 1):
        for host in arrays.rule_hosts[arrays.rule_at[rule] : arrays.rule_at[rule + 1]]:
            rules[host].append(rule)
    routes = arrays.problem.routes
    for host, site in enumerate(arrays.problem.hosts):
        v = int(arrays.hosts[host, 2])
        key: tuple[object, ...] = (host,)
        if arrays.start[v + 1] - arrays.start[v] == 1:
            code = int(arrays.leaving[arrays.start[v]])
            key = (
                "twin",
                int(routes.towards[code]),
                float(routes.latency_s[code // 2]),
                float(routes.bandwidth_bps[code // 2]),
                site.level,
                site.speed,
                site.slots,
                tuple(rules[host]),
            )
        answer[host] = number.setdefault(key, len(number))
    return answer
