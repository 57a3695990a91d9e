"""The highest use of the last minutes is known, also by the next agent, and forgotten after a while."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.bind.highest import SLOT_S, WINDOW_S, Highest


@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.integers(0, 10**12)), min_size=1, max_size=80))
def test_it_is_at_least_the_highest_of_the_window_and_nothing_older_than_a_slot_more(
    steps: list[tuple[float, int]],
) -> None:
    found, now_s, taken = Highest(), 1000.0, []
    for passed_s, value in steps:
        now_s += passed_s
        taken.append((now_s, value))
        found.take({"a": value}, now_s)
        highest = found.of("a")
        assert highest >= max(one for at_s, one in taken if at_s >= now_s - WINDOW_S)
        assert highest in {one for at_s, one in taken if at_s >= now_s - WINDOW_S - SLOT_S}
        found = Highest(json.loads(json.dumps(found.known)))  # another agent each time


def test_each_has_its_own_and_one_that_is_gone_is_forgotten() -> None:
    found = Highest()
    found.take({"a": 5, "b": 7}, 100.0)
    found.take({"a": 3}, 101.0)
    assert (found.of("a"), found.of("b"), found.of("c")) == (5, 7, 0)
    found.take({"a": 4}, 101.0 + WINDOW_S + SLOT_S)
    assert (found.of("a"), found.of("b")) == (4, 0)
    assert found.known.keys() == {"a"}


@pytest.mark.parametrize("known", [{"a": None}, {"a": []}, {"a": {"x": 5}}, {"a": {"3": None}}, {"a": {"9" * 30: 5}}])
def test_what_makes_no_sense_is_not_known(known: dict[str, Any]) -> None:
    found = Highest(known)
    found.take({"b": 1}, 100.0)
    assert (found.of("a"), found.of("b")) == (0, 1)
