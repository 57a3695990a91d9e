"""Does the simulator keep the laws of load: conservation, shares, Little, queues in closed form, one seed one trace?"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.scenario import Machine, Scenario, Simulated
from headwater.model.workload import Sinusoid
from headwater.sim.result import Simulated as Outcome
from headwater.sim.simulation import Simulation, simulate
from tests.simulated import Plain, random_scenario
from tests.strategies import Drawn

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"


def everything(draw, **what: bool) -> Scenario:
    return random_scenario(Drawn(draw), **what)


def trace(outcome: Outcome) -> bytes:
    """Return all figures and series, byte for byte."""
    assert outcome.series is not None
    series = [
        getattr(outcome.series, name).tobytes()
        for name in ("arrivals_rps", "throughput_rps", "queue_mean", "queue_max", "wait_s", "utilisation", "overload")
    ]
    figures = repr((outcome.totals, outcome.operators, outcome.machines, outcome.links, outcome.moments))
    return figures.encode() + b"".join(series)


@given(st.data())
def test_records_are_conserved_at_every_operator_in_every_step(data) -> None:
    what = {name: data.draw(st.booleans()) for name in ("has_sites", "has_chance", "has_schedules")}
    scenario = everything(data.draw, **what)
    simulation = Simulation(scenario)
    plant = simulation.plant
    count = len(plant.cast.operator_of)
    for step in range(1, scenario.steps + 1):
        simulation.advance(step * scenario.step_s)
        counts, waiting = plant.counts, plant.waiting()[:count]
        came, gone = counts.came[:count], counts.done[:count] + counts.lost[:count]
        np.testing.assert_allclose(came, gone + waiting, rtol=1e-9, atol=1e-6)
        assert (waiting >= 0.0).all()
        assert (plant.on_the_way() >= 0.0).all()


@given(st.data())
def test_what_is_sent_arrives_or_is_on_the_way(data) -> None:
    scenario = everything(data.draw, has_events=False, has_sites=data.draw(st.booleans()))
    simulation = Simulation(scenario)
    plant = simulation.plant
    for step in range(1, scenario.steps + 1, 7):
        simulation.advance(step * scenario.step_s)
        sent = np.zeros(len(plant.cast.operator_of))
        for stream, way in zip(plant.cast.streams, plant.on_the_way(), strict=True):
            alpha = plant.cast.operators[plant.cast.operator_of[stream.writer]].rate_factor
            sent[stream.reader] += plant.counts.done[stream.writer] * alpha * stream.part - way
        inner = [i for i, number in enumerate(plant.cast.operator_of) if plant.cast.operators[number].load is None]
        np.testing.assert_allclose(plant.counts.came[inner], sent[inner], rtol=1e-9, atol=1e-6)


@given(st.data())
def test_the_kernel_agrees_with_the_equations_done_plainly(data) -> None:
    scenario = everything(data.draw)
    simulation, plain = Simulation(scenario), Plain(scenario)
    names = simulation.plant.cast.instances
    for step in range(1, scenario.steps + 1):
        plain.advance()
        if step == scenario.steps:
            break  # what happens at the very end has not happened in the plain one
        simulation.advance(step * scenario.step_s)
        if any(scenario.step_at(event.at_s) == step for event in scenario.events):
            continue  # it has happened in one of the two only
        waiting = simulation.plant.waiting()
        for i, name in enumerate(names):
            one = plain.instances[name]
            seen = [simulation.plant.counts.came[i], simulation.plant.counts.done[i], simulation.plant.counts.lost[i]]
            np.testing.assert_allclose(
                [*seen, waiting[i]], [one.came, one.done, one.lost, sum(one.queues.values())], rtol=1e-7, atol=1e-5
            )


@given(st.data())
def test_no_machine_gives_more_than_it_has_and_no_operator_gets_more_than_its_share(data) -> None:
    scenario = everything(data.draw, has_schedules=True)
    simulation = Simulation(scenario)
    plant = simulation.plant
    before = plant.counts.done.copy()
    count = len(plant.cast.operator_of)
    for step in range(1, scenario.steps + 1):
        standing, is_up = plant.machine.copy(), plant.knobs.is_up.copy()
        simulation.advance(step * scenario.step_s)
        work = (plant.counts.done[:count] - before[:count]) * plant.knobs.work[:count]
        before = plant.counts.done.copy()
        assert (work <= plant.knobs.cap[:count] * scenario.step_s * (1.0 + 1e-9) + 1e-9).all()
        if any(scenario.step_at(event.at_s) in (step - 1, step) for event in scenario.events):
            continue  # who stood where is not known from outside
        for m, machine in enumerate(plant.cast.machines):
            given_out = work[standing == m].sum()
            assert given_out <= machine.capacity * scenario.step_s * (1.0 + 1e-9) * is_up[m] + 1e-9


@given(st.data())
def test_the_same_seed_gives_the_same_trace_wherever_the_run_is_cut(data) -> None:
    what = {name: data.draw(st.booleans()) for name in ("has_sites", "has_chance", "has_schedules")}
    scenario = everything(data.draw, **what)
    whole = trace(simulate(scenario))
    assert trace(simulate(scenario)) == whole
    simulation = Simulation(scenario)
    end_s = scenario.steps * scenario.step_s
    for cut_s in sorted(data.draw(st.lists(st.floats(0.0, end_s), max_size=6))):
        simulation.advance(max(cut_s, simulation.now_s))
    simulation.advance(end_s)
    assert trace(simulation.result()) == whole


def test_long_runs_are_the_same_however_they_are_cut() -> None:
    operators = tuple(
        Simulated(f"o{i}", Sinusoid(50.0, 40.0, 37.7 + i, i), is_poisson=i % 2 == 0, on=("m",)) for i in range(4)
    )
    scenario = Scenario("long", 3000.0, (Machine("m", 1.0, 190.0),), operators, seed=5)
    whole = trace(simulate(scenario))
    simulation = Simulation(scenario)
    for cut_s in (1.0, 255.0, 256.0, 511.0, 700.0, 1025.0, 2999.0, 3000.0):
        simulation.advance(cut_s)
    assert trace(simulation.result()) == whole


def test_another_seed_gives_another_trace_where_there_is_chance() -> None:
    scenario = Scenario(
        "chance", 50.0, (Machine("m", 1.0, 99.0),), (Simulated("o", Sinusoid(50.0), is_poisson=True, on=("m",)),)
    )
    assert trace(simulate(scenario, seed=1)) != trace(simulate(scenario, seed=2))


@given(st.integers(1, 6), st.floats(0.3, 0.95), st.sampled_from([7.0, 40.0, 120.0]))
def test_littles_law_holds_between_queue_throughput_and_the_time_that_records_spent(count, full, period_s) -> None:
    operators = tuple(Simulated(f"o{i}", Sinusoid(90.0, 80.0, period_s, 0.3 * i), on=("m",)) for i in range(count))
    machine = Machine("m", 1.0, 90.0 * count / full)
    outcome = simulate(Scenario("little", 2000.0, (machine,), operators, step_s=0.5))
    service_s = 1.0 / machine.speed
    for one in outcome.operators:
        assert one.latency_s is not None
        assert one.wait_s is not None
        # within a step records are taken to come and go evenly: 5 % of a step is what that leaves open
        assert one.latency_s - service_s == pytest.approx(one.wait_s, rel=0.02, abs=0.05 * 0.5)


QUEUES = 400  # side by side, so that few steps make many samples
STEP_S, WARM_S = 0.04, 300.0
END_S = 4000.0 if LONG else 1500.0


def mean_wait(rho: float, *, is_exponential: bool) -> float:
    """Return how long records wait in queues with a server of rate 1 each, when they come by chance at rate rho."""
    machines = tuple(Machine(f"m{i}") for i in range(QUEUES))
    operators = tuple(
        Simulated(f"o{i}", Sinusoid(rho), is_poisson=True, is_exponential=is_exponential, on=(f"m{i}",))
        for i in range(QUEUES)
    )
    simulation = Simulation(Scenario("queue", END_S, machines, operators, step_s=STEP_S), seed=11)
    waited = done = 0.0
    for at_s, sign in ((WARM_S, -1.0), (END_S, 1.0)):  # the queues are empty at first: that does not count
        simulation.advance(at_s)
        for one in simulation.result().operators:
            waited += sign * one.queue_mean * simulation.now_s
            done += sign * one.done
    return waited / done


@pytest.mark.parametrize("rho", [0.5, 0.7, 0.8])
def test_records_wait_as_long_as_in_the_closed_form_of_m_m_1(rho: float) -> None:
    # time in the system: waiting and being served
    assert mean_wait(rho, is_exponential=True) == pytest.approx(1.0 / (1.0 - rho), rel=0.05)


@pytest.mark.parametrize("rho", [0.5, 0.7, 0.8])
def test_records_wait_as_long_as_in_the_closed_form_of_m_d_1(rho: float) -> None:
    # a record leaves bit by bit while it is served: on average half a service time before its end
    assert mean_wait(rho, is_exponential=False) - 0.5 == pytest.approx(rho / (2.0 * (1.0 - rho)), rel=0.05)
