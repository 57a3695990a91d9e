"""Laws of sharing out memory: nobody below its floor, never more than there is if that can be, weights decide."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.control.memory import MemoryNeed, bounds, buffer_bytes, floor_bytes

MB = 2**20


@st.composite
def needs(draw: st.DrawFn, least: int = 1) -> list[MemoryNeed]:
    count = draw(st.integers(least, 6))
    return [
        MemoryNeed(
            f"r{i}",
            draw(st.integers(64, 4096)),
            draw(st.integers(0, 6000 * MB)),
            draw(st.sampled_from([0.0, 0.1, 1.0, 1.0, 3.0, 1e6])),
            draw(st.floats(0, 1e6)),
            draw(st.none() | st.floats(0, 1e6)),
            draw(st.none() | st.floats(0.001, 100)),
        )
        for i in range(count)
    ]


memories = st.floats(0, 64e9)


@given(needs(least=0), memories)
def test_nobody_gets_less_than_its_floor_and_the_sum_fits_when_the_floors_do(
    apps: list[MemoryNeed], memory: float
) -> None:
    found = bounds(apps, memory)
    assert [one.name for one in found] == [one.name for one in apps]
    limits = [one.limit_bytes or 0 for one in found]
    floors = [floor_bytes(one) for one in apps]
    assert all(limit >= floor for limit, floor in zip(limits, floors, strict=True))
    if sum(floors) <= memory:
        assert sum(limits) <= memory
        if sum(one.weight for one in apps) > 0:
            assert sum(limits) >= memory - len(apps) - 1 - 1e-6 * memory  # nothing is kept back
    else:
        assert limits == floors
        assert all("nothing is spare" in one.because for one in found)


@given(needs())
def test_a_floor_holds_heap_and_overhead_and_what_is_in_use(apps: list[MemoryNeed]) -> None:
    for one in apps:
        assert floor_bytes(one) >= 1.0999 * (one.heap_mb + 350) * MB
        assert floor_bytes(one) >= 1.1499 * one.used_bytes


@given(needs(), memories)
def test_whoever_leaps_within_a_second_or_swings_stays_below_its_limit(apps: list[MemoryNeed], memory: float) -> None:
    for one, bound in zip(apps, bounds(apps, memory), strict=True):
        assert (bound.limit_bytes or 0) >= 1.15 * one.used_bytes + 256 * MB - 1


@given(needs(), memories)
def test_the_order_does_not_matter(apps: list[MemoryNeed], memory: float) -> None:
    there = {one.name: one.limit_bytes or 0 for one in bounds(apps, memory)}
    back = {one.name: one.limit_bytes or 0 for one in bounds(apps[::-1], memory)}
    assert all(abs(there[name] - back[name]) <= 1 + 1e-9 * memory for name in there)


@given(needs(), memories, st.sampled_from([0.25, 4.0, 1024.0]))
def test_only_the_ratio_of_weights_counts(apps: list[MemoryNeed], memory: float, factor: float) -> None:
    scaled = [replace(one, weight=one.weight * factor) for one in apps]
    for one, other in zip(bounds(apps, memory), bounds(scaled, memory), strict=True):
        assert abs((one.limit_bytes or 0) - (other.limit_bytes or 0)) <= 1


@given(needs(), memories, st.floats(1.1, 10))
def test_who_grows_heavier_gets_no_less_and_the_others_no_more(
    apps: list[MemoryNeed], memory: float, factor: float
) -> None:
    heavier = [replace(apps[0], weight=apps[0].weight * factor), *apps[1:]]
    before, after = bounds(apps, memory), bounds(heavier, memory)
    assert (after[0].limit_bytes or 0) >= (before[0].limit_bytes or 0)
    assert all((b.limit_bytes or 0) <= (a.limit_bytes or 0) for a, b in zip(before[1:], after[1:], strict=True))


@given(needs(), memories, st.floats(0, 1e9))
def test_more_memory_is_never_less_for_anybody(apps: list[MemoryNeed], memory: float, more: float) -> None:
    for one, other in zip(bounds(apps, memory), bounds(apps, memory + more), strict=True):
        assert (other.limit_bytes or 0) >= (one.limit_bytes or 0)


@given(needs(), memories)
def test_spare_memory_goes_by_weight(apps: list[MemoryNeed], memory: float) -> None:
    assume(sum(map(floor_bytes, apps)) <= memory)
    above = [(one.limit_bytes or 0) - floor_bytes(need) for need, one in zip(apps, bounds(apps, memory), strict=True)]
    total = sum(one.weight for one in apps)
    for need, more in zip(apps, above, strict=True):
        part = need.weight / total if total > 0 else 0.0
        assert abs(more - part * (memory - sum(map(floor_bytes, apps)))) <= 2


@given(needs())
def test_a_buffer_holds_what_comes_within_the_goal_within_its_bounds(apps: list[MemoryNeed]) -> None:
    for one in apps:
        held = buffer_bytes(one)
        assert 64 * 1024 <= held <= 50_000_000
        if one.goal_s is None or one.record_bytes is None:
            assert held == 50_000_000
        elif 64 * 1024 < held < 50_000_000:
            assert abs(held - one.rate_rps * one.goal_s * one.record_bytes) <= 1
        assert buffer_bytes(replace(one, rate_rps=2 * one.rate_rps)) >= held


def test_a_site_without_a_limit_limits_nobody() -> None:
    found = bounds([MemoryNeed("a", 512, 0, 1.0, 1000.0, 200.0, 2.0)], None)
    assert [(one.limit_bytes, one.buffer_bytes) for one in found] == [(None, 400_000)]


def test_a_reason_has_the_numbers_that_decided() -> None:
    small, large = bounds([MemoryNeed("a", 512, 0, 1.0), MemoryNeed("b", 512, 2000 * MB, 3.0)], 4256 * MB)
    assert "at least 948 MB, for a heap of 512 MB" in small.because
    assert "188 MB of 752 MB spare by its weight of 1" in small.because
    assert "at least 2556 MB, because it used up to 2000 MB lately" in large.because
    tight = bounds([MemoryNeed("a", 512, 0, 1.0)], 500 * MB)[0]
    assert "all runners need 948 MB at least, and the site has 500 MB" in tight.because
