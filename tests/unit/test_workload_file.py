"""What workload files may say, and what is told about those that are wrong."""

from __future__ import annotations

import json

import pytest

from headwater.errors import Mistake, SpecError
from headwater.model.files import read_workload
from headwater.model.trace_file import read_loads
from headwater.model.workload import Forecast, Kind, Sinusoid, Trace

GOOD = """\
capacity: 500
machines: 25
operators:
  t0: {baseline: 120, amplitude: 45, period: 40, phase: -0.5}
  t1: {trace: [120, 130, 110]}
  t2: {baseline: 10}
"""


def wrong(text: str, **files: bytes) -> list[tuple[str, int | None]]:
    def fetch(name: str) -> bytes:
        if name not in files:
            raise SpecError(Mistake("HW1301", "there is no such file", name))
        return files[name]

    with pytest.raises(SpecError) as caught:
        read_workload(text.encode(), "w.yaml", fetch)
    assert all(mistake.file == "w.yaml" for mistake in caught.value.mistakes)
    return [(mistake.code, mistake.line) for mistake in caught.value.mistakes]


def test_the_contract_is_read() -> None:
    workload = read_workload(GOOD.encode(), "w.yaml")
    assert (workload.capacity, workload.machines, workload.is_plain) == (500.0, 25, True)
    assert list(workload.operators) == ["t0", "t1", "t2"]
    assert workload.operators["t0"] == Sinusoid(120.0, 45.0, 40.0, -0.5)
    assert workload.operators["t1"] == Trace((120.0, 130.0, 110.0))
    again = {"capacity": 500, "machines": 25, "operators": {"t1": {"trace": [120, 130, 110]}}}
    assert read_workload(json.dumps(again).encode(), "w.json").operators["t1"] == Trace((120.0, 130.0, 110.0))


def test_kinds_overload_traces_and_forecasts_are_read() -> None:
    text = """\
machines: [{capacity: 500, count: 20, price: 0.4}, {capacity: 250}]
overload: {price: 0.01}
operators:
  a: {trace: rates.csv, column: rate}
  b: {forecast: {trace: rates.csv, column: rate, season: 2, horizon: 4, margin: 0.1}}
"""
    workload = read_workload(text.encode(), "w.yaml", {"rates.csv": b"time,rate\n0,5\n1,7\n"}.__getitem__)
    assert workload.kinds == (Kind(500.0, 20, 0.4), Kind(250.0, 2, 1.0))
    assert workload.overload_price == 0.01
    assert workload.operators == {"a": Trace((5.0, 7.0)), "b": Forecast((5.0, 7.0), 2, 4, 0.1)}


@pytest.mark.parametrize(
    ("operator", "code"),
    [
        ("{baseline: 10, amplitude: -1, period: 4}", "HW1006"),
        ("{baseline: 10, amplitude: 11, period: 4}", "HW1007"),
        ("{baseline: 10, amplitude: 1, period: 0}", "HW1007"),
        ("{baseline: 10, amplitude: 1}", "HW1012"),
        ("{baseline: ten}", "HW1006"),
        ("{baseline: 10, phase: up}", "HW1005"),
        ("{trace: []}", "HW1007"),
        ("{trace: [1, -2]}", "HW1007"),
        ("{trace: [1, x]}", "HW1007"),
        ("{trace: 5}", "HW1005"),
        ("{trace: [1], baseline: 4}", "HW1011"),
        ("{trace: [1], period: 4}", "HW1011"),
        ("{trace: [1], column: a}", "HW1011"),
        ("{}", "HW1012"),
        ("{base: 4}", "HW1003"),
        ("{forecast: {season: 4}}", "HW1012"),
        ("{forecast: {trace: [1, 2, 3], season: 4}}", "HW1007"),
        ("{trace: none.csv}", "HW1301"),
        ("{trace: gap.csv}", "HW1021"),
    ],
)
def test_a_wrong_operator_is_told_with_its_line(operator: str, code: str) -> None:
    text = f"capacity: 500\noperators:\n  good: {{baseline: 5}}\n  bad: {operator}\n"
    assert (code, 4) in wrong(text, **{"gap.csv": b"rate\n5\n\n7\n"})


@pytest.mark.parametrize(
    ("head", "code", "line"),
    [
        ("machines: 3", "HW1012", 1),
        ("capacity: 0", "HW1007", 1),
        ("capacity: 500\nmachines: 0", "HW1007", 2),
        ("capacity: 500\nmachines: many", "HW1005", 2),
        ("capacity: 500\nmachines: [{capacity: 5}]", "HW1011", 1),
        ("machines: []", "HW1007", 1),
        ("machines: [5]", "HW1005", 1),
        ("machines: [{count: 5}]", "HW1012", 1),
        ("capacity: 500\noverload: {}", "HW1012", 2),
        ("capacity: 500\noverload: {price: -1}", "HW1006", 2),
        ("capacity: 500\nhorizon: 0", "HW1007", 2),
    ],
)
def test_wrong_machines_are_told_with_their_line(head: str, code: str, line: int) -> None:
    assert (code, line) in wrong(f"{head}\noperators:\n  a: {{baseline: 5}}\n")


def test_a_file_without_operators_says_so() -> None:
    assert wrong("capacity: 500\n") == [("HW1012", 1)]


@pytest.mark.parametrize(
    ("text", "column", "code", "line"),
    [
        (b"", None, "HW1021", None),
        (b"rate\n", None, "HW1021", 1),
        (b"rate\n5\n\n7\n", None, "HW1021", 3),
        (b"time,rate\n0,5\n2,6\n3,7\n", None, "HW1021", 4),
        (b"time,rate\n0,5\n1,\n", None, "HW1021", 3),
        (b"rate\n5\n-7\n", None, "HW1022", 3),
        (b"rate\n5\nnan\n", None, "HW1022", 3),
        (b"a,b\n5,6\n", None, "HW1020", 1),
        (b"a,b\n5,6\n", "c", "HW1020", 1),
        (b"\xff\xfe", None, "HW1020", None),
    ],
)
def test_gaps_and_what_is_no_load_are_told_with_their_line(
    text: bytes, column: str | None, code: str, line: int | None
) -> None:
    with pytest.raises(SpecError) as caught:
        read_loads(text, "r.csv", column)
    assert [(each.code, each.line) for each in caught.value.mistakes] == [(code, line)]


def test_loads_are_read_with_and_without_a_head() -> None:
    assert read_loads(b"5\n6\n", "r.csv") == (5.0, 6.0)
    assert read_loads(b"t,a,b\n0,5,6\n10,7,8\n", "r.csv", "b") == (6.0, 8.0)
