"""How does the traffic flow, as paper 002 lets its jobs flow: every count told at once, job 4 on what job 2 forwards?

Cleaning, forwarding and local statistics are made for every edge; global statistics take all edges in. No job
waits for a window to close: each record gives a new row of its minute and road cell, and the last one is right.
Speeds come in kilometres and are counted in whole metres per hour, so that a sum does not depend on the order of
its parts.
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
# Later fixes are dropped. Much, because a second at 1000 fixes/s is over three minutes of the taxis' time: an edge
# may be seven minutes behind another before job 4 counts less than was sent.
LATE = "1 day"


# Spark alone calls each flow where it is defined, so what they share comes first.
def counted(stream: str) -> DataFrame:
    """Return number and speeds of a stream's fixes for each road cell and minute."""
    cell = F.format_string("%d:%d", F.floor(F.col("lat") * CELLS_PER_DEGREE), F.floor(F.col("lon") * CELLS_PER_DEGREE))
    speed = F.round(F.col("speed") * 1000).cast("long")
    return (
        # Spark takes a watermark on a stream of the pipeline only as SQL
        spark.sql(f"SELECT * FROM STREAM {stream} WATERMARK time DELAY OF INTERVAL {LATE}")
        .groupBy(F.window("time", WINDOW).alias("minute"), cell.alias("cell"))
        .agg(
            F.count("*").alias("fixes"),
            F.sum(speed).alias("total"),
            F.min(speed).alias("slowest"),
            F.max(speed).alias("fastest"),
        )
        .select(F.col("minute.start").alias("begin"), "cell", "fixes", "total", "slowest", "fastest")
    )


def as_json(stream: str) -> DataFrame:
    """Return the rows of a stream as records for Kafka, with the road cell as key."""
    return spark.readStream.table(stream).select(F.col("cell").alias("key"), F.to_json(F.struct("*")).alias("value"))


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
    """Job 2: hand on what is clean, as it is."""
    return spark.readStream.table("clean")


@dp.temporary_view
def statistics() -> DataFrame:
    """Job 3: what happened in each road cell of this edge, minute by minute."""
    return counted("clean")


@dp.temporary_view
def merged() -> DataFrame:
    """Job 4: the same over all edges."""
    return counted("forward")


dp.create_sink("local_statistics", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "local-statistics"})
dp.create_sink("global_statistics", "kafka", {"kafka.bootstrap.servers": BROKER, "topic": "global-statistics"})


@dp.append_flow(target="local_statistics")
def tell_local() -> DataFrame:
    """Write every change of an edge's statistics."""
    return as_json("statistics")


@dp.append_flow(target="global_statistics")
def tell_global() -> DataFrame:
    """Write every change of the statistics of all edges."""
    return as_json("merged")
