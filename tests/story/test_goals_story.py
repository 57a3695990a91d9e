"""Do sites hold latency goals by themselves, whatever dies? Real Spark, real control groups, every record counted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headwater.bind import cgroup
from headwater.bind.limiter import Limiter
from tests.control import Control, Feed, control, job, sites_text

SITE = "s1"
pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.skipif(cgroup.find() is None, reason="control groups may not be written here"),
]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    with control(tmp_path_factory.mktemp("goals"), sites_text((SITE, "s2"))) as found:
        found.upload()
        yield found


def agent_folder(plane: Control) -> Path:
    return plane.state / "agents" / SITE


def told(plane: Control) -> dict[str, Any]:
    sites = {one["name"]: one for one in plane.call("GET", "/sites")["sites"]}
    found: dict[str, Any] = sites[SITE]["told"].get("goals", {})
    return found


def entries(plane: Control) -> list[dict[str, Any]]:
    """Return what was decided; a line that is just being written is left out."""
    file = agent_folder(plane) / "decisions.jsonl"
    lines = file.read_text("utf-8").split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def limits(plane: Control) -> dict[str, float | None]:
    """Return the processor limits as the kernel has them."""
    instance = (agent_folder(plane) / "instance").read_text("ascii").strip()
    limiter = Limiter(f"site-{instance[:12]}", cgroup.find(), lambda _: None)
    return {name: one.cores for name, one in limiter.limits().items()}


def test_goals_are_held_without_the_controller_and_by_an_agent_that_was_killed(plane: Control) -> None:
    feeds = {}
    for name in ("first", "last"):
        plane.ensure_topics(SITE, f"{name}-in")
        plane.compose(name, [job(name, SITE, (SITE, f"{name}-in"), (SITE, f"{name}-out"))], wait_s=200)
        feeds[name] = Feed(plane.brokers[SITE], f"{name}-in", 50.0)
    plane.until(lambda: len(plane.read(SITE, "last-out")) > 50, "records come out")
    assert not told(plane)["is_on"], "nobody has a goal, so nothing is limited"
    assert not limits(plane)

    plane.call("PUT", "/goals/first", {"class": "gold"})
    plane.call("PUT", "/goals/last", {"class": "bronze", "p99_s": 2.0})
    plane.until(lambda: len(told(plane).get("runners", {})) == 2, "both are held", 30.0)
    rows = told(plane)["runners"]
    assert {name: (row["class"], row["goal_s"]) for name, row in rows.items()} == {
        "first": ("gold", 0.3),
        "last": ("bronze", 2.0),
    }
    assert all(row["because"] and row["memory"] for row in rows.values())
    plane.until(lambda: set(limits(plane)) == {"first", "last"}, "the kernel knows the limits", 30.0)

    # An agent that is killed leaves the limits and all that runs; the next one goes on from there.
    set_before = limits(plane)
    runners = {name: pid for name, pid in plane.pids().items() if name.startswith(f"runner {SITE}")}
    agent = plane.pids()[f"agent {SITE}"]
    known = len(entries(plane))
    os.kill(agent, signal.SIGKILL)
    assert limits(plane).keys() == set_before.keys(), "limits stay"
    plane.until(lambda: plane.pids().get(f"agent {SITE}", agent) != agent, "another agent is there", 60.0)
    plane.until(lambda: _begun_after(plane, known) is not None, "it goes on", 30.0)
    first = _begun_after(plane, known)
    assert first is not None
    assert first["shares"].keys() == set_before.keys(), "it knows what was set"
    assert set(first["known"]["names"]) == set_before.keys(), "and what the one before it knew"
    step = next(one for one in entries(plane)[known:] if one["kind"] == "step")
    assert step["decided"].keys() == set_before.keys(), "whoever has not answered yet is not forgotten"
    assert all(psutil.Process(pid).nice() == 0 for pid in runners.values()), "agents come first, runners do not"
    assert {name: pid for name, pid in plane.pids().items() if name.startswith(f"runner {SITE}")} == runners

    # Without a controller, decisions go on, second by second.
    os.kill(plane.pids()["controller"], signal.SIGSTOP)
    try:
        count = len(entries(plane))
        plane.until(lambda: len(entries(plane)) >= count + 3, "decisions go on", 30.0)
    finally:
        os.kill(plane.pids()["controller"], signal.SIGCONT)

    plane.call("DELETE", "/goals/first")
    plane.call("DELETE", "/goals/last")
    plane.until(lambda: not limits(plane), "nothing is limited any more", 30.0)
    for name, feed in feeds.items():
        count = feed.stop()
        plane.until(lambda name=name, count=count: len(plane.read(SITE, f"{name}-out")) >= count, f"all of {name}")  # type: ignore[misc]
        assert sorted(map(int, plane.read(SITE, f"{name}-out"))) == list(range(count)), "none lost, none doubled"


def _begun_after(plane: Control, count: int) -> dict[str, Any] | None:
    """Return the beginning of decisions after so many entries, once a decision has followed it."""
    found = entries(plane)[count:]
    begins = [one for one in found if one["kind"] == "begin"]
    return begins[0] if begins and any(one["kind"] == "step" for one in found) else None
