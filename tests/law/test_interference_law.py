"""Is a machine whose applications slow each other down held back as far as that helps, and no further, and calmly?

No counters of memory traffic: the controller sees nothing but that records cost more. `Machine` is such a machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from headwater.control import mpc
from headwater.control.decision import applications
from headwater.control.readings import COLUMNS, Readings
from headwater.model.quality import QUALITIES

Floats = npt.NDArray[np.float64]

CORES, CALM_S, WORK_S = 8.0, 60, 0.001
NAMES = tuple("abc")
QUIET_RPS = (300.0, 300.0, 300.0)
RATES_RPS = [(1500, 1500, 3000), (2500, 2500, 2500), (1000, 1000, 12_000)]


def thrashing(steep: float, begins: float = 0.75) -> Callable[[int, Floats], Floats]:
    """Records of all cost more, the further the use of the machine is above a part of it."""
    return lambda _, use: np.full(len(use), 1.0 + steep * max(0.0, float(use.sum()) / CORES - begins))


@dataclass
class Machine:
    """Three applications, one of each class, on a machine that slows them down."""

    rates_rps: Callable[[int], Sequence[float]]
    slowed: Callable[[int, Floats], Floats]  # by what factor a record costs more, by the second and what each one uses
    silent: Callable[[int], Collection[str]] = lambda _: ()  # who says nothing in a second
    order: Callable[[int], Sequence[str]] = lambda _: NAMES
    chance: np.random.Generator | None = None
    handed_out: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)  # cores' worth of records, at the cost of calm

    def run(self, seconds: int) -> tuple[Floats, Floats]:
        """Return what was handed out and what was done in each of the last two minutes' seconds."""
        apps = applications(NAMES, tuple(QUALITIES.values()), 0.05 * CORES / 3)
        state, queue, use = mpc.begin(apps), np.zeros(3), np.zeros(3)
        limit = np.full(3, math.inf)
        for second in range(seconds):
            rate = np.asarray(self.rates_rps(second) if second >= CALM_S else QUIET_RPS, np.float64)
            if self.chance is not None:
                rate = self.chance.poisson(rate).astype(np.float64)
            for _ in range(15):  # what a record costs and what is used follow each other
                work_s = WORK_S * self.slowed(second, use)
                used = np.minimum((queue + rate) * work_s, limit)
                used *= min(1.0, CORES / used.sum())
                use = 0.5 * use + 0.5 * used
            done = used / work_s
            queue = np.maximum(0.0, queue + rate - done)
            held = np.where(used >= 0.999 * limit, 0.3, 0.0)
            columns = {key: np.zeros(3) for key in COLUMNS} | {
                "arrivals_rps": rate, "throughput_rps": done, "queue": queue, "used": used, "share": limit,
                "run_delay": held, "throttled": held, "latency_s": queue / np.maximum(done, 1e-9),
                "late_s": np.full(3, math.nan),
            }  # fmt: skip
            told = [i for i in range(3) if NAMES[i] not in self.silent(second)]
            readings = Readings(
                tuple(NAMES[i] for i in told), 1.0, {key: column[told] for key, column in columns.items()}
            )
            order = self.order(second)
            of = [NAMES.index(name) for name in order]
            now = apps if order == NAMES else applications(tuple(order), tuple(list(QUALITIES.values())[i] for i in of),
                                                           0.05 * CORES / 3)  # fmt: skip
            state, decision = mpc.step(state, float(second), readings, now, CORES, mpc.Settings())
            limit = np.empty(3)
            limit[of] = decision.alone
            self.handed_out.append(float(decision.shares.sum()))
            self.done.append(float(done.sum()) * WORK_S)
        return np.array(self.handed_out[-120:]), np.array(self.done[-120:])


def is_calm(last: Floats) -> bool:
    """Return whether what is handed out stands as good as still."""
    return bool(np.ptp(last) <= 0.06 * last.mean())


SETTLING = [*itertools.product((3.0, 6.0), RATES_RPS), (8.0, RATES_RPS[1])]


@pytest.mark.parametrize(("steep", "rates_rps"), SETTLING)
def test_applications_that_slow_each_other_down_settle_at_constant_load(
    steep: float, rates_rps: tuple[int, ...]
) -> None:
    """A record costs more above three quarters of the machine: what is held back must not swing for ever."""
    handed_out, _ = Machine(lambda _: rates_rps, thrashing(steep)).run(1000)
    assert is_calm(handed_out)
    assert handed_out.mean() < 0.95 * CORES, "less is handed out than there is"


@pytest.mark.parametrize("rates_rps", RATES_RPS[:2])
def test_where_holding_back_helps_chance_does_not_end_it(rates_rps: tuple[int, ...]) -> None:
    _, done = Machine(lambda _: rates_rps, thrashing(6.0), chance=np.random.default_rng(1)).run(1200)
    assert done.mean() >= 4.4, "4.7 with everything held back that can be, 3.6 with nothing"


@pytest.mark.parametrize("rates_rps", RATES_RPS)
def test_a_machine_that_does_more_the_more_of_it_is_used_is_hardly_held_back(rates_rps: tuple[int, ...]) -> None:
    """Two threads of a core: records cost up to 1.4 times as much, and yet more of them are done."""
    handed_out, _ = Machine(lambda _: rates_rps, thrashing(0.8, 0.5)).run(1000)
    assert is_calm(handed_out)
    assert handed_out.mean() > 0.85 * CORES


def in_turn(second: int) -> Sequence[str]:
    return NAMES if second % 10 else tuple(reversed(NAMES))


def test_another_order_makes_nobody_forget_what_was_done_at_most() -> None:
    handed_out, _ = Machine(lambda _: RATES_RPS[1], thrashing(0.8, 0.5), order=in_turn).run(1000)
    assert handed_out.mean() > 0.85 * CORES


def test_a_gap_makes_nobody_forget_what_was_done_at_most() -> None:
    machine = Machine(lambda _: RATES_RPS[1], thrashing(0.8, 0.5), lambda second: () if second % 10 else NAMES[2:])
    handed_out, _ = machine.run(1000)
    assert handed_out.mean() > 0.85 * CORES


@pytest.mark.parametrize("silent", [lambda s: NAMES[:1] if s % 3 == 0 else (), lambda s: NAMES[1:] if s % 2 else ()])
def test_who_says_nothing_for_a_moment_ends_no_holding_back(silent: Callable[[int], Collection[str]]) -> None:
    _, done = Machine(lambda _: RATES_RPS[1], thrashing(6.0), silent).run(1000)
    assert done.mean() >= 4.4, "4.8 with everything held back that can be, 3.4 with nothing"


def test_what_one_mix_did_at_most_says_nothing_of_another() -> None:
    """One that needs processor alone has most of it by day; at night two are left that wait for memory."""

    def rates_rps(second: int) -> Sequence[float]:
        return (7200, 200, 200) if second < 300 else (300, 4000, 4000)

    def slowed(_: int, use: Floats) -> Floats:
        slow = 1.0 + 6.0 * max(0.0, float(use[1:].sum()) / CORES - 0.4)
        return np.array([1.0, slow, slow])

    machine = Machine(rates_rps, slowed)
    handed_out, _ = machine.run(1500)
    assert is_calm(handed_out)
    assert handed_out.mean() < 0.75 * CORES
