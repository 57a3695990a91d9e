"""Do the commands and the real controller understand each other? Over a simulated world, behind a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.serve.main import main
from tests.contract.controlled import CODE, Controlled, composition, form

ROOT = Path(__file__).parents[2]
A, B = form("A", "edge-1"), form("B", "edge-2")
C = form("C", "cloud", source_topic="T-filter", sink_topic="T-D")
D = form("D", "cloud", source_topic="T-D", source_broker="cloud", sink_topic="T-total")
C2 = form("C2", "cloud", source_topic="T-C2", sink_topic="T-D")
FIRST = composition(A, B, C, D)
SECOND = composition(A, {**C, "sink_topic": "T-C2"}, C2, D)
READINGS = ROOT / "examples" / "readings"
SITES = """\
sites:
  edge-1: {kind: leaf, slots: 9, tags: [sensors]}
  edge-2: {kind: middle, slots: 9}
  cloud: {kind: root, slots: 9}
links:
  - {between: [edge-1, edge-2], latency: 10 ms, bandwidth: 100 Mbit/s}
  - {between: [edge-2, cloud], latency: 10 ms, bandwidth: 100 Mbit/s}
"""


@pytest.fixture
def it(tmp_path: Path, monkeypatch) -> Iterator[Controlled]:
    for name in ("CONTROLLER", "TOKEN", "TOKEN_FILE", "CA", "DEBUG"):
        monkeypatch.delenv(f"HEADWATER_{name}", raising=False)
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "jobs.py").write_bytes(CODE)
    (tmp_path / "town.yaml").write_text(FIRST)
    (tmp_path / "sites.yaml").write_text(SITES)
    found = Controlled(tmp_path / "state")
    told = {"url": f"http://127.0.0.1:{found.port}", "pid": 1}
    (tmp_path / "state" / "controller.json").write_text(json.dumps(told))
    yield found
    found.stop()
    assert found.sites.world.faults == []


@pytest.fixture
def run(capsys):
    def command(*words: str, code: int = 0) -> str:
        found = main(words)
        caught = capsys.readouterr()
        assert found == code, caught.err
        return str(caught.out + caught.err)

    return command


@pytest.fixture
def told(run):
    def command(*words: str, code: int = 0) -> Any:
        return json.loads(run(*words, "--json", code=code).splitlines()[0])

    return command


def buckets(plan: Any) -> dict[str, str]:
    return {one["job"]: one["bucket"] for one in plan["changes"]}


def test_the_papers_listings_are_planned_applied_and_changed(it: Controlled, run, told, tmp_path: Path) -> None:
    first = told("plan", "town.yaml")
    assert buckets(first["plan"]) == dict.fromkeys("ABCD", "start")
    assert told("jobs") == {"jobs": []}
    text = run("apply", "town.yaml", "--yes")
    assert "4 to start; no record waits" in text
    assert {one["name"]: one["state"] for one in told("jobs")["jobs"]} == dict.fromkeys("ABCD", "running")
    (tmp_path / "town.yaml").write_text(SECOND)
    second = told("apply", "town.yaml", "--yes")
    assert second["is_done"] is True
    assert buckets(second["plan"]) == {"A": "keep", "B": "stop", "C": "rewire", "C2": "start", "D": "keep"}
    assert {one["name"] for one in told("jobs", "town")["jobs"]} == {"A", "C", "C2", "D"}
    assert "nothing to do: 4 jobs are as wanted" in run("plan", "town.yaml")
    assert "nothing to do" in run("apply", "town.yaml", "--yes")
    assert [one["outcome"] for one in told("history")["history"]] == ["done", "done"]


def test_a_plan_that_was_overtaken_is_refused(it: Controlled, run, told) -> None:
    run("apply", "town.yaml", "--yes")
    basis = told("plan", "town.yaml")["plan"]["basis"]
    run("move", "A", "cloud", "--yes")
    assert told("plan", "town.yaml")["plan"]["basis"] != basis
    answer = it.client.put("/compositions/town", params={"basis": basis}, content=FIRST)
    assert answer.status_code == 409


def test_a_job_moves_stops_starts_and_goes(it: Controlled, run, told) -> None:
    run("apply", "town.yaml", "--yes")
    assert "→ move A edge-1 → cloud" in " ".join(run("move", "A", "cloud", "--yes").split())
    assert told("jobs", "A")["job"]["site"] == "cloud"
    assert "- A: stop at cloud" in run("stop", "A")
    assert told("jobs", "A")["job"]["state"] == "stopped"
    assert "nothing to do" in run("stop", "A")
    run("start", "A")
    assert told("jobs", "A")["job"]["state"] == "running"
    run("stop", "town")
    assert {one["state"] for one in told("jobs", "town")["jobs"]} == {"stopped"}
    assert "cloud A 0" in run("logs", "A", "--lines", "3")
    text = run("delete", "town", "--yes")
    assert "4 to stop" in text
    assert told("jobs") == {"jobs": []}
    assert "there is no job, composition or pipeline 'town'" in run("delete", "town", "--yes", code=2)


def test_a_silent_site_is_told_and_its_jobs_leave_only_by_force(it: Controlled, run, told) -> None:
    run("apply", "town.yaml", "--yes")
    it.sites.by_name["edge-1"].is_silent = True
    text = run("status")
    assert "3 sites, 1 silent; 4 jobs, 3 running" in text
    assert "was running" in text
    text = " ".join(run("move", "A", "cloud", "--yes", "--wait", "300 ms", code=4).split())
    assert "Site 'edge-1' does not answer: start its agent" in text
    found = told("move", "A", "cloud", "--yes", "--force")
    assert found["is_done"] is True
    assert told("jobs", "A")["job"]["site"] == "cloud"
    assert it.sites.world.faults == ["job 'A' runs at cloud and edge-1"], "that is what force risks"
    it.sites.world.faults.clear()


def test_a_project_is_deployed_and_an_operator_moved(it: Controlled, run, told) -> None:
    words = (str(READINGS), "--sites", "sites.yaml")
    found = told("apply", *words, "--yes")
    assert found["is_done"] is True
    assert {one["composition"] for one in found["jobs"]} == {"readings"}
    assert "nothing to do" in run("plan", *words)
    where = it.client.get("/pipelines/readings").json()["placement"]
    other = next(one for one in ("edge-1", "edge-2", "cloud") if one != where["hot"])
    assert told("move", "readings/hot", other, "--yes")["is_done"] is True
    assert it.client.get("/pipelines/readings").json()["placement"]["hot"] == other
    run("delete", "readings", "--yes")
    assert told("jobs") == {"jobs": []}


def test_the_controllers_mistakes_come_with_the_users_file_and_line(it: Controlled, run, tmp_path: Path) -> None:
    (tmp_path / "town.yaml").write_text(FIRST.replace("http://edge-2:8081/", "http://edgy-2:8081/"))
    text = run("plan", "town.yaml", code=2)
    assert text.startswith("HW1532 town.yaml:11: ")
    assert "Did you mean 'edge-2'?" in text


def test_tokens_are_made_listed_and_revoked(it: Controlled, run, told, tmp_path: Path) -> None:
    made = told("token", "create", "edge-1", "--out", "edge-1.token")
    token = (tmp_path / "edge-1.token").read_text().strip()
    agent = it.client_of(token)
    assert agent.get("/jobs").status_code == 403
    run("token", "revoke", made["id"])
    assert agent.get("/jobs").status_code == 401
    agent.close()
    assert {one["id"]: one["revoked_at_s"] is None for one in told("token", "list")["tokens"]}[made["id"]] is False
    assert "revoked" in run("token", "list")
    assert run("token", "revoke", "nobody", code=2).startswith("HW1830")


def test_a_restarted_controller_is_found_where_it_is(it: Controlled, told) -> None:
    told("apply", "town.yaml", "--yes")
    it.restart()
    url = f"http://127.0.0.1:{it.port}"
    assert {one["name"] for one in told("jobs", "--controller", url)["jobs"]} == set("ABCD")
