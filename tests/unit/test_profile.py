"""What was measured is read, written, shown and put in the place of what was declared."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SpecError
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.profile import OperatorProfile, Profile, apply, profiled, read_profile, write_profile
from headwater.model.project import Definition, Project
from headwater.serve.output import Output
from headwater.serve.profile import profile, profile_object, profile_view, with_profile
from headwater.serve.profiling import Wanted
from headwater.serve.sample import Taking, chosen, for_topics, laid
from headwater.serve.timing import Trial, timed

READINGS = Path(__file__).parent.parent.parent / "examples" / "readings"
PIPELINE = Pipeline(
    "readings",
    (
        Operator("readings", is_source=True, rate_rps=50.0, size_bytes=65.0),
        Operator("parsed", (Stream("readings", "parsed", 1.0, 0.5),), work_s=2e-4, size_factor=1.2),
        Operator("alerts", (Stream("parsed", "alerts"),), is_sink=True),
    ),
)
TEXT = """\
profile: readings
fingerprint: abc
repeat: 3
operators:
  readings: {rate: 48.5/s, size: 104 B, work: 0 s, spread: 20 ns, records: 500000}
  parsed: {rate_factor: 1, size_factor: 0.46, work: 2.9 us, spread: 0.1 us, state: 8 kB}
notes:
  - "operator 'readings': so it is"
"""
FOUND = Profile(
    "readings",
    (
        OperatorProfile("readings", 48.5, 104.0, work_s=0.0, spread_s=2e-8, records=500_000),
        OperatorProfile("parsed", None, None, 1.0, 0.46, 2.9e-6, 1e-7, 8_000.0),
    ),
    "abc",
    3,
    ("operator 'readings': so it is",),
)


def project(**changes: object) -> Project:
    definitions = tuple(
        Definition(one.name, "view", tuple(each.source for each in one.inputs), "{}", "r.py", 1)
        for one in PIPELINE.operators
    )
    return replace(Project("/p", PIPELINE, definitions, "abc"), **changes)  # type: ignore[arg-type]


def told(make: Callable[[], object]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        make()
    return [str(mistake) for mistake in caught.value.mistakes]


def test_a_profile_file_says_what_was_measured() -> None:
    assert read_profile(TEXT.encode(), "p", PIPELINE) == FOUND
    assert read_profile(write_profile(FOUND).encode(), "p", PIPELINE) == FOUND


def test_every_mistake_in_a_profile_is_told_with_its_line() -> None:
    text = """\
profile: readings
operators:
  readings: {rate: 5, rate_factor: 2}
  parsed: {work: -1 ms, size: 3 B, speed: 2}
  parse: {work: 1 ms}
notes: [1]
"""
    assert told(lambda: read_profile(text.encode(), "p.profile", PIPELINE)) == [
        "HW1011 p.profile:3: operator 'readings': 'rate_factor' is for operators that read others, and this is a "
        "source. Measure again or remove it.",
        "HW1006 p.profile:4: operator 'parsed': 'work' is wrong: a time must not be negative; found '-1 ms'.",
        "HW1003 p.profile:4: operator 'parsed' has the unknown key 'speed'; allowed: rate, size, rate_factor, "
        "size_factor, work, state, spread, records. Did you mean 'spread'?",
        "HW1011 p.profile:4: operator 'parsed': 'size' is for sources, and this is none. Measure again or remove it.",
        "HW1004 p.profile:5: operator 'parse' is not in pipeline 'readings'. Did you mean 'parsed'? Is the profile of "
        "another pipeline, or older than the project? Measure again with 'headwater profile'.",
        "HW1005 p.profile:6: the file: 'notes' holds texts; found the number 1.",
    ]
    assert told(lambda: read_profile(b"[1]", "p", PIPELINE)) == [
        "HW1005 p:1: the file must hold a mapping; found a list of 1 entry."
    ]
    assert "has no 'profile'" in told(lambda: read_profile(b"operators: {parsed: {}}", "p", PIPELINE))[0]


def test_what_was_measured_takes_the_place_of_what_was_declared() -> None:
    readings, parsed, alerts = apply(PIPELINE, FOUND).operators
    assert (readings.rate_rps, readings.size_bytes, readings.work_s) == (48.5, 104.0, 0.0)
    assert (parsed.rate_factor, parsed.size_factor, parsed.work_s, parsed.state_bytes) == (1.0, 0.46, 2.9e-6, 8_000.0)
    assert parsed.inputs == (Stream("readings", "parsed"),), "the whole row is what was measured"
    assert alerts == PIPELINE.by_name["alerts"]


def test_a_profiled_project_says_what_is_assumed_no_more_and_what_is_old() -> None:
    assumed = ("source 'readings': a rate of 100/s is assumed.", "view 'x' is left out")
    assert profiled(project(notes=assumed), FOUND).notes == ("view 'x' is left out",)
    old = profiled(project(fingerprint="other"), FOUND)
    assert "measured on other files" in old.notes[0]
    assert old.pipeline == apply(PIPELINE, FOUND)


def test_a_profile_file_is_put_into_a_project(tmp_path: Path) -> None:
    file = tmp_path / "headwater.profile"
    file.write_text(TEXT)
    assert with_profile(project(), str(file)).pipeline == apply(PIPELINE, FOUND)
    assert with_profile(project(), None) == project()
    assert told(lambda: with_profile(project(), str(tmp_path / "none")))[0].startswith("HW1301")


def test_a_profile_is_shown_beside_what_was_declared_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output(False).answer({}, *profile_view(FOUND, project()))
    shown = capsys.readouterr().out
    assert "2.9 us ± 3.45 %" in shown
    assert "below 20 ns" in shown
    found = json.loads(json.dumps(profile_object(FOUND, "p.profile")))
    assert found["operators"][1] == {
        "name": "parsed",
        "work_s": 2.9e-6,
        "work_spread_s": 1e-7,
        "work_spread": pytest.approx(1e-7 / 2.9e-6),
        "rate_factor": 1.0,
        "size_factor": 0.46,
        "state_bytes": 8_000.0,
        "rate_rps": None,
        "size_bytes": None,
        "records": None,
    }
    assert found["operators"][0]["work_spread"] is None, "nothing to relate it to"


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Wanted(), "HW1801"),
        (Wanted(("a",), seconds=1.0), "HW1801"),
        (Wanted(seconds=0.0), "HW1807"),
        (Wanted(("a",), repeat=0), "HW1807"),
        (Wanted(("a",), taking=Taking(count=0)), "HW1807"),
        (Wanted(("a",), speed=0.0), "HW1807"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(wanted: Wanted, code: str) -> None:
    assert [each[:6] for each in told(lambda: profile("nowhere", wanted, None, Output(True)))] == [code]


def test_samples_are_for_one_source_or_for_all() -> None:
    assert chosen(["x.jsonl"], ["a", "b"]) == {"a": "x.jsonl", "b": "x.jsonl"}
    assert chosen(["b=y.parquet", "x.jsonl"], ["a", "b"]) == {"a": "x.jsonl", "b": "y.parquet"}
    assert told(lambda: chosen(["a=x"], ["a", "b"])) == [
        "HW1801 there is no sample for 'b'. Add --sample b=FILE, or --sample FILE."
    ]
    assert told(lambda: chosen(["tree=x"], ["trees"])) == [
        "HW1801 --sample tree=x: 'tree' is no source; sources: 'trees'. Did you mean 'trees'?"
    ]
    assert told(lambda: chosen(["x", "y"], ["a"]))[0].startswith("HW1801 --sample is given for all sources 2 times")


def rows(file: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = pq.read_table(file).to_pylist()
    return found


def test_a_generator_gives_records_with_their_topics(tmp_path: Path) -> None:
    file = tmp_path / "s.parquet"
    assert laid(str(READINGS), file, Taking(site="pi", count=20), 50.0) == 20
    first, second = rows(file)[:2]
    assert (first["topic"], first["key"], first["offset"]) == ("readings", b"pi/0", 0)
    assert (second["timestamp"] - first["timestamp"]).total_seconds() == 0.02  # type: ignore[operator]
    target = tmp_path / "t.parquet"
    assert for_topics(file, {"subscribe": "other, readings"}, target) == (20, ("readings",))
    assert for_topics(file, {"subscribepattern": "read.*"}, target) == (20, ("readings",))
    assert for_topics(file, {"assign": '{"readings": [0]}'}, target) == (20, ("readings",))
    assert for_topics(file, {"subscribe": "other"}, target) == (0, ("readings",))


def test_lines_are_records_or_values(tmp_path: Path) -> None:
    file, target = tmp_path / "x.jsonl", tmp_path / "s.parquet"
    file.write_text('{"celsius": 3}\n\nplain\n')
    assert laid(str(file), target, Taking(), 1.0) == 2
    assert [each["value"] for each in rows(target)] == [b'{"celsius": 3}', b"plain"]
    assert for_topics(target, {"subscribe": "t"}, target) == (2, ())
    assert rows(target)[0]["topic"] == "t", "lines name no topic, so the source's is theirs"
    file.write_text('{"key": "a", "value": {"celsius": 3}, "topic": "t"}\n{"value": "plain"}\n')
    laid(str(file), target, Taking(), 1.0)
    assert [(each["key"], each["value"], each["topic"]) for each in rows(target)] == [
        (b"a", b'{"celsius": 3}', "t"),
        (None, b"plain", None),
    ]
    file.write_text('{"value": 1}\n\n{"other": 1}\n')
    assert told(lambda: laid(str(file), target, Taking(), 1.0))[0].startswith(f"HW1803 {file}:3: the first line")


def test_a_parquet_sample_has_the_columns_of_records(tmp_path: Path) -> None:
    file, target = tmp_path / "x.parquet", tmp_path / "s.parquet"
    pq.write_table(pa.table({"value": ["a", "b"], "more": [1, 2]}), file)
    assert laid(str(file), target, Taking(), 1.0) == 2
    assert [(each["key"], each["value"]) for each in rows(target)] == [(None, b"a"), (None, b"b")]
    pq.write_table(pa.table({"values": ["a"]}), file)
    assert told(lambda: laid(str(file), target, Taking(), 1.0)) == [
        f"HW1803 {file}: a sample has the columns 'value' and perhaps 'key' and 'topic', of bytes or text; there is no "
        "'value'. It has 'values'. Write it from a Kafka source, or rename its columns."
    ]
    pq.write_table(pa.table({"value": [1]}), file)
    assert "'value' is int64" in told(lambda: laid(str(file), target, Taking(), 1.0))[0]
    file.write_text("no")
    assert told(lambda: laid(str(file), target, Taking(), 1.0))[0].startswith(f"HW1802 {file}: this is not readable")


def test_a_sample_that_is_not_there_or_empty_is_told(tmp_path: Path) -> None:
    target, empty, other = tmp_path / "s.parquet", tmp_path / "x.jsonl", tmp_path / "x.csv"
    empty.write_text("\n")
    other.write_text("a")
    for path, code in (
        (tmp_path / "none.parquet", "HW1802"),
        (tmp_path / "none.csv", "HW1802"),
        (tmp_path / "none.jsonl", "HW1301"),
        (tmp_path / "none.py", "HW1701"),
        (tmp_path, "HW1701"),
        (other, "HW1802"),
        (empty, "HW1804"),
    ):
        assert told(lambda path=path: laid(str(path), target, Taking(), 1.0))[0].startswith(code)  # type: ignore[misc]


@given(st.floats(1e-8, 1.0), st.floats(1e-7, 1e-5), st.floats(0.0, 0.5), st.floats(0.0, 2.0), st.integers(1, 2_000))
def test_what_an_operator_costs_is_found_whatever_it_costs(
    work: float, base: float, fixed: float, more: float, total: int
) -> None:
    ran: list[int] = []

    def run(count: int, number: int) -> Trial:
        ran.append(count)
        cold_s = 3.0 if len(ran) == 1 else 0.0
        return Trial(count, fixed + base * count + cold_s, fixed + more + (base + work) * count + cold_s)

    found = timed(run, total, 100.0, 1.0, 3)
    assert abs(found.work_s - work) <= found.spread_s
    assert ran[-6:] == [1, found.rows] * 3, "a single row, to see what a query costs without any"
    assert len(ran) <= 18
    assert sum(ran) * (2 * base + work) < 100 * max(1.0, work * 256), "no operator takes for ever"


@given(st.integers(0, 99))
def test_work_is_never_below_nothing_and_noise_is_called_so(seed: int) -> None:
    chance = random.Random(seed)

    def run(count: int, number: int) -> Trial:
        return Trial(count, 0.3 + 1e-6 * count, 0.3 + 1e-6 * count + chance.uniform(-0.05, 0.05))

    found = timed(run, 1_000, 100.0, 1.0, 3)
    assert found.work_s >= 0
    assert found.spread_s > 0
    assert found.work_s <= 0.2 / found.rows, "noise stays small where rows are many"


def test_rows_that_seemed_enough_while_everything_was_cold_are_found_too_few() -> None:
    ran: list[int] = []

    def run(count: int, number: int) -> Trial:
        ran.append(count)
        cold_s = 1.0 if count > 1 and len(ran) < 6 else 0.0
        return Trial(count, 0.3 + 1e-6 * count, 0.4 + 4e-6 * count + cold_s)

    found = timed(run, 300, 100.0, 1.0, 2)
    assert found.rows > 100_000
    assert found.work_s == pytest.approx(3e-6)
    assert found.is_told
