"""What does the user want to run?

A `Pipeline` is a directed acyclic graph of operators joined by streams, in base units, already
checked: `model.files` makes it from text and names every mistake; this module trusts its input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

__all__ = ["LEVELS", "LEVEL_NAMES", "Objective", "Operator", "Pipeline", "Stream"]

LEVELS: Mapping[str, int] = MappingProxyType({"low": 1, "medium": 2, "high": 3})
LEVEL_NAMES: Mapping[int, str] = MappingProxyType({level: name for name, level in LEVELS.items()})


@dataclass(frozen=True, slots=True)
class Stream:
    """What one operator reads of another's output."""

    source: str  # the operator that writes
    target: str  # the operator that reads
    rate_factor: float = 1.0  # share of the writer's records that this reader gets
    size_factor: float = 1.0  # size of such a record, relative to the writer's


@dataclass(frozen=True, slots=True)
class Operator:
    """One step of the pipeline."""

    name: str
    inputs: tuple[Stream, ...] = ()
    is_source: bool = False
    rate_rps: float = 0.0  # records per second that a source writes
    size_bytes: float = 0.0  # bytes of a record that a source writes
    rate_factor: float = 1.0  # records out per record in
    size_factor: float = 1.0  # bytes out per byte in
    needs: int = 1  # level of machine that it asks for, see LEVELS
    work_s: float = 0.0  # processor seconds per input record (a source: per output record) at speed 1
    state_bytes: float = 0.0  # state it keeps
    at: tuple[str, ...] | None = None  # allowed sites by name or 'tag:NAME'; None: the rules of its kind
    together: tuple[str, ...] = ()  # operators that share its site ('with' in files)
    apart: tuple[str, ...] = ()  # operators that must stand elsewhere
    is_sink: bool = False  # declared or because nobody reads it


@dataclass(frozen=True, slots=True)
class Objective:
    """How the three terms of F are weighed and scaled; None asks for the computed value."""

    weight_rt: float = 1.0
    weight_rf: float = 1.0
    weight_bw: float = 1.0
    rt_min_s: float | None = None
    rt_max_s: float | None = None
    rf_max: float | None = None
    bw_max_bps: float | None = None
    between: tuple[str, str] | None = None  # count only paths from this source to this sink


@dataclass(frozen=True)
class Pipeline:
    """Operators in file order, joined into an acyclic graph."""

    name: str
    operators: tuple[Operator, ...]
    objective: Objective = field(default_factory=Objective)

    @cached_property
    def by_name(self) -> Mapping[str, Operator]:
        """Operators by their name."""
        return MappingProxyType({operator.name: operator for operator in self.operators})

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """Every stream, in the file order of its reader."""
        return tuple(stream for operator in self.operators for stream in operator.inputs)

    @cached_property
    def first_stream(self) -> Mapping[str, int]:
        """Where in `streams` the inputs of each operator begin."""
        first, count = {}, 0
        for operator in self.operators:
            first[operator.name] = count
            count += len(operator.inputs)
        return MappingProxyType(first)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Operator names, writers before readers; file order among equals (breadth first)."""
        waiting = {operator.name: len(operator.inputs) for operator in self.operators}
        readers: dict[str, list[str]] = {name: [] for name in waiting}
        for stream in self.streams:
            readers[stream.source].append(stream.target)
        ready = [name for name, count in waiting.items() if count == 0]
        for name in ready:  # grows while it is walked
            for reader in readers[name]:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    ready.append(reader)
        return tuple(ready)
