"""Which packings need no search? Best fit, with the whole signal or with one number for each operator."""

from __future__ import annotations

import numpy as np

from headwater.pack.kernels import fit_decreasing
from headwater.pack.loads import Floats, Found, Ints, Loads, room_of
from headwater.pack.result import Limits

__all__ = ["DEMAND", "bestfit", "fitted", "rstorm", "rstorm_with"]

DEMAND = 1.15  # what R-Storm is told that an operator needs, relative to its mean load


def rstorm(loads: Loads, seed: int, limits: Limits) -> Found:
    """Return the packing of R-Storm with the processor as the only resource, and the default demand."""
    del seed, limits
    return rstorm_with(loads, DEMAND)


def rstorm_with(loads: Loads, demand: float) -> Found:
    """Return the packing of R-Storm: each operator, as it comes, on the used machine with the least room left for it.

    It is told one number for each operator, `demand` times its mean load, and knows nothing of peaks. Processors
    are a soft limit there: when no machine has room and none is left, the one with the most room is taken.
    """
    kinds, numbers = room_of(loads)
    room = loads.capacities[kinds].copy()
    is_used = np.zeros(len(kinds), bool)
    where = np.empty(len(loads.names), np.int64)
    for i, need in enumerate(demand * loads.means):
        fits = room >= need
        open_ones = np.flatnonzero(fits & is_used)
        if len(open_ones):
            machine = open_ones[np.argmin(room[open_ones])]
        elif (fits & ~is_used).any():
            new = np.flatnonzero(fits & ~is_used)
            machine = new[np.argmin(loads.prices[kinds[new]] / loads.capacities[kinds[new]])]
        else:
            machine = int(np.argmax(room))
        room[machine] -= need
        is_used[machine] = True
        where[i] = numbers[machine]
    note = f"each operator counted with {demand:g} times its mean load, peaks not looked at"
    return Found(where, because=(note,))


def bestfit(loads: Loads, seed: int, limits: Limits) -> Found:
    """Return best fit decreasing on summed signals."""
    del seed, limits
    order = np.argsort(-loads.peaks, kind="stable")
    where = fitted(loads, order)
    return Found(where, because=("operators by falling peak, each where the least room is left at the peak",))


def fitted(loads: Loads, order: Ints, vectors: Floats | None = None) -> Ints | None:
    """Return best fit of operators in an order, or None when machines run out."""
    kinds, numbers = room_of(loads)
    # machines are opened in the order of their price per record
    opening = np.argsort((loads.prices / loads.capacities)[kinds], kind="stable").astype(np.int64)
    where = np.full(len(loads.names), -1, np.int64)
    left = fit_decreasing(
        loads.vectors if vectors is None else vectors, loads.is_wave, order.astype(np.int64),
        loads.capacities[kinds][opening], loads.prices[kinds][opening], loads.overload_price, where,
    )  # fmt: skip
    return None if left else numbers[opening][where]
