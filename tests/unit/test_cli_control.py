"""Do plan, apply, move, stop, start and delete ask the controller for the right thing and show what it says?"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import select
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from headwater.model.keep import from_json
from headwater.plan.jobs import Held, Observed
from headwater.serve import changing
from headwater.serve.main import main
from tests.recorded import (
    AFTER,
    BEFORE,
    NOTHING,
    SITES,
    TO_DO,
    Asked,
    Recorded,
    held,
    jobs_object,
    plan_object,
    recorded,
)

ROOT = Path(__file__).parents[2]
TOWN = """\
jobs:
- job_name: A
  spe_address: edge-1
  entry_class: town:clean
  job_path: code/town.py   # the file, from here
- job_name: C
  job_path: 'code/town.py'
- {job_name: Ä, job_path: code/more}
"""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch) -> None:
    monkeypatch.setattr(changing, "FIRST_PAUSE_S", 0.005)
    monkeypatch.setattr(changing, "LONGEST_PAUSE_S", 0.01)


@pytest.fixture
def controller(tmp_path: Path, monkeypatch) -> Iterator[Recorded]:
    for name in ("CONTROLLER", "TOKEN", "TOKEN_FILE", "CA", "DEBUG"):
        monkeypatch.delenv(f"HEADWATER_{name}", raising=False)
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code" / "more").mkdir(parents=True)
    (tmp_path / "code" / "town.py").write_text("def clean(rows): return rows\n")
    (tmp_path / "code" / "more" / "deep.py").write_text("x = 1\n")
    (tmp_path / "town.yaml").write_text(TOWN)
    is_applied = False

    def put(asked: Asked) -> Any:
        nonlocal is_applied
        is_applied = is_applied or "dry_run" not in asked.query
        return {"plan": TO_DO, "is_done": False, "failures": []}

    def left(asked: Asked) -> Any:
        del asked
        return {"plan": NOTHING, "is_done": True, "failures": []}

    with recorded(
        tmp_path / "state",
        {
            "GET /uploads": {"uploads": []},
            "PUT /uploads/town.py": {"is_new": True},
            "PUT /uploads/more.zip": {"is_new": True},
            "PUT /compositions/town": put,
            "GET /plan": left,
            "GET /jobs": lambda asked: jobs_object(AFTER if is_applied else BEFORE),
            "GET /sites": {"sites": [{"name": one, "is_reached": True} for one in sorted(SITES)]},
            "GET /compositions": {"compositions": [{"name": "town"}]},
            "GET /pipelines": {"pipelines": []},
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


@pytest.fixture
def run(capsys):
    def command(*words: str) -> Ran:
        code = main(words)
        caught = capsys.readouterr()
        return Ran(code, caught.out, caught.err)

    return command


PLAN = """\
composition 'town'

  + start   C2  at hub                     it runs nowhere yet
  → move    D   hub → cloud  about 0.7 s   wanted on 'cloud', is on 'hub'
  ~ rewire  C   at hub       about 0.5 s   writes 'T-C2 at hub' instead of 'T-D at cloud'
  - stop    B   at edge-2                  it is not wanted any more; its place is kept
  = keep    A

1 to start, 1 to move, 1 to rewire, 1 to stop, 1 keep; the longest pause is about 0.7 s
do it with: headwater apply town.yaml
"""


def squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_plan_shows_each_change_with_sign_reason_and_pause_and_changes_nothing(run, controller: Recorded) -> None:
    ran = run("plan", "town.yaml")
    assert (ran.code, ran.err) == (0, "")
    assert squeezed(ran.out) == squeezed(PLAN)
    assert "\x1b" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100
    assert [one.query for one in controller.of("PUT", "/compositions")] == [{"dry_run": "true"}]


def test_a_plan_as_json_is_what_the_controller_said(run, controller: Recorded) -> None:
    assert run("plan", "town.yaml", "--json").object == {"plan": json.loads(json.dumps(TO_DO))}


def test_a_plan_with_nothing_to_do_says_so(run, controller: Recorded) -> None:
    controller.answers["PUT /compositions/town"] = {"plan": NOTHING}
    ran = run("plan", "town.yaml")
    assert ran.code == 0
    assert ran.out.splitlines()[1] == "nothing to do: 4 jobs are as wanted"


def test_a_copy_from_before_is_something_to_do(run, controller: Recorded) -> None:
    copies = Observed((*held(AFTER).held, Held("edge-2", AFTER["D"], 0, False, "stopped")), SITES)
    controller.answers["PUT /compositions/town"] = {"plan": plan_object(AFTER, copies)}
    assert "4 keep; 1 copy from before to clear away" in run("plan", "town.yaml").out


def test_local_code_is_uploaded_once_and_named_by_its_hash_on_the_same_lines(run, controller: Recorded) -> None:
    run("plan", "town.yaml")
    uploads = {one.path: one.body for one in controller.of("PUT", "/uploads")}
    assert set(uploads) == {"/uploads/town.py", "/uploads/more.zip"}
    assert zipfile.ZipFile(io.BytesIO(uploads["/uploads/more.zip"])).namelist() == ["deep.py"]
    first, second = (sha256(uploads[one]).hexdigest() for one in ("/uploads/town.py", "/uploads/more.zip"))
    sent = controller.of("PUT", "/compositions")[0].body.decode()
    assert sent == TOWN.replace("'code/town.py'", f'"sha256:{first}"').replace(
        "job_path: code/town.py", f'job_path: "sha256:{first}"'
    ).replace("code/more}", f'"sha256:{second}"}}')
    controller.answers["GET /uploads"] = {"uploads": [{"name": "x.py", "hash": first}, {"name": "y", "hash": second}]}
    controller.asked.clear()
    run("plan", "town.yaml")
    assert controller.of("PUT", "/uploads") == []
    assert controller.of("PUT", "/compositions")[0].body.decode() == sent


def test_code_that_is_not_there_is_a_mistake_with_its_line(run, controller: Recorded, tmp_path: Path) -> None:
    text = "jobs:\n- job_path: code/tovn.py\n- job_path: known.py\n- job_path: 'sha256:ab'\n- job_path: town.yaml\n"
    (tmp_path / "town.yaml").write_text(text)
    controller.answers["GET /uploads"] = {"uploads": [{"name": "known.py", "hash": "0" * 64}]}
    ran = run("plan", "town.yaml")
    assert ran.code == 2
    first, second = ran.err.splitlines()
    assert first.startswith("HW1333 town.yaml:2: there is no file 'code/tovn.py'")
    assert first.endswith("Did you mean 'code/town.py'?")
    assert second.startswith("HW1333 town.yaml:5: the code of a job is a .py, a .zip or a folder")
    assert controller.of("PUT") == []


def test_anchors_and_merges_are_followed(run, controller: Recorded, tmp_path: Path) -> None:
    text = "base: &base {job_path: code/town.py}\njobs:\n- {<<: *base, job_name: A}\n- {<<: *base, job_name: B}\n"
    (tmp_path / "town.yaml").write_text(text)
    run("plan", "town.yaml")
    sent = controller.of("PUT", "/compositions")[0].body.decode()
    assert sent.count("sha256:") == 1
    assert sent.splitlines()[1:] == text.splitlines()[1:]


def test_the_controllers_mistakes_name_the_users_file(run, controller: Recorded) -> None:
    mistake = {"code": "HW1532", "text": "'spe_address' names no site.", "file": "composition", "line": 3}
    error = {"error": {"code": "HW1532", "text": "..", "mistakes": [mistake]}}
    controller.answers["PUT /compositions/town"] = (422, error)
    ran = run("plan", "town.yaml")
    assert (ran.code, ran.err) == (2, "HW1532 town.yaml:3: 'spe_address' names no site.\n")
    assert run("plan", "town.yaml", "--json").object["error"]["mistakes"][0]["file"] == "town.yaml"


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("operators: {}\n", (), "HW1332 town.yaml:1: this is neither a composition (with 'jobs:') nor a project; "
         "found the keys 'operators'. It looks like a pipeline file"),
        ("- 1\n", (), "HW1332 town.yaml:1: this is neither"),
        (TOWN, ("--sites", "s.yaml"), "HW1332 town.yaml: a composition names its sites itself; --sites is for"),
        (TOWN, ("--name", "../x"), "HW1335 town.yaml: '../x', cannot be its name: allowed are"),
        (TOWN, ("--name", "jobs"), "HW1335 town.yaml: 'jobs', cannot be its name: this name stands for"),
        ("jobs: [\n", (), "HW1001 town.yaml"),
    ],
)  # fmt: skip
def test_what_cannot_be_deployed_is_refused_here(run, controller, tmp_path, text, words, message: str) -> None:
    (tmp_path / "town.yaml").write_text(text)
    ran = run("plan", "town.yaml", *words)
    assert ran.code == 2
    assert ran.err.startswith(message)
    assert controller.of("PUT") == []


def test_apply_does_the_plan_that_was_shown_and_tells_what_is_done(run, controller: Recorded) -> None:
    still = {"plan": plan_object(AFTER, held({**BEFORE, "C": AFTER["C"]})), "is_done": False, "failures": []}
    done = {"plan": NOTHING, "is_done": True, "failures": []}
    controller.answers["GET /plan"] = [done, still, still, done]  # the first is before anything is asked for
    ran = run("apply", "town.yaml", "--yes")
    assert ran.code == 0
    assert [one.query for one in controller.of("PUT", "/compositions")] == [
        {"dry_run": "true"},
        {"basis": TO_DO["basis"]},
    ]
    assert squeezed(ran.out)[: len(squeezed(PLAN)) - 1] == squeezed(PLAN)[:-1]
    told = [line.rpartition(",")[0] for line in ran.err.splitlines()]
    assert told[0] == "~ C: rewire at hub"
    assert sorted(told[1:]) == ["+ C2: start at hub", "- B: stop at edge-2", "→ D: move hub → cloud"]
    assert ran.out.splitlines()[-1].startswith("done in ")
    assert [line.split()[0] for line in ran.out.splitlines()[-5:-2]] == ["C", "C2", "D"]


def test_apply_as_json_is_one_object(run, controller: Recorded) -> None:
    found = run("apply", "town.yaml", "--yes", "--json").object
    assert (found["is_done"], found["failures"]) == (True, [])
    assert [one["name"] for one in found["jobs"]] == ["C", "C2", "D"]
    assert found["plan"]["basis"] == TO_DO["basis"]
    assert found["seconds"] >= 0


def test_nobody_is_changed_without_a_yes(run, controller: Recorded) -> None:
    for words in (["apply", "town.yaml"], ["move", "A", "hub"], ["delete", "town"]):
        ran = run(*words)
        assert (ran.code, ran.err.partition(" ")[0]) == (2, "HW1331")
        assert "this is no terminal" in ran.err
        assert run(*words, "--json").object["error"]["mistakes"][0]["code"] == "HW1331"
    assert controller.asked == []


def test_a_stale_plan_is_refused_with_exit_code_3(run, controller: Recorded) -> None:
    error = {"code": "HW2201", "text": "HW2201 this plan is stale. Plan again.", "mistakes": []}
    controller.answers["PUT /compositions/town"] = lambda asked: (
        {"plan": TO_DO} if "dry_run" in asked.query else (409, {"error": error})
    )
    ran = run("apply", "town.yaml", "--yes")
    assert (ran.code, ran.err) == (3, "HW2201 this plan is stale. Plan again.\n")


def test_what_is_not_done_in_time_is_named_with_site_and_what_to_do(run, controller: Recorded) -> None:
    left = plan_object(AFTER, held({**BEFORE, "C": AFTER["C"], "C2": AFTER["C2"]}))
    failure = {"act": "halt", "site": "edge-2", "job": "B", "error": "HW4932 site 'edge-2' does not answer."}
    before = {"plan": NOTHING, "failures": []}
    controller.answers["GET /plan"] = [before, {"plan": left, "is_done": False, "failures": [failure]}]
    controller.answers["GET /sites"] = {"sites": [{"name": "edge-2", "is_reached": False}]}
    ran = run("apply", "town.yaml", "--yes", "--wait", "50 ms")
    assert ran.code == 4
    assert "✗ job 'B' at site 'edge-2' (halt): HW4932 site 'edge-2' does not answer." in ran.err
    last = " ".join(ran.err[ran.err.index("HW4926") :].split())
    assert last.startswith("HW4926 not done after 0 s: 'B', 'D' is not as wanted. Site 'edge-2' does not answer:")
    assert "headwater agent --site edge-2" in last
    found = run("apply", "town.yaml", "--yes", "--wait", "50 ms", "--json").object
    assert found["is_done"] is False
    assert found["failures"][0]["job"] == "B"


def test_a_job_that_fails_ends_the_watching_and_shows_its_trouble(run, controller: Recorded) -> None:
    jobs = jobs_object({name: one for name, one in AFTER.items() if name != "C2"})["jobs"]
    wrong = jobs_object({"C2": AFTER["C2"]}, "failed", "HW4501 town.py:3: KeyError 'x'")["jobs"]
    controller.answers["GET /jobs"] = {"jobs": jobs + wrong}
    ran = run("apply", "town.yaml", "--yes")
    assert ran.code == 4
    assert "✗ job 'C2' at site 'hub' is failed: HW4501 town.py:3: KeyError 'x'" in ran.err
    assert "headwater logs C2" in ran.err
    assert "HW4926 1 of 4 jobs failed" in ran.err


def test_what_others_wait_for_anyhow_is_not_waited_for(run, controller: Recorded) -> None:
    stuck = {"bucket": "start", "job": "other", "site": "edge-2", "from_site": None, "because": "..", "pause_s": 0.0}
    mine = {**TO_DO, "changes": [*TO_DO["changes"], stuck]}
    controller.answers["PUT /compositions/town"] = {"plan": mine}
    controller.answers["GET /plan"] = {"plan": {**NOTHING, "changes": [*NOTHING["changes"], stuck]}}
    elsewhere = {"name": "other", "composition": "another", "site": "edge-2", "state": "starting"}
    controller.answers["GET /jobs"] = {"jobs": [*jobs_object(AFTER)["jobs"], elsewhere]}
    assert run("apply", "town.yaml", "--yes", "--wait", "1 s").code == 0


def test_a_controller_that_is_away_for_a_while_is_waited_for(run, controller: Recorded, monkeypatch) -> None:
    away = (503, {"error": {"code": "HW4925", "text": "away", "mistakes": []}})
    done = {"plan": NOTHING, "is_done": True, "failures": []}
    controller.answers["GET /plan"] = [done, away, away, done]
    ran = run("apply", "town.yaml", "--yes")
    assert ran.code == 0
    assert ran.err.splitlines()[0] == "HW4925 away It is waited for."


def test_a_terminal_is_asked_and_no_means_no(controller: Recorded, tmp_path: Path) -> None:
    for answer, code in (("n\n", 130), ("y\n", 0)):
        text, found = in_terminal(["apply", "town.yaml"], answer, tmp_path)
        assert found == code, text
        assert "Do this? [y/N]" in text
        assert ("done in" in text) is (code == 0)
    assert "\x1b[32m+ start" in text  # on a terminal there is colour
    assert len([one for one in controller.of("PUT", "/compositions") if "basis" in one.query]) == 1


def in_terminal(words: list[str], answer: str, folder: Path) -> tuple[str, int]:
    """Run a command on a terminal of its own; type the answer when it asks."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "NO_COLOR": ""}
    environment.pop("NO_COLOR")
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater.serve.main", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    text, is_answered, end_s = b"", False, time.monotonic() + 60
    with contextlib.suppress(OSError):  # the terminal is gone when the process is
        while time.monotonic() < end_s:
            if not select.select([ours], [], [], 1)[0]:
                continue
            more = os.read(ours, 4096)
            if not more:
                break
            text += more
            if not is_answered and b"[y/N]" in text:
                os.write(ours, answer.encode())
                is_answered = True
    code = process.wait(10)
    os.close(ours)
    return text.decode(), code


def test_a_project_is_read_bundled_and_put_with_its_sites(run, controller: Recorded) -> None:
    readings = ROOT / "examples" / "readings"
    sites = str(readings / "sites.yaml")
    controller.answers["PUT /pipelines/readings"] = {"plan": TO_DO}
    controller.answers["PUT /uploads/readings.zip"] = {"is_new": True}
    ran = run("plan", str(readings), "--sites", sites, "--seed", "7")
    assert ran.code == 0, ran.err
    upload = controller.of("PUT", "/uploads")[0].body
    body = controller.of("PUT", "/pipelines")[0].object
    assert body["upload"] == sha256(upload).hexdigest()
    assert from_json(body["project"]).name == "readings"
    assert body["sites"] == Path(sites).read_text()
    assert (body["seed"], body["method"], body["placement"]) == (7, "auto", None)
    assert "sites.yaml" not in zipfile.ZipFile(io.BytesIO(upload)).namelist()
    assert ran.out.startswith("pipeline 'readings'")


def test_a_project_needs_sites(run, controller: Recorded) -> None:
    ran = run("plan", str(ROOT / "examples" / "readings"))
    assert (ran.code, ran.err.split()[0]) == (2, "HW1332")
    assert "--sites" in ran.err
