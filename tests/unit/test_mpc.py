"""Does the controller react as its page says: to forecasts that fail, to what hangs, is late, varies, or cannot be?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from headwater.control import mpc
from headwater.control.decision import Applications, Decision, applications
from headwater.control.readings import COLUMNS, Readings
from headwater.model.quality import QUALITIES

GOLD, SILVER, BRONZE = (QUALITIES[name] for name in ("gold", "silver", "bronze"))
ONE = applications(("a",), (GOLD,))
WORK_S = 0.001


@dataclass
class Machine:
    """A controller, told by hand what was measured; applications do all that comes unless told otherwise."""

    apps: Applications = ONE
    capacity: float = 8.0
    disturb: mpc.Disturb | None = None
    shares: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = np.array([self.shares.get(name, math.nan) for name in self.apps.names])
        self.state, self.now_s = mpc.begin(self.apps, given), 0.0

    def step(self, rate_rps, **told) -> Decision:
        count = len(self.apps.names)
        rates = np.broadcast_to(np.asarray(rate_rps, np.float64), (count,))
        columns = {key: np.zeros(count) for key in COLUMNS} | {
            "arrivals_rps": rates, "throughput_rps": rates, "used": rates * WORK_S, "share": np.full(count, math.inf),
            "late_s": np.full(count, math.nan),
        }  # fmt: skip
        columns |= {key: np.broadcast_to(np.asarray(one, np.float64), (count,)) for key, one in told.items()}
        readings = Readings(self.apps.names, 1.0, columns)
        self.now_s += 1.0
        self.state, decision = mpc.step(
            self.state, self.now_s, readings, self.apps, self.capacity, mpc.Settings(), self.disturb
        )
        return decision


def by_chance(error: float) -> Callable[[np.ndarray], np.ndarray]:
    rng = np.random.default_rng(7)
    return lambda mean: mean * (1.0 + error * rng.choice((-1.0, 1.0), mean.shape[1]))


def test_a_forecast_that_is_always_half_too_low_is_set_right() -> None:
    """Of a load that the plain guess cannot follow: it cannot take over, so the forecast itself must be mended."""
    machine = Machine(disturb=lambda mean: 0.5 * mean)
    found = [machine.step(400.0 if second % 2 else 100.0).rate_rps[0] for second in range(60)]
    assert found[40:] == pytest.approx([400.0] * 20, rel=0.1)  # the most of the next three seconds


@pytest.mark.parametrize("error", [-0.5, 0.5])
def test_a_forecast_that_is_always_wrong_the_same_way_leaves_expectations_right(error: float) -> None:
    machine = Machine(disturb=lambda mean: (1.0 + error) * mean)
    found = [machine.step(1000.0).rate_rps[0] for _ in range(60)]
    assert found[40:] == pytest.approx([1000.0] * 20, rel=0.02)


def test_a_forecast_that_errs_by_chance_is_trusted_no_more() -> None:
    machine, rng = Machine(disturb=by_chance(0.5)), np.random.default_rng(1)
    found = [machine.step(rng.poisson(1000.0)).rate_rps[0] for _ in range(60)]
    assert found[30:] == pytest.approx([1000.0] * 30, rel=0.12)


def test_where_a_forecast_is_wrong_the_plain_guess_follows_a_load_that_moves() -> None:
    machine = Machine(disturb=by_chance(0.5), capacity=80.0)
    loads = 1000.0 * (1.0 + 0.5 * np.sin(np.arange(120) / 5.0))  # up to 10 % in a second
    found = np.array([machine.step(load).rate_rps[0] for load in loads])
    coming = np.array([loads[second + 1 : second + 4].max() for second in range(116)])
    off = np.abs(found[40:116] / coming[40:] - 1.0)
    assert off.mean() < 0.1
    assert off.max() < 0.27


def test_a_machine_whose_applications_slow_each_other_down_hands_out_less_and_then_all_again() -> None:
    apps = applications(("a", "b"), (GOLD, BRONZE))
    machine = Machine(apps)
    rates = np.array([1000.0, 1000.0])
    for _ in range(30):
        assert machine.step(rates).shares.sum() == pytest.approx(8.0)
    found = [machine.step(rates, used=1.5 * rates * WORK_S) for _ in range(60)]
    assert found[-1].shares.sum() == pytest.approx(0.7 * 8.0)
    assert found[-1].limits.max() <= 0.7 * 8.0 * (1.0 + 1e-9)
    assert "times the processor for a record" in found[-1].because
    found = [machine.step(rates) for _ in range(60)]
    assert found[-1].shares.sum() == pytest.approx(8.0)


def demanded(rate_rps: np.ndarray | float, seconds: int = 40, **told) -> float:
    """Return what is asked for in the last second of a load."""
    machine = Machine(capacity=100.0)
    rates = np.broadcast_to(rate_rps, (seconds,))
    for rate in rates[:-1]:
        machine.step(rate)
    return float(machine.step(rates[-1], **told).asked[0])


def test_the_later_records_are_the_more_is_asked_for_where_nothing_waits_and_the_limit_is_used_up() -> None:
    asked = [demanded(1000.0, late_s=late_s, share=1.1) for late_s in (0.1, 0.25, 0.26, 0.3)]
    assert asked == sorted(set(asked))


def test_a_correction_ends_where_little_of_a_share_is_used_however_near_the_goal_records_are() -> None:
    machine = Machine()
    for _ in range(60):  # late, while all of it is used
        machine.step(100.0, late_s=2.0 * GOLD.goal_s, share=0.1)
    assert machine.state.trim[0] == pytest.approx(3.0)
    for _ in range(200):  # in time, just so, while a tenth is used
        decision = machine.step(100.0, late_s=0.7 * GOLD.goal_s, share=1.0)
    fresh = Machine()
    for _ in range(60):
        calm = fresh.step(100.0, late_s=0.7 * GOLD.goal_s, share=1.0)
    assert decision.demand[0] == pytest.approx(calm.demand[0], rel=0.01)


def test_use_that_is_nonsense_for_a_moment_lets_no_machine_go_that_is_held_back() -> None:
    apps = applications(("a", "b"), (GOLD, GOLD))
    machines = [Machine(apps), Machine(apps)]
    for machine in machines:
        for second in range(60):
            machine.step(100.0, used=np.full(2, 0.1 if second < 30 else 0.2))
    before = machines[0].state.held_back
    assert before < 0.9
    machines[0].step(100.0, used=np.array([math.nan, 0.2]))
    machines[1].step(100.0, used=np.full(2, 0.2))
    assert machines[0].state.held_back <= before
    assert machines[0].state.interference.is_saturated
    assert machines[0].state.interference.slowdown[0] == pytest.approx(machines[1].state.interference.slowdown[0], 0.05)


def test_a_goal_below_what_one_record_takes_is_said_to_be_so() -> None:
    machine = Machine(capacity=0.05)
    for _ in range(5):
        decision = machine.step(30.0, used=30.0 * 0.5, throughput_rps=30.0, queue=100.0)
    (way,) = decision.gives_way
    assert way.work_s == pytest.approx(0.5)
    assert str(way).endswith("a record alone takes 500 ms of a core")


def test_what_waits_is_to_be_served_along_the_reference_and_not_at_once() -> None:
    """Equations of docs/latency.md, point 5, worked out by hand."""
    for late_s in (1.0, 5.0, 20.0):
        aim_s, queue = 0.8 * GOLD.goal_s, 5000.0
        asked = demanded(1000.0, queue=queue, late_s=late_s)
        reference_s = [aim_s + (late_s - aim_s) * math.exp(-k / 3.0) for k in (1, 2, 3)]
        does = [(queue + 1000.0 * k) / (k + 0.5 * reference_s[k - 1]) for k in (1, 2, 3)]
        assert asked == pytest.approx(WORK_S * max(does), rel=0.03)


def test_demand_rises_at_once_and_falls_by_a_factor_of_e_in_the_response_time() -> None:
    machine = Machine(capacity=100.0)
    for _ in range(20):
        machine.step(100.0)
    before = machine.step(100.0).demand[0]
    assert machine.step(4000.0).demand[0] > 10.0 * before
    for _ in range(10):
        found = [machine.step(4000.0).demand[0]]
    found += [machine.step(0.0, throughput_rps=0.0, used=0.0).demand[0] for _ in range(30)]
    falls = np.array(found[1:]) / np.array(found[:-1])
    assert falls.min() >= math.exp(-1.0 / 3.0) * (1.0 - 1e-9)
    assert found[-1] < 0.01 * found[0]


def test_arrivals_that_vary_more_than_by_chance_ask_for_more_room() -> None:
    rng = np.random.default_rng(0)
    even, uneven = demanded(10.0, 120), demanded(rng.choice([3.0, 17.0], 120), 120)
    assert uneven > 1.5 * even  # small loads with a tight goal: waits by chance decide, and nothing else


def test_loads_that_cannot_be_foreseen_ask_for_room_by_how_far_they_are_off() -> None:
    rng = np.random.default_rng(0)
    steady, moving = demanded(5000.0, 120), demanded(rng.choice([4000.0, 6000.0], 120), 120)
    assert moving > 1.25 * steady  # large loads: chance within a second hardly counts


TWO = applications(("g", "b"), (GOLD, BRONZE), 0.05)


def hanging(until: int, used: float = 0.02, done_rps: float = 0.0, resumed: int | None = None) -> list[Decision]:
    """Let the sink of gold hang from the 30th second on, beside bronze that could use all of two cores."""
    machine, limits, waits = Machine(TWO, 2.0), np.full(2, math.inf), np.zeros(2)
    rate, work = np.array([100.0, 150.0]), np.array([0.005, 0.01])
    decisions = []
    for second in range(until):
        does = np.minimum(limits, 2.0) / work
        is_hung = second >= 30 and (resumed is None or second < resumed)
        if is_hung:
            does[0] = done_rps
        done = np.minimum(waits + rate, does)
        waits = waits + rate - done
        spent = done * work
        if is_hung:
            spent[0] = used
        decisions.append(machine.step(rate, throughput_rps=done, queue=waits, used=spent, share=limits))
        limits = decisions[-1].limits
        if second >= 29:
            assert 0.0025 <= machine.state.work_s[0] <= 0.01  # what a record takes is not found out while none is done
    return decisions


@pytest.mark.parametrize("done_rps", [0.0, 0.001, 1.0])
def test_what_somebody_cannot_use_because_it_hangs_is_lent_to_others(done_rps: float) -> None:
    decisions = hanging(120, done_rps=done_rps)
    assert min(one.limits[1] for one in decisions[30:]) > 1.7
    assert min(one.shares[0] for one in decisions[40:]) > 1.8  # its own share stays its own


def test_what_a_record_takes_is_not_found_out_while_all_is_used_and_none_is_done() -> None:
    assert len(hanging(120, used=1.6)) == 120  # which looks at it every second


def test_what_others_lack_is_not_lent_to_somebody_who_hangs() -> None:
    apps = applications(("g", "h", "b"), (GOLD, GOLD, BRONZE), 0.05)
    machine = Machine(apps, 2.0)
    for _ in range(20):
        machine.step([400.0, 400.0, 900.0])
    told = {"throughput_rps": [0.0, 400.0, 500.0], "used": [0.01, 0.4, 0.5], "share": [1.0, 1.0, 0.5]}
    for second in range(1, 11):
        decision = machine.step([400.0, 400.0, 900.0], queue=[400.0 * second, 0.0, 400.0 * second], **told)
    assert decision.demand[0] > decision.shares[0] + 0.2  # its goal asks for more,
    assert decision.reach[0] == pytest.approx(decision.shares[0])  # in vain
    assert decision.reach[2] > 1.2


def test_whoever_comes_back_finds_its_share() -> None:
    decisions = hanging(110, resumed=100)
    assert decisions[99].limits[1] > 1.7
    assert decisions[101].limits[1] < 0.3
    assert decisions[109].limits[0] > 1.7


def test_whoever_waits_for_a_processor_is_not_taken_to_hang() -> None:
    lent = {}
    for run_delay in (0.0, 1.0):
        machine = Machine(TWO, 2.0)
        for _ in range(20):
            machine.step([1000.0, 10.0])
        told = {"throughput_rps": [100.0, 10.0], "used": [0.1, 0.01], "queue": [900.0, 0.0], "share": [1.5, 0.5]}
        decision = machine.step([1000.0, 10.0], run_delay=[run_delay, 0.0], **told)
        lent[run_delay] = decision.reach[1] - decision.shares[1]
    assert lent[0.0] > lent[1.0] + 0.5


def test_a_goal_that_asks_for_more_than_an_application_can_use_gives_way() -> None:
    machine = Machine(applications(("a",), (GOLD,), 0.0, 0.3))
    for _ in range(5):
        decision = machine.step(1000.0)
    assert (decision.shares[0], decision.limits[0], decision.demand[0]) == (0.3, 0.3, 0.3)
    (way,) = decision.gives_way
    assert (way.quality, way.worst) == ("gold", "a")
    assert way.lacking == pytest.approx(decision.asked[0] - 0.3)
    assert way.lacking > 0.7
    assert decision.reason("a").endswith(f"asks for {decision.asked[0]:.3g} cores; it can use 0.3 at most")


def test_somebody_who_is_lent_all_that_it_lacks_does_not_give_way() -> None:
    machine = Machine(applications(("g", "b"), (GOLD, BRONZE), 0.01), 1.2)
    for _ in range(30):
        decision = machine.step([30.0, 60.0], throughput_rps=[30.0, 60.0], used=[0.3, 0.6])
    assert decision.shares[1] < 0.6 < decision.demand[1] < decision.limits[1]  # its share is less than what comes takes
    assert decision.predicted_s[1] < BRONZE.goal_s
    assert decision.gives_way == ()
    assert "are lent to it" in decision.reason("b")


def test_only_lighter_classes_are_told_that_heavier_ones_come_first() -> None:
    machine = Machine(TWO, 1.0)
    for _ in range(5):
        decision = machine.step([3000.0, 3000.0])
    assert "the machine has no more for its class: " in decision.reason("g")
    assert "heavier classes come first: 0.05 are left" in decision.reason("b")


def test_who_lacks_something_is_lent_to_before_all_others() -> None:
    apps = applications(("g", "s", "b"), (GOLD, SILVER, BRONZE), 0.01)
    machine = Machine(apps, 2.6)
    for _ in range(30):
        decision = machine.step([30.0, 30.0, 200.0], throughput_rps=[30.0, 30.0, 200.0], used=[0.3, 0.3, 2.0])
    assert decision.reach[2] < decision.asked[2]
    assert decision.reach[:2] == pytest.approx(decision.shares[:2], rel=1e-9)
    assert decision.reach[2] > decision.shares[2] + 0.3


def test_shares_that_are_set_stay_until_it_is_known_what_records_take() -> None:
    apps = applications(("g", "s", "b"), (GOLD, SILVER, BRONZE), 0.05)
    set_before = {"g": 1.2, "s": 0.5, "b": 0.3}
    machine = Machine(apps, 2.0, shares=set_before)
    nothing_yet = {"throughput_rps": 0.0, "used": 0.0, "share": [1.2, 0.5, 0.3]}
    for _ in range(3):
        decision = machine.step([100.0, 100.0, 100.0], **nothing_yet)
        assert decision.share_of == pytest.approx(set_before)
    fresh = Machine(apps, 2.0).step([100.0, 100.0, 100.0], **nothing_yet)
    assert fresh.shares == pytest.approx([2.0 / 3.0] * 3)
    machine.apps = applications(("b", "x", "g"), (BRONZE, SILVER, GOLD), 0.05)  # others come and go
    decision = machine.step([100.0, 0.0, 100.0], throughput_rps=0.0, used=0.0, share=[0.3, 0.1, 1.2])
    assert decision.demand == pytest.approx([0.3, 0.05, 1.2])


def test_shares_that_are_set_stay_until_it_is_known_what_comes() -> None:
    apps = applications(("g", "b"), (GOLD, BRONZE), 0.05)
    machine = Machine(apps, 2.0, shares={"g": 1.2, "b": 0.3})
    for _ in range(3):
        decision = machine.step([math.nan, 100.0], throughput_rps=0.0, used=0.0, share=[1.2, 0.3])
        assert decision.share_of == pytest.approx({"g": 1.2, "b": 0.3}, rel=0.4)
        assert decision.demand == pytest.approx([1.2, 0.3])
    decision = machine.step([0.0, 100.0], throughput_rps=0.0, used=0.0, share=[1.2, 0.3])
    assert decision.demand[0] < 1.2, "now it is known that nothing comes"
