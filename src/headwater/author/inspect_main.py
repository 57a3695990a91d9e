"""What does a project say? Asked by another process.

`python -m headwater.author.inspect_main PROJECT --out FILE` starts a small Spark of its own, reads the project
and writes what came of it: the project, its mistakes, or why there was no answer. Nothing else goes to FILE,
and nothing to standard output: what the project's code prints goes to standard error. `author.inspect` asks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from headwater.errors import BindError, SpecError
from headwater.model.keep import to_json

__all__ = ["main"]

JARS = "HEADWATER_SPARK_JARS"  # variable of the environment: paths, separated as those of PATH
QUIET = """rootLogger.level = off
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
"""


def main(arguments: list[str] | None = None) -> int:
    """Read one project and write the answer to a file."""
    parser = argparse.ArgumentParser(prog="headwater.author.inspect_main", description=__doc__)
    parser.add_argument("project")
    parser.add_argument("--out", required=True)
    given = parser.parse_args(arguments)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # of this process and of all that it starts
    answer: dict[str, Any]
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        try:
            answer = {"project": json.loads(_asked(given.project, folder))}
        except SpecError as error:
            answer = {
                "mistakes": [
                    {"code": each.code, "text": each.text, "file": each.file, "line": each.line}
                    for each in error.mistakes
                ]
            }
        except BindError as error:
            answer = {"refused": str(error)}
    Path(given.out).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _asked(project: str, folder: str) -> str:
    """Return the project as JSON, read with a session that ends with it."""
    try:
        from headwater.author.read import read_project  # noqa: PLC0415 - its absence is an answer
    except ImportError as error:
        raise BindError(f"HW4304 Spark's Python package is not there ({error}). Install pyspark.") from error
    spark = _session(folder)
    try:
        return to_json(read_project(project, spark))
    finally:
        spark.stop()


def _session(folder: str) -> Any:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    quiet = Path(folder, "log4j2.properties")
    quiet.write_text(QUIET, encoding="utf-8")
    settings = {
        "spark.master": "local[1]",
        "spark.app.name": "headwater inspect",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "600m",
        # It runs for seconds: a light collector and compiler start sooner.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={quiet.as_uri()} -XX:+UseSerialGC "
        "-XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": Path(folder, "warehouse").as_uri(),
        "spark.jars": ",".join(filter(None, os.environ.get(JARS, "").split(os.pathsep))),
    }
    builder: Any = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        raise BindError(
            f"HW4301 Spark does not start: {str(error).splitlines()[0]} Check that Java 17 or newer is there "
            "('java -version') and that JAVA_HOME, if set, names it."
        ) from error
    spark.sparkContext.setLogLevel("OFF")
    return spark


if __name__ == "__main__":
    sys.exit(main())
