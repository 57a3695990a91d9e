"""What does a project read from outside, and what if it read something else?

A source's function loads a stream: a topic, a folder, a clock. `intercepted` shows what it loads and can give it
other rows in its place, without a change to the project; `listen` keeps what comes in for a while.

    HW4701   nothing answers where a source reads
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from headwater.errors import BindError

__all__ = ["Heard", "Relation", "intercepted", "listen"]

FIRST_S = 60.0  # within this, a stream has looked for the first time
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream that a project's code loads from outside."""

    frame: DataFrame
    format: str
    options: Mapping[str, str]  # keys in small letters


@dataclass(frozen=True, slots=True)
class Heard:
    """What came in from outside."""

    folder: Path  # of Parquet files
    rate_rps: float | None  # rows a second; None: too short to tell


@contextlib.contextmanager
def intercepted(chosen: Callable[[Relation], DataFrame]) -> Iterator[None]:
    """Give code that loads a stream from outside what `chosen` makes of it, for a while."""
    real: Any = DataStreamReader.load
    readers: Any = DataStreamReader

    def load(reader: DataStreamReader, *arguments: Any, **named: Any) -> DataFrame:
        frame: DataFrame = real(reader, *arguments, **named)
        leaf = frame._jdf.queryExecution().analyzed().collectLeaves().head()
        is_new = leaf.nodeName() == "StreamingRelationV2"
        options = dict(leaf.extraOptions().asCaseSensitiveMap()) if is_new else {}
        given = {str(key).lower(): str(value) for key, value in options.items()}
        return chosen(Relation(frame, str(leaf.sourceName()), given))

    readers.load = load
    try:
        yield
    finally:
        readers.load = real


def listen(frames: Mapping[str, DataFrame], folder: Path, wait: Callable[[], None]) -> Mapping[str, Heard]:
    """Keep what comes in from outside while `wait` waits, and say how much came a second.

    Args:
        frames: Streams, by any name.
        folder: Where to keep it; the rows of each stream get a folder of its name.
        wait: Returns when it has been long enough.

    Raises:
        BindError: HW4701, nothing answers.
        PySparkException: a stream failed.
    """
    running = {}
    try:
        for name, frame in frames.items():
            places = {"path": str(folder / name), "checkpointLocation": str(folder / "checkpoints" / name)}
            writer = frame.writeStream.format("parquet").options(**places)
            running[name] = writer.trigger(processingTime="1 second").start()
        _wait_for_first(running.values())
        wait()
    finally:
        for each in running.values():
            each.stop()
    for name, each in running.items():
        error = each.exception()
        if error is not None:
            raise error
        shutil.rmtree(folder / name / "_spark_metadata", ignore_errors=True)
    return {name: Heard(folder / name, _rate_rps(each)) for name, each in running.items()}


def _wait_for_first(running: Collection[StreamingQuery]) -> None:
    end_s = time.monotonic() + FIRST_S
    while any(each.isActive and each.lastProgress is None for each in running):
        if time.monotonic() > end_s:
            raise BindError(
                f"HW4701 a source has not looked at its stream within {FIRST_S:g} s. Check that its broker answers; "
                "'headwater.broker' under 'configuration' in spark-pipeline.yml says where it is, or --broker."
            )
        time.sleep(LOOK_S)


def _rate_rps(running: StreamingQuery) -> float | None:
    """Return the rows a second after the first batch, which takes what had come before; None: nobody can tell."""
    batches = [(datetime.fromisoformat(each.timestamp), each.numInputRows) for each in running.recentProgress]
    if len(batches) < 2:
        return None
    passed_s = (batches[-1][0] - batches[0][0]).total_seconds()
    return sum(rows for _, rows in batches[1:]) / passed_s if passed_s > 0 else None
