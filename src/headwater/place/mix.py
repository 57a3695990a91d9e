"""What should a user get who does not choose? Greedy, then search, then proof where the size allows.

The bound comes first, because a search that reaches it is done.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.place.arrays import Arrays
from headwater.place.bounds import lower_bound
from headwater.place.exact import FEW_PAIRS, FEW_STEPS, can_branch, prove
from headwater.place.result import Limits, is_proven
from headwater.place.search import NEAR_ZERO, Found, anneal, descend, greedy, tidied
from headwater.place.state import State

__all__ = ["auto"]

STEPS = 4_000_000  # annealing steps in all, for any size
LARGE = 2_000  # operators above which cooling does not pay: descend only
DESCENT_STEPS = 1_000_000
PROOF_PAIRS = 2_000_000_000  # pairs of hosts that the proof may look at
MOST_CELLS = 3_000  # streams times links up to which the integer programme is tried


def auto(arrays: Arrays, seed: int, limits: Limits) -> Found:
    """Return a good placement and how good it can be at most."""
    limits.say("bounding from below", None)
    floor = lower_bound(arrays)
    limits.say("greedy placement", None)
    first = greedy(arrays)
    found = first
    if State(arrays, first.where).f > floor + NEAR_ZERO:
        if len(arrays.names) > LARGE:
            found = _joined(first, descend(arrays, first.where, seed, DESCENT_STEPS, limits))
        else:
            # a short search is often enough for a proof; only what is left open is searched at length
            found = _joined(first, anneal(arrays, seed, limits, where=first.where, floor=floor, most=FEW_STEPS))
            if can_branch(arrays) and not found.cut_short:
                found = prove(arrays, found, floor, limits, FEW_PAIRS, 0)
            if not is_proven(State(arrays, found.where).f, found.lower_bound) and not found.cut_short:
                found = _joined(found, anneal(arrays, seed, limits, where=found.where, floor=floor, most=STEPS))
    found = replace(found, lower_bound=max(floor, found.lower_bound))
    if can_branch(arrays) and not found.cut_short:
        found = prove(arrays, found, found.lower_bound, limits, PROOF_PAIRS, MOST_CELLS)
    limits.say("tidying", None)
    neat = tidied(arrays, found.where)
    if not np.array_equal(neat, found.where):
        because = (*found.because, "of placements with this F, one with less on the network")
        return replace(found, where=neat, because=because)
    return found


def _joined(before: Found, after: Found) -> Found:
    """Return what came after, with the work and the reasons of both."""
    return replace(
        after,
        evaluations=before.evaluations + after.evaluations,
        lower_bound=max(before.lower_bound, after.lower_bound),
        because=before.because + after.because,
    )
