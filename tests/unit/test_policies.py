"""Does each way of sharing a machine do what it says, by hand, beside an oracle and in a small world?"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headwater.control.decision import Applications, applications
from headwater.control.mpc import Settings
from headwater.control.policies import POLICIES, Predictive
from headwater.control.readings import COLUMNS, Readings
from headwater.control.record import made_policy
from headwater.model.quality import QUALITIES
from headwater.model.scenario import Event, Machine, RateChange, Scenario, Simulated
from headwater.model.workload import Sinusoid
from headwater.sim.result import percentile
from headwater.sim.simulation import Simulation

GOLD, SILVER, BRONZE = QUALITIES["gold"], QUALITIES["silver"], QUALITIES["bronze"]
THREE = applications(("a", "b", "c"), (GOLD, SILVER, BRONZE))
WORK_S = 0.01


def readings(apps: Applications, arrivals_rps, queue=0.0, seconds: float = 1.0, **others) -> Readings:
    """Return readings of applications that did all that came."""
    count = len(apps.names)
    arrivals_rps = np.broadcast_to(np.asarray(arrivals_rps, np.float64), (count,))
    columns = {key: np.zeros(count) for key in COLUMNS} | {
        "arrivals_rps": arrivals_rps, "throughput_rps": arrivals_rps, "used": arrivals_rps * WORK_S,
        "queue": np.broadcast_to(np.asarray(queue, np.float64), (count,)), "share": np.full(count, math.inf),
        "late_s": np.full(count, math.nan),
    }  # fmt: skip
    return Readings(apps.names, seconds, columns | {key: np.asarray(one, np.float64) for key, one in others.items()})


def decided(name: str, told: Readings, capacity: float, apps: Applications = THREE) -> list[float]:
    return [float(one) for one in POLICIES[name]().decide(1.0, told, apps, capacity).shares]


RIVALS = sorted(set(POLICIES) - {"predictive"})
BOUNDED = applications(("a", "b", "c"), (GOLD, SILVER, BRONZE), 0.2, np.array([1.5, math.inf, math.inf]))


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("capacity", [10.0, 3.0, 0.6, 0.3])
def test_everybody_has_its_least_and_nobody_more_than_it_can_use(name: str, capacity: float) -> None:
    chosen = POLICIES[name]()
    for second in range(30):
        told = readings(BOUNDED, [300.0, 500.0, 0.0], [100.0, 100.0, 0.0])
        decision = chosen.decide(float(second), told, BOUNDED, capacity)
    assert (decision.shares >= min(0.2, capacity / 3.0) * (1.0 - 1e-9)).all()
    assert decision.shares[0] <= 1.5
    if name != "equal":
        assert decision.shares.sum() <= capacity * (1.0 + 1e-9)
    if name in ("weighted", "priority") and capacity == 10.0:  # what one cannot use goes to the others
        assert decision.shares.sum() == pytest.approx(10.0)


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("capacity", [math.nan, -1.0, math.inf, 0.0])
def test_a_capacity_that_is_none_is_nothing_to_share(name: str, capacity: float) -> None:
    chosen = POLICIES[name]()
    for second in range(3):
        decision = chosen.decide(float(second), readings(THREE, [100.0, 500.0, 800.0]), THREE, capacity)
    assert decision.capacity == 0.0
    if name != "equal":
        assert decision.shares.tolist() == [0.0, 0.0, 0.0]


def test_what_somebody_could_never_use_is_named_as_missing() -> None:
    told = readings(BOUNDED, [300.0, 50.0, 0.0], late_s=[2.0, 0.1, 0.1])
    (way,) = POLICIES["priority"]().decide(1.0, told, BOUNDED, 10.0).gives_way
    assert way.worst == "a"
    assert way.lacking == pytest.approx(1.5)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_what_is_told_to_be_missing_does_not_depend_on_how_often_it_is_decided(name: str) -> None:
    found = []
    for seconds in (0.1, 1.0):
        policy = POLICIES[name]()
        told = readings(THREE, 10.0, queue=3000.0, seconds=seconds)
        found.append(policy.decide(0.0, told, THREE, 2.0).asked)
    assert found[0] == pytest.approx(found[1])


def test_only_where_classes_decide_it_is_said_that_heavier_ones_come_first() -> None:
    told = readings(THREE, 10.0, queue=3000.0)
    said = {name: make().decide(0.0, told, THREE, 0.3).reason("c") for name, make in POLICIES.items()}
    is_so = {name for name, text in said.items() if "heavier classes come first" in text}
    assert is_so == {"predictive", "priority"}
    assert said["equal"].endswith("nothing is limited")
    assert "are its part" in said["fixed"]


@pytest.mark.parametrize("odd", [math.nan, -5.0, math.inf, 1e300])
@pytest.mark.parametrize("name", ["weighted", "predictive"])
def test_memory_traffic_that_cannot_be_is_counted_and_not_believed(name: str, odd: float) -> None:
    policy = POLICIES[name]()
    told = replace(readings(THREE, 10.0), memory_bps=odd)
    assert policy.decide(0.0, told, THREE, 2.0).nonsense == 1


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_clock_that_goes_in_long_intervals_is_no_nonsense(name: str) -> None:
    policy = made_policy(name, settings=Settings(interval_s=120.0))
    told = readings(THREE, 10.0, seconds=120.0)
    assert [policy.decide(120.0 * step, told, THREE, 2.0).nonsense for step in range(3)] == [0, 0, 0]


def test_readings_are_equal_where_nothing_was_measured_in_both() -> None:
    one, other = readings(THREE, [1.0, 2.0, 3.0]), readings(THREE, [1.0, 2.0, 3.0])
    assert one == other
    assert one != readings(THREE, [1.0, 2.0, 4.0])
    assert one != readings(THREE, [1.0, 2.0, 3.0], late_s=[0.1, math.nan, math.nan])
    assert one != readings(THREE, [1.0, 2.0, 3.0], seconds=2.0)


WANTED = readings(THREE, [100.0, 500.0, 800.0], [100.0, 100.0, 100.0])  # 2, 6 and 9 cores, with what waits


def test_equal_limits_nobody() -> None:
    assert decided("equal", WANTED, 10.0) == [math.inf] * 3


def test_fixed_gives_everybody_the_same() -> None:
    assert decided("fixed", WANTED, 9.0) == [3.0, 3.0, 3.0]


def test_weighted_gives_by_weight_and_hands_on_what_somebody_does_not_ask_for() -> None:
    assert decided("weighted", WANTED, 10.0) == pytest.approx([2.0, 6.0, 2.0])  # 6:3:1, then 3:1 of the 8 that are left
    assert decided("weighted", WANTED, 1.0) == pytest.approx([0.6, 0.3, 0.1])
    assert decided("weighted", WANTED, 20.0) == pytest.approx([3.8, 6.9, 9.3])  # 3 are spare


def test_priority_serves_the_heaviest_first() -> None:
    assert decided("priority", WANTED, 10.0) == pytest.approx([2.0, 6.0, 2.0])
    assert decided("priority", WANTED, 1.0) == pytest.approx([1.0, 0.0, 0.0])
    assert decided("priority", WANTED, 5.0) == pytest.approx([2.0, 3.0, 0.0])
    assert decided("priority", WANTED, 20.0) == pytest.approx([3.8, 6.9, 9.3])


def water(wanted: np.ndarray, weight: np.ndarray, capacity: float) -> np.ndarray:
    """Return shares by weight up to what is wanted: the level that fills the machine, by bisection."""
    low, high = 0.0, float((wanted / weight).max()) + 1.0
    for _ in range(200):
        level = 0.5 * (low + high)
        low, high = (level, high) if np.minimum(wanted, level * weight).sum() < capacity else (low, level)
    shares = np.minimum(wanted, low * weight)
    return np.asarray(shares + max(0.0, capacity - wanted.sum()) * weight / weight.sum())


@pytest.mark.parametrize("seed", range(30))
def test_weighted_is_the_level_of_water(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    apps = applications(
        tuple(f"a{i}" for i in range(count)), tuple((GOLD, SILVER, BRONZE)[i] for i in rng.integers(0, 3, count))
    )
    told = readings(apps, rng.uniform(0.1, 300.0, count), rng.uniform(0.0, 100.0, count))
    wanted = WORK_S * (told.columns["arrivals_rps"] + told.columns["queue"])
    for full in (0.2, 0.7, 0.999, 1.001, 2.0):
        capacity = full * float(wanted.sum())
        assert decided("weighted", told, capacity, apps) == pytest.approx(
            water(wanted, apps.weight, capacity), abs=1e-9
        )


def test_reactive_grows_where_a_share_is_nearly_used_up_or_late_and_shrinks_where_it_lies_idle() -> None:
    chosen = POLICIES["reactive"]()
    told = readings(THREE, [90.0, 30.0, 60.0])  # of 1 core each: 90 %, 30 % and 60 % are used
    assert chosen.decide(1.0, told, THREE, 3.0).shares == pytest.approx(np.array([1.3, 0.9, 1.0]) * 3.0 / 3.2)
    late = readings(THREE, [10.0, 10.0, 10.0], late_s=[0.1, 0.2, 0.9])  # only the last one is late
    before = np.array([1.3, 0.9, 1.0]) * 3.0 / 3.2
    after = before * [0.9, 0.9, 1.3]
    assert chosen.decide(2.0, late, THREE, 3.0).shares == pytest.approx(after / max(1.0, after.sum() / 3.0))


def test_paper_asks_for_the_rate_at_which_mean_wait_and_processing_are_the_goal() -> None:
    chosen = POLICIES["paper"]()
    queue = np.array([0.0, 20.0, 300.0])
    for second in range(200):  # until the share has followed, and the forecast of a constant is that constant
        shares = chosen.decide(float(second), readings(THREE, [50.0, 40.0, 30.0], queue), THREE, 100.0).shares
    rate_rps, does_rps = np.array([50.0, 40.0, 30.0]), shares / WORK_S
    late_s = (queue + 1.0) / does_rps + rate_rps / does_rps / (does_rps - rate_rps)
    assert late_s == pytest.approx(THREE.goal_s, rel=1e-3)


def test_paper_goes_a_part_of_the_way_in_each_step_and_shares_a_shortage_by_dynamic_programming() -> None:
    chosen = POLICIES["paper"]()
    told = readings(THREE, 400.0)
    first = chosen.decide(0.0, told, THREE, 6.0).shares
    part = 1.0 - math.exp(-1.0 / 3.0)
    assert first[0] == pytest.approx(2.0 + part * (4.05 - 2.0), rel=0.01)  # 4 cores, and a little against waits
    assert first[2] == pytest.approx(2.0 - part * 2.0, rel=0.01)
    for second in range(1, 40):
        last = chosen.decide(float(second), told, THREE, 6.0).shares
    assert last.sum() == pytest.approx(6.0, rel=0.01)
    assert last[0] == pytest.approx(4.05, rel=0.02)
    assert last[2] < 0.01


def test_paper_begins_anew_when_others_take_the_places() -> None:
    others = applications(("x", "y", "z"), (GOLD, SILVER, BRONZE))
    chosen = POLICIES["paper"]()
    for second in range(20):
        chosen.decide(float(second), readings(THREE, [500.0, 1.0, 1.0]), THREE, 6.0)
    found = chosen.decide(20.0, readings(others, [1.0, 1.0, 500.0]), others, 6.0).shares
    assert found == pytest.approx(
        POLICIES["paper"]().decide(0.0, readings(others, [1.0, 1.0, 500.0]), others, 6.0).shares
    )


def test_predictive_begins_with_shares_that_are_set() -> None:
    chosen = Predictive(set_before={"a": 2.0, "c": 0.5})
    decision = chosen.decide(1.0, readings(THREE, [50.0, 40.0, 30.0], [0.0, 0.0, 100.0]), THREE, 3.0)
    assert decision.late_s[2] == pytest.approx(100.0 * WORK_S / 0.5)
    assert decision.shares.sum() == pytest.approx(3.0)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_everybody_is_told_why_and_nonsense_is_counted(name: str) -> None:
    told = readings(THREE, [100.0, 500.0, math.nan], [100.0, -1.0, 100.0])  # what was done and used is none either
    decision = POLICIES[name]().decide(1.0, told, THREE, 10.0)
    assert decision.nonsense == 4
    assert "records/s expected; 100 wait; its goal of 300 ms asks for" in decision.reason("a")
    if name != "equal":
        assert 0.0 <= decision.shares.sum() <= 10.0 * (1.0 + 1e-9)


CORES, COUNT, RATE_RPS, FULL = 8.0, 12, 100.0, 0.7
BEGIN_S, END_S = 15.0, 30.0
BURST = 3.0  # times as much of the lowest class: 1.17 of the machine


def burst(name: str) -> tuple[list[float], list[bool]]:
    """Return how late 99 of 100 records of each class are in a burst, and in which seconds of it a goal gave way."""
    classes = [(GOLD, SILVER, BRONZE)[i % 3] for i in range(COUNT)]
    operators = tuple(
        Simulated(
            f"a{i}", Sinusoid(RATE_RPS), work_s=FULL * CORES / (COUNT * RATE_RPS), is_poisson=True, is_exponential=True,
            on=("m",),
        )
        for i in range(COUNT)
    )  # fmt: skip
    events = tuple(Event(BEGIN_S, RateChange(f"a{i}", BURST)) for i in range(COUNT) if classes[i] is BRONZE)
    simulation = Simulation(Scenario("burst", END_S, (Machine("m", CORES),), operators, events, 0.01, 7))
    meter, chosen = simulation.meter_of("m"), POLICIES[name]()
    apps = applications(tuple(one.name for one in operators), tuple(classes), 0.05 * CORES / COUNT)
    gave_way = []
    plant = simulation.plant
    for second in range(1, int(END_S) + 1):
        if second == BEGIN_S + 1.0:
            plant.settle()
            before = plant.detail.delays[:COUNT].copy()
        simulation.advance(float(second))
        decision = chosen.decide(simulation.now_s, meter.read(), apps, CORES)
        simulation.governor.set(decision.alone_of)  # limits alone, as everywhere in the simulator
        gave_way.append(bool(decision.gives_way))
    plant.settle()
    delays = plant.detail.delays[:COUNT] - before
    late_s = [
        percentile(delays[[one is quality for one in classes]].sum(axis=0), 0.99) for quality in apps.qualities[:3]
    ]
    assert all(one is not None for one in late_s)
    return [one for one in late_s if one is not None], gave_way


@pytest.fixture(scope="module")
def bursts() -> dict[str, tuple[list[float], list[bool]]]:
    return {name: burst(name) for name in POLICIES}


def test_in_a_burst_gold_is_held_by_prediction_and_not_where_nothing_is_limited(bursts) -> None:
    held_s, gave_way = bursts["predictive"]
    assert held_s[0] <= GOLD.goal_s
    assert held_s[1] <= SILVER.goal_s
    assert held_s[2] > BRONZE.goal_s  # there is not enough for all
    assert not any(gave_way[5 : int(BEGIN_S)])
    assert all(gave_way[int(BEGIN_S) + 4 :])
    assert bursts["equal"][0][0] > GOLD.goal_s


@pytest.mark.parametrize("name", ["fixed", "weighted", "priority", "paper", "predictive"])
def test_whoever_does_not_burst_is_served_no_worse_than_those_who_do(name: str, bursts) -> None:
    late_s = bursts[name][0]
    assert late_s[0] < late_s[2]
    assert late_s[1] < late_s[2]


def test_where_nothing_is_limited_the_burst_of_one_class_delays_all(bursts) -> None:
    late_s = bursts["equal"][0]
    assert late_s[0] > 0.5 * late_s[2]


def whole(capacity: float) -> Applications:
    """Return applications each of which could use the whole machine, as runners of a site could."""
    return applications(("a", "b", "c"), (GOLD, SILVER, BRONZE), 0.15, capacity)


def test_equal_limits_nobody_to_less_than_it_could_use() -> None:
    decision = POLICIES["equal"]().decide(1.0, readings(whole(2.0), [300.0, 300.0, 300.0]), whole(2.0), 1.94)
    assert decision.limits.tolist() == decision.reach.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("name", ["weighted", "priority"])
def test_nobody_is_kept_below_its_part_by_weight_and_weights_alone_where_they_keep_shares(name: str) -> None:
    apps = whole(2.0)
    decision = POLICIES[name]().decide(1.0, readings(apps, [1.0, 1.0, 1000.0]), apps, 2.0)
    assert decision.reach[0] >= 2.0 * 6.0 / 10.0 * (1.0 - 1e-9), "what gold asked for a second ago is no limit"
    assert decision.limits.tolist() == [2.0, 2.0, 2.0]
    assert decision.shares.sum() <= 2.0 * (1.0 + 1e-9)


ODD = {
    "an application that is missing": (1.0, 2.0, ("a", "b")),
    "a clock that went back": (1.0, 0.5, ("a", "b", "c")),
    "a clock that is none": (1.0, math.nan, ("a", "b", "c")),
    "a time that is none": (math.nan, 2.0, ("a", "b", "c")),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("odd", ODD)
def test_every_policy_counts_what_is_missing_and_what_cannot_be(name: str, odd: str) -> None:
    seconds, now_s, names = ODD[odd]
    chosen = POLICIES[name]()
    assert chosen.decide(1.0, readings(THREE, 100.0), THREE, 4.0).nonsense == 0
    some = applications(names, THREE.qualities[: len(names)])
    assert chosen.decide(now_s, readings(some, 100.0, seconds=seconds), THREE, 4.0).nonsense == 1


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", range(25))
def test_no_reading_moves_a_share_of_any_policy_out_of_its_bounds(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chosen, apps = (
        POLICIES[name](),
        applications(("a", "b", "c"), (GOLD, SILVER, BRONZE), 0.1, rng.choice([0.3, 2, 9], 3)),
    )
    for second in range(12):
        odd = rng.choice([0.0, 1e-310, 1e-9, 1.0, 1e15, 1e16, -1.0, math.nan, math.inf], (len(COLUMNS), 3))
        usual = rng.random(odd.shape) * rng.choice([0.01, 1.0, 2000.0], (len(COLUMNS), 1))
        columns = dict(zip(COLUMNS, np.where(rng.random(odd.shape) < 0.3, odd, usual), strict=True))
        capacity = float(rng.choice([4.0, 4.0, 0.0, 1e-3, math.nan]))
        with np.errstate(all="ignore"):
            decision = chosen.decide(float(second), Readings(apps.names, 1.0, columns), apps, capacity)
        for found in (decision.shares, decision.reach, decision.limits):
            assert ((found >= 0.0) & (found <= apps.most * (1.0 + 1e-9))).all()
        if name != "equal":
            assert decision.shares.sum() <= (capacity if capacity > 0.0 else 0.0) * (1.0 + 1e-9)


def test_paper_goes_on_with_whom_it_knows_when_they_change_places() -> None:
    chosen, told = POLICIES["paper"](), [100.0, 120.0, 140.0]
    for second in range(40):
        before = chosen.decide(float(second), readings(THREE, told), THREE, 8.0).share_of
    turned = applications(("c", "a", "b"), (BRONZE, GOLD, SILVER))
    after = chosen.decide(40.0, readings(turned, [140.0, 100.0, 120.0]), turned, 8.0).share_of
    assert after == pytest.approx(before, rel=0.02)


def test_shares_that_are_set_count_for_whoever_is_read_a_moment_later() -> None:
    one, chosen = applications(("b",), (SILVER,)), Predictive(set_before={"a": 1.5, "b": 0.3, "c": 0.2})
    chosen.decide(1.0, readings(one, 0.0), one, 2.0)
    chosen.decide(2.0, readings(THREE, 0.0), THREE, 2.0)
    assert chosen.state is not None
    assert dict(zip(chosen.state.names, chosen.state.set_before.tolist(), strict=True)) == {
        "a": 1.5,
        "b": 0.3,
        "c": 0.2,
    }
