"""Is interference found, told from an application's own change, and not learned as normal?"""

from __future__ import annotations

import numpy as np
import pytest

from headwater.control.saturation import Interference, State, begin, observe, taken


def interval(
    state: State,
    slowdowns: list[float],
    rates: float | list[float] = 1000.0,
    idle_s: float = 0.0,
    run_delay_s: float = 0.0,
    throttled_s: float = 0.0,
    memory_bps: float | None = None,
    ceiling_bps: float | None = None,
) -> tuple[State, Interference]:
    """Observe one second in which a record costs each application 0.2 ms, times its slowdown."""
    throughput = np.broadcast_to(np.array(rates, float), len(slowdowns)).copy()
    used = throughput * 2e-4 * np.array(slowdowns) + idle_s
    delay, throttled = np.full((2, len(used)), ((run_delay_s,), (throttled_s,)))
    return observe(state, used, delay, throttled, throughput, 1.0, memory_bps, ceiling_bps)


def calm(count: int, intervals: int = 60) -> State:
    state = begin(count)
    for _ in range(intervals):
        state, found = interval(state, [1.0] * count)
        assert not found.is_saturated
    return state


def test_contention_is_the_waiting_that_the_own_limit_did_not_cause() -> None:
    used, delay, throttled = np.array([1.0, 1.0, 0.0, 0.5]), np.array([1.0, 3.0, 0.0, 0.2]), np.array([0.0, 2.0, 0, 9])
    _, found = observe(begin(4), used, delay, throttled, np.ones(4), 1.0)
    assert found.contention.tolist() == [0.5, 0.5, 0.0, 0.0]


def test_a_slowdown_of_all_is_found_and_named() -> None:
    state = calm(4)
    for _ in range(10):
        state, found = interval(state, [1.5] * 4)
    assert found.slowdown == pytest.approx(np.full(4, 1.5), rel=0.05)
    assert found.is_saturated
    assert found.because.startswith("4 of 4 applications need over 1.1 times the processor for a record, 1.4")


def test_a_slowdown_of_all_is_not_learned_as_normal_for_minutes_and_ends_when_it_ends() -> None:
    state = calm(4)
    for _ in range(300):
        state, found = interval(state, [1.5] * 4)
    assert found.is_saturated
    for _ in range(15):
        state, found = interval(state, [1.0] * 4)
    assert not found.is_saturated
    assert found.slowdown == pytest.approx(np.ones(4), abs=0.02)


def test_a_slowdown_that_lasts_for_hours_is_the_new_cost() -> None:
    state = calm(3)
    for _ in range(3000):
        state, found = interval(state, [1.5] * 3)
    assert not found.is_saturated


def test_one_application_that_changes_its_own_work_saturates_nothing_and_is_learned() -> None:
    state = calm(4)
    for _ in range(10):
        state, found = interval(state, [2.0, 1.0, 1.0, 1.0])
        assert not found.is_saturated
    assert found.slowdown == pytest.approx([1.8, 1.0, 1.0, 1.0], abs=0.2)
    assert found.because == (
        f"1 of 4 applications need over 1.2 times the processor for a record, "
        f"{found.slowdown[0]:.2f} times in the median."
    )
    for _ in range(300):
        state, found = interval(state, [2.0, 1.0, 1.0, 1.0])
    assert found.slowdown == pytest.approx(np.ones(4), abs=0.05)


def test_applications_at_their_limit_do_less_when_slowed_down_and_that_is_found() -> None:
    state = calm(2)
    for _ in range(10):
        state, found = interval(state, [2.5, 2.5], 400.0, run_delay_s=0.8, throttled_s=0.8)
    assert found.is_saturated
    assert found.slowdown == pytest.approx([2.5, 2.5], rel=0.1)


def test_two_of_five_are_not_together() -> None:
    state = calm(5)
    for _ in range(10):
        state, found = interval(state, [1.5, 1.5, 1.0, 1.0, 1.0])
    assert not found.is_saturated


def test_fewer_records_over_the_same_idle_work_are_no_slowdown() -> None:
    state = begin(3)
    for _ in range(60):
        state, _ = interval(state, [1.0] * 3, 1000.0, idle_s=0.02)
    for rate in (500.0, 200.0, 50.0, 10.0, 1000.0, 10.0, 300.0):
        for _ in range(60):
            state, found = interval(state, [1.0] * 3, rate, idle_s=0.02)
            assert not found.is_saturated


def test_a_known_ceiling_decides_alone() -> None:
    state = calm(2)
    _, found = interval(state, [1.0, 1.0], memory_bps=8.5e9, ceiling_bps=1e10)
    assert found.is_saturated
    assert found.because == "The memory's traffic is 85 % of its ceiling."
    for _ in range(10):
        state, found = interval(state, [1.5, 1.5], memory_bps=7e9, ceiling_bps=1e10)
    assert not found.is_saturated
    assert found.because == "The memory's traffic is 70 % of its ceiling."


def test_without_a_known_ceiling_the_traffic_at_which_all_slowed_down_is_learned() -> None:
    state = calm(2)
    for _ in range(2):  # the most that was seen in calm is no ceiling
        state, found = interval(state, [1.0, 1.0], memory_bps=8e9)
        assert not found.is_saturated
    for _ in range(10):
        state, found = interval(state, [1.5, 1.5], memory_bps=9e9)
    assert found.is_saturated
    for _ in range(20):
        state, found = interval(state, [1.0, 1.0], memory_bps=1e9)
    assert not found.is_saturated
    _, found = interval(state, [1.0, 1.0], memory_bps=8e9)
    assert found.is_saturated
    assert found.because == "The memory's traffic is 89 % of what it was when applications slowed down."


@pytest.mark.parametrize("memory", [float("nan"), -1.0, float("inf"), 0.0])
def test_nonsense_of_the_counters_is_as_no_counters(memory: float) -> None:
    state = calm(2)
    for _ in range(10):
        state, found = interval(state, [1.5, 1.5], memory_bps=memory, ceiling_bps=1e10)
    assert found.is_saturated
    assert np.isnan(state.ceiling_bps)


def test_nonsense_is_ignored_for_its_application_and_its_slowdown_stays() -> None:
    state = calm(3)
    for _ in range(10):
        state, found = interval(state, [1.5, 1.5, 1.5])
    used = np.array([np.nan, 0.3, 0.3])
    after, now = observe(state, used, np.array([0.0, -1.0, 0.1]), np.zeros(3), np.full(3, 1000.0), 1.0)
    assert now.slowdown[:2].tolist() == found.slowdown[:2].tolist()
    assert now.contention.tolist() == [0.0, 0.0, 0.25]
    assert after.seen.tolist() == [70.0, 70.0, 71.0]
    assert after.baseline[:2].tolist() == state.baseline[:2].tolist()


def test_waiting_for_a_processor_is_no_time_to_learn_a_lower_baseline() -> None:
    state = calm(2)
    before = state.baseline
    for _ in range(50):
        state, _ = interval(state, [1.15, 1.15], run_delay_s=1.0)
    assert (state.baseline > 0.97 * before).all()


def test_taken_keeps_applications_and_what_is_known_of_the_machine() -> None:
    state = calm(2)
    for _ in range(10):
        state, _ = interval(state, [1.5, 1.7], memory_bps=9e9)
    moved = taken(state, np.array([1, -1, 0]))
    assert moved.slowdown.tolist() == [state.slowdown[1], 1.0, state.slowdown[0]]
    assert moved.seen.tolist() == [70.0, 0.0, 70.0]
    assert (moved.is_saturated, moved.ceiling_bps) == (True, 9e9)
    assert taken(moved, np.array([2, 0])).baseline.tolist() == state.baseline.tolist()


def misled() -> State:
    """Return what is known after something else than memory slowed all down, at next to no traffic."""
    state = calm(3)
    for _ in range(15):
        state, found = interval(state, [1.6] * 3, memory_bps=1e6)
    assert found.is_saturated
    for _ in range(25):
        state, found = interval(state, [1.0] * 3, memory_bps=1e5)
    assert not found.is_saturated
    return state


def test_traffic_above_a_learned_ceiling_that_slows_nobody_down_proves_it_wrong() -> None:
    state = misled()
    found = []
    for _ in range(100):
        state, one = interval(state, [1.0] * 3, memory_bps=5e9)
        found.append(one.is_saturated)
    assert sum(found) <= 1
    state, one = interval(state, [1.0] * 3, memory_bps=5e9 * 1.1)  # a little more is near to what is known now
    assert one.is_saturated


def test_traffic_near_to_a_learned_ceiling_holds_nothing_back_for_ever_while_nobody_is_slow() -> None:
    state = misled()
    found = []
    for _ in range(600):
        state, one = interval(state, [1.0] * 3, memory_bps=0.95e6)
        found.append(one.is_saturated)
    assert all(found[:100])  # it is believed for a while
    assert not any(found[300:])


def test_a_ceiling_is_believed_while_somebody_is_slow() -> None:
    state = misled()
    for _ in range(30):
        state, found = interval(state, [1.6, 1.0, 1.0], memory_bps=5e9)
        if found.slowdown[0] > 1.3:
            break
    before = state.ceiling_bps
    state, _ = interval(state, [1.6, 1.0, 1.0], memory_bps=9e9)
    assert state.ceiling_bps == before
