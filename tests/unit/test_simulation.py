"""What happens in a scenario: queues, failures, links, shares, schedules, and what is said of them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from headwater.model.pipeline import Stream
from headwater.model.scenario import Event, KillMachine, Machine, NewMachine, Samples, Scenario, Schedule, Simulated
from headwater.model.scenario_file import read_scenario
from headwater.model.sites import Link, Site, Sites
from headwater.model.workload import Sinusoid, Trace
from headwater.place import METHODS
from headwater.sim.chance import poisson
from headwater.sim.forecast import signals
from headwater.sim.plant import Plant
from headwater.sim.schedule import pack_methods
from headwater.sim.simulation import Simulation, simulate
from headwater.sim.steering import PlantSites, steer

ROOT = Path(__file__).parent.parent.parent


def example(name: str) -> Scenario:
    folder = ROOT / "examples/simulate"
    return read_scenario(
        (folder / name).read_bytes(), name, lambda other: (folder / other).read_bytes(), pack_methods(), METHODS
    )


def test_signals_are_paired_in_opposite_phase_and_queues_grow_and_drain_as_in_paper_004() -> None:
    simulation = Simulation(example("paper.yaml"))
    simulation.advance(50.0)
    assert simulation.moments[0].because.startswith("nothing is known of 2 of 2 yet")
    simulation.advance(300.0)
    together = simulation.moments[1].placement
    assert together is not None
    assert together["t0"] == together["t1"]
    final = simulation.moments[-1].placement
    assert final is not None
    assert final["t0"] == final["t1"] != final["t2"] == final["t3"]
    before = simulation.plant.waiting()
    assert before[:2].tolist() == [0.0, 0.0]
    assert before[2:] == pytest.approx([24_900.0, 24_900.0], rel=0.01)  # 100 s of 249 records
    simulation.advance(1_300.0)
    assert before[2:].sum() - simulation.plant.waiting()[2:].sum() == pytest.approx(2.0 * 1_000.0)  # 500 less 2 * 249
    simulation.advance(26_000.0)
    assert simulation.plant.waiting().tolist() == [0.0] * 4


def test_a_machine_that_dies_stops_its_operators_until_a_schedule_places_them_elsewhere() -> None:
    operators = (Simulated("o", Sinusoid(10.0), on=("a",)),)
    events = (Event(10.0, KillMachine("a")), Event(20.0, Schedule("balance")))
    machines = (Machine("a", 1.0, 100.0, 3.6), Machine("b", 1.0, 100.0, 7.2))
    simulation = Simulation(Scenario("dies", 40.0, machines, operators, events))
    simulation.advance(20.0)
    assert simulation.plant.waiting()[0] == pytest.approx(100.0)
    simulation.advance(40.0)
    result = simulation.result()
    assert result.operators[0].waiting == 0.0
    assert [one.used_s for one in result.machines] == [10.0, 20.0]
    assert [one.cost for one in result.machines] == pytest.approx([0.01, 0.04])


@pytest.mark.parametrize(("drops", "lost"), [(False, 0.0), (True, 50.0)])
def test_what_waits_on_a_dying_machine_is_kept_or_dropped_as_declared(drops: bool, lost: float) -> None:
    operators = (Simulated("o", Sinusoid(15.0), on=("a",)),)
    events = (Event(10.0, KillMachine("a", drops)), Event(10.0, NewMachine(Machine("a"))))
    result = simulate(Scenario("dies", 11.0, (Machine("a", 1.0, 10.0),), operators, events))
    assert result.operators[0].dropped == pytest.approx(lost)


def test_a_bounded_queue_drops_what_comes_above() -> None:
    operators = (Simulated("o", Sinusoid(15.0), queue=20.0, on=("a",)),)
    result = simulate(Scenario("full", 100.0, (Machine("a", 1.0, 10.0),), operators))
    assert (result.operators[0].waiting, result.operators[0].dropped) == pytest.approx((20.0, 500.0 - 20.0))


def line_of_two(latency_s: float, bandwidth_bps: float, lane: str | None = None) -> Scenario:
    sites = Sites((Site("a"), Site("b")), (Link("a", "b", latency_s, bandwidth_bps),))
    operators = (
        Simulated("writer", Sinusoid(10.0), work_s=0.01, size_bytes=1000.0, on=("a",), lane=lane),
        Simulated("reader", None, (Stream("writer", "reader"),), work_s=0.02, on=("b",), lane=lane),
    )
    return Scenario("line", 100.0, (Machine("a"), Machine("b")), operators, step_s=0.1, sites=sites)


def test_latency_is_processing_latency_of_the_link_transfer_and_hops() -> None:
    result = simulate(line_of_two(0.5, 1e6, "real-time"))
    # hop, writer, 8 000 bit at 1 Mbit/s, link, hop, reader
    assert result.totals.latency_s == pytest.approx(0.0014 + 0.01 + 0.008 + 0.5 + 0.0014 + 0.02)


def test_a_thin_link_holds_records_back() -> None:
    scenario = line_of_two(0.0, 40_000.0)  # 5 of 10 records a second
    simulation = Simulation(scenario)
    simulation.advance(100.0)
    result = simulation.result()
    assert result.operators[1].throughput_rps == pytest.approx(5.0, rel=0.02)
    assert simulation.plant.on_the_way()[0] == pytest.approx(500.0, rel=0.02)
    assert next(one for one in result.links if one.origin == "a").utilisation == pytest.approx(1.0, rel=0.01)


def test_a_pipeline_is_placed_by_the_coordinator_of_the_product() -> None:
    simulation = Simulation(example("fire.yaml"))
    simulation.advance(1.0)
    placed = simulation.moments[0].placement
    assert placed is not None
    assert len(placed) == 13
    simulation.advance(600.0)
    result = simulation.result()
    assert result.totals.waiting == pytest.approx(0.0, abs=1e-6)
    assert {one.text.split(":")[0] for one in result.moments if one.placement} == {
        "schedule by hlf", "schedule by anneal",
    }  # fmt: skip


def test_steering_moves_what_must_move_and_gives_up_what_a_dead_machine_held() -> None:
    machines = tuple(Machine(name) for name in "abc")
    operators = tuple(Simulated(f"o{i}", Sinusoid(0.1), on=(name,)) for i, name in enumerate("aab"))
    plant = Plant(Scenario("steer", 10.0, machines, operators), 0)
    plant.switch_machine("a", False)
    steps, failures = steer(plant, {"o0": "b", "o1": "c", "o2": "b"})
    assert failures == ()
    assert steps > 0
    assert PlantSites(plant).placement() == {"o0": "b", "o1": "c", "o2": "b"}
    assert steer(plant, {"o0": "b", "o1": "c", "o2": "b"}) == (0, ())
    assert "is down" in steer(plant, {"o0": "b", "o1": "c", "o2": "a"})[1][0]


def test_a_controller_reads_and_sets_through_ports() -> None:
    operators = (Simulated("o", Sinusoid(10.0), on=("a",)),)
    seen = []

    def control(now_s, meter, governor) -> None:
        reading = meter.read()["o"]
        seen.append((now_s, reading.arrivals_rps, reading.throughput_rps, reading.queue))
        governor.set({"o": 5.0 if now_s < 3.0 else math.inf})

    simulate(Scenario("control", 5.0, (Machine("a", 1.0, 100.0),), operators), control=control)
    expected = [(1.0, 10.0, 10.0, 0.0), (2.0, 10.0, 5.0, 5.0), (3.0, 10.0, 5.0, 10.0), (4.0, 10.0, 20.0, 0.0),
                (5.0, 10.0, 10.0, 0.0)]  # fmt: skip
    np.testing.assert_allclose(seen, expected)


def test_a_trace_repeats_and_keys_go_to_their_instances() -> None:
    operators = (Simulated("o", Samples((10.0, 30.0), 5.0), weights=(0.75, 0.25), on=("a",)),)
    simulation = Simulation(Scenario("trace", 20.0, (Machine("a", 1.0, 100.0),), operators))
    simulation.advance(20.0)
    assert simulation.plant.counts.came.tolist() == [pytest.approx(300.0), pytest.approx(100.0)]


def test_what_came_is_recognised_for_what_it_is() -> None:
    times = np.arange(120)
    rng = np.random.default_rng(1)
    columns = [
        100.0 + 30.0 * np.sin(2 * np.pi * times / 40.0 + 1.0),
        np.full(120, 7.0),
        np.where(times % 20 < 3, 90.0, 10.0),
        rng.poisson(50.0, 120).astype(float),
        np.zeros(120),
    ]
    wave, steady, peaks, chance, nothing = signals(np.column_stack(columns), np.zeros(5, np.int64))
    assert isinstance(wave, Sinusoid)
    assert (wave.baseline, wave.amplitude, wave.period) == pytest.approx((100.0, 30.0, 40.0), rel=1e-3)
    assert wave.at(0.0) == pytest.approx(columns[0][0], rel=0.01)  # 120 samples are three periods
    assert steady == Sinusoid(7.0)
    assert isinstance(peaks, Trace)
    assert len(peaks.loads) == 20
    assert isinstance(chance, Sinusoid)
    assert chance.amplitude < 10.0
    assert nothing is None


@pytest.mark.parametrize("mean", [0.3, 4.0, 9.9, 10.1, 80.0, 5000.0])
def test_draws_have_the_mean_and_variance_of_poisson(mean: float) -> None:
    drawn = np.array([poisson(mean, np.uint64(3), who, 5, 0) for who in range(20_000)])
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert drawn.var() == pytest.approx(mean, rel=0.05)
    assert (drawn == np.floor(drawn)).all()
