"""How fast is the data plane? One command: tables for the reader, JSON for programs.

Run it with `python -m bench.lanes`. Sections, to be named with `--only`:

- **lanes**, or the name of a query: latency, processor use and memory from a Kafka topic to a Kafka topic, in
  Headwater's two lanes and in plain Spark's two. Each query and lane has a process of its own, one after the
  other, against one broker; each rate has a query and topics of its own in that process. Load and clock are
  here. The machine is shared, so the ratios to plain Spark's micro-batches count: trigger 0, nothing set but,
  where there are groups, one partition for them instead of 200, which are shown too.
  Headwater's real-time batches last 60 s: their end falls into no window of this section.
- **boundary**: the same with the end of a batch in the window, where the real-time lane stalls.
- **chain**: four sites on this machine, started by `headwater run`: all of built-in functions; with a Python
  function and a window in it.
- **ten**: ten fragments in one runner. **start**: from the command to the first result with three sites.
  **memory**: one site with three fragments.

Cores and memory are those of Spark and its Python processes, brokers apart; "machine's cores" is everything
that ran meanwhile, the load and other people's work included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import count, product
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import lanes_plane, measure
from bench.lanes_ages import REFERENCES, compared
from bench.lanes_load import Pace
from bench.lanes_subject import Fallen, rates
from bench.lanes_tables import LAYOUTS, TITLES
from bench.tables import table
from headwater.bind import jars
from headwater.bind.kafka import KafkaBroker
from headwater.errors import BindError

__all__ = ["QUERIES", "REAL_TIME", "Bench", "broker", "lane_rows", "main", "run_bench"]

OUT = "out/lanes.json"
QUERIES = {  # whether results are of groups
    "stateless": False,
    "python": False,
    "windowed": True,
    "encode": False,
    "encode-count": True,
    "table-join": False,
}
REAL_TIME = "headwater real-time"
LANES = (REAL_TIME, *REFERENCES, "headwater micro-batch", "spark real-time")
CHILD = (sys.executable, "-m", "bench.lanes_child")
RATES = "50,200,1000,2000,4000,8000"
QUICK_RATES = "200"
BOUNDARY = ("stateless", "windowed")
BOUNDARY_S = 75.0  # longer than a batch: one end of a batch falls into it for certain
PLANE_RPS = 200.0
CHAIN_RPS = (50.0, 200.0)
CHAIN_WARM_S = 60.0  # eight JVMs on two cores need that long until their code is compiled
EACH_RPS = 20.0  # of each of ten fragments
START_RPS = 50.0
REPEATS = 3

Row = dict[str, Any]


@dataclass
class Bench:
    """What a section needs."""

    paces: tuple[Pace, ...]
    queries: tuple[str, ...]
    repeats: int
    folder: Path  # each measurement has one of its own within it
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        """Count the folders that are given out."""
        self._numbers = count()

    def pace(self, rate_rps: float, seconds: float | None = None) -> Pace:
        """Return a pace as long as the others."""
        first = self.paces[0]
        return Pace(rate_rps, seconds or first.seconds, first.warm_s)

    def fresh(self) -> Path:
        """Return a folder that nothing used before."""
        return self.folder / str(next(self._numbers))


def lanes(bench: Bench) -> Iterator[Row]:
    """Yield a row for every query, lane and rate."""
    with broker(bench) as (address, paths):
        for query in bench.queries:
            chosen = [lane for lane in LANES if QUERIES[query] or lane != REFERENCES[0]]
            rows = [row for lane in chosen for row in lane_rows(bench, query, lane, address, {"jars": paths})]
            yield from compared(rows)


def boundary(bench: Bench) -> Iterator[Row]:
    """Yield a row for each kind of query whose batches end differently."""
    paces = (bench.pace(PLANE_RPS, BOUNDARY_S),)
    with broker(bench) as (address, paths):
        for query in BOUNDARY:
            yield from lane_rows(bench, query, REAL_TIME, address, {"jars": paths}, paces=paces)


def chain(bench: Bench) -> Iterator[Row]:
    """Yield a row for each chain over four sites."""
    for name, rate_rps in product(lanes_plane.CHAINS, CHAIN_RPS):
        bench.say(f"chain of four sites: {name}, {_rate(rate_rps)}")
        pace = replace(bench.pace(rate_rps), warm_s=CHAIN_WARM_S)
        row = _tried(partial(lanes_plane.chain, name, pace, bench.fresh()))
        yield {"case": f"chain of four sites: {name}", "rate": _rate(rate_rps), "rate_rps": rate_rps, **row}


def ten(bench: Bench) -> Iterator[Row]:
    """Yield the row of ten fragments in one runner."""
    bench.say("ten fragments in one runner")
    row = _tried(lambda: lanes_plane.ten(bench.pace(EACH_RPS), bench.fresh()))
    yield {"case": "ten fragments in one runner", "rate": f"{_rate(EACH_RPS)} each", "rate_rps": 10 * EACH_RPS, **row}


def start(bench: Bench) -> Iterator[Row]:
    """Yield the seconds from the command to the first result; a first start, which fills the caches, is not counted."""
    rows = []
    project = bench.fresh()
    for number in range(bench.repeats + 1):
        bench.say(f"start of three sites ({f'{number} of {bench.repeats}' if number else 'not counted'})")
        rows.append(_tried(lambda: lanes_plane.start(START_RPS, bench.fresh(), project)))
    named: Row = {"case": "three sites", "runs": rows}
    if any("left_out" in row for row in rows):
        yield named | next(row for row in rows if "left_out" in row)
    else:
        yield named | {name: measure.spread([row[name] for row in rows[1:]]) for name in ("ready_s", "first_s")}


def memory(bench: Bench) -> Iterator[Row]:
    """Yield what one site holds."""
    bench.say("memory of one site with three fragments")
    row = _tried(lambda: lanes_plane.memory(bench.pace(EACH_RPS), bench.fresh()))
    yield {"case": "one site, three fragments", **row}


SECTIONS: Mapping[str, Callable[[Bench], Iterator[Row]]] = {
    "lanes": lanes,
    "boundary": boundary,
    "chain": chain,
    "ten": ten,
    "start": start,
    "memory": memory,
}


@contextlib.contextmanager
def broker(bench: Bench) -> Iterator[tuple[str, list[str]]]:
    """Give the address of one broker for all lanes, and the jars of Spark."""
    found = jars.ensure(bench.say)
    running = KafkaBroker("bench", bench.fresh(), found)
    running.start()
    try:
        running.wait_ready()
        yield running.address, [str(path) for path in found.spark]
    finally:
        running.stop()


def lane_rows(
    bench: Bench,
    query: str,
    lane: str,
    address: str,
    job: Mapping[str, Any],
    command: Sequence[str] = CHILD,
    paces: Sequence[Pace] = (),
) -> Iterator[Row]:
    """Yield a row for each rate of one query in one lane."""
    bench.say(f"{query}, {lane}")
    whole = {**job, "kind": query, "lane": lane, "address": address}
    for row in rates(command, whole, paces or bench.paces, bench.fresh(), QUERIES[query]):
        yield {**row, "rate": _rate(row["rate_rps"])}


def _tried(measured: Callable[[], Row]) -> Row:
    """Return a row; one whose run does not start or ends before its time says so."""
    try:
        return measured()
    except (Fallen, AssertionError, BindError) as error:
        return {"left_out": str(error)[:300], "failed": True}


def _rate(rate_rps: float) -> str:
    return f"{rate_rps:g}/s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; return the exit code."""
    asked = _parser().parse_args(arguments)
    problem = _mistake(asked)
    if problem:
        print(problem, file=sys.stderr)
        return 2
    names = measure.listed(asked.only)
    queries = tuple(name for name in QUERIES if name in names)
    sections = [name for name in SECTIONS if name in names or (name == "lanes" and queries) or not names]
    seconds = asked.seconds or (5.0 if asked.quick else 20.0)
    rated = measure.listed(asked.rates or (QUICK_RATES if asked.quick else RATES))
    paces = tuple(Pace(float(rate), seconds, 3.0 if asked.quick else 8.0) for rate in rated)

    def wanted(folder: Path, say: Callable[[str], None]) -> Bench:
        return Bench(paces, queries or tuple(QUERIES), 1 if asked.quick else REPEATS, folder, say)

    return run_bench({name: SECTIONS[name] for name in sections}, wanted, asked.out, asked.quick)


def run_bench(
    sections: Mapping[str, Callable[[Bench], Iterator[Row]]],
    wanted: Callable[[Path, Callable[[str], None]], Bench],
    out: str,
    is_quick: bool,
) -> int:
    """Measure sections, print their tables, write their figures; return the exit code."""
    console, aside = Console(width=None if sys.stdout.isatty() else 200), Console(stderr=True)
    machine = measure.machine()
    machine["packages"] = {name: version(name) for name in ("headwater", "pyspark", "confluent-kafka")}
    report: Row = {"benchmark": "lanes", "machine": machine, "sources": measure.sources(), "quick": is_quick}
    report["sections"] = {}
    begun_s = time.perf_counter()

    def say(text: str) -> None:
        aside.print(f"{time.perf_counter() - begun_s:6.0f} s  {text}", highlight=False, soft_wrap=True)

    with tempfile.TemporaryDirectory(prefix="headwater-bench-", ignore_cleanup_errors=True) as folder:
        bench = wanted(Path(folder), say)
        for name, section in sections.items():
            rows: list[Row] = []
            report["sections"][name] = rows
            for row in section(bench):
                rows.append(row)
                _write(Path(out), report)
            console.print(table(TITLES[name], LAYOUTS[name], rows))
    report["seconds"] = time.perf_counter() - begun_s
    report["sources_changed"] = report["sources"] != measure.sources()
    _write(Path(out), report)
    if report["sources_changed"]:
        console.print("The sources changed while they were measured: the figures are of several versions.")
    console.print(f"{report['seconds']:.0f} s in all. The figures are in {out}.", highlight=False)
    return 70 if any(row.get("failed") for rows in report["sections"].values() for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.lanes", description="Measure the data plane.")
    parser.add_argument("--only", metavar="NAME,...", default="", help="only these sections or queries")
    parser.add_argument("--rates", metavar="N,...", default="", help=f"records a second (default {RATES})")
    parser.add_argument("--seconds", metavar="S", type=float, help="of each measurement (default 20)")
    parser.add_argument("--out", metavar="FILE.json", default=OUT, help=f"where the figures go (default {OUT})")
    parser.add_argument("--quick", action="store_true", help="one rate, 5 s each, one start: a quarter of an hour")
    return parser


def _mistake(asked: argparse.Namespace) -> str:
    """Return what is wrong with the options; empty where nothing is."""
    for name in measure.listed(asked.only):
        if name not in SECTIONS and name not in QUERIES:
            known = f"sections: {', '.join(SECTIONS)}; queries: {', '.join(QUERIES)}"
            return f"no section or query is called '{name}'; {known}."
    for rate in measure.listed(asked.rates):
        if not rate.isdigit() or int(rate) == 0:
            return f"--rates has '{rate}'; records a second are whole numbers above 0."
    if asked.seconds is not None and asked.seconds < 1:
        return f"--seconds is {asked.seconds:g}; it must be at least 1."
    return ""


def _write(file: Path, report: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
