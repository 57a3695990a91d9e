"""Every lane in one pipeline: built-in functions, a Python function, a window, a table of final rows."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BROKER = str(spark.conf.get("headwater.broker"))


@F.udf("long", useArrow=False)
def squared(number: int) -> int:
    """Square it in Python."""
    return number * number


@dp.temporary_view
def numbers() -> DataFrame:
    """Read {"id": .., "key": .., "at": ..}."""
    options = {"kafka.bootstrap.servers": BROKER, "subscribe": "numbers"}
    return spark.readStream.format("kafka").options(**options).load()


@dp.temporary_view
def parsed() -> DataFrame:
    """Give columns."""
    row = F.from_json(F.col("value").cast("string"), "id LONG, key STRING, at TIMESTAMP")
    return spark.readStream.table("numbers").select(row.alias("row")).select("row.*")


@dp.temporary_view
def squares() -> DataFrame:
    """Call Python."""
    return spark.readStream.table("parsed").withColumn("square", squared("id"))


dp.create_sink("rows", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "rows"})


@dp.append_flow(target="rows")
def write_rows() -> DataFrame:
    """Write every record once."""
    return spark.readStream.table("squares").select(F.to_json(F.struct("id", "square")).alias("value"))


@dp.temporary_view
def counts() -> DataFrame:
    """Count by key in windows; tells every update."""
    return (
        spark.sql("SELECT * FROM STREAM parsed WATERMARK at DELAY OF INTERVAL 1 HOUR")
        .groupBy(F.window("at", "1 minute"), "key")
        .agg(F.count("*").alias("records"), F.max("id").alias("latest"))
    )


dp.create_sink("updates", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "updates"})


@dp.append_flow(target="updates")
def write_updates() -> DataFrame:
    """Write every update once."""
    return spark.readStream.table("counts").select(
        F.to_json(F.struct(F.col("window.start").alias("minute"), "key", "records", "latest")).alias("value")
    )


@dp.table
def kept() -> DataFrame:
    """Keep the records as a table."""
    return spark.readStream.table("squares").select("id", "square")
