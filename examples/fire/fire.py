"""Where does the forest burn? Both branches of the fire detection job of paper 001, figure 2.

A report is one Kafka record: its key is JSON (`camera`, `sequence`, `celsius`), its value the image as a
binary PPM file. Each row keeps camera and sequence to the end, so that an alert can be traced to its image.
"""

import numpy as np
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import udf

spark = SparkSession.active()
BROKER = spark.conf.get("headwater.broker")
KAFKA = {"kafka.bootstrap.servers": BROKER, "startingOffsets": "earliest"}

REPORT = "camera STRING, sequence LONG, celsius DOUBLE"
WARM_CELSIUS = 25.0  # temperatures from here on are watched
FIRE_SHARE = 0.05  # of an image's pixels; more red than this is a fire


@udf(returnType="double", useArrow=False)  # one record a call
def red_share(image: bytes) -> float:
    """Return the share of an image's pixels that are red: bright in red, dark in green and blue."""
    _, size, _, pixels = image.split(b"\n", 3)
    width, height = map(int, size.split())
    red, green, blue = np.frombuffer(pixels, np.uint8).reshape(height * width, 3).T
    return float(np.count_nonzero((red >= 160) & (green < 96) & (blue < 96)) / red.size)


def reports(topic: str) -> DataFrame:
    """Give the reports of one kind of camera as they lie in their topic."""
    return spark.readStream.format("kafka").options(**KAFKA, subscribe=topic).load()


def split(source: str) -> DataFrame:
    """Take reports apart into what was measured and what was seen."""
    report = F.from_json(F.col("key").cast("string"), REPORT)
    return (
        spark.readStream.table(source)
        .select(report.alias("report"), F.col("value").alias("image"))
        .select("report.*", "image")
    )


def warm(source: str) -> DataFrame:
    """Keep high temperatures; the images stay behind."""
    return (
        spark.readStream.table(source).select("camera", "sequence", "celsius").where(F.col("celsius") >= WARM_CELSIUS)
    )


def examined(source: str) -> DataFrame:
    """Put one number in the place of each image."""
    return spark.readStream.table(source).select("camera", "sequence", red_share("image").alias("red_share"))


def burning(source: str) -> DataFrame:
    """Keep what shows a fire."""
    return spark.readStream.table(source).where(F.col("red_share") > FIRE_SHARE)


def written(source: str) -> DataFrame:
    """Write rows as records: the camera is the key, all of the row the value."""
    return spark.readStream.table(source).select(F.col("camera").alias("key"), F.to_json(F.struct("*")).alias("value"))


@dp.temporary_view
def tree_source() -> DataFrame:
    """1a: small images of single trees."""
    return reports("tree-reports")


@dp.temporary_view
def tree_split() -> DataFrame:
    """2a."""
    return split("tree_source")


@dp.temporary_view
def tree_temp() -> DataFrame:
    """3a."""
    return warm("tree_split")


@dp.temporary_view
def tree_image() -> DataFrame:
    """5a."""
    return examined("tree_split")


@dp.temporary_view
def tree_result() -> DataFrame:
    """6a."""
    return burning("tree_image")


@dp.temporary_view
def location_source() -> DataFrame:
    """1b: large images of wide areas."""
    return reports("location-reports")


@dp.temporary_view
def location_split() -> DataFrame:
    """2b."""
    return split("location_source")


@dp.temporary_view
def location_temp() -> DataFrame:
    """3b."""
    return warm("location_split")


@dp.temporary_view
def location_image() -> DataFrame:
    """5b."""
    return examined("location_split")


@dp.temporary_view
def location_result() -> DataFrame:
    """6b."""
    return burning("location_image")


@dp.temporary_view
def connect() -> DataFrame:
    """7."""
    return spark.readStream.table("tree_result").union(spark.readStream.table("location_result"))


# 4 and 8: the monitors read these topics
dp.create_sink("temp_monitor", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "fire-temperatures"})
dp.create_sink("alert_monitor", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "fire-alerts"})


@dp.append_flow(target="temp_monitor")
def tree_temperatures() -> DataFrame:
    """Show high temperatures of trees."""
    return written("tree_temp")


@dp.append_flow(target="temp_monitor")
def location_temperatures() -> DataFrame:
    """Show high temperatures of locations."""
    return written("location_temp")


@dp.append_flow(target="alert_monitor")
def alerts() -> DataFrame:
    """Show fires."""
    return written("connect")
