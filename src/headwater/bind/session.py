"""How is Spark started for one site?

One session holds all queries of a runner. The settings are measured ones: with Spark's own the same
queries take ten to a hundred times as long.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headwater.bind.java import HEAP_MB
from headwater.model.project import LaneName

__all__ = ["is_alive", "java_class", "java_strings", "lane_settings", "start_session"]

_STREAMING = "spark.sql.streaming"
_DEFAULTS = {  # the project may say otherwise
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
}
APPLICATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.task.maxFailures": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    # state in RocksDB, which the real-time lane asks for
    f"{_STREAMING}.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STREAMING}.stateStore.checkpointFormatVersion": "2",
    # without the fork of a chmod for every file of a checkpoint: 50 to 100 ms a micro-batch
    f"{_STREAMING}.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Python functions: one record at a time, as soon as it is there
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    # a task for each branch of a union: two branches with state in one task fail on each other's state
    "spark.sql.unionOutputPartitioning": "false",
    f"{_STREAMING}.realTimeMode.allowlistCheck": "false",  # it knows no Python functions
    # a shuffle in the real-time lane hands on each record after 1 ms instead of 50
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
}
_PYTHON_AT_ONCE = {
    "spark.sql.execution.python.udf.maxRecordsPerBatch": "1",
    "spark.sql.execution.python.udf.buffer.size": "8",
}
_PYTHON_IN_BATCHES = {
    "spark.sql.execution.python.udf.maxRecordsPerBatch": "100",
    "spark.sql.execution.python.udf.buffer.size": "65536",
}
# What Kafka's beans are read by: they tell how far each query has come.
_OPEN_BEANS = "--add-opens=java.management/com.sun.jmx.mbeanserver=ALL-UNNAMED"
# Below this many records a second Java's first compiler alone serves better: a start takes a third less
# processor, and no second compiler competes with the queries. Above, what the second one makes of hot code pays.
CALM_RPS = 1_000.0
_CALM = "-XX:TieredStopAtLevel=1"
# The second compiler waits until code is really hot: else it takes as much processor as all the rest of a start.
_BUSY = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_KNOWN = (
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.api.python.PythonUtils",
)


def lane_settings(lane: LaneName) -> Mapping[str, str]:
    """Return the settings of a session under which a query of this lane is started."""
    return _PYTHON_AT_ONCE if lane == "real-time" else _PYTHON_IN_BATCHES


def start_session(
    name: str,
    folder: Path,
    jars: Sequence[Path],
    threads: int,
    configuration: Mapping[str, str],
    heap_mb: int = HEAP_MB,
    flags: Sequence[str] = (),
    rate_rps: float = math.inf,
) -> SparkSession:
    """Return a quiet session on this machine, with our settings where the queries need them.

    Args:
        name: Of the application.
        folder: Where Spark may put what it needs while it runs.
        jars: The connector and what it needs.
        threads: How many parts of queries may run at once; a real-time query holds its own for good.
        configuration: The project's settings, and the site's; what the lanes depend on stays as it is.
        heap_mb: Memory of the JVM's heap.
        flags: More options of Java.
        rate_rps: Records a second that all its queries together are expected to take in.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        **_DEFAULTS,
        **configuration,
        **APPLICATION,
        "spark.master": f"local[{threads}]",
        "spark.app.name": name,
        "spark.driver.memory": f"{heap_mb}m",
        "spark.driver.extraJavaOptions": " ".join(
            (_OPEN_BEANS, "-XX:+UseSerialGC", _CALM if rate_rps <= CALM_RPS else _BUSY, *flags)
        ),
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.local.dir": str(folder / "scratch"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    }
    builder = SparkSession.Builder()
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _make_known(spark)
    spark.sparkContext.setLogLevel("OFF")
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL + 1)  # what is raised is told by whoever catches it
    return spark


def java_strings(spark: SparkSession, values: Sequence[str]) -> Any:
    """Return an array of strings in the session's JVM."""
    gateway: Any = spark.sparkContext._gateway
    found = gateway.new_array(gateway.jvm.String, len(values))
    for number, value in enumerate(values):
        found[number] = value
    return found


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a class of Spark's JVM by its full name.

    `spark._jvm.some.name` asks the JVM at every dot whether that is a class, and each no is a search in all jars.
    """
    gateway: Any = spark.sparkContext._gateway
    return JavaClass(name, gateway._gateway_client)


def _make_known(spark: SparkSession) -> None:
    """Let PySpark find by itself, at once, the classes that nearly all of its functions ask for."""
    jvm: Any = spark._jvm
    for name in _KNOWN:
        setattr(jvm, name.rpartition(".")[2], java_class(spark, name))
    # Spark's exceptions are told apart by a dozen questions to this one
    jvm.py4j = SimpleNamespace(reflection=SimpleNamespace(TypeUtil=java_class(spark, "py4j.reflection.TypeUtil")))


def is_alive(spark: SparkSession) -> bool:
    """Return whether the JVM behind a session still runs."""
    gateway = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    return process is None or process.poll() is None
