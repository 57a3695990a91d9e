"""Does a row that crosses a channel come out as it went in, and does the record say what it should?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.bind.carry import MARK, carry
from headwater.bind.channel import encode, schema_id, with_headers
from headwater.bind.headers import CREATED, FROM, ORIGIN, SCHEMA, From, headers_of, parse_from
from headwater.bind.sources import FETCH, FETCH_FROM, READER, channel_rows, nodes, records_of
from headwater.bind.topics import client_settings
from headwater.errors import SpecError
from tests.contract.streams import MARKS, Streams, as_text, streams
from tests.unit.test_deploy import parts, project
from tests.unit.test_lanes import one, sink

pytestmark = MARKS

DELAY = "spark.watermarkDelayMs"
VALUES = """
SELECT
  CAST(-128 AS BYTE) byte, CAST(-32768 AS SHORT) short, -2147483648 int, 9223372036854775807 long,
  FLOAT('NaN') float, DOUBLE('-Infinity') double, true boolean,
  CAST(1.50 AS DECIMAL(5,2)) small, CAST(-99999999999999999999999999.9999999999 AS DECIMAL(38,10)) large,
  DATE'0001-01-01' early, DATE'9999-12-31' late,
  TIMESTAMP'1582-10-04 23:59:59.123456' stamp, TIMESTAMP_NTZ'9999-12-31 23:59:59.999999' local,
  X'00ff' binary, X'' no_bytes, 'ü \\u0000 \\uD83D\\uDE00' text, '' no_text, 'A' COLLATE UTF8_LCASE collated,
  INTERVAL '1-2' YEAR TO MONTH months, INTERVAL '1 02:03:04.5' DAY TO SECOND seconds, NULL void,
  array(1, NULL, 3) list, array(CAST(7 AS BYTE)) full, CAST(array() AS ARRAY<STRING>) no_list,
  array(array('a'), NULL, array()) lists, map('k', CAST(1 AS SHORT), 'l', NULL) map,
  named_struct('a', 1, 'b', named_struct('a', CAST(NULL AS STRING), 'b', array(named_struct('c', 2.5D)))) struct,
  array(CAST(NULL AS STRUCT<q: INT>)) structs, map('m', map('n', array(X'01'))) maps
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Streams]:
    for desk in streams(tmp_path_factory.mktemp("channel")):
        desk.feed(desk.topic(), range(6))
        yield desk


def crossed(desk: Streams, frame: DataFrame, schema_json: str | None = None) -> DataFrame:
    """Write all rows of a stream to a channel, and return what reads it."""
    topic, schema = desk.topic(), schema_json or frame.schema.json()
    desk.write(encode(frame, schema), topic)
    return channel_rows(desk.spark, desk.address, topic, schema)


def text(frame: DataFrame) -> DataFrame:
    """Return every cell as text: not every type has a value in Python."""
    numbered = frame.toDF(*(f"_{i}" for i in range(len(frame.columns))))
    return numbered.select(*(F.col(name).cast("string") for name in numbered.columns))


def test_what_is_fetched_ahead_is_bounded_at_the_sites_own_broker_and_at_no_other(desk: Streams) -> None:
    def fetched(address: str) -> tuple[str | None, str | None]:
        frame = records_of(desk.spark, address, desk.topic())
        options = next(iter(nodes(frame._jdf.queryExecution().analyzed()))).extraOptions()
        return options.get("kafka.fetch.max.bytes"), options.get("kafka.max.partition.fetch.bytes")

    desk.spark.conf.set(FETCH, "70000")
    desk.spark.conf.set(FETCH_FROM, desk.address)
    topic = desk.topic()
    desk.feed(topic, range(50))
    try:
        assert fetched(desk.address) == ("70000", "70000")
        assert fetched(desk.address.replace("127.0.0.1", "localhost")) == (
            None,
            READER["kafka.max.partition.fetch.bytes"],
        )
        assert len(desk.run(records_of(desk.spark, desk.address, topic))) == 50
    finally:
        desk.spark.conf.unset(FETCH)
        desk.spark.conf.unset(FETCH_FROM)
    assert fetched(desk.address) == (None, READER["kafka.max.partition.fetch.bytes"])


def test_every_type_comes_out_as_it_went_in_and_so_do_nulls(desk: Streams) -> None:
    full = desk.spark.sql(VALUES)
    empty = full.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in full.schema))
    sent = full.union(empty)
    back = crossed(desk, desk.stream_of(sent.drop("void")).withColumn("void", F.lit(None)))
    assert back.dtypes == [*sent.drop("void").dtypes, ("void", "void")]
    wanted = text(sent.select(*sent.drop("void").columns, "void")).collect()
    assert as_text(desk.run(text(back))) == as_text(wanted)


def test_columns_may_have_any_name_and_the_same_one_twice(desk: Streams) -> None:
    inner = F.struct(F.col("id").alias("p q"), F.array(F.struct(F.col("key").alias("r.s"))).alias("t"))
    names = ["count(1)", "a b", "a.b", "a`b", "ü", "1st", "same", "SAME", "same", ""]
    rows = desk.rows("topic.0")
    sent = rows.select(*((F.col("id") * 10 + i).alias(name) for i, name in enumerate(names)), inner.alias("in.ner"))
    back = crossed(desk, sent)
    assert back.columns == [*names, "in.ner"]
    assert back.dtypes == sent.dtypes
    found = desk.run(back)
    assert as_text(found) == as_text(desk.run(sent))
    assert sorted(row[6] for row in found) == [each * 10 + 6 for each in range(6)]
    assert "count(1)" in encode(sent, sent.schema.json())._jdf.queryExecution().analyzed().toString()


def test_event_time_is_declared_again(desk: Streams) -> None:
    timed = desk.rows("topic.0").withWatermark("at", "1500 milliseconds").withColumn("other", F.col("at"))
    sent = timed.select("id", F.col("at").alias("when it was"), F.col("other").cast("date"))
    back = crossed(desk, sent)
    assert [field.metadata.get(DELAY) for field in back.schema] == [None, 1500, None]
    windows = back.groupBy(F.window("`when it was`", "2 seconds")).agg(F.count("*").alias("n"))
    closed = {row["window"]["start"].second: row["n"] for row in desk.run(windows)}
    assert closed == {0: 2}, "the last record is at 5 s, so all before 3.5 s is closed"


def test_a_window_stays_a_window(desk: Streams) -> None:
    timed = desk.rows("topic.0").withWatermark("at", "0 seconds")
    sent = timed.groupBy(F.window("at", "1 second")).agg(F.count("*").alias("count(1)"))
    back = crossed(desk, sent)
    assert back.schema["window"].metadata[DELAY] == 0
    again = back.groupBy(F.window(F.window_time("window"), "2 seconds")).agg(F.sum("count(1)").alias("n"))
    assert [row["n"] for row in desk.run(again)] == [2, 2]
    assert len(desk.run(back.groupBy("window").agg(F.sum("count(1)")))) == 4, "all but the last"


def test_a_record_says_where_its_row_comes_from_and_the_next_row_remembers(desk: Streams) -> None:
    frame = desk.rows("topic.0").where("id >= 2").select("id", F.explode("list"))
    marked = carry(frame, "pi")
    assert marked is not None
    topic, schema = desk.topic(), frame.schema.json()
    desk.write(encode(marked, schema), topic)
    headers = [headers_of(record) for record in desk.records(topic)]
    assert [parse_from(each[FROM]) for each in headers] == [
        From("topic.0", 0, offset, index, desk.begin_ms + offset)
        for offset, index in ((2, 1), (2, 2), (4, 1), (5, 1), (5, 2))
    ]
    assert headers[2] == {
        CREATED: str(desk.begin_ms + 4).encode(),
        ORIGIN: b"pi/topic.0/0/4",
        FROM: f"topic.0/0/4/1/{desk.begin_ms + 4}".encode(),
        SCHEMA: schema_id(schema).encode(),
    }
    then = carry(channel_rows(desk.spark, desk.address, topic, schema).where("id = 4"), "dc")
    assert then is not None
    (row,) = desk.run(then)
    mark = row[MARK]
    assert (mark["created"], mark["origin"]) == (desk.begin_ms + 4, "pi/topic.0/0/4"), "as it was born"
    assert (mark["topic"], mark["partition"], mark["offset"], mark["index"]) == (topic, 0, 2, 0), "of the channel"
    assert mark["arrived"] > mark["created"]


def test_headers_of_the_users_own_stay_beside_ours(desk: Streams) -> None:
    own = F.array(F.struct(F.lit("mine").alias("key"), F.lit(b"1").alias("value")))
    frame = desk.rows("topic.0").select(F.col("key").alias("value"), F.when(F.col("id") < 3, own).alias("headers"))
    marked = carry(frame, "pi")
    assert marked is not None
    topic = desk.topic()
    desk.write(with_headers(marked), topic)
    found = [set(headers_of(record)) for record in desk.records(topic)]
    assert found == [{"mine", CREATED, ORIGIN, FROM}] * 3 + [{CREATED, ORIGIN, FROM}] * 3
    assert with_headers(frame).columns == frame.columns


def test_a_row_that_was_made_of_no_record_claims_none(desk: Streams) -> None:
    """An aggregate speaks even when all its records were filtered out; what it says of its origin must be readable."""
    marked = carry(desk.rows("topic.0").where("id < 0").agg(F.count("*").cast("string").alias("value")), "pi")
    assert marked is not None
    topic = desk.topic()
    desk.write(with_headers(marked), topic, "update")
    (record,) = desk.records(topic)
    assert record.value() == b"0"
    assert FROM not in headers_of(record)
    assert CREATED not in headers_of(record)


def test_a_record_of_another_schema_is_refused_and_named(desk: Streams) -> None:
    rows = desk.rows("topic.0")
    topic = desk.topic()
    desk.write(encode(rows.select("id", "key"), rows.select("id", "key").schema.json()), topic)
    for other in (rows.select("key", "id"), rows.select("id"), rows.select("id", F.col("key").alias("name"))):
        schema = other.schema.json()
        with pytest.raises(StreamingQueryException) as caught:
            desk.run(channel_rows(desk.spark, desk.address, topic, schema))
        assert f"HW4505 record {topic}/0/0 was written with another schema" in str(caught.value)
        assert f"instead of {schema_id(schema)}" in str(caught.value)


def test_a_record_that_is_none_of_ours_is_refused_and_named(desk: Streams) -> None:
    topic, schema = desk.topic(), desk.rows("topic.0").schema.json()
    producer = Producer(client_settings(desk.address))
    producer.produce(topic, b"rubbish")
    assert producer.flush(30) == 0
    with pytest.raises(StreamingQueryException, match=rf"HW4505 record {topic}/0/0 .* reads: none instead of"):
        desk.run(channel_rows(desk.spark, desk.address, topic, schema))


def test_the_name_of_a_schema_follows_names_types_and_order_only(desk: Streams) -> None:
    def name(ddl: str) -> str:
        return schema_id(desk.spark.createDataFrame([], ddl).schema.json())

    assert name("a int, b string") == name("a int NOT NULL, b string COMMENT 'x'")
    others = ["b string, a int", "a long, b string", "a int, B string", "a int", "a int, b struct<b: string>"]
    assert len({name(each) for each in [*others, "a int, b string"]}) == len(others) + 1


@pytest.mark.parametrize(
    "kind",
    [
        "INTERVAL",
        "VARIANT",
        "MAP<INT, STRING>",
        "ARRAY<STRUCT<a: INT, b: VARIANT>>",
        "MAP<STRING, MAP<DATE, INT>>",
        "INTERVAL MONTH",
        "INTERVAL DAY",
        "MAP<STRING, INT>",
        "ARRAY<DECIMAL(38, 18)>",
        "STRUCT<a: TIMESTAMP_NTZ>",
        "STRING COLLATE UNICODE",
        "VOID",
    ],
)
def test_the_plan_refuses_exactly_those_types_that_no_record_can_hold(desk: Streams, kind: str) -> None:
    frame = desk.rows("topic.0").select(F.expr(f"CAST(NULL AS {kind}) AS c"))
    schema = frame.schema.json()
    try:
        encode(frame, schema)
        can_travel = True
    except Py4JJavaError:
        can_travel = False
    definition = replace(one("warm", "taxis"), schema_json=schema)
    try:
        parts(project(one("taxis"), definition, sink("out", "warm")), pi_1="taxis warm")
        is_taken = True
    except SpecError:
        is_taken = False
    assert is_taken == can_travel
