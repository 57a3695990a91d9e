"""What did the user write, beyond what placement needs?

A `Project` is a declarative pipeline as it was read: one `Definition` for each operator with what Spark
says of it (schema, what its plan holds) and what `headwater.yml` adds. `pipeline` is the same graph in
the form that placement takes, before replication. Made by `author`, kept as JSON, and read by the
process that places as well as by every runner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from headwater.model.pipeline import Pipeline

__all__ = [
    "DELIVERIES",
    "EMITS",
    "LANES",
    "ON_ERRORS",
    "Definition",
    "Delivery",
    "Emit",
    "Goals",
    "Kind",
    "LaneName",
    "OnError",
    "Project",
    "Trait",
]

Kind = Literal["view", "table", "sink"]
LaneName = Literal["real-time", "micro-batch"]
OnError = Literal["stop", "quarantine"]
Emit = Literal["updates", "final"]
Delivery = Literal["exactly-once", "at-least-once"]
# What a plan holds that decides how it can run.
Trait = Literal[
    "python",  # Python functions, one record a call
    "arrow",  # pandas and Arrow functions: whole batches a call
    "aggregate",  # group-by, windows
    "deduplicate",
    "stream-join",  # two streams
    "static-join",  # a stream and a table that does not move
    "custom-state",  # transformWithState and its kind
    "generate",  # explode: several rows of one record
    "watermark",  # event time is declared
]
LANES: tuple[LaneName, ...] = ("real-time", "micro-batch")
ON_ERRORS: tuple[OnError, ...] = ("stop", "quarantine")
EMITS: tuple[Emit, ...] = ("updates", "final")
DELIVERIES: tuple[Delivery, ...] = ("exactly-once", "at-least-once")
STATEFUL: frozenset[Trait] = frozenset({"aggregate", "deduplicate", "stream-join", "custom-state"})


@dataclass(frozen=True, slots=True)
class Goals:
    """What the pipeline is held to."""

    p99_s: float | None = None  # latency from creation to sink
    quality: str | None = None  # 'class' in files: gold, silver, ..


@dataclass(frozen=True, slots=True)
class Definition:
    """One operator as the project defines it."""

    name: str
    kind: Kind
    reads: tuple[str, ...]  # operators whose streams it reads, in the order of first use; none: a source
    schema_json: str  # of the rows it gives (a sink: that it writes), as Spark's StructType.json()
    file: str  # as the user named the project, then the library within it
    line: int  # of its first flow, counted from 1
    traits: frozenset[Trait] = frozenset()
    format: str | None = None  # a source: what it reads ('kafka', 'rate'); a sink or a table: what it writes
    options: tuple[tuple[str, str], ...] = ()  # of a sink, as the project says
    each: str | None = None  # one instance on every site that 'SITE' or 'tag:NAME' names
    once: bool = False  # takes in all instances of what it reads
    lane: LaneName | None = None  # asked for; None: chosen
    emit: Emit | None = None  # asked for; None: chosen
    on_error: OnError = "stop"

    @property
    def is_stateful(self) -> bool:
        """Return whether it remembers anything from one record to the next."""
        return not self.traits.isdisjoint(STATEFUL)


@dataclass(frozen=True)
class Project:
    """A declarative pipeline as it was read."""

    folder: str  # where it lies, absolute
    pipeline: Pipeline  # one operator for each definition, in the same order
    definitions: tuple[Definition, ...]
    fingerprint: str  # of everything it was read from
    configuration: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # for Spark's session
    delivery: Delivery = "exactly-once"
    goals: Goals = field(default_factory=Goals)
    notes: tuple[str, ...] = ()  # what was assumed because nobody declared it

    @property
    def name(self) -> str:
        """Return the name of the pipeline."""
        return self.pipeline.name

    @cached_property
    def by_name(self) -> Mapping[str, Definition]:
        """Definitions by the name of their operator."""
        return MappingProxyType({definition.name: definition for definition in self.definitions})
