"""Do queues wait as long as the closed forms and the simulator say?"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from headwater.control.queueing import busy, least_rate, mean_wait, wait_percentile
from headwater.model.scenario import Machine, Scenario, Simulated
from headwater.model.workload import Sinusoid
from headwater.sim.result import percentile
from headwater.sim.simulation import Simulation

EACH_RPS = 40.0
LOADS = np.array([0.05, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99])
EACH = np.full(len(LOADS), EACH_RPS)


def erlang(servers: int, load: float) -> float:
    """Return the probability that all servers are busy, by Erlang's recursion."""
    refused = 1.0
    for n in range(1, servers + 1):
        refused = load * refused / (n + load * refused)
    return refused / (1.0 - load / servers * (1.0 - refused))


def even_work_percentile(rho: float, part: float) -> float:
    """Return the percentile of the wait in M/D/1 with one record a second: Cramer and Lundberg's exponential tail."""
    theta = float(brentq(lambda x: rho * math.expm1(x) - x, 1e-6, 50.0))
    return math.log((1.0 - rho) / (rho * math.exp(theta) - 1.0) / (1.0 - part)) / theta


def test_one_server_with_random_arrivals_and_work_waits_exactly_as_m_m_1() -> None:
    assert mean_wait(LOADS * EACH_RPS, EACH) == pytest.approx(LOADS / (1.0 - LOADS) / EACH_RPS, rel=1e-12)
    assert busy(LOADS) == pytest.approx(LOADS, rel=1e-12)


@pytest.mark.parametrize("part", [0.9, 0.95, 0.99, 0.999])
def test_the_percentile_of_m_m_1_is_exact(part: float) -> None:
    exact_s = np.maximum(np.log(LOADS / (1.0 - part)), 0.0) / (EACH_RPS * (1.0 - LOADS))
    assert wait_percentile(LOADS * EACH_RPS, EACH, part) == pytest.approx(exact_s, rel=1e-9)


@pytest.mark.parametrize(("part", "off"), [(0.9, 0.0101), (0.95, 0.0101), (0.99, 0.0101), (0.999, 0.025)])
def test_the_percentile_of_nearly_random_work_is_right_to_1_per_cent_and_further_out_to_a_little_more(
    part: float, off: float
) -> None:
    full = LOADS[5.0 * (1.0 - part) <= LOADS]  # of so few that wait at all, who waits long is not of interest
    exact_s = np.log(full / (1.0 - part)) / (EACH_RPS * (1.0 - full))
    found_s = wait_percentile(full * EACH_RPS, np.full(len(full), EACH_RPS), part, cs2=1.0 + 1e-9)
    assert found_s == pytest.approx(exact_s, rel=off)


def test_nobody_waits_where_fewer_than_the_percentile_find_the_server_busy() -> None:
    assert wait_percentile(np.array([0.0, 0.2, 0.39]), EACH[:3]).tolist() == [0.0, 0.0, 0.0]


def test_even_work_waits_exactly_as_m_d_1_in_the_mean() -> None:
    exact_s = LOADS / (2.0 * (1.0 - LOADS)) / EACH_RPS
    assert mean_wait(LOADS * EACH_RPS, EACH, variability=0.5) == pytest.approx(exact_s, rel=1e-12)


@pytest.mark.parametrize("rho", [0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("part", [0.95, 0.99, 0.999])
def test_the_percentile_of_even_work_is_within_5_per_cent_of_the_tail_of_m_d_1(rho: float, part: float) -> None:
    found_s = wait_percentile(np.array([rho]), np.ones(1), part, ca2=1.0, cs2=0.0)
    assert found_s[0] == pytest.approx(even_work_percentile(rho, part), rel=0.05)


@pytest.mark.parametrize("servers", [2, 4, 8])
@pytest.mark.parametrize("rho", [0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
def test_several_servers_wait_as_erlang_says(servers: int, rho: float) -> None:
    rate, each = np.array([rho * servers * EACH_RPS]), np.array([EACH_RPS])
    waits = erlang(servers, servers * rho)
    assert busy(np.array([rho]), float(servers))[0] == pytest.approx(waits, rel=0.05)
    mean_s = waits / (servers * EACH_RPS * (1.0 - rho))
    assert mean_wait(rate, each, servers=float(servers))[0] == pytest.approx(mean_s, rel=0.05)
    late_s = max(0.0, math.log(waits / 0.01)) / (servers * EACH_RPS * (1.0 - rho))
    assert wait_percentile(rate, each, servers=float(servers))[0] == pytest.approx(late_s, rel=0.05)


def test_parts_of_a_server_lie_between_whole_ones() -> None:
    servers = np.array([1.0, 1.5, 2.0, 2.5, 3.0, 8.0, 8.5, 9.0])
    waits = busy(np.full(len(servers), 0.7), servers)
    assert (np.diff(waits) < 0.0).all()
    assert waits[[0, 2, 4, 5, 7]] == pytest.approx([erlang(n, 0.7 * n) for n in (1, 2, 3, 8, 9)], rel=1e-9)


def drawn(count: int = 20_000) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(5)
    rate, within = 10.0 ** rng.uniform(-3.0, 4.5, count), 10.0 ** rng.uniform(-3.0, 1.5, count)
    rate[:100] = 0.0
    return rate, within, rng.uniform(0.1, 16.0, count), rng.uniform(0.0, 4.0, count)


@pytest.mark.parametrize("part", [0.9, 0.99])
def test_the_least_rate_is_the_inverse_of_the_percentile_to_1_per_cent(part: float) -> None:
    rate, within, ca2, cs2 = drawn()
    does = least_rate(rate, within, part, ca2, cs2)

    def late_s(rps: np.ndarray) -> np.ndarray:
        return np.asarray(wait_percentile(rate, rps, part, ca2, cs2) + 1.0 / rps)

    assert (late_s(1.01 * does) <= within).all()
    assert (late_s(0.99 * does) >= within).all()


def test_the_least_rate_of_random_arrivals_and_work_gives_back_the_time_itself() -> None:
    rate, within, _, _ = drawn()
    does = least_rate(rate, within)
    assert wait_percentile(rate, does) + 1.0 / does == pytest.approx(within, rel=1e-6)


@pytest.mark.parametrize("load", [1.0, 1.0 + 1e-12, 1.5, 1e9])
def test_waits_are_infinite_from_full_load_on(load: float) -> None:
    rate, each = np.array([load * EACH_RPS]), np.array([EACH_RPS])
    for servers in (1.0, 4.0):
        assert mean_wait(rate * servers, each, servers=servers)[0] == math.inf
        assert wait_percentile(rate * servers, each, servers=servers)[0] == math.inf
    assert mean_wait(rate, np.zeros(1))[0] == math.inf
    assert wait_percentile(rate, np.zeros(1))[0] == math.inf


def test_what_waits_already_adds_the_time_that_it_takes() -> None:
    rate, each = np.full(3, 20.0), np.full(3, EACH_RPS)
    backlog = np.array([0.0, 1.0, 500.0])
    for servers in (1.0, 3.0):
        more = mean_wait(rate, each, servers=servers, backlog=backlog) - mean_wait(rate, each, servers=servers)
        assert more == pytest.approx(backlog / (EACH_RPS * servers), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("cs2", [0.0, 0.3, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("servers", [1.0, 2.0, 8.0])
def test_more_that_comes_in_never_waits_less_and_a_faster_server_never_longer(cs2: float, servers: float) -> None:
    rho = np.linspace(0.0, 1.1, 5000)
    ones = np.full(len(rho), 1.0)

    def is_rising(found: np.ndarray) -> bool:
        return bool((found[1:] >= found[:-1] * (1.0 - 1e-12)).all())

    for ca2 in (0.1, 1.0, 16.0):
        assert is_rising(wait_percentile(rho * servers, ones, 0.99, ca2, cs2, servers))
        assert is_rising(wait_percentile(ones * servers, 1.0 / np.maximum(rho, 1e-9), 0.99, ca2, cs2, servers))
        assert is_rising(mean_wait(rho * servers, ones, 0.5 * (ca2 + cs2), servers))
        assert is_rising(mean_wait(ones * servers, 1.0 / np.maximum(rho, 1e-9), 0.5 * (ca2 + cs2), servers))
    within = np.full(len(rho), 0.3)
    assert is_rising(least_rate(100.0 * rho, within, cs2=cs2))
    assert is_rising(least_rate(100.0 * ones, 1.0 / np.linspace(1.0, 100.0, len(rho)), cs2=cs2))


QUEUES = 400  # side by side, so that few steps make many samples
STEP_S, WARM_S, END_S = 0.04, 250.0, 1100.0


@pytest.mark.parametrize("is_exponential", [True, False])
@pytest.mark.parametrize("rho", [0.5, 0.7, 0.8, 0.9])
def test_queues_of_the_simulator_are_as_late_as_the_model_says(rho: float, is_exponential: bool) -> None:
    machines = tuple(Machine(f"m{i}") for i in range(QUEUES))
    operators = tuple(
        Simulated(f"o{i}", Sinusoid(rho), is_poisson=True, is_exponential=is_exponential, on=(f"m{i}",))
        for i in range(QUEUES)
    )
    simulation = Simulation(Scenario("queue", END_S, machines, operators, step_s=STEP_S), seed=11)
    plant, snaps = simulation.plant, []
    for at_s in (WARM_S, END_S):  # the queues are empty at first: that does not count
        simulation.advance(at_s)
        plant.settle()
        snaps.append(
            (plant.detail.delays[:QUEUES].sum(axis=0), plant.counts.spent[:QUEUES].sum(), plant.counts.done.sum())
        )
    (bins, spent, done), (bins_after, spent_after, done_after) = snaps
    late_s = percentile(bins_after - bins, 0.99)
    assert late_s is not None
    # A record leaves bit by bit while it is served, and each bit counts a whole service: half of one too much.
    own_s = 1.0 if is_exponential else 1.5
    rate, each, cs2 = np.array([rho]), np.ones(1), float(is_exponential)
    assert (spent_after - spent) / (done_after - done) - own_s == pytest.approx(
        mean_wait(rate, each, 0.5 * (1.0 + cs2))[0], rel=0.15
    )
    assert late_s - own_s == pytest.approx(wait_percentile(rate, each, cs2=cs2)[0], rel=0.15)
