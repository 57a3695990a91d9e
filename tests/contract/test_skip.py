"""After a crash, do exactly the rows come that are missing?

A crash leaves the beginning of what would have been written. So each query runs to its end once, and then again
against a topic that holds only the first of those records.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from headwater.author.traits import held
from headwater.bind.carry import MARK, carry
from headwater.bind.headers import FROM, From, headers_of, parse_from
from headwater.bind.query import Ground, Query
from headwater.bind.replay import Written, gather, skip
from headwater.bind.topics import client_settings, end_offsets
from headwater.model.project import Definition, LaneName
from headwater.plan.deploy import FAN_OUT, Part, Step
from tests.contract.streams import MARKS, Streams, streams

pytestmark = MARKS

COUNT = 12  # records of each of the input's two partitions
PATIENCE_S = 120.0
Build = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    for desk in streams(tmp_path_factory.mktemp("skip")):
        topic = desk.topic(partitions=2)
        desk.feed(topic, range(COUNT))
        desk.feed(topic, range(COUNT, 2 * COUNT), partition=1)
        yield desk


def window(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 second").groupBy(F.window("at", "6 seconds", "3 seconds"), "key").count()


def joined(rows: DataFrame) -> DataFrame:
    """A join that sorts both sides, as one with a large table does."""
    table = rows.sparkSession.createDataFrame([("a", 1), ("b", 2), ("b", 3)], "key string, worth int")
    return rows.join(table.hint("merge"), "key")


def exploded(rows: DataFrame) -> DataFrame:
    return rows.select("id", F.explode(F.array_repeat("id", 3)).alias("x"))


KINDS: dict[str, Build] = {
    "stateless": lambda rows: rows.where("id % 4 > 0").select("id"),
    "exploded": exploded,
    "windows of each row": lambda rows: rows.select("id", F.window("at", "6 seconds", "2 seconds")),
    "read twice": lambda rows: rows.select("id", F.lit(1)).union(rows.select("id", F.lit(2))),
    "joined": joined,
    "repartitioned": lambda rows: rows.repartition(3, "id").select("id", "key"),
    "windowed": window,
    "grouped": lambda rows: rows.groupBy("key").agg(F.max("id")),
}
STATEFUL = {"windowed": "append", "grouped": "update"}


def marked(frame: DataFrame) -> DataFrame:
    found = carry(frame, "pi")
    assert found is not None
    return found


def origin(row: Row) -> From:
    mark = row[MARK]
    return From(mark["topic"], mark["partition"], mark["offset"], mark["index"], mark["arrived"])


@pytest.mark.parametrize("name", ["stateless", "exploded"])
def test_in_order_a_beginning_of_each_partition_is_left_out(desk: Streams, name: str) -> None:
    frame = marked(KINDS[name](desk.rows("topic.0")))
    whole = desk.run(frame)
    first = [row for row in whole if row[MARK]["partition"] == 0]
    second = [row for row in whole if row[MARK]["partition"] == 1]
    for done in (first[:4] + second[:2], first, first[:1]):
        found = desk.run(skip(frame, gather(map(origin, done)), in_order=True))
        assert sorted(map(origin, found), key=repr) == sorted(
            (origin(row) for row in whole if row not in done), key=repr
        )


@pytest.mark.parametrize("name", ["exploded", "windowed"])
def test_in_any_order_any_rows_are_left_out(desk: Streams, name: str) -> None:
    frame, mode = marked(KINDS[name](desk.rows("topic.0"))), STATEFUL.get(name, "append")
    whole = desk.run(frame, mode)
    done = whole[1::2]
    found = desk.run(skip(frame, gather(map(origin, done)), in_order=False), mode)
    assert len(done) > 3
    assert sorted(map(repr, found)) == sorted(repr(row) for row in whole if row not in done)


def test_where_nothing_was_written_nothing_is_left_out(desk: Streams) -> None:
    frame = marked(desk.rows("topic.0"))
    for in_order in (True, False):
        assert skip(frame, Written(), in_order) is frame


def test_rows_of_other_topics_and_partitions_are_not_taken_for_written(desk: Streams) -> None:
    frame = marked(desk.rows("topic.0").where("id < 3").select("id"))
    others = [From("topic", 0, 99, 0, 0), From("topic.0", 1, 99, 0, 0), From("topic.00", 0, 99, 0, 0)]
    for in_order in (True, False):
        found = desk.run(skip(frame, gather(others), in_order))
        assert sorted(row["id"] for row in found) == [0, 1, 2]


def query(desk: Streams, name: str, topic: str, lane: LaneName, folder: Path) -> Query:
    """A fragment that reads the input and writes to a topic of the user's."""
    options = (("kafka.bootstrap.servers", desk.address), ("topic", topic))
    definition = Definition(
        "out", "sink", ("in",), '{"type": "struct", "fields": []}', "x.py", 1, format="kafka", options=options
    )
    part = Part(
        id=f"out-{topic}",
        site="pi",
        steps=(Step("out", "out", ()),),
        inputs=(),
        output="sink",
        topic=None,
        broker="pi",
        quarantine="q",
        lane=lane,
        mode="update" if STATEFUL.get(name) == "update" or lane == "real-time" else "append",
        is_stateful=name in STATEFUL,
        fans_out=not FAN_OUT.isdisjoint(held(KINDS[name](desk.rows("topic.0")), ()).traits),
        because="",
        on_error="stop",
        delivery="exactly-once",
        in_rps=1.0,
    )

    def build(_: Any) -> DataFrame:
        rows = KINDS[name](desk.rows("topic.0"))
        return rows.select(F.to_json(F.struct("*")).alias("value"))

    return Query(part, Ground("pi", folder, {"pi": desk.address}), definition, build)


def finished(desk: Streams, made: Query, topic: str, count: int | None = None) -> list[Message]:
    """Let a query write all it has to, and return what the topic then holds."""
    made.start(desk.spark)
    running = made.running
    assert running is not None
    try:
        if made.lane == "micro-batch":
            running.processAllAvailable()
        else:  # it says nothing for a minute
            end_s = time.monotonic() + PATIENCE_S
            while end_offsets(desk.address, [topic])[topic, 0] < (count or 1) and time.monotonic() < end_s:
                time.sleep(0.1)
            time.sleep(2.0)  # for what should not come
        assert running.exception() is None
    finally:
        made.stop()
    return desk.records(topic)


def content(records: list[Message]) -> list[tuple[bytes | None, From]]:
    return sorted(((each.value(), parse_from(headers_of(each)[FROM])) for each in records), key=repr)


def copy(desk: Streams, records: list[Message], topic: str) -> None:
    producer = Producer(client_settings(desk.address))
    for each in records:
        producer.produce(topic, each.value(), headers=list(headers_of(each).items()))
    assert producer.flush(30) == 0


def check(desk: Streams, name: str, lane: LaneName, folder: Path, count: int | None = None) -> None:
    topic = desk.topic()
    whole = finished(desk, query(desk, name, topic, lane, folder), topic, count)
    assert len(whole) > 5
    then = desk.topic()
    done = whole[: len(whole) // 2 + 1]  # of some record, only the first of its rows
    copy(desk, done, then)
    again = query(desk, name, then, lane, folder)
    found = finished(desk, again, then, len(whole))
    assert again.lane == lane
    assert again.left_out == len(done)
    if lane == "real-time" and name in STATEFUL:  # what an update says follows from which partition came first
        assert Counter(each for _, each in content(found)) == Counter(each for _, each in content(whole))
    else:
        assert content(found) == content(whole)


@pytest.mark.parametrize("name", [each for each in KINDS if each != "grouped"])
def test_a_query_that_starts_again_writes_exactly_what_is_missing(desk: Streams, name: str, tmp_path: Path) -> None:
    check(desk, name, "micro-batch", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("exploded", 6 * COUNT), ("grouped", 2 * COUNT)])
def test_the_same_holds_in_the_real_time_lane(desk: Streams, name: str, count: int, tmp_path: Path) -> None:
    check(desk, name, "real-time", tmp_path, count)


def test_a_stream_that_is_read_twice_goes_by_micro_batch_and_the_user_is_told(desk: Streams, tmp_path: Path) -> None:
    """Spark refuses it in the real-time lane, but says so only after it has started."""
    topic = desk.topic()
    made = query(desk, "read twice", topic, "real-time", tmp_path)
    assert len(finished(desk, made, topic)) == 4 * COUNT
    assert made.lane == "micro-batch"
    assert made.notes == ["Spark refuses the real-time lane: it reads one stream twice"]


def test_what_spark_refuses_only_when_it_runs_goes_by_micro_batch_from_the_next_start_on(
    desk: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.bind.query.reads_twice", lambda _: False)
    topic = desk.topic()
    made = query(desk, "read twice", topic, "real-time", tmp_path)
    made.start(desk.spark)
    assert made.running is not None
    with pytest.raises(StreamingQueryException) as caught:
        made.running.awaitTermination(60)
    assert made.refuses(caught.value)
    assert len(finished(desk, made, topic)) == 4 * COUNT
    assert made.lane == "micro-batch"
    assert "refuses the real-time lane" in made.notes[0]


def number(file: Path) -> int:
    return int(file.name)


def test_a_batch_that_is_made_again_is_not_written_again(desk: Streams, tmp_path: Path) -> None:
    """The output holds all of a batch, and only the mark that it was finished is missing."""
    topic = desk.topic()
    first = query(desk, "windowed", topic, "micro-batch", tmp_path)
    whole = finished(desk, first, topic)
    last = max((each for each in (first.checkpoint / "commits").iterdir() if each.name.isdigit()), key=number)
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    found = finished(desk, query(desk, "windowed", topic, "micro-batch", tmp_path), topic)
    assert content(found) == content(whole)
