"""How does one fragment run?

`Query` starts a fragment as a Spark query from its checkpoint, with what its output already holds left
out, and stops it. When and how often it is started is decided by whoever holds it (`serve.runner`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headwater.bind import topics
from headwater.bind.carry import MARK, carry
from headwater.bind.channel import encode, with_headers
from headwater.bind.headers import FROM, headers_of, parse_from
from headwater.bind.replay import Written, gather, last_commit_ms, skip, unread
from headwater.bind.session import lane_settings
from headwater.bind.sources import kafka_topics, keeps_order, reads_twice
from headwater.model.project import Definition, LaneName
from headwater.plan.deploy import Part

__all__ = ["Ground", "Query"]

BATCH = "60 seconds"  # of the real-time lane: its end is a stall, and its length bounds a replay
QUICK_PACE, CALM_PACE = "100 milliseconds", "1 second"  # between two micro-batches
OUTAGE_MS = 600_000  # how long a broker may be away before a query fails and is started again
STEADY_S, MOST_LOOKS = 0.5, 60  # between two looks at the end of a topic that was just taken up again
_REFUSED = "REAL_TIME_MODE"  # in the names of Spark's errors about what the real-time lane cannot do
_WRITER = {
    "kafka.linger.ms": "0",
    "kafka.batch.size": "262144",  # over a slow link smaller ones let pass only a part of what it could carry
    "kafka.send.buffer.bytes": "-1",  # as large as the system finds right: 128 kB, Kafka's default, fill no long link
    "kafka.buffer.memory": "16777216",
    "kafka.max.request.size": "10485760",
    "kafka.delivery.timeout.ms": str(OUTAGE_MS),
    "kafka.max.block.ms": str(OUTAGE_MS),
    "kafka.reconnect.backoff.max.ms": "500",
}


@dataclass(frozen=True)
class Ground:
    """Where a runner stands."""

    site: str
    folder: Path  # for checkpoints and tables
    brokers: Mapping[str, str]  # addresses by site

    @property
    def broker(self) -> str:
        """Return the address of its own broker."""
        return self.brokers[self.site]


@dataclass
class Query:
    """A fragment on its way."""

    part: Part
    ground: Ground
    definition: Definition  # of its output
    build: Callable[[Column | None], DataFrame]  # the user's rows, of the records wanted
    running: StreamingQuery | None = None
    lane: LaneName = "micro-batch"
    attempts: int = 0
    left_out: int = 0  # rows that its output held already at a start, and that are not written again
    notes: list[str] = field(default_factory=list)
    is_refused: bool = False  # whether Spark refused the real-time lane

    @property
    def checkpoint(self) -> Path:
        """Return the folder of its checkpoint."""
        return self.ground.folder / "checkpoints" / self.part.id

    @property
    def client(self) -> str:
        """Return what the names of its producers begin with."""
        return f"hw-{self.ground.site}-{self.part.id}"

    @property
    def output(self) -> tuple[str, str] | None:
        """Return broker and topic that it writes to, or None for what is not Kafka."""
        options = dict(self.definition.options)
        if self.part.output == "channel":
            assert self.part.topic is not None
            return self.ground.brokers[self.part.broker], self.part.topic
        if self.part.output == "sink" and self.definition.format == "kafka" and "topic" in options:
            return options.get("kafka.bootstrap.servers", self.ground.broker), options["topic"]
        return None

    def rows(self, wanted: Column | None = None) -> tuple[DataFrame, DataFrame | None]:
        """Return the user's rows, plain, and with their marks if they can carry them."""
        return self.marked(self.build(wanted), wanted)

    def marked(self, frame: DataFrame, wanted: Column | None = None) -> tuple[DataFrame, DataFrame | None]:
        """Return rows as they are, and with their marks if they can carry them."""
        return frame, carry(frame, self.ground.site, wanted)

    def start(self, spark: SparkSession, wanted: Column | None = None) -> None:
        """Start it from its checkpoint; `wanted` leaves out records that are set aside."""
        self.attempts += 1
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        if self.output is not None:
            topics.ensure_topics(self.output[0], [self.output[1]])
        written = self.written()
        frame, marked = self.rows(wanted)
        if written.reached and not self.part.is_stateful and self._is_ordered("micro-batch", frame):
            frame, marked = self.rows(_both(wanted, unread(written, self.part.fans_out)))
        own = kafka_topics(frame, self.ground.broker) - {one.topic for one in self.part.inputs}
        topics.ensure_topics(self.ground.broker, sorted(own))
        if marked is None:
            self.note("its rows lose track of their records, so after a crash some may be written twice")
            written = Written()
        if self.part.output == "sink" and self.definition.format == "kafka" and self.output is None:
            self.note("each row names its own topic, so after a crash some may be written twice: give the sink a topic")
        if reads_twice(frame) and self.part.lane == "real-time":
            self._refuse("it reads one stream twice")
        lanes: tuple[LaneName, ...] = ("micro-batch",)
        if self.part.lane == "real-time" and not self.is_refused:
            lanes = ("real-time", "micro-batch")
        for lane in lanes:
            for key, value in lane_settings(lane).items():
                spark.conf.set(key, value)
            rows = frame if marked is None else skip(marked, written, self._is_ordered(lane, frame))
            try:
                self.running = self._writer(rows, lane).start()
            except PySparkException as error:
                if not self.refuses(error, lane):
                    raise
                continue
            self.lane = lane
            self.left_out += written.count
            return

    def refuses(self, error: Exception, lane: LaneName | None = None) -> bool:
        """Return whether Spark refuses the real-time lane by this; it may say so only when the query already runs."""
        if (lane or self.lane) != "real-time" or _REFUSED not in str(error):
            return False
        self._refuse(str(error).splitlines()[0])
        return True

    def _refuse(self, why: str) -> None:
        self.is_refused = True
        self.note(f"Spark refuses the real-time lane: {why}")

    def stop(self) -> None:
        """Stop it now; what it had in hand is made again and left out at the next start."""
        if self.running is not None:
            self.running.stop()

    def is_taking(self, spark: SparkSession) -> bool:
        """Return whether it takes records, so that none that comes from now on is missed."""
        if self.running is None or not self.running.isActive:
            return False
        has_begun = any((self.checkpoint / "commits").glob("[0-9]*"))
        return has_begun or bool(spark.sparkContext.statusTracker().getJobIdsForGroup(str(self.running.runId)))

    def note(self, text: str) -> None:
        """Keep what the user should know of it."""
        if text not in self.notes:
            self.notes.append(text)

    def written(self) -> Written:
        """Return which rows its output holds since its last commit."""
        if self.output is None or self.part.delivery == "at-least-once":
            return Written()
        if any((self.checkpoint / "sources").glob("*")):  # it ran before
            _wait_steady(*self.output)
        tail = topics.tail(*self.output, last_commit_ms(self.checkpoint))
        marks = (headers_of(one).get(FROM) for one in tail)
        return gather(parse_from(mark) for mark in marks if mark is not None)

    def _is_ordered(self, lane: LaneName, frame: DataFrame) -> bool:
        if (self.part.is_stateful and lane == "micro-batch") or not keeps_order(frame):
            return False
        return self.output is None or len(topics.end_offsets(self.output[0], [self.output[1]])) == 1

    def _pace(self) -> str:
        # One batch after the other would take a whole core for what nobody waits for: tables, closed windows.
        is_awaited = self.part.mode == "update" or (self.part.output != "table" and not self.part.is_stateful)
        return QUICK_PACE if is_awaited else CALM_PACE

    def _writer(self, rows: DataFrame, lane: LaneName) -> DataStreamWriter:
        options = dict(self.definition.options) if self.part.output == "sink" else {}
        if self.output is not None:
            is_channel = self.part.output == "channel"
            records = encode(rows, self.definition.schema_json) if is_channel else with_headers(rows)
            options = {**_WRITER, **options, "includeHeaders": "true"}
            options["kafka.bootstrap.servers"], options["topic"] = self.output
            options["kafka.client.id"] = f"{self.client}.{self.attempts}"
            writer = records.writeStream.format("kafka")
        elif self.part.output == "table":
            options["path"] = (self.ground.folder / "tables" / self.part.id).as_uri()
            writer = rows.drop(MARK).writeStream.format("parquet")
        else:
            writer = rows.drop(MARK).writeStream.format(self.definition.format or "noop")
        trigger: dict[str, Any] = {"realTime": BATCH} if lane == "real-time" else {"processingTime": self._pace()}
        options["checkpointLocation"] = self.checkpoint.as_uri()
        mode = "update" if lane == "real-time" else self.part.mode
        return writer.options(**options).queryName(self.part.id).outputMode(mode).trigger(**trigger)


def _wait_steady(address: str, topic: str) -> None:
    """Wait until a topic's end stands still: a broker that came back a moment ago may show only a part of it."""
    before = None
    for _ in range(MOST_LOOKS):
        found = topics.end_offsets(address, [topic])
        if found == before:
            return
        before = found
        time.sleep(STEADY_S)


def _both(one: Column | None, other: Column | None) -> Column | None:
    return one if other is None else other if one is None else one & other
