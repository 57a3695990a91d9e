"""What does it bring to make statistics where the data is born? Paper 002, figures 8 and 10.

Two comparisons on the paper's topology, three edges and a cloud: jobs 1 and 3 (statistics of one edge) with job 3 on
the edge against in the cloud, at the paper's rising rates; and all jobs spread out (fog) against all in the cloud, at
a share of those rates from each edge. Every record that job 3 or job 4 has taken in gives a row, so rows are what was
processed.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from headwater.model.files import read_placement
from headwater.model.project import Project
from headwater.model.sites import Sites
from headwater.serve import disk
from headwater.serve.arguments import Search
from headwater.serve.bench import (
    Case,
    Options,
    Stage,
    begin,
    finish,
    ground_table,
    in_rounds,
    only,
    scaled,
    stage,
    step_name,
)
from headwater.serve.bench_figures import estimate, in_ms, median, paired
from headwater.serve.bench_report import Panel, Picture, Report, Table
from headwater.serve.feed import sent_records
from headwater.serve.load import load_sites, shown_name
from headwater.serve.output import Output
from headwater.serve.prepare import expanded, prepared
from headwater.serve.reading import fetched_jars, read
from headwater.serve.trial import Arrival, Outcome, Source, Trial

__all__ = ["GLOBAL", "LOCAL", "RATES_RPS", "bench_traffic", "differential", "processed_share", "traffic_ledger"]

RATES_RPS = (100.0, 500.0, 1000.0)  # from one edge: the last two are the paper's, a message every 2 ms and every ms
LOCAL, GLOBAL = "local-statistics", "global-statistics"
SINKS = {"local_statistics": LOCAL, "global_statistics": GLOBAL}
JOBS = {"job 3 (statistics of an edge)": LOCAL, "job 4 (statistics of all)": GLOBAL}
CURVE_POINTS = 60
EDGE, CLOUD = "edge-a", "dc"


def bench_traffic(options: Options, output: Output) -> int:
    """Run the experiment and return the exit code.

    Raises:
        SpecError: HW1320, and those of the example's files.
        BindError: HW4901, HW4605, and what starting brokers and runners can raise.
    """
    folder = os.path.join(options.examples, "traffic", "paper")
    names = ("fog.yaml", "cloud.yaml", "sites.yaml", "one-edge.yaml", "spark-pipeline.yml")
    begin(options, "traffic/records.py", *(f"traffic/paper/{name}" for name in names))
    project = read(folder, fetched_jars())
    three, one = (load_sites(os.path.join(folder, name)) for name in ("sites.yaml", "one-edge.yaml"))
    cases = [
        *(_edge_case(name, site, project, one, options) for name, site in (("local", EDGE), ("remote", CLOUD))),
        *(_case(name, project, three, folder, options) for name in ("fog", "cloud")),
    ]
    with stage("traffic", three, options) as made:
        outcomes = made.rounds(folder, cases, _kept, traffic_ledger)
        report, verdicts = _report(outcomes, made, options)
        return finish(report, made, options, output, verdicts)


def _edge_case(name: str, site: str, project: Project, sites: Sites, options: Options) -> Case:
    """Return jobs 1 and 3 of one edge at the paper's rates, with job 3 on a site."""
    whole = only(project, "local_statistics")
    whole = scaled(whole, RATES_RPS[-1] / _declared_rps(whole))
    named = {"clean": EDGE, "statistics": site, "local_statistics": site}
    placed = prepared(whole, sites, Search("auto", options.seed), named=named, because=f"as in the paper's {name}")
    source = Source("taxis", os.path.join(options.examples, "traffic"), 1.0)
    return Case(name, Trial(placed, (source,), {"local_statistics": LOCAL}, options.times, steps=RATES_RPS))


def _case(name: str, project: Project, sites: Sites, folder: str, options: Options) -> Case:
    """Return all jobs at a share of the paper's rates, with the placement of its name."""
    whole = scaled(project, options.scale * RATES_RPS[-1] / _declared_rps(project))
    file = os.path.join(folder, f"{name}.yaml")
    known = whole.pipeline.by_name
    named = read_placement(disk.read(file), shown_name(file), expanded(whole, sites).pipeline, sites, known)
    placed = prepared(whole, sites, Search("auto", options.seed), named=named, because=f"as in the paper's {name}")
    source = Source("taxis", os.path.join(options.examples, "traffic"), options.scale)
    return Case(name, Trial(placed, (source,), SINKS, options.times, steps=RATES_RPS))


def _declared_rps(project: Project) -> float:
    return next(one.rate_rps for one in project.pipeline.operators if one.is_source)


def processed_share(outcome: Outcome, topic: str) -> float:
    """Return which share of the records born in the watched stretch were processed before its end."""
    born = outcome.watched(topic)
    return sum(one.written_ms <= outcome.end_ms for one in born) / len(born) if born else 0.0


def differential(fog: float, cloud: float) -> float:
    """Return the paper's differential output rate D, in percent; above 0: fog has processed more.

    >>> differential(200.0, 150.0)
    25.0
    """
    return 100 / fog * (fog - cloud) if fog else 0.0


def traffic_ledger(outcome: Outcome) -> dict[str, dict[str, int]]:
    """Return for each topic how many rows were owed and came, and how many were lost or doubled."""
    owed = sum(
        _is_clean(value.decode())
        for fed in outcome.fed
        for _, _, value in sent_records(
            fed.generator, fed.site, fed.seed, fed.records, settings=fed.settings, start=fed.start
        )
    )
    found = {}
    for topic, arrivals in outcome.arrivals.items():
        origins = {one.origin for one in arrivals}
        doubled, lost = len(arrivals) - len(origins), owed - len(origins)
        found[topic] = {"owed": owed, "came": len(arrivals), "lost": lost, "doubled": doubled}
    return found


def _is_clean(line: str) -> bool:
    """Return whether job 1 lets a line pass."""
    row = next(csv.reader([line]), [])
    try:
        _, _, time, lat, lon, speed, _ = row
        datetime.fromisoformat(time)
        return 39 <= float(lat) <= 41 and 115 <= float(lon) <= 118 and 0 <= float(speed) <= 150
    except ValueError:
        return False


def _latencies(outcome: Outcome, topic: str) -> list[float]:
    return [one.latency_s for one in outcome.watched(topic)]


def _kept(outcome: Outcome) -> Mapping[str, Any]:
    return {
        "rate_factor": outcome.factor,
        "median_latency_s": {topic: median(_latencies(outcome, topic)) for topic in outcome.arrivals},
        "processed_share": {topic: processed_share(outcome, topic) for topic in outcome.arrivals},
    }


def _report(outcomes: Mapping[str, list[Outcome]], made: Stage, options: Options) -> tuple[Report, Mapping[str, Any]]:
    most = RATES_RPS[-1]
    local, remote = (_medians(outcomes[step_name(name, most)], LOCAL) for name in ("local", "remote"))
    gap, near, far = paired(remote, local), estimate(local), estimate(remote)
    balance = made.balance()
    rows_8, rows_10 = [], []
    curves: dict[str, list[tuple[float, float, float]]] = {job: [] for job in JOBS}
    for rate in RATES_RPS:
        pair = {name: outcomes[step_name(name, rate)] for name in ("local", "remote")}
        found = {name: estimate(_medians(one, LOCAL)) for name, one in pair.items()}
        counts = {name: estimate([_written(one, LOCAL) for one in each]) for name, each in pair.items()}
        rows_8.append(
            (
                f"{rate:g}/s",
                in_ms(found["local"], 1),
                in_ms(found["remote"], 1),
                f"{found['remote'].mean / found['local'].mean:.2f}",
                f"{counts['local'].mean:.0f}",
                f"{counts['remote'].mean:.0f}",
            )
        )
        for job, topic in JOBS.items():
            fog, cloud = (outcomes[step_name(name, rate)] for name in ("fog", "cloud"))
            shares = [(processed_share(a, topic), processed_share(b, topic)) for a, b in zip(fog, cloud, strict=True)]
            whole = estimate([differential(a, b) for a, b in shares])
            curves[job].append((rate * options.scale, whole.mean, whole.half_width or 0.0))
            rows_10.append(
                (
                    f"{rate * options.scale:g}/s",
                    job,
                    f"{whole.mean:+.2f} %" + ("" if whole.half_width is None else f" ± {whole.half_width:.2f}"),
                    in_ms(estimate(_medians(fog, topic)), 1),
                    in_ms(estimate(_medians(cloud, topic)), 1),
                )
            )
    sentences = (
        f"At {most:g} records a second, statistics made on the edge count a record {in_ms(near, 1)} after its birth, "
        f"those made in the cloud after {in_ms(far, 1)}: {far.mean / near.mean:.2f} times as long.",
        f"Of {balance.owed} rows that were owed, {balance.lost} were lost and {balance.doubled} came twice.",
    )
    tables = (
        Table(
            "Statistics of one edge, made there or in the cloud (figure 8)",
            ("rate", "local", "remote", "remote / local", "counted locally", "counted remotely"),
            tuple(rows_8),
            "Age of a record when it is counted, median; and records counted in the watched stretch. The paper: the "
            "count rises more slowly in the cloud at a message every 2 ms, and the more so at one every ms.",
        ),
        Table(
            "All jobs spread out against all in the cloud (figure 10)",
            ("rate of each edge", "job", "D", "fog", "cloud"),
            tuple(rows_10),
            "D = 100 / F x (F - C) of what was processed in the watched stretch, and the age of a record when it was. "
            "The paper: above 0 for job 3, below 0 for job 4 at low rates and close to 0 at high ones.",
        ),
        ground_table(made),
    )
    ways = {name: outcomes[step_name(name, most)][0] for name in ("local", "remote")}
    picture = Picture(
        "traffic",
        "Statistics where the data is born, and elsewhere",
        (
            Panel(
                f"counted at {most:g} records/s (figure 8 c)",
                "lines",
                "records",
                {name: _curve(one, LOCAL) for name, one in ways.items()},
                "s",
            ),
            Panel(
                "age of a record when it is counted (figure 8)",
                "lines",
                "ms",
                {
                    name: [
                        (rate, value.mean * 1000, (value.half_width or 0.0) * 1000)
                        for rate in RATES_RPS
                        for value in [estimate(_medians(outcomes[step_name(name, rate)], LOCAL))]
                    ]
                    for name in ("local", "remote")
                },
                "records/s",
            ),
            Panel("differential output rate D (figure 10)", "lines", "%", curves, "records/s of each edge"),
        ),
    )
    verdicts = {
        "local_s": near.mean,
        "remote_s": far.mean,
        "is_local_faster": gap.mean > 0 and (gap.half_width is None or gap.low > 0),
        "lost": balance.lost,
        "doubled": balance.doubled,
    }
    title = f"Traffic: {in_rounds(options)}; fog and cloud at {options.scale:g} of the paper's rates"
    return Report(title, sentences, tables, (picture,)), verdicts


def _medians(outcomes: Sequence[Outcome], topic: str) -> list[float]:
    return [median(_latencies(one, topic)) for one in outcomes]


def _written(outcome: Outcome, topic: str) -> int:
    """Return how many records born in the watched stretch were counted before its end."""
    return sum(one.written_ms <= outcome.end_ms for one in outcome.watched(topic))


def _curve(outcome: Outcome, topic: str) -> list[tuple[float, float, float]]:
    """Return how the count rises in the first second of the watched stretch, where a delay can be seen."""
    born: Iterable[Arrival] = outcome.watched(topic)
    written = sorted(one.written_ms - outcome.begin_ms for one in born)
    times = [number * 1000 / CURVE_POINTS for number in range(CURVE_POINTS + 1)]
    return [(time_ms / 1000, float(sum(one <= time_ms for one in written)), 0.0) for time_ms in times]
