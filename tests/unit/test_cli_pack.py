"""Does `headwater pack` answer in the right stream, in the right form and with the right exit code?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from headwater.serve.main import main

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "packing"
TWELVE = str(EXAMPLES / "twelve.yaml")
KEYS = {
    "method", "assignment", "used", "utilisation", "overload", "lower_bound", "proved", "seconds", "cost", "gap",
    "overloaded", "cut_short", "because",
}  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HEADWATER_DEBUG", raising=False)

    def command(*words: str) -> tuple[int, str, str]:
        code = main(["pack", *words])
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return command


def object_of(out: str) -> Any:
    assert out.count("\n") == 1, "one JSON object on one line and nothing else"
    return json.loads(out)


def test_pack_answers_in_the_promised_shape(run) -> None:
    code, out, _ = run(TWELVE, "--json")
    answer = object_of(out)
    assert code == 0
    assert set(answer) == KEYS
    assert (answer["used"], answer["lower_bound"], answer["proved"], answer["overload"]) == (4, 4, True, 0.0)
    assert isinstance(answer["lower_bound"], int)
    assert set(answer["assignment"]) == {f"t{i}" for i in range(12)}


def test_a_person_sees_machines_the_bound_and_why(run) -> None:
    code, out, _ = run(TWELVE)
    assert code == 0
    for text in ("12 operators on 4 of 9 machines", "of 500", "proven: nothing better exists", "at least 4 machines"):
        assert text in out
    _, out, _ = run(TWELVE, "--method", "rstorm")
    assert "exceed their capacity" in out
    assert "not allowed" in out


def test_methods_are_shown_side_by_side(run) -> None:
    code, out, _ = run(TWELVE, "--compare", "--json")
    answer = object_of(out)
    assert code == 0
    assert [each["method"] for each in answer["results"]] == ["auto", "rstorm", "ga", "bestfit", "anneal", "exact"]
    assert answer["best"] == "auto"
    assert {each["lower_bound"] for each in answer["results"]} == {4}
    code, out, _ = run(TWELVE, "--compare", "--methods", "bestfit,exact")
    assert "rstorm" not in out
    assert "exact" in out


def test_kinds_traces_and_forecasts_of_the_example_are_packed(run) -> None:
    code, out, _ = run(str(EXAMPLES / "kinds.yaml"), "--json")
    answer = object_of(out)
    assert (code, answer["proved"]) == (0, True)
    assert answer["cost"] == pytest.approx(0.63)


def test_the_assignment_and_the_picture_are_written(run, tmp_path: Path) -> None:
    for name in ("a.yaml", "a.json"):
        code, _, err = run(TWELVE, "--out", str(tmp_path / name), "--draw", str(tmp_path / f"{name}.svg"))
        assert code == 0
        assert "written" in err
        text = (tmp_path / name).read_text()
        written = json.loads(text) if name.endswith("json") else yaml.safe_load(text)
        assert sorted(set(written.values())) == [0, 1, 2, 3]
        assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")


def test_too_few_machines_are_exit_code_3_with_how_many_would_do(run, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(Path(TWELVE).read_text().replace("machines: 9", "machines: 3"))
    code, out, err = run(str(file), "--json")
    answer = object_of(out)
    assert (code, answer["assignment"], answer["at_least"], answer["proved"]) == (3, None, 4, True)
    assert answer["needed"] >= 4
    assert "at least 4 machines are needed, and 3 may be used" in err
    assert run(str(file), "--compare", "--methods", "exact,bestfit")[0] == 3


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--method", "aneal"], "HW1450"),
        (["--seconds", "0"], "HW1306"),
        (["--draw", "x.gif"], "HW1307"),
        (["--compare", "--out", "x.yaml"], "HW1319"),
        (["--methods", "ga"], "HW1319"),
    ],
)
def test_wrong_arguments_are_exit_code_2(run, words: list[str], code: str) -> None:
    done, out, err = run(TWELVE, *words)
    assert (done, out) == (2, "")
    assert err.startswith(code)


def test_a_wrong_file_is_exit_code_2_with_its_line(run, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("capacity: 500\noperators:\n  a: {baseline: 5, amplitude: 9, period: 4}\n")
    code, out, err = run(str(file), "--json")
    assert code == 2
    assert [(each["code"], each["line"]) for each in object_of(out)["error"]["mistakes"]] == [("HW1007", 3)]
    assert "the load would fall below 0" in err
