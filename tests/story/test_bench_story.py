"""Does an experiment go from an empty machine to a report? The command as a user gives it, on real parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.testbed.bed import leftovers, probe

ROOT = Path(__file__).parents[2]
CUT_S = 10.0

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or not probe().is_enough, reason="networks of their own need root"),
]


def test_fire_outlives_a_cut_link_and_the_report_says_so(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "headwater.serve.main", "bench", "cut", "--json", "--out", str(tmp_path / "out")]
    words += ["--scale", "0.05", "--warm", "10s", "--for", "25s", "--cut", f"{CUT_S:g}s"]
    before = set(leftovers())
    ran = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    verdicts = json.loads(ran.stdout)["verdicts"]
    assert (verdicts["lost"], verdicts["doubled"]) == (0, 0)
    assert verdicts["owed"] > 50
    result = json.loads((tmp_path / "out" / "result.json").read_text("utf-8"))
    (trial,) = result["trials"]
    assert trial["cores"]["dc"] > 0
    assert len(result["ground"]) == 2 * 2 * 2, "two links, two ways, delay and rate"
    page = (tmp_path / "out" / "report.md").read_text("utf-8")
    assert "0 were lost and 0 came twice" in page
    assert (tmp_path / "out" / "cut.png").read_bytes().startswith(b"\x89PNG")
    greatest_s = max(one for one in trial["latencies_s"])
    assert greatest_s > CUT_S / 2, "the link was not cut"
    assert set(leftovers()) <= before, "the experiment has left a testbed behind"
