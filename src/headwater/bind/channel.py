"""How does a row become a record of a topic, and a record a row again?

A channel's record is the row in Avro, with its mark in the headers (`bind.headers`). Avro takes only names
like those of variables, each once; where the user's are others, as Spark's own `count(1)` is, all are
numbers on the way. Sinks of the user get the same headers beside what the user writes, so that latency can
be told and a restart knows what is already there.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from headwater.bind.carry import MARK, mark_of_record
from headwater.bind.headers import BY, CREATED, FROM, ORIGIN, SCHEMA
from headwater.bind.session import java_class

__all__ = ["encode", "job_rows", "read_channel", "schema_id", "with_headers"]

_OURS = "hw-"  # what the names of our headers begin with
_HEADERS_TYPE = "array<struct<key:string,value:binary>>"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # a name that Avro takes
_DELAY = "spark.watermarkDelayMs"  # where Spark keeps a column's watermark in its schema


def schema_id(schema_json: str) -> str:
    """Return a short name of a schema: names and types of its columns, in order."""
    fields = [[field["name"], field["type"]] for field in json.loads(schema_json)["fields"]]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]


def read_channel(source: DataFrame, schema_json: str) -> DataFrame:
    """Return the rows of a channel as its writer gave them, event time declared again, marks hidden below.

    Args:
        source: The topic as the Kafka source gives it, headers included.
        schema_json: The schema of the rows.
    """
    schema = _nullable(source.sparkSession, schema_json)
    travelling = _travelling(schema)
    wanted = schema_id(schema_json)
    row = from_avro(F.col("value"), _avro(source.sparkSession, travelling), {"mode": "FAILFAST"})
    other = F.concat(
        F.lit("HW4505 record "),
        F.concat_ws("/", "topic", "partition", "offset"),
        F.lit(" was written with another schema than this fragment reads: "),
        F.coalesce(_header_of(SCHEMA), F.lit("none")),
        F.lit(f" instead of {wanted}"),
    )
    checked = F.when(_header_of(SCHEMA) == F.lit(wanted), row).otherwise(F.raise_error(other))
    created = F.coalesce(_header_of(CREATED).cast("long"), F.unix_millis("timestamp"))
    origin = F.coalesce(_header_of(ORIGIN), F.concat_ws("/", "topic", "partition", "offset"))
    marked = source.select(checked.alias("row"), mark_of_record(created, origin).alias(MARK))
    names = [f"_{i}" for i in range(len(schema.fields))]  # the user's may be there twice
    rows = marked.select(
        *(
            F.col("row").getField(sent.name).cast(field.dataType).alias(name, metadata=_plain(field.metadata))
            for name, sent, field in zip(names, travelling.fields, schema.fields, strict=True)
        ),
        MARK,
    )
    columns = []
    for name, field in zip(names, schema.fields, strict=True):
        column = F.col(name).alias(field.name)
        if _DELAY in field.metadata:
            time = name
            if isinstance(field.dataType, StructType):  # a window; of its own, Spark would take no time but rubbish
                time = f"{name}_time"
                rows = rows.withColumn(time, F.col(name)["end"] - F.expr("INTERVAL 1 MICROSECOND"))
                column = F.col(name).alias(field.name, metadata=field.metadata)
            rows = rows.withWatermark(time, f"{field.metadata[_DELAY]} milliseconds")
        columns.append(column)
    return rows.select(*columns)


def job_rows(source: DataFrame) -> DataFrame:
    """Return the records of a topic as Kafka's source gives them, marks hidden below.

    Where and when a record was born stays what it was when an earlier job has passed it on; of its headers, the
    user sees the user's own.
    """
    created = F.coalesce(_header_of(CREATED).cast("long"), F.unix_millis("timestamp"))
    origin = F.coalesce(_header_of(ORIGIN), F.concat_ws("/", "topic", "partition", "offset"))
    own = F.filter("headers", lambda one: ~one["key"].startswith(_OURS))
    names = [name for name in source.columns if name != "headers"]
    marked = source.withColumn(MARK, mark_of_record(created, origin))
    return marked.select(*names, own.alias("headers"))


def encode(rows: DataFrame, schema_json: str, writer: str = "") -> DataFrame:
    """Return the records of a channel for rows of a fragment, with what their marks say if they have any."""
    schema = _travelling(StructType.fromJson(json.loads(schema_json)))
    numbered = rows.toDF(*(MARK if name == MARK else f"_{i}" for i, name in enumerate(rows.columns)))
    names = [name for name in numbered.columns if name != MARK]
    columns = [
        F.col(name).cast(sent.dataType).alias(sent.name) for name, sent in zip(names, schema.fields, strict=True)
    ]
    marks = _headers(writer) if MARK in rows.columns else ()
    return numbered.select(
        to_avro(F.struct(*columns), _avro(rows.sparkSession, schema)).alias("value"),
        F.array(*marks, _header(SCHEMA, F.lit(schema_id(schema_json)))).alias("headers"),
    )


def with_headers(rows: DataFrame, writer: str = "") -> DataFrame:
    """Return the records of a user's Kafka sink, written by a fragment, with our headers beside the user's own."""
    if MARK not in rows.columns:
        return rows
    ours = F.array(*_headers(writer))
    if "headers" in rows.columns:
        ours = F.concat(F.coalesce(F.col("headers"), F.array().cast(_HEADERS_TYPE)), ours)
    return rows.withColumn("headers", ours).drop(MARK)


def _headers(writer: str) -> tuple[Column, ...]:
    def mark(name: str) -> Column:
        return F.col(f"{MARK}.{name}")

    made_of = F.concat_ws("/", mark("topic"), mark("partition"), mark("offset"), mark("index"), mark("arrived"))
    made_of = F.when(mark("topic").isNotNull(), made_of)  # an aggregate of nothing was made of no record
    found = (_header(CREATED, mark("created")), _header(ORIGIN, mark("origin")), _header(FROM, made_of))
    return (*found, _header(BY, F.lit(writer))) if writer else found


def _header(key: str, value: Column) -> Column:
    return F.struct(F.lit(key).alias("key"), value.cast("string").cast("binary").alias("value"))


def _header_of(key: str) -> Column:
    return F.get(F.filter("headers", lambda one: one["key"] == F.lit(key)), F.lit(0))["value"].cast("string")


def _plain(metadata: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in metadata.items() if key != _DELAY}


def _travelling(schema: StructType) -> StructType:
    """Return the schema with names and kinds of text that Avro takes."""
    names = [field.name for field in schema.fields]
    are_plain = all(map(_PLAIN.fullmatch, names)) and len({name.lower() for name in names}) == len(names)
    return StructType(
        [
            StructField(field.name if are_plain else f"_{i}", _travelling_type(field.dataType))
            for i, field in enumerate(schema.fields)
        ]
    )


def _travelling_type(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return _travelling(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_travelling_type(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_travelling_type(kind.keyType), _travelling_type(kind.valueType))
    return StringType() if isinstance(kind, StringType) else kind  # one with a collation is plain on the way


def _nullable(spark: SparkSession, schema_json: str) -> StructType:
    """Return a schema in which everything may be null, as it is in all that comes out of Avro."""
    java_type = _java_type(spark, schema_json).asNullable()
    return StructType.fromJson(json.loads(java_type.json()))


def _avro(spark: SparkSession, schema: StructType) -> str:
    """Return the Avro schema of the rows."""
    converters = java_class(spark, "org.apache.spark.sql.avro.SchemaConverters")
    # Everything may be null: a column that never is null at one site may be nullable after a channel.
    return str(converters.toAvroType(_java_type(spark, schema.json()).asNullable(), False, "row", "").toString())


def _java_type(spark: SparkSession, schema_json: str) -> Any:
    return java_class(spark, "org.apache.spark.sql.types.DataType").fromJson(schema_json)
