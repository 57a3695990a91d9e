"""What lies in the folders of runners is nothing that an agent may trust: they belong to the user that jobs run as."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from headwater.bind import handed_over
from headwater.bind.engine import SparkEngine
from headwater.bind.process import RunnerProcess
from headwater.errors import BindError
from tests.pretended import Leave, held

LONG_S = 60.0  # on a machine that does many things at once


def adopted(engine: SparkEngine) -> int:
    """How many were adopted; one that waits for ever fails here instead."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(engine.adopt()), daemon=True)
    thread.start()
    thread.join(LONG_S)
    assert found, "it raised, or still waits"
    return found[0]


@pytest.mark.parametrize("put", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_the_place_of_a_mark_is_replaced_and_not_followed(
    engine: SparkEngine, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    other = tmp_path / "of somebody else"
    other.write_text("theirs")
    mark = tmp_path / "runners" / "city" / "composition.json"
    mark.parent.mkdir(parents=True)
    put(mark, other)
    engine.halt(held("city"), is_drain=False)
    assert other.read_text() == "theirs"
    assert not mark.is_symlink()
    assert json.loads(mark.read_text()) == ["city", ""]


def test_a_folder_in_the_place_of_a_mark_is_not_in_the_way(engine: SparkEngine, tmp_path: Path) -> None:
    mark = tmp_path / "runners" / "city" / "composition.json"
    (mark / "full").mkdir(parents=True)
    engine.halt(held("city"), is_drain=False)
    assert json.loads(mark.read_text()) == ["city", ""]


def pipe(mark: Path) -> None:
    os.mkfifo(mark)


def folder(mark: Path) -> None:
    mark.mkdir()


def link(mark: Path) -> None:
    other = mark.with_name("other")
    other.write_text(json.dumps(["odd", ""]))
    mark.symlink_to(other)


def second_name(mark: Path) -> None:
    other = mark.with_name("other")
    other.write_text(json.dumps(["odd", ""]))
    mark.hardlink_to(other)


def nothing(_: Path) -> None:
    pass


def holding(data: bytes) -> Callable[[Path], object]:
    return lambda mark: mark.write_bytes(data)


ODD: dict[str, Callable[[Path], object]] = {
    "a pipe": pipe,
    "a folder": folder,
    "a link": link,
    "a second name": second_name,
    "nothing": nothing,
    "empty": holding(b""),
    "torn": holding(b'["odd", '),
    "no text": holding(b'["odd", "\xff"]'),
    "a number": holding(b"7"),
    "one word": holding(b'["odd"]'),
    "numbers": holding(b"[1, 2]"),
    "no name": holding(b'["\\ud800", ""]'),
    "the name of another": holding(b'["city", ""]'),
    "a way out": holding(b'["odd", "../../../tmp/x.y"]'),
    "deep": holding(b"[" * 50_000),
    "long": holding(b'["odd", ' + b" " * 200_000 + b'""]'),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_mark_that_cannot_be_understood_is_said_and_keeps_no_other_runner_from_being_adopted(
    engine: SparkEngine, leave: Leave, said: list[str], odd: Callable[[Path], object]
) -> None:
    """Nobody knows what code the runner beside it has, so it must not be taken for the right one: it is ended."""
    good, bad = leave("city"), leave("odd")
    good.speak()
    bad.speak()
    mark = bad.folder / "composition.json"
    mark.unlink()
    odd(mark)
    assert adopted(engine) == 1
    assert engine.crew() == {"city": (good.leader.pid, "")}
    assert [one for one in said if "HW4515" in one] == said != []
    assert not bad.lives
    assert good.lives


def test_a_job_is_removed_whose_runner_is_not_there(engine: SparkEngine) -> None:
    """It was stopped, its runner ended after a while, and the agent was started again since."""
    record = held("city")
    engine.adopt([record])
    assert engine.log(record.job.name, 10) == ""
    engine.remove(record.job.name)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"port": "x"}', '{"port": 1e999}', '{"port": 99999999}', '{"port": -1}', "[" * 50_000]
)
def test_a_port_that_makes_no_sense_is_that_of_a_runner_that_does_not_answer(
    engine: SparkEngine, leave: Leave, text: str
) -> None:
    good, bad = leave("city"), leave("odd")
    good.speak()
    (bad.folder / "runner.json").write_text(text)
    assert adopted(engine) == 1
    assert engine.crew().keys() == {"city"}


@pytest.mark.parametrize("target", ["a" * 300, "nowhere", "runner.json"], ids=["too long", "nowhere", "itself"])
def test_a_runner_that_makes_its_port_a_link_that_leads_nowhere_hides_neither_itself_nor_others(
    engine: SparkEngine, leave: Leave, target: str
) -> None:
    good, bad = leave("city"), leave("odd")
    for one in (good, bad):
        one.answer = lambda _: {"ok": True, "parts": [{"id": "x", "state": "running"}], "positions": {}}
        one.speak()
    assert engine.adopt([held("city"), held("odd")]) == 2
    (bad.folder / "runner.json").unlink()
    (bad.folder / "runner.json").symlink_to(target)
    assert engine.crew().keys() == engine.answers(LONG_S).keys() == {"city", "odd"}
    engine.states()
    assert engine.halt(held("odd"), is_drain=True) == {}, "and it can be asked over the connection that there is"
    engine.end()
    assert not bad.lives


def test_a_runner_that_cannot_be_looked_at_hides_no_other(
    engine: SparkEngine, leave: Leave, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = leave("city"), leave("odd")
    for one in (good, bad):
        one.answer = lambda _: {"ok": True, "parts": [{"id": "x", "state": "running"}]}
        one.speak()
    assert engine.adopt([held("city"), held("odd")]) == 2
    is_listening = cast("property", RunnerProcess.__dict__["is_listening"]).fget
    assert is_listening is not None

    def odd(process: RunnerProcess) -> bool:
        if process.spec.folder == bad.folder:
            raise OSError(36, "File name too long")
        return bool(is_listening(process))

    monkeypatch.setattr(RunnerProcess, "is_listening", property(odd))
    assert engine.crew().keys() == engine.answers(LONG_S).keys() == {"city"}


def test_a_file_that_cannot_be_written_to_its_end_stays_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "file"
    handed_over.put(file, "before")
    with pytest.raises(UnicodeEncodeError):
        handed_over.put(file, "x" * 100_000 + "\ud800")
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_a_checkpoint_is_packed_as_it_is(engine: SparkEngine, tmp_path: Path) -> None:
    checkpoint = tmp_path / "jobs" / "city-1" / "checkpoints" / "city-1"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_bytes(b"v1")
    (checkpoint / "state" / "empty").mkdir(parents=True)
    packed = engine.pack("city-1")
    engine.unpack("other", packed)
    there = tmp_path / "jobs" / "other" / "checkpoints" / "city-1"
    assert (there / "offsets" / "0").read_bytes() == b"v1"
    assert (there / "state" / "empty").is_dir()
    assert sorted(one.name for one in there.rglob("*")) == ["0", "empty", "offsets", "state"]


@pytest.mark.parametrize("put", [Path.symlink_to, Path.hardlink_to, lambda one, _: os.mkfifo(one)])
def test_what_somebody_put_into_a_checkpoint_goes_to_no_other_site(
    engine: SparkEngine, tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    """The folder belongs to the runner's user, and whoever packs it may be root."""
    other, checkpoint = tmp_path / "of somebody else", tmp_path / "jobs" / "city-1" / "checkpoints"
    other.write_text("theirs")
    checkpoint.mkdir(parents=True)
    put(checkpoint / "0", other)
    with pytest.raises(BindError, match=r"HW4527.*/0'"):
        engine.pack("city-1")


def test_a_folder_of_a_checkpoint_that_is_a_link_goes_to_no_other_site(engine: SparkEngine, tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "jobs" / "city-1" / "checkpoints").mkdir(parents=True)
    (tmp_path / "jobs" / "city-1" / "checkpoints" / "state").symlink_to(tmp_path / "theirs")
    with pytest.raises(BindError, match=r"HW4527.*/state'"):
        engine.pack("city-1")
