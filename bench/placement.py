"""How good and how fast is placement? One command: tables for the reader, JSON for programs.

Run it with `python -m bench.placement`; docs/benchmarks.md says what each section measures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import measure
from bench.sections import METHODS, SECTIONS, Section, Settings
from bench.tables import LAYOUTS, table

__all__ = ["main"]

OUT = "out/placement.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; return the exit code."""
    asked = _parser().parse_args(arguments)
    problem = _mistake(asked)
    if problem:
        print(problem, file=sys.stderr)
        return 2
    settings = _settings(asked)
    console, aside = Console(width=None if sys.stdout.isatty() else 160), Console(stderr=True)
    report: dict[str, Any] = {"machine": measure.machine(), "sources": measure.sources(), "quick": settings.is_quick}
    report["sections"] = {}
    console.print(_facts(report["machine"]))
    has_failed = False
    start = time.perf_counter()
    with aside.status("compiling the search kernels unless that has been done") as status:

        def run(title: str, job: Mapping[str, Any]) -> dict[str, Any]:
            nonlocal has_failed
            status.update(title)
            if not aside.is_terminal:
                aside.print(f"{time.perf_counter() - start:6.0f} s  {title}", highlight=False, soft_wrap=True)
            answer = measure.run(job)
            has_failed = has_failed or bool(answer.get("failed"))
            return answer

        run("compiling the search kernels unless that has been done", {"kind": "compile"})
        for section in _wanted(asked):
            rows = section.measure(section, settings, run)
            report["sections"][section.name] = rows
            console.print(table(section.title, LAYOUTS[section.name], rows))
            _write(Path(asked.out), report)
    report["seconds"] = time.perf_counter() - start
    report["sources_changed"] = report["sources"] != measure.sources()
    _write(Path(asked.out), report)
    if report["sources_changed"]:
        console.print("The sources changed while they were measured: the figures are of several versions.")
    console.print(f"{report['seconds']:.0f} s in all. The figures are in {asked.out}.", highlight=False)
    return 70 if has_failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description="Measure placement.")
    parser.add_argument("--only", metavar="NAME,...", default="", help="only these sections or problems")
    parser.add_argument("--methods", metavar="A,B", default="", help="only these methods, and hlf to compare with")
    parser.add_argument("--seeds", metavar="N", type=int, default=10, help="seeds of annealing; at most 5 for exact")
    parser.add_argument("--out", metavar="FILE.json", default=OUT, help=f"where the figures go (default {OUT})")
    parser.add_argument("--quick", action="store_true", help="small problems and short searches: two minutes")
    return parser


def _mistake(asked: argparse.Namespace) -> str:
    """Return what is wrong with the options; empty where nothing is."""
    cases = {case for section in SECTIONS.values() for case in (*section.cases, *section.quick)}
    for name in measure.listed(asked.only):
        if name not in SECTIONS and name not in cases:
            return f"no section or problem is called '{name}'; sections: {', '.join(SECTIONS)}; {_some(cases)}."
    for name in measure.listed(asked.methods):
        if name not in METHODS:
            return f"no method is called '{name}'; there are {', '.join(METHODS)}."
    return "" if asked.seeds >= 1 else f"--seeds is {asked.seeds}; it must be at least 1."


def _some(cases: set[str]) -> str:
    return f"problems: {', '.join(sorted(case for case in cases if not case.startswith('mesh')))}, mesh-..."


def _settings(asked: argparse.Namespace) -> Settings:
    only = tuple(name for name in measure.listed(asked.only) if name not in SECTIONS)
    chosen = measure.listed(asked.methods) or METHODS
    if asked.quick:
        return Settings(only, chosen, min(asked.seeds, 3), 5.0, 1, 2, is_quick=True)
    return Settings(only, chosen, asked.seeds)


def _wanted(asked: argparse.Namespace) -> list[Section]:
    """Return the sections that are named, or all; of those the ones that hold a named problem."""
    names = measure.listed(asked.only)
    sections = [section for section in SECTIONS.values() if section.name in names] or list(SECTIONS.values())
    cases = {name for name in names if name not in SECTIONS}
    held = [s for s in sections if not cases or not cases.isdisjoint(s.quick if asked.quick else s.cases)]
    return held


def _facts(machine: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return (
        f"{machine['cores']} cores, {machine['system']}, load {machine['load_at_start']} at the start; "
        f"Python {machine['python']}, {packages}"
    )


def _write(file: Path, report: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
