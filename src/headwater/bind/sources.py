"""Which topics does a query read from Kafka itself?

Walks the analysed plan down to its sources. Spark refuses to start on a topic that is not there, so a
runner makes those of its own broker first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.bind.channel import read_channel
from headwater.bind.keyring import spark_options

__all__ = [
    "FETCH",
    "FETCH_FROM",
    "READER",
    "channel_rows",
    "counted",
    "kafka_topics",
    "keeps_order",
    "nodes",
    "reads_twice",
    "records_of",
    "union",
]

# Settings of a session: bytes that its readers fetch ahead of one broker, that of the site. Of a broker that is far
# away, so little at a time would be less than the link carries.
FETCH, FETCH_FROM = "spark.headwater.fetch", "spark.headwater.fetch.from"
READER = {
    "kafka.max.partition.fetch.bytes": "10485760",
    "kafka.receive.buffer.bytes": "-1",  # as large as the system finds right, as the writers have it
    "kafka.reconnect.backoff.max.ms": "500",
    "kafka.fetch.max.wait.ms": "500",
    "includeHeaders": "true",
    "startingOffsets": "earliest",
    "failOnDataLoss": "true",
}
_CHANGES_HANDS = frozenset({"Join", "Repartition", "RepartitionByExpression", "RebalancePartitions"})


def channel_rows(spark: SparkSession, address: str, topic: str, schema_json: str, wanted: Any = None) -> DataFrame:
    """Return the rows of a channel.

    Args:
        spark: The session.
        address: The broker that holds the topic.
        topic: The channel's topic.
        schema_json: The schema of its rows.
        wanted: Which records to take, as a column over topic, partition and offset; None: all.
    """
    return read_channel(records_of(spark, address, topic, wanted), schema_json)


def records_of(spark: SparkSession, address: str, topic: str, wanted: Any = None) -> DataFrame:
    """Return the records of a topic, headers included; those that are wanted, told by topic, partition and offset."""
    reader = spark.readStream.format("kafka").options(**READER).options(**spark_options(address))
    reader = reader.option("kafka.bootstrap.servers", address)
    fetch_bytes = spark.conf.get(FETCH, None)
    if fetch_bytes and address == spark.conf.get(FETCH_FROM, None):
        reader = reader.option("kafka.fetch.max.bytes", fetch_bytes).option(
            "kafka.max.partition.fetch.bytes", fetch_bytes
        )
    records = reader.option("subscribe", topic).load()
    return records if wanted is None else records.where(wanted)


def union(frames: list[DataFrame]) -> DataFrame:
    """Return all rows of several streams with the same columns."""
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def counted(frame: DataFrame, name: str) -> DataFrame:
    """Return the same rows; how many there were is told, by name, at the end of each batch."""
    return frame.observe(name, F.count(F.lit(1)).alias("rows"))


def kafka_topics(frame: DataFrame, address: str) -> frozenset[str]:
    """Return the topics of one broker that a query reads, as far as they are named one by one."""
    found = set()
    for leaf in nodes(frame._jdf.queryExecution().analyzed()):
        if leaf.nodeName() == "StreamingRelationV2" and leaf.sourceName() == "kafka":
            options = leaf.extraOptions()
            if options.get("kafka.bootstrap.servers") == address and options.get("subscribe"):
                found |= {name.strip() for name in options.get("subscribe").split(",")}
    return frozenset(found)


def keeps_order(frame: DataFrame) -> bool:
    """Return whether a query without state gives its rows in the order of their records, partition by partition.

    Not so where rows change hands (a join may sort both sides), nor where a topic is read twice: the two
    readings run beside each other, and neither waits for the other.
    """
    read: list[str] = []
    for node in nodes(frame._jdf.queryExecution().analyzed()):
        if node.nodeName() in _CHANGES_HANDS:
            return False
        if node.nodeName() == "StreamingRelationV2":
            read.extend((node.extraOptions().get("subscribe") or "*").split(","))
        elif node.nodeName() == "CTERelationRef":
            read.append(f"WITH {node.cteId()}")
    return len(read) == len(set(read)) and ("*" not in read or len(read) == 1)


def reads_twice(frame: DataFrame) -> bool:
    """Return whether rows of one and the same stream come together again on two ways."""
    read = []
    for node in nodes(frame._jdf.queryExecution().analyzed()):
        if node.nodeName() == "StreamingRelationV2":
            read.append(("stream", node.output().apply(0).exprId().id()))
        elif node.nodeName() == "CTERelationRef":
            read.append(("with", node.cteId()))
    return len(read) != len(set(read))


def nodes(node: Any) -> Iterator[Any]:
    """Yield a plan's nodes, each before what is below it."""
    yield node
    children = node.children()
    for i in range(children.size()):
        yield from nodes(children.apply(i))
