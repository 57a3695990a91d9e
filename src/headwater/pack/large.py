"""How are very many operators packed in little time?

Machine by machine: the operator with the highest peak that is left comes first, and the best company for it is
looked for among a window of others, drawn by chance, so that every window has the composition of the whole. With
thousands left a window almost always has company that fills the machine; only the last few hundred operators are
hard, and they are packed together, as a workload of their own, by column generation. The bound is that of mean
loads, which very many operators come near to by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from headwater.pack.fill import fill
from headwater.pack.loads import Found, Ints, Loads, volume_bound
from headwater.pack.price import MOST_IN_SET
from headwater.pack.result import Limits

__all__ = ["filled"]

WINDOW = 400  # operators among which company is looked for
STEPS = 300_000  # of one such search
FULL = 0.9985  # of a capacity: no better company is looked for

Pack = Callable[[Loads, Limits], Found]


def filled(loads: Loads, seed: int, limits: Limits, pack_rest: Pack, rest: int) -> Found:
    """Return a packing: machines filled from windows, until `rest` operators are left for `pack_rest`."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(loads.names))  # windows are slices of it: drawn once
    left = np.ones(len(loads.names), bool)
    by_peak = np.argsort(-loads.peaks, kind="stable")
    counts = loads.counts.copy()
    firsts = np.concatenate(([0], np.cumsum(loads.counts)))[:-1]
    taken = np.zeros(len(counts), np.int64)
    where = np.full(len(loads.names), -1, np.int64)
    cheapest = np.argsort(loads.prices / loads.capacities, kind="stable")
    remaining, next_first, is_cut = len(loads.names), 0, False
    chosen = np.zeros(MOST_IN_SET, np.int64)
    while remaining > rest:
        while not left[by_peak[next_first]]:
            next_first += 1
        first = int(by_peak[next_first])
        kind = next(
            (int(k) for k in cheapest if taken[k] < counts[k] and loads.peaks[first] <= loads.capacities[k]), -1
        )
        if kind < 0:
            return Found(None, cut_short=is_cut, because=("machines run out while operators are left",))
        members = np.array([first])
        is_cut = is_cut or limits.remaining_s() <= 0.0
        window = _window(order, left, first, rng, WINDOW if not is_cut else 8)
        window = window[np.argsort(-loads.means[window], kind="stable")]
        among = np.concatenate((members, window))
        size = fill(
            np.ascontiguousarray(loads.vectors[among]), loads.is_wave, np.ascontiguousarray(loads.means[among]),
            float(loads.capacities[kind]), FULL * float(loads.capacities[kind]), STEPS, chosen,
        )  # fmt: skip
        members = among[chosen[:size]]
        where[members] = firsts[kind] + taken[kind]
        taken[kind] += 1
        left[members] = False
        remaining -= len(members)
        if taken.sum() % 64 == 0:
            order = order[left[order]]
            limits.say("filling machines", 1.0 - remaining / len(loads.names))
    inner = _part(loads, np.flatnonzero(left), counts - taken)
    if not len(inner.names):
        return Found(where, volume_bound(loads), is_cut)
    found = pack_rest(inner, limits)
    if found.where is None:
        return Found(None, cut_short=found.cut_short, because=found.because)
    where[left] = _joined(found.where, inner.counts, firsts + taken)
    note = (
        f"{int(taken.sum())} machines filled from windows of {WINDOW} operators, the last {len(inner.names)} "
        "operators packed by columns"
    )
    return Found(where, volume_bound(loads), is_cut or found.cut_short, (note, "bound: the mean load of all operators"))


def _window(order: Ints, left: np.ndarray, first: int, rng: np.random.Generator, size: int) -> Ints:
    """Return some operators that are left, drawn by chance, without the first."""
    start = int(rng.integers(0, max(1, len(order) - 3 * size)))
    drawn = order[start : start + 3 * size]
    drawn = drawn[left[drawn] & (drawn != first)][:size]
    if len(drawn) < min(size, int(left.sum()) - 1):
        drawn = order[left[order] & (order != first)][:size]
    return np.asarray(drawn, np.int64)


def _part(loads: Loads, operators: Ints, counts: Ints) -> Loads:
    return replace(
        loads,
        names=tuple(loads.names[i] for i in operators),
        vectors=np.ascontiguousarray(loads.vectors[operators]),
        means=loads.means[operators].copy(),
        peaks=loads.peaks[operators].copy(),
        counts=np.minimum(counts, len(operators)),
    )


def _joined(where: Ints, counts: Ints, firsts: Ints) -> Ints:
    """Return the machines of a part as machines of the whole."""
    edges = np.concatenate(([0], np.cumsum(counts)))
    kind = np.searchsorted(edges, where, side="right") - 1
    return firsts[kind] + where - edges[kind]
