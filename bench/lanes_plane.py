"""How fast are whole pipelines, cut over sites on this machine and started by the real command?

Writes a small project to a folder, starts `headwater run --json` on it, feeds the broker of its first site
and reads the sink at its last. Knows nothing of the inside: everything comes from the command's events and
from the topics.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lanes_load import FIRST_S, GROUPS, Load, Pace, measure, tree_usage
from bench.lanes_subject import Fallen
from headwater.bind.topics import ensure_topics
from tests.plane import READY_S, Plane

__all__ = ["CHAINS", "chain", "memory", "start", "ten"]

Row = dict[str, Any]
TEN = 10
FEW = 3  # fragments on the one site whose memory is asked for

HEAD = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

spark = SparkSession.active()
KAFKA = {"kafka.bootstrap.servers": spark.conf.get("headwater.broker")}


def source(topic):
    return spark.readStream.format("kafka").options(**KAFKA, subscribe=topic, startingOffsets="earliest").load()


def parsed(records):
    row = F.from_json(F.col("value").cast("string"), "group STRING, id LONG, t LONG, text STRING")
    return records.select(row.alias("row")).select("row.*")


def sent(rows, newest, *columns):
    return rows.select(F.col(newest).cast("string").alias("key"), F.to_json(F.struct(*columns)).alias("value"))


@F.udf(LongType())
def vowels(text):
    return sum(text.count(letter) for letter in "aeiou")
"""
SOURCE = """

@dp.temporary_view
def records{n}():
    return source("in{n}")
"""
VIEW = """

@dp.temporary_view
def {name}():
    return {rows}
"""
SINK = """

dp.create_sink("out{n}", "kafka", {{**KAFKA, "topic": "out{n}"}})


@dp.append_flow(target="out{n}")
def write{n}():
    return {rows}
"""
PARSED = 'parsed(spark.readStream.table("records"))'
COUNTED = """(
        spark.readStream.table("second")
        .withColumn("at", F.timestamp_micros((F.col("t") / 1000).cast("long")))
        .withWatermark("at", "10 seconds")
        .groupBy(F.window("at", "10 seconds"), "group")
        .agg(F.count("*").alias("records"), F.max("id").alias("latest"))
    )"""


@dataclass(frozen=True, slots=True)
class Plot:
    """A project and where its operators stand."""

    code: str
    sites: tuple[str, ...]  # a chain of them
    placement: Mapping[str, str]
    rate_rps: float  # of each source
    inputs: tuple[str, ...] = ("in",)
    outputs: tuple[str, ...] = ("out",)
    is_grouped: bool = False


def _chain(
    sites: Sequence[str], views: Mapping[str, str], last: str, rate_rps: float, is_grouped: bool = False
) -> Plot:
    """Return one source, views in a row and a sink, spread over the sites in order; the source is with the first."""
    code = HEAD + SOURCE.format(n="")
    code += "".join(VIEW.format(name=name, rows=rows) for name, rows in views.items()) + SINK.format(n="", rows=last)
    placement = {"records": sites[0], **dict(zip((*views, "out"), sites, strict=True))}
    return Plot(code, tuple(sites), placement, rate_rps, is_grouped=is_grouped)


def _stateless(rate_rps: float) -> Plot:
    views = {
        "first": PARSED,
        "second": 'spark.readStream.table("first").withColumn("size", F.length("text"))',
        "third": 'spark.readStream.table("second").where("size > 0")',
    }
    return _chain("abcd", views, 'sent(spark.readStream.table("third"), "id", "group", "id", "size")', rate_rps)


def _mixed(rate_rps: float) -> Plot:
    views = {
        "first": PARSED,
        "second": 'spark.readStream.table("first").withColumn("vowels", vowels("text"))',
        "third": COUNTED,
    }
    last = 'sent(spark.readStream.table("third"), "latest", "group", "records")'
    return _chain("abcd", views, last, rate_rps, is_grouped=True)


def _three(rate_rps: float) -> Plot:
    views = {"first": PARSED, "second": 'spark.readStream.table("first").where("id >= 0")'}
    return _chain("abc", views, 'sent(spark.readStream.table("second"), "id", "group", "id")', rate_rps)


def _beside(count: int, rate_rps: float) -> Plot:
    """Return so many sources on one site, each with a sink of its own: as many fragments in one runner."""
    numbers = range(count)
    code = HEAD + "".join(
        SOURCE.format(n=n)
        + SINK.format(n=n, rows=f'sent(parsed(spark.readStream.table("records{n}")), "id", "group", "id", "t")')
        for n in numbers
    )
    placement = {f"{name}{n}": "a" for n in numbers for name in ("records", "out")}
    inputs, outputs = (tuple(f"{name}{n}" for n in numbers) for name in ("in", "out"))
    return Plot(code, ("a",), placement, rate_rps, inputs, outputs)


CHAINS: Mapping[str, Callable[[float], Plot]] = {"stateless": _stateless, "python and window": _mixed}


def chain(name: str, pace: Pace, folder: Path) -> Row:
    """Return the latency from the first site to the sink at the fourth."""
    with _running(CHAINS[name](pace.rate_rps), folder) as run:
        return run.measure(pace)


def ten(pace: Pace, folder: Path) -> Row:
    """Return the latency through ten fragments in one runner; the rate is that of each."""
    with _running(_beside(TEN, pace.rate_rps), folder) as run:
        return run.measure(pace, TEN)


def memory(pace: Pace, folder: Path) -> Row:
    """Return what one site with three fragments holds, runner and broker."""
    with _running(_beside(FEW, pace.rate_rps), folder) as run:
        row = run.measure(pace, FEW)
        site = run.plane.latest()["sites"]["a"]
        return row | {"runner_bytes": site["memory_bytes"], "broker_bytes": site["broker_memory_bytes"]}


def start(rate_rps: float, folder: Path, project: Path) -> Row:
    """Return the seconds from the command to `ready`, and to the first result, fed from `ready` on.

    The state folder is new each time; the project is the same, so that what was read of it is kept.
    """
    begun_ns = time.time_ns()
    with _running(_three(rate_rps), folder, project) as run:
        ready_ns = time.time_ns()
        load = run.load()
        try:
            load.start(rate_rps)
            if not load.first.wait(FIRST_S):
                return {"left_out": f"no result in {FIRST_S:.0f} s"}
        finally:
            load.close()
    return {"ready_s": (ready_ns - begun_ns) / 1e9, "first_s": (load.first_ns - begun_ns) / 1e9}


class _Run:
    """A project that is running."""

    def __init__(self, plot: Plot, plane: Plane) -> None:
        self.plot = plot
        self.plane = plane

    def load(self) -> Load:
        """Return what feeds it and reads it."""
        source, sink = (self.plane.brokers[site] for site in (self.plot.sites[0], self.plot.sites[-1]))
        ensure_topics(sink, self.plot.outputs)
        return Load(source, self.plot.inputs, sink, self.plot.outputs, GROUPS if self.plot.is_grouped else None)

    def measure(self, pace: Pace, sources: int = 1) -> Row:
        """Return the figures; processor time and memory are of all its runners, the brokers apart."""
        pids = [site["runner_pid"] for site in self.plane.latest()["sites"].values()]

        def usage() -> tuple[float, int]:
            used = [tree_usage(pid) for pid in pids]
            return sum(cpu_s for cpu_s, _ in used), sum(held_bytes for _, held_bytes in used)

        row = measure(self.load(), Pace(pace.rate_rps * sources, pace.seconds, pace.warm_s), usage)
        told = [event for event in self.plane.events if event["event"] in {"warning", "error"}]
        if told:
            row["warnings"] = [str(event.get("text"))[:200] for event in told]
        latest = self.plane.latest()
        row["lanes"] = [one["lane"] for one in latest["fragments"]]
        row["brokers_bytes"] = sum(site["broker_memory_bytes"] for site in latest["sites"].values())
        return row


@contextlib.contextmanager
def _running(plot: Plot, folder: Path, project: Path | None = None) -> Iterator[_Run]:
    """Write the project, start the command, give the run as soon as it is ready, and end all of it."""
    folder.mkdir(parents=True, exist_ok=True)
    project = project or folder / "project"
    project.mkdir(parents=True, exist_ok=True)
    rate = f"rate: {plot.rate_rps:g}/s, size: 1 kB, "
    operators = "".join(  # 'at', so that any site may hold a source or a sink
        f"  {name}: {{{rate if name.startswith('records') else ''}at: [{site}]}}\n"
        for name, site in plot.placement.items()
    )
    links = "".join(
        f"  - {{between: [{left}, {right}], latency: 1 ms, bandwidth: 1 Gbit/s}}\n"
        for left, right in zip(plot.sites, plot.sites[1:], strict=False)
    )
    files = {
        "bench.py": plot.code,
        "headwater.yml": f"pipeline: bench\noperators:\n{operators}",
        "spark-pipeline.yml": "name: bench\nstorage: file:///tmp/headwater-bench\nlibraries:\n"
        "  - glob: {include: bench.py}\nconfiguration:\n  headwater.site: here\n  headwater.broker: localhost:9092\n",
        "sites.yaml": "sites:\n"
        + "".join(f"  {site}: {{slots: 32}}\n" for site in plot.sites)
        + (f"links:\n{links}" if links else "links: []\n"),
        "placement.yaml": "".join(f"{name}: {site}\n" for name, site in plot.placement.items()),
    }
    for name, text in files.items():
        project.joinpath(name).write_text(text, "utf-8")
    options = ("--placement", str(project / "placement.yaml"))
    plane = Plane(project, project / "sites.yaml", folder / "state", *options)
    try:
        told = plane.wait(lambda event: "error" in event or event.get("event") == "ready", READY_S)
        if "error" in told:
            raise Fallen("; ".join(mistake["text"] for mistake in told["error"]["mistakes"]))
        yield _Run(plot, plane)
    finally:
        plane.kill_all()
