"""Which lane a fragment gets and why, and what an aggregate tells its readers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.errors import SpecError
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.project import Definition, Project, Trait
from headwater.plan.lanes import PYTHON_MOST_RPS, Lane, choose, emits, ends, operator_lanes

EMPTY = json.dumps({"type": "struct", "fields": []})


def one(name: str, reads: str = "", *traits: Trait, **more: Any) -> Definition:
    """An operator; one that reads nothing is a Kafka source."""
    given: dict[str, Any] = {"kind": "view", "format": None if reads else "kafka", "file": "fire.py", "line": 7} | more
    return Definition(name, reads=tuple(reads.split()), schema_json=EMPTY, traits=frozenset(traits), **given)


def sink(name: str, reads: str, form: str = "kafka", *traits: Trait, **more: Any) -> Definition:
    return one(name, reads, *traits, kind="sink", format=form, **more)


def project(*definitions: Definition) -> Project:
    operators = tuple(
        Operator(each.name, tuple(Stream(read, each.name) for read in each.reads), is_source=not each.reads)
        for each in definitions
    )
    return Project("/p", Pipeline("city", operators), definitions, "f")


def lane(*operators: Definition, rate_rps: float = 10.0, is_terminal: bool = True) -> Lane:
    """The lane of a fragment that is a project of its own; its last operator is its output."""
    return choose(operators, emits(project(*operators)), rate_rps, is_terminal)


SOURCE = one("taxis")


@pytest.mark.parametrize(
    ("operators", "because"),
    [
        ((SOURCE, sink("out", "taxis")), "built-in functions at 10 records/s"),
        ((SOURCE, sink("out", "taxis", "kafka", "python")), "Python functions at 10 records/s"),
        ((SOURCE, one("n", "taxis", "aggregate"), sink("out", "n")), "aggregates at 10 records/s"),
        ((SOURCE, one("d", "taxis", "deduplicate"), sink("out", "d")), "deduplication at 10 records/s"),
        (
            (SOURCE, one("n", "taxis", "python", "aggregate"), sink("out", "n")),
            "Python functions and aggregates at 10 records/s",
        ),
        ((SOURCE, sink("out", "taxis", "kafka", "static-join", "generate", "watermark")), "built-in functions at 10 "),
    ],
    ids=["built-in", "python", "aggregate", "deduplicate", "python and aggregate", "other traits"],
)
def test_from_kafka_to_kafka_is_real_time_and_says_what_it_holds(
    operators: tuple[Definition, ...], because: str
) -> None:
    found = lane(*operators)
    assert (found.name, found.mode) == ("real-time", "update")
    assert found.because.startswith(because)


@pytest.mark.parametrize(
    ("operators", "because"),
    [
        (
            (SOURCE, sink("out", "taxis", "kafka", "arrow")),
            "'out': it has pandas or Arrow functions, which take whole batches",
        ),
        ((SOURCE, one("j", "taxis", "stream-join"), sink("out", "j")), "'j': it joins two streams"),
        ((SOURCE, one("s", "taxis", "custom-state"), sink("out", "s")), "'s': it keeps state of its own making"),
        (
            (one("ticks", format="rate"), sink("out", "ticks")),
            "'ticks' reads rate; only Kafka sources can be read in real time",
        ),
        (
            (SOURCE, sink("out", "taxis", "parquet")),
            "'out' writes parquet; only Kafka sinks can be written in real time",
        ),
        ((SOURCE, one("kept", "taxis", kind="table")), "'kept' is written as a Parquet table"),
        ((SOURCE, one("kept", "taxis", kind="view")), "'kept' is written as a Parquet table"),
    ],
    ids=["arrow", "stream-join", "custom-state", "source", "sink", "table", "view that nobody reads"],
)
def test_what_real_time_cannot_do_goes_by_micro_batch_and_says_why(
    operators: tuple[Definition, ...], because: str
) -> None:
    assert lane(*operators) == Lane("micro-batch", "append", operators[-2].is_stateful, because)


def test_a_table_that_others_read_is_a_channel_and_may_be_real_time() -> None:
    assert lane(SOURCE, one("kept", "taxis", kind="table"), is_terminal=False).name == "real-time"


@pytest.mark.parametrize(
    ("rate_rps", "name"), [(PYTHON_MOST_RPS, "real-time"), (PYTHON_MOST_RPS + 1, "micro-batch"), (1e6, "micro-batch")]
)
def test_python_functions_keep_up_only_below_a_rate(rate_rps: float, name: str) -> None:
    found = lane(SOURCE, one("slow", "taxis", "python"), sink("out", "slow"), rate_rps=rate_rps)
    assert found.name == name
    if name == "micro-batch":
        assert found.because == f"Python functions of 'slow' cannot keep up with {rate_rps:g} records/s one by one"


def test_built_in_functions_are_real_time_at_any_rate() -> None:
    assert lane(SOURCE, sink("out", "taxis"), rate_rps=1e6).name == "real-time"


def test_a_lane_that_is_asked_for_is_given() -> None:
    asked = sink("out", "taxis", lane="micro-batch")
    assert lane(SOURCE, asked) == Lane("micro-batch", "append", False, "asked for by 'out'")
    fast = sink("out", "taxis", "kafka", "python", lane="real-time")
    assert lane(SOURCE, fast, rate_rps=1e6) == Lane("real-time", "update", False, "asked for by 'out'")


def test_of_two_wishes_micro_batch_wins() -> None:
    found = lane(one("taxis", lane="real-time"), sink("out", "taxis", lane="micro-batch"))
    assert (found.name, found.because) == ("micro-batch", "asked for by 'out'")


def test_a_wish_that_cannot_be_is_named_beside_the_reason() -> None:
    found = lane(one("taxis", lane="real-time"), sink("out", "taxis", "parquet"))
    assert found.name == "micro-batch"
    assert (
        found.because
        == "'out' writes parquet; only Kafka sinks can be written in real time; 'taxis' asks for real-time"
    )


def test_updates_by_micro_batch_keep_their_mode() -> None:
    found = lane(SOURCE, one("n", "taxis", "aggregate"), sink("out", "n", lane="micro-batch"))
    assert found == Lane("micro-batch", "update", True, "asked for by 'out'")


def test_final_rows_are_appended_by_micro_batch() -> None:
    closed = one("n", "taxis", "aggregate", "watermark", emit="final")
    assert lane(SOURCE, closed, sink("out", "n")) == Lane(
        "micro-batch", "append", True, "'n' gives the final rows of closed windows"
    )


def test_an_aggregate_before_stateless_operators_and_a_kafka_sink_emits_updates() -> None:
    found = emits(project(SOURCE, one("n", "taxis", "aggregate"), one("warm", "n"), sink("out", "warm")))
    assert found == {"n": ("updates", "only stateless operators and sinks read it")}


@pytest.mark.parametrize(
    ("after", "because"),
    [
        ((), "'n' becomes a Parquet table, to which rows can only be added"),
        ((one("kept", "n", kind="table"),), "'kept' becomes a Parquet table, to which rows can only be added"),
        ((one("v", "n"), sink("out", "v", "parquet")), "'out' writes parquet, to which rows can only be added"),
        (
            (one("v", "n"), one("m", "v", "deduplicate"), sink("out", "m")),
            "'m' keeps state and would take each update for a record of its own",
        ),
        (
            (sink("out", "n"), one("j", "n", "stream-join"), sink("out2", "j")),
            "'j' keeps state and would take each update for a record of its own",
        ),
    ],
    ids=["nobody reads it", "a table", "a file sink", "state after a view", "one of two readers"],
)
def test_an_aggregate_whose_readers_must_see_each_group_once_gives_final_rows(
    after: tuple[Definition, ...], because: str
) -> None:
    windowed = one("n", "taxis", "aggregate", "watermark")
    assert emits(project(SOURCE, windowed, *after))["n"] == ("final", because)
    with pytest.raises(SpecError) as caught:
        emits(project(SOURCE, one("n", "taxis", "aggregate", "watermark", emit="updates"), *after))
    assert str(caught.value) == (
        f"HW1520 fire.py:7: operator 'n' is to emit updates, but {because}. Write 'emit: final', or leave it out."
    )


@pytest.mark.parametrize("form", ["kafka", "console", "memory", "noop", "foreach"])
def test_a_sink_that_can_take_updates_gets_them(form: str) -> None:
    assert emits(project(SOURCE, one("n", "taxis", "aggregate"), sink("out", "n", form)))["n"][0] == "updates"


def test_final_rows_need_a_watermark() -> None:
    with pytest.raises(SpecError) as caught:
        emits(
            project(
                SOURCE,
                one("n", "taxis", "aggregate", emit="final"),
                sink("out", "n"),
                one("m", "taxis", "aggregate", line=9),
            )
        )
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        "HW1521 fire.py:7: operator 'n' gives final rows (headwater.yml asks for it), but no column of it has a "
        "watermark, so no window ever closes. Declare one with withWatermark(..) before the aggregate.",
        "HW1521 fire.py:9: operator 'm' gives final rows ('m' becomes a Parquet table, to which rows can only be "
        "added), but no column of it has a watermark, so no window ever closes. Declare one with withWatermark(..) "
        "before the aggregate.",
    ]


def test_a_watermark_may_be_declared_operators_before() -> None:
    early = (one("taxis"), one("clean", "taxis", "watermark"), one("near", "clean"))
    assert emits(project(*early, one("n", "near", "aggregate")))["n"][0] == "final"
    with pytest.raises(SpecError, match="HW1521"):
        emits(project(*early, one("n", "taxis", "aggregate")))


def test_only_aggregates_emit() -> None:
    assert emits(project(SOURCE, one("d", "taxis", "deduplicate"), sink("out", "d"))) == {}


def test_state_that_flows_into_state_leaves_its_fragment() -> None:
    first = one("d", "taxis", "deduplicate")
    second = one("n", "v", "aggregate", "watermark")
    assert ends(project(SOURCE, first, one("v", "d"), second, sink("out", "n"))) == {"d"}
    assert ends(project(SOURCE, first, one("v", "d"), sink("out", "v"))) == set()
    assert ends(project(SOURCE, one("v", "taxis"), one("n", "v", "aggregate"), sink("out", "n"))) == set()


def test_state_that_flows_into_state_by_one_of_many_ways_leaves_its_fragment() -> None:
    first = one("d", "taxis", "deduplicate")
    late = one("j", "b c", "stream-join")
    assert ends(project(SOURCE, first, one("a", "d"), one("b", "a"), one("c", "a"), late, sink("out", "j"))) == {"d"}


def test_final_rows_do_not_share_a_query_with_updates() -> None:
    """A query has one mode: in one fragment 'fast' would be refused, or told as seldom as 'closed'."""
    closed = one("closed", "taxis", "aggregate", "watermark", emit="final")
    fast = one("fast", "taxis", "aggregate")
    assert ends(project(SOURCE, closed, fast, one("both", "closed fast"), sink("out", "both"))) == {"closed"}
    assert ends(project(SOURCE, closed, fast, sink("out", "closed"), sink("out2", "fast"))) == set()


def test_each_operator_alone_has_a_lane_with_its_reason() -> None:
    whole = project(
        SOURCE, one("n", "taxis", "aggregate", "watermark"), one("slow", "taxis", "python"), sink("out", "slow")
    )
    found = operator_lanes(whole, {"slow": 5000.0})
    assert found == {
        "taxis": ("real-time", "built-in functions at 0 records/s"),
        "n": (
            "micro-batch",
            "'n' gives the final rows of closed windows; emits final: 'n' becomes a Parquet table, to which rows can "
            "only be added",
        ),
        "slow": ("micro-batch", "Python functions of 'slow' cannot keep up with 5000 records/s one by one"),
        "out": ("real-time", "built-in functions at 0 records/s"),
    }
