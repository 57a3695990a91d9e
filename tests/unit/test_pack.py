"""What each method of packing is good at, by example."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
import pytest

from bench.samples import EXPERIMENTS, many, sample
from headwater.errors import SpecError
from headwater.model.workload import Forecast, Kind, Sinusoid, Trace, Workload
from headwater.pack import Limits, Packing, Unpackable, measure, method_named, pack
from headwater.pack.close import close
from headwater.pack.columns import Pool, relax
from headwater.pack.forecast import forecast, season_of
from headwater.pack.loads import loads_of
from headwater.pack.measure import LONGEST_HORIZON, span_of
from headwater.pack.search import cost_of


def packed(workload: Workload, method: str = "auto", seed: int = 0) -> Packing:
    answer = pack(workload, method, seed)
    assert isinstance(answer, Packing)
    return answer


def scenario() -> Workload:
    phases = (0.0, math.pi, math.pi / 2, 3 * math.pi / 2)
    return Workload({f"t{i}": Sinusoid(249.0, 40.0, 40.0, p) for i, p in enumerate(phases)}, (Kind(500.0, 4),))


@pytest.mark.parametrize("method", ["auto", "exact", "bestfit", "anneal"])
def test_operators_in_opposite_phase_share_a_machine(method: str) -> None:
    answer = packed(scenario(), method)
    where = answer.assignment
    assert (answer.used, answer.overload, answer.proved) == (2, 0.0, True)
    assert where["t0"] == where["t1"] != where["t2"] == where["t3"]
    assert answer.utilisation == pytest.approx(498 / 500)


def test_overload_is_told_where_r_storm_looks_at_means_alone() -> None:
    same = Workload({name: Sinusoid(200.0, 100.0, 40.0) for name in "ab"}, (Kind(500.0, 2),))
    answer = packed(same, "rstorm")
    assert (answer.used, answer.proved) == (1, False)
    angle = math.acos(100 / 200)
    assert answer.overload == pytest.approx((200 * math.sin(angle) - 100 * angle) / math.pi / 500)
    assert packed(same).used == 2


def test_cheap_machines_are_mixed_for_the_least_cost() -> None:
    operators = {"large": Sinusoid(450.0), "small": Sinusoid(90.0), "tiny": Sinusoid(60.0)}
    kinds = (Kind(500.0, 3, 1.0), Kind(160.0, 3, 0.3))
    answer = packed(Workload(operators, kinds), "exact")
    assert answer.cost == pytest.approx(1.3)
    assert answer.proved
    assert answer.assignment == {"large": 0, "small": 3, "tiny": 3}


def test_a_little_overload_is_taken_where_it_is_cheaper_than_a_machine() -> None:
    operators = {name: Sinusoid(255.0) for name in "ab"}
    hard = packed(Workload(operators, (Kind(500.0, 2),)), "exact")
    soft = packed(Workload(operators, (Kind(500.0, 2),), 0.05), "exact")
    dear = packed(Workload(operators, (Kind(500.0, 2),), 0.2), "exact")
    assert (hard.used, soft.used, dear.used) == (2, 1, 2)
    assert soft.cost == pytest.approx(1.0 + 0.05 * 10)
    assert soft.overload == pytest.approx(10 / 500)


def test_the_last_look_keeps_columns_that_lack_a_little() -> None:
    # two of three share a large machine, so prices are 0.5 each; the third on a small machine lacks 0.2 of its cost
    operators = {name: Sinusoid(180.0) for name in "abc"}
    loads = loads_of(Workload(operators, (Kind(500.0, 3, 1.0), Kind(200.0, 3, 0.7))))
    pool = Pool(loads)
    relaxed = relax(pool, np.arange(3), loads.counts, Limits(), enough=None)
    assert relaxed.bound == pytest.approx(1.5, rel=1e-5)
    where, is_decided = close(pool, relaxed, 2.0, Limits())
    assert is_decided
    assert cost_of(loads, where) == pytest.approx(1.7)


def test_an_operator_that_no_machine_holds_is_named() -> None:
    answer = pack(Workload({"big": Sinusoid(480.0, 40.0, 40.0)}, (Kind(500.0, 2),)))
    assert isinstance(answer, Unpackable)
    assert answer.is_proven
    assert "'big' has a peak of 520" in answer.reasons[0]


def test_too_few_machines_are_told_with_the_number_needed() -> None:
    answer = pack(Workload(scenario().operators, (Kind(500.0, 1),)))
    assert isinstance(answer, Unpackable)
    assert (answer.is_proven, answer.needed, answer.at_least) == (True, 2, 2)
    assert answer.reasons[0] == "at least 2 machines are needed, and 1 may be used"


def test_an_unknown_method_is_answered_with_a_near_one() -> None:
    with pytest.raises(SpecError, match=r"HW1450 .*Did you mean 'anneal'"):
        method_named("aneal")


def test_signals_without_a_common_period_are_judged_by_samples() -> None:
    two = Workload({"a": Sinusoid(100.0, 50.0, 4.0), "b": Trace((10.0, 20.0, 30.0))}, (Kind(500.0, 1),))
    assert span_of(two).samples == 12
    odd = Workload({"a": Sinusoid(100.0, 50.0, 4.5), "b": Trace((10.0, 20.0, 30.0))}, (Kind(500.0, 1),))
    assert (span_of(odd).samples, span_of(odd).is_whole) == (LONGEST_HORIZON, False)
    stated = Workload(odd.operators, odd.kinds, None, 36)
    assert span_of(stated).samples == 36
    assert measure(stated, {"a": 0, "b": 0}).machines[0].peak <= 180.0


def test_the_fence_ends_a_search_with_an_answer_that_says_so() -> None:
    looks = count()
    limits = Limits(remaining_s=lambda: 1.0 if next(looks) < 2 else 0.0)
    answer = pack(sample(EXPERIMENTS[3], 0), "auto", 0, limits)
    assert isinstance(answer, Packing)
    assert answer.cut_short
    assert answer.overload == 0.0
    assert answer.lower_bound >= 30


def test_experiment_1_is_proven_and_r_storm_needs_more() -> None:
    workload = sample(EXPERIMENTS[1], 1)
    best = packed(workload)
    assert (best.used, best.proved, best.overload) == (4, True, 0.0)
    assert packed(workload, "rstorm").used == 5


@pytest.mark.parametrize(("number", "index"), [(2, 2), (5, 0)])
def test_the_columns_prove_what_mean_loads_cannot(number: int, index: int) -> None:
    workload = sample(EXPERIMENTS[number], index)
    best = packed(workload)
    assert best.proved
    assert best.lower_bound > packed(workload, "bestfit").lower_bound
    assert best.used < packed(workload, "bestfit").used


def test_many_operators_are_taken_apart_and_come_near_the_bound() -> None:
    answer = packed(many(600))
    assert answer.overload == 0.0
    assert len(answer.assignment) == 600
    assert answer.gap < 0.03
    assert answer.used < packed(many(600), "bestfit").used


def test_exact_refuses_what_is_too_large_and_names_another_method() -> None:
    with pytest.raises(SpecError, match=r"HW1451 .*use 'auto'"):
        pack(many(2001), "exact")


def test_a_forecast_follows_the_season() -> None:
    day = [100 + 50 * math.sin(2 * math.pi * t / 24) for t in range(24)]
    assert season_of(day * 4) == 24
    ahead = forecast(day * 4)
    assert ahead == pytest.approx(day, abs=1e-6)
    assert forecast([5.0, 5.0, 5.0, 5.0]) == (5.0,)
    assert forecast([1.0, 2.0, 3.0], season=3, horizon=4, margin=0.5) == (1.5, 3.0, 4.5, 1.5)


def test_operators_in_opposite_season_share_by_forecast() -> None:
    day = [200 + 150 * math.sin(2 * math.pi * t / 24) for t in range(24)]
    night = [200 - 150 * math.sin(2 * math.pi * t / 24) for t in range(24)]
    workload = Workload({"day": Forecast(tuple(day * 3)), "night": Forecast(tuple(night * 3))}, (Kind(450.0, 2),))
    assert packed(workload).used == 1
