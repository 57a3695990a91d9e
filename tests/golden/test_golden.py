"""Has anything changed that nobody meant to change? Recorded answers, written again by `make golden`.

The *.txt beside this file are the record: F of every method by problem and seed, the main messages, and what
a person sees. `HEADWATER_GOLDEN=write` writes them; the difference is for a reviewer to judge.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench import instances
from headwater.cost.problem import Problem
from headwater.place import METHODS, Prepared, Result, place
from headwater.serve.main import main

HERE = Path(__file__).parent
FIRE = HERE.parent.parent / "examples" / "fire"
SEEDS = range(3)

SITES = """\
sites:
  leaf: {kind: leaf, slots: 1}
  hub: {slots: 0}
  root: {kind: root, slots: 1}
links:
  - {between: [leaf, hub], latency: 10 ms, bandwidth: 1 Mbit/s}
  - {between: [hub, root], latency: 10 ms, bandwidth: 1 Mbit/s}
"""
PIPELINE = """\
pipeline: small
operators:
  in: {source: true, rate: 100/s, size: 10 kB}
  out: {inputs: [in], sink: true}
"""


def check(name: str, text: str) -> None:
    """Compare with the record, or write it when that is asked for."""
    path = HERE / f"{name}.txt"
    if os.environ.get("HEADWATER_GOLDEN") == "write":
        path.write_text(text, "utf-8")
    assert path.exists(), f"no record {path.name}; 'make golden' writes it"
    assert text == path.read_text("utf-8"), f"{path.name} has changed; 'make golden' writes it again, review the diff"


def graph_problem() -> Problem:
    rng = np.random.default_rng(11)
    sites = instances.random_graph(rng, 12)
    leaves = [site.name for site in sites.sites if site.kind == "leaf"]
    return Problem(instances.layered_pipeline(rng, 12, leaves), sites)


PROBLEMS = {
    "fire-x1": lambda: instances.fire(1),
    "fire-x2": lambda: instances.fire(2),
    "tree-50x10": lambda: instances.tree_problem(50, 10),
    "graph-12x12": graph_problem,
}
# these prove the tree in over 20 s each, too long for every save, and under a wall clock of 60 s in HiGHS
TOO_LONG = {"tree-50x10": ("exact", "auto")}


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_method_comes_to_the_same_f_as_ever(name: str) -> None:
    problem = PROBLEMS[name]()
    prepared = Prepared(problem)
    lines = [f"{name}: F by method and seed", f"{'method':10}" + "".join(f"{seed:>16}" for seed in SEEDS)]
    for method in METHODS:
        if method == "exhaustive" or method in TOO_LONG.get(name, ()):
            continue
        row = []
        for seed in SEEDS:
            answer = place(problem, method, seed, prepared=prepared)
            assert isinstance(answer, Result)
            row.append(f"{answer.f:16.10f}")
        lines.append(f"{method:10}" + "".join(row))
    check(f"f-{name}", "\n".join(lines) + "\n")


WRONG = {
    "cycle": (PIPELINE.replace("[in]", "[in, out]"), SITES),
    "unknown site": (PIPELINE.replace("size: 10 kB", "size: 10 kB, at: [leef]"), SITES),
    "negative rate": (PIPELINE.replace("100/s", "-100/s"), SITES),
    "two links": (PIPELINE, SITES + "  - {between: [hub, leaf], latency: 1 ms, bandwidth: 1 Mbit/s}\n"),
    "unit of the wrong kind": (PIPELINE, SITES.replace("10 ms", "10 MB")),
    "empty file": ("", SITES),
    "unknown key": (PIPELINE.replace("rate:", "rates:"), SITES),
    "no way between sites": (PIPELINE, SITES.replace("  - {between: [hub, root]", "  # {between: [hub, root]")),
    "too few slots": (PIPELINE + "  more: {inputs: [in], sink: true}\n", SITES),
    "with across kinds": (PIPELINE.replace("sink: true", "sink: true, with: [in]"), SITES),
}


def run(capsys: pytest.CaptureFixture[str], words: Sequence[str]) -> tuple[int, str, str]:
    code = main(words)
    caught = capsys.readouterr()
    return code, caught.out, caught.err


def test_the_main_messages_read_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    parts = []
    for title, (pipeline, sites) in WRONG.items():
        Path("pipeline.yaml").write_text(pipeline)
        Path("sites.yaml").write_text(sites)
        code, out, err = run(capsys, ["place", "pipeline.yaml", "sites.yaml"])
        parts.append(f"# {title}: exit {code}\n{neat(out + err)}")
    check("messages", "\n".join(parts))


def neat(text: str) -> str:
    """Return what a command printed with times masked and the space between columns made even."""
    text = re.sub(r"in [\d.]+ (us|ms|s|min)(?= \(|$)", "in TIME", text, flags=re.MULTILINE)
    text = re.sub(r"[\d.]+ (us|ms|s|min)\*?\s+(yes|no)\b", r"TIME  \2", text)
    text = re.sub(r"\u2500+", "\u2500", text)
    lines = (re.sub(r" {2,}", "  ", line.rstrip()) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("command", ["place", "compare"])
def test_a_person_sees_the_same_as_ever(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    code, out, _ = run(capsys, [command, str(FIRE / "fire.yaml"), str(FIRE / "flat.yaml")])
    assert code == 0
    check(command, neat(out))
