"""What do the jobs of the composition do?

Each is a function from the records of a topic, as Spark's Kafka source gives them, to what its Kafka sink takes.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def clean(records: DataFrame) -> DataFrame:
    """Leave out records that hold nothing."""
    return records.where(F.length("value") > 0).select("key", "value")


def merge(records: DataFrame) -> DataFrame:
    """Hand on what comes from all sides."""
    return records.select("key", "value")


def stamp(records: DataFrame) -> DataFrame:
    """Note when a record came by here."""
    at = F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
    text = F.col("value").cast("string")
    return records.select("key", F.to_json(F.struct(text.alias("text"), at.alias("at"))).alias("value"))
