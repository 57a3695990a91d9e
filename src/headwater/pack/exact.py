"""What is the least cost, and can that be proven? Column generation, dives, and the methods made of them."""

from __future__ import annotations

import numpy as np

from headwater.errors import Mistake, SpecError
from headwater.pack.close import close
from headwater.pack.columns import Pool, Relaxed, relax, whole_cost
from headwater.pack.dive import dive
from headwater.pack.large import filled
from headwater.pack.loads import Found, Ints, Loads, volume_bound
from headwater.pack.result import Limits, is_reached
from headwater.pack.search import cost_of, shaken
from headwater.pack.simple import fitted

__all__ = ["LARGE", "auto", "exact", "proven"]

LARGE = 300  # operators above which the workload is taken apart
REST = 150  # operators of a large workload that are packed by columns, last
MOST_EXACT = 2_000  # operators that `exact` takes
DIVES = 6
NOISE = 0.3  # by how much later dives see shares differently
QUICK, LONG = 400_000, 3_000_000  # steps of annealing, before and after


def exact(loads: Loads, seed: int, limits: Limits) -> Found:
    """Return the least cost with its proof, or how near the bound has come."""
    if len(loads.names) > MOST_EXACT:
        raise SpecError(
            Mistake(
                "HW1451",
                f"method 'exact' takes up to {MOST_EXACT} operators, and there are {len(loads.names)}; use 'auto'",
            )
        )
    return proven(loads, _fits(loads), seed, limits)


def auto(loads: Loads, seed: int, limits: Limits) -> Found:
    """Return a good packing and how good one can be at most; large workloads are taken apart."""
    if len(loads.names) > LARGE and loads.is_hard:
        return filled(loads, seed, limits, lambda part, inner: proven(part, _fits(part), seed, inner), REST)
    return proven(loads, _fits(loads), seed, limits)


def _fits(loads: Loads) -> Ints | None:
    """Return the better of two best fits."""
    tried = [fitted(loads, np.argsort(-key, kind="stable")) for key in (loads.peaks, loads.means)]
    return min(tried, key=lambda where: cost_of(loads, where))


def proven(loads: Loads, start: Ints | None, seed: int, limits: Limits) -> Found:
    """Return the best packing of column generation, dives and annealing, with a bound from the columns."""
    floor = volume_bound(loads)
    best, cost = start, cost_of(loads, start)
    if is_reached(cost, floor):
        return Found(best, floor, because=("best fit needs no more than the mean load of all does",))
    limits.say("bounding from below by columns", None)
    pool = Pool(loads)
    if best is not None:
        pool.add_packing(best)
    relaxed = relax(pool, np.arange(len(loads.names)), loads.counts, limits, enough=cost)
    bound = max(floor, whole_cost(loads, relaxed.bound))
    because = [_bound_note(loads, floor, relaxed, bound)]
    is_cut = relaxed.cut_short
    rng = np.random.default_rng(seed)
    for number in range(DIVES):
        if is_reached(cost, bound) or is_cut:
            break
        limits.say(f"dive {number + 1} for a cost of {bound:g}", None)
        found = dive(pool, relaxed, _wanted(loads, bound, cost), rng, NOISE if number else 0.0, limits)
        is_cut = limits.remaining_s() <= 0.0
        if found is not None and cost_of(loads, found) < cost:
            best, cost = found, cost_of(loads, found)
            because.append(f"{_cost_note(loads, cost)} found by taking the most used columns, dive {number + 1}")
    if not is_reached(cost, bound) and not is_cut:
        better, is_cut = shaken(loads, best, bound, seed, limits, LONG, 2)
        if cost_of(loads, better) < cost:
            best, cost = better, cost_of(loads, better)
            because.append(f"{_cost_note(loads, cost)} found by annealing")
    if not is_reached(cost, bound) and not is_cut and np.isfinite(cost):
        limits.say("asking whether anything better is left", None)
        relaxed = relax(pool, np.arange(len(loads.names)), loads.counts, limits, enough=None)
        is_cut = relaxed.cut_short
        better, is_decided = close(pool, relaxed, cost, limits) if relaxed.is_whole else (None, False)
        is_cut = is_cut or limits.remaining_s() <= 0.0
        if better is not None and cost_of(loads, better) < cost:
            best, cost = better, cost_of(loads, better)
            because.append(f"{_cost_note(loads, cost)} found by an integer programme over all columns that matter")
        if is_decided:
            bound = cost
            because.append("all columns that something better could use were looked at: there is nothing better")
    if best is start and best is not None:
        because.append(f"{_cost_note(loads, cost)} found by best fit")
    return Found(best, min(bound, cost), is_cut, tuple(because))


def _wanted(loads: Loads, bound: float, cost: float) -> float:
    """Return what a dive should come to: the bound, or without whole machines anything better than what is known."""
    return bound if loads.is_plain else cost * (1.0 - 1e-9) - 1e-9


def _cost_note(loads: Loads, cost: float) -> str:
    return f"{cost:.0f} machines" if loads.is_plain else f"a cost of {cost:.6g}"


def _bound_note(loads: Loads, floor: float, relaxed: Relaxed, bound: float) -> str:
    named = f"at least {bound:.0f} machines" if loads.is_plain else f"a cost of at least {bound:.6g}"
    if bound <= floor:
        return f"{named}: the mean load of all needs that much"
    return f"{named}: the linear programme over columns needs {relaxed.bound:.3f}"
