"""How does the traffic flow? The four jobs of paper 002's use case, on taxis.

Cleaning, forwarding and local statistics stand on every edge; global statistics take all edges in. Speeds come in
kilometres and are counted in whole metres per hour, so that a sum does not depend on the order of its parts.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BROKER = spark.conf.get("headwater.broker")
KAFKA = {"kafka.bootstrap.servers": BROKER, "startingOffsets": "earliest"}

FIX = "id LONG, taxi LONG, time TIMESTAMP, lat DOUBLE, lon DOUBLE, speed DOUBLE, heading INT"
CELLS_PER_DEGREE = 20  # a road cell is about 5 km wide
WINDOW = "1 minute"
DISORDER = "30 seconds"  # that records of one edge may be late
EDGES_APART = "1 hour"  # that one edge may be behind another
SPEEDS = ("total", "slowest", "fastest")  # metres per hour


@dp.temporary_view
def taxis() -> DataFrame:
    """Give the fixes of this site's taxis as they lie in the topic: lines of a CSV file."""
    return spark.readStream.format("kafka").options(**KAFKA, subscribe="taxis").load()


@dp.temporary_view
def clean() -> DataFrame:
    """Job 1: drop lines that cannot be read and fixes that cannot be true."""
    fix = F.from_csv(F.col("value").cast("string"), F.lit(FIX))
    rows = spark.readStream.table("taxis").select(fix.alias("fix")).select("fix.*")
    is_whole = "id IS NOT NULL AND taxi IS NOT NULL AND time IS NOT NULL AND heading IS NOT NULL"
    return rows.where(f"{is_whole} AND lat BETWEEN 39 AND 41 AND lon BETWEEN 115 AND 118 AND speed BETWEEN 0 AND 150")


@dp.temporary_view
def forward() -> DataFrame:
    """Job 2: hand on what is clean."""
    return spark.readStream.table("clean").select(
        F.col("taxi").cast("string").alias("key"), F.to_json(F.struct("*")).alias("value")
    )


@dp.table
def local_statistics() -> DataFrame:
    """Job 3: what happened in each road cell of this edge, minute by minute."""
    cell = F.format_string("%d:%d", F.floor(F.col("lat") * CELLS_PER_DEGREE), F.floor(F.col("lon") * CELLS_PER_DEGREE))
    speed = F.round(F.col("speed") * 1000).cast("long")
    return (
        # Spark takes a watermark on a stream of the pipeline only as SQL
        spark.sql(f"SELECT * FROM STREAM clean WATERMARK time DELAY OF INTERVAL {DISORDER}")
        .groupBy(F.window("time", WINDOW).alias("minute"), cell.alias("cell"))
        .agg(
            F.count("*").alias("fixes"),
            F.sum(speed).alias("total"),
            F.min(speed).alias("slowest"),
            F.max(speed).alias("fastest"),
        )
        .select(F.col("minute.start").alias("begin"), F.col("minute.end").alias("end"), "cell", "fixes", *SPEEDS)
    )


@dp.table
def global_statistics() -> DataFrame:
    """Job 4: the same over all edges, with the mean."""
    return (
        spark.sql(f"SELECT * FROM STREAM local_statistics WATERMARK end DELAY OF INTERVAL {EDGES_APART}")
        .groupBy("begin", "end", "cell")
        .agg(
            F.sum("fixes").alias("fixes"),
            F.sum("total").alias("total"),
            F.min("slowest").alias("slowest"),
            F.max("fastest").alias("fastest"),
        )
        .withColumn("mean", F.round(F.col("total") / F.col("fixes"), 1))
    )


dp.create_sink("forwarded", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "forwarded"})


@dp.append_flow(target="forwarded")
def forwarding() -> DataFrame:
    """Write what was handed on."""
    return spark.readStream.table("forward")
