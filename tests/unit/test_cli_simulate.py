"""Does `headwater simulate` answer in the right form, leave the right files, and say what is wrong?"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.serve.main import main
from headwater.serve.simulate_view import spark

ROOT = Path(__file__).parent.parent.parent
PAPER = str(ROOT / "examples/simulate/paper.yaml")
FILES = ("result.json", "operators.csv", "machines.csv", "simulation.png")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def command(*words: str) -> tuple[int, str, str]:
        code = main(["simulate", *words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return command


def test_figures_come_as_one_json_object_in_base_units(run) -> None:
    code, out, _ = run(PAPER, "--until", "600 s", "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    assert out.count("\n") == 1
    assert (found["simulated_s"], found["steps"], found["seed"]) == (600.0, 600, 3)
    assert set(found["operators"]) == {"t0", "t1", "t2", "t3"}
    assert {"throughput_rps", "queue_max", "p50_s", "p99_s", "dropped", "wait_s"} <= set(found["operators"]["t0"])
    assert {"utilisation", "overload_max", "overloaded_s", "cost"} <= set(found["machines"]["n0"])
    assert found["events"][0]["because"].startswith("nothing is known")


def test_the_same_seed_leaves_the_same_files_byte_for_byte(run, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert run(PAPER, "--until", "400 s", "--out", str(tmp_path / folder))[0] == 0
    for name in FILES[:3]:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    rows = list(csv.DictReader((tmp_path / "one/operators.csv").read_text().splitlines()))
    assert len(rows) == 400 * 4
    assert float(rows[-1]["queue_max"]) > 20_000.0
    assert (tmp_path / "one/simulation.png").stat().st_size > 10_000


def test_people_see_machines_operators_and_what_happened(run) -> None:
    code, out, _ = run(PAPER, "--until", "400 s")
    assert code == 0
    for words in ("schedule by bestfit", "placed by chance", "utilisation", "throughput", "n1", "t3", "p99"):
        assert words in out


def test_methods_are_compared_side_by_side(run) -> None:
    code, out, _ = run(PAPER, "--until", "400 s", "--compare", "bestfit,balance", "--json")
    assert code == 0
    assert list(json.loads(out)["methods"]) == ["bestfit", "balance"]
    code, out, _ = run(PAPER, "--until", "400 s", "--compare", "bestfit,balance")
    assert "overloaded" in out
    assert "balance" in out


def test_a_run_can_be_watched_in_scaled_time(run) -> None:
    code, out, _ = run(PAPER, "--until", "50 s", "--online", "--speed", "1000000", "--json")
    assert code == 0
    assert json.loads(out)["steps"] == 50


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["missing.yaml"], "HW1301"),
        ([PAPER, "--compare", "best"], "HW1340"),
        ([PAPER, "--online", "--speed", "0"], "HW1317"),
        ([PAPER, "--online", "--compare", "bestfit"], "HW1318"),
        ([PAPER, "--until", "0 s"], "HW1317"),
        ([PAPER, "--until", "soon"], "HW1308"),
    ],
)
def test_a_wrong_argument_is_told(run, words: list[str], code: str) -> None:
    exit_code, out, err = run(*words, "--json")
    assert exit_code == 2
    assert json.loads(out)["error"]["mistakes"][0]["code"] == code
    assert code in err


def test_a_wrong_scenario_is_told_with_file_and_line(run, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        "duration: 10 s\nmachines: {m: {}}\noperators: {o: {rate: 1/s}}\nevents:\n- {at: -1 s, do: schedule}\n"
    )
    code, _, err = run(str(file))
    assert code == 2
    assert f"HW1030 {file}:5: event 1: 'at' is '-1 s', before time 0" in err


def test_a_spark_line_rises_with_its_values() -> None:
    assert spark(np.array([0.0, 1.0, 2.0, 3.0])) == "▁▃▆█"
    assert spark(np.zeros(2)) == "▁▁"
