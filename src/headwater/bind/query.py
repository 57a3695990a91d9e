"""How does one fragment run?

`Query` starts a fragment as a Spark query from its checkpoint, with what its output already holds left
out, and stops it. When and how often it is started is decided by whoever holds it (`serve.runner`).
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headwater.bind import topics
from headwater.bind.carry import MARK, carry
from headwater.bind.channel import encode, with_headers
from headwater.bind.failure import failure_of
from headwater.bind.headers import BY, FROM, headers_of, parse_from
from headwater.bind.keyring import spark_options
from headwater.bind.replay import SLACK_MS, Written, gather, last_commit_ms, skip, unread
from headwater.bind.seat import Seated, advance, first_records, newest, positions, sources_of, take_seats
from headwater.bind.session import lane_settings
from headwater.bind.sources import kafka_topics, keeps_order, reads_twice
from headwater.errors import BindError
from headwater.model.project import Definition, LaneName
from headwater.plan.deploy import Part

__all__ = ["Ground", "Query"]

BATCH = "60 seconds"  # of the real-time lane: its end is a stall, and its length bounds a replay
QUICK_PACE, CALM_PACE = "100 milliseconds", "1 second"  # between two micro-batches
OUTAGE_MS = 600_000  # how long a broker may be away before a query fails and is started again
STEADY_S, MOST_LOOKS = 0.5, 60  # between two looks at the end of a topic that was just taken up again
PATIENT_STARTS = 5  # as often a start waits for a topic that was written before and cannot be read
_STARTING = threading.Lock()  # settings of the session are those of the lane while a query is started
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
# One request at a time to the site's own broker, which costs a millisecond there. A broker that just came up may refuse
# the first request of a writer, because it does not lead the topic yet, and take the second: it does not know the
# writer, and so not that something is missing. What was first never gets in then (KAFKA-15591), and would be left out
# after the next start as if it had been written. Over long links it would cost a round trip for each record.
_NEAR = {"kafka.max.in.flight.requests.per.connection": "1"}


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
    writer: str = ""  # by which its rows are known where several write one topic
    formerly: tuple[tuple[str, str], ...] = ()  # brokers and topics that it wrote before
    seat: Mapping[str, str] = field(default_factory=dict)  # where it takes over sources of others
    begun_ms: int = 0  # no row of its own is older, unless its checkpoint says otherwise
    seated: Seated = field(default_factory=lambda: Seated("", 0))
    ready: tuple[DataFrame, DataFrame | None] | None = None  # its rows, made before they were needed

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
        if wanted is None and self.ready is not None:
            return self.ready
        return self.marked(self.build(wanted), wanted)

    def prepare(self) -> None:
        """Make its rows now: a start then takes half the time."""
        self.ready = self.rows()

    def marked(self, frame: DataFrame, wanted: Column | None = None) -> tuple[DataFrame, DataFrame | None]:
        """Return rows as they are, and with their marks if they can carry them."""
        return frame, carry(frame, self.ground.site, wanted)

    def start(self, spark: SparkSession, wanted: Column | None = None, is_drain: bool = False) -> None:
        """Start it from its checkpoint.

        Args:
            spark: The session.
            wanted: Which records to take; others are set aside.
            is_drain: It takes what its sources hold now, in micro-batches, and ends.
        """
        self.attempts += 1
        self.checkpoint.mkdir(parents=True, exist_ok=True)
        if not any((self.checkpoint / "commits").glob("[0-9]*")):
            shutil.rmtree(self.checkpoint / "state", ignore_errors=True)  # of a batch that never ended
        frame, marked = self.rows(wanted)
        self._ensure_topics(frame)
        sources = sources_of(frame if marked is None else marked, self.ground.brokers)
        self.seated = take_seats(self.checkpoint, sources, self.seat, self._first, self._ids, self.begun_ms)
        written = self.written()
        is_plain = not self.part.is_stateful and self._is_ordered("micro-batch", frame)
        if written.reached and is_plain and not advance(self.checkpoint, written.reached, self.part.fans_out):
            frame, marked = self.rows(_both(wanted, unread(written, self.part.fans_out)))
        if marked is None:
            self.note("its rows lose track of their records, so after a crash some may be written twice")
            written = Written()
        if self.part.output == "sink" and self.definition.format == "kafka" and self.output is None:
            self.note("each row names its own topic, so after a crash some may be written twice: give the sink a topic")
        if reads_twice(frame) and self.part.lane == "real-time":
            self._refuse("it reads one stream twice")
        lanes: tuple[LaneName, ...] = ("micro-batch",)
        if self.part.lane == "real-time" and not self.is_refused and not is_drain:
            lanes = ("real-time", "micro-batch")
        for lane in lanes:
            rows = frame if marked is None else skip(marked, written, self._is_ordered(lane, frame))
            try:
                with _STARTING:
                    for key, value in lane_settings(lane).items():
                        spark.conf.set(key, value)
                    self.running = self._writer(rows, lane, is_drain).start()
            except PySparkException as error:
                if not self.refuses(error, lane):
                    raise
                continue
            self.lane = lane
            self.left_out += written.count
            return

    def drain(self, spark: SparkSession, wanted: Column | None, timeout_s: int) -> dict[str, str]:
        """Take what its sources hold now, write and commit it, and return where each goes on; it does not run then.

        Raises:
            BindError: HW4521, it is not done in time; HW4524, it fails.
        """
        try:
            self.start(spark, wanted, is_drain=True)
            assert self.running is not None
            is_done = self.running.awaitTermination(timeout_s)
        except PySparkException as error:
            why = failure_of(error).text
            raise BindError(f"HW4524 '{self.part.id}' cannot take what its topics still hold: {why}") from error
        if not is_done:
            self.stop()
            raise BindError(
                f"HW4521 fragment '{self.part.id}' has not taken all that its topics hold within {timeout_s:g} s; "
                "let it catch up, or take load off it, and try again."
            )
        return positions(self.checkpoint, self._ids)

    def _ensure_topics(self, frame: DataFrame) -> None:
        """Make the topics that it needs and may make: Spark refuses to start on one that is not there."""
        wanted: dict[str, set[str]] = {}
        if self.output is not None:
            wanted.setdefault(self.output[0], set()).add(self.output[1])
        for address in {self.ground.broker, *self.ground.brokers.values()}:
            own = kafka_topics(frame, address)
            if not self.writer:  # else whoever starts the parts makes the channels, and a missing one is a loss
                own -= {one.topic for one in self.part.inputs}
            wanted.setdefault(address, set()).update(own)
        for address, names in wanted.items():
            if names:
                topics.ensure_topics(address, sorted(names))

    @property
    def _by(self) -> str:
        """Return by which its rows are known; nothing where a topic has one writer for ever."""
        return f"{self.writer}#{self.seated.generation}" if self.writer else ""

    def _ids(self, source: str) -> Mapping[str, str]:
        """Return the ids of a source's topics; none, where they are not there or it is not Kafka's."""
        broker, _, names = source.rpartition("/")
        if not broker:
            return {}
        try:
            return topics.topic_ids(self.ground.brokers.get(broker, broker), names.split(","))
        except BindError as error:
            if str(error).startswith("HW4206"):
                return {}
            raise

    def _first(self, source: str) -> str | None:
        """Return where a source begins that nobody has read before, as Spark writes it."""
        broker, _, names = source.rpartition("/")
        if not broker:
            return None
        return first_records(topics.first_offsets(self.ground.brokers.get(broker, broker), names.split(",")))

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

    def remember(self) -> None:
        """Write down which rows it has written since its last commit; it has stopped, and none is on the way."""
        if self.output is not None and self.seated.generation:
            marks = sorted({mark.decode("ascii", "replace") for mark in self._marks(is_calm=True)})
            self._write_known({**self._since(), "is_whole": True, "marks": marks})

    @property
    def _known_file(self) -> Path:
        return self.checkpoint / "headwater.written.json"

    def _write_known(self, known: Mapping[str, Any]) -> None:
        passing = self._known_file.with_suffix(".new")
        passing.write_text(json.dumps(known), "utf-8")
        passing.replace(self._known_file)

    def _known(self) -> dict[str, Any] | None:
        """Return what was written down since the last commit."""
        try:
            found: dict[str, Any] = json.loads(self._known_file.read_text("utf-8"))
        except (OSError, ValueError):
            return None
        return found if found.items() >= self._since().items() else None

    def _since(self) -> dict[str, Any]:
        """Return what its rows are counted from: its last commit, and the sources that they are made of."""
        return {"commit": newest(self.checkpoint / "commits"), "by": self._by}

    def is_taking(self, spark: SparkSession) -> bool:
        """Return whether it takes records, so that none that comes from now on is missed."""
        if self.running is None or not self.running.isActive:
            return False
        has_begun = any((self.checkpoint / "commits").glob("[0-9]*"))
        return has_begun or bool(spark.sparkContext.statusTracker().getJobIdsForGroup(str(self.running.runId)))

    def progress_since(self, batch: int) -> StreamingQueryProgress | None:
        """Return what it said last, if that was about a later batch: to read all of it costs milliseconds."""
        assert self.running is not None
        told = self.running._jsq.lastProgress()
        return self.running.lastProgress if told is not None and told.batchId() > batch else None

    def note(self, text: str) -> None:
        """Keep what the user should know of it."""
        if text not in self.notes:
            self.notes.append(text)

    def written(self) -> Written:
        """Return which rows its output holds since its last commit."""
        if self.output is None or self.part.delivery == "at-least-once":
            return Written()
        return gather(parse_from(mark) for mark in self._marks())

    def _marks(self, is_calm: bool = False) -> list[bytes]:
        """Return of which records the rows were made that it has written since its last commit.

        Args:
            is_calm: Whether the broker has just taken the last of them; else it may be coming back, and show a part.
        """
        assert self.output is not None
        known = self._known()
        marks = [] if known is None else [mark.encode() for mark in known["marks"]]
        if known is not None and known["is_whole"]:
            self._write_known({**known, "is_whole": False})  # from now on there may be more
            return marks
        if not is_calm and any((self.checkpoint / "sources").glob("*")):  # it ran before
            _wait_steady(*self.output)
        since_ms = max(last_commit_ms(self.checkpoint), self.seated.begun_ms - SLACK_MS)
        marks.extend(_own_marks(*self.output, since_ms, self._by))
        for address, topic in self.formerly:
            try:
                marks.extend(_own_marks(address, topic, since_ms, self._by))
            except BindError as error:
                if self.attempts <= PATIENT_STARTS:
                    raise
                self.note(f"what it wrote to '{topic}' before cannot be read, so some rows may come twice: {error}")
        return marks

    def _is_ordered(self, lane: LaneName, frame: DataFrame) -> bool:
        if (self.part.is_stateful and lane == "micro-batch") or not keeps_order(frame):
            return False
        return self.output is None or len(topics.end_offsets(self.output[0], [self.output[1]])) == 1

    def _pace(self) -> str:
        # One batch after the other would take a whole core for what nobody waits for: tables, closed windows.
        is_awaited = self.part.mode == "update" or (self.part.output != "table" and not self.part.is_stateful)
        return QUICK_PACE if is_awaited else CALM_PACE

    def _writer(self, rows: DataFrame, lane: LaneName, is_drain: bool) -> DataStreamWriter:
        options = dict(self.definition.options) if self.part.output == "sink" else {}
        if self.output is not None:
            is_channel = self.part.output == "channel"
            if is_channel:
                records = encode(rows, self.definition.schema_json, self._by)
            else:
                records = with_headers(rows, self._by)
            near = _NEAR if self.output[0] == self.ground.broker else {}
            options = {**_WRITER, **near, **spark_options(self.output[0]), **options, "includeHeaders": "true"}
            options["kafka.bootstrap.servers"], options["topic"] = self.output
            options["kafka.client.id"] = f"{self.client}.{self.attempts}"
            writer = records.writeStream.format("kafka")
        elif self.part.output == "table":
            options["path"] = (self.ground.folder / "tables" / self.part.id).as_uri()
            writer = rows.drop(MARK).writeStream.format("parquet")
        else:
            writer = rows.drop(MARK).writeStream.format(self.definition.format or "noop")
        trigger: dict[str, Any] = {"realTime": BATCH} if lane == "real-time" else {"processingTime": self._pace()}
        if is_drain:
            trigger = {"availableNow": True}
        options["checkpointLocation"] = self.checkpoint.as_uri()
        mode = "update" if lane == "real-time" else self.part.mode
        return writer.options(**options).queryName(self.part.id).outputMode(mode).trigger(**trigger)


def _own_marks(address: str, topic: str, since_ms: int, by: str) -> Iterator[bytes]:
    """Yield of which records the rows of one writer were made."""
    for one in topics.tail(address, topic, max(0, since_ms)):
        headers = headers_of(one)
        if FROM in headers and headers.get(BY, b"").decode() == by:
            yield headers[FROM]


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
