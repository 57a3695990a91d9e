"""What has a fragment already written?

After a crash a fragment starts again from its last commit and makes rows anew that its output topic
already holds. The records in that topic say in `hw-from` of which input record they were made, so the
tail of the topic, from the last commit on, tells what to leave out. The rows are dropped after they were
made, because an aggregate needs every record to have its state right; where there is no state, the records
themselves are left unread (`unread`).

Two ways, by how the rows come:
- **in order** of their input (no state, or the real-time lane, and one partition to write to): what was
  written is everything up to some record of each input partition, and of that record some rows;
- **in any order** (groups of a micro-batch): what was written is a set.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.bind.carry import MARK
from headwater.bind.headers import From

__all__ = ["SLACK_MS", "Written", "gather", "last_commit_ms", "skip", "unread"]

SLACK_MS = 2_000  # a commit's file may be younger than records of the next batch
Place = tuple[str, int]  # topic and partition of the fragment's input


@dataclass(frozen=True, slots=True)
class Written:
    """Rows that the output holds since the last commit."""

    reached: dict[Place, int] = field(default_factory=dict)  # the last input record with a row there
    rows: dict[Place, dict[int, frozenset[int]]] = field(default_factory=dict)  # which rows, by record

    @property
    def count(self) -> int:
        """Return how many rows."""
        return sum(len(indexes) for records in self.rows.values() for indexes in records.values())


def last_commit_ms(checkpoint: Path) -> int:
    """Return when the newest batch was committed, less some slack; 0 when none was."""
    times = [one.stat().st_mtime for one in (checkpoint / "commits").glob("[0-9]*") if one.name.isdigit()]
    return max(0, int(max(times) * 1000) - SLACK_MS) if times else 0


def gather(marks: Iterable[From]) -> Written:
    """Return what the records of the tail say together."""
    rows: dict[Place, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for mark in marks:
        rows[mark.topic, mark.partition][mark.offset].add(mark.index)
    return Written(
        {place: max(records) for place, records in rows.items()},
        {place: {offset: frozenset(indexes) for offset, indexes in records.items()} for place, records in rows.items()},
    )


def skip(marked: DataFrame, written: Written, in_order: bool) -> DataFrame:
    """Return the rows that are not yet written."""
    if not written.rows:
        return marked
    return _skip_ordered(marked, written) if in_order else _skip_set(marked, written)


def unread(written: Written, fans_out: bool) -> Column | None:
    """Return which records of the input still have rows to give, where there is no state and rows come in order.

    Such records need not even be decoded again. None: all of them.
    """
    done = F.lit(False)
    for (topic, partition), offset in written.reached.items():
        last = offset - 1 if fans_out else offset  # of the last one some rows may be missing
        at = (F.col("topic") == F.lit(topic)) & (F.col("partition") == F.lit(partition))
        done = done | (at & (F.col("offset") <= F.lit(last)))
    return ~done if written.reached else None


def _mark(name: str) -> Column:
    return F.col(f"{MARK}.{name}")


def _skip_ordered(marked: DataFrame, written: Written) -> DataFrame:
    done = F.lit(False)
    for place, offset in written.reached.items():
        topic, partition = place
        same = _mark("offset") == F.lit(offset)
        indexes = [F.lit(index).cast("long") for index in sorted(written.rows[place][offset])]
        reached = (_mark("offset") < F.lit(offset)) | (same & _mark("index").isin(*indexes))
        done = done | ((_mark("topic") == F.lit(topic)) & (_mark("partition") == F.lit(partition)) & reached)
    return marked.where(~F.coalesce(done, F.lit(False)))


def _skip_set(marked: DataFrame, written: Written) -> DataFrame:
    spark = marked.sparkSession
    rows = [
        (topic, partition, offset, index)
        for (topic, partition), records in written.rows.items()
        for offset, indexes in records.items()
        for index in indexes
    ]
    names = ("topic", "partition", "offset", "index")
    known = spark.createDataFrame(rows, "topic string, partition int, offset long, index long")
    known = known.select(*(F.col(name).alias(f"__written_{name}") for name in names))
    is_known = F.lit(True)
    for name in names:
        is_known = is_known & (_mark(name) == F.col(f"__written_{name}"))
    return marked.join(F.broadcast(known), is_known, "left_anti")
