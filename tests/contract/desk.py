"""A desk for tests of `author`: writes small projects and reads them with one Spark session."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Mistake, SpecError
from headwater.model.project import Definition, Project

__all__ = ["JARS", "OFFSET", "Desk", "session", "table"]

JARS = [jar for jar in os.environ.get("HEADWATER_SPARK_JARS", "").split(os.pathsep) if jar]
START = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.active()

@dp.temporary_view
def ticks():
    return spark.readStream.format("rate").load()

@dp.temporary_view
def ticks2():
    return spark.readStream.format("rate").load().withColumnRenamed("value", "value2")

"""
OFFSET = START.count("\n")


def session() -> Iterator[Any]:
    """Yield a small classic session, and stop it."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    settings = {
        "spark.master": "local[1]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "600m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.jars": ",".join(JARS),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Desk:
    """Writes projects and reads them."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    def write(self, code: str, files: Mapping[str, str] | None = None) -> str:
        spec = "name: trial\nstorage: file:///unused\nlibraries: [{glob: {include: trial.py}}]\n"
        for name, text in {"spark-pipeline.yml": spec, "trial.py": START + code, **(files or {})}.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return str(self.folder)

    def read(self, code: str, files: Mapping[str, str] | None = None) -> Project:
        from headwater.author.read import read_project

        return read_project(self.write(code, files), self.spark)

    def one(self, code: str, name: str = "it", files: Mapping[str, str] | None = None) -> Definition:
        return self.read(code, files).by_name[name]

    def mistakes(self, code: str, files: Mapping[str, str] | None = None) -> tuple[Mistake, ...]:
        with pytest.raises(SpecError) as caught:
            self.read(code, files)
        return caught.value.mistakes

    def mistake(self, code: str, files: Mapping[str, str] | None = None) -> Mistake:
        mistakes = self.mistakes(code, files)
        assert len(mistakes) == 1, [str(each) for each in mistakes]
        return mistakes[0]


def table(body: str, name: str = "it") -> str:
    return f"@dp.table\ndef {name}():\n    return {body}\n\n"
