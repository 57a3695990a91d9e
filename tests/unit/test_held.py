"""Are figures of held goals what a queue that can be worked out by hand gives?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headwater.model.scenario import Event, KillMachine, Machine, NewMachine, Scenario, Simulated
from headwater.model.workload import Sinusoid
from headwater.serve.hold_wire import keeps, kept
from headwater.sim.classes import Watch, spans
from headwater.sim.held import hold
from headwater.sim.simulation import Simulation

# A machine that does 100 records a second gets 200: what is done at t came at t / 2, so it is t / 2 old.
FULL = Simulated("full", Sinusoid(200.0), work_s=0.01, quality="gold", goal_s=1.0, on=("m",))
IDLE = Simulated("idle", Sinusoid(10.0), work_s=0.01, on=("n",))


def scenario(seconds: float) -> Scenario:
    return Scenario("queue", seconds, (Machine("m"), Machine("n")), (FULL, IDLE), step_s=0.01)


def test_percentiles_and_violations_are_those_of_a_queue_that_grows() -> None:
    held = hold(scenario(10.0), "equal")
    gold, bronze = held.classes
    assert (gold.name, gold.goal_s, bronze.name, bronze.goal_s) == ("gold", 1.0, "bronze", 0.8)
    assert gold.done == pytest.approx(1000.0, rel=0.01)
    assert gold.waiting == pytest.approx(1000.0, rel=0.01)
    assert gold.p50_s == pytest.approx(2.5, rel=0.05)
    assert gold.p99_s == pytest.approx(4.95, rel=0.05)
    # Of 1 000 done, 800 were later than 1 s; of 1 000 that wait, those that came in the last second are not yet.
    assert gold.overdue == pytest.approx(800.0, rel=0.02)
    assert gold.violations == pytest.approx(1600.0 / 1800.0, abs=0.01)
    assert gold.used == pytest.approx(0.5, rel=0.01)
    assert bronze.used == pytest.approx(0.05, rel=0.02)
    assert (bronze.violations, bronze.worst, bronze.worst_s) == (0.0, 0.0, None)
    assert held.applications[0].p99_s == gold.p99_s
    assert held.course.queue[:, 0] == pytest.approx(100.0 * np.arange(1, 11), rel=0.03)


def test_the_worst_window_is_the_last_ten_seconds_of_a_queue_that_grows() -> None:
    held = hold(scenario(14.0), "equal")
    assert held.classes[0].violations == pytest.approx(2400.0 / 2600.0, abs=0.01)
    assert held.classes[0].worst == pytest.approx(1.0, abs=0.01)
    assert held.classes[0].worst_s in {12.0, 13.0, 14.0}


def test_a_span_is_only_about_what_was_done_in_it() -> None:
    simulation = Simulation(scenario(10.0))
    watch = Watch(simulation.plant, [0, 1], [1.0, 0.8])
    looks = []
    for at_s in (4.0, 6.0):
        simulation.advance(at_s)
        looks.append(watch.look())
    gold, bronze = spans(watch, *looks)
    assert gold.seconds == pytest.approx(2.0)
    assert gold.done == pytest.approx(200.0, rel=0.01)
    assert gold.p50_s == pytest.approx(2.5, rel=0.05)
    assert gold.violations == pytest.approx(1.0)
    assert bronze.violations == 0.0


def test_who_lacks_something_gives_way_until_the_end() -> None:
    one = scenario(10.0)
    lighter = replace(FULL, name="lighter", quality="silver")
    held = hold(replace(one, operators=(*one.operators, lighter)), "predictive")
    (way,) = (way for way in held.gave_way if way.quality == "silver")
    assert (way.machine, way.end_s) == ("m", 10.0)
    assert way.begin_s <= 2.0
    assert way.because.startswith("'lighter' gives way: ")
    assert way.lacking > 0.5


def out(begin_s: float, end_s: float | None, seconds: float = 24.0) -> Scenario:
    """Return two machines, of which one dies for a while."""
    light = replace(FULL, load=Sinusoid(50.0), goal_s=0.3)
    events: list[Event] = [Event(begin_s, KillMachine("n"))]
    if end_s is not None:
        events.append(Event(end_s, NewMachine(Machine("n"))))
    operators = (light, replace(light, name="other", on=("n",)))
    return Scenario("out", seconds, (Machine("m"), Machine("n")), operators, tuple(events), step_s=0.01)


def test_whoever_gets_nothing_keeps_no_goal_and_is_late() -> None:
    held = hold(out(0.0, None), "predictive")
    first, other = held.applications
    assert (keeps(first), keeps(other), kept(held, "gold")) == (True, False, 1)
    assert (other.p99_s, other.done) == (None, 0.0)
    assert other.waiting == pytest.approx(1200.0, rel=0.01)
    assert other.overdue == pytest.approx(1200.0 - 0.3 * 50.0, rel=0.01)
    assert (other.violations, other.worst) == (1.0, 1.0)
    assert held.classes[0].violations == pytest.approx(0.5, abs=0.01)


def test_what_stands_still_in_a_queue_that_drops_the_rest_is_late_and_gives_way() -> None:
    one = out(10.0, None)
    held = hold(replace(one, operators=tuple(replace(each, queue=50.0) for each in one.operators)), "predictive")
    gold = held.classes[0]
    assert gold.overdue == pytest.approx(50.0)
    assert gold.dropped > 500.0
    assert [keeps(one) for one in held.applications] == [True, False]
    assert any("the machine is out" in way.because for way in held.gave_way)


def test_whoever_was_fast_and_then_gets_nothing_keeps_no_goal_either() -> None:
    held = hold(out(23.0, None), "predictive")
    other = held.applications[1]
    assert other.p99_s is not None
    assert other.p99_s <= other.goal_s
    assert other.overdue == pytest.approx(35.0, abs=2.0)
    assert not keeps(other)


def test_goals_at_a_machine_that_is_out_give_way_and_it_is_said() -> None:
    held = hold(out(5.5, 15.5), "predictive")
    (way,) = (one for one in held.gave_way if "the machine is out" in one.because)
    assert (way.machine, way.quality, way.begin_s, way.end_s) == ("n", "gold", 6.0, 16.0)
    assert way.because.startswith("'other' stands still: the machine is out, and ")
    assert way.lacking == pytest.approx(0.5, rel=0.05)  # 50 records of 10 ms come in a second
    assert all(one.machine == "n" for one in held.gave_way)


def test_what_is_used_does_not_depend_on_how_often_it_is_decided() -> None:
    """Machines count for as long as they run, whenever in an interval they die."""
    found = [hold(out(5.5, 15.5), "equal", every_s=every_s) for every_s in (0.5, 1.0, 4.0)]
    assert [one.classes[0].used for one in found] == pytest.approx([(12.0 + 11.25) / 38.0] * 3, rel=0.01)
    for one in found:
        course = one.course
        at = int(np.searchsorted(course.times_s, 5.5))
        assert 0.0 <= course.used[at, 0] <= 1.0
    coarse = found[2].course.used[1, 0]  # from 4 to 8 s: two machines for 1.5 s, one for 2.5 s
    assert coarse == pytest.approx((2 * 0.5 * 1.5 + 0.5 * 2.5) / 5.5, rel=0.02)


def test_the_worst_window_is_at_least_an_interval_and_as_long_as_is_said() -> None:
    for every_s, window_s in ((1.0, 10.0), (3.0, 9.0), (15.0, 15.0)):
        assert hold(scenario(40.0), "equal", every_s=every_s).window_s == window_s
