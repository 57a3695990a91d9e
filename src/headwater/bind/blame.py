"""Which record does a fragment fail on?

A failed query names no record. So the records since its last commit are tried in a query of their own
that writes nothing, from a copy of the checkpoint: first the one after the last that got through, then
wider and wider ranges, then halves of the range that fails. The same way, operator by operator, tells
which of the fragment's operators fails on it.

With `on_error: quarantine` the record goes to a topic of its own with the reason, and its place is kept
beside the checkpoint, so that the fragment leaves it out from then on, also after a restart.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.bind import topics
from headwater.bind.failure import Failure, failure_of
from headwater.bind.query import Query
from headwater.bind.session import lane_settings
from headwater.errors import BindError

__all__ = ["Found", "SetAside"]

PATIENCE_S = 120  # of one trial
Place = tuple[str, int]  # topic and partition
Ranges = dict[Place, tuple[int, int]]  # offsets: from, up to and without


@dataclass(frozen=True, slots=True)
class Found:
    """The record that a fragment fails on."""

    topic: str
    partition: int
    offset: int
    operator: str  # the instance that fails
    failure: Failure  # of this record alone

    @property
    def place(self) -> str:
        """Return 'topic/partition/offset'."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class SetAside:
    """The records of one fragment that are left out."""

    def __init__(self, query: Query, until: Callable[[str, Column | None], DataFrame]) -> None:
        """Read what was set aside before.

        Args:
            query: The fragment.
            until: The rows of one of its operators, of the records wanted.
        """
        self._query = query
        self._until = until
        self._file = query.ground.folder / "aside" / f"{query.part.id}.json"
        self._places: list[tuple[str, int, int]] = []
        with contextlib.suppress(FileNotFoundError):
            self._places = [(str(t), int(p), int(o)) for t, p, o in json.loads(self._file.read_text("utf-8"))]

    @property
    def count(self) -> int:
        """Return how many records were set aside."""
        return len(self._places)

    def wanted(self) -> Column | None:
        """Return which records to take; None: all of them."""
        if not self._places:
            return None
        by_place: dict[Place, list[int]] = {}
        for topic, partition, offset in self._places:
            by_place.setdefault((topic, partition), []).append(offset)
        is_aside = F.lit(False)
        for place, offsets in by_place.items():
            is_aside = is_aside | (_at(place) & F.col("offset").isin(*offsets))
        return ~is_aside

    def find(self, spark: SparkSession) -> Found | None:
        """Return the first record that fails again by itself, or None if none does."""
        with tempfile.TemporaryDirectory(prefix="headwater-trial-") as folder:
            trial = _Trial(spark, self._query, Path(folder), self.wanted())
            ranges = self._open_ranges()
            for place, guess in self._guesses(ranges):
                if trial.fails({place: guess}):
                    at = trial.first(place, *guess)
                    failure = trial.failure  # of the narrowest range that failed: this record's own
                    return Found(*place, at, self._operator(trial, {place: (at, at + 1)}), failure)
        return None

    def put(self, found: Found) -> None:
        """Write the record and the reason to the quarantine topic, and leave it out from now on."""
        part, ground = self._query.part, self._query.ground
        record = _fetch(self._address(found.topic), found)
        topics.ensure_topics(ground.broker, [part.quarantine])
        producer = Producer({**topics.client_settings(ground.broker), "acks": "all", "enable.idempotence": True})
        reason = {
            "hw-reason": found.failure.trace or found.failure.text,
            "hw-operator": found.operator,
            "hw-record": found.place,
        }
        headers = [*(record.headers() or []), *((key, value.encode()) for key, value in reason.items())]
        producer.produce(part.quarantine, record.value(), record.key(), headers=headers)
        if producer.flush(30.0):
            raise BindError(f"HW4507 the record {found.place} cannot be written to '{part.quarantine}' in 30 s.")
        self._places.append((found.topic, found.partition, found.offset))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        passing = self._file.with_suffix(".new")
        with passing.open("w", encoding="utf-8") as opened:
            json.dump(self._places, opened)
            opened.flush()
            os.fsync(opened.fileno())
        passing.replace(self._file)

    def _address(self, topic: str) -> str:
        ground = self._query.ground
        return next(
            (ground.brokers[one.broker] for one in self._query.part.inputs if one.topic == topic), ground.broker
        )

    def _open_ranges(self) -> Ranges:
        """Return what was read since the last commit, by topic and partition."""
        begins = dict(_committed(self._query.checkpoint))
        found: Ranges = {}
        for address in {self._address(topic) for topic, _ in begins}:
            names = sorted({topic for topic, _ in begins if self._address(topic) == address})
            for place, end in topics.end_offsets(address, names).items():
                if place in begins and end > begins[place]:
                    found[place] = (begins[place], end)
        return found

    def _guesses(self, ranges: Ranges) -> Iterator[tuple[Place, tuple[int, int]]]:
        """Give the likeliest ranges first: what follows the last record that got through."""
        reached = self._query.written().reached
        for place, (low, high) in ranges.items():
            at = min(max(reached.get(place, low - 1) + 1, low), high)
            width, begin = 1, at
            while begin < high:
                yield place, (begin, min(begin + width, high))
                begin, width = begin + width, width * 4
            if low < at:
                yield place, (low, at)

    def _operator(self, trial: _Trial, ranges: Ranges) -> str:
        steps = self._query.part.steps
        for step in steps[:-1]:
            if trial.fails(ranges, partial(self._until, step.name)):
                return step.name
        return steps[-1].name


class _Trial:
    """Tries ranges of records in queries that write nothing."""

    def __init__(self, spark: SparkSession, query: Query, folder: Path, wanted: Column | None) -> None:
        self._spark = spark
        self._query = query
        self._folder = folder
        self._wanted = wanted
        self._count = 0
        self.failure = Failure("outside", "")  # of the last range that failed

    def fails(self, ranges: Ranges, build: Callable[[Column | None], DataFrame] | None = None) -> bool:
        """Return whether a query over these records fails because of a record."""
        wanted = _within(ranges)
        if self._wanted is not None:
            wanted = wanted & self._wanted
        self._count += 1
        checkpoint = self._folder / str(self._count)
        self._copy(checkpoint, with_state=build is None)
        for key, value in lane_settings("micro-batch").items():
            self._spark.conf.set(key, value)
        frame, marked = self._query.rows(wanted) if build is None else self._query.marked(build(wanted), wanted)
        writer = (frame if marked is None else marked).writeStream.format("noop").outputMode(self._query.part.mode)
        writer = writer.option("checkpointLocation", checkpoint.as_uri()).trigger(availableNow=True)
        try:
            running = writer.start()
            if not running.awaitTermination(PATIENCE_S):
                running.stop()
                return False
        except PySparkException as error:
            failure = failure_of(error)
            if failure.blame != "record":
                return False
            self.failure = failure
            return True
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
        return False

    def first(self, place: Place, low: int, high: int) -> int:
        """Return the first record of a range that fails, given that one does."""
        while high - low > 1:
            middle = (low + high) // 2
            if self.fails({place: (low, middle)}):
                high = middle
            else:
                low = middle
        return low

    def _copy(self, checkpoint: Path, with_state: bool) -> None:
        """Copy where the query stands, without the batch that it was about to make."""
        shutil.copytree(
            self._query.checkpoint,
            checkpoint,
            ignore=None if with_state else shutil.ignore_patterns("state"),
        )
        done = {one.name for one in (checkpoint / "commits").glob("[0-9]*")}
        for one in (checkpoint / "offsets").glob("[0-9]*"):
            if one.name not in done:
                one.unlink()


def _committed(checkpoint: Path) -> Mapping[Place, int]:
    """Return the offsets that a query has read up to, by topic and partition."""
    commits = [int(one.name) for one in (checkpoint / "commits").glob("[0-9]*") if one.name.isdigit()]
    files = (
        [checkpoint / "offsets" / str(max(commits))] if commits else sorted((checkpoint / "sources").glob("[0-9]*/0"))
    )
    found: dict[Place, int] = {}
    for file in files:
        for line in file.read_text("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError):
                value = json.loads(line[line.find("{") :]) if "{" in line else None
                for topic, offsets in (value or {}).items():
                    if isinstance(offsets, dict):
                        found |= {(topic, int(one)): int(at) for one, at in offsets.items() if one.isdigit()}
    return found


def _at(place: Place) -> Column:
    return (F.col("topic") == F.lit(place[0])) & (F.col("partition") == F.lit(place[1]))


def _within(ranges: Ranges) -> Column:
    found = F.lit(False)
    for place, (low, high) in ranges.items():
        found = found | (_at(place) & (F.col("offset") >= F.lit(low)) & (F.col("offset") < F.lit(high)))
    return found


def _fetch(address: str, found: Found) -> Message:
    settings = {**topics.client_settings(address), "group.id": "headwater", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(found.topic, found.partition, found.offset)])
        message = consumer.poll(30.0)
    finally:
        consumer.close()
    if message is None or message.error() or message.offset() != found.offset:
        raise BindError(f"HW4508 the record {found.place} cannot be read again from {address}.")
    return message
