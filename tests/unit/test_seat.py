"""Where in its sources does a query go on after they have become others?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.bind.seat import Seated, advance, first_records, positions, take_seats
from headwater.errors import BindError

IDS: dict[str, str] = {}


def ids(key: str) -> Mapping[str, str]:
    return {key: IDS.get(key, "first")}


def first(key: str) -> str:
    return first_records({(key.rpartition("/")[2], 0): 0})


def seated(checkpoint: Path, *keys: str, seat: Mapping[str, str] | None = None) -> Seated:
    return take_seats(checkpoint, keys, seat or {}, first, ids, begun_ms=7)


def batch(checkpoint: Path, number: int, *places: str, is_done: bool = True) -> None:
    """Write what Spark writes at the end of a batch."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text("\n".join(["v1", "{}", *places]))
    if is_done:
        (checkpoint / "commits" / str(number)).write_text("v1\n{}")


def lines(checkpoint: Path, number: int) -> list[str]:
    return (checkpoint / "offsets" / str(number)).read_text().splitlines()[2:]


def at(topic: str, offset: int) -> str:
    return json.dumps({topic: {"0": offset}}, separators=(",", ":"))


def test_a_new_query_begins_as_its_options_say_and_remembers_its_sources(tmp_path: Path) -> None:
    found = seated(tmp_path, "a/hot")
    assert found.begun_ms == 7
    assert not (tmp_path / "sources").exists()
    assert seated(tmp_path, "a/hot") == found


def test_a_source_that_stays_keeps_its_place_and_a_new_one_begins_with_its_first_record(tmp_path: Path) -> None:
    before = seated(tmp_path, "a/hot")
    batch(tmp_path, 3, at("hot", 17))
    after = seated(tmp_path, "b/cold", "a/hot")
    assert lines(tmp_path, 3) == [at("cold", 0), at("hot", 17)]
    assert after.generation != before.generation


def test_other_sources_are_refused_while_a_batch_is_open(tmp_path: Path) -> None:
    seated(tmp_path, "a/hot")
    batch(tmp_path, 3, at("hot", 17))
    batch(tmp_path, 4, at("hot", 20), is_done=False)
    with pytest.raises(BindError, match="HW4520"):
        seated(tmp_path, "b/cold")


def test_a_seat_counts_once_and_again_after_the_source_was_left(tmp_path: Path) -> None:
    giver, taker = tmp_path / "giver", tmp_path / "taker"
    for one in (giver, taker):
        one.mkdir()
    seated(giver, "a/hot")
    batch(giver, 0, at("hot", 17))
    seat = positions(giver, ids)
    seated(taker, "a/hot", seat=seat)
    assert (taker / "sources" / "0" / "0").read_bytes() == b"\0v1\n" + at("hot", 17).encode()
    batch(taker, 5, at("hot", 30))
    seated(taker, "a/hot", seat=seat)
    assert lines(taker, 5) == [at("hot", 30)], "taken already"
    seated(taker, "b/cold", seat={})
    seated(taker, "a/hot", seat=seat)
    assert lines(taker, 5) == [at("hot", 17)]


def test_a_source_that_is_read_again_goes_on_where_it_was_left_if_it_is_the_same(tmp_path: Path) -> None:
    seated(tmp_path, "a/hot")
    batch(tmp_path, 0, at("hot", 17))
    seated(tmp_path, "b/cold")
    seated(tmp_path, "a/hot")
    assert lines(tmp_path, 0) == [at("hot", 17)]
    seated(tmp_path, "b/cold")
    IDS["a/hot"] = "made again"
    try:
        seated(tmp_path, "a/hot")
    finally:
        IDS.clear()
    assert lines(tmp_path, 0) == [at("hot", 0)]


def test_a_change_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    seated(tmp_path, "a/hot")
    batch(tmp_path, 0, at("hot", 17))
    note = json.loads((tmp_path / "headwater.json").read_text())
    seated(tmp_path, "b/cold")
    text = (tmp_path / "offsets" / "0").read_text()
    later = json.loads((tmp_path / "headwater.json").read_text())
    (tmp_path / "headwater.json").write_text(json.dumps(note))  # as if it had died between the two files
    (tmp_path / "headwater.begun.json").write_text(json.dumps({"note": later, "batch": 0, "text": text}))
    seated(tmp_path, "b/cold")
    assert lines(tmp_path, 0) == [at("cold", 0)]
    assert json.loads((tmp_path / "headwater.json").read_text()) == later


def test_a_query_without_state_goes_on_after_the_last_record_whose_rows_are_written(tmp_path: Path) -> None:
    seated(tmp_path, "a/hot")
    assert not advance(tmp_path, {("hot", 0): 20}, has_more=False), "there is no batch yet"
    batch(tmp_path, 0, at("hot", 17))
    assert advance(tmp_path, {("hot", 0): 20}, has_more=True)
    assert lines(tmp_path, 0) == [at("hot", 20)]
    assert advance(tmp_path, {("hot", 0): 20}, has_more=False)
    assert lines(tmp_path, 0) == [at("hot", 21)]
    assert advance(tmp_path, {("hot", 0): 3}, has_more=False)
    assert lines(tmp_path, 0) == [at("hot", 21)], "never back"
