"""Does a query give the same rows with its mark as without, and does each row know its record?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import ArrayType, IntegerType, StringType

from headwater.bind.carry import MARK, carry
from headwater.bind.sources import keeps_order
from tests.contract.streams import MARKS, Streams, streams

pytestmark = MARKS

COUNT = 14  # records of the input
Build = Callable[[DataFrame], DataFrame]
TABLE = [("a", 1), ("a", 2), ("b", 3)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    for desk in streams(tmp_path_factory.mktemp("carry")):
        desk.feed(desk.topic(), range(COUNT))
        desk.spark.createDataFrame(TABLE, "key string, worth int").createOrReplaceTempView("worths")
        yield desk


@pytest.fixture
def rows(desk: Streams) -> DataFrame:
    return desk.rows("topic.0")


def table(rows: DataFrame) -> DataFrame:
    return rows.sparkSession.table("worths")


def sql(text: str) -> Build:
    def build(rows: DataFrame) -> DataFrame:
        rows.createOrReplaceTempView("rows")
        return rows.sparkSession.sql(text)

    return build


def numbers(count: int) -> Any:
    return F.explode(F.sequence(F.lit(1), F.lit(count)))


def window(*durations: str) -> Build:
    def build(rows: DataFrame) -> DataFrame:
        grouped = rows.withWatermark("at", "2 seconds").groupBy(F.window("at", *durations), "key")
        return grouped.agg(F.count("*"), F.sum("id").alias("sum"))

    return build


# Without types of their own: Spark would take them for what kind of function it is.
shout = F.udf(lambda text: text.upper(), StringType())
twice = F.udf(lambda number: [number, number], ArrayType(IntegerType()))

STATELESS: dict[str, Build] = {
    "project": lambda rows: rows.select((F.col("id") + 1).alias("next"), "key"),
    "filter": lambda rows: rows.where("id % 2 = 0").drop("list"),
    "nothing": lambda rows: rows.where("id < 0"),
    "explode": lambda rows: rows.select("id", F.explode("list")),
    "explode_outer": lambda rows: rows.select("id", F.explode_outer("list")),
    "explode a map": lambda rows: rows.select(F.explode(F.create_map(F.lit("a"), "id", F.lit("b"), "id"))),
    "explode four deep": lambda rows: (
        rows.select("id", numbers(12).alias("a"))
        .select("*", numbers(2).alias("b"))
        .select("*", numbers(2).alias("c"))
        .select(numbers(2).alias("d"))
    ),
    "lateral view": sql("SELECT id, x FROM rows LATERAL VIEW explode(list) t AS x"),
    "posexplode": lambda rows: rows.select("id", F.posexplode("list")),
    "posexplode without place": lambda rows: rows.select(F.posexplode("list")).select("col"),
    "posexplode_outer": lambda rows: rows.select("id", F.posexplode_outer("list")).select("id", "col"),
    "inline": lambda rows: rows.select("id", F.inline(F.array(F.struct("key", F.lit(1)), F.struct("key", F.lit(2))))),
    "stack": lambda rows: rows.select("id", F.stack(F.lit(2), F.lit(1), F.lit(2))),
    "sliding window of each row": lambda rows: rows.select("id", F.window("at", "10 seconds", "5 seconds")),
    "union": lambda rows: rows.select("id").union(rows.where("id > 5").select("id")),
    "union of exploded and plain": lambda rows: rows.select("id", F.explode("list").alias("x")).union(
        rows.select("id", "id")
    ),
    "union of three": lambda rows: rows.union(rows).union(rows),
    "union by name": lambda rows: rows.select("id", "key").unionByName(rows.select("key", "id")),
    "python": lambda rows: rows.select(shout("key"), "id").where(shout("key") != "B"),
    "python that gives a list": lambda rows: rows.select(F.explode(twice("id"))),
    "nested": lambda rows: rows.select(
        F.struct("id", F.struct("key", "list").alias("inner")).alias("outer"),
        F.array(F.struct("id")).alias("array"),
        F.create_map("key", F.array("id")).alias("map"),
    ),
    "odd names": lambda rows: rows.select(
        F.col("id").alias("a.b"), F.col("id").alias("a b"), F.col("id").alias("a`b"), F.col("key").alias("count(1)")
    ),
    "names twice": lambda rows: rows.select(F.col("id").alias("a"), F.col("key").alias("A"), F.col("key").alias("a")),
    "names twice, exploded": lambda rows: rows.select(
        F.col("id").alias("a"), F.col("key").alias("A"), F.explode("list").alias("a")
    ),
    "sql": sql("SELECT key, id * 2 AS double FROM (SELECT * FROM rows WHERE id > 3) WHERE key <> 'b'"),
    "sql with": sql("WITH few AS (SELECT id FROM rows WHERE id > 3) SELECT id + 1 AS next FROM few"),
    "sql with, used twice": sql("WITH few AS (SELECT id FROM rows) SELECT * FROM few UNION ALL SELECT * FROM few"),
    "observed": lambda rows: rows.observe("seen", F.count(F.lit(1)).alias("n")),
    "repartitioned": lambda rows: rows.repartition(2, "key"),
}
JOINS: dict[str, Build] = {
    "inner join": lambda rows: rows.join(table(rows), "key"),
    "left join": lambda rows: rows.join(table(rows), "key", "left"),
    "right join": lambda rows: table(rows).join(rows, "key", "right"),
    "semi join": lambda rows: rows.join(table(rows), "key", "left_semi"),
    "join with odd names": lambda rows: rows.select(F.col("id").alias("worth"), F.col("key").alias("a`b c.d")).join(
        table(rows), F.col("`a``b c.d`") == F.col("key")
    ),
    "join with maps and variants": lambda rows: (
        rows.withColumn("map", F.create_map("key", "id"))
        .withColumn("variant", F.array(F.parse_json(F.lit('{"a": [1]}'))))
        .join(table(rows), "key")
    ),
}
STATEFUL: dict[str, tuple[str, Build]] = {
    "tumbling window": ("append", window("5 seconds")),
    "sliding window": ("append", window("6 seconds", "2 seconds")),
    "sliding window, updates": ("update", window("6 seconds", "2 seconds")),
    "session window": (
        "append",
        lambda rows: rows.withWatermark("at", "1 second").groupBy(F.session_window("at", "1 second"), "key").count(),
    ),
    "global aggregate": ("update", lambda rows: rows.agg(F.count("*"), F.max("at"))),
    "group by expression": ("update", lambda rows: rows.groupBy((F.col("id") % 4).alias("rest")).agg(F.avg("id"))),
    "group by a map": ("update", lambda rows: rows.groupBy(F.create_map("key", F.lit(1)).alias("map")).count()),
    "group, then explode": (
        "update",
        lambda rows: rows.groupBy("key").agg(F.collect_list("id").alias("ids")).select("key", F.explode("ids")),
    ),
    "join, then group": ("update", lambda rows: rows.join(table(rows), "key").groupBy("worth").count()),
    "distinct": ("append", lambda rows: rows.select("key").distinct()),
    "select distinct": ("update", sql("SELECT DISTINCT key FROM rows")),
    "dropDuplicates": ("append", lambda rows: rows.select("key", "list").dropDuplicates()),
    "dropDuplicates by column": ("append", lambda rows: rows.dropDuplicates(["key"])),
    "dropDuplicatesWithinWatermark": (
        "append",
        lambda rows: rows.withWatermark("at", "9 seconds").dropDuplicatesWithinWatermark(["key"]),
    ),
    "dropDuplicatesWithinWatermark of all": (
        "append",
        lambda rows: (
            rows.select("key", F.date_trunc("minute", "at").alias("at"))
            .withWatermark("at", "9 seconds")
            .dropDuplicatesWithinWatermark()
        ),
    ),
    "two aggregates": ("update", lambda rows: rows.groupBy("key").count().union(rows.groupBy("key").count())),
    "an aggregate and a deduplication": (
        "update",
        lambda rows: rows.groupBy("key").count().union(rows.dropDuplicates(["key"]).select("key", F.lit(1))),
    ),
}
MODES = dict.fromkeys((*STATELESS, *JOINS), "append") | {name: mode for name, (mode, _) in STATEFUL.items()}
BUILDS = STATELESS | JOINS | {name: build for name, (_, build) in STATEFUL.items()}
TOGETHER = 6  # queries without state that run as one: starting each by itself takes longer
Found = tuple[list[str], list[Row]]  # the rows of a query without marks, and what it gives with them


def marked(frame: DataFrame) -> DataFrame:
    found = carry(frame, "pi")
    assert found is not None
    return found


def identity(row: Row) -> tuple[Any, ...]:
    mark = row[MARK]
    return mark["topic"], mark["partition"], mark["offset"], mark["index"]


def told(name: str, frame: DataFrame, mark: Column) -> DataFrame:
    """Return the rows of any query with the same columns: what is tried, the row as text, the mark."""
    names = [MARK if each == MARK else f"_{i}" for i, each in enumerate(frame.columns)]
    cells = F.struct(*(each for each in names if each != MARK))
    return frame.toDF(*names).select(F.lit(name).alias("name"), F.to_json(cells).alias("row"), mark.alias(MARK))


def tried(desk: Streams, names: Sequence[str]) -> dict[str, Found]:
    """Run queries with and without their marks, all as one."""
    rows = desk.rows("topic.0")
    frames = []
    for name in names:
        plain = BUILDS[name](rows)
        carried = marked(plain)
        assert carried.columns == [*plain.columns, MARK], name
        kinds = [[field.dataType for field in frame.schema][: len(plain.columns)] for frame in (plain, carried)]
        assert kinds[0] == kinds[1], name
        frames.append(told(name, carried, F.col(MARK)))
        frames.append(told(name, plain, F.lit(None).cast(carried.schema[MARK].dataType)))
    found: dict[str, Found] = {name: ([], []) for name in names}
    for row in desk.run(reduce(DataFrame.union, frames), MODES[names[0]]):
        wanted, given = found[row["name"]]
        if row[MARK] is None:
            wanted.append(row["row"])
        else:
            given.append(row)
    return found


@pytest.fixture(scope="module")
def results(desk: Streams) -> dict[str, Found]:
    """What the queries without state give."""
    found: dict[str, Found] = {}
    names = [*STATELESS, *JOINS]
    for group in (names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)):
        try:
            found |= tried(desk, group)
        except PySparkException:  # find out which of them it is
            for name in group:
                with contextlib.suppress(PySparkException):
                    found |= tried(desk, [name])
    return found


def assert_same(found: Found) -> None:
    wanted, given = found
    assert sorted(row["row"] for row in given) == sorted(wanted)
    assert len({identity(row) for row in given}) == len(given)


@pytest.mark.parametrize("name", [*STATELESS, *JOINS])
def test_the_rows_are_the_same_and_no_two_share_a_mark(results: dict[str, Found], name: str) -> None:
    assert name in results, "Spark refuses it"
    assert_same(results[name])
    assert bool(results[name][0]) is (name != "nothing")


@pytest.mark.parametrize("name", STATEFUL)
def test_the_same_holds_with_state(desk: Streams, name: str) -> None:
    found = tried(desk, [name])[name]
    assert_same(found)
    assert found[0]


def test_a_mark_says_where_and_when_its_record_was_born(desk: Streams, rows: DataFrame) -> None:
    for row in desk.run(marked(rows.where("id = 9").select("id"))):
        assert row[MARK].asDict() == {
            "created": desk.begin_ms + 9,
            "origin": "pi/topic.0/0/9",
            "topic": "topic.0",
            "partition": 0,
            "offset": 9,
            "arrived": desk.begin_ms + 9,
            "index": 0,
        }


def test_a_row_knows_its_own_record_whatever_was_done_to_it(desk: Streams, rows: DataFrame) -> None:
    frame = rows.select("id", F.explode("list")).where("id > 3").join(table(rows), F.lit(True))
    for row in desk.run(marked(frame)):
        assert row[MARK]["offset"] == row["id"]


def test_an_aggregate_has_the_mark_of_the_last_record_that_it_took_in(desk: Streams) -> None:
    """Also when its state came from a batch before."""
    topic = desk.topic()
    frame = marked(desk.rows(topic).groupBy("key").agg(F.max("id").alias("last")))
    for ids in (range(5), range(5, 8), range(8, 9)):
        desk.feed(topic, ids)
        found = desk.collect(desk.begin(frame, "complete", checkpoint="aggregate"))
        assert len(found) == 3
        assert {row["last"] for row in found} == {row[MARK]["offset"] for row in found}


def test_an_aggregate_of_nothing_has_no_mark(desk: Streams, rows: DataFrame) -> None:
    (row,) = desk.run(marked(rows.where("id < 0").agg(F.count("*").alias("n"))), "update")
    assert (row["n"], row[MARK]) == (0, None)


def test_only_wanted_records_are_taken(desk: Streams, rows: DataFrame) -> None:
    wanted = ~((F.col("topic") == "topic.0") & F.col("offset").isin(3, 5))
    found = carry(rows.groupBy("key").agg(F.collect_list("id").alias("ids")), "pi", wanted)
    assert found is not None
    taken = sorted(each for row in desk.run(found, "update") for each in row["ids"])
    assert taken == [each for each in range(COUNT) if each not in (3, 5)]


def same(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    yield from frames


def test_what_takes_whole_batches_loses_the_mark_and_says_so(desk: Streams, rows: DataFrame) -> None:
    with_time = rows.withWatermark("at", "1 second")
    lost = {
        "mapInPandas": rows.mapInPandas(same, rows.schema),
        "mapInArrow": rows.mapInArrow(lambda batches: batches, rows.schema),
        "pandas, then more": rows.mapInPandas(same, rows.schema).where("id > 3").select("id"),
        "a branch with pandas": rows.union(rows.mapInPandas(same, rows.schema)),
        "applyInPandasWithState": rows.groupBy("key").applyInPandasWithState(
            lambda key, frames, state: frames, "key string", "n int", "update", "NoTimeout"
        ),
        "stream-stream join": with_time.join(with_time.withColumnRenamed("id", "other"), ["key", "at"]),
        "another source": desk.spark.readStream.format("rate").load(),
    }
    assert [name for name, frame in lost.items() if carry(frame, "pi") is not None] == []


def test_a_pandas_function_of_columns_keeps_the_mark(desk: Streams, rows: DataFrame) -> None:
    made: Any = pandas_udf  # its types know only functions with hints
    double = made(lambda ids: ids * 2, "int")
    found = desk.run(marked(rows.select(double("id").alias("double"))))
    assert sorted(row["double"] for row in found) == [2 * each for each in range(COUNT)]
    assert all(row["double"] == 2 * row[MARK]["offset"] for row in found)


def test_order_is_kept_only_where_one_reading_hands_rows_straight_on(desk: Streams, rows: DataFrame) -> None:
    kept = {name: keeps_order(build(rows)) for name, build in {**STATELESS, **JOINS}.items()}
    mixed = {"union", "union of exploded and plain", "union of three", "union by name", "sql with, used twice"}
    assert {name for name, is_kept in kept.items() if not is_kept} == {*mixed, "repartitioned", *JOINS}
    other = desk.rows(desk.topic())
    assert keeps_order(rows.union(other))
