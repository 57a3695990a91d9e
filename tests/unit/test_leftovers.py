"""What `headwater down` finds where no agent is any more is ended, whatever is in the way of a part of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.bind.jars import Jars
from headwater.errors import BindError
from headwater.serve import agent_main
from headwater.serve.agent import instance
from headwater.serve.agent_main import END, end_leftovers
from tests.pretended import Leave


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No jars are fetched, and no control groups touched."""
    monkeypatch.setattr(agent_main, "fetched_jars", lambda: Jars((), tmp_path / "jars"))
    monkeypatch.setattr(agent_main, "lift_all", lambda _: None)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is taken for a broker; its settings are others than ours."""
    folder = tmp_path / "broker"
    folder.mkdir()
    sleep = "import time; time.sleep(600)"
    command = [sys.executable, "-c", sleep, f"-Dheadwater.broker={folder}"]
    with subprocess.Popen(command, start_new_session=True) as started:
        yield started
        started.kill()


def refuse(_: str) -> None:
    raise BindError("HW4804 a control group stays.")


def test_runners_and_broker_are_ended_though_limits_cannot_be_lifted(
    leave: Leave, broker: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setattr(agent_main, "lift_all", refuse)
    runners = [leave("city"), leave("fire")]
    for one in runners:
        one.speak()
    for name in (END, "agent.json"):
        (tmp_path / name).touch()
    assert end_leftovers(tmp_path, said.append) == 2
    assert [one.lives for one in runners] == [False, False]
    assert [one.asked for one in runners] == [["end"], ["end"]], "in order"
    assert broker.poll() is not None
    assert said == ["HW4804 a control group stays."]
    assert not (tmp_path / END).exists()
    assert not (tmp_path / "agent.json").exists()


def test_a_runner_is_ended_whatever_its_user_has_done_to_its_folder(leave: Leave, tmp_path: Path) -> None:
    silent, unmarked, linked = leave("silent"), leave("unmarked"), leave("linked")
    silent.hang_up()
    unmarked.speak()
    linked.speak()
    (unmarked.folder / "composition.json").unlink()
    (linked.folder / "composition.json").unlink()
    (linked.folder / "composition.json").symlink_to(tmp_path / "nowhere")
    assert end_leftovers(tmp_path) == 3
    assert [one.lives for one in (silent, unmarked, linked)] == [False, False, False]
    assert end_leftovers(tmp_path) == 0


def test_what_an_agent_still_uses_is_left_to_it_and_that_is_said(leave: Leave, tmp_path: Path, said: list[str]) -> None:
    runner = leave("city")
    with instance(tmp_path):
        assert end_leftovers(tmp_path, said.append) == 0
    assert runner.lives
    assert len(said) == 1
    assert "HW4937" in said[0]
