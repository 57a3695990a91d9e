"""Which queries does a placed pipeline become, and which topics join them?

Takes a pipeline and the site of every operator, gives a `Cut`. A query has one output, so a fragment is a
tree of operators of one site that all flow into its last one. An operator joins the fragment of its reader
if it has only that one, on the same site, and nothing asks it to be written to a topic; else it is the
output of its own fragment. Every stream of an output crosses to other fragments, and no other stream does:
these are the channels. Channels of one operator share one topic, so that a stream with many readers is
written once; the topic lies with the readers where they all stand on one site (the writer pushes), else
with the writer (they pull).

The same pipeline and placement give an equal `Cut`, in whatever order the file lists them. Names come from
names alone: a fragment's folder and topic stay when other operators come, go or move.

    >>> safe("hot"), safe("hot@pi-1"), safe("Hot")
    ('hot', 'hot_pi-1-4735c1d6', 'Hot-0ec53894')
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from headwater.errors import BrokenInvariant
from headwater.model.pipeline import Pipeline
from headwater.model.report import listed, quote

__all__ = ["Channel", "Cut", "Fragment", "cut", "rejoin", "safe", "topic_name"]

MOST_OPERATOR = 120  # characters of a fragment's id
MOST_PIPELINE = 60  # characters of the pipeline within a topic; the whole stays below Kafka's 249, with room to spare
HASH = 8  # characters of a hash that keeps two names apart

# A name is kept as it is if no other name could be taken for it where case is ignored (file systems) or where
# '.' and '_' are one (Kafka refuses a topic that differs from another only there).
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]*")
_PLAIN_PIPELINE = re.compile(r"[a-z0-9][a-z0-9-]*")  # free of '_', so that it is clear where the operator begins
# Looks as if it had a hash already, or, to Kafka, like the topic for what another operator sets aside.
_MARKED = re.compile(rf"(-[0-9a-f]{{{HASH}}}|_quarantine)\Z")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_UNSAFE_PIPELINE = re.compile(r"[^A-Za-z0-9-]")


@dataclass(frozen=True, slots=True)
class Fragment:
    """Operators of one site that run as one query."""

    id: str  # safe as the name of a folder; from the name of its output
    site: str
    operators: tuple[str, ...]  # writers before readers, by name among equals; the output is last
    output: str  # the operator that all others flow into
    inner: tuple[tuple[str, str], ...] = ()  # streams within: who writes, who reads
    because: str = field(default="", compare=False)  # why it ends where it does


@dataclass(frozen=True, slots=True)
class Channel:
    """A stream that crosses from one fragment to another."""

    source: str  # the operator that writes
    target: str  # the operator that reads
    writer: str  # id of the source's fragment
    reader: str  # id of the target's fragment
    topic: str  # the same for all channels of one source
    broker: str  # the site whose broker holds the topic
    because: str = field(default="", compare=False)  # why it lies there


@dataclass(frozen=True)
class Cut:
    """A placed pipeline as fragments and the channels between them."""

    pipeline: str  # its name
    fragments: tuple[Fragment, ...]  # writers before readers
    channels: tuple[Channel, ...]  # in the order of their writers, then of their targets

    @cached_property
    def by_id(self) -> Mapping[str, Fragment]:
        """Fragments by their id."""
        return MappingProxyType({fragment.id: fragment for fragment in self.fragments})

    @cached_property
    def fragment_of(self) -> Mapping[str, str]:
        """The id of every operator's fragment."""
        found = {operator: fragment.id for fragment in self.fragments for operator in fragment.operators}
        return MappingProxyType(found)

    def inputs(self, fragment_id: str) -> tuple[Channel, ...]:
        """Return the channels that a fragment reads; several may share a topic."""
        return self._inputs.get(fragment_id, ())

    def topic_of(self, operator: str) -> str | None:
        """Return the topic that an operator's stream is written to, or None where it needs none."""
        return self._topics.get(operator)

    @cached_property
    def _inputs(self) -> Mapping[str, tuple[Channel, ...]]:
        found: dict[str, list[Channel]] = {}
        for channel in self.channels:
            found.setdefault(channel.reader, []).append(channel)
        return {reader: tuple(channels) for reader, channels in found.items()}

    @cached_property
    def _topics(self) -> Mapping[str, str]:
        return {channel.source: channel.topic for channel in self.channels}


def cut(
    pipeline: Pipeline,
    placement: Mapping[str, str],
    ends: Container[str] = frozenset(),
    alone: Container[str] = frozenset(),
) -> Cut:
    """Return the fragments and channels of a placed pipeline.

    Args:
        pipeline: expanded, so that every operator is one instance.
        placement: the site of every operator; other names in it are left aside.
        ends: operators whose stream is written to a topic even where its only reader is at the same site.
        alone: operators that share their fragment with no other.
    """
    missing = [name for name in pipeline.by_name if name not in placement]
    if missing:
        raise BrokenInvariant(f"HW9501 a placement without a site for {listed(missing)} came to be cut")
    readers = _readers(pipeline)
    order = _order(pipeline, readers)
    number = {name: i for i, name in enumerate(order)}
    output: dict[str, str] = {}  # of every operator's fragment
    because: dict[str, str] = {}  # by output
    for name in reversed(order):
        reason = _why_it_ends(name, readers[name], placement, ends, alone)
        if reason is None:
            output[name] = output[readers[name][0]]
        else:
            output[name], because[name] = name, reason
    members: dict[str, list[str]] = {name: [] for name in order if name in because}
    for name in order:
        members[output[name]].append(name)
    fragments = tuple(
        Fragment(
            safe(last),
            placement[last],
            tuple(names),
            last,
            tuple((name, readers[name][0]) for name in names if name != last),
            because[last],
        )
        for last, names in members.items()
    )
    channels: list[Channel] = []
    for source in members:
        broker, reason = _broker(placement[source], [placement[reader] for reader in readers[source]])
        topic = topic_name(pipeline.name, source)
        channels.extend(
            Channel(source, target, safe(source), safe(output[target]), topic, broker, reason)
            for target in sorted(readers[source], key=number.__getitem__)
        )
    return Cut(pipeline.name, fragments, tuple(channels))


def rejoin(cut: Cut) -> tuple[frozenset[tuple[str, str]], dict[str, str]]:
    """Return what was cut: which operator reads which, as (writer, reader), and the site of each."""
    within = {stream for fragment in cut.fragments for stream in fragment.inner}
    across = {(channel.source, channel.target) for channel in cut.channels}
    placement = {operator: fragment.site for fragment in cut.fragments for operator in fragment.operators}
    return frozenset(within | across), placement


def safe(name: str) -> str:
    """Return an operator's name for folders and topics; two names never give the same, whatever their case."""
    return _kept_or_marked(name, _PLAIN, _UNSAFE, "_", MOST_OPERATOR)


def topic_name(pipeline: str, operator: str) -> str:
    """Return the topic of an operator's stream; no other operator of any pipeline has it.

    >>> topic_name("fire", "hot")
    'hw.fire.hot'
    """
    return f"hw.{_kept_or_marked(pipeline, _PLAIN_PIPELINE, _UNSAFE_PIPELINE, '-', MOST_PIPELINE)}.{safe(operator)}"


def _kept_or_marked(name: str, plain: re.Pattern[str], unsafe: re.Pattern[str], instead: str, most: int) -> str:
    if len(name) <= most and plain.fullmatch(name) and not _MARKED.search(name):
        return name
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:HASH]
    text = unsafe.sub(instead, name).lstrip("._-")[: most - HASH - 1] or "x"  # a leading '.' hides, a '-' is an option
    return f"{text}-{mark}"


def _readers(pipeline: Pipeline) -> dict[str, list[str]]:
    """Return who reads each operator: each reader once, however many streams it takes, by name."""
    found: dict[str, set[str]] = {name: set() for name in pipeline.by_name}
    for stream in pipeline.streams:
        found[stream.source].add(stream.target)
    return {name: sorted(readers) for name, readers in found.items()}


def _order(pipeline: Pipeline, readers: Mapping[str, list[str]]) -> list[str]:
    """Return the operators, writers before readers; by name among equals, so that the file's order has no say."""
    waiting = {operator.name: len({stream.source for stream in operator.inputs}) for operator in pipeline.operators}
    ready = [name for name, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        name = heapq.heappop(ready)
        order.append(name)
        for reader in readers[name]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return order


def _why_it_ends(
    name: str, readers: list[str], placement: Mapping[str, str], ends: Container[str], alone: Container[str]
) -> str | None:
    """Return why an operator is its fragment's output, or None where it joins the fragment of its reader."""
    if len(readers) != 1:
        many = f"{quote(name)} is written once for {len(readers)} readers: {listed(readers)}"
        return many if readers else f"nobody reads {quote(name)}"
    reader = readers[0]
    if placement[reader] != placement[name]:
        return f"{quote(reader)}, which reads {quote(name)}, stands on {quote(placement[reader])}"
    if name in ends:
        return f"{quote(name)} must be written to a topic"
    if name in alone or reader in alone:
        return f"{quote(name if name in alone else reader)} runs alone"
    return None


def _broker(writer: str, readers: list[str]) -> tuple[str, str]:
    """Return the site whose broker holds a topic, and why."""
    sites = sorted(set(readers))
    if sites == [writer]:
        return writer, f"all that write or read it stand on {quote(writer)}"
    if len(sites) == 1:
        return sites[0], f"all its readers stand on {quote(sites[0])}, so the writer pushes"
    return writer, f"its readers stand on {listed(sites)}, so they pull from the writer's site"
