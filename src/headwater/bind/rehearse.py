"""How does a runner that has never run a query run its first one as fast as any other?

The first query of a Spark session takes seconds: classes are loaded, code is made and compiled. `rehearse` runs one
of the same kind on a topic of its own, so that the first real one, for which records may be waiting, does not.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.bind import topics
from headwater.bind.carry import carry
from headwater.bind.channel import job_rows, with_headers
from headwater.bind.keyring import spark_options
from headwater.bind.session import lane_settings
from headwater.bind.sources import records_of

__all__ = ["rehearse"]

PATIENCE_S = 30.0
LOOK_S = 0.05
RECORDS = 20


def rehearse(spark: SparkSession, address: str, folder: Path, name: str, is_stateful: bool) -> None:
    """Run a query like a real-time job for a moment; what is not ready in time is left at that.

    Args:
        spark: The session.
        address: The site's broker.
        folder: For a checkpoint, removed afterwards.
        name: Of the runner: part of the topics' names, which are removed too.
        is_stateful: Whether to count in windows, or only to hand on.
    """
    taken, given = f"hw.rehearsal.{name}.in", f"hw.rehearsal.{name}.out"
    topics.ensure_topics(address, [taken, given])
    try:
        rows = job_rows(records_of(spark, address, taken))
        if is_stateful:
            windows = rows.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 minute")).count()
            rows = windows.select(F.to_json(F.struct("*")).alias("value"))
        marked = carry(rows.select("value"), "rehearsal")
        assert marked is not None, "neither loses its marks"
        for key, value in lane_settings("real-time").items():
            spark.conf.set(key, value)
        options = {**spark_options(address), "kafka.bootstrap.servers": address, "topic": given}
        writer = with_headers(marked, name).writeStream.format("kafka").options(**options).outputMode("update")
        trigger: dict[str, Any] = {"realTime": "60 seconds"}
        query = writer.option("checkpointLocation", folder.as_uri()).trigger(**trigger).start()
        try:
            producer = Producer(topics.client_settings(address))
            for number in range(RECORDS):
                producer.produce(taken, str(number))
            producer.flush(PATIENCE_S)
            end_s = time.monotonic() + PATIENCE_S
            while topics.end_offsets(address, [given])[given, 0] < RECORDS and time.monotonic() < end_s:
                time.sleep(LOOK_S)  # Kafka tells that only when asked
        finally:
            query.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        topics.remove_topics(address, [taken, given])
