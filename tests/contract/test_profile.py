"""Operators are measured on real Spark, each alone, and what was measured can be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.bind import jars
from headwater.errors import SpecError
from headwater.model.profile import read_profile
from headwater.serve.output import Output
from headwater.serve.profile import profile, with_profile
from headwater.serve.profiling import Wanted
from headwater.serve.reading import read
from headwater.serve.sample import Taking

pytestmark = pytest.mark.spark
READINGS = Path(__file__).parent.parent.parent / "examples" / "readings"
FAILING = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.active()


@udf(returnType="string", useArrow=False)
def halved(value: bytes) -> str:
    raise ValueError(f"{len(value)} bytes have no half")


@dp.temporary_view
def readings():
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "nowhere:9092")
    return reader.option("subscribe", "readings").load()


@dp.table
def halves():
    return spark.readStream.table("readings").select(halved("value").alias("half"))
"""


def quick(sample: Path) -> Wanted:
    return Wanted((str(sample),), repeat=2, taking=Taking(count=300))


def test_the_operators_of_an_example_are_measured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "readings.profile"
    assert profile(str(READINGS), quick(READINGS), str(out), Output(True)) == 0
    told = capfd.readouterr()
    assert f"profile written to {out}" in told.err
    found = {each["name"]: each for each in json.loads(told.out)["operators"]}
    assert list(found) == ["readings", "parsed", "hot", "alerts"]
    assert all(each["work_s"] >= 0 and each["work_spread_s"] > 0 and each["records"] for each in found.values())
    assert 0.5e-6 < found["parsed"]["work_s"] < 200e-6, "JSON takes microseconds"
    assert found["parsed"]["work_s"] > found["hot"]["work_s"]
    assert found["readings"]["rate_rps"] is None, "a sample says nothing of rates"
    assert 90 < found["readings"]["size_bytes"] < 120
    assert (found["parsed"]["rate_factor"], found["alerts"]["rate_factor"]) == (1.0, 1.0)
    assert 0.15 < found["hot"]["rate_factor"] < 0.35
    assert found["hot"]["size_factor"] == pytest.approx(1.0, abs=0.05)
    assert all(each["state_bytes"] is None for each in found.values())

    project = read(str(READINGS), jars.ensure())
    before = project.pipeline
    assert read_profile(out.read_bytes(), "p", before).fingerprint == project.fingerprint
    after = with_profile(project, str(out)).pipeline
    assert after.by_name["parsed"].work_s == found["parsed"]["work_s"]
    assert after.by_name["readings"].rate_rps == before.by_name["readings"].rate_rps


def test_what_fails_is_laid_to_its_operator_with_the_users_traceback(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(FAILING)
    with pytest.raises(SpecError) as caught:
        profile(str(mine), quick(READINGS), None, Output(True))
    (mistake,) = caught.value.mistakes
    assert (mistake.code, mistake.file, mistake.line) == ("HW1805", str(mine), 19)
    assert "operator 'halves' fails" in mistake.text
    assert "in halved" in mistake.text
    assert "bytes have no half" in mistake.text
    assert not (tmp_path / "headwater.profile").exists()
