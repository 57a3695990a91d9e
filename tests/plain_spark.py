"""What would Spark alone make of it?

Runs an example's flows on a classic Spark session, uncut, on records from a list instead of Kafka, and gives what
they write. Results of a pipeline that was cut across sites are compared with this, so nothing of Headwater is used
here: only `pyspark.pipelines` and the project's own files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import Output, Sink, TemporaryView
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

EXAMPLES = Path(__file__).parent.parent / "examples"

Record = tuple[str, bytes | None, bytes]  # topic, key, value
Row = tuple[str | None, str]  # key and value as text; a table's row has no key, its value is the row as JSON

# As the Kafka connector gives them.
SCHEMA = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, timestampType INT"
ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
ARRIVED = datetime(2026, 1, 1, tzinfo=UTC)  # no example looks at it


class Graph(GraphElementRegistry):
    """What a project registers, in order."""

    def __init__(self) -> None:
        self.outputs: dict[str, Output] = {}
        self.flows: list[Flow] = []

    def register_output(self, output: Output) -> None:
        self.outputs[output.name] = output

    def register_flow(self, flow: Flow) -> None:
        self.flows.append(flow)

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise NotImplementedError(f"no example has a flow like '{flow.name}'")

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise NotImplementedError(f"no example has SQL files like '{file_path}'")


def session() -> SparkSession:
    """Return a small classic session; the caller stops it."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]").appName("plain")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def reference(name: str, records: Iterable[Record], spark: SparkSession | None = None) -> dict[str, Counter[Row]]:
    """Return what an example writes for these records: for every sink and every table that nothing reads, its rows.

    All records are there before Spark starts, so none is late: it is the answer that a run across sites owes,
    whatever the speed of its parts. Views stay part of the query that reads them, and a table that is read is
    written first, as Spark does it.
    """
    if spark is None:
        own = session()
        try:
            return reference(name, records, own)
        finally:
            own.stop()
    with tempfile.TemporaryDirectory() as folder:
        project = _Run(EXAMPLES / name, Path(folder), spark)
        project.write(records)
        return project.results()


class _Run:
    """One project on one list of records."""

    def __init__(self, project: Path, folder: Path, spark: SparkSession) -> None:
        self.project, self.folder, self.spark = project, folder, spark
        self.graph = Graph()
        self.built: set[str] = set()  # names that a flow was seen to read
        self.numbers = itertools.count()

    def write(self, records: Iterable[Record]) -> None:
        """Lay the records down as one file a topic, so that each topic is one batch."""
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for topic, key, value in records:
            rows = by_topic.setdefault(topic, [])
            rows.append(
                {"key": key, "value": value, "topic": topic, "partition": 0, "offset": len(rows)}
                | {"timestamp": ARRIVED, "timestampType": 0}
            )
        for topic, rows in by_topic.items():
            target = self.folder / "topics" / topic
            target.mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(rows, ARROW), target / "records.parquet")

    def results(self) -> dict[str, Counter[Row]]:
        """Run every flow whose rows leave the pipeline."""
        self._load()
        with self._streams():
            leaving = [
                (flow.target, flow.func())
                for flow in self.graph.flows
                if not isinstance(self.graph.outputs[flow.target], TemporaryView)
            ]
            results: dict[str, Counter[Row]] = {}
            for target, rows in leaving:
                if target not in self.built:
                    is_table = not isinstance(self.graph.outputs[target], Sink)
                    results.setdefault(target, Counter()).update(self._collected(rows, is_table))
        return results

    def _load(self) -> None:
        spec = yaml.safe_load((self.project / "spark-pipeline.yml").read_text(encoding="utf-8"))
        for key, value in spec["configuration"].items():
            self.spark.conf.set(key, value)
        with graph_element_registration_context(self.graph):
            for library in spec["libraries"]:
                for path in sorted(self.project.glob(library["glob"]["include"])):
                    found = importlib.util.spec_from_file_location(f"plain_{path.stem}", path)
                    assert found is not None
                    assert found.loader is not None
                    found.loader.exec_module(importlib.util.module_from_spec(found))

    @contextlib.contextmanager
    def _streams(self) -> Iterator[None]:
        """Give readers of Kafka this run's files, and build what a flow reads when it reads it."""
        real_format, real_table, real_sql = DataStreamReader.format, DataStreamReader.table, SparkSession.sql

        def chosen(reader: DataStreamReader, source: str) -> Any:
            return _KafkaReader(self) if source == "kafka" else real_format(reader, source)

        def table(reader: DataStreamReader, name: str) -> DataFrame:
            self._build(name)
            return real_table(reader, name)

        def sql(spark: SparkSession, text: str) -> DataFrame:
            for name in re.findall(r"\bSTREAM\s+(\w+)", text):
                self._build(name)
            return real_sql(spark, text)

        with (
            patch.object(DataStreamReader, "format", chosen),
            patch.object(DataStreamReader, "table", table),
            patch.object(SparkSession, "sql", sql),
        ):
            yield

    def _build(self, name: str) -> None:
        if name in self.built:
            return
        self.built.add(name)
        rows = reduce(DataFrame.union, (flow.func() for flow in self.graph.flows if flow.target == name))
        if not isinstance(self.graph.outputs[name], TemporaryView):
            target = str(self.folder / f"table-{name}")
            self._finish(rows, "parquet", {"path": target})
            rows = self.spark.readStream.schema(rows.schema).parquet(target)
        rows.createOrReplaceTempView(name)

    def _collected(self, rows: DataFrame, is_table: bool) -> list[Row]:
        name = f"collected_{next(self.numbers)}"
        key = "key" if not is_table and "key" in rows.columns else "NULL"
        value = "to_json(struct(*))" if is_table else "value"
        rows = rows.selectExpr(f"CAST({key} AS STRING) AS key", f"CAST({value} AS STRING) AS value")
        self._finish(rows, "memory", {"queryName": name})
        found: list[Row] = [(row["key"], row["value"]) for row in self.spark.table(name).collect()]
        self.spark.catalog.dropTempView(name)
        return found

    def _finish(self, rows: DataFrame, form: str, options: dict[str, str]) -> None:
        """Run one query on all there is, in append mode, to its end."""
        checkpoint = str(self.folder / f"checkpoint-{next(self.numbers)}")
        writer = rows.writeStream.format(form).options(**options).option("checkpointLocation", checkpoint)
        writer.outputMode("append").trigger(availableNow=True).start().awaitTermination()


class _KafkaReader:
    """Takes the options of Kafka's reader and gives the topic from this run's files."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._options: dict[str, Any] = {}

    def option(self, key: str, value: Any) -> _KafkaReader:
        return self.options(**{key: value})

    def options(self, **given: Any) -> _KafkaReader:
        self._options.update(given)
        return self

    def load(self) -> DataFrame:
        folder = self._run.folder / "topics" / self._options["subscribe"]
        folder.mkdir(parents=True, exist_ok=True)
        return self._run.spark.readStream.schema(SCHEMA).parquet(str(folder))
