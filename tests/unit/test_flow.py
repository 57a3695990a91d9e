"""How rates and sizes travel along a pipeline."""

from __future__ import annotations

import pytest

from headwater.cost.flow import flow
from headwater.model.pipeline import Operator, Pipeline, Stream


def source(name: str, rate: float, size: float) -> Operator:
    return Operator(name, is_source=True, rate_rps=rate, size_bytes=size)


def test_a_chain_multiplies_its_factors() -> None:
    pipeline = Pipeline(
        "chain",
        (
            source("camera", 100.0, 30e3),
            Operator("half", (Stream("camera", "half"),), rate_factor=0.5, size_factor=0.01),
            Operator("end", (Stream("half", "end"),), is_sink=True),
        ),
    )
    found = flow(pipeline)
    assert found.rate_rps == (100.0, 50.0)
    assert found.size_bytes == (30e3, 300.0)
    assert found.in_rate_rps == {"camera": 100.0, "half": 100.0, "end": 50.0}
    assert found.load_bps(0) == 8 * 100 * 30e3


def test_sizes_of_several_inputs_are_averaged_by_their_rates() -> None:
    pipeline = Pipeline(
        "join",
        (
            source("many", 90.0, 10.0),
            source("large", 10.0, 1000.0),
            Operator("join", (Stream("many", "join"), Stream("large", "join"))),
            Operator("end", (Stream("join", "end"),), is_sink=True),
        ),
    )
    found = flow(pipeline)
    assert found.rate_rps[2] == 100.0
    assert found.size_bytes[2] == pytest.approx((90 * 10 + 10 * 1000) / 100)


def test_a_stream_has_factors_of_its_own_beside_those_of_the_operators() -> None:
    reader = Operator("reader", (Stream("a", "reader", 0.25, 2.0), Stream("a", "reader")), is_sink=True)
    found = flow(Pipeline("twice", (source("a", 8.0, 100.0), reader)))
    assert found.rate_rps == (2.0, 8.0)
    assert found.size_bytes == (200.0, 100.0)
    assert found.in_rate_rps["reader"] == 10.0


def test_where_nothing_comes_in_nothing_has_a_size() -> None:
    pipeline = Pipeline(
        "dry",
        (
            source("off", 0.0, 5000.0),
            Operator("reader", (Stream("off", "reader"),), rate_factor=3.0),
            Operator("end", (Stream("reader", "end"),), is_sink=True),
        ),
    )
    found = flow(pipeline)
    assert found.size_bytes == (5000.0, 0.0)  # the source still writes records of its size, only none of them
    assert found.in_rate_rps == {"off": 0.0, "reader": 0.0, "end": 0.0}


def test_readers_may_stand_before_writers_in_the_file() -> None:
    pipeline = Pipeline(
        "backwards",
        (Operator("end", (Stream("first", "end", 0.5),), is_sink=True), source("first", 4.0, 1.0)),
    )
    assert pipeline.order == ("first", "end")
    assert flow(pipeline).rate_rps == (2.0,)
