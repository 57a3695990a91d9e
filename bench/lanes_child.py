"""What is under test? One lane with one kind of query, in a process of its own.

`python -m bench.lanes_child` is driven by lines of JSON: the first says kind, lane, broker, folder and
jars; then `{"do": "start", "input": .., "output": ..}` starts a query from one topic to another in the same
session, `{"do": "stop"}` stops it, the end of the input ends the process. Answers are lines of JSON with
`event`; whatever else Spark prints is not for us.

The lanes: Headwater's two are what its runner does, session, marks and headers included; Spark's two are
the bare query in a session as it comes, with nothing set but what Spark demands to start it at all.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.driven import drive
from bench.lanes_queries import KINDS, Kind
from headwater.bind.query import BATCH, Ground, Query
from headwater.bind.session import start_session
from headwater.bind.sources import counted
from headwater.model.project import Definition, LaneName
from headwater.plan.deploy import Part

__all__ = ["main"]

SITE = "here"
THREADS = 8  # as a runner takes for one fragment
TAKING_S = 120.0
OURS: Mapping[str, LaneName] = {"headwater real-time": "real-time", "headwater micro-batch": "micro-batch"}
REAL_TIME = "spark real-time"
# Without these Spark refuses the queries, or waits for ever for a free slot.
DEMANDED = {"spark.master": f"local[{THREADS}]", "spark.sql.streaming.realTimeMode.allowlistCheck": "false"}
ONE_PARTITION = {"spark.sql.shuffle.partitions": "1"}
DEMANDED_BY_STATE = {
    **ONE_PARTITION,
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


class Lane:
    """A session, and one query after another in it."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        """Start Spark."""
        self._kind: Kind = KINDS[job["kind"]]
        self._lane: str = job["lane"]
        self._address: str = job["address"]
        self._folder = Path(job["folder"])
        self._count = 0
        self._running: StreamingQuery | None = None
        self._jars = [Path(one) for one in job["jars"]]
        if self._lane in OURS:
            self._spark = start_session("bench", self._folder, self._jars, THREADS, {})
        else:
            self._spark = self._plain_session()

    def start(self, source: str, sink: str) -> dict[str, Any]:
        """Start a query; say when it takes records."""
        self._count += 1
        try:
            if self._lane in OURS:
                return self._start_ours(OURS[self._lane], source, sink)
            self._running = self._start_plain(source, sink)
        except PySparkException as error:
            return {"event": "refused", "why": str(error).splitlines()[0]}
        return {"event": "taking"}

    def stop(self) -> dict[str, Any]:
        """Stop it; say why it had ended, if it had."""
        assert self._running is not None
        error = self._running.exception()
        self._running.stop()
        return {"event": "stopped", "failure": None if error is None else str(error).splitlines()[0]}

    def _records(self, source: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": self._address, "subscribe": source, "startingOffsets": "earliest"}
        return self._spark.readStream.format("kafka").options(**options).load()

    def _start_ours(self, lane: LaneName, source: str, sink: str) -> dict[str, Any]:
        """Start it as a runner starts a fragment of three operators: a source, the query, a sink."""
        part = Part(
            id=f"bench-{self._count}",
            site=SITE,
            steps=(),
            inputs=(),
            output="sink",
            topic=None,
            broker=SITE,
            quarantine="bench.quarantine",
            lane=lane,
            mode="update" if self._kind.is_stateful else "append",
            is_stateful=self._kind.is_stateful,
            because="",
            on_error="stop",
            delivery="exactly-once",
            in_rps=0.0,
        )
        definition = Definition("out", "sink", ("rows",), "", "", 0, format="kafka", options=(("topic", sink),))

        def build(_: Any) -> DataFrame:
            rows = counted(self._kind.rows(counted(self._records(source), "records")), "rows")
            return counted(rows, "out")

        query = Query(part, Ground(SITE, self._folder, {SITE: self._address}), definition, build)
        query.start(self._spark)
        self._running = query.running
        if query.lane != lane:
            return {"event": "refused", "why": "; ".join(query.notes)}
        end_s = time.monotonic() + TAKING_S
        while not query.is_taking(self._spark) and time.monotonic() < end_s:
            time.sleep(0.02)
        return {"event": "taking", "notes": query.notes}

    def _plain_session(self) -> SparkSession:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {"spark.master": "local[*]", "spark.driver.extraClassPath": os.pathsep.join(map(str, self._jars))}
        if self._lane == REAL_TIME:
            settings |= DEMANDED | (DEMANDED_BY_STATE if self._kind.is_stateful else {})
        if self._lane.endswith("1 partition"):
            settings |= ONE_PARTITION
        settings |= {f"spark.{name}.dir": str(self._folder / name) for name in ("local", "sql.warehouse")}
        builder = SparkSession.Builder()
        for key, value in settings.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    def _start_plain(self, source: str, sink: str) -> StreamingQuery:
        options = {
            "kafka.bootstrap.servers": self._address,
            "topic": sink,
            "checkpointLocation": (self._folder / "checkpoints" / str(self._count)).as_uri(),
        }
        is_real_time = self._lane == REAL_TIME
        trigger: dict[str, Any] = {"realTime": BATCH} if is_real_time else {"processingTime": "0 seconds"}
        mode = "update" if is_real_time or self._kind.is_stateful else "append"
        writer = self._kind.rows(self._records(source)).writeStream.format("kafka").options(**options)
        return writer.outputMode(mode).trigger(**trigger).start()


def main() -> None:
    """Do what the lines on standard input say."""
    drive(Lane)


if __name__ == "__main__":
    main()
