"""What is joined to what, and over which links?

Takes a scenario and gives its `Cast`: every instance, queue and machine that there ever will be, in a fixed order.
`wire` takes the cast and who stands where, and gives the lines between instances: straight ones, or over the links
of a route, where each link is an instance of its own whose work is the bits of a record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from headwater.model.routes import Routes
from headwater.model.scenario import Machine, NewMachine, NewOperator, Scenario, Simulated
from headwater.model.sites import Sites
from headwater.sim.arrays import Fixed, Floats, Ints

__all__ = ["Cast", "Stream", "Wiring", "cast", "wire"]


class Stream(NamedTuple):
    """Records from one instance to another."""

    writer: int  # instances
    reader: int
    queue: int  # of the reader
    part: float  # records for each one that the writer gives out
    size_bytes: float  # of a record


@dataclass(frozen=True)
class Cast:
    """Everybody who ever appears."""

    operators: tuple[Simulated, ...]
    machines: tuple[Machine, ...]
    first: Ints  # by operator: its first instance; one more at the end
    queue_at: Ints  # by instance: its first queue; one more at the end
    streams: tuple[Stream, ...]
    sinks: tuple[int, ...]  # instances that nobody reads

    @cached_property
    def instances(self) -> tuple[str, ...]:
        """Names of instances."""
        return tuple(one.instance(i) for one in self.operators for i in range(len(one.weights)))

    @cached_property
    def operator_of(self) -> Ints:
        """The operator of each instance."""
        return np.repeat(np.arange(len(self.operators)), np.diff(self.first))

    @cached_property
    def machine_number(self) -> Mapping[str, int]:
        """Machines by name."""
        return {machine.name: i for i, machine in enumerate(self.machines)}

    @cached_property
    def operator_number(self) -> Mapping[str, int]:
        """Operators by name."""
        return {operator.name: i for i, operator in enumerate(self.operators)}

    def own(self, operator: int) -> range:
        """Return the instances of an operator."""
        return range(int(self.first[operator]), int(self.first[operator + 1]))


def cast(scenario: Scenario) -> Cast:
    """Return everybody who ever appears in a scenario."""
    changes = [event.change for event in scenario.events]
    operators = (*scenario.operators, *(one.operator for one in changes if isinstance(one, NewOperator)))
    machines = {one.name: one for one in scenario.machines}
    for change in changes:
        if isinstance(change, NewMachine):
            machines.setdefault(change.machine.name, change.machine)
    first = np.concatenate(([0], np.cumsum([len(one.weights) for one in operators]))).astype(np.int64)
    number = {one.name: i for i, one in enumerate(operators)}
    counts = [
        (0 if one.load is None else 1) + sum(len(operators[number[stream.source]].weights) for stream in one.inputs)
        for one in operators
    ]
    per_instance = np.repeat(counts, np.diff(first))
    queue_at = np.concatenate(([0], np.cumsum(per_instance))).astype(np.int64)
    sizes = _sizes(operators, number) if any(one.inputs for one in operators) else {}
    streams: list[Stream] = []
    read: set[int] = set()
    for v, one in enumerate(operators):
        for place, weight in enumerate(one.weights):
            reader = int(first[v]) + place
            queue = int(queue_at[reader]) + (0 if one.load is None else 1)
            for stream in one.inputs:
                u = number[stream.source]
                read.add(u)
                for writer in range(int(first[u]), int(first[u + 1])):
                    size = sizes[stream.source] * stream.size_factor
                    streams.append(Stream(writer, reader, queue, stream.rate_factor * weight, size))
                    queue += 1
    sinks = tuple(i for v in range(len(operators)) if v not in read for i in range(int(first[v]), int(first[v + 1])))
    return Cast(operators, tuple(machines.values()), first, queue_at, tuple(streams), sinks)


def _sizes(operators: Sequence[Simulated], number: Mapping[str, int]) -> dict[str, float]:
    """Return the bytes of a record that each operator writes; of several inputs, by their usual rates."""
    done: dict[str, tuple[float, float]] = {}  # rate and size of what it writes

    def visit(one: Simulated) -> None:
        rate, volume = 0.0, 0.0
        if one.load is not None:
            rate = one.load.baseline if hasattr(one.load, "baseline") else float(np.mean(one.load.rates_rps))
            volume = rate * one.size_bytes
        for stream in one.inputs:
            out_rate, size = done[stream.source]
            rate += out_rate * stream.rate_factor
            volume += out_rate * stream.rate_factor * size * stream.size_factor
        mean = volume / rate if rate > 0.0 else one.size_bytes
        done[one.name] = (rate * one.rate_factor, mean * one.size_factor)

    waiting = {one.name: {stream.source for stream in one.inputs} for one in operators}
    readers: dict[str, list[str]] = {}
    for name, sources in waiting.items():
        for source in sources:
            readers.setdefault(source, []).append(name)
    ready = [name for name, sources in waiting.items() if not sources]
    for name in ready:  # grows while it is walked
        visit(operators[number[name]])
        for reader in readers.get(name, ()):
            waiting[reader].discard(name)
            if not waiting[reader]:
                ready.append(reader)
    return {name: size for name, (_, size) in done.items()}


@dataclass(frozen=True)
class Wiring:
    """The lines between instances, and the instances that stand on links."""

    fixed: Fixed
    slots: int  # of all lines together
    carrier_machine: Ints  # by carrier: the direction of a link, as a machine
    carrier_work: Floats  # bits of a record
    chain: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # by stream: its lines, and its carriers' queues


def wire(cast: Cast, machine: Ints, is_active: Sequence[bool], sites: Sites | None, step_s: float) -> Wiring:
    """Return how streams run when instances stand where `machine` says."""
    routes = None if sites is None else Routes(sites)
    count, queues = len(cast.operator_of), int(cast.queue_at[-1])
    line_of = [-1] * queues
    outputs: list[list[tuple[int, float]]] = [[] for _ in range(count)] if cast.streams else []
    steps: list[int] = []
    delays: list[float] = []
    carrier_machine: list[int] = []
    carrier_work: list[float] = []
    chain: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def line(delay_s: float) -> int:
        steps.append(max(1, math.ceil(delay_s / step_s - 1e-9)))
        delays.append(delay_s)
        return len(steps) - 1

    for stream in cast.streams:
        a, b = int(machine[stream.writer]), int(machine[stream.reader])
        codes = _codes(cast, routes, a, b)
        hop_s = _hop(cast, stream, a, b)
        lines, own = [line(hop_s if not codes else 0.0)], []
        part = stream.part if is_active[stream.reader] and is_active[stream.writer] else 0.0
        outputs[stream.writer].append((lines[0], part))
        for place, code in enumerate(codes):
            queue = queues + len(carrier_machine)
            own.append(queue)
            line_of.append(lines[-1])
            assert routes is not None, "only a route has links"
            carrier_machine.append(len(cast.machines) + code)
            carrier_work.append(8.0 * stream.size_bytes)
            is_last = place == len(codes) - 1
            lines.append(line(float(routes.latency_s[code // 2]) + (hop_s if is_last else 0.0)))
            outputs.append([(lines[-1], 1.0)])
        line_of[stream.queue] = lines[-1]
        chain.append((tuple(lines), tuple(own)))
    sink_row = np.full(count + len(carrier_machine), -1, np.int64)
    sink_row[list(cast.sinks)] = np.arange(len(cast.sinks))
    out_count = [len(one) for one in outputs] if outputs else [0] * count
    line_long = np.array(steps, np.int64) + 1
    fixed = Fixed(
        np.concatenate((cast.queue_at, cast.queue_at[-1] + 1 + np.arange(len(carrier_machine)))).astype(np.int64),
        np.array(line_of, np.int64),
        np.concatenate(([0], np.cumsum(out_count))).astype(np.int64),
        np.array([each[0] for one in outputs for each in one], np.int64),
        np.array([each[1] for one in outputs for each in one], np.float64),
        (np.cumsum(line_long) - line_long).astype(np.int64),
        line_long,
        np.array(delays, np.float64),
        sink_row,
    )
    return Wiring(
        fixed,
        int(line_long.sum()),
        np.array(carrier_machine, np.int64),
        np.array(carrier_work, np.float64),
        tuple(chain),
    )


def _codes(cast: Cast, routes: Routes | None, a: int, b: int) -> tuple[int, ...]:
    """Return the directions of links from one machine to another; none while either is not known."""
    if routes is None or a == b or a < 0 or b < 0:
        return ()
    vertex = routes.vertex
    return routes.between(vertex[cast.machines[a].name], vertex[cast.machines[b].name]) or ()


def _hop(cast: Cast, stream: Stream, a: int, b: int) -> float:
    """Return what the lanes add: within one fragment nothing, else what the reader's lane costs."""
    writer = cast.operators[cast.operator_of[stream.writer]]
    reader = cast.operators[cast.operator_of[stream.reader]]
    return 0.0 if a == b and writer.lane == reader.lane else reader.hop
