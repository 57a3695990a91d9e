"""What the REST API does: jobs, compositions and pipelines that come, change, move and go."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import BindError
from tests.contract.controlled import CODE, WAIT, Controlled, buckets, composition, form, running, settled, until

A, B = form("A", "edge-1"), form("B", "edge-2")
C = form("C", "cloud", source_topic="T-filter", sink_topic="T-D")
D = form("D", "cloud", source_topic="T-D", source_broker="cloud", sink_topic="T-total")
C2 = form("C2", "cloud", source_topic="T-C2", sink_topic="T-D")
FIRST = composition(A, B, C, D)
SECOND = composition(A, {**C, "sink_topic": "T-C2"}, C2, D)


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Controlled]:
    with running(tmp_path) as found:
        yield found


def test_a_job_is_deployed_shown_and_deleted(it: Controlled) -> None:
    answer = it.call("POST", "/jobs", 201, json=A, params=WAIT)
    assert (answer["is_done"], answer["failures"], buckets(answer)) == (True, [], {"A": "start"})
    seen = it.call("GET", "/jobs/A", 200)
    assert (seen["state"], seen["site"], seen["wanted"]["form"]["job_name"]) == ("running", "edge-1", "A")
    assert [job["name"] for job in it.call("GET", "/jobs", 200)["jobs"]] == ["A"]
    assert it.call("DELETE", "/jobs/A", 200, params=WAIT)["is_done"]
    assert it.call("GET", "/jobs", 200) == {"jobs": []}
    assert it.call("GET", "/jobs/A", 404)["error"]["code"] == "HW1830"


def test_the_same_request_twice_is_done_once(it: Controlled) -> None:
    it.call("POST", "/jobs", 201, json=A, params=WAIT)
    revision = it.store.revision
    assert buckets(it.call("POST", "/jobs", 201, json=A, params=WAIT)) == {"A": "keep"}
    it.call("PUT", "/compositions/city", 200, content=composition(B, C), params=WAIT)
    it.call("PUT", "/compositions/city", 200, content=composition(B, C), params=WAIT)
    assert it.store.revision == revision + 1
    assert it.call("GET", "/jobs/A", 200)["epoch"] == 1


def test_listing_two_after_listing_one_touches_only_what_differs(it: Controlled) -> None:
    assert it.call("PUT", "/compositions/city", 200, content=FIRST, params=WAIT)["is_done"]
    untouched = it.sites.by_name["edge-1"].engine.states()["A"].query
    answer = it.call("PUT", "/compositions/city", 200, content=SECOND, params=WAIT)
    assert buckets(answer) == {"A": "keep", "B": "stop", "C": "rewire", "C2": "start", "D": "keep"}
    assert it.sites.by_name["edge-1"].engine.states()["A"].query == untouched
    assert {job["name"] for job in it.call("GET", "/jobs", 200)["jobs"]} == {"A", "C", "C2", "D"}
    seen = it.call("GET", "/compositions/city", 200)
    assert len(seen["jobs"]) == 4
    again = it.call("PUT", "/compositions/city", 200, content=seen["yaml"], params=WAIT)
    assert set(buckets(again).values()) == {"keep"}
    assert it.call("GET", "/compositions", 200) == {"compositions": [{"name": "city", "jobs": 4}]}
    it.call("DELETE", "/compositions/city", 200, params=WAIT)
    assert it.call("GET", "/jobs", 200) == {"jobs": []}


def test_all_mistakes_of_a_composition_are_answered_with_their_lines_and_nothing_happens(it: Controlled) -> None:
    wrong = composition({**A, "spe_address": "mars", "job_path": "no.py"}, {**B, "sink_topic": "hw.x"})
    error = it.call("PUT", "/compositions/city", 422, content=wrong)["error"]
    assert [(one["code"], one["line"], one["file"]) for one in error["mistakes"]] == [
        ("HW1532", 3, "city"),
        ("HW1535", 9, "city"),
        ("HW1534", 15, "city"),
    ]
    assert it.store.revision == 0


def test_a_name_that_something_else_has_is_refused_and_both_are_named(it: Controlled) -> None:
    it.call("PUT", "/compositions/city", 202, content=FIRST)
    error = it.call("PUT", "/compositions/town", 422, content=composition(A))["error"]
    assert (error["code"], error["mistakes"][0]["line"]) == ("HW1810", 2)
    assert "'A' belongs to 'city' already" in error["text"]
    assert "'town'" in error["text"]
    assert it.call("POST", "/jobs", 422, json=A)["error"]["code"] == "HW1810"


def test_a_plan_changes_nothing_and_is_applied_just_once(it: Controlled) -> None:
    planned = it.call("PUT", "/compositions/city", 200, content=FIRST, params={"dry_run": True})
    assert buckets(planned) == dict.fromkeys("ABCD", "start")
    assert it.call("GET", "/jobs", 200) == {"jobs": []}
    basis = planned["plan"]["basis"]
    done = it.call("PUT", "/compositions/city", 200, content=FIRST, params={"basis": basis, **WAIT})
    assert done["plan"]["steps"] == planned["plan"]["steps"]
    again = it.call("PUT", "/compositions/city", 409, content=FIRST, params={"basis": basis})
    assert again["error"]["code"] == "HW2201"


def test_a_plan_is_not_applied_twice_even_while_nothing_has_happened_yet(it: Controlled) -> None:
    for site in it.sites.by_name.values():
        site.is_silent = True
    basis = it.call("POST", "/jobs", 200, json=A, params={"dry_run": True})["plan"]["basis"]
    it.call("POST", "/jobs", 201, json=A, params={"basis": basis})
    assert it.call("POST", "/jobs", 409, json=A, params={"basis": basis})["error"]["code"] == "HW2201"


@pytest.mark.parametrize("between", ["wanted", "site", "other text"])
def test_a_plan_that_was_overtaken_is_refused(it: Controlled, between: str) -> None:
    basis = it.call("PUT", "/compositions/city", 200, content=FIRST, params={"dry_run": True})["plan"]["basis"]
    text = FIRST
    if between == "wanted":
        it.call("POST", "/jobs", 201, json=form("Z"))
    elif between == "site":
        it.sites.by_name["edge-2"].is_silent = True
    else:
        text = SECOND
    answer = it.call("PUT", "/compositions/city", 409, content=text, params={"basis": basis})
    assert answer["error"]["code"] == "HW2201"
    assert it.call("GET", "/compositions", 200) == {"compositions": []}


def test_a_job_moves_with_its_state_and_the_move_is_remembered(it: Controlled) -> None:
    it.call("PUT", "/compositions/city", 200, content=FIRST, params=WAIT)
    answer = it.call("POST", "/jobs/B/move", 200, json={"site": "edge-1"}, params=WAIT)
    assert buckets(answer)["B"] == "move"
    assert answer["plan"]["changes"][1]["from_site"] == "edge-2"
    it.restart()
    seen = it.call("GET", "/jobs/B", 200)
    assert (seen["site"], seen["wanted_site"], seen["epoch"]) == ("edge-1", "edge-1", 2)
    error = it.call("POST", "/jobs/B/move", 422, json={"site": "edge-9"})["error"]
    assert (error["code"], "Did you mean" in error["text"]) == ("HW1813", True)


def test_stopped_jobs_keep_their_place_until_they_are_started(it: Controlled) -> None:
    it.call("PUT", "/compositions/city", 200, content=FIRST, params=WAIT)
    it.call("POST", "/jobs/A/stop", 200, params=WAIT)
    assert it.call("GET", "/jobs/A", 200)["state"] == "stopped"
    it.call("PUT", "/compositions/city", 200, content=SECOND, params=WAIT)
    assert it.call("GET", "/jobs/A", 200)["state"] == "stopped"
    it.call("POST", "/compositions/city/stop", 200, params=WAIT)
    assert {job["state"] for job in it.call("GET", "/jobs", 200)["jobs"]} == {"stopped"}
    it.call("POST", "/compositions/city/start", 200, params=WAIT)
    assert {job["state"] for job in it.call("GET", "/jobs", 200)["jobs"]} == {"running"}


def test_what_cannot_be_done_is_told_and_repaired_by_itself(it: Controlled) -> None:
    it.sites.by_name["edge-2"].is_silent = True
    answer = it.call("PUT", "/compositions/city", 202, content=FIRST, params=WAIT)
    assert not answer["is_done"]
    assert [(one["job"], one["site"]) for one in answer["failures"]] == [("B", "edge-2")]
    status = it.call("GET", "/status", 200)
    assert (status["is_done"], status["failures"]) == (False, answer["failures"])
    assert it.call("GET", "/plan", 200)["failures"] == answer["failures"]
    assert "does not answer" in it.call("GET", "/history", 200)["history"][0]["outcome"]
    it.sites.by_name["edge-2"].is_silent = False
    settled(it)
    assert it.call("GET", "/jobs/B", 200)["state"] == "running"
    assert until(lambda: it.call("GET", "/history", 200)["history"][0]["outcome"] == "done")


def test_a_job_leaves_a_silent_site_only_by_force_and_only_once(it: Controlled) -> None:
    it.call("POST", "/jobs", 201, json=A, params=WAIT)
    it.sites.by_name["edge-1"].is_silent = True
    stuck = it.call("POST", "/jobs/A/move", 202, json={"site": "cloud"}, params=WAIT)
    assert stuck["failures"][0]["site"] == "edge-1"
    planned = it.call("POST", "/jobs/A/move", 200, json={"site": "cloud", "force": True}, params={"dry_run": True})
    assert "given up" in planned["plan"]["changes"][0]["because"]
    assert it.call("POST", "/jobs/A/move", 200, json={"site": "cloud", "force": True}, params=WAIT)["is_done"]
    assert it.call("GET", "/jobs/A", 200)["site"] == "cloud"
    assert until(lambda: not it.store.forced())
    it.sites.by_name["edge-1"].is_silent = False
    assert until(lambda: it.sites.by_name["edge-1"].held() == ())
    assert it.sites.world.faults == ["job 'A' runs at cloud and edge-1"], "that is what force risks"
    it.sites.world.faults.clear()


def test_what_is_begun_comes_to_its_end_before_a_change_of_mind_is_carried_out(it: Controlled) -> None:
    it.call("PUT", "/compositions/city", 200, content=FIRST, params=WAIT)
    query = it.sites.by_name["edge-1"].engine.states()["A"]
    it.sites.by_name["edge-2"].is_silent = True
    assert not it.call("PUT", "/compositions/city", 202, content=SECOND, params=WAIT)["is_done"]
    it.restart()
    assert not it.call("PUT", "/compositions/city", 202, content=FIRST)["is_done"]
    it.restart()  # what comes first is remembered
    assert it.store.begun()["city"].keys() == {"A", "C", "C2", "D"}
    it.sites.by_name["edge-2"].is_silent = False
    settled(it)
    assert it.store.begun() == {}
    assert it.call("GET", "/compositions/city", 200)["yaml"].count("job_name") == 4
    assert {name for name, one in it.sites.latest().owners().items() if one.is_run} == {"A", "B", "C", "D"}
    assert it.sites.by_name["edge-1"].engine.states()["A"] == query, "it was never touched"


def test_a_change_of_mind_waits_only_so_long_for_what_cannot_be_done_and_not_at_all_by_force(tmp_path: Path) -> None:
    it = Controlled(tmp_path, patience_s=0.5)
    try:
        it.upload()
        it.sites.by_name["edge-2"].is_silent = True
        it.call("PUT", "/compositions/city", 202, content=FIRST)
        assert it.call("DELETE", "/jobs/B", 200, params=WAIT)["is_done"], "after half a second"
        assert it.store.begun() == {}
        it.call("PUT", "/compositions/city", 202, content=FIRST)
        assert not it.call("DELETE", "/jobs/B", 202)["is_done"], "what is begun comes first"
        assert it.call("DELETE", "/jobs/B", 404)
        it.call("PUT", "/compositions/city", 202, content=FIRST)
        assert it.call("DELETE", "/jobs/B", 200, params={"force": True})["is_done"], "at once"
    finally:
        it.stop()


def test_force_gives_up_nothing_that_stays_where_it_is(it: Controlled) -> None:
    it.call("POST", "/jobs", 201, json=A, params=WAIT)
    it.sites.by_name["edge-1"].is_silent = True
    answer = it.call("POST", "/jobs", 201, json={**A, "sink_topic": "T-other"}, params={"force": True})
    assert buckets(answer) == {"A": "rewire"}
    assert it.store.forced() == frozenset()


def test_a_restarted_controller_touches_nothing_that_runs(it: Controlled) -> None:
    it.call("PUT", "/compositions/city", 200, content=FIRST, params=WAIT)
    queries = {name: site.engine.states() for name, site in it.sites.by_name.items()}
    it.restart()
    assert it.call("GET", "/status", 200)["is_done"]
    assert it.call("GET", "/plan", 200)["plan"]["steps"] == []
    assert {name: site.engine.states() for name, site in it.sites.by_name.items()} == queries


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/none"),
        ("DELETE", "/jobs/none"),
        ("POST", "/jobs/none/stop"),
        ("GET", "/jobs/none/logs"),
        ("GET", "/compositions/none"),
        ("DELETE", "/compositions/none"),
        ("DELETE", "/compositions/jobs"),
        ("POST", "/compositions/none/start"),
        ("GET", "/pipelines/none"),
        ("DELETE", "/pipelines/none"),
        ("POST", "/pipelines/none/stop"),
        ("DELETE", "/tokens/none"),
        ("GET", "/nowhere"),
        ("GET", "/jobs/"),
    ],
)
def test_what_has_no_such_name_is_404(it: Controlled, method: str, path: str) -> None:
    assert it.call(method, path, 404)["error"]["code"] == "HW1830"


def test_a_method_that_a_path_does_not_have_is_405(it: Controlled) -> None:
    assert it.call("PATCH", "/jobs", 405)["error"]["code"] == "HW1824"


def test_uploads_are_kept_by_hash_and_the_last_of_a_name_counts(it: Controlled) -> None:
    first = it.call("PUT", "/uploads/x.py", 200, content=CODE)
    assert first == {"name": "x.py", "hash": it.store.upload("jobs.py"), "size_bytes": len(CODE), "is_new": False}
    second = it.call("PUT", "/uploads/x.py", 200, content=CODE + b"#")
    assert second["is_new"]
    listed = {one["name"]: one["hash"] for one in it.call("GET", "/uploads", 200)["uploads"]}
    assert listed == {"jobs.py": first["hash"], "x.py": second["hash"]}
    it.call("POST", "/jobs", 201, json={**A, "job_path": f"sha256:{first['hash']}"})


def test_logs_come_from_the_site_that_has_the_job(it: Controlled) -> None:
    it.sites.by_name["edge-1"].is_silent = True
    it.call("POST", "/jobs", 201, json=A)
    assert "has not run yet" in it.call("GET", "/jobs/A/logs", 200)["text"]
    it.sites.by_name["edge-1"].is_silent = False
    settled(it)
    assert it.call("GET", "/jobs/A/logs?lines=2", 200) == {"text": "edge-1 A 0\nedge-1 A 1\n"}


def test_history_names_the_token_that_asked(it: Controlled) -> None:
    it.call("POST", "/jobs", 201, json=A, params=WAIT)
    last = it.call("GET", "/history?limit=1", 200)["history"][0]
    assert last["who"] == it.tokens.all()[0].id
    assert last["what"] == "job 'A' submitted"
    assert abs(last["at_s"] - time.time()) < 60


def test_tokens_are_made_listed_and_revoked(it: Controlled) -> None:
    made = it.call("POST", "/tokens", 201, json={"site": "edge-1"})
    with it.client_of(made["token"]) as agent:
        assert agent.post("/agents/edge-1/hello", json={}).status_code == 422
        listed = it.call("GET", "/tokens", 200)["tokens"]
        assert [(one["kind"], one["site"], one["revoked_at_s"]) for one in listed] == [
            ("operator", None, None),
            ("agent", "edge-1", None),
        ]
        assert made["token"] not in json.dumps(listed)
        it.call("DELETE", f"/tokens/{made['id']}", 200)
        assert agent.post("/agents/edge-1/hello", json={}).status_code == 401
    assert it.sites.revoked == ["edge-1"]
    it.call("DELETE", f"/tokens/{made['id']}", 404)
    own = it.call("DELETE", f"/tokens/{listed[0]['id']}", 409)
    assert own["error"]["code"] == "HW2211"
    assert it.call("POST", "/tokens", 422, json={"site": "../x"})["error"]["code"] == "HW1811"


def test_what_an_agent_tells_of_its_jobs_is_shown_with_them(it: Controlled) -> None:
    it.call("POST", "/jobs", 201, json=A, params=WAIT)
    it.sites.told = {
        "edge-1": {"memory_bytes": 5, "jobs": {"A": {"in_rps": 7.5}}},
        "cloud": {"jobs": {"A": {"lag": 1}}},
    }
    assert it.call("GET", "/jobs/A", 200)["told"] == {"in_rps": 7.5}
    assert it.call("GET", "/sites", 200)["sites"][0]["told"] == {"memory_bytes": 5}


def test_the_loop_outlives_whatever_a_step_meets(it: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(it.sites, "observe", lambda: 1 / 0)
    answer = it.call("POST", "/jobs", 201, json=A, params=WAIT)
    assert "division" in answer["failures"][0]["text"]
    monkeypatch.undo()
    settled(it)


def test_a_store_that_refuses_is_503_and_changes_nothing(it: Controlled, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(change: object) -> int:
        raise BindError("HW4221 the disk is full.")

    monkeypatch.setattr(it.store, "change", refuse)
    assert it.call("POST", "/jobs", 503, json=A)["error"]["code"] == "HW4221"
    assert it.store.wanted() == {}


def test_a_hundred_jobs_are_one_change_and_a_few_looks_at_the_sites(it: Controlled) -> None:
    sites = ("edge-1", "edge-2")
    chain = [
        form(f"J{at}", sites[at % 2], source_topic=f"T-{at}", sink_broker=sites[(at + 1) % 2], sink_topic=f"T-{at + 1}")
        for at in range(100)
    ]
    before = it.sites.observed
    begun_s = time.monotonic()
    assert it.call("PUT", "/compositions/chain", 200, content=composition(*chain), params=WAIT)["is_done"]
    turns = 2 + (time.monotonic() - begun_s) / it.options["every_s"]
    assert it.store.revision == 1
    assert it.sites.observed - before <= 2 * turns + 2


def test_status_tells_of_a_thousand_jobs(it: Controlled) -> None:
    many = [form(f"J{number}", source_topic=f"T-{number}", sink_topic=f"U-{number}") for number in range(1000)]
    it.call("PUT", "/compositions/many", 200, content=composition(*many), params={"wait_s": 120})
    assert {one["name"] for one in it.call("GET", "/status", 200)["jobs"]} == {f"J{number}" for number in range(1000)}


def test_many_callers_who_wait_hold_up_nobody(it: Controlled) -> None:
    it.sites.by_name["edge-2"].is_silent = True
    it.call("POST", "/jobs", 201, json=A, params=WAIT)
    monkey = [threading.Thread(target=waiting, args=(it, number)) for number in range(50)]
    for each in monkey:
        each.start()
    begun_s = time.monotonic()
    it.call("GET", "/health", 200)
    assert time.monotonic() - begun_s < 5.0
    for each in monkey:
        each.join()


def waiting(it: Controlled, number: int) -> None:
    with it.client_of(it.token) as client:
        assert client.post("/jobs", json=form(f"W{number}"), params={"wait_s": 2}).status_code == 201
