"""What does it save to move light operators to the small boxes? Seed 000.

The fire pipeline on a small box, a hub and a data centre, joined by a thin link: once with everything but the
sources in the data centre, once with operators where the search puts them. Measured are the bytes on the thin link,
the age of alerts, and how busy the sites are, all in the same run of the command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.model.sites import Sites
from headwater.model.units import show
from headwater.serve.arguments import Search
from headwater.serve.bench import Case, Options, Stage, begin, finish, ground_table, in_rounds, stage, wan_bytes
from headwater.serve.bench_figures import Estimate, estimate, in_ms, median, quantile
from headwater.serve.bench_fire import ALERTS, SINKS, fire_project, ledger
from headwater.serve.bench_report import Panel, Picture, Report, Table
from headwater.serve.load import load_sites
from headwater.serve.output import Output
from headwater.serve.prepare import prepared
from headwater.serve.trial import Outcome, Source, Trial

__all__ = ["BOX", "CENTRAL", "MOVED", "ROOT", "ThinLink", "bench_offload", "fire_on_thin_link"]

REPORTS_RPS = 125.0  # 100 of trees and 25 of locations, as in paper 001
CENTRAL, MOVED = "all in the data centre", "light operators moved"
BOX, ROOT = "pi", "dc"


@dataclass(frozen=True, slots=True)
class ThinLink:
    """Fire detection over a thin link, in two placements."""

    sites: Sites
    central: Trial
    moved: Trial


def fire_on_thin_link(options: Options) -> ThinLink:
    """Return both trials of the experiment.

    Raises:
        SpecError: those of the example's files.
    """
    folder = os.path.join(options.examples, "fire")
    sites = load_sites(os.path.join(folder, "thin.yaml"))
    project = fire_project(options)
    sources = (Source("tree_source", folder, REPORTS_RPS * options.scale),)
    search = Search("auto", options.seed)
    central = {one.name: BOX if one.is_source else ROOT for one in project.pipeline.operators}
    return ThinLink(
        sites,
        Trial(prepared(project, sites, search, named=central), sources, SINKS, options.times),
        Trial(prepared(project, sites, search), sources, SINKS, options.times),
    )


def bench_offload(options: Options, output: Output) -> int:
    """Run the experiment and return the exit code.

    Raises:
        SpecError: HW1320, and those of the example's files.
        BindError: HW4901, HW4605, and what starting brokers and runners can raise.
    """
    begin(options, "fire/spark-pipeline.yml", "fire/thin.yaml", "fire/fire.profile", "fire/records.py")
    placed = fire_on_thin_link(options)
    cases = [Case(CENTRAL, placed.central), Case(MOVED, placed.moved)]
    with stage("offload", placed.sites, options) as made:
        outcomes = made.rounds(os.path.join(options.examples, "fire"), cases, _kept, ledger)
        report, verdicts = _report(outcomes, made, options)
        return finish(report, made, options, output, verdicts)


def _latencies(outcome: Outcome) -> list[float]:
    return [one.latency_s for one in outcome.watched(ALERTS)]


def _kept(outcome: Outcome) -> Mapping[str, Any]:
    return {"latencies_s": [round(value, 4) for value in _latencies(outcome)]}


def _report(
    outcomes: Mapping[str, Sequence[Outcome]], made: Stage, options: Options
) -> tuple[Report, Mapping[str, Any]]:
    latency = {name: estimate([median(_latencies(one)) for one in found]) for name, found in outcomes.items()}
    wan = {
        name: estimate([8 * wan_bytes(one, made.bed.sites) * 1000 / (one.end_ms - one.begin_ms) for one in found])
        for name, found in outcomes.items()
    }
    faster = latency[CENTRAL].mean / latency[MOVED].mean
    fewer = wan[CENTRAL].mean / wan[MOVED].mean
    balance = made.balance()
    sentences = (
        f"With light operators moved to the small box, alerts are {faster:.1f} times faster "
        f"({in_ms(latency[MOVED])} against {in_ms(latency[CENTRAL])}) and the thin link carries {fewer:.0f} times "
        f"fewer bytes ({_mbit(wan[MOVED])} against {_mbit(wan[CENTRAL])}) than with everything in the data centre, "
        "measured in this run.",
        f"Of {balance.owed} records that were owed, {balance.lost} were lost and {balance.doubled} came twice.",
    )
    rows = []
    for name, found in outcomes.items():
        values = [value for one in found for value in _latencies(one)]
        rows.append(
            (
                name,
                in_ms(latency[name]),
                f"{quantile(values, 0.95) * 1000:.0f} ms",
                show(float(f"{found[0].rt_s or 0:.4g}"), "time"),
                _mbit(wan[name]),
                *(f"{estimate([one.cores.get(site, 0.0) for one in found]).mean:.2f}" for site in _sites(made)),
            )
        )
    heads = (
        "placement",
        "alerts, median",
        "p95",
        "predicted RT",
        "thin link",
        *(f"cores {one}" for one in _sites(made)),
    )
    where = tuple(
        (operator, *(found[0].placement[operator] for found in outcomes.values()))
        for operator in outcomes[MOVED][0].placement
    )
    tables = (
        Table(
            "All in the data centre against operators moved", heads, tuple(rows), "Means over rounds, 95 % interval."
        ),
        Table("Where operators stand", ("operator", *outcomes), where),
        ground_table(made),
    )
    picture = Picture(
        "offload",
        "Everything in the data centre against light operators moved to the box",
        (
            Panel("age of alerts", "boxes", "ms", {
                _short(name): [value * 1000 for one in found for value in _latencies(one)]
                for name, found in outcomes.items()
            }),
            Panel("on the thin link", "bars", "Mbit/s", {
                _short(name): (one.mean / 1e6, (one.half_width or 0.0) / 1e6) for name, one in wan.items()
            }),
            Panel("processor used", "bars", "cores", {
                f"{site}\n{_short(name)}": (estimate([one.cores.get(site, 0.0) for one in found]).mean, 0.0)
                for site in _sites(made)
                for name, found in outcomes.items()
            }),
        ),
    )  # fmt: skip
    verdicts = {
        "times_faster": round(faster, 2),
        "times_fewer_wan_bytes": round(fewer, 1),
        "are_both_lower": faster > 1 and fewer > 1,
        "lost": balance.lost,
        "doubled": balance.doubled,
    }
    title = f"Offload: {options.scale:g} of the paper's rates, {in_rounds(options)}"
    return Report(title, sentences, tables, (picture,)), verdicts


def _sites(made: Stage) -> tuple[str, ...]:
    return tuple(site.name for site in made.bed.sites.sites)


def _short(name: str) -> str:
    return {CENTRAL: "all in dc", MOVED: "moved"}[name]


def _mbit(value: Estimate) -> str:
    return f"{value.mean / 1e6:.3g} Mbit/s"
