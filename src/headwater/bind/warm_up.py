"""Which classes do our queries touch?

Runs a query of each kind for a moment, so that a JVM that is told to archive its classes at exit has seen
them all. Run as `python -m headwater.bind.warm_up SPEC` by `bind.archive`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.bind.carry import carry
from headwater.bind.channel import encode, read_channel
from headwater.bind.meter import Meter
from headwater.bind.session import lane_settings, start_session
from headwater.bind.sources import channel_rows, counted
from headwater.bind.topics import ensure_topics, tail
from headwater.model.project import LaneName

__all__ = ["main"]

PATIENCE_S = 60
RECORDS = 20


def main(arguments: Sequence[str]) -> int:
    """Run the queries and end the JVM in order."""
    spec: dict[str, Any] = json.loads(Path(arguments[0]).read_text("utf-8"))
    folder = Path(spec["folder"])
    flags = [f"-XX:ArchiveClassesAtExit={spec['archive']}"]
    spark = start_session("warm-up", folder, [Path(one) for one in spec["jars"]], 12, {}, flags=flags)
    _run(spark, spec["address"], folder)
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    process.stdin.close()  # Spark's JVM ends when its parent is gone
    return int(process.wait(PATIENCE_S * 2))


def _run(spark: SparkSession, address: str, folder: Path) -> None:
    ensure_topics(address, ["in", "rows", "python", "counts"])
    producer = Producer({"bootstrap.servers": address})
    for number in range(RECORDS):
        producer.produce("in", json.dumps({"id": number, "at": "2026-01-01T00:00:00Z"}))
    producer.flush(PATIENCE_S)
    options = {"kafka.bootstrap.servers": address, "subscribe": "in", "startingOffsets": "earliest"}
    source = spark.readStream.format("kafka").options(**options).load()
    row = F.from_json(F.col("value").cast("string"), "id LONG, at TIMESTAMP")
    rows = counted(source.select(row.alias("row")).select("row.*").withWatermark("at", "1 minute"), "rows")
    schema = rows.schema.json()
    double = F.udf(lambda number: number * 2, "long")
    again = channel_rows(spark, address, "rows", schema)
    python = counted(again.withColumn("twice", double("id")), "python")
    counts = channel_rows(spark, address, "rows", schema).groupBy(F.window("at", "1 minute")).count()
    lane: LaneName = "real-time"
    running = []
    for topic, frame in (("rows", rows), ("python", python), ("counts", counts)):
        for key, value in lane_settings(lane).items():
            spark.conf.set(key, value)
        running.append(_written(frame, address, topic, folder).trigger(realTime="60 seconds").start())
    for topic in ("rows", "python", "counts"):
        _wait(address, topic)
    Meter(spark).read({"warm-up": folder / "checkpoints" / "rows"})
    for query in running:
        query.stop()
    table = read_channel(
        spark.readStream.format("kafka").options(**{**options, "subscribe": "rows", "includeHeaders": "true"}).load(),
        schema,
    )
    writer = table.writeStream.format("parquet").option("path", (folder / "table").as_uri())
    writer = writer.option("checkpointLocation", (folder / "checkpoints" / "table").as_uri())
    writer.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)


def _written(frame: DataFrame, address: str, topic: str, folder: Path) -> Any:
    marked = carry(frame, "warm-up")
    assert marked is not None, "none of these queries loses its marks"
    options = {"kafka.bootstrap.servers": address, "topic": topic, "kafka.linger.ms": "0"}
    writer = encode(marked, frame.schema.json()).writeStream.format("kafka").options(**options)
    return writer.option("checkpointLocation", (folder / "checkpoints" / topic).as_uri()).outputMode("update")


def _wait(address: str, topic: str) -> None:
    for _ in range(PATIENCE_S * 5):
        if sum(1 for _ in tail(address, topic, 0)) >= RECORDS:
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
