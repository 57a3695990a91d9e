"""Do commands answer in the right stream, in the right form and with the right exit code?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headwater.serve import cli
from headwater.serve.main import main

ROOT = Path(__file__).parent.parent.parent
FIRE = str(ROOT / "examples/fire/fire.yaml")
FLAT = str(ROOT / "examples/fire/flat.yaml")
COMMANDS = (
    ["score"], ["place"], ["compare"], ["draw"], ["sites", "import"], ["methods"], ["doctor"], ["pack"], ["simulate"],
    ["control"], ["control", "replay"], ["control", "policies"], ["inspect"], ["run"], ["profile"], ["feed"],
    ["bench", "fire"], ["bench", "traffic"], ["bench", "offload"], ["bench", "cut"],
    ["testbed", "up"], ["testbed", "down"], ["testbed", "status"], ["testbed", "link"], ["testbed", "exec"],
)  # fmt: skip
SCORE_KEYS = {
    "valid", "f", "rt_s", "rf", "bw_bps", "bounds", "critical_path", "load_cores", "overloaded", "congested", "reasons",
}  # fmt: skip
PLACE_KEYS = {
    "method", "placement", "score", "lower_bound", "gap", "proved", "seconds", "evaluations", "cut_short", "because",
}  # fmt: skip

SITES = """
sites:
  leaf: {kind: leaf, slots: 2, cores: 1}
  root: {kind: root, slots: 2, class: high}
links:
  - {between: [leaf, root], latency: 10 ms, bandwidth: 1 Mbit/s}
"""
PIPELINE = """
pipeline: small
operators:
  source: {source: true, rate: 100/s, size: 10 kB, work: 20 ms}
  middle: {inputs: [source], size_factor: 0.01}
  sink: {inputs: [middle], sink: true}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "sites.yaml").write_text(SITES)
    return str(tmp_path / "pipeline.yaml"), str(tmp_path / "sites.yaml")


class Ran:
    """What a command wrote, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def object(self) -> Any:
        assert self.out.count("\n") == 1, "one JSON object on one line and nothing else"
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEADWATER_DEBUG", raising=False)

    def command(*words: str) -> Ran:
        code = main(words)
        caught = capsys.readouterr()
        return Ran(code, caught.out, caught.err)

    return command


def process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater.serve.main", *words]
    return subprocess.run(command, text=True, capture_output=True, timeout=120, check=False, cwd=ROOT, **options)


def test_help_is_there_at_once_and_loads_nothing_heavy() -> None:
    program = (
        "import sys, time\nfrom headwater.serve.main import main\nmain(['--help'])\n"
        "heavy = {'numpy', 'numba', 'scipy', 'matplotlib', 'networkx', 'yaml', 'pydantic'}\n"
        "sys.stderr.write(' '.join([str(time.process_time()), *sorted(heavy & set(sys.modules))]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "compare" in done.stdout
    cpu_s, *heavy = done.stderr.split()
    assert heavy == []
    assert float(cpu_s) < 0.5  # processor time: a busy machine is no fault of ours


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_json_and_help_with_an_example(run, words: list[str]) -> None:
    ran = run(*words, "--help")
    assert ran.code == 0
    assert "--json" in ran.out
    assert "Example" in ran.out
    assert f"headwater {' '.join(words)}" in ran.out
    assert ran.err == ""


@pytest.mark.parametrize(
    "words", [["nonsense"], ["place"], ["place", "--nonsense"], ["place", "a", "b", "--seed", "x"], ["score", "a"]]
)
def test_wrong_usage_is_exit_code_2_with_a_hint(run, words: list[str]) -> None:
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "--help" in ran.err
    ran = run(*words, "--json")
    assert ran.code == 2
    assert ran.object["error"]["mistakes"][0]["code"] == "HW1300"


@pytest.mark.parametrize("value", ["pi", "pi=host", "=host:9092", "pi=:9092", "pi=host:0", "pi=host:x"])
def test_an_address_of_a_broker_has_a_site_a_host_and_a_port(run, value: str) -> None:
    ran = run("run", "p", "--sites", "s", "--broker", value)
    assert ran.code == 2
    assert ran.err.startswith(f"HW1313 --broker is '{value}'; wanted is SITE=HOST:PORT")


@pytest.mark.parametrize("value", ["width", "=3"])
def test_a_setting_of_a_generator_has_a_name_and_a_value(run, value: str) -> None:
    ran = run("feed", "p", "--rate", "1/s", "--set", value)
    assert (ran.code, ran.err.partition(";")[0]) == (2, f"HW1314 --set is '{value}'")


def test_without_a_command_help_is_shown(run) -> None:
    ran = run()
    assert ran.code == 2
    assert "Commands" in ran.out + ran.err


def test_the_mistakes_of_all_files_come_at_once(run, files, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("sites:\n  a: {slots: -1}\n")
    ran = run("place", str(tmp_path / "none.yaml"), str(bad), "--json")
    assert ran.code == 2
    mistakes = ran.object["error"]["mistakes"]
    assert {each["file"] for each in mistakes} == {str(tmp_path / "none.yaml"), str(bad)}
    assert all(set(each) == {"code", "file", "line", "text"} for each in mistakes)
    assert {each["line"] for each in mistakes if each["file"] == str(bad)} == {2}
    for each in mistakes:
        assert each["code"] in ran.err
        assert each["text"] in ran.err
    again = run("place", str(tmp_path / "none.yaml"), str(bad))
    assert (again.code, again.out, again.err) == (2, "", ran.err)


def test_standard_input_can_be_one_of_the_files_but_not_two(run, files) -> None:
    ran = run("score", "-", files[1], "-")
    assert ran.code == 2
    assert "HW1305" in ran.err
    done = process("place", "-", files[1], "--method", "td", "--json", input=PIPELINE)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == PLACE_KEYS


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_a_search_needs_more_than_no_time(run, files, seconds: str) -> None:
    ran = run("place", *files, "--seconds", seconds, "--json")
    assert ran.code == 2
    assert ran.object["error"]["mistakes"][0]["code"] == "HW1306"


def test_an_unknown_method_is_answered_with_a_near_one(run, files) -> None:
    ran = run("place", *files, "--method", "aneal")
    assert (ran.code, ran.out) == (2, "")
    assert "anneal" in ran.err
    assert run("compare", *files, "--methods", "td,aneal").code == 2


def test_output_that_cannot_be_written_is_refused_before_the_search(run, files, tmp_path: Path) -> None:
    ran = run("place", *files, "--out", str(tmp_path / "none" / "p.yaml"), "--json")
    assert ran.code == 4
    assert ran.object["error"]["mistakes"][0]["code"] == "HW4001"
    assert run("place", *files, "--draw", str(tmp_path)).code == 2
    assert run("draw", *files, "--out", "picture.gif").code == 2
    assert run("draw", *files, "--out", str(tmp_path / "none" / "p.svg")).code == 4


def test_our_bug_is_one_sentence_and_a_traceback_only_when_asked_for(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr(cli, "app", break_down)
    ran = run("methods")
    assert (ran.code, ran.out) == (70, "")
    assert ran.err.count("\n") == 1
    assert "report" in ran.err
    assert run("methods", "--json").object["error"]["mistakes"][0]["code"] == "HW9000"
    monkeypatch.setenv("HEADWATER_DEBUG", "1")
    assert "Traceback" in run("methods").err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (MemoryError(), 4, "HW4007"),
        (ModuleNotFoundError("no", name="scipy.optimize"), 4, "make setup"),
        (ModuleNotFoundError("no", name="headwater.x"), 70, "report"),
    ],
)
def test_every_end_has_its_exit_code(
    run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def end(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", end)
    monkeypatch.setattr("headwater.serve.main._let_go", lambda stream: None)
    ran = run("methods")
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert bool(said) == bool(ran.err)


def test_a_reader_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "headwater.serve.main", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this machine has no device that is always full")
def test_an_answer_that_cannot_be_written_is_exit_code_4() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "headwater.serve.main", "doctor", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr


def test_what_a_terminal_would_obey_is_spelled_out(run, files) -> None:
    ran = run("place", "\x1b[31mred.yaml", files[1])
    assert ran.code == 2
    assert "\x1b" not in ran.err
    assert "\\x1b[31mred.yaml" in ran.err


def test_place_answers_in_the_promised_shape(run) -> None:
    ran = run("place", FIRE, FLAT, "--json")
    assert ran.code == 0, ran.err
    answer = ran.object
    assert set(answer) == PLACE_KEYS
    assert set(answer["score"]) == SCORE_KEYS
    assert set(answer["score"]["bounds"]) == {"rt_min_s", "rt_max_s", "rf_max", "bw_max_bps"}
    assert answer["method"] == "auto"
    assert answer["score"]["valid"] is True
    assert answer["gap"] == pytest.approx(
        (answer["score"]["f"] - answer["lower_bound"]) / max(answer["score"]["f"], 1e-12)
    )
    assert answer["seconds"] > 0


def test_what_place_writes_can_be_scored_again(run, tmp_path: Path) -> None:
    for name in ("p.yaml", "p.json"):
        out = str(tmp_path / name)
        placed = run("place", FIRE, FLAT, "--method", "hlf", "--out", out, "--json").object
        scored = run("score", FIRE, FLAT, out, "--json")
        assert scored.code == 0
        assert scored.object == placed["score"]


def test_the_readable_form_names_sites_path_bound_and_reason(run) -> None:
    ran = run("place", FIRE, FLAT)
    assert ran.code == 0
    for word in ("operators", "F ", "RT ", "lower bound", "gap", "critical path", "why"):
        assert word in ran.out
    assert "\x1b" not in ran.out


def test_overload_and_congestion_are_warnings(run, files, tmp_path: Path) -> None:
    placement = tmp_path / "placement.json"
    placement.write_text('{"source": "leaf", "middle": "root", "sink": "root"}')
    ran = run("score", *files, str(placement), "--json")
    assert ran.code == 0
    assert ran.object["overloaded"] == ["leaf"]
    (congested,) = ran.object["congested"]
    assert congested == {"link": ["leaf", "root"], "toward": "root", "over_bps": pytest.approx(7e6)}
    readable = run("score", *files, str(placement)).out
    assert "2 of its 1 cores" in readable
    assert "7 Mbit/s above its bandwidth" in readable


def test_a_placement_that_is_not_valid_has_reasons_and_exit_code_3(run, files, tmp_path: Path) -> None:
    placement = tmp_path / "placement.yaml"
    placement.write_text("source: root\nmiddle: root\nsink: root\n")
    ran = run("score", *files, str(placement), "--json")
    assert ran.code == 3
    assert ran.object["valid"] is False
    assert ran.object["f"] is None
    assert len(ran.object["reasons"]) == 2
    readable = run("score", *files, str(placement))
    assert readable.code == 3
    assert "not valid" in readable.out
    assert run("draw", *files, str(placement), "--out", str(tmp_path / "p.svg")).code == 3
    assert not (tmp_path / "p.svg").exists()


def test_no_valid_placement_is_an_answer_with_reasons(run, files, tmp_path: Path) -> None:
    Path(files[1]).write_text(SITES.replace("kind: root, slots: 2", "kind: root, slots: 0"))
    ran = run("place", *files, "--json")
    assert ran.code == 3
    answer = ran.object
    assert set(answer) == {"method", "placement", "score", "unplaced", "conflict", "reasons"}
    assert (answer["placement"], answer["score"]) == (None, None)
    assert "sink" in [each["operator"] for each in answer["unplaced"]]
    assert answer["reasons"]
    readable = run("place", *files)
    assert (readable.code, readable.out) == (3, "")
    assert "no site can run 'sink'" in readable.err
    assert run("compare", *files, "--methods", "td,exact").code == 3
    assert run("draw", *files, "--out", str(tmp_path / "p.svg")).code == 3


def test_compare_marks_the_best_and_shows_every_method(run) -> None:
    ran = run("compare", FIRE, FLAT, "--methods", "td,hlf,exact", "--json")
    assert ran.code == 0
    answer = ran.object
    assert [each["method"] for each in answer["results"]] == ["td", "hlf", "exact"]
    least = min(each["score"]["f"] for each in answer["results"])
    best = next(each for each in answer["results"] if each["method"] == answer["best"])
    assert best["score"]["f"] == pytest.approx(least)
    readable = run("compare", FIRE, FLAT, "--methods", "td,hlf,exact").out
    assert readable.count("\u25b6") == 1


def test_compare_shows_a_method_that_refuses_with_its_reason(run, tmp_path: Path) -> None:
    many = {f"o{i}": {"inputs": [f"o{i - 1}" if i else "source"]} for i in range(60)}
    pipeline = {"pipeline": "long", "operators": {"source": {"source": True, "rate": 1, "size": 1}, **many}}
    names = [f"s{i}" for i in range(20)]
    sites = {
        "sites": {name: {"kind": "root" if i else "leaf", "slots": 8} for i, name in enumerate(names)},
        "links": [{"between": ["s0", name], "latency": 0.01, "bandwidth": 1e6} for name in names[1:]],
    }
    (tmp_path / "p.json").write_text(json.dumps(pipeline))
    (tmp_path / "s.json").write_text(json.dumps(sites))
    paths = (str(tmp_path / "p.json"), str(tmp_path / "s.json"))
    ran = run("compare", *paths, "--methods", "td,exhaustive", "--json")
    assert ran.code == 0, ran.err
    td, exhaustive = ran.object["results"]
    assert set(td) == PLACE_KEYS
    assert exhaustive["refused"]
    assert run("place", *paths, "--method", "exhaustive").code in {2, 3}


@pytest.mark.parametrize("name", ["p.svg", "p.png"])
def test_draw_makes_a_picture_with_or_without_a_placement(run, tmp_path: Path, name: str) -> None:
    picture, placement = tmp_path / name, tmp_path / "p.json"
    assert run("draw", FIRE, FLAT, "--out", str(picture), "--json").object["out"] == str(picture)
    first = picture.stat().st_size
    assert first > 1000
    assert run("place", FIRE, FLAT, "--method", "td", "--out", str(placement), "--draw", str(picture)).code == 0
    ran = run("draw", FIRE, FLAT, str(placement), "--out", str(picture))
    assert ran.code == 0
    assert str(picture) in ran.err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p.json", name]


def test_methods_are_listed_with_what_they_do(run) -> None:
    ran = run("methods", "--json")
    names = [each["name"] for each in ran.object["methods"]]
    assert set(names) == {"td", "hlf", "sd", "ts", "ga", "anneal", "exact", "exhaustive", "auto"}
    assert all(each["summary"] for each in ran.object["methods"])
    assert all(name in run("methods").out for name in names)


MAP = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">
<node id="a"/><node id="b"/><node id="c"/><edge source="a" target="b"/><edge source="b" target="c"/>
</graph></graphml>
"""


def test_sites_import_gives_a_sites_file_that_place_takes(run, files, tmp_path: Path) -> None:
    (tmp_path / "map.graphml").write_text(MAP)
    printed = run("sites", "import", str(tmp_path / "map.graphml"), "--latency", "3 ms", "--root", "high:4:2")
    assert printed.code == 0
    assert "note:" in printed.err
    (tmp_path / "printed.yaml").write_text(printed.out)
    as_json = run("sites", "import", str(tmp_path / "map.graphml"), "--latency", "3 ms", "--root", "high:4:2", "--json")
    assert as_json.object["sites"]["b"] == {"kind": "root", "class": "high", "slots": 4, "speed": 2.0}
    assert as_json.object["links"][0]["latency"] == 0.003
    (tmp_path / "printed.json").write_text(as_json.out)
    for name in ("printed.yaml", "printed.json"):
        assert run("place", files[0], str(tmp_path / name), "--method", "td", "--json").code == 0
    for name in ("out.yaml", "out.json"):
        written = run("sites", "import", str(tmp_path / "map.graphml"), "--out", str(tmp_path / name))
        assert (written.code, written.out) == (0, "")
        assert run("place", files[0], str(tmp_path / name), "--method", "td", "--json").code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--latency", "3 parsecs"], "HW1308"),
        (["--root", "huge:1:1"], "HW1309"),
        (["--root", "high"], "HW1310"),
        (["--leaves", "Nowhere"], "HW1109"),
    ],
)
def test_wrong_import_options_are_told(run, tmp_path: Path, words: list[str], code: str) -> None:
    (tmp_path / "map.graphml").write_text(MAP)
    ran = run("sites", "import", str(tmp_path / "map.graphml"), *words, "--json")
    assert ran.code == 2
    assert ran.object["error"]["mistakes"][0]["code"] == code
