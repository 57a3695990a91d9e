"""Do the examples run on plain Spark, and is the reference that runs are compared with right?"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from math import floor
from pathlib import Path

import numpy as np
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from headwater.bind.jars import Jars
from headwater.bind.kafka import KafkaBroker
from headwater.bind.topics import client_settings
from headwater.serve.feed import Record, feed, sent_records
from headwater.serve.output import Output
from tests import plain_spark
from tests.contract.fetched import fetched
from tests.plain_spark import EXAMPLES, reference

NAMES = ("fire", "readings", "traffic")
DRY_RUN_S = 300.0  # on a machine that does many things at once


@pytest.fixture(scope="module")
def jars() -> Jars:
    return fetched()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = plain_spark.session()
    yield session
    session.stop()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_spark_alone_accepts_the_project_as_it_is(name: str, jars: Jars, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder)
    here = Path(sys.executable).parent
    environment = os.environ | {
        "PATH": os.pathsep.join((str(here), os.environ.get("PATH", ""))),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    connector = ",".join(map(str, jars.spark))
    words = ["spark-pipelines", "dry-run", "--conf", f"spark.jars={connector}", "--spec", "spark-pipeline.yml"]
    run = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=DRY_RUN_S, check=False
    )
    assert run.returncode == 0, run.stderr[-4000:]
    assert "Run is COMPLETED" in run.stdout + run.stderr


@pytest.mark.spark
def test_readings_give_an_alert_for_each_hot_reading(spark: SparkSession) -> None:
    records = sent_records(str(EXAMPLES / "readings"), "pi", 1, 60)
    wanted: Counter[tuple[str, float, str]] = Counter()
    for _, key, value in records:
        reading = json.loads(value)
        if reading["celsius"] > 30:
            wanted[(key or b"").decode(), reading["celsius"], reading["at"]] += 1
    found = reference("readings", records, spark)
    assert found.keys() == {"alerts"}
    alerts = Counter(
        (key, (row := json.loads(value))["celsius"], row["at"]) for key, value in found["alerts"].elements()
    )
    assert alerts == wanted
    assert wanted


@pytest.mark.spark
def test_fire_finds_what_burns_and_what_is_warm(spark: SparkSession) -> None:
    records = sent_records(str(EXAMPLES / "fire"), "pi", 1, 60, settings={"tree_side": "20", "location_side": "30"})
    warm: Counter[tuple[str, int, float]] = Counter()
    burning: Counter[tuple[str, int, float]] = Counter()
    for _, key, value in records:
        report = json.loads(key or b"")
        red, green, blue = np.frombuffer(value.split(b"\n", 3)[3], np.uint8).reshape(-1, 3).T
        share = float(np.mean((red >= 160) & (green < 96) & (blue < 96)))
        if report["celsius"] >= 25:
            warm[report["camera"], report["sequence"], report["celsius"]] += 1
        if share > 0.05:
            burning[report["camera"], report["sequence"], share] += 1
    found = reference("fire", records, spark)
    assert {
        name: Counter(tuple(json.loads(value).values()) for _, value in rows.elements()) for name, rows in found.items()
    } == {
        "temp_monitor": warm,
        "alert_monitor": burning,
    }
    assert burning


def cleaned(records: list[Record]) -> list[tuple[datetime, float, float, float]]:
    """Time, latitude, longitude and speed of what is readable and true."""
    rows = []
    for _, _, value in records:
        try:
            _, _, time, lat, lon, speed, heading = value.decode().split(",")
            row = (datetime.fromisoformat(time), float(lat), float(lon), float(speed), int(heading))
        except ValueError:
            continue
        if 39 <= row[1] <= 41 and 115 <= row[2] <= 118 and 0 <= row[3] <= 150:
            rows.append(row[:4])
    return rows


@pytest.mark.spark
def test_traffic_counts_each_clean_fix_in_one_window_of_one_cell(spark: SparkSession) -> None:
    sites = ("edge-a", "edge-b", "edge-c")
    fed = [sent_records(str(EXAMPLES / "traffic"), site, 1, 700) for site in sites]
    closed = [sent_records(str(EXAMPLES / "traffic"), site, 1, 0, should_close=True) for site in sites]
    windows: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    for time, lat, lon, speed in cleaned([record for records in fed for record in records]):
        begin = time - timedelta(seconds=time.second)
        windows[begin, f"{floor(lat * 20)}:{floor(lon * 20)}"].append(floor(speed * 1000 + 0.5))  # as Spark rounds
    records = [record for records in fed + closed for record in records]
    found = reference("traffic", records, spark)
    assert found.keys() == {"forwarded", "global_statistics"}
    assert found["forwarded"].total() == len(cleaned(records))
    statistics = {}
    for _, value in found["global_statistics"].elements():
        row = json.loads(value)
        begin = datetime.fromisoformat(row["begin"]).replace(tzinfo=None)
        statistics[begin, row["cell"]] = (row["fixes"], row["total"], row["slowest"], row["fastest"], row["mean"])
    assert statistics == {
        key: (len(speeds), sum(speeds), min(speeds), max(speeds), pytest.approx(sum(speeds) / len(speeds), abs=0.051))
        for key, speeds in windows.items()
    }


@pytest.mark.kafka
def test_a_feed_writes_exactly_what_it_says_at_the_pace_asked_for(
    jars: Jars, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = KafkaBroker("edge-a", tmp_path / "edge-a", jars)
    try:
        broker.start()
        broker.wait_ready(120.0)
        generator = str(EXAMPLES / "traffic")
        given = ({"edge-a": broker.address}, 200.0)
        assert feed(generator, *given, 2.0, None, 3, False, Output(True)) == 0
        first = json.loads(capsys.readouterr().out)
        site = first["sites"]["edge-a"]
        sent = site["records"]  # fewer than 400 on a machine that is too busy
        assert feed(generator, *given, None, 100, 3, True, Output(True), start=sent, closing_pause_s=0.1) == 0
        second = json.loads(capsys.readouterr().out)
        found = read_all(broker.address, "taxis")
    finally:
        broker.kill()
    wanted = sent_records(generator, "edge-a", 3, sent + 100, should_close=True)
    assert found == [(key, value) for _, key, value in wanted]
    assert 0 < sent <= 400
    assert site["closing"] == 0
    assert site["rate_rps"] <= 200
    assert (second["sites"]["edge-a"]["records"], second["sites"]["edge-a"]["closing"]) == (100, 2)


def read_all(address: str, topic: str) -> list[tuple[bytes | None, bytes]]:
    """Return what a topic holds."""
    consumer = Consumer(client_settings(address) | {"group.id": "test", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [(each.key(), each.value() or b"") for each in consumer.consume(end, timeout=30)]
    finally:
        consumer.close()
