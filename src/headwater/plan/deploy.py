"""What does each runner have to run?

Takes the project, its instances, where they stand and how they are cut; gives one `Part` for each
fragment: all that a runner needs to know, as plain values that travel as JSON. Addresses of brokers are
not among them: brokers are named by their site, and whoever starts a part knows where they listen.

Mistakes: HW1522 a stream that must travel has a column of a type that no channel holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headwater.cost.flow import flow
from headwater.errors import Mistake, SpecError
from headwater.model.project import Definition, Delivery, LaneName, OnError, Project
from headwater.plan.cut import Cut, cut, topic_name
from headwater.plan.expand import Expanded
from headwater.plan.lanes import choose, emits, ends

__all__ = ["FAN_OUT", "Input", "Part", "Step", "deploy", "part_from", "part_object"]

FAN_OUT = frozenset({"generate", "static-join"})  # traits of operators that may give several rows for a record


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a part."""

    name: str  # of the instance
    of: str  # of the definition
    reads: tuple[str, ...]  # instances


@dataclass(frozen=True, slots=True)
class Input:
    """A stream that comes from another part."""

    operator: str  # the instance that writes it
    of: str  # its definition
    topic: str
    broker: str  # the site whose broker holds the topic


@dataclass(frozen=True, slots=True)
class Part:
    """One fragment, with all that a runner needs to know of it."""

    id: str
    site: str
    steps: tuple[Step, ...]  # writers before readers; the last one gives the output
    inputs: tuple[Input, ...]
    output: Literal["channel", "table", "sink"]
    topic: str | None  # of a channel
    broker: str  # the site whose broker holds the output
    quarantine: str  # topic of its own broker for records that it fails on, with on_error: quarantine
    lane: LaneName
    mode: Literal["append", "update"]
    is_stateful: bool
    because: str  # of the lane
    on_error: OnError
    delivery: Delivery
    in_rps: float  # records a second that it is expected to take in
    fans_out: bool = False  # whether one record may become several rows

    @property
    def operators(self) -> tuple[str, ...]:
        """Return the names of its instances."""
        return tuple(step.name for step in self.steps)


def deploy(project: Project, expanded: Expanded, placement: Mapping[str, str]) -> tuple[Cut, tuple[Part, ...]]:
    """Return the cut of a placed project, and its parts, writers before readers.

    Raises:
        SpecError: what is asked for cannot be.
    """
    emitted, ending = emits(project), ends(project)
    instances = expanded.instances
    names = frozenset(name for name, instance in instances.items() if instance.of in ending)
    whole = cut(expanded.pipeline, placement, ends=names)
    written = dict.fromkeys(
        instances[one.output].of for one in whole.fragments if whole.topic_of(one.output) is not None
    )
    mistakes = [mistake for name in written for mistake in _cannot_travel(project.by_name[name])]
    if mistakes:
        raise SpecError(*mistakes)
    rates = flow(expanded.pipeline).in_rate_rps
    parts = []
    for fragment in whole.fragments:
        definitions = [project.by_name[instances[name].of] for name in fragment.operators]
        topic = whole.topic_of(fragment.output)
        last = definitions[-1]
        in_rps = max(rates[name] for name in fragment.operators)
        lane = choose(definitions, emitted, in_rps, topic is None)
        inputs = {
            channel.source: Input(channel.source, instances[channel.source].of, channel.topic, channel.broker)
            for channel in whole.inputs(fragment.id)
        }
        broker = next((one.broker for one in whole.channels if one.source == fragment.output), fragment.site)
        parts.append(
            Part(
                fragment.id,
                fragment.site,
                tuple(_step(expanded, name) for name in fragment.operators),
                tuple(inputs.values()),
                "channel" if topic is not None else "sink" if last.kind == "sink" else "table",
                topic,
                broker,
                f"{topic_name(project.name, fragment.output)}.quarantine",
                lane.name,
                lane.mode,
                lane.is_stateful,
                lane.because,
                "quarantine" if any(one.on_error == "quarantine" for one in definitions) else "stop",
                project.delivery,
                in_rps,
                any(not FAN_OUT.isdisjoint(one.traits) for one in definitions),
            )
        )
    return whole, tuple(parts)


def part_object(part: Part) -> dict[str, Any]:
    """Return a part as JSON has it."""
    return asdict(part)


def part_from(found: Mapping[str, Any]) -> Part:
    """Return the part of what `part_object` gave."""
    steps = tuple(Step(one["name"], one["of"], tuple(one["reads"])) for one in found["steps"])
    return Part(**{**found, "steps": steps, "inputs": tuple(Input(**one) for one in found["inputs"])})


def _step(expanded: Expanded, name: str) -> Step:
    reads = tuple(stream.source for stream in expanded.pipeline.by_name[name].inputs)
    return Step(name, expanded.instances[name].of, reads)


def _cannot_travel(definition: Definition) -> Iterator[Mistake]:
    for field in json.loads(definition.schema_json)["fields"]:
        found = next(_unfit(field["type"]), None)
        if found is not None:
            text = (
                f"operator '{definition.name}' writes its rows to a topic, and its column '{field['name']}' holds the "
                f"type {found}, which no record there can hold. Give the column on as text, with to_json(..) or a "
                "cast, a map with other keys than text as map_entries(..), or leave it out."
            )
            yield Mistake("HW1522", text, definition.file, definition.line)


def _unfit(kind: Any) -> Iterator[str]:
    """Yield the types within a type, as Spark's JSON has it, that Avro has no place for."""
    if isinstance(kind, str):
        if kind in {"interval", "variant"} or kind.startswith(("char(", "varchar(", "geography", "geometry")):
            yield kind
    elif kind["type"] == "map":
        if kind["keyType"] != "string":
            yield "map with keys that are no text"
        yield from _unfit(kind["valueType"])
    elif kind["type"] == "array":
        yield from _unfit(kind["elementType"])
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            yield from _unfit(field["type"])
