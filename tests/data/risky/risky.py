"""One branch fails on some records, the other never does."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BROKER = str(spark.conf.get("headwater.broker"))


@F.udf("long", useArrow=False)
def checked(number: int) -> int:
    """Refuse what ends in 13."""
    if number % 100 == 13:
        raise ValueError(f"{number} brings no luck")
    return number


@dp.temporary_view
def numbers() -> DataFrame:
    """Read numbers as text."""
    options = {"kafka.bootstrap.servers": BROKER, "subscribe": "numbers", "startingOffsets": "earliest"}
    return spark.readStream.format("kafka").options(**options).load()


@dp.temporary_view
def parsed() -> DataFrame:
    """Convert them; what is no number raises."""
    return spark.readStream.table("numbers").select(F.col("value").cast("string").alias("text"))


@dp.temporary_view
def lucky() -> DataFrame:
    """Convert, then call Python; both may fail."""
    return spark.readStream.table("parsed").select(checked(F.col("text").cast("long")).alias("number"))


dp.create_sink("good", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "good"})
dp.create_sink("all", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "all"})


@dp.append_flow(target="good")
def write_good() -> DataFrame:
    """Write what passed."""
    return spark.readStream.table("lucky").select(F.col("number").cast("string").alias("value"))


@dp.append_flow(target="all")
def write_all() -> DataFrame:
    """Write everything."""
    return spark.readStream.table("parsed").select(F.col("text").alias("value"))
