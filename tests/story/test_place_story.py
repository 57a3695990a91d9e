"""Whole commands on real files, each in a process of its own, as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.serve.main import main

ROOT = Path(__file__).parent.parent.parent
FIRE = (str(ROOT / "examples/fire/fire.yaml"), str(ROOT / "examples/fire/flat.yaml"))
KDL = ROOT.parent / "shared" / "data" / "topologies" / "Kdl.graphml"
QUICK_S = 20.0  # for a refusal, start of the interpreter on a busy machine included

SITES = """\
sites:
  leaf: {kind: leaf, slots: 2}
  root: {kind: root, slots: 2}
links:
  - {between: [leaf, root], latency: 10 ms, bandwidth: 1 Mbit/s}
"""
PIPELINE = """\
pipeline: small
operators:
  in: {source: true, rate: 100/s, size: 10 kB}
  step: {inputs: [in]}
  out: {inputs: [step], sink: true}
"""


def headwater(*words: str, cwd: Path | None = None, timeout: float = 100.0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater.serve.main", *words]
    environment = {name: value for name, value in os.environ.items() if name != "HEADWATER_DEBUG"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, cwd=cwd or ROOT, env=environment
    )


def answered(*words: str, cwd: Path | None = None) -> Any:
    done = headwater(*words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


BROKEN = {
    "cycle": (PIPELINE.replace("inputs: [in]", "inputs: [in, later]") + "  later: {inputs: [step]}\n", SITES, "HW1009"),
    "unknown site": (PIPELINE.replace("10 kB}", "10 kB, at: [nowhere]}"), SITES, "HW1004"),
    "unknown operator": (PIPELINE.replace("[step]", "[stop]"), SITES, "HW1004"),
    "negative rate": (PIPELINE.replace("100/s", "-100/s"), SITES, "HW1006"),
    "two links": (PIPELINE, SITES + "  - {between: [root, leaf], latency: 1 ms, bandwidth: 1 bit/s}\n", "HW1008"),
    "wrong unit": (PIPELINE, SITES.replace("10 ms", "10 kB"), "HW1006"),
    "empty file": ("", SITES, "HW1002"),
    "not YAML": (PIPELINE, "sites: {a: [", "HW1001"),
    "unknown key": (PIPELINE, SITES.replace("slots: 2}", "slotz: 2}", 1), "HW1003"),
    "wrong type": (PIPELINE, SITES.replace("slots: 2}", "slots: two}", 1), "HW1005"),
    "cut off": (PIPELINE, SITES.replace("links:", "  lost: {}\nlinks:"), "HW1010"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_told_with_its_line_and_exit_code_2(name: str, tmp_path: Path) -> None:
    pipeline, sites, code = BROKEN[name]
    (tmp_path / "pipeline.yaml").write_text(pipeline)
    (tmp_path / "sites.yaml").write_text(sites)
    done = headwater("place", "pipeline.yaml", "sites.yaml", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert code in done.stderr
    assert "Traceback" not in done.stderr
    assert ".yaml" in done.stderr
    assert len(done.stderr) < 2000


def test_the_messages_of_broken_files_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten kinds of mistake, ten messages: nobody is told the same sentence for another fault."""
    seen = set()
    for pipeline, sites, _ in BROKEN.values():
        (tmp_path / "pipeline.yaml").write_text(pipeline)
        (tmp_path / "sites.yaml").write_text(sites)
        assert main(["place", str(tmp_path / "pipeline.yaml"), str(tmp_path / "sites.yaml")]) == 2
        seen.add(capsys.readouterr().err)
    assert len(seen) == len(BROKEN) >= 10


def refused_quickly(tmp_path: Path, *words: str) -> str:
    begun_s = time.monotonic()
    done = headwater("place", *words, cwd=tmp_path)
    assert time.monotonic() - begun_s < QUICK_S
    assert done.returncode == 2, done.stderr[:500]
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 5000
    return done.stderr


def test_fifty_megabytes_of_noise_are_refused_quickly(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "noise.yaml").write_bytes(os.urandom(1 << 20) * 50)
    assert "HW10" in refused_quickly(tmp_path, "pipeline.yaml", "noise.yaml")


def test_a_yaml_bomb_is_refused_quickly(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (tmp_path / "bomb.yaml").write_text("\n".join(lines) + "\nsites: *a11\n")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    assert "HW10" in refused_quickly(tmp_path, "pipeline.yaml", "bomb.yaml")


def test_what_cannot_be_placed_ends_with_exit_code_3_and_reasons(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "sites.yaml").write_text(SITES.replace("slots: 2", "slots: 1"))
    done = headwater("place", "pipeline.yaml", "sites.yaml", cwd=tmp_path)
    assert done.returncode == 3
    assert "no valid placement exists" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    done = headwater("place", "pipeline.yaml", "sites.yaml", "--json", cwd=tmp_path)
    assert done.returncode == 3
    answer = json.loads(done.stdout)
    assert answer["placement"] is None
    assert answer["conflict"]
    assert answer["reasons"]


@pytest.mark.parametrize("method", ["auto", "td", "sd"])
def test_score_agrees_with_what_place_has_said(method: str, tmp_path: Path) -> None:
    placed = answered("place", *FIRE, "--method", method, "--seed", "3")
    (tmp_path / "whole.json").write_text(json.dumps(placed))
    (tmp_path / "bare.json").write_text(json.dumps(placed["placement"]))
    for name in ("whole.json", "bare.json"):
        assert answered("score", *FIRE, str(tmp_path / name)) == placed["score"]
    f, bound = placed["score"]["f"], placed["lower_bound"]
    assert bound <= f
    assert placed["gap"] == pytest.approx((f - bound) / max(f, 1e-12))


@pytest.mark.parametrize("method", ["auto", "ts", "ga"])
def test_the_same_seed_twice_gives_the_same_answer(method: str) -> None:
    one, two = (answered("place", *FIRE, "--method", method, "--seed", "7") for _ in range(2))
    for answer in (one, two):
        assert answer.pop("seconds") > 0
    assert one == two


@pytest.mark.skipif(not KDL.exists(), reason=f"{KDL} is not there: the topologies are shared data, not of this project")
def test_twenty_operators_on_a_network_of_754_sites(tmp_path: Path) -> None:
    done = headwater("sites", "import", str(KDL), "--leaves", "degree-1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    network = json.loads(done.stdout)
    (tmp_path / "sites.json").write_text(json.dumps({key: network[key] for key in ("sites", "links")}))
    kinds = {name: site["kind"] for name, site in network["sites"].items()}
    assert len(kinds) == 754
    lines = ["operators:"]
    leaves = sorted(name for name, kind in kinds.items() if kind == "leaf")[:3]
    lines += [
        f"  in-{i}: {{source: true, rate: 50/s, size: 20 kB, work: 1 ms, at: [{json.dumps(leaf)}]}}"
        for i, leaf in enumerate(leaves)
    ]
    names = [f"in-{i}" for i in range(3)]
    for i in range(16):
        lines.append(f"  step-{i}: {{inputs: [{names[-3]}, {names[-1]}], work: 2 ms, size_factor: 0.4}}")
        names.append(f"step-{i}")
    read = {name for line in lines for name in names if f"[{name}," in line or f", {name}]" in line}
    lines.append(f"  out: {{inputs: [{', '.join(name for name in names if name not in read)}], sink: true}}")
    (tmp_path / "pipeline.yaml").write_text("\n".join(lines) + "\n")
    answer = answered("place", "pipeline.yaml", "sites.json", cwd=tmp_path)
    assert len(answer["placement"]) == 20
    assert answer["score"]["valid"]
    assert answer["lower_bound"] is not None
    assert 0.0 <= answer["lower_bound"] <= answer["score"]["f"]
    assert answer["seconds"] < 60
