"""Does an agent find what it was told after anything has died?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.bind.shelf import FileShelf
from headwater.errors import BindError
from headwater.plan.jobs import Job, Topic
from headwater.ports import Record

JOB = Job("count", "city", "edge-1", (Topic("edge-1", "cars"),), Topic("dc", "hw.city.1"), "ab" * 32, "jobs:count")
FULL = Record(
    JOB,
    3,
    False,
    is_drained=True,
    positions={"cars": '{"cars":{"0":7}}'},
    seat={"cars": "x"},
    formerly=(Topic("edge-1", "old"),),
    brokers={"dc": "h:1"},
)


def named(name: str, epoch: int = 1) -> Record:
    return Record(replace(JOB, name=name), epoch, True)


def test_a_record_comes_back_whole_also_to_another_process(tmp_path):
    FileShelf(tmp_path).put(FULL)
    assert FileShelf(tmp_path).get("count") == FULL
    assert FileShelf(tmp_path).all() == (FULL,)


def test_a_job_without_a_sink_comes_back_too(tmp_path):
    record = Record(replace(JOB, sink=None, sources=()), 1, True)
    FileShelf(tmp_path).put(record)
    assert FileShelf(tmp_path).get("count") == record


def test_the_last_record_counts_and_a_removed_one_is_gone(tmp_path):
    shelf = FileShelf(tmp_path / "new" / "folder")
    shelf.put(named("a"))
    shelf.put(named("b"))
    shelf.put(named("a", 2))
    shelf.remove("b")
    shelf.remove("b")
    assert [one.epoch for one in shelf.all()] == [2]
    assert FileShelf(tmp_path / "new" / "folder").all() == shelf.all()


def test_records_come_by_name(tmp_path):
    shelf = FileShelf(tmp_path)
    for name in ("c", "a.json", "a", "B"):
        shelf.put(named(name))
    assert [one.job.name for one in shelf.all()] == ["B", "a", "a.json", "c"]
    assert FileShelf(tmp_path).all() == shelf.all()


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", ".hidden", "a\0b", "a\n", "x" * 121, "-rf"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path, name):
    shelf = FileShelf(tmp_path / "shelf")
    with pytest.raises(BindError, match="HW4807"):
        shelf.put(named(name))
    with pytest.raises(BindError, match="HW4807"):
        shelf.remove(name)
    assert [one.name for one in tmp_path.rglob("*")] == ["shelf"]


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\0" * 100, b"[]", b"null", b'{"job": 1}', b"\xff\xfe", b"[" * 100_000],
    ids=["empty", "cut", "zeros", "list", "null", "other", "bytes", "deep"],
)
def test_a_damaged_file_is_told_and_set_aside_and_the_others_stay(tmp_path, text):
    shelf = FileShelf(tmp_path)
    shelf.put(named("good"))
    shelf.put(named("bad"))
    (tmp_path / "bad.json").write_bytes(text)
    told: list[str] = []
    again = FileShelf(tmp_path, told.append)
    assert [one.job.name for one in again.all()] == ["good"]
    assert len(told) == 1
    assert told[0].startswith("HW4805")
    assert [one.read_bytes() for one in again.damaged] == [text]
    again.put(named("bad", 5))  # its place is free
    assert FileShelf(tmp_path, told.append).get("bad") == named("bad", 5)
    assert len(told) == 1


@pytest.mark.parametrize("change", [{"epoch": "1"}, {"seat": None}, {"more": 1}, {"is_run": 0}])
def test_a_file_with_a_wrong_field_is_damaged(tmp_path, change):
    FileShelf(tmp_path).put(named("a"))
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert FileShelf(tmp_path).all() == ()


def test_a_file_of_another_job_is_damaged(tmp_path):
    FileShelf(tmp_path).put(named("a"))
    (tmp_path / "a.json").rename(tmp_path / "b.json")
    assert FileShelf(tmp_path).all() == ()


def test_what_was_being_written_when_its_writer_died_does_not_count(tmp_path):
    FileShelf(tmp_path).put(named("a"))
    (tmp_path / ".half").write_bytes(b'{"job"')
    assert FileShelf(tmp_path).all() == (named("a"),)
    assert not (tmp_path / ".half").exists()


def test_a_file_system_that_refuses_is_an_error_and_nothing_changes(tmp_path, monkeypatch):
    shelf = FileShelf(tmp_path)
    shelf.put(named("a"))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(BindError, match=r"HW4806 .*No space left"):
            shelf.put(named("a", 2))
    assert shelf.get("a") == named("a")
    assert FileShelf(tmp_path).all() == (named("a"),)
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]
    with pytest.raises(BindError, match="HW4806"):
        FileShelf(tmp_path / "a.json")


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.unit.test_shelf import named
from headwater.bind.shelf import FileShelf
shelf = FileShelf(Path(sys.argv[1]))
first = shelf.get("a").epoch if shelf.get("a") else 0
print(first, flush=True)
for epoch in range(first + 1, 10**9):
    shelf.put(named("a", epoch))
    print(epoch, flush=True)
    shelf.put(named("b", epoch))
    shelf.remove("b")
"""


def test_what_was_put_is_there_after_the_writer_is_killed_at_any_moment(tmp_path):
    told: list[str] = []
    for kill in range(5):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        root = Path(__file__).parents[2]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as child:
            assert child.stdout is not None
            said = [int(child.stdout.readline()) for _ in range(3 + 7 * kill)]
            child.send_signal(signal.SIGKILL)
            said += [int(line) for line in child.stdout.read().split()]
            child.wait()
        found = FileShelf(tmp_path, told.append).get("a")
        assert found is not None
        assert found.epoch in {said[-1], said[-1] + 1}  # it may have died before it could say so
        assert told == []
