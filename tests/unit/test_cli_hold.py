"""Does `headwater control` answer in the right form, leave the right files, and say what is wrong?"""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.control.policies import POLICIES, SUMMARIES
from headwater.serve.main import main

ROOT = Path(__file__).parent.parent.parent
BURST = str(ROOT / "examples/control/burst.yaml")
FILES = ("result.json", "control.csv", "control.png")
TWO = """
duration: 6 s
step: 10 ms
machines: {m: {cores: 1}, n: {cores: 2, speed: 2}}
operators:
  a: {rate: 40/s, work: 10 ms, class: gold, on: m}
  b: {rate: 90/s, work: 20 ms, instances: 2, share: 0.7, on: [m, n]}
  c: {rate: 30/s, work: 10 ms, p99: 50 ms, arrivals: poisson, on: n}
events:
  - {at: 2 s, do: kill-machine, machine: n}
  - {at: 3 s, do: schedule, method: balance}
  - {at: 4 s, do: new-machine, machine: n}
  - {at: 4 s, do: new-operator, operator: d, rate: 10/s, work: 10 ms, class: silver, on: n}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def command(*words: str) -> tuple[int, str, str]:
        code = main(["control", *words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return command


@pytest.fixture
def two(tmp_path: Path) -> str:
    file = tmp_path / "two.yaml"
    file.write_text(TWO)
    return str(file)


def test_the_example_holds_gold_with_predictive_and_not_without_limits(run) -> None:
    code, out, _ = run("--simulate", BURST, "--compare", "equal,predictive", "--json")
    assert code == 0
    assert out.count("\n") == 1
    found: dict[str, Any] = json.loads(out)["policies"]
    assert list(found) == ["equal", "predictive"]
    equal, ours = (found[name]["classes"] for name in found)
    assert list(ours) == ["gold", "silver", "bronze"]
    assert ours["gold"]["p99_s"] < 0.2
    assert ours["gold"]["worst_violations"] <= 0.01
    assert ours["silver"]["kept"] == ours["silver"]["applications"] == 2
    assert equal["gold"]["p99_s"] > 1.0
    assert equal["gold"]["worst_violations"] > 0.9
    assert equal["gold"]["kept"] == 0
    gave_way = found["predictive"]["gave_way"]
    assert {one["quality"] for one in gave_way} == {"bronze"}
    assert 20.0 <= min(one["begin_s"] for one in gave_way) <= 23.0
    assert found["equal"]["gave_way"] == []


def test_figures_come_as_one_json_object_in_base_units(run) -> None:
    code, out, _ = run("--simulate", BURST, "--until", "12 s", "--every", "500ms", "--seed", "7", "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    assert (found["policy"], found["seed"], found["simulated_s"], found["every_s"]) == ("predictive", 7, 12.0, 0.5)
    assert found["decisions"] == 24
    assert (found["classes"]["gold"]["goal_s"], found["classes"]["gold"]["most_goal_s"]) == (0.2, 0.3)
    assert found["applications"]["alarms"]["class"] == "gold"
    assert found["applications"]["alarms"]["goal_s"] == 0.2
    assert {"p50_s", "p99_s", "violations", "worst_violations", "used", "waiting", "dropped", "done"} <= set(
        found["applications"]["alarms"]
    )
    assert sum(one["used"] for one in found["classes"].values()) == pytest.approx(0.6, abs=0.05)


def test_people_see_classes_applications_and_what_gave_way(run) -> None:
    code, out, _ = run("--simulate", BURST, "--until", "30 s")
    assert code == 0
    for words in ("predictive", "worst 10 s", "200 ms to 300 ms", "2 of 2", "previews", "gave way from", "is the goal"):
        assert words in out
    code, out, _ = run("--simulate", BURST, "--until", "10 s")
    assert "no goal gave way" in out
    code, out, _ = run("--simulate", BURST, "--until", "10 s", "--compare", "all")
    assert all(name in out for name in POLICIES)
    assert "of any 10 s" in out


def test_files_hold_what_is_printed_its_course_and_a_picture(run, tmp_path: Path) -> None:
    words = ("--simulate", BURST, "--until", "25 s")
    assert run(*words, "--out", str(tmp_path))[0] == 0
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    printed = json.loads(run(*words, "--json")[1])
    assert printed.pop("seconds") > 0.0
    assert json.loads((tmp_path / "result.json").read_text()) == printed, "the same seed gives the same answer"
    rows = list(csv.DictReader((tmp_path / "control.csv").read_text().splitlines()))
    assert len(rows) == 25 * 3
    assert set(rows[0]) == {"time_s", "class", "used", "share", "demand", "p99_s", "violations", "queue"}
    last = {row["class"]: row for row in rows[-3:]}
    assert float(last["bronze"]["queue"]) > 1_000.0 > float(last["gold"]["queue"])
    assert sum(float(row["used"]) for row in last.values()) == pytest.approx(1.0, abs=0.1)
    assert (tmp_path / "control.png").stat().st_size > 10_000


def test_every_policy_of_a_comparison_leaves_a_folder(run, tmp_path: Path) -> None:
    words = ("--simulate", BURST, "--until", "3 s", "--compare", "equal,fixed,equal", "--out", str(tmp_path), "--json")
    code, out, err = run(*words)
    assert code == 0
    assert list(json.loads(out)["policies"]) == ["equal", "fixed"]
    assert {path.name for path in tmp_path.iterdir()} == {"equal", "fixed"}
    assert "results written" in err
    shares = {row["share"] for row in csv.DictReader((tmp_path / "equal/control.csv").read_text().splitlines())}
    assert shares == {""}, "nothing is limited"


@pytest.mark.parametrize("policy", POLICIES)
def test_decisions_of_several_machines_are_the_same_when_they_are_made_again(
    run, two: str, tmp_path: Path, policy: str
) -> None:
    record = tmp_path / "decisions.jsonl"
    code, out, _ = run("--simulate", two, "--policy", policy, "--record", str(record), "--json")
    assert code == 0
    found = json.loads(out)
    entries = [json.loads(line) for line in record.read_text().splitlines()]
    steps = [entry for entry in entries if entry["kind"] == "step"]
    assert len(steps) == found["decisions"]
    assert {entry["machine"] for entry in steps} == {"m", "n"}
    assert not [entry for entry in steps if entry["machine"] == "n" and 2.0 <= entry["now_s"] < 4.0], "it is dead"
    code, out, _ = run("replay", str(record), "--json")
    assert code == 0
    again = json.loads(out)
    assert (again["decisions"], again["differing"], again["recorded_policies"]) == (len(steps), 0, [policy])
    assert sum(again["machines"].values()) == len(steps)


def test_nobody_gets_more_than_the_scenario_allows(run, two: str) -> None:
    code, out, _ = run("--simulate", two, "--policy", "equal", "--until", "2 s", "--json")
    assert code == 0
    used = json.loads(out)["applications"]["b"]["used"]
    assert used * 5.0 <= 2 * 0.7 + 1e-9, "two instances with a share of 0.7 each, of 5 cores of speed 1"


@pytest.fixture
def record(run, tmp_path: Path) -> Path:
    file = tmp_path / "decisions.jsonl"
    assert run("--simulate", BURST, "--until", "24 s", "--record", str(file))[0] == 0
    return file


def test_a_record_that_differs_is_exit_code_3_with_what_differs(run, record: Path) -> None:
    lines = record.read_text().splitlines()
    entry = json.loads(lines[12])
    entry["decided"]["alarms"]["share"] *= 1.5
    lines[12] = json.dumps(entry)
    record.write_text("\n".join(lines) + "\n")
    code, out, _ = run("replay", str(record))
    assert code == 3
    assert "1 of 24 decisions by predictive are others now" in " ".join(out.split())
    assert "alarms" in out
    code, out, _ = run("replay", str(record), "--json")
    assert code == 3
    (one,) = json.loads(out)["differences"]
    assert (one["application"], one["machine"], one["now_s"]) == ("alarms", "m0", entry["now_s"])
    assert one["recorded"]["share"] == pytest.approx(1.5 * one["decided"]["share"])


def test_another_policy_decides_otherwise_from_the_same_measurements(run, record: Path) -> None:
    code, out, _ = run("replay", str(record), "--policy", "equal", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["policy"], found["is_same"], found["differing"]) == ("equal", False, 24)
    assert found["differences"][0]["decided"] == {"share": None, "limit": None}
    code, out, _ = run("replay", str(record), "--policy", "equal")
    assert code == 0
    assert "no limit" in out


def test_decisions_of_a_running_site_are_shown_at_the_time_of_the_clock(run, record: Path) -> None:
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    begun_s = 1_795_125_777.5
    for entry in lines:
        entry["now_s"] += begun_s
    record.write_text("\n".join(map(json.dumps, lines)) + "\n")
    _, out, _ = run("replay", str(record), "--policy", "equal")
    assert time.strftime("%Y-%m-%d %H:", time.localtime(begun_s)) in out


def test_a_decision_that_is_missing_is_said_to_be(run, record: Path) -> None:
    lines = record.read_text().splitlines()
    del lines[21]
    record.write_text("\n".join(lines) + "\n")
    code, _, err = run("replay", str(record))
    assert code == 3
    assert f"{record.name}:22: a decision between 20 s and 22 s seems to be missing" in " ".join(err.split())


def test_a_record_is_not_written_over_its_scenario_nor_to_standard_output(run, two: str, monkeypatch) -> None:
    before = Path(two).read_bytes()
    monkeypatch.chdir(Path(two).parent)
    for record in (two, Path(two).name, "-"):
        code, _, err = run("--simulate", two, "--record", record)
        assert (code, Path(two).read_bytes()) == (2, before)
        assert "HW1343 --record is" in err
    assert not Path("-").exists()


def test_times_that_are_others_than_asked_are_told_and_what_is_within_a_step(run) -> None:
    code, out, err = run("--simulate", BURST, "--every", "1.004 s", "--until", "90 s")
    assert code == 0
    assert "decided every 1 s: it goes in whole steps of 10 ms" in err
    assert "the scenario ends after 60 s" in err
    assert "60 decisions, every 1 s" in out
    assert "< 10 ms" in run("--simulate", BURST, "--policy", "equal", "--until", "15 s")[1]
    _, out, err = run("--simulate", BURST, "--until", "5 s")
    assert "whole steps" not in err
    assert "ends after" not in err


def test_missed_goals_that_no_policy_tells_of_are_counted(run) -> None:
    out = run("--simulate", BURST, "--policy", "equal")[1]
    assert "6 of 6 goals were missed, and equal told of none before" in out
    assert "no goal gave way" in run("--simulate", BURST, "--policy", "equal", "--until", "15 s")[1]


def test_what_stands_nowhere_and_what_was_dropped_is_told(run, tmp_path: Path) -> None:
    file = tmp_path / "nowhere.yaml"
    file.write_text(NOWHERE)
    out = " ".join(run("--simulate", str(file))[1].split())
    assert "nothing of 'a' was processed: is it on a machine that runs?" in out
    assert "records were dropped, because queues were full" in out


NOWHERE = """
duration: 5 s
step: 10 ms
machines: {m: {cores: 1}}
operators:
  a: {rate: 10/s, work: 1 ms}
  b: {rate: 500/s, work: 10 ms, queue: 10, on: m}
"""


def test_a_last_line_that_was_cut_off_is_left_out(run, record: Path) -> None:
    text = record.read_text()
    record.write_text(text[: -len(text.splitlines()[-1]) // 2])
    code, out, err = run("replay", str(record), "--json")
    assert code == 0
    assert json.loads(out)["decisions"] == 23
    assert "1 line was cut off and left out: line 25" in err


def test_a_line_that_was_cut_off_before_a_new_beginning_is_left_out(run, record: Path) -> None:
    """Whoever wrote it was killed; the next one begins on a line of its own."""
    lines = record.read_text().splitlines()
    torn = [*lines[:10], lines[10][: len(lines[10]) // 2]]
    record.write_text("\n".join([*torn, *lines, lines[3][:50]]))
    code, out, err = run("replay", str(record), "--json")
    assert code == 0
    assert json.loads(out)["decisions"] == 9 + 24
    assert "2 lines were cut off and left out: line 11, line 37" in err
    record.write_text("\n".join([*torn, *lines[11:]]) + "\n")  # nobody began anew
    code, out, _ = run("replay", str(record), "--json")
    assert code == 2
    assert json.loads(out)["error"]["mistakes"][0]["code"] == "HW1344"


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        (3, ("decided", "alarms", "share"), None),
        (3, ("now_s",), None),
        (3, ("capacity",), 10**400),
        (0, ("settings", "response_s"), 0),
        (0, ("settings", "part"), 1.0),
        (0, ("settings", "horizon"), 0),
        (3, ("applications", "alarms", "goal_s"), 0),
        (3, ("applications", "alarms", "weight"), float("nan")),
        (3, ("applications", "alarms", "tolerated"), -0.1),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_broken_entry_is_told_by_its_number(run, record: Path, line: int, path, value: object, form) -> None:
    lines = record.read_text().splitlines()
    entry = found = json.loads(lines[line])
    for key in path[:-1]:
        found = found[key]
    found[path[-1]] = value
    lines[line] = json.dumps(entry)
    record.write_text("\n".join(lines) + "\n")
    code, _, err = run("replay", str(record), *form)
    assert code == 2
    assert "HW1345" in err
    assert f"entry {line + 1} " in " ".join(err.split())


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "HW1344", "no decision"),
        ('{"kind": "begin"\n{}\n', "HW1344", "not JSON"),
        ("[1]\n", "HW1344", "no object"),
        ("null\n{}\n", "HW1344", "no object"),
        ("[" * 100_000 + "\n{}\n", "HW1344", "not JSON"),
        ('{"kind": "step"}\n', "HW1345", "entry 1"),
        ('{"kind": "begin", "policy": "best", "shares": {}, "settings": {}}\n', "HW1345", "entry 1"),
    ],
)
def test_a_file_that_is_no_record_is_told(run, tmp_path: Path, text: str, code: str, words: str) -> None:
    file = tmp_path / "record.jsonl"
    file.write_text(text)
    exit_code, out, _ = run("replay", str(file), "--json")
    assert exit_code == 2
    mistake = json.loads(out)["error"]["mistakes"][0]
    assert mistake["code"] == code
    assert words in mistake["text"]


def test_policies_are_listed_with_a_sentence_each(run) -> None:
    assert list(SUMMARIES) == list(POLICIES)
    code, out, _ = run("policies", "--json")
    assert (code, json.loads(out)["policies"]) == (0, dict(SUMMARIES))
    code, out, _ = run("policies")
    assert all(name in out for name in POLICIES)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--simulate", "missing.yaml"], "HW1301"),
        (["--simulate", BURST, "--policy", "best"], "HW1341"),
        (["--simulate", BURST, "--compare", "equal,best"], "HW1341"),
        (["--simulate", BURST, "--compare", ","], "HW1341"),
        (["--simulate", BURST, "--every", "1 ms"], "HW1342"),
        (["--simulate", BURST, "--every", "0 s"], "HW1342"),
        (["--simulate", BURST, "--every", "often"], "HW1308"),
        (["--simulate", BURST, "--until", "0 s"], "HW1317"),
        (["--simulate", BURST, "--compare", "all", "--policy", "equal"], "HW1343"),
        (["--simulate", BURST, "--compare", "all", "--record", "r.jsonl"], "HW1343"),
        (["--policy", "equal"], "HW1343"),
        (["--simulate", BURST, "replay", "r.jsonl"], "HW1343"),
        (["replay", "missing.jsonl"], "HW1301"),
        (["replay", BURST, "--policy", "best"], "HW1341"),
    ],
)
def test_a_wrong_argument_is_told(run, words: list[str], code: str) -> None:
    exit_code, out, err = run(*words, "--json")
    assert exit_code == 2
    assert json.loads(out)["error"]["mistakes"][0]["code"] == code
    assert code in err


def test_a_scenario_with_too_many_instances_is_refused(run, tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    file.write_text("duration: 2 s\nstep: 1 s\nmachines: {m: {}}\noperators: {o: {rate: 1/s, instances: 5001}}\n")
    code, _, err = run("--simulate", str(file))
    assert code == 2
    assert "HW1342 the scenario has 5001 instances" in err


def test_a_folder_or_file_that_cannot_be_written_is_told(run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run("--simulate", BURST, "--out", str(tmp_path / "file"))[0] == 4
    assert run("--simulate", BURST, "--record", str(tmp_path / "no/record.jsonl"))[0] == 4


def test_whoever_gets_nothing_is_not_said_to_keep_its_goal_and_a_long_interval_is_said(run, tmp_path: Path) -> None:
    file = tmp_path / "out.yaml"
    file.write_text(OUT)
    code, out, _ = run("--simulate", str(file), "--every", "15 s")
    assert code == 0
    for words in ("1 of 2", "worst 15 s", "stands still: the machine is out"):
        assert words in out
    assert "no goal gave way" not in out
    found = json.loads(run("--simulate", str(file), "--json")[1])
    assert (found["window_s"], found["classes"]["gold"]["kept"]) == (10.0, 1)
    assert found["applications"]["b"]["violations"] == 1.0
    assert found["applications"]["b"]["overdue"] > 1_000.0


OUT = """
duration: 30 s
step: 10 ms
machines: {m: {cores: 2}, n: {cores: 2}}
operators:
  a: {rate: 40/s, work: 10 ms, class: gold, on: m}
  b: {rate: 40/s, work: 10 ms, class: gold, on: n}
events: [{at: 0 s, do: kill-machine, machine: n}]
"""
