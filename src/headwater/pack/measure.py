"""How good is a packing, plainly and in full?

`measure` adds up the signals on each machine as docs/model.md defines it and shares no code with the
searches: what they found is not believed. Sinusoids of one common period are judged in closed form,

    load(t) = B + A * sin(2 * pi * t / period + angle),  B = sum of baselines,  A = |sum of amplitude * e^(i phase)|

so the peak is B + A, and for a capacity C with B - A < C < B + A the mean over time of what is above it is
(A * sin(x) - (C - B) * x) / pi with x = acos((C - B) / A). Other signals are judged at every time unit of
their least common period, or of a stated horizon where that is too long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headwater.model.workload import Forecast, Signal, Sinusoid, Trace, Workload
from headwater.pack.forecast import forecast

__all__ = ["LONGEST_HORIZON", "TOLERANCE", "Machine", "Measured", "Span", "common_period", "measure", "resolved",
           "sampled", "span_of"]  # fmt: skip

TOLERANCE = 1e-9  # a peak this much above capacity, relative to it, is rounding, not overload
LONGEST_HORIZON = 10_000  # time units that are looked at when the least common period is longer

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine that is used."""

    number: int
    operators: tuple[str, ...]  # in file order
    capacity: float
    price: float
    peak: float  # the highest load, records per time unit
    utilisation: float  # mean over time of min(load, capacity) / capacity
    overload: float  # mean over time of max(0, load - capacity) / capacity
    is_over: bool  # exceeds its capacity at some time


@dataclass(frozen=True, slots=True)
class Measured:
    """What a packing is worth."""

    machines: tuple[Machine, ...]  # those used, by number
    used: int
    utilisation: float
    overload: float
    cost: float
    is_allowed: bool  # nothing over capacity, or overload has a price


@dataclass(frozen=True, slots=True)
class Span:
    """Over which time signals are judged."""

    period: float | None  # the common period of sinusoids: judged in closed form; None: by samples
    samples: int  # time units that are looked at; 0 in closed form
    is_whole: bool  # they cover the least common period


def resolved(workload: Workload) -> Workload:
    """Return the workload with a trace in place of each forecast."""
    if not any(isinstance(signal, Forecast) for signal in workload.operators.values()):
        return workload
    return replace(workload, operators={name: _settled(signal) for name, signal in workload.operators.items()})


def _settled(signal: Signal) -> Signal:
    if not isinstance(signal, Forecast):
        return signal
    return Trace(forecast(signal.loads, signal.season, signal.horizon, signal.margin))


def common_period(signals: Sequence[Signal]) -> float | None:
    """Return the one period that all sinusoids share, constants left out; None if there is none, or a trace."""
    if not all(isinstance(signal, Sinusoid) for signal in signals):
        return None
    periods = {signal.period for signal in signals if isinstance(signal, Sinusoid) and signal.amplitude > 0.0}
    return (periods.pop() if periods else 1.0) if len(periods) <= 1 else None


def span_of(workload: Workload) -> Span:
    """Return over which time the signals of a workload without forecasts are judged."""
    signals = list(workload.operators.values())
    period = common_period(signals)
    if period is not None:
        return Span(period, 0, True)
    lengths = set()
    for signal in signals:
        if isinstance(signal, Trace):
            lengths.add(len(signal.loads))
        elif isinstance(signal, Sinusoid) and signal.amplitude > 0.0:
            lengths.add(round(signal.period) if float(signal.period).is_integer() else 0)
    whole = math.lcm(*lengths)  # 0 where a period is no whole number
    if 0 < whole <= (workload.horizon or LONGEST_HORIZON):
        return Span(None, whole, True)
    return Span(None, workload.horizon or LONGEST_HORIZON, False)


def sampled(signal: Signal, samples: int) -> Floats:
    """Return the load of a sinusoid or trace at every time unit from 0."""
    if isinstance(signal, Trace):
        return np.resize(np.array(signal.loads, np.float64), samples)
    assert isinstance(signal, Sinusoid), "forecasts are resolved before"
    times = np.arange(samples, dtype=np.float64)
    if signal.amplitude == 0.0:
        return np.full(samples, signal.baseline)
    return np.maximum(
        0.0, signal.baseline + signal.amplitude * np.sin(2.0 * np.pi * times / signal.period + signal.phase)
    )


def measure(workload: Workload, assignment: Mapping[str, int]) -> Measured:
    """Return what a packing is worth; every operator must be on one of the machines.

    Raises:
        KeyError: an operator has no machine.
        IndexError: a machine that does not exist.
    """
    workload = resolved(workload)
    span = span_of(workload)
    here: dict[int, list[str]] = {}
    for name in workload.operators:
        here.setdefault(assignment[name], []).append(name)
    machines = tuple(_machine(workload, span, number, here[number]) for number in sorted(here))
    over = [machine for machine in machines if machine.is_over]
    price = workload.overload_price
    fine = 0.0 if price is None else math.fsum(price * each.overload * each.capacity for each in over)
    return Measured(
        machines,
        len(machines),
        math.fsum(each.utilisation for each in machines) / max(1, len(machines)),
        math.fsum(each.overload for each in over) / max(1, len(over)),
        math.fsum(each.price for each in machines) + fine,
        not over or price is not None,
    )


def _machine(workload: Workload, span: Span, number: int, names: Sequence[str]) -> Machine:
    kind = workload.kind_of(number)
    signals = [workload.operators[name] for name in names]
    mean, peak, above = (
        _waves(signals, kind.capacity) if span.period is not None else _sums(signals, span, kind.capacity)
    )
    is_over = peak > kind.capacity * (1.0 + TOLERANCE)
    above = above if is_over else 0.0
    return Machine(
        number,
        tuple(names),
        kind.capacity,
        kind.price,
        peak,
        (mean - above) / kind.capacity,
        above / kind.capacity,
        is_over,
    )


def _waves(signals: Sequence[Signal], capacity: float) -> tuple[float, float, float]:
    """Return mean, peak and the mean of what is above capacity of sinusoids with one period, in closed form."""
    waves = [signal for signal in signals if isinstance(signal, Sinusoid)]
    mean = math.fsum(wave.baseline for wave in waves)
    swing = math.hypot(
        math.fsum(wave.amplitude * math.cos(wave.phase) for wave in waves),
        math.fsum(wave.amplitude * math.sin(wave.phase) for wave in waves),
    )
    room = capacity - mean
    if room >= swing:
        return mean, mean + swing, 0.0
    if room <= -swing:
        return mean, mean + swing, -room
    angle = math.acos(room / swing)
    return mean, mean + swing, (swing * math.sin(angle) - room * angle) / math.pi


def _sums(signals: Sequence[Signal], span: Span, capacity: float) -> tuple[float, float, float]:
    """Return the same of any signals, from samples."""
    total = np.zeros(span.samples)
    for signal in signals:
        total += sampled(signal, span.samples)
    return float(total.mean()), float(total.max()), float(np.maximum(0.0, total - capacity).mean())
