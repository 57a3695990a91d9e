"""What a runner says of itself may be anything: it harms neither its site nor the runners beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headwater.bind.engine import SparkEngine
from headwater.bind.said import STATES, error_of, parts_of, places_of
from headwater.errors import BindError
from headwater.ports import Record
from headwater.run.agent import Agent
from headwater.sim.engine import SimEngine
from headwater.sim.sites import MemoryShelf
from headwater.sim.world import Fuse, World
from tests.pretended import Leave, held

LONG_S = 60.0  # on a machine that does many things at once
ODD: dict[str, Any] = {
    "no list": 5,
    "no parts": [None, 1, "a", [], {}],
    "no name": [{"state": "running"}, {"id": 5, "state": "running"}, {"id": {}, "state": "running"}],
    "no state": [{"id": "odd-1"}, {"id": "odd-1", "state": "odd"}, {"id": "odd-1", "state": []}],
    "odd numbers": [{"id": "odd-1", "state": "running", "taken": float("nan"), "given": -1, "lag": "x", "notes": 3}],
    "too much": [{"id": "odd-1", "state": "failed", "failure": {"text": "x" * 10**6}, "notes": ["y" * 10**5] * 100}],
    "half a letter": [{"id": "odd-1", "state": "failed", "query": "\ud800", "failure": {"text": "\ud800"}}],
    "odd failure": [{"id": "odd-1", "state": "failed", "failure": "x"}],
}


@pytest.mark.parametrize("parts", ODD.values(), ids=ODD)
def test_an_odd_runner_hides_no_other(engine: SparkEngine, leave: Leave, parts: Any) -> None:
    odd, good = leave("odd"), leave("city")
    odd.answer = lambda _: {"ok": True, "parts": parts}
    good.answer = lambda _: {"ok": True, "parts": [{"id": "city-1", "state": "running", "taken": 7}]}
    odd.speak()
    good.speak()
    assert engine.adopt([held("odd"), held("city")]) == 2
    states = {name: one for _, jobs in engine.answers(LONG_S).values() for name, one in jobs.items()}
    assert states["city-1"].state == "running"
    assert states["city-1"].told["taken"] == 7
    assert engine.states().keys() == states.keys()
    told = json.dumps({name: [one.text, dict(one.told)] for name, one in states.items()}, allow_nan=False)
    assert len(told.encode()) < 100_000


anything = some.recursive(
    some.none() | some.booleans() | some.floats() | some.integers() | some.text(some.characters(), max_size=5),
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.dictionaries(some.sampled_from(["id", "state", "taken", "notes", "failure", "text"]), inner, max_size=4)
    ),
    max_leaves=12,
)
nearly = some.fixed_dictionaries(
    {"id": some.text(max_size=3) | anything, "state": some.sampled_from(sorted(STATES)) | anything},
    optional={key: anything for key in ("taken", "lag", "notes", "failure", "lane", "query", "spec")},
)


@given(some.fixed_dictionaries({}, optional={"parts": some.lists(nearly | anything, max_size=4), "error": anything}))
def test_whatever_is_said_has_one_form(answer: dict[str, Any]) -> None:
    for one in parts_of(answer):
        assert one["state"] in STATES
        assert isinstance(one["id"], str)
        assert all(isinstance(one[key], int) and one[key] >= 0 for key in ("taken", "given", "lag"))
        json.dumps({**one, "id": ""}, ensure_ascii=False, allow_nan=False).encode()
    error_of(answer).encode()


class FullEngine(SimEngine):
    """One whose disk is full for one of its jobs."""

    def ensure(self, record: Record) -> None:
        if record.job.name == "full-1":
            raise OSError(28, "No space left on device")
        super().ensure(record)


def test_a_job_whose_disk_is_full_keeps_no_other_from_running() -> None:
    world, shelf = World(), MemoryShelf(Fuse())
    engine = FullEngine("a", world)
    for name in ("full", "other"):
        shelf.put(held(name))
    troubles = Agent("a", engine, world.broker("a"), shelf).tend()
    assert engine.states()["other-1"].state == "running"
    assert len(troubles) == 1
    assert "job 'full-1'" in troubles[0]
    assert "No space left" in troubles[0]


ODD_PLACES: dict[str, Any] = {
    "none": {},
    "no mapping": {"positions": ["a"]},
    "a number": {"positions": {"a/in": 5}},
    "half a letter": {"positions": {"a/in": "\ud800"}},
    "half a letter in a name": {"positions": {"\ud800": "5"}},
    "too long": {"positions": {"a/in": "5" * 1_000_001}},
    "too many": {"positions": {str(number): "5" for number in range(10_001)}},
    "odd own": {"positions": {}, "own": {"readings": "a/in"}},
    "no own": {"positions": {}, "own": None},
}


@pytest.mark.parametrize("answer", ODD_PLACES.values(), ids=ODD_PLACES)
def test_odd_places_of_a_drained_job_are_refused_and_not_kept(engine: SparkEngine, leave: Leave, answer: Any) -> None:
    odd = leave("city")
    odd.answer = lambda _: {"ok": True, "parts": [], **answer}
    odd.speak()
    assert engine.adopt([held("city")]) == 1
    with pytest.raises(BindError, match="HW4526"):
        engine.halt(held("city"), is_drain=True)
    assert engine.halt(held("city"), is_drain=False) == {}, "to stop it, nobody needs them"


def test_places_are_taken_as_they_are() -> None:
    answer = {"positions": {"a/in": '{"0": 5}', "é": ""}, "own": {"readings": ["é"]}}
    assert places_of(answer) == (answer["positions"], answer["own"])


class OddEngine(SimEngine):
    """One that an odd answer of a runner breaks in a way that nobody thought of."""

    def ensure(self, record: Record) -> None:
        if record.job.name == "full-1":
            raise KeyError("positions")
        super().ensure(record)


def test_a_job_that_nobody_understands_keeps_no_other_from_running() -> None:
    world, shelf = World(), MemoryShelf(Fuse())
    engine = OddEngine("a", world)
    for name in ("full", "other"):
        shelf.put(held(name))
    assert Agent("a", engine, world.broker("a"), shelf).tend() == ["job 'full-1': 'positions'"]
    assert engine.states()["other-1"].state == "running"
