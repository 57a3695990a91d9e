"""A project is read by a process of its own, once, and whatever its code does stays there."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from headwater.author.inspect import inspect
from headwater.errors import BindError, SpecError
from headwater.model.files import read_pipeline
from headwater.serve.inspect import inspect as inspect_command
from headwater.serve.output import Output

pytestmark = pytest.mark.spark
CODE = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
spark = SparkSession.active()
print("loading")

@dp.temporary_view
def ticks():
    return spark.readStream.format("rate").load()

@dp.table
def it():
    return spark.readStream.table("ticks")
"""


def test_a_project_is_read_once_and_its_prints_go_to_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = tmp_path / "trial.py"
    code.write_text(CODE)
    cache = str(tmp_path / "cache")
    first = inspect(str(code), cache=cache)
    assert [each.name for each in first.definitions] == ["ticks", "it"]
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err == "loading\n"
    begun_s = time.monotonic()
    assert inspect(str(code), cache=cache) == first
    assert time.monotonic() - begun_s < 1.0, "no Spark starts"

    out, picture = tmp_path / "trial.yaml", tmp_path / "trial.svg"
    assert inspect_command(str(code), None, str(out), str(picture), Output(True), cache=cache) == 0
    answer = json.loads(capfd.readouterr().out)
    assert [each["name"] for each in answer["operators"]] == ["ticks", "it"]
    assert read_pipeline(out.read_bytes(), "trial.yaml") == first.pipeline
    assert "ticks" in picture.read_text()

    sites = tmp_path / "sites.yaml"
    sites.write_text("sites: {pi-1: {kind: leaf}}\n")
    (tmp_path / "headwater.yml").write_text("operators: {ticks: {each: 'tag:egde'}, itt: {}}\n")
    with pytest.raises(SpecError) as caught:  # another fingerprint: it is read again
        inspect(str(code), cache=cache)
    assert [(each.code, each.line) for each in caught.value.mistakes] == [("HW1004", 1)]
    (tmp_path / "headwater.yml").write_text("operators: {ticks: {each: 'tag:egde'}}\n")
    with pytest.raises(SpecError, match="'each' names the tag 'egde'"):
        inspect_command(str(code), str(sites), None, None, Output(True), cache=cache)


def test_a_crash_is_told_with_the_last_lines(tmp_path: Path) -> None:
    code = tmp_path / "trial.py"
    code.write_text("import os, sys\nprint('so far')\nsys.stdout.flush()\nos._exit(7)\n")
    with pytest.raises(BindError, match=r"(?s)HW4302 .* code 7 .*so far"):
        inspect(str(code))


def test_code_that_hangs_is_ended(tmp_path: Path) -> None:
    code = tmp_path / "trial.py"
    code.write_text("import time\ntime.sleep(600)\n")
    with pytest.raises(BindError, match=r"HW4303 .* not read within 12 s"):
        inspect(str(code), seconds=12)


def test_a_machine_without_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = tmp_path / "trial.py"
    code.write_text(CODE)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BindError, match=r"HW4301 Spark does not start: .*Java"):
        inspect(str(code))
