"""What does a search for a packing see of a workload? Flat arrays, made once.

Each operator is a vector, and vectors of operators on one machine add up. Sinusoids of one common period
are (baseline, amplitude * cos(phase), amplitude * sin(phase)): the peak of a sum is its first number plus
the length of the other two. Any other signals are their samples: the peak is the largest number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.model.workload import Sinusoid, Workload
from headwater.pack.measure import TOLERANCE, Span, resolved, sampled, span_of

__all__ = ["Floats", "Found", "Ints", "Loads", "loads_of", "room_of", "volume_bound"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Loads:
    """A workload in arrays."""

    names: tuple[str, ...]
    vectors: Floats  # operator -> what adds up
    is_wave: bool  # closed form; else samples
    means: Floats  # operator -> mean load over time
    peaks: Floats  # operator -> highest load
    capacities: Floats  # kind -> records per time unit, rounding allowed for
    counts: Ints  # kind -> how many may be used
    prices: Floats  # kind -> price of one machine
    overload_price: float  # of a record per time unit above capacity; infinite: overload is forbidden
    span: Span

    @property
    def is_plain(self) -> bool:
        """Whether the least number of equal machines without overload is asked for."""
        return len(self.counts) == 1 and bool(self.prices[0] == 1.0) and self.is_hard

    @property
    def is_hard(self) -> bool:
        """Whether overload is forbidden."""
        return bool(np.isinf(self.overload_price))


@dataclass(frozen=True, slots=True)
class Found:
    """What a method found."""

    where: Ints | None  # operator -> machine; None: nothing that fits
    lower_bound: float = 0.0  # on the cost, if the method proved one
    cut_short: bool = False
    because: tuple[str, ...] = ()


def loads_of(workload: Workload) -> Loads:
    """Return a workload in arrays."""
    workload = resolved(workload)
    span = span_of(workload)
    signals = list(workload.operators.values())
    if span.period is not None:
        waves = [signal for signal in signals if isinstance(signal, Sinusoid)]
        vectors = np.array(
            [(w.baseline, w.amplitude * np.cos(w.phase), w.amplitude * np.sin(w.phase)) for w in waves], np.float64
        ).reshape(-1, 3)
        means = vectors[:, 0].copy()
        peaks = vectors[:, 0] + np.hypot(vectors[:, 1], vectors[:, 2])
    else:
        vectors = np.array([sampled(signal, span.samples) for signal in signals]).reshape(-1, span.samples)
        means, peaks = vectors.mean(axis=1), vectors.max(axis=1)
    return Loads(
        tuple(workload.operators),
        np.ascontiguousarray(vectors),
        span.period is not None,
        means,
        peaks,
        np.array([kind.capacity * (1.0 + TOLERANCE) for kind in workload.kinds]),
        np.array([min(kind.count, len(signals)) for kind in workload.kinds], np.int64),
        np.array([kind.price for kind in workload.kinds]),
        np.inf if workload.overload_price is None else workload.overload_price,
        span,
    )


def room_of(loads: Loads) -> tuple[Ints, Ints]:
    """Return the kind of every machine that a search may use, and the number of it in the workload's count.

    No search needs more machines of a kind than there are operators, so only so many are looked at.
    """
    kinds = np.repeat(np.arange(len(loads.counts)), loads.counts)
    return kinds.astype(np.int64), np.arange(len(kinds), dtype=np.int64)


def volume_bound(loads: Loads) -> float:
    """Return what all machines together must cost, for the mean load alone has to go somewhere.

    Kinds are filled in the order of their price per record; overload is a kind without end. Whole machines are
    counted where all have one price.
    """
    left = float(loads.means.sum())
    if loads.is_plain:
        return float(max(1, np.ceil(left / loads.capacities[0] - 1e-9))) if len(loads.names) else 0.0
    cost = 0.0
    for kind in np.argsort(loads.prices / loads.capacities, kind="stable"):
        rate = loads.prices[kind] / loads.capacities[kind]
        if rate >= loads.overload_price:
            break
        taken = min(left, float(loads.capacities[kind] * loads.counts[kind]))
        cost += rate * taken
        left -= taken
    if left > 0.0 and not loads.is_hard:
        cost += loads.overload_price * left
    return max(cost, float(loads.prices.min())) if len(loads.names) else 0.0
