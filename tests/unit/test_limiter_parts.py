"""Names of groups, sums that never fall, nice values, and what else uses the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.bind import duty
from headwater.bind.contention import MemoryTraffic, Others
from headwater.bind.duty import SignalHands, nice_values
from headwater.bind.duty_process import begun, sessions
from headwater.bind.limiter import from_group_name, group_name
from headwater.bind.limits import Tally, used_ns, waited_ns

TICKS = os.sysconf("SC_CLK_TCK")


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_a_runner_is_found_again_by_the_name_of_its_group(name: str) -> None:
    group = group_name(name)
    assert from_group_name(group) == name
    assert set(group) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    assert group[0].isascii()
    assert group[0].isalnum()


@pytest.mark.parametrize("group", ["the__rest", "a_b", "a_5f", "0__a", "a_FF", "a.b"])
def test_a_group_of_somebody_else_is_no_runner(group: str) -> None:
    assert from_group_name(group) is None


def test_a_sum_never_falls_when_threads_end_or_their_numbers_come_back() -> None:
    tally = Tally()
    assert tally.add({1: 10, 2: 5}) == 15
    assert tally.add({1: 12}) == 17
    assert tally.add({1: 13, 2: 1}) == 19, "another one with the number of the one that ended"
    assert tally.add({1: 2, 2: 1}) == 21
    assert tally.add({}) == 21


def test_this_process_has_used_something_and_one_that_is_gone_nothing() -> None:
    pid = os.getpid()
    assert used_ns([pid, 2**22 + 1]).keys() == {pid}
    waited = waited_ns([pid, 2**22 + 1])
    has_count = Path(f"/proc/{pid}/schedstat").exists()
    assert (pid in waited) == has_count
    assert all(one >= 0 for one in waited.values())


def test_nice_values_are_not_below_what_may_be_given() -> None:
    weights = {"a": 3.0, "b": 1.0, "c": 1e-9}
    assert nice_values(weights, least=-20) == {"a": -5, "b": 0, "c": 19}
    assert nice_values(weights, least=-3) == {"a": -3, "b": 0, "c": 19}
    assert nice_values(weights, least=0) == {"a": 0, "b": 5, "c": 19}
    assert nice_values({}, least=0) == {}


def test_processes_are_looked_at_once_for_all_runners(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def look() -> dict[int, list[int]]:
        looks.append(1)
        return sessions()

    monkeypatch.setattr(duty, "sessions", look)
    hands = SignalHands(lambda _: None)
    names = [f"r{number}" for number in range(20)]
    for leader in (2**22 + 1, os.getppid()):
        hands.take("self", os.getsid(0))
        for name in names:
            hands.take(name, leader)
        assert len(looks) <= 21, "once for each that is new"
        looks.clear()
        hands.take("self", os.getsid(0))
        for name in names:
            hands.take(name, leader)
        assert len(looks) <= 1, "and else what was found just before does"
        looks.clear()
    hands.usage()
    assert len(looks) == 1
    for name in names:
        hands.take(name, 2**22 + 1)
    hands.drop_dead({"r0"})
    assert hands.limits().keys() == {"r0", "self"}
    hands.close()


def test_a_process_that_is_there_has_begun() -> None:
    assert begun(2**22 + 1) is None
    own, first = begun(os.getpid()), begun(1)
    assert own is not None
    assert first is not None
    assert first <= own


def counter(root: Path, place: str, value: int | str) -> None:
    folder = root / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mbm_total_bytes").write_text(f"{value}\n")


def test_memory_traffic_is_the_growth_of_all_counters(tmp_path: Path) -> None:
    first, second, other = "mon_data/mon_L3_00", "mon_data/mon_L3_01", "batch/mon_data/mon_L3_00"
    for place, value in ((first, 1000), (second, 0), (other, 500), ("mon_groups/x/mon_data/mon_L3_00", 10**9)):
        counter(tmp_path, place, value)
    traffic = MemoryTraffic(tmp_path, tmp_path)
    assert traffic.is_there
    assert traffic.read(10.0) is None
    counter(tmp_path, first, 3000)
    counter(tmp_path, other, 1500)
    assert traffic.read(12.0) == 1500.0
    counter(tmp_path, second, "Unavailable")
    assert traffic.read(13.0) == 0.0
    counter(tmp_path, first, 5)
    assert traffic.read(14.0) is None, "it began anew"
    counter(tmp_path, first, 25)
    assert traffic.read(15.0) == 20.0


def test_without_counters_of_memory_traffic_the_reason_says_so(tmp_path: Path) -> None:
    traffic = MemoryTraffic(tmp_path / "none", tmp_path)
    assert (traffic.read(1.0), traffic.read(2.0)) == (None, None)
    assert "virtual machines" in traffic.because
    (tmp_path / "uncore_imc_0").mkdir()
    assert "'uncore_imc_0'" in MemoryTraffic(tmp_path / "none", tmp_path).because


def stat(file: Path, user_s: float, idle_s: float = 0.0, steal_s: float = 0.0) -> None:
    numbers = [user_s, 0, 0, idle_s, idle_s, 0, 0, steal_s, user_s, 0]
    file.write_text("cpu  " + " ".join(str(round(one * TICKS)) for one in numbers) + "\ncpu0 1 2 3\n")


def test_others_use_what_is_busy_and_not_ours(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    others = Others(file)
    stat(file, 100)
    assert others.others_cores(0.0, {"a": 50.0}) == 0.0
    stat(file, 103, idle_s=7, steal_s=1)
    assert others.others_cores(2.0, {"a": 51.0, "b": 400.0}) == pytest.approx(1.5)
    stat(file, 104, steal_s=1)
    assert others.others_cores(3.0, {"b": 401.5}) == 0.0
    assert Others().others_cores(0.0, {}) == 0.0


def test_runners_that_are_not_held_are_others(tmp_path: Path) -> None:
    file = tmp_path / "stat"
    others = Others(file)
    stat(file, 100)
    others.others_cores(0.0, {"a": 0.0, "b": 0.0}, {"a"})
    stat(file, 103)
    assert others.others_cores(1.0, {"a": 1.0, "b": 1.5}, {"a"}) == pytest.approx(2.0)
    stat(file, 106)
    assert others.others_cores(2.0, {"a": 2.0, "b": 3.0}, {"a", "b", "c"}) == pytest.approx(0.5), "from now on it is"


def test_what_runs_at_a_lower_priority_counts_where_runners_do(tmp_path: Path) -> None:
    file, tick_s = tmp_path / "stat", os.sysconf("SC_CLK_TCK")
    found = {}
    for counts_nice in (False, True):
        others = Others(file, counts_nice)
        for second in (0, 1):  # others use 0.6 cores, a runner at a lower priority uses 0.4
            file.write_text(f"cpu {int(0.6 * second * tick_s)} {int(0.4 * second * tick_s)} 0 0 0 0 0 0 0 0\n")
            found[counts_nice] = others.others_cores(float(second), {"a": 0.4 * second})
    assert found == {False: pytest.approx(0.2), True: pytest.approx(0.6)}
