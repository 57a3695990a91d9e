"""Which sensors are hot? The smallest pipeline that is worth cutting: one source, two steps, one sink."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BROKER = spark.conf.get("headwater.broker")
KAFKA = {"kafka.bootstrap.servers": BROKER, "startingOffsets": "earliest"}


@dp.temporary_view
def readings() -> DataFrame:
    """Give what the sensors send, as it lies in the topic."""
    return spark.readStream.format("kafka").options(**KAFKA, subscribe="readings").load()


@dp.temporary_view
def parsed() -> DataFrame:
    """Read the JSON and convert the temperature."""
    fields = F.from_json(F.col("value").cast("string"), "sensor STRING, celsius DOUBLE, at STRING")
    rows = spark.readStream.table("readings").select(fields.alias("reading")).select("reading.*")
    return rows.withColumn("fahrenheit", F.round(F.col("celsius") * 1.8 + 32, 1))


@dp.temporary_view
def hot() -> DataFrame:
    """Keep what is above 30 degrees Celsius."""
    return spark.readStream.table("parsed").where("celsius > 30")


dp.create_sink("alerts", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "alerts"})


@dp.append_flow(target="alerts")
def alert() -> DataFrame:
    """Write each hot reading as JSON."""
    return spark.readStream.table("hot").select(F.col("sensor").alias("key"), F.to_json(F.struct("*")).alias("value"))
