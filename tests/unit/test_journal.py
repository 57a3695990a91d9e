"""Decisions are written down so that they can be made again, whatever becomes of the disk."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from headwater.bind.journal import FileJournal
from headwater.control.policies import POLICIES
from headwater.control.readings import Reading, Readings, of_rows
from headwater.control.record import replayed
from headwater.run.qos import Holder, Roster

TORN = '{"kind":"step","now_s":17'


class Meter:
    """Readings that were written down."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def read(self) -> Readings:
        row = Reading(1.0, float(self.rng.poisson(100)), 100.0, 3.0, 0.01, 0.5, 1.0)
        return of_rows({"alerts": row, "reports": row})


class Governor:
    """Sets nothing."""

    weighs = False

    def set(self, limits: Mapping[str, float], shares: Mapping[str, float] | None = None) -> None:
        del limits, shares


@pytest.mark.parametrize("policy", tuple(POLICIES))
def test_a_record_can_be_replayed_after_its_file_was_changed(tmp_path: Path, policy: str) -> None:
    file, roster = tmp_path / "decisions.jsonl", Roster(least=0.1)
    journal = FileJournal(file, most_bytes=30_000)
    holder = Holder(Meter(), Governor(), lambda: roster, lambda: 2.0, policy, journal)
    full = tmp_path / "decisions.jsonl.1"
    for second in itertools.count():
        holder.step(float(second))
        if full.exists() and file.exists() and len(file.read_bytes().splitlines()) > 9:
            break
    for one in (full, file):
        entries = [json.loads(line) for line in one.read_text("utf-8").splitlines()]
        again = list(replayed(entries, one.name))
        assert len(again) > 5
        assert not [decision for decision in again if decision.differs]


def test_a_disk_that_refuses_loses_lines_and_stops_nobody(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").write_text("")
    journal = FileJournal(tmp_path / "file" / "below.jsonl", said.append)
    assert journal.write({"kind": "begin"}), "whoever reads needs a beginning after what is lost"
    assert journal.write({"kind": "step"})
    assert len(said) == 1, "it is said once"


@pytest.mark.parametrize("before", ["", TORN, '{"kind":"begin"}\n', '{"kind":"begin"}\n' + TORN])
def test_a_line_that_was_cut_off_takes_no_other_along(tmp_path: Path, before: str) -> None:
    file = tmp_path / "decisions.jsonl"
    file.write_text(before)
    journal = FileJournal(file)
    assert not journal.write({"kind": "begin", "of": "ü"})
    assert not journal.write({"kind": "step"})
    *earlier, begin, step = file.read_text("utf-8").splitlines()
    assert earlier == before.splitlines()
    assert (json.loads(begin), json.loads(step)) == ({"kind": "begin", "of": "ü"}, {"kind": "step"})


def test_what_follows_lost_entries_begins_anew_and_can_be_replayed(tmp_path: Path) -> None:
    file, roster = tmp_path / "decisions.jsonl", Roster(least=0.1)
    holder = Holder(Meter(), Governor(), lambda: roster, lambda: 2.0, journal=FileJournal(file))
    for second in range(10):
        holder.step(float(second))
    aside = file.rename(tmp_path / "aside")
    file.mkdir()  # nothing can be written now
    for second in range(10, 13):
        holder.step(float(second))
    file.rmdir()
    aside.rename(file)
    with file.open("a") as opened:
        opened.write(TORN)
    for second in range(13, 20):
        holder.step(float(second))
    lines = file.read_text("utf-8").splitlines()
    entries = [json.loads(line) for line in lines if line != TORN]
    assert len(entries) == len(lines) - 1
    again = list(replayed(entries, file.name))
    assert [one.now_s for one in again] == [float(second) for second in range(20) if not 10 <= second < 13]
    assert not [one.now_s for one in again if one.differs]
