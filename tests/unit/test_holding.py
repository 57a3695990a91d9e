"""Does an agent hold goals whatever it finds in its own files, and whoever has no goal?"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.bind import cgroup
from headwater.bind.box import Box
from headwater.bind.limits import Limit, Usage
from headwater.control import mpc
from headwater.control.decision import applications
from headwater.control.record import plain_state
from headwater.errors import BindError
from headwater.model.quality import QUALITIES
from headwater.plan.jobs import Job
from headwater.ports import Record
from headwater.serve import holding
from headwater.serve.holding import Holding

MB = 2**20


class Engine:
    """An engine whose runners are told of, and do nothing."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.fetch_bytes: Mapping[str, int] = {}
        self.folder, self.names = folder, names
        self.leaders: dict[str, int] = {}
        self.read: list[str] = []

    def crew(self) -> dict[str, tuple[int | None, str]]:
        return {name: (self.leaders.get(name), "") for name in self.names}

    def read_of(self, code: str) -> Path:
        self.read.append(code)
        return self.folder / code

    def answers(self, wait_s: float) -> dict[str, Any]:
        del wait_s
        return {}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cgroup, "find", lambda: None)

    def made(*names: str, engine: Any = None, records: Callable[[], Sequence[Record]] = list) -> Holding:
        engine = engine or Engine(tmp_path, *names)
        return Holding("hub", tmp_path, "0" * 12, engine, records, lambda: "127.0.0.1:1", Box(), said.append)

    return made


KNOWN = plain_state(mpc.begin(applications(("city",), (QUALITIES["gold"],))))
HELD = {"policy": "predictive", "counted": {}, "known": KNOWN}
ODD = {"leader": 1e999}
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("goals", "held"),
    [
        ("", ""),
        ("[]", "[]"),
        (DEEP, DEEP),
        ('{"policy": []}', '{"at_s": 1e400}'),
        ('{"policy": "none such", "goals": 7}', '{"at_s": ' + "9" * 400 + "}"),
        ('{"goals": {"city": {"class": [], "p99_s": []}}}', json.dumps({**HELD, "known": 1, "counted": {"city": ODD}})),
        ('{"goals": {"city": {"class": 5, "p99_s": -1}}}', json.dumps({**HELD, "known": {**KNOWN, "demand": [None]}})),
        ('{"goals": {"city": {"p99_s": 1e999}}}', json.dumps({**HELD, "known": {**KNOWN, "names": [["city"]]}})),
        ("{}", json.dumps({**HELD, "known": {**KNOWN, "history": {**KNOWN["history"], "settings": {"order": 99}}}})),
    ],
)  # fmt: skip
def test_nothing_that_stands_in_its_files_keeps_it_from_starting(
    make: Any, tmp_path: Path, goals: str, held: str
) -> None:
    (tmp_path / "goals.json").write_text(goals, "utf-8")
    told = held.replace('{"policy": "predictive"', f'{{"at_s": {time.time()!r}, "policy": "predictive"')
    (tmp_path / "held.json").write_text(told, "utf-8")
    found = make("city")
    found._step()
    assert found.told == {"is_on": False, "how": found._limiter.how, "policy": "predictive", "runners": {}}
    assert found._holder.known is None, "what cannot be understood is not gone on from"


def test_what_an_earlier_one_knew_is_gone_on_from(make: Any, tmp_path: Path) -> None:
    (tmp_path / "held.json").write_text(json.dumps({**HELD, "at_s": time.time()}), "utf-8")
    known = make("city")._holder.known
    assert known is not None
    assert known.names == ("city",)


def test_a_wish_that_could_not_be_written_down_is_held_and_written_with_the_next_report(
    make: Any, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, wish = make("city"), {"goals": {"city": {"class": "gold", "p99_s": None}}, "policy": None}

    def full(file: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(holding, "_replace", full)
        said.clear()
        found.wish(wish)
        found.wish(wish)
        assert len(said) == 1
        assert "No space left" in said[0]
    assert found._asked().qualities == {"city": QUALITIES["gold"]}
    found.wish(wish)
    assert json.loads((tmp_path / "goals.json").read_text("utf-8")) == wish
    assert make("city")._asked().qualities == {"city": QUALITIES["gold"]}


def test_whoever_has_no_goal_can_use_no_more_of_the_machine_than_those_who_have(make: Any) -> None:
    found = make("city", "other")
    found.wish({"goals": {"city": {"class": "gold", "p99_s": 0.1}}, "policy": None})
    found._step()
    roster = found._roster
    assert roster.most == dict.fromkeys(("city", "other"), found._cores)
    found._step()
    assert found._roster is roster, "nothing changed"


def wanted(name: str, code: str = "") -> Record:
    """The only job of a composition or, with code, of a pipeline, which is to run."""
    part = json.dumps({"id": name}) if code else ""
    return Record(Job(f"{name}-1", name, "hub", (), None, code, "main:run", part=part), 1, is_run=True)


def test_a_moment_without_the_only_runner_that_has_a_goal_lifts_no_limit(make: Any, tmp_path: Path) -> None:
    records, engine = [wanted("gold"), wanted("bronze")], Engine(tmp_path, "bronze", "gold")
    found = make(engine=engine, records=lambda: records)
    found.wish({"goals": {"gold": {"class": "gold", "p99_s": None}}, "policy": None})
    found._step()
    found._governor.set({"bronze": 0.3})
    limited = {"bronze": Limit(0.3, 1.0, None)}
    assert found._limiter.limits() == limited
    engine.names = ("bronze",)  # the other one was killed, and starts again
    found._step()
    assert found._limiter.limits() == limited
    assert found.told["is_on"]
    records.pop(0)  # it is not wanted any more
    found._step()
    assert found._limiter.limits() == {}
    assert not found.told["is_on"]


GOALS: list[tuple[object, dict[str, Any]]] = [
    ({"quality": "gold", "p99_s": 0.2}, {"class": "gold", "p99_s": 0.2}),
    ({"quality": None, "p99_s": 2}, {"class": None, "p99_s": 2}),
    ({"quality": [], "p99_s": "x"}, {}),
    ({"quality": {}, "p99_s": 0}, {}),
    ({"p99_s": -1}, {}),
    ({"p99_s": float("nan")}, {}),
    ({"p99_s": True}, {}),
    ([], {}),
    (None, {}),
]


@pytest.mark.parametrize(("goals", "held"), GOALS)
def test_a_goal_of_a_project_that_cannot_be_held_is_none(
    make: Any, tmp_path: Path, goals: object, held: dict[str, Any]
) -> None:
    engine = Engine(tmp_path)
    found = make(engine=engine, records=lambda: [wanted("city", "code")])
    found._step()
    assert found._declares("code") == {}, "it is not there yet"
    (tmp_path / "code").write_text(json.dumps({"goals": goals}), "utf-8")
    found._step()
    assert found._declares("code") == held
    asked = len(engine.read)
    found._step()
    assert len(engine.read) == asked, "it is read once"
    assert bool(found._asked().qualities) == bool(held)


def test_a_project_that_is_torn_has_no_goal(make: Any, tmp_path: Path) -> None:
    for torn in (b"", b"[]", DEEP.encode(), b"\x00", b'{"goals": "\xff"}'):
        (tmp_path / "code").write_bytes(torn)
        assert make(engine=Engine(tmp_path))._declares("code") == {}


def test_memory_follows_the_highest_use_of_the_last_minutes_also_under_the_next_agent(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = {"a": 1500 * MB}

    def bound(found: Holding) -> int:
        found.wish({"goals": {"a": {"class": "gold", "p99_s": None}}, "policy": None})
        monkeypatch.setattr(found._limiter, "take", lambda name, leader: None)
        monkeypatch.setattr(found._limiter, "usage", lambda: {n: Usage(0.0, 0.0, 0.0, b) for n, b in uses.items()})
        found._because.clear()  # it is due
        found._step()
        assert "up to 1500 MB lately" in found._because["a"]
        return found._governor.limit_of("a").memory_bytes or 0

    engine = Engine(tmp_path, "a")
    engine.leaders["a"] = 2**22 + 1
    found = make(engine=engine)
    first = bound(found)
    assert first >= 1.15 * 1500 * MB + 256 * MB
    uses["a"] = 700 * MB  # garbage was collected, and comes again
    assert bound(found) >= 1.15 * 1500 * MB + 256 * MB
    found._keep()
    assert bound(make(engine=engine)) >= 1.15 * 1500 * MB + 256 * MB


def test_goals_go_on_being_held_although_the_kernel_refuses_for_a_while(
    make: Any, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, stop, tries = make("city"), threading.Event(), []

    def step() -> None:
        tries.append("step")
        if len(tries) == 1:
            raise ZeroDivisionError("what is remembered is wrong")
        stop.set()

    def limits() -> Mapping[str, Limit]:
        tries.append("limits")
        if len(tries) < 4:
            raise BindError("HW4802 the kernel refuses.")
        return {}

    monkeypatch.setattr(holding, "EVERY_S", 0.01)
    monkeypatch.setattr(found, "_step", step)
    monkeypatch.setattr(found._limiter, "limits", limits)
    thread = threading.Thread(target=found.run, args=(stop,), daemon=True)
    thread.start()
    thread.join(60.0)
    assert tries == ["step", "limits", "limits", "limits", "step"]
    assert found.begun.is_set()
    assert "HW4802 the kernel refuses." in " ".join(said)
