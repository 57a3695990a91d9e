"""How few machines, how fast, and is it proven? Table 1 of paper 004 with our methods beside its own.

    python -m bench.packing [--experiments 1,2] [--samples 20] [--methods auto,ga] [--large 20000]

Prints a table and writes `out/packing.json` after every sample; samples that are there already, of the same sources,
are not measured again. Times are of the processor. Pictures like the paper's figures 6 and 7 go beside the file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import measure
from bench.samples import EXPERIMENTS, Experiment, many, sample
from headwater.model.workload import Workload

__all__ = ["main", "markdown", "rows"]

OUT = "out/packing.json"
METHODS = ("rstorm", "rstorm-1.25", "ga", "bestfit", "anneal", "auto")  # rstorm-1.25: told 1.25 times the mean load
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; return the exit code."""
    asked = _parser().parse_args(arguments)
    numbers = [int(each) for each in measure.listed(asked.experiments)]
    methods = measure.listed(asked.methods)
    wrong = [str(each) for each in numbers if each not in EXPERIMENTS]
    wrong += [each for each in methods if each not in METHODS]
    if wrong or asked.samples < 1:
        said = f"unknown: {', '.join(wrong)}" if wrong else f"--samples is {asked.samples}; at least 1 is needed"
        print(f"{said}; experiments are 1 to 7, methods {', '.join(METHODS)}", file=sys.stderr)
        return 2
    file = Path(asked.out)
    report = _kept(file)
    aside = Console(stderr=True)
    for number in numbers:
        for method in methods:
            for index in range(asked.samples):
                key = f"{number}/{method}/{index}"
                if key in report["samples"]:
                    continue
                report["samples"][key] = _measured(sample(EXPERIMENTS[number], index), method, index)
                _write(file, report)
                aside.print(f"experiment {number}, {method}, sample {index}: {report['samples'][key]}", highlight=False)
    if asked.large:
        report["large"] = {"operators": asked.large, **_measured(many(asked.large), "auto", 0)}
        _write(file, report)
    if 1 in numbers:
        _draw(file.parent)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(_table(report))
    if "large" in report:
        console.print(_large(report["large"]), highlight=False)
    console.print(f"The figures are in {file}.", highlight=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.packing", description="Repeat Table 1 of paper 004.")
    parser.add_argument("--experiments", metavar="N,...", default="1,2,3,4,5,6,7", help="only these experiments")
    parser.add_argument("--methods", metavar="A,B", default=",".join(METHODS), help="only these methods")
    parser.add_argument("--samples", metavar="N", type=int, default=20, help="of each experiment (default 20)")
    parser.add_argument("--large", metavar="N", type=int, default=0, help="also one workload of so many operators")
    parser.add_argument("--out", metavar="FILE.json", default=OUT, help=f"where the figures go (default {OUT})")
    return parser


def _kept(file: Path) -> dict[str, Any]:
    """Return the figures that are there already, if they are of the same sources; else none."""
    sources = measure.sources()
    if file.exists():
        report: dict[str, Any] = json.loads(file.read_text("utf-8"))
        if report.get("sources") == sources:
            return report
    return {"machine": measure.machine(), "sources": sources, "samples": {}}


def _run(method: str) -> Callable[[Workload, int], Any]:
    from headwater.pack import measure as judge  # noqa: PLC0415 - compiles
    from headwater.pack import pack  # noqa: PLC0415
    from headwater.pack.loads import loads_of, volume_bound  # noqa: PLC0415
    from headwater.pack.result import Packing  # noqa: PLC0415
    from headwater.pack.simple import rstorm_with  # noqa: PLC0415

    if method != "rstorm-1.25":
        return lambda workload, seed: pack(workload, method, seed)

    def static(workload: Workload, seed: int) -> Packing:
        del seed
        loads = loads_of(workload)
        found = rstorm_with(loads, 1.25)
        assert found.where is not None, "R-Storm always finds a machine"
        assignment = dict(zip(loads.names, map(int, found.where), strict=True))
        return Packing(method, assignment, judge(workload, assignment), volume_bound(loads))

    return static


def _measured(workload: Workload, method: str, seed: int) -> Row:
    run = _run(method)
    begun_s = time.process_time()
    packing = run(workload, seed)
    return {
        "used": packing.used,
        "utilisation": round(packing.utilisation, 5),
        "overload": round(packing.overload, 6),
        "bound": packing.lower_bound,
        "proved": packing.proved,
        "cpu_s": round(time.process_time() - begun_s, 3),
    }


def rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the cells of the table: one row for each experiment and method that was measured."""
    found = []
    for number, experiment in EXPERIMENTS.items():
        for method in METHODS:
            samples = [v for k, v in report["samples"].items() if k.startswith(f"{number}/{method}/")]
            if samples:
                found.append(_row(experiment, method, samples))
    return found


def _row(experiment: Experiment, method: str, samples: Sequence[Row]) -> tuple[str, ...]:
    used = fmean(each["used"] for each in samples)
    paper = {"rstorm": experiment.rstorm, "rstorm-1.25": experiment.rstorm}.get(method, experiment.ga)
    return (
        str(experiment.number),
        method,
        f"{used:.2f}",
        f"{paper:.1f} ({'R-Storm' if method.startswith('rstorm') else 'GA'})",
        f"{100 * (used / paper - 1):+.1f} %",
        f"{100 * fmean(each['utilisation'] for each in samples):.1f} %",
        f"{100 * fmean(each['overload'] for each in samples):.2f} %",
        f"{fmean(each['bound'] for each in samples):.2f}",
        f"{sum(each['proved'] for each in samples)}/{len(samples)}",
        f"{fmean(each['cpu_s'] for each in samples):.3f}",
        f"{max(each['cpu_s'] for each in samples):.3f}",
    )


HEADS = (
    "exp",
    "method",
    "machines",
    "paper",
    "to paper",
    "utilisation",
    "overload",
    "bound",
    "proven",
    "cpu s",
    "most",
)


def _table(report: Mapping[str, Any]) -> Table:
    shown = Table(title="Table 1 of paper 004: mean machines used", title_justify="left", header_style="bold")
    for head in HEADS:
        shown.add_column(head, justify="left" if head == "method" else "right")
    before = None
    for row in rows(report):
        if before not in (None, row[0]):
            shown.add_section()
        before = row[0]
        shown.add_row(*row)
    return shown


def markdown(report: Mapping[str, Any]) -> str:
    """Return the table for a page."""
    lines = [" | ".join(("", *HEADS, "")).strip(), "|" + "---|" * len(HEADS)]
    lines += [" | ".join(("", *row, "")).strip() for row in rows(report)]
    return "\n".join(lines) + "\n"


def _large(row: Mapping[str, Any]) -> str:
    gap = (row["used"] - row["bound"]) / row["used"]
    return (
        f"{row['operators']} operators: {row['used']} machines, bound {row['bound']:.0f}, gap {100 * gap:.2f} %, "
        f"utilisation {100 * row['utilisation']:.2f} %, {row['cpu_s']:.1f} s of processor time"
    )


def _draw(folder: Path) -> None:
    """Draw a sample of experiment 1 as R-Storm packs it and as the proven optimum: figures 6 and 7 of the paper."""
    from headwater.pack import Packing, pack  # noqa: PLC0415
    from headwater.serve.draw_pack import draw  # noqa: PLC0415

    workload = sample(EXPERIMENTS[1], 1)
    for method in ("rstorm", "auto"):
        packing = pack(workload, method)
        assert isinstance(packing, Packing), "the samples can be packed"
        draw(
            workload,
            packing,
            str(folder / f"packing-{method}.png"),
            f"12 operators on {packing.used} machines: {method}",
        )


def _write(file: Path, report: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
