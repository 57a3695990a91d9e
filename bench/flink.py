"""How does the real-time lane compare with Flink? The same queries, driver, clock and table.

`python -m bench.flink --venv DIR` makes an environment of its own for apache-flink there (830 MB) and fetches
Flink's connector to Kafka with the Ivy inside PySpark, unless both are there; then measures the three
queries of the public comparison in Headwater's real-time lane and in Flink, as it comes and tuned by hand
(each record flushed at once, objects reused). The figures go to out/flink.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark

from bench.lanes import QUERIES, REAL_TIME, Bench, broker, lane_rows, run_bench
from bench.lanes_ages import compared
from bench.lanes_load import GROUPS, HEAD, Pace
from bench.measure import listed
from headwater.bind.java import java

__all__ = ["main"]

OUT = "out/flink.json"
FLINK = "apache-flink==2.3.0"
CONNECTOR = ("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2")
COMPARED = ("encode", "encode-count", "table-join")
TUNED = "flink tuned"
LANES = (TUNED, "flink as it comes")
FETCH_S = 900.0
IVY = """<ivy-module version="2.0"><info organisation="headwater" module="bench"/>
<configurations><conf name="default"/></configurations>
<dependencies><dependency org="{}" name="{}" rev="{}" transitive="false" conf="default->default"/></dependencies>
</ivy-module>
"""

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.flink", description="Compare with Flink.")
    parser.add_argument("--venv", metavar="DIR", required=True, help="the environment of Flink, made if missing")
    parser.add_argument("--only", metavar="NAME,...", default="", help=f"of {', '.join(COMPARED)}")
    parser.add_argument("--rates", metavar="N,...", default="50,200,1000,2000", help="records a second")
    parser.add_argument("--seconds", metavar="S", type=float, default=20.0, help="of each measurement (default 20)")
    parser.add_argument("--out", metavar="FILE.json", default=OUT, help=f"where the figures go (default {OUT})")
    parser.add_argument("--quick", action="store_true", help="200 records a second, 5 s each")
    asked = parser.parse_args(arguments)
    venv = Path(asked.venv).absolute()
    try:
        connector = _environment(venv)
    except subprocess.SubprocessError as error:
        print(f"Flink cannot be had: {error}", file=sys.stderr)
        return 4
    rated = ("200",) if asked.quick else listed(asked.rates)
    seconds, warm_s = (5.0, 3.0) if asked.quick else (asked.seconds, 8.0)
    queries = tuple(name for name in COMPARED if name in (listed(asked.only) or COMPARED))

    def wanted(folder: Path, say: Callable[[str], None]) -> Bench:
        return Bench(tuple(Pace(float(rate), seconds, warm_s) for rate in rated), queries, 1, folder, say)

    def flink(bench: Bench) -> Iterator[Row]:
        command = (str(venv / "bin" / "python"), "-m", "bench.flink_child")
        job = {"connector": connector.as_uri(), "head": HEAD, "groups": GROUPS}
        with broker(bench) as (address, paths):
            for query in bench.queries:
                rows = list(lane_rows(bench, query, REAL_TIME, address, {"jars": paths}))
                for lane in LANES:
                    rows += lane_rows(bench, query, lane, address, job, command)
                yield from compared(rows, (TUNED,))

    assert set(queries) <= set(QUERIES)
    return run_bench({"flink": flink}, wanted, asked.out, asked.quick)


def _environment(venv: Path) -> Path:
    """Make the environment unless it is there; return Flink's connector to Kafka."""
    python = venv / "bin" / "python"
    made = venv / "has-flink"
    if not made.exists():
        print(f"installing {FLINK} into {venv.name} (once, 830 MB, a few minutes)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=FETCH_S)
        subprocess.run([str(python), "-m", "pip", "install", "-q", FLINK], check=True, timeout=FETCH_S)
        made.touch()
    folder = venv / "jars"
    if not list(folder.glob("*.jar")):
        folder.mkdir(exist_ok=True)
        folder.joinpath("ivy.xml").write_text(IVY.format(*CONNECTOR), "utf-8")
        ivy = next(Path(pyspark.__file__).parent.joinpath("jars").glob("ivy-*.jar"))
        options = ("-warn", "-ivy", "ivy.xml", "-cache", "cache", "-retrieve", "[artifact]-[revision].[ext]")
        subprocess.run([str(java()), "-jar", str(ivy), *options], cwd=folder, check=True, timeout=FETCH_S, stdout=2)
    return next(folder.glob("*.jar"))


if __name__ == "__main__":
    raise SystemExit(main())
