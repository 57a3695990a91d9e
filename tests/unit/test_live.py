"""What a person sees of a run, and what a program reads of it."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.cost.problem import Problem
from headwater.cost.score import evaluate
from headwater.model.sites import Link, Site, Sites
from headwater.plan.deploy import deploy
from headwater.serve import live
from headwater.serve.live import Screen
from headwater.serve.prepare import Prepared, expanded
from tests.unit.test_deploy import project
from tests.unit.test_lanes import one, sink

RED = "\x1b[31m"
BACKWARDS = "\u202e"


def fragment(name: str, site: str, **more: Any) -> dict[str, Any]:
    figures = {"in_rps": 200.4, "out_rps": 9.6, "in_total": 12_345, "out_total": 99, "lag": 3, "set_aside": 0}
    ages = {"p50_s": 0.0021, "p99_s": 0.012, "hop_p50_s": None, "hop_p99_s": None}
    used = {"memory_bytes": 700_000_000, "cores": 0.3, "left_out": 0, "counts": {}}
    told = {"id": name, "site": site, "operators": [name], "lane": "real-time", "state": "running"}
    return told | figures | ages | used | more


def progress(*fragments: dict[str, Any], **more: Any) -> dict[str, Any]:
    sites = {
        each["site"]: {
            "memory_bytes": 700_000_000,
            "broker_memory_bytes": 180_000_000,
            "runner_restarts": 2,
            "broker_restarts": 1,
        }
        for each in fragments
    }
    return {"event": "progress", "at_s": 3.2, "fragments": list(fragments), "sites": sites} | more


def summary(*fragments: dict[str, Any]) -> dict[str, Any]:
    overall = {fragments[0]["id"]: {"p50_s": 0.004, "p99_s": 1.5}}
    return progress(*fragments, event="summary", seconds=61.04, overall=overall)


READY = {"event": "ready", "brokers": {"pi-1": "127.0.0.1:20001"}, "placement": {}, "fragments": [], "seconds": 7.25}


def prepared(because: str = "found by auto") -> Prepared:
    whole = project(one("taxis"), one("warm", "taxis"), sink("out", "warm"), notes=(f"no rate{RED} is declared",))
    sites = Sites(
        (Site("pi-1", "leaf", slots=9), Site(f"dc{BACKWARDS}", "root", slots=9)),
        (Link("pi-1", f"dc{BACKWARDS}", 0.005, 1e8),),
    )
    placement = {"taxis": "pi-1", "warm": "pi-1", "out": f"dc{BACKWARDS}"}
    instances = expanded(whole, sites)
    score = evaluate(Problem(instances.pipeline, sites), placement)
    return Prepared(whole, sites, instances, placement, score, because, *deploy(whole, instances, placement))


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    found = capsys.readouterr()
    assert found.err == ""
    return found.out.splitlines()


def test_as_json_each_event_is_one_line_and_nothing_else_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(as_json=True)
    told = {"site": "pi-1", "text": f"first\nsecond {RED}\u2028 \ud800", "trace": "Traceback\n  line"}
    screen.plan(prepared(), Path("/state"), is_passing=True)
    screen.ready(READY)
    screen.progress(progress(fragment("warm", "pi-1")))
    screen.progress(progress(fragment("warm", "pi-1")))
    screen.tell("warning", told)
    screen.summary(summary(fragment("warm", "pi-1")))
    lines = capsys.readouterr().out.split("\n")
    assert lines.pop() == ""
    events = [json.loads(line) for line in lines]
    assert [each["event"] for each in events] == ["ready", "progress", "progress", "warning", "summary"]
    assert events[0] == READY
    assert events[3] == {"event": "warning", **told}
    assert all(line.isascii() for line in lines)


class Slow(io.StringIO):
    """Takes its time for every text, so that threads that do not wait for each other are seen."""

    def write(self, text: str) -> int:
        for sign in text[:3]:
            super().write(sign)
            time.sleep(0.0005)
        return super().write(text[3:])


def test_lines_of_many_threads_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", written := Slow())
    screen = Screen(as_json=True)

    def tell() -> None:
        for _ in range(10):
            screen.tell("warning", {"text": "x" * 200})

    threads = [threading.Thread(target=tell) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    lines = written.getvalue().splitlines()
    assert [json.loads(line) for line in lines] == [{"event": "warning", "text": "x" * 200}] * 80


def test_without_a_terminal_a_table_has_a_line_for_each_fragment(capsys: pytest.CaptureFixture[str]) -> None:
    failed = fragment("out", "dc", state="failed", p50_s=None, p99_s=None, lane="micro-batch")
    Screen(as_json=False).progress(progress(fragment("warm_pi-1-4735c1d6", "pi-1"), failed))
    assert [" ".join(line.split()) for line in shown(capsys)] == [
        "3 s",
        "site fragment lane state in/s out/s lag p50 p99 memory cores",
        "pi-1 warm_pi-1-4735c1d6 real-time running 200 10 3 2.1 ms 12 ms 700 MB 0.30",
        "dc out micro-batch failed 200 10 3 - - 700 MB 0.30",
    ]


def test_a_fragment_is_never_shown_under_another_site(capsys: pytest.CaptureFixture[str]) -> None:
    rows = (fragment("a", "pi-1"), fragment("b", "pi-1"), fragment("c", "dc"), fragment("d", "pi-1"))
    Screen(as_json=False).progress(progress(*rows))
    first = [line.split()[0] for line in shown(capsys)[2:]]
    assert first == ["pi-1", "b", "dc", "pi-1"]


def test_without_a_terminal_a_table_comes_at_once_and_then_rarely(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(as_json=False)
    for _ in range(5):
        screen.progress(progress(fragment("warm", "pi-1")))
    assert sum("warm" in line for line in shown(capsys)) == 1
    monkeypatch.setattr(live, "RARELY_S", 0.0)
    screen.progress(progress(fragment("warm", "pi-1")))
    assert sum("warm" in line for line in shown(capsys)) == 1


def test_without_a_terminal_nothing_but_text_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(as_json=False)
    screen.plan(prepared(), Path("/state"), is_passing=False)
    screen.ready(READY)
    screen.progress(progress(fragment("warm", "pi-1", state="failed")))
    screen.tell("error", {"site": "pi-1", "text": "it is broken", "trace": "Traceback"})
    screen.summary(summary(fragment("warm", "pi-1")))
    assert "\x1b" not in capsys.readouterr().out


def test_the_plan_says_what_runs_where_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(as_json=False).plan(prepared(), Path("/state"), is_passing=True)
    text = " ".join(" ".join(shown(capsys)).split())
    for each in (
        "pipeline 'city', placement found by auto",
        "taxis, warm",
        "real-time",
        "built-in functions",
        "hw.city.warm",
        "predicted response time",
        "state: /state (removed at the end; keep it with --state)",
    ):
        assert each in text


def test_names_and_messages_cannot_command_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(as_json=False)
    screen.plan(prepared(because=f"given by {RED}.yaml"), Path(f"/state{RED}"), is_passing=True)
    screen.ready(READY | {"brokers": {f"dc{BACKWARDS}": "a:1"}})
    rows = (fragment("a", f"dc{BACKWARDS}"), fragment("b", "pi-1"))
    screen.progress(progress(*rows))
    screen.tell("error", {"fragment": "a", "text": f"x{RED}\r{BACKWARDS}", "trace": f"{RED}\ud800", "record": RED})
    screen.summary(summary(*rows))
    found = capsys.readouterr().out
    assert not {"\x1b", "\r", BACKWARDS} & set(found)
    assert found.count("\\u202e") >= 5


def test_an_error_names_fragment_operator_and_record_and_shows_the_users_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    event = {"site": "pi-1", "fragment": "out", "operator": "warm", "record": "taxis/0/17", "text": "ValueError: no"}
    Screen(as_json=False).tell("error", event | {"trace": "Traceback\n  in warm", "blame": "record"})
    assert shown(capsys) == [
        "error: out, operator 'warm', record taxis/0/17: ValueError: no",
        "Traceback",
        "  in warm",
    ]
    Screen(as_json=False).tell("warning", {"site": "pi-1", "text": "back after 2 s"})
    assert shown(capsys) == ["warning: pi-1: back after 2 s"]


def test_the_summary_has_totals_ages_and_restarts(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(as_json=False).summary(summary(fragment("warm", "pi-1", set_aside=4), fragment("out", "dc")))
    assert [" ".join(line.split()) for line in shown(capsys)] == [
        "ran for 61.0 s",
        "site fragment lane state in out p50 p99 set aside",
        "pi-1 warm real-time running 12345 99 4 ms 1.5 s 4",
        "dc out real-time running 12345 99 - - -",
        "pi-1: runner 700 MB, broker 180 MB, restarted 3 times",
        "dc: runner 700 MB, broker 180 MB, restarted 3 times",
    ]
