"""What does an operator cost, and what does it give?

A `Bench` runs rows through queries that read Parquet files and end by themselves. Processor time is that of all
processes below this one: the JVM and Spark's Python processes. Left out are the JVM's compiler threads, which
work for a query and not for a record.

Rows come in whole: a count of every column stands between the files and the operator, so that Spark reads what a
channel would carry, and not only the columns that the operator looks at. The same query without the operator has
the same count, and the difference of the two is the operator.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

__all__ = ["Bench", "Busy", "Rows", "Used", "busy", "others_share", "used_s"]

SETTINGS = {
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",  # rows come in whole
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
BATCH = "spark.sql.parquet.columnarReaderBatchSize"
BATCH_BYTES = 16_000_000  # of rows that are read from a file at once
BATCH_ROWS = 4_096
FILE_ROWS, FILE_BYTES = 100_000, 48_000_000  # of one file, at most
TRIES = 5  # of a query in which a process was started or ended
_LAP = "hw-lap"  # a column, for a moment
_DELAY = "spark.watermarkDelayMs"  # where Spark keeps a column's watermark in its schema


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that lie in Parquet files."""

    folder: Path
    schema_json: str
    count: int
    size_bytes: float  # of all of them, as Avro

    @property
    def mean_bytes(self) -> float:
        """Return the size of a row."""
        return self.size_bytes / self.count if self.count else 0.0


class Bench:
    """One session that measures, and a folder for what it needs."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Set the session up."""
        self._spark = spark
        self._folder = folder
        self._count = 0
        self.is_avro = True  # whether all sizes so far are of Avro; some types only have a size as JSON
        self.set(SETTINGS)

    def set(self, settings: Mapping[str, str]) -> None:
        """Change settings of the session."""
        for key, value in settings.items():
            self._spark.conf.set(key, value)

    def folder(self, name: str) -> Path:
        """Return a new folder."""
        self._count += 1
        made = self._folder / f"{self._count}-{name}"
        made.mkdir(parents=True)
        return made

    def stream(self, rows: Rows, one_by_one: bool = False) -> DataFrame:
        """Return rows as a stream, all columns of which are read, event time declared again.

        Args:
            rows: The rows.
            one_by_one: One file a batch.
        """
        reader = self._spark.readStream.schema(_schema(rows)).format("parquet")
        if one_by_one:
            reader = reader.option("maxFilesPerTrigger", 1)
        frame = reader.load(str(rows.folder))
        self._count += 1
        counts = [F.count(_column(column)).alias(f"column{i}") for i, column in enumerate(frame.columns)]
        frame = frame.observe(f"in{self._count}", F.count(F.lit(1)).alias("rows"), *counts)
        for field in json.loads(rows.schema_json)["fields"]:
            if _DELAY in field["metadata"]:
                frame = frame.withWatermark(field["name"], f"{field['metadata'][_DELAY]} milliseconds")
        return frame

    def without(self, frames: Sequence[DataFrame]) -> DataFrame:
        """Return the query to which an operator is compared: the same rows in, nothing done."""
        if len(frames) == 1:
            return frames[0]
        return reduce(DataFrame.union, (frame.select(F.lit(1).alias("one")) for frame in frames))

    def read(self, folder: Path, schema_json: str) -> Rows:
        """Return what lies in a folder of Parquet files, with its size as Avro."""
        found = Rows(folder, schema_json, 0, 0.0)
        if not any(folder.glob("*.parquet")):
            return found
        frame = self._spark.read.schema(_schema(found)).parquet(str(folder))
        whole = F.struct(*map(_column, frame.columns))
        try:
            count, total = _totals(frame, F.length(to_avro(whole)))
        except PySparkException:
            self.is_avro = False
            count, total = _totals(frame, F.octet_length(F.to_json(whole)))
        return replace(found, count=count, size_bytes=total)

    def keep(self, frame: DataFrame, mode: str) -> tuple[Rows, int | None]:
        """Run a query to its end and keep its rows; return them, and the most bytes of state that it had, if any."""
        folder = self.folder("rows")
        target = str(folder)

        def write(batch: DataFrame, _: int) -> None:
            batch.write.mode("append").parquet(target)

        running = self._started(frame.writeStream.foreachBatch(write), mode)
        rows = self.read(folder, frame.schema.json())
        states = [sum(map(_state_bytes, each.stateOperators)) for each in running.recentProgress if each.stateOperators]
        return rows, max(states, default=None)

    def laid(self, rows: Rows, count: int) -> Rows:
        """Return this many rows, or a few more: the first ones, or all of them several times over.

        Many rows lie in one file, and links to it stand for more: opening a file costs as much as hundreds of rows.
        """
        folder = self.folder("timed")
        if not rows.count:
            return replace(rows, folder=folder)
        once = self._spark.read.schema(_schema(rows)).parquet(str(rows.folder))
        laps = max(1, round(count / rows.count))
        mean = max(1.0, rows.mean_bytes)
        in_file = max(1, min(laps, int(min(FILE_ROWS, FILE_BYTES / mean) / rows.count)))
        many = once if count >= rows.count else once.limit(count)
        if in_file > 1:
            many = self._spark.range(in_file).withColumnRenamed("id", _LAP).crossJoin(once).drop(_LAP)
        options = {"compression": "none", "parquet.enable.dictionary": "false"}
        many.coalesce(1).write.mode("append").options(**options).parquet(str(folder))
        made = next(folder.glob("*.parquet"))
        files = -(-laps // in_file)
        for i in range(1, files):
            os.link(made, folder / f"link-{i}.parquet")
        total = min(count, rows.count) if laps == 1 else rows.count * in_file * files
        return Rows(folder, rows.schema_json, total, mean * total)

    def pieces(self, rows: Rows, most: int) -> Rows:
        """Return the first rows, each in a file of its own."""
        folder = self.folder("pieces")
        count = min(most, rows.count)
        first = self._spark.read.schema(_schema(rows)).parquet(str(rows.folder)).limit(count).repartition(count)
        first.write.mode("append").option("maxRecordsPerFile", 1).parquet(str(folder))
        return self.read(folder, rows.schema_json)

    def remove(self, rows: Rows) -> None:
        """Remove the files of rows that are not needed any more."""
        shutil.rmtree(rows.folder, ignore_errors=True)

    def fit(self, mean_bytes: float) -> None:
        """Read as many rows at once as memory allows for rows of this size."""
        self.set({BATCH: str(int(max(1, min(BATCH_ROWS, BATCH_BYTES / max(1.0, mean_bytes)))))})

    def cost_s(self, frame: DataFrame, mode: str) -> float:
        """Return the processor seconds of a query whose rows go nowhere."""
        jvm: Any = self._spark._jvm
        for _ in range(TRIES):
            jvm.System.gc()  # what earlier queries left behind is not this one's
            before = used_s()
            self._started(frame.writeStream.format("noop"), mode)
            after = used_s()
            if after.processes.keys() == before.processes.keys():
                break  # else the start of a Python process was measured too, or one has taken its time with it
        return _between_s(before, after)

    def _started(self, writer: Any, mode: str) -> StreamingQuery:
        checkpoint = self.folder("checkpoint")
        writer = writer.outputMode(mode).option("checkpointLocation", str(checkpoint))
        running: StreamingQuery = writer.trigger(availableNow=True).start()
        try:
            running.awaitTermination()
        finally:
            running.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        return running


class Used(NamedTuple):
    """Processor seconds so far."""

    processes: Mapping[int, float]  # of each process below this one
    compilers: Mapping[int, float]  # of each of the JVM's compiler threads


def used_s() -> Used:
    """Return the processor seconds of all processes below this one, and those of the JVM's compilers."""
    processes, compilers = {}, {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            times = process.cpu_times()
            processes[process.pid] = times.user + times.system
            for thread in process.threads():
                with contextlib.suppress(OSError):
                    named = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text("utf-8")
                    if "CompilerThre" in named:
                        compilers[thread.id] = thread.user_time + thread.system_time
    return Used(processes, compilers)


class Busy(NamedTuple):
    """What the processors of this machine have done so far, in seconds."""

    all_s: float  # time that there was, of all processors
    used_s: float  # of that, used by anybody
    ours_s: float  # of that, by this process and those below it


def busy() -> Busy:
    """Return what the processors have done so far."""
    times = psutil.cpu_times()
    free_s = times.idle + getattr(times, "iowait", 0.0)
    own = psutil.Process().cpu_times()
    return Busy(sum(times[:8]), sum(times[:8]) - free_s, sum(used_s().processes.values()) + own.user + own.system)


def others_share(before: Busy, after: Busy) -> float:
    """Return the share of the processors that went to other programs, from 0 to 1."""
    passed_s = after.all_s - before.all_s
    others_s = (after.used_s - before.used_s) - (after.ours_s - before.ours_s)
    return min(1.0, max(0.0, others_s / passed_s)) if passed_s > 0 else 0.0


def _between_s(before: Used, after: Used) -> float:
    """Return what was used meanwhile by the processes that are still there, without compilers."""
    whole = sum(used - before.processes.get(process, 0.0) for process, used in after.processes.items())
    return whole - sum(used - before.compilers.get(thread, 0.0) for thread, used in after.compilers.items())


def _schema(rows: Rows) -> StructType:
    """Return the columns of rows, without watermarks."""
    kept = json.loads(rows.schema_json)
    for field in kept["fields"]:
        field["metadata"] = {key: value for key, value in field["metadata"].items() if key != _DELAY}
    return StructType.fromJson(kept)


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _totals(frame: DataFrame, size: Column) -> tuple[int, float]:
    count, total = frame.select(F.count(F.lit(1)), F.sum(size)).collect()[0]
    return int(count), float(total or 0)


def _state_bytes(state: Any) -> int:
    custom = state.customMetrics
    return int(custom.get("rocksdbSstFileSize", 0)) or int(state.memoryUsedBytes)
