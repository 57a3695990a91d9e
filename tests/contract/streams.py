"""A desk for tests of queries: one Spark session as a runner has it, one real broker, and small streams."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from pyspark import SparkContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.bind.jars import Jars
from headwater.bind.kafka import KafkaBroker
from headwater.bind.session import start_session
from headwater.bind.sources import READER
from headwater.bind.topics import client_settings, ensure_topics, tail
from tests.contract.fetched import fetched

__all__ = ["MARKS", "Streams", "as_text", "end_java", "streams"]

READY_S = 120.0  # on a machine that does many things at once
MARKS = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets of the gateway to Java
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"),
]
SCHEMA = "id int, key string, list array<int>, at timestamp"


def streams(folder: Path) -> Iterator[Streams]:
    """Yield a desk in a folder, and end everything of it."""
    jars = fetched()
    broker = KafkaBroker("hub", folder / "broker", jars)
    broker.start()
    end_java()  # that of other tests has no connector on its class path
    spark = _session(folder, jars)
    try:
        broker.wait_ready(READY_S)
        yield Streams(spark, broker.address, folder)
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.stop()
        end_java()
        broker.kill()


def _session(folder: Path, jars: Jars) -> SparkSession:
    # Java compiles less: a test ends before that pays.
    return start_session("test", folder / "spark", jars.spark, 8, {}, flags=["-XX:TieredStopAtLevel=1"])


def end_java() -> None:
    """End the JVM that a stopped session leaves behind for the next one."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    if process.stdin is not None:
        process.stdin.close()
    process.wait(30)
    SparkContext._gateway = SparkContext._jvm = None


class Streams:
    """Feeds topics, reads them as streams, and runs queries to their end."""

    def __init__(self, spark: SparkSession, address: str, folder: Path) -> None:
        self.spark = spark
        self.address = address
        self.folder = folder
        self.begin_ms = int(time.time() * 1000) - 60_000  # a record is that many ms younger as its number says
        self._numbers = itertools.count()

    def topic(self, partitions: int = 1) -> str:
        """Make an empty topic with a name of its own."""
        name = f"topic.{next(self._numbers)}"
        ensure_topics(self.address, [name], partitions)
        return name

    def feed(self, topic: str, ids: Iterable[int], partition: int = 0) -> None:
        """Write a record for each number: its remainder as a letter, a list as long as that, a time in seconds."""
        producer = Producer(client_settings(self.address) | {"linger.ms": 0})
        for each in ids:
            at = f"2026-01-01 00:{each // 60:02d}:{each % 60:02d}"
            value = json.dumps({"id": each, "key": "abc"[each % 3], "list": [7] * (each % 3), "at": at})
            producer.produce(topic, value, partition=partition, timestamp=self.begin_ms + each)
        assert producer.flush(30) == 0

    def raw(self, topic: str) -> DataFrame:
        """Return a topic as Kafka gives it."""
        reader = self.spark.readStream.format("kafka").options(**READER)
        return reader.option("kafka.bootstrap.servers", self.address).option("subscribe", topic).load()

    def rows(self, topic: str) -> DataFrame:
        """Return what was fed: id, key, list, at."""
        parsed = F.from_json(F.col("value").cast("string"), SCHEMA)
        return self.raw(topic).select(parsed.alias("row")).select("row.*")

    def begin(self, frame: DataFrame, mode: str = "append", checkpoint: str | None = None) -> StreamingQuery:
        """Start a query over all there is."""
        number = next(self._numbers)
        folder = self.folder / "checkpoints" / (checkpoint or str(number))
        writer = frame.writeStream.format("memory").queryName(f"query_{number}").outputMode(mode)
        return writer.option("checkpointLocation", folder.as_uri()).trigger(availableNow=True).start()

    def collect(self, query: StreamingQuery) -> list[Row]:
        """Return the rows of a query that was begun, in the order in which it gave them."""
        query.awaitTermination()
        assert query.name is not None
        found = self.spark.table(query.name).collect()
        self.spark.catalog.dropTempView(query.name)
        return found

    def run(self, frame: DataFrame, mode: str = "append") -> list[Row]:
        """Return what a query gives for all there is."""
        return self.collect(self.begin(frame, mode))

    def write(self, records: DataFrame, topic: str, mode: str = "append") -> None:
        """Write all records that there are to a topic."""
        writer = records.writeStream.format("kafka").option("kafka.bootstrap.servers", self.address).outputMode(mode)
        folder = self.folder / "checkpoints" / str(next(self._numbers))
        writer = writer.option("topic", topic).option("includeHeaders", "true")
        writer.option("checkpointLocation", folder.as_uri()).trigger(availableNow=True).start().awaitTermination()

    def stream_of(self, rows: DataFrame) -> DataFrame:
        """Return the rows of a table as a stream of the same columns."""
        folder = (self.folder / "tables" / str(next(self._numbers))).as_uri()
        rows.write.parquet(folder)
        return self.spark.readStream.schema(rows.schema).parquet(folder)

    def records(self, topic: str) -> list[Message]:
        """Return what a topic holds."""
        return list(tail(self.address, topic, 0))


def as_text(rows: Iterable[Any]) -> list[str]:
    """Return rows in a form that can be compared whatever they hold, in no order."""
    return sorted(map(repr, map(tuple, rows)))
