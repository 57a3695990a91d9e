"""Which queries are measured?

Each takes the records of a Kafka source and gives key and value of a Kafka sink. The key names the newest
record that the row knows of, so that whoever reads it can tell how old that is. The first three are kinds
of lanes; the other three are those of the public comparison of Spark's real-time mode with Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from bench.lanes_load import GROUPS, HEAD

__all__ = ["KINDS", "Kind"]

SCHEMA = "group STRING, id LONG, t LONG, text STRING"
GROUP_BEGIN, GROUP_LENGTH = 11, 4  # where a record names its group


@dataclass(frozen=True, slots=True)
class Kind:
    """One query."""

    rows: Callable[[DataFrame], DataFrame]
    is_stateful: bool = False


def _parsed(records: DataFrame) -> DataFrame:
    row = F.from_json(F.col("value").cast("string"), SCHEMA)
    return records.select(row.alias("row")).select("row.*")


def _sent(rows: DataFrame, newest: str, *columns: str) -> DataFrame:
    return rows.select(F.col(newest).cast("string").alias("key"), F.to_json(F.struct(*columns)).alias("value"))


def _stateless(records: DataFrame) -> DataFrame:
    return _sent(_parsed(records), "id", "group", "id", "t")


def _python(records: DataFrame) -> DataFrame:
    @F.udf(LongType())
    def vowels(text: str) -> int:
        return sum(text.count(letter) for letter in "aeiou")

    return _sent(_parsed(records).withColumn("vowels", vowels("text")), "id", "group", "id", "t", "vowels")


def _windowed(records: DataFrame) -> DataFrame:
    timed = _parsed(records).withColumn("at", F.timestamp_micros((F.col("t") / 1000).cast("long")))
    counts = (
        timed.withWatermark("at", "10 seconds")
        .groupBy(F.window("at", "10 seconds"), "group")
        .agg(F.count("*").alias("records"), F.max("id").alias("latest"))
    )
    return _sent(counts, "latest", "window.start", "group", "records")


def _head() -> Column:
    return F.base64(F.substring("value", 1, HEAD))


def _encode(records: DataFrame) -> DataFrame:
    return records.select(F.col("key").cast("string").alias("key"), _head().alias("value"))


def _encode_count(records: DataFrame) -> DataFrame:
    heads = records.select(F.col("key").cast("string").cast("long").alias("id"), _head().alias("head"))
    counts = heads.groupBy("head").agg(F.count("*").alias("records"), F.max("id").alias("latest"))
    return _sent(counts, "latest", "head", "records")


def _table_join(records: DataFrame) -> DataFrame:
    number = F.col("id").cast("int")
    table = records.sparkSession.range(GROUPS).select(
        F.format_string("g%03d", number).alias("group"), F.format_string("place %d", number).alias("place")
    )
    group = F.substring(F.col("value").cast("string"), GROUP_BEGIN, GROUP_LENGTH)
    rows = records.select(F.col("key").cast("string").alias("id"), group.alias("group"))
    return _sent(rows.join(F.broadcast(table), "group"), "id", "group", "place")


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "stateless": Kind(_stateless),
        "python": Kind(_python),
        "windowed": Kind(_windowed, is_stateful=True),
        "encode": Kind(_encode),
        "encode-count": Kind(_encode_count, is_stateful=True),
        "table-join": Kind(_table_join),
    }
)
