"""Can what runs be changed, moved and killed without losing a record? The commands and the API as users have them."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.control import Control, Feed, control, job, sites_text

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "examples" / "composition"
RATE_RPS = 100.0
TOWN = "paper"  # one composition after the other, so that runners which are up serve all of them
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    with control(tmp_path_factory.mktemp("control"), (PAPER / "sites.yaml").read_text("utf-8")) as found:
        found.upload()
        yield found


def curl(plane: Control, method: str, path: str, *options: str) -> dict[str, Any]:
    """Call the API as anybody can."""
    command = ["curl", "-sS", "--fail-with-body", "-X", method, "-H", f"Authorization: Bearer {plane.token}", *options]
    done = subprocess.run([*command, f"{plane.url}{path}"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def numbers(plane: Control, site: str, topic: str) -> list[int]:
    return [int(one) for one in plane.read(site, topic)]


def settled(plane: Control, site: str, topic: str, count: int) -> list[int]:
    """Return the numbers of a topic as soon as there are so many."""
    plane.until(lambda: len(plane.read(site, topic)) >= count, f"{count} records in '{topic}'")
    return numbers(plane, site, topic)


def digits(plane: Control, site: str, topic: str) -> int:
    """Return how many records the last row of each window and digit tells of together; rows must only grow."""
    last: dict[tuple[str, int], int] = {}
    for value in plane.read(site, topic):
        row = json.loads(value)
        key = (row["minute"], row["digit"])
        assert row["records"] > last.get(key, 0), "told twice, or out of order"
        last[key] = row["records"]
    return sum(last.values())


def process_of(plane: Control, site: str, composition: str) -> int:
    return plane.pids()[f"runner {site} {composition}"]


def test_the_papers_listings_and_back_touch_only_what_differs_and_lose_nothing(plane: Control) -> None:
    curl(plane, "PUT", "/uploads/jobs.py", "--data-binary", f"@{PAPER / 'jobs.py'}")
    first, second = PAPER / "listing-1.1.yaml", PAPER / "listing-1.2.yaml"
    done = curl(plane, "PUT", f"/compositions/{TOWN}?wait_s=200", "--data-binary", f"@{first}")
    assert done["is_done"], done
    assert {one["job"]: one["bucket"] for one in done["plan"]["changes"]} == dict.fromkeys("ABCD", "start")
    assert _headwater(plane, "plan", str(second.relative_to(ROOT)), "--name", TOWN) in (ROOT / "README.md").read_text(
        "utf-8"
    )
    from_a = Feed(plane.brokers["edge-1"], "T-1", RATE_RPS)
    from_b = Feed(plane.brokers["edge-2"], "T-2", RATE_RPS, start=1_000_000)
    plane.until(lambda: len(plane.read("dc", "T-D-total")) > 300, "records come out")
    of_a = (process_of(plane, "edge-1", TOWN), plane.jobs()["A"]["told"]["query"])

    done = curl(plane, "PUT", f"/compositions/{TOWN}?wait_s=200", "--data-binary", f"@{second}")
    assert done["is_done"], done
    buckets = {one["job"]: one["bucket"] for one in done["plan"]["changes"]}
    assert buckets == {"A": "keep", "B": "stop", "C": "rewire", "C2": "start", "D": "rewire"}
    assert (process_of(plane, "edge-1", TOWN), plane.jobs()["A"]["told"]["query"]) == of_a, "A was touched"
    plane.until(lambda: len(plane.read("archive", "T-D-total")) > 200, "records come out by the new way")

    done = curl(plane, "PUT", f"/compositions/{TOWN}?wait_s=200", "--data-binary", f"@{first}")
    assert done["is_done"], done
    buckets = {one["job"]: one["bucket"] for one in done["plan"]["changes"]}
    assert buckets == {"A": "keep", "B": "start", "C": "rewire", "C2": "stop", "D": "rewire"}
    assert (process_of(plane, "edge-1", TOWN), plane.jobs()["A"]["told"]["query"]) == of_a, "A was touched"
    owed = set(range(from_a.stop())) | set(range(1_000_000, from_b.stop()))  # B goes on where it was
    plane.until(
        lambda: len(plane.read("dc", "T-D-total")) + len(plane.read("archive", "T-D-total")) >= len(owed),
        "all came out",
    )
    got = Counter(numbers(plane, "dc", "T-D-total") + numbers(plane, "archive", "T-D-total"))
    assert set(got) == owed, "lost"
    assert max(got.values()) == 1, "doubled"
    curl(plane, "DELETE", f"/compositions/{TOWN}?wait_s=60")
    plane.upload()
    assert not [name for name in plane.jobs() if name in {"A", "B", "C", "C2", "D"}]


def test_a_move_keeps_state_and_every_record(plane: Control) -> None:
    plain = job("plain", "edge-1", ("hub", "moves-in"), ("hub", "moves-out"))
    counts = job("counts", "edge-1", ("hub", "moves-in"), ("hub", "moves-counts"), "jobs:counting")
    plane.ensure_topics("hub", "moves-in")
    assert plane.compose(TOWN, [plain, counts], wait_s=200)["is_done"]
    feed = Feed(plane.brokers["hub"], "moves-in", 200.0)
    for site in ("edge-2", "edge-1"):
        for name in ("plain", "counts"):
            done = plane.call("POST", f"/jobs/{name}/move", {"site": site}, wait_s=200)
            assert done["is_done"], done
            assert [one["bucket"] for one in done["plan"]["changes"] if one["job"] == name] == ["move"]
    count = feed.stop()
    assert settled(plane, "hub", "moves-out", count) == list(range(count)), "lost, doubled or out of order"
    plane.until(lambda: digits(plane, "hub", "moves-counts") >= count, "all is counted")
    assert digits(plane, "hub", "moves-counts") == count
    plane.call("DELETE", f"/compositions/{TOWN}", wait_s=60)


def test_a_pipeline_is_split_and_joined_while_it_runs(plane: Control, tmp_path: Path) -> None:
    example = ROOT / "examples" / "readings"
    records = runpy.run_path(str(example / "records.py"))["records"]

    def headwater(*words: str) -> None:
        _headwater(plane, *words, "--yes", "--json")

    sites = tmp_path / "sites.yaml"
    sites.write_text(sites_text(("edge-1", "edge-2", "hub")), "utf-8")
    placement = tmp_path / "placement.yaml"
    placement.write_text("readings: edge-1\nparsed: hub\nhot: hub\nalerts: hub\n", "utf-8")
    headwater("apply", str(example), "--sites", str(sites), "--placement", str(placement))
    made = [value for _, _, value in islice(records("edge-1", 0), 100_000)]
    feed = Feed(plane.brokers["edge-1"], "readings", RATE_RPS, make=made.__getitem__)
    for operator, site in (("hot", "edge-2"), ("parsed", "edge-1"), ("hot", "hub"), ("parsed", "hub")):
        headwater("move", f"readings/{operator}", site)
    told = _headwater(plane, "feed", str(example), "--start", "100000", "--count", "50", "--rate", "100/s", "--json")
    assert {site: one["records"] for site, one in json.loads(told)["sites"].items()} == {"edge-1": 50}
    more = [value for _, _, value in islice(records("edge-1", 0, 100_000), 50)]
    fed = map(json.loads, [*made[: feed.stop()], *more])
    owed = Counter((one["sensor"], one["at"]) for one in fed if one["celsius"] > 30)
    plane.until(lambda: len(plane.read("hub", "alerts")) >= sum(owed.values()), "all alerts")
    got = Counter((one["sensor"], one["at"]) for one in map(json.loads, plane.read("hub", "alerts")))
    assert got == owed, f"{(owed - got).total()} lost, {(got - owed).total()} doubled"
    headwater("delete", "readings")


def test_whatever_is_killed_the_wanted_state_is_reached_and_nothing_is_lost(plane: Control) -> None:
    jobs = [
        job("first", "edge-1", ("edge-1", "kills-in"), ("edge-2", "kills-between")),
        job("second", "edge-2", ("edge-2", "kills-between"), ("hub", "kills-out")),
    ]
    plane.ensure_topics("edge-1", "kills-in")
    assert plane.compose(TOWN, jobs, wait_s=200)["is_done"]
    feed = Feed(plane.brokers["edge-1"], "kills-in", RATE_RPS)
    homes = {"first": "edge-1", "second": "edge-2"}
    for number, what in enumerate(("controller", "agent", "runner", "broker")):
        name = ("second", "first")[number % 2]
        before, after = homes[name], "hub" if homes[name] != "hub" else "edge-2"
        plane.call("POST", f"/jobs/{name}/move", {"site": after})
        site = (before, after)[number % 2]
        victim = {"controller": "controller", "runner": f"runner {before} {TOWN}"}.get(what, f"{what} {site}")
        plane.kill(victim)
        homes[name] = after
        plane.until(lambda: _is_as_wanted(plane, homes), f"it is as wanted after {victim} was killed")
    count = feed.stop()
    assert settled(plane, "hub", "kills-out", count) == list(range(count)), "lost, doubled or out of order"
    plane.call("DELETE", f"/compositions/{TOWN}", wait_s=60)


def test_a_controller_that_comes_back_restarts_nothing_and_a_second_one_refuses(plane: Control) -> None:
    jobs = [job(f"stay-{number}", "dc", ("dc", f"stay-{number}"), ("dc", f"stay-{number + 1}")) for number in range(20)]
    assert plane.compose(TOWN, jobs, wait_s=200)["is_done"]
    before = {name: one["told"]["query"] for name, one in plane.jobs().items()}
    process = process_of(plane, "dc", TOWN)
    second = [sys.executable, "-m", "headwater.serve.main", "serve", "--state", str(plane.state), "--port", "0"]
    done = subprocess.run(second, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 4
    assert "HW4606" in done.stderr
    plane.kill("controller")
    plane.until(lambda: _queries(plane) == before, "all jobs are adopted, with the queries that they had", 60.0)
    assert process_of(plane, "dc", TOWN) == process
    assert plane.call("GET", "/plan")["plan"]["steps"] == []
    plane.call("DELETE", f"/compositions/{TOWN}", wait_s=120)


def test_what_was_up_goes_on_with_the_same_state_and_down_leaves_nothing_running(plane: Control) -> None:
    # The controller was killed a moment ago: a site that it has not heard of since is none that it can give a job to.
    plane.until(lambda: "archive" in _reached(plane), "the archive has dialled in again", 60.0)
    assert plane.compose(TOWN, [job("last", "archive", ("archive", "last-in"), ("archive", "last-out"))], wait_s=200)[
        "is_done"
    ]
    feed = Feed(plane.brokers["archive"], "last-in", RATE_RPS)
    plane.until(lambda: len(plane.read("archive", "last-out")) > 50, "records come out")
    count = feed.stop()
    plane.down()
    assert not [one for one in psutil.process_iter() if _is_of(one, plane.state)]
    plane.up()
    plane.until(lambda: _is_as_wanted(plane, {"last": "archive"}), "the job runs again")
    more = Feed(plane.brokers["archive"], "last-in", RATE_RPS, start=count).stop()
    assert settled(plane, "archive", "last-out", more) == list(range(more)), "lost, doubled or out of order"


def _headwater(plane: Control, *words: str) -> str:
    """Run a command as its user does, and return what it printed."""
    environment = {**os.environ, "HEADWATER_STATE": str(plane.state), "COLUMNS": "100", "TERM": "dumb"}
    command = [sys.executable, "-m", "headwater.serve.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr + plane.told()
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def _reached(plane: Control) -> set[str]:
    return {one["name"] for one in plane.call("GET", "/sites")["sites"] if one["is_reached"]}


def _queries(plane: Control) -> dict[str, str]:
    return {name: one["told"].get("query", "") for name, one in plane.jobs().items() if one["state"] == "running"}


def _is_as_wanted(plane: Control, homes: dict[str, str]) -> bool:
    found = plane.jobs()
    return all(
        name in found and found[name]["site"] == site and found[name]["state"] == "running" and found[name]["is_done"]
        for name, site in homes.items()
    )


def _is_of(process: psutil.Process, folder: Path) -> bool:
    try:
        return any(str(folder) in word for word in process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False
