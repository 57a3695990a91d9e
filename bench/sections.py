"""What is measured?

One function for each section of the benchmark; each takes `Settings` and a way to run jobs and gives rows
that JSON can hold. `SECTIONS` is a plain mapping from names to sections, in the order in which they run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bench.measure import ROOT, Run, spread

__all__ = ["METHODS", "SECTIONS", "Section", "Settings"]

METHODS = ("td", "hlf", "sd", "ts", "ga", "anneal", "exact", "exhaustive", "auto")
REFERENCE = "hlf"  # the share of the way to the bound is counted from here
LARGE = "tree-5000x10000"
FIRE = ("examples/fire/fire.yaml", "examples/fire/flat.yaml")
DEPTHS = (3, 6, 10, 15)  # layers of the pipelines that exact is given
MOST_GRAPHS = 5  # random graphs for each depth
SCALE_FENCE_S = 600.0

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is measured."""

    only: tuple[str, ...] = ()  # problems; empty: all
    methods: tuple[str, ...] = METHODS
    seeds: int = 10
    fence_s: float = 60.0  # for each search
    repeats: int = 3  # of whole commands
    rounds: int = 7  # of evaluation speed
    is_quick: bool = False

    def pick(self, whole: tuple[str, ...], quick: tuple[str, ...]) -> tuple[str, ...]:
        """Return the problems of a section that are asked for."""
        cases = quick if self.is_quick else whole
        return tuple(case for case in cases if not self.only or case in self.only)


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the benchmark."""

    name: str
    title: str
    cases: tuple[str, ...]  # every problem of it
    quick: tuple[str, ...]  # those of a quick run
    measure: Callable[[Section, Settings, Run], list[Row]]


def place_job(case: str, method: str, fence_s: float, is_whole: bool = True) -> Mapping[str, Any]:
    """Return a job that places a problem; `is_whole` counts preparing the network as part of the time."""
    return {"kind": "place", "case": case, "method": method, "seed": 0, "fence_s": fence_s, "is_whole": is_whole}


def methods(section: Section, settings: Settings, run: Run) -> list[Row]:
    """Return a row for every problem and method."""
    wanted = [name for name in METHODS if name in settings.methods or name == REFERENCE]
    rows: list[Row] = []
    for case in settings.pick(section.cases, section.quick):
        some: list[Row] = []
        for method in wanted:
            answer = run(f"{case}: {method}", place_job(case, method, settings.fence_s, is_whole=False))
            some.append({"case": case, "method": method, **answer})
            if answer.get("left_out", "").startswith("no file"):
                some = [{"case": case, "method": "all", **answer}]
                break
        rows += judged(some)
    return rows


def judged(rows: list[Row]) -> list[Row]:
    """Return rows of one problem with their gap to the best bound of any of them, and how much HLF left to gain."""
    bound = max((row["lower_bound"] for row in rows if "f" in row), default=0.0)
    start = next((row["f"] for row in rows if row["method"] == REFERENCE and "f" in row), None)
    return [{**row, **_against(row["f"], bound, start)} if "f" in row else row for row in rows]


def _against(f: float, bound: float, start: float | None) -> Row:
    gap = max(0.0, f - bound) / max(f, 1e-12)
    closed = None if start is None or start - bound <= 1e-12 else (start - f) / (start - bound)
    return {"best_bound": bound, "gap_to_best": gap, "closed": closed}


def command(section: Section, settings: Settings, run: Run) -> list[Row]:
    """Return a row for every command line, measured from outside."""
    program = str(Path(sys.executable).parent / "headwater")
    fire = tuple(str(ROOT / name) for name in FIRE)
    rows = []
    for case in settings.pick(section.cases, section.quick):
        if case == "help":
            rows.append(_timed(case, "headwater --help", (program, "--help"), settings, run))
        elif case == "fire":
            shown = "headwater place fire.yaml flat.yaml"
            rows.append(_timed(case, shown, (program, "place", *fire, "--json"), settings, run))
        else:
            rows.append(_large(case, program, settings, run))
    return rows


def _timed(case: str, shown: str, arguments: tuple[str, ...], settings: Settings, run: Run) -> Row:
    job = {"kind": "command", "arguments": arguments, "keep": case != "help"}
    answers = [run(f"{shown} ({i + 1} of {settings.repeats})", job) for i in range(settings.repeats)]
    if any("left_out" in answer for answer in answers):
        return {"case": case, "command": shown, **next(answer for answer in answers if "left_out" in answer)}
    row: Row = {
        "case": case,
        "command": shown,
        "seconds": spread([answer["seconds"] for answer in answers]),
        "cpu_s": spread([answer["cpu_s"] for answer in answers]),
        "peak_bytes": max(answer["peak_bytes"] for answer in answers),
    }
    if case != "help":
        said = json.loads(answers[-1]["output"])
        row |= {"f": said["score"]["f"], "lower_bound": said["lower_bound"], "proved": said["proved"]}
    return row


def _large(case: str, program: str, settings: Settings, run: Run) -> Row:
    """Write a problem to files, place it from there, and compare with HLF."""
    with tempfile.TemporaryDirectory() as folder:
        files = (str(Path(folder) / "pipeline.yaml"), str(Path(folder) / "sites.yaml"))
        written = run(f"writing {case}", {"kind": "files", "case": case, "pipeline": files[0], "sites": files[1]})
        shown = f"headwater place pipeline.yaml sites.yaml ({case})"
        row = _timed(case, shown, (program, "place", *files, "--json"), settings, run)
        start = run(
            f"{case} by {REFERENCE}",
            {
                "kind": "command",
                "arguments": (program, "place", *files, "--method", REFERENCE, "--json"),
                "keep": True,
            },
        )
    if "f" in row and "output" in start:
        said = json.loads(start["output"])
        bound = max(row["lower_bound"], said["lower_bound"])
        row |= {"hlf_f": said["score"]["f"], **written, **_against(row["f"], bound, said["score"]["f"])}
    return row


def speed(section: Section, settings: Settings, run: Run) -> list[Row]:
    """Return evaluations a second, four ways, for every problem."""
    return [
        {"case": case, **run(f"{case}: evaluations", {"kind": "speed", "case": case, "rounds": settings.rounds})}
        for case in settings.pick(section.cases, section.quick)
    ]


def exact(section: Section, settings: Settings, run: Run) -> list[Row]:
    """Return for every problem whether exact proved its answer, and in what time."""
    cases = settings.pick(section.cases, section.quick)
    few = [case for case in cases if "-seed" not in case or int(case.rpartition("-seed")[2]) < settings.seeds]
    return [{"case": case, **run(f"{case}: exact", place_job(case, "exact", settings.fence_s))} for case in few]


def scale(section: Section, settings: Settings, run: Run) -> list[Row]:
    """Return seconds and memory of auto on very many sites."""
    cases = settings.pick(section.cases, section.quick)
    return [{"case": case, **run(f"{case}: auto", place_job(case, "auto", SCALE_FENCE_S))} for case in cases]


def anneal(section: Section, settings: Settings, run: Run) -> list[Row]:
    """Return how many seeds of annealing reach the proven optimum."""
    return [
        {
            "case": case,
            "seeds": settings.seeds,
            **run(
                f"{case}: {settings.seeds} seeds",
                {"kind": "seeds", "case": case, "seeds": settings.seeds, "fence_s": settings.fence_s},
            ),
        }
        for case in settings.pick(section.cases, section.quick)
    ]


FIRES = ("fire-x1", "fire-x2", "fire-x4")
TREES = ("tree-50x10", "tree-200x100", "tree-1000x1000", LARGE)
MAPS = ("graph-Abilene", "graph-Geant2012", "graph-Cogentco", "graph-Kdl")
MESHES = tuple(f"mesh-20x60-layers{depth}-seed{seed}" for depth in DEPTHS for seed in range(MOST_GRAPHS))

SECTIONS: Mapping[str, Section] = MappingProxyType(
    {
        section.name: section
        for section in (
            Section(
                "methods",
                "Every method on every problem",
                (*FIRES, *TREES, *MAPS),
                ("fire-x1", "tree-50x10", "graph-Abilene"),
                methods,
            ),
            Section(
                "command", "Whole commands, from start to answer", ("help", "fire", LARGE), ("help", "fire"), command
            ),
            Section("speed", "Evaluations a second on one core", TREES, TREES[:2], speed),
            Section(
                "exact",
                "Proofs: the fire job, and 20 operators on random graphs of 60 sites",
                (*FIRES, *MESHES),
                ("fire-x1", "mesh-20x60-layers3-seed0", "mesh-20x60-layers10-seed0"),
                exact,
            ),
            Section(
                "scale",
                "auto with 1 000 operators on very many sites",
                ("tree-1000x100000", "tree-1000x1000000"),
                ("tree-1000x10000",),
                scale,
            ),
            Section("anneal", "Seeds with which anneal reaches the proven optimum", FIRES, FIRES[:1], anneal),
        )
    }
)
