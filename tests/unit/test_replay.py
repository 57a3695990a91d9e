"""What a fragment has already written, from the headers of its output and the files of its checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.bind.headers import From, parse_from
from headwater.bind.replay import Written, gather, last_commit_ms

LONG = st.integers(-(2**63), 2**63 - 1)
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True)
MARKS = st.builds(From, TOPICS, st.integers(0, 99), st.integers(0, 2**62), LONG, st.integers(0, 2**45))


def header(mark: From) -> bytes:
    """As a channel writes it."""
    return f"{mark.topic}/{mark.partition}/{mark.offset}/{mark.index}/{mark.arrived_ms}".encode()


@given(MARKS)
def test_what_a_header_says_is_read_back(mark: From) -> None:
    assert parse_from(header(mark)) == mark


def test_a_topic_with_dots_and_a_negative_index_are_read() -> None:
    assert parse_from(b"hw.fire.hot_pi-1-4735c1d6/3/17/-5/1700000000000") == From(
        "hw.fire.hot_pi-1-4735c1d6", 3, 17, -5, 1_700_000_000_000
    )


@pytest.mark.parametrize("other", [b"", b"a/0/1", b"a/0/x/0/1", b"\xff/0/1/0/1"])
def test_what_is_no_such_header_is_refused(other: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - several kinds, none with words of its own
        parse_from(other)


def test_nothing_written_is_nothing() -> None:
    assert gather([]) == Written({}, {})
    assert gather([]).count == 0


def test_the_farthest_record_is_told_by_partition_and_the_rows_by_record() -> None:
    found = gather(
        [
            From("a", 0, 5, 1, 0),
            From("a", 0, 7, 1, 0),
            From("a", 0, 7, 2, 0),
            From("a", 0, 6, 0, 0),
            From("a", 1, 2, 0, 0),
            From("b", 0, 9, -4, 0),
        ]
    )
    assert found.reached == {("a", 0): 7, ("a", 1): 2, ("b", 0): 9}
    assert found.rows[("a", 0)] == {5: {1}, 6: {0}, 7: {1, 2}}
    assert found.rows[("b", 0)] == {9: {-4}}
    assert found.count == 6


@given(st.lists(MARKS))
def test_order_and_doubles_do_not_matter(marks: list[From]) -> None:
    found = gather(marks)
    assert gather(reversed(marks)) == gather(marks + marks) == found
    assert found.count == len({(each.topic, each.partition, each.offset, each.index) for each in marks})
    assert all(offset == max(found.rows[place]) for place, offset in found.reached.items())


def commit(checkpoint: Path, name: str, time_s: float) -> None:
    file = checkpoint / "commits" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("v1")
    os.utime(file, (time_s, time_s))


def test_without_a_commit_everything_counts(tmp_path: Path) -> None:
    assert last_commit_ms(tmp_path) == 0
    (tmp_path / "commits").mkdir()
    assert last_commit_ms(tmp_path) == 0


def test_the_newest_commit_counts_with_some_slack_before_it(tmp_path: Path) -> None:
    for number in (9, 10, 11):
        commit(tmp_path, str(number), 1_000.0 * number)
    assert 11_000_000 - 10_000 <= last_commit_ms(tmp_path) < 11_000_000


def test_files_that_are_no_commits_do_not_count(tmp_path: Path) -> None:
    commit(tmp_path, "3", 1_000.0)
    for name in (".3.crc", "4.tmp", ".4.8e2a.tmp", "metadata", "5.compact"):
        commit(tmp_path, name, 9_000.0)
    assert last_commit_ms(tmp_path) < 1_000_000
    assert last_commit_ms(tmp_path) > 0


def test_a_clock_that_begins_with_1970_gives_no_time_before(tmp_path: Path) -> None:
    commit(tmp_path, "0", 1.0)
    assert last_commit_ms(tmp_path) == 0
