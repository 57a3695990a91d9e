"""How an engine takes over and asks the runners that an earlier agent has left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from headwater.bind import engine as bind_engine
from headwater.bind import known_runner, process, talk
from headwater.bind.engine import SparkEngine
from headwater.bind.process import RunnerProcess, RunnerSpec
from headwater.errors import BindError
from tests.pretended import Leave, Pretended, held

LONG_S = 60.0  # on a machine that does many things at once


def part(composition: str, state: str = "running") -> dict[str, Any]:
    """What a runner says of the job that is `held`."""
    return {"id": f"{composition}-1", "state": state, "query": "q", "failure": None, "spec": "s"}


def adopted_city(engine: SparkEngine, leave: Leave) -> None:
    """Let a runner be taken over that says that its job runs."""
    runner = leave("city")
    runner.answer = lambda _: {"ok": True, "parts": [part("city")]}
    runner.speak()
    assert engine.adopt([held("city")]) == 1


def test_a_runner_is_asked_again_whatever_came_of_the_last_question(
    engine: SparkEngine, leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopted_city(engine, leave)

    def odd(*_: Any) -> dict[str, Any]:
        raise RuntimeError("nobody thought of this")

    with monkeypatch.context() as patched:
        patched.setattr(RunnerProcess, "ask", odd)
        assert engine.answers(LONG_S) == {}
    _, jobs = engine.answers(LONG_S)["city"]
    assert jobs["city-1"].state == "running"


def test_a_runner_that_does_not_answer_is_as_it_said_last_for_a_while(
    engine: SparkEngine, leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have too little of the processor: what it is held to must not be lifted because of that."""
    adopted_city(engine, leave)
    said = engine.answers(LONG_S)["city"]

    def silent(*_: Any) -> dict[str, Any]:
        raise BindError("HW4503 the runner did not answer in time.")

    monkeypatch.setattr(RunnerProcess, "ask", silent)
    for _ in range(2):
        assert engine.answers(LONG_S)["city"] == said
    monkeypatch.setattr(known_runner, "BELIEVED_S", 0.0)
    assert engine.answers(LONG_S)["city"] == (said[0], {}), "nobody knows any more how it is"


def adopted(runner: Pretended) -> RunnerProcess:
    found = RunnerProcess(RunnerSpec("a", runner.folder, "", None, [], {}, 1, 0.0, is_detached=True))
    assert found.adopt()
    return found


def in_threads(*acts: Callable[[], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=act, daemon=True) for act in acts]
    for one in threads:
        one.start()
    return threads


def test_a_connection_that_breaks_under_two_who_ask_is_closed_once(
    leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever closes it a second time may close what another thread has opened since, under the same number."""
    both, one_is_done, closed = threading.Barrier(2), threading.Event(), []

    class Breaking:
        def __init__(self, *_: Any) -> None: ...

        def ask(self, *_: Any) -> dict[str, Any]:
            both.wait(LONG_S)
            raise BindError("HW4503 the runner is gone.")

        def close(self) -> None:
            closed.append(self)
            if len(closed) == 1:
                one_is_done.wait(LONG_S)

    monkeypatch.setattr(process, "Caller", Breaking)
    runner = adopted(leave("city"))

    def ask() -> None:
        with pytest.raises(BindError, match="HW4503"):
            runner.ask({"do": "x"})
        one_is_done.set()

    for one in in_threads(ask, ask):
        one.join(LONG_S)
    assert len(closed) == 1


def test_whoever_asked_over_a_broken_connection_leaves_the_next_one_alone(
    leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, has_asked, may_break = [], threading.Event(), threading.Event()

    class First:
        def __init__(self, *_: Any) -> None:
            made.append(self)
            self.is_broken, self.is_open = len(made) == 1, True

        def ask(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
            if request["do"] == "wait":
                has_asked.set()
                may_break.wait(LONG_S)
            if self.is_broken:
                raise BindError("HW4503 the runner is gone.")
            return {"ok": True}

        def close(self) -> None:
            self.is_open = False

    monkeypatch.setattr(process, "Caller", First)
    runner = adopted(leave("city"))

    def ask(what: str) -> None:
        with pytest.raises(BindError, match="HW4503"):
            runner.ask({"do": what})

    (slow,) = in_threads(lambda: ask("wait"))
    assert has_asked.wait(LONG_S)
    ask("x")
    assert runner.ask({"do": "x"})["ok"]
    may_break.set()
    slow.join(LONG_S)
    assert [one.is_open for one in made] == [False, True]


def decided() -> None:
    """Return when it is known of all runners whether they are taken over."""
    for one in threading.enumerate():
        if one.name == "adopting":
            one.join(LONG_S)


def test_a_runner_that_says_nothing_holds_up_neither_the_others_nor_the_agent(
    engine: SparkEngine, leave: Leave, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bind_engine, "ADOPT_S", 3.0)  # also where a machine does many things at once
    runners = {name: leave(name) for name in ("alone", "city", "fire")}
    for name in ("city", "fire"):
        runners[name].speak()
    begin_s = time.monotonic()
    assert engine.adopt() == 2
    assert time.monotonic() - begin_s < talk.PROOF_S / 2
    assert engine.crew().keys() == {"city", "fire"}
    assert said == ["1 of 3 runners have not answered yet; they are taken over when they do"]
    runners["alone"].speak()
    decided()
    assert engine.crew() == {name: (one.leader.pid, "") for name, one in runners.items()}


def test_a_job_is_halted_in_order_by_its_runner_that_is_taken_over_late(engine: SparkEngine, leave: Leave) -> None:
    """Whoever does not wait until that is decided would take it for a dead one, and kill or start it."""
    runner = leave("city")
    assert engine.adopt([held("city")]) == 0
    (halting,) = in_threads(lambda: engine.halt(held("city"), is_drain=False))
    halting.join(0.3)
    assert halting.is_alive()
    runner.speak()
    halting.join(LONG_S)
    assert runner.asked == ["status", "halt"]
    assert runner.lives


def test_a_job_is_forgotten_by_its_runner_that_is_taken_over_late(engine: SparkEngine, leave: Leave) -> None:
    """It would go on writing else, though nobody knows it any more."""
    runner = leave("city")
    assert engine.adopt([held("city")]) == 0
    (removing,) = in_threads(lambda: engine.remove("city-1"))
    removing.join(0.3)
    assert removing.is_alive()
    runner.speak()
    removing.join(LONG_S)
    assert runner.asked == ["forget"]
    assert runner.lives


def test_a_runner_that_is_not_taken_over_does_not_go_on_with_a_job_that_is_removed(
    engine: SparkEngine, leave: Leave
) -> None:
    runner = leave("city")
    runner.hang_up()
    assert engine.adopt([held("city")]) == 0
    assert runner.lives
    engine.remove("city-1")
    assert not runner.lives


def test_nothing_is_done_with_a_runner_as_long_as_it_is_not_known_whether_it_is_taken_over(
    engine: SparkEngine, leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may talk for as long as it likes: only its own jobs have to wait."""
    monkeypatch.setattr(known_runner, "DECIDE_S", 0.0)
    runner = leave("city")
    assert engine.adopt([held("city")]) == 0
    for act in (lambda: engine.halt(held("city"), is_drain=False), lambda: engine.remove("city-1")):
        with pytest.raises(BindError, match="HW4516"):
            act()
    assert runner.lives
    runner.speak()
    decided()
    engine.remove("city-1")
    assert runner.asked == ["forget"]
