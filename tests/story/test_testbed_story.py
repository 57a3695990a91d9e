"""Does a pipeline outlive what a wide-area network does to it? Real links, slow and cut, under a real run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.plane import Plane, plane
from tests.story.test_run_story import DATA, Load, check

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="networks of their own need root"),
]
CUT_S = 20.0


def command(*words: str) -> str:
    whole = [sys.executable, "-m", "headwater.serve.main", "testbed", *words]
    return subprocess.run(whole, capture_output=True, text=True, check=True, timeout=60).stdout


def taken(run: Plane, fragment: str) -> int:
    return next(int(one["in_total"]) for one in run.latest()["fragments"] if one["id"] == fragment)


def test_a_link_that_is_cut_for_a_while_loses_and_doubles_nothing(tmp_path: Path) -> None:
    project, state = DATA / "lanes", tmp_path / "state"
    options = ("--placement", str(project / "three.yaml"), "--emulate")
    with plane(project, project / "sites.yaml", state, *options) as run:
        ready = run.ready()
        bed = ready["testbed"]
        load = Load(run)
        try:
            run.wait(lambda event: event["event"] == "progress" and event["links"][0]["packets"] > 100, 60.0)
            command("link", "pi", "hub", "--name", bed, "--cut")
            time.sleep(CUT_S)  # this is the length of the outage, not a wait for something
            waiting = run.latest()
            command("link", "pi", "hub", "--name", bed, "--restore")
        finally:
            count = load.stop()
        check(run, count, state / "sites" / "dc" / "tables" / "kept")
        assert any(one["dropped"] for one in waiting["links"]), "the link was not cut"
        run.end()
    status = json.loads(command("down", "--json", "--name", bed))
    assert status["removed"] == {bed: []}, "the run has left something behind"
