"""Does an agent hold goals whatever it finds in its own files, and whoever has no goal?"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.bind import cgroup
from headwater.bind.box import Box
from headwater.control import mpc
from headwater.control.decision import applications
from headwater.control.record import plain_state
from headwater.model.quality import QUALITIES
from headwater.serve import holding
from headwater.serve.holding import Holding


class Engine:
    """An engine whose runners are told of, and do nothing."""

    def __init__(self, *names: str) -> None:
        self.fetch_bytes: Mapping[str, int] = {}
        self._names = names

    def crew(self) -> dict[str, tuple[int | None, str]]:
        return {name: (None, "") for name in self._names}

    def answers(self, wait_s: float) -> dict[str, Any]:
        del wait_s
        return {}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cgroup, "find", lambda: None)

    def made(*names: str) -> Holding:
        engine: Any = Engine(*names)
        return Holding("hub", tmp_path, "0" * 12, engine, list, lambda: "127.0.0.1:1", Box(), said.append)

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
