"""Do the commands that look, move, stop, delete and let others in ask and show the right thing?"""

from __future__ import annotations

import json
import os
import signal
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.serve import changing
from headwater.serve.main import main
from tests.recorded import Recorded, recorded

COMMANDS = (
    ["plan"], ["apply"], ["status"], ["jobs"], ["logs"], ["move"], ["stop"], ["start"], ["delete"], ["history"],
    ["serve"], ["agent"], ["up"], ["down"], ["ca"], ["token", "create"], ["token", "list"], ["token", "revoke"],
)  # fmt: skip
SITES = [
    {
        "name": "edge",
        "is_reached": True,
        "broker": "127.0.0.1:9092",
        "jobs": 2,
        "told": {"broker": {"memory_bytes": 2e8}, "runners": {"fire": {"memory_bytes": 3.12e8}}},
    },
    {"name": "far", "is_reached": False, "seen_s": 75.2, "broker": "10.0.0.9:9092", "jobs": 1},
]
TOLD = {"in_rps": 203.4, "out_rps": 50.0, "lag": 3, "p50_s": 0.0042}
JOBS: list[dict[str, Any]] = [
    {"name": "fire.alerts", "composition": "fire", "site": "edge", "state": "running", "told": TOLD, "epoch": 2},
    {"name": "fire.hot", "composition": "fire", "site": "edge", "wanted_site": "far", "state": "starting"},
    {"name": "lone", "composition": "jobs", "site": "far", "state": "running"},
]
STOP = {"bucket": "stop", "job": "lone", "site": "far", "from_site": None, "because": "it is to stop", "pause_s": 0.0}
KEEP = {**STOP, "bucket": "keep"}
MOVE = {**STOP, "bucket": "move", "job": "fire.hot", "site": "edge", "from_site": "far", "pause_s": 0.7}


def answer(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"plan": {"basis": "b1", "changes": list(changes), "steps": []}, "is_done": False, "failures": []}


@pytest.fixture
def controller(tmp_path: Path, monkeypatch) -> Iterator[Recorded]:
    for name in ("CONTROLLER", "TOKEN", "TOKEN_FILE", "CA", "DEBUG"):
        monkeypatch.delenv(f"HEADWATER_{name}", raising=False)
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(changing, "FIRST_PAUSE_S", 0.005)
    with recorded(
        tmp_path / "state",
        {
            "GET /status": {"sites": SITES, "jobs": JOBS, "failures": []},
            "GET /sites": {"sites": SITES},
            "GET /jobs": {"jobs": JOBS},
            "GET /jobs/fire.alerts": JOBS[0],
            "GET /plan": answer(),
            "GET /compositions": {"compositions": [{"name": "town"}]},
            "GET /pipelines": {"pipelines": [{"name": "fire"}, {"name": "ice"}]},
            "GET /pipelines/fire": {"name": "fire", "placement": {"hot@edge": "edge", "alerts": "edge"}},
            "GET /pipelines/ice": {"name": "ice", "placement": {"alerts": "edge", "cold": "far"}},
        },
    ) as found:
        yield found


class Ran:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def object(self) -> Any:
        assert self.out.count("\n") == 1, "one JSON object on one line and nothing else"
        return json.loads(self.out)

    @property
    def cells(self) -> list[list[str]]:
        return [line.split() for line in self.out.splitlines() if line.strip() and "─" not in line]


@pytest.fixture
def run(capsys):
    def command(*words: str) -> Ran:
        code = main(words)
        caught = capsys.readouterr()
        return Ran(code, caught.out, caught.err)

    return command


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_json_and_help_with_an_example(run, words: list[str]) -> None:
    ran = run(*words, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "--json" in ran.out
    assert f"headwater {' '.join(words)}" in ran.out[ran.out.index("Example") :]


@pytest.mark.parametrize(
    "words", [["status"], ["jobs"], ["history"], ["logs", "x"], ["token", "list"], ["plan", "x.yaml"]], ids=" ".join
)
def test_without_a_controller_every_command_says_how_to_start_one(run, tmp_path: Path, monkeypatch, words) -> None:
    monkeypatch.delenv("HEADWATER_CONTROLLER", raising=False)
    ran = run(*words, "--state", str(tmp_path))
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("HW4920")
    assert "Is 'headwater up'" in ran.err


def test_status_shows_sites_and_jobs_and_what_a_silent_site_said_last(run, controller: Recorded) -> None:
    ran = run("status")
    assert ran.code == 0
    assert ran.cells == [
        ["2", "sites,", "1", "silent;", "3", "jobs,", "1", "running"],
        ["site", "state", "broker", "memory", "jobs"],
        ["edge", "reached", "127.0.0.1:9092", "512", "MB", "2"],
        ["far", "silent", "for", "75", "s", "10.0.0.9:9092", "-", "1"],
        ["job", "of", "site", "state", "in/s", "out/s", "lag", "p50"],
        ["fire.alerts", "fire", "edge", "running", "203", "50", "3", "4.2", "ms"],
        ["fire.hot", "edge", "→", "far", "starting", "-", "-", "-", "-"],
        ["lone", "jobs", "far", "was", "running", "-", "-", "-", "-"],
    ]
    assert run("status", "--json").object["sites"] == SITES


def test_status_tells_of_failed_jobs_and_where_to_look(run, controller: Recorded) -> None:
    failed = {**JOBS[0], "state": "failed", "text": "HW4501 a record cannot be processed"}
    controller.answers["GET /status"] = {"sites": SITES, "jobs": [failed]}
    out = run("status").out
    assert "✗ job 'fire.alerts' at site 'edge' is failed: HW4501 a record cannot be processed" in out
    assert "headwater logs fire.alerts" in out


@pytest.mark.parametrize("words", [["status", "--watch"], ["status", "--watch", "--json"]], ids=" ".join)
def test_watching_goes_on_until_ctrl_c_which_is_no_fault(controller: Recorded, words: list[str]) -> None:
    command = [sys.executable, "-m", "headwater.serve.main", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    assert json.loads(first)["jobs"] if "--json" in words else "2 sites" in first + rest


def test_jobs_are_listed_all_of_a_pipeline_or_one_with_everything(run, controller: Recorded) -> None:
    assert [one[0] for one in run("jobs").cells] == ["job", "fire.alerts", "fire.hot", "lone"]
    assert [one[0] for one in run("jobs", "fire").cells] == ["job", "fire.alerts", "fire.hot"]
    assert ["epoch", "2"] in run("jobs", "fire.alerts").cells
    assert run("jobs", "fire.alerts", "--json").object == {"job": JOBS[0]}
    controller.answers["GET /jobs"] = {"jobs": []}
    assert run("jobs").out == "there are no jobs yet\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["jobs", "fire.allerts"], "there is no job 'fire.allerts'. Did you mean 'fire.alerts'?"),
        (["logs", "lon"], "there is no job 'lon'. Did you mean 'lone'?"),
        (["stop", "xyz"], "there is no job 'xyz'. There are 'fire', 'fire.alerts', 'fire.hot', 'jobs', 'lone'."),
        (["move", "lone", "edg", "--yes"], "there is no site 'edg'. Did you mean 'edge'?"),
        (["move", "colt", "edge", "--yes"], "there is no job or operator 'colt'. Did you mean 'cold'?"),
        (["move", "alerts", "edge", "--yes"], "the pipelines 'fire', 'ice' have an operator 'alerts'; say 'fire/"),
        (["delete", "toun", "--yes"], "there is no job, composition or pipeline 'toun'. Did you mean 'town'?"),
        (["delete", "town", "--yes", "--kind", "job"], "there is no job 'town'"),
        (["delete", "town", "--yes", "--kind", "thing"], "--kind is 'thing'; it is one of 'job', 'composition'"),
    ],
)  # fmt: skip
def test_a_name_that_nothing_has_is_answered_with_one_that_is_close(run, controller, words, text: str) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert ran.err.startswith(f"HW1334 {text}")
    assert {one.method for one in controller.asked} <= {"GET"}


def test_logs_show_the_end_and_follow_shows_what_comes(run, controller: Recorded, monkeypatch, capsys) -> None:
    texts = [{"text": "a\nb\x1b[31m"}, {"text": "b\x1b[31m\nc"}, {"text": "b\x1b[31m\nc"}, {"text": "x\ny"}]
    controller.answers["GET /jobs/lone/logs"] = list(texts)
    assert run("logs", "lone", "--lines", "2").out == "a\nb\\x1b[31m\n"
    assert controller.of("GET", "/jobs/lone/logs")[0].query == {"lines": "2"}
    controller.answers["GET /jobs/lone/logs"] = list(texts)
    enough = threading.Event()

    def pause(seconds: float) -> None:
        del seconds
        if len(controller.of("GET", "/jobs/lone/logs")) >= 6:
            enough.set()
            raise KeyboardInterrupt

    monkeypatch.setattr("headwater.serve.watching.time.sleep", pause)
    assert run("logs", "lone", "--follow").out == "a\nb\\x1b[31m\nc\nx\ny\n"
    assert enough.is_set()


def test_history_tells_who_changed_what(run, controller: Recorded) -> None:
    entry = {"at_s": 0.0, "who": "operator 1", "what": "apply composition town", "outcome": "done"}
    controller.answers["GET /history"] = {"history": [entry, {**entry, "outcome": None}]}
    cells = run("history", "--limit", "3").cells
    assert [" ".join(one[2:]) for one in cells[1:]] == [
        "operator 1 apply composition town done",
        "operator 1 apply composition town under way",
    ]
    assert controller.asked[-1].query == {"limit": "3"}
    controller.answers["GET /history"] = {"history": []}
    assert run("history").out == "nothing has been changed yet\n"


def test_a_move_of_a_job_and_of_an_operator_ask_for_different_things(run, controller: Recorded) -> None:
    controller.answers["POST /jobs/lone/move"] = answer(KEEP)
    assert run("move", "lone", "edge", "--yes", "--force").code == 0
    first, second = controller.of("POST")
    assert (first.query, first.object) == ({"dry_run": "true"}, {"site": "edge", "force": True})
    assert second.query == {"basis": "b1"}
    for name, path, operator in (
        ("cold", "/pipelines/ice/move", "cold"),
        ("fire/alerts", "/pipelines/fire/move", "alerts"),
        ("hot", "/pipelines/fire/move", "hot"),
        ("hot@edge", "/pipelines/fire/move", "hot@edge"),
    ):
        controller.answers[f"POST {path}"] = answer(KEEP)
        assert run("move", name, "edge", "--yes").code == 0
        last = controller.of("POST")[-1]
        assert (last.path, last.object) == (path, {"operator": operator, "site": "edge", "force": False})


def test_a_move_shows_its_plan_and_ends_when_the_job_runs_there(run, controller: Recorded) -> None:
    controller.answers["POST /jobs/fire.hot/move"] = answer(MOVE)
    moving = {**JOBS[1], "state": "starting"}
    there = {**JOBS[1], "state": "running", "wanted_site": "edge"}
    controller.answers["GET /jobs"] = [{"jobs": [moving]}] * 4 + [{"jobs": [there]}]
    ran = run("move", "fire.hot", "edge", "--yes")
    assert ran.code == 0
    assert ran.cells[:2] == [
        ["move", "'fire.hot'", "to", "'edge'"],
        ["→", "move", "fire.hot", "far", "→", "edge", "about", "0.7", "s", "it", "is", "to", "stop"],
    ]
    assert "1 to move; the longest pause is about 0.7 s" in ran.out
    assert ran.cells[-2] == ["fire.hot", "fire", "edge", "running"]  # it was waited for


def test_stop_and_start_take_a_job_or_all_of_a_pipeline(run, controller: Recorded) -> None:
    controller.answers["POST /jobs/lone/stop"] = answer(STOP, {**STOP, "job": "another"})
    controller.answers["GET /jobs"] = [{"jobs": JOBS}, {"jobs": JOBS}, {"jobs": [{**JOBS[2], "state": "stopped"}]}]
    ran = run("stop", "lone")
    assert (ran.code, ran.err.partition(",")[0]) == (0, "- lone: stop at far")
    controller.answers["GET /jobs"] = {"jobs": JOBS}
    kept = [{**KEEP, "job": name} for name in ("fire.alerts", "fire.hot", "lone")]
    controller.answers["POST /pipelines/fire/start"] = answer(*kept)
    ran = run("start", "fire")
    assert (ran.code, controller.of("POST")[-1].path) == (0, "/pipelines/fire/start")
    assert "nothing to do: 2 jobs are as wanted" in ran.out
    assert run("stop", "jobs").err.startswith("HW1334 'jobs' stands for the jobs that belong to nothing")


def test_delete_finds_what_the_name_means_and_says_which_jobs_go(run, controller: Recorded) -> None:
    for name, path in (("town", "/compositions/town"), ("ice", "/pipelines/ice"), ("lone", "/jobs/lone")):
        controller.answers[f"DELETE {path}"] = answer({**STOP, "because": "it is not wanted any more"})
        controller.answers["GET /jobs"] = [{"jobs": JOBS}, {"jobs": JOBS}, {"jobs": JOBS[:2]}]
        ran = run("delete", name, "--yes")
        assert ran.code == 0, ran.err
        assert "- stop lone at far it is not wanted any more" in " ".join(ran.out.split())
        assert [one.query for one in controller.of("DELETE", path)] == [{"dry_run": "true"}, {"basis": "b1"}]
    controller.answers["GET /jobs"] = {"jobs": [{**JOBS[2], "name": "town"}]}
    ran = run("delete", "town", "--yes")
    assert ran.err == "HW1334 'town' is a job and a composition; say which with --kind job or --kind composition\n"


def test_a_token_goes_to_a_file_that_only_its_owner_reads_or_is_printed_once(run, controller, tmp_path: Path) -> None:
    controller.answers["POST /tokens"] = {"id": "7", "token": "hw_asecret"}
    ran = run("token", "create", "edge", "--out", "edge.token")
    file = tmp_path / "edge.token"
    assert file.read_text() == "hw_asecret\n"
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert "hw_asecret" not in ran.out + ran.err
    assert "token revoke 7" in ran.out
    ran = run("token", "create", "edge")
    assert ran.out == "hw_asecret\n"
    assert run("token", "create", "edge", "--json").object == {"id": "7", "site": "edge", "token": "hw_asecret"}
    made = len(controller.of("POST"))
    ran = run("token", "create", "edge", "--out", "edge.token")
    assert (ran.code, ran.err.split()[0]) == (2, "HW1337")
    assert len(controller.of("POST")) == made  # refused before a token is made that nobody would have


def test_tokens_are_listed_without_what_they_are_and_revoked(run, controller: Recorded) -> None:
    controller.answers["GET /tokens"] = {
        "tokens": [
            {"id": "1", "kind": "operator", "site": None, "created_at_s": 0.0, "revoked_at_s": None},
            {"id": "2", "kind": "agent", "site": "edge", "created_at_s": 0.0, "revoked_at_s": 1.0},
        ]
    }
    cells = run("token", "list").cells
    assert (cells[1][:3], cells[1][-1]) == (["1", "operator", "-"], "live")
    assert (cells[2][:3], cells[2][5]) == (["2", "agent", "edge"], "revoked")
    controller.answers["DELETE /tokens/2"] = (204, b"")
    assert run("token", "revoke", "2").out == "token 2 is revoked\n"


def test_ca_makes_an_authority_and_a_certificate_that_it_signed(run, tmp_path: Path) -> None:
    ran = run("ca", "--folder", str(tmp_path / "tls"), "--host", "control.example", "--host", "127.0.0.1", "--json")
    made = ran.object
    context = ssl.create_default_context(cafile=made["ca"])
    assert context.get_ca_certs()
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(made["certificate"], made["key"])
    assert stat.S_IMODE(os.stat(made["ca_key"]).st_mode) == 0o600
    shown = run("ca", "--folder", str(tmp_path / "tls"), "--host", "127.0.0.1", "--host", "control.example").out
    assert "headwater serve --cert" in shown.replace("\n", " ")
    assert "certificate" not in run("ca", "--folder", str(tmp_path / "other"), "--json").object
