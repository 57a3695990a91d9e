"""What came of a simulation?

Plain values made from the counts of a `Plant`: the figures of paper 004 (equations 12 to 16) for operators, machines
and the whole, latencies as records had them, and series in buckets of a stated length. Percentiles come from a
histogram with eight bins to the octave: they are within 5 % of what they name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.sim.advance import BINS_PER_OCTAVE, LEAST_BIN_S
from headwater.sim.arrays import Floats
from headwater.sim.plant import Plant

__all__ = [
    "LinkFigures",
    "MachineFigures",
    "Moment",
    "OperatorFigures",
    "Series",
    "Simulated",
    "Totals",
    "gathered",
    "percentile",
]


@dataclass(frozen=True, slots=True)
class OperatorFigures:
    """One operator, all its instances together."""

    name: str
    came: float  # records
    done: float
    dropped: float
    waiting: float  # at the end
    throughput_rps: float  # records processed in a second, from its first moment on
    queue_mean: float
    queue_max: float  # of any instance
    latency_s: float | None  # mean from coming in to being processed; None where nothing was
    p50_s: float | None
    p99_s: float | None
    ratio: float | None  # equation 13: what was there over what was processed, mean over steps with anything done
    stalled_s: float  # with records waiting and nothing done

    @property
    def wait_s(self) -> float | None:
        """Return the mean time that records waited, by Little's law: mean queue over throughput."""
        return self.queue_mean / self.throughput_rps if self.throughput_rps > 0.0 else None


@dataclass(frozen=True, slots=True)
class MachineFigures:
    """One machine."""

    name: str
    up_s: float
    used_s: float  # with at least one operator on it
    utilisation: float  # equation 14, mean over the time that it ran and was used
    overload_max: float  # equation 15: what was asked for over what there is, at its greatest
    overloaded_s: float  # with more asked for than there is
    cost: float  # equation 16


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """One direction of a link."""

    origin: str
    target: str
    utilisation: float
    overload_max: float


@dataclass(frozen=True, slots=True)
class Moment:
    """One event, and what came of it."""

    at_s: float
    text: str
    placement: Mapping[str, str] | None = None  # of a schedule: instance -> machine, of all that are placed
    moved: int = 0
    because: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """The whole."""

    throughput_rps: float  # equation 12: what sinks gave out in a second
    latency_s: float | None  # from birth to leaving a sink
    p50_s: float | None
    p99_s: float | None
    came: float  # from outside and between operators
    dropped: float
    waiting: float
    queue_max: float  # of any operator
    machines_used: int
    utilisation: float  # mean over machines and time of use
    overloaded_s: float  # summed over machines
    cost: float


@dataclass(frozen=True)
class Series:
    """What happened when: a row for each bucket."""

    bucket_s: float
    operators: tuple[str, ...]
    machines: tuple[str, ...]
    arrivals_rps: Floats  # by bucket and operator
    throughput_rps: Floats
    queue_mean: Floats
    queue_max: Floats
    wait_s: Floats
    utilisation: Floats  # by bucket and machine
    overload: Floats
    overload_max: Floats

    @property
    def times_s(self) -> Floats:
        """When each bucket begins."""
        return np.arange(len(self.arrivals_rps), dtype=np.float64) * self.bucket_s


@dataclass(frozen=True)
class Simulated:
    """What came of a scenario."""

    scenario: str
    seed: int
    seconds: float  # simulated
    steps: int
    operator_steps: int  # instances times steps
    totals: Totals
    operators: tuple[OperatorFigures, ...]
    machines: tuple[MachineFigures, ...]
    links: tuple[LinkFigures, ...]
    moments: tuple[Moment, ...]
    series: Series | None  # None where there are too many operators for it


def percentile(bins: Floats, share: float) -> float | None:
    """Return the delay that a share of records does not exceed; None where there are none."""
    total = float(bins.sum())
    if total <= 0.0:
        return None
    sums = np.cumsum(bins)
    place = int(np.searchsorted(sums, share * total))
    if place == 0:
        return LEAST_BIN_S
    place = min(place, len(bins) - 1)
    part = (share * total - sums[place - 1]) / bins[place] if bins[place] > 0.0 else 1.0
    return float(LEAST_BIN_S * 2.0 ** ((place - 1 + part) / BINS_PER_OCTAVE))


def gathered(
    plant: Plant,
    scenario: str,
    seed: int,
    present: Sequence[int],
    up: Floats,
    used: Floats,
    moments: Sequence[Moment],
) -> Simulated:
    """Return the figures of a plant.

    Args:
        plant: As it is.
        scenario: Its name.
        seed: That all chance came from.
        present: By instance: the steps that it has been there.
        up: By machine: the steps that it ran.
        used: By machine: those of them with an operator on it.
        moments: What happened.
    """
    plant.settle()
    operators = tuple(_operator(plant, number, present) for number in range(len(plant.cast.operators)))
    machines = tuple(_machine(plant, number, up, used) for number in range(len(plant.cast.machines)))
    seconds = plant.step * plant.dt
    counts, sinks = plant.counts, list(plant.cast.sinks)
    out = float(counts.done[sinks].sum())
    written = float((counts.done[sinks] * plant.knobs.alpha[sinks]).sum())
    ends = plant.detail.ends.sum(axis=0)
    busy = used.sum()
    totals = Totals(
        written / seconds if seconds else 0.0,
        float(counts.aged[sinks].sum()) / out if out else None,
        percentile(ends, 0.5) if len(ends) else None,
        percentile(ends, 0.99) if len(ends) else None,
        sum(one.came for one in operators),
        sum(one.dropped for one in operators),
        sum(one.waiting for one in operators),
        max((one.queue_max for one in operators), default=0.0),
        int((used > 0).sum()),
        float(counts.full[: len(used)].sum() / busy) if busy else 0.0,
        sum(one.overloaded_s for one in machines),
        sum(one.cost for one in machines),
    )
    return Simulated(
        scenario,
        seed,
        seconds,
        plant.step,
        plant.step * len(plant.cast.operator_of),
        totals,
        operators,
        machines,
        _links(plant),
        tuple(moments),
        _series(plant) if plant.is_detailed else None,
    )


def _operator(plant: Plant, number: int, present: Sequence[int]) -> OperatorFigures:
    counts, own = plant.counts, plant.cast.own(number)
    here = slice(own.start, own.stop)
    seconds = max(present[here], default=0) * plant.dt
    done = float(counts.done[here].sum())
    bins = plant.detail.delays[here].sum(axis=0) if plant.is_detailed else np.zeros(0)
    acting = float((counts.busy[here] - counts.stalled[here]).sum())
    waiting = plant.queue_of(own)
    return OperatorFigures(
        plant.cast.operators[number].name,
        float(counts.came[here].sum()),
        done,
        float(counts.lost[here].sum()),
        waiting,
        done / seconds if seconds else 0.0,
        float(counts.area[here].sum()) / seconds if seconds else 0.0,
        float(counts.peak[here].max(initial=0.0)),
        float(counts.spent[here].sum()) / done if done and plant.is_detailed else None,
        percentile(bins, 0.5) if len(bins) else None,
        percentile(bins, 0.99) if len(bins) else None,
        1.0 + float(counts.ratio[here].sum()) / acting if acting else None,
        float(counts.stalled[here].sum()) * plant.dt,
    )


def _machine(plant: Plant, number: int, up: Floats, used: Floats) -> MachineFigures:
    counts, one = plant.counts, plant.cast.machines[number]
    used_s = float(used[number]) * plant.dt
    return MachineFigures(
        one.name,
        float(up[number]) * plant.dt,
        used_s,
        float(counts.full[number] / used[number]) if used[number] else 0.0,
        float(counts.over[number]),
        float(counts.strained[number]) * plant.dt,
        one.price * used_s / 3600.0,
    )


def _links(plant: Plant) -> tuple[LinkFigures, ...]:
    if plant.sites is None:
        return ()
    first, steps = len(plant.cast.machines), max(1, plant.step)
    found = []
    for number, link in enumerate(plant.sites.links):
        for code, (a, b) in ((2 * number, (link.a, link.b)), (2 * number + 1, (link.b, link.a))):
            full, over = plant.counts.full[first + code], plant.counts.over[first + code]
            found.append(LinkFigures(a, b, float(full) / steps, float(over)))
    return tuple(found)


def _series(plant: Plant) -> Series:
    detail, cast = plant.detail, plant.cast
    rows = -(-plant.step // plant.bucket_steps)
    steps = np.full(rows, plant.bucket_steps, np.float64)
    if rows:
        steps[-1] = plant.step - (rows - 1) * plant.bucket_steps
    first = cast.first[:-1]

    def summed(values: Floats) -> Floats:
        own = values[:rows, : len(cast.operator_of)]
        return np.add.reduceat(own, first, axis=1)

    per_s = (1.0 / (steps * plant.dt))[:, None]
    out = summed(detail.flow_out)
    late = summed(detail.late)
    machines = slice(0, len(cast.machines))
    return Series(
        plant.bucket_steps * plant.dt,
        tuple(one.name for one in cast.operators),
        tuple(one.name for one in cast.machines),
        summed(detail.flow_in) * per_s,
        out * per_s,
        summed(detail.wait_mean) / steps[:, None],
        np.maximum.reduceat(detail.wait_most[:rows, : len(cast.operator_of)], first, axis=1),
        np.divide(late, out, out=np.zeros_like(late), where=out > 0.0),
        detail.m_full[:rows, machines] / steps[:, None],
        detail.m_over[:rows, machines] / steps[:, None],
        detail.m_most[:rows, machines],
    )
