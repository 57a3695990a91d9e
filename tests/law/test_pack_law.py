"""Laws of packing: every operator on one machine, nothing over capacity, never below the bound, exact is exact."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from headwater.model.workload import Kind, Signal, Sinusoid, Trace, Workload
from headwater.pack import METHODS, Limits, Packing, Unpackable, measure, pack
from headwater.pack.close import close
from headwater.pack.columns import Pool, relax
from headwater.pack.loads import Floats, Loads, loads_of
from headwater.pack.price import MOST_IN_SET, price
from headwater.pack.search import cost_of

MORE = 10 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 1
CLOSE = 1e-6


def made(number: int, form: str, operators: int = 7) -> Workload:
    """Return a small workload: waves of one period, traces, waves of several periods, kinds, or priced overload."""
    rng = np.random.default_rng((number, len(form)))
    count = int(rng.integers(2, operators + 1))
    signals: dict[str, Signal] = {}
    for i in range(count):
        baseline = float(rng.uniform(60, 220))
        if form == "traces" or (form == "mixed" and i % 2):
            length = int(rng.choice([2, 3, 4]))
            signals[f"t{i}"] = Trace(tuple(float(x) for x in rng.uniform(10, 260, length)))
        else:
            period = float(rng.choice([4, 6])) if form == "mixed" else 40.0
            signals[f"t{i}"] = Sinusoid(baseline, float(rng.uniform(0, baseline)), period, float(rng.uniform(-9, 9)))
    kinds: tuple[Kind, ...] = (Kind(500.0, count),)
    if form == "kinds":
        kinds = (Kind(500.0, count, 1.0), Kind(470.0, count, 0.75), Kind(900.0, 1, 1.5))
    return Workload(signals, kinds, 0.006 if form == "soft" else None)


FORMS = ("waves", "traces", "mixed", "kinds", "soft")


def each_way(items: Sequence[str], machines: Sequence[list[str]]) -> Iterator[list[list[str]]]:
    """Yield all partitions of the operators."""
    if not items:
        yield [list(each) for each in machines]
        return
    for i in range(len(machines)):
        more = [list(each) for each in machines]
        more[i].append(items[0])
        yield from each_way(items[1:], more)
    yield from each_way(items[1:], [*machines, [items[0]]])


def reference_cost(workload: Workload, group: Sequence[str], times: int = 2400) -> float:
    """Return what the cheapest machine for some operators costs, from dense samples; infinite if none holds them."""
    at = np.arange(times) if _is_sampled(workload) else np.arange(times) * 40.0 / times
    total = np.array([sum(load_at(workload.operators[name], float(t)) for name in group) for t in at])
    costs = []
    for kind in workload.kinds:
        above = np.maximum(0.0, total - kind.capacity)
        if workload.overload_price is not None:
            costs.append(kind.price + workload.overload_price * float(above.mean()))
        elif float(total.max()) <= kind.capacity * (1 + 1e-9):
            costs.append(kind.price)
    return min(costs, default=math.inf)


def load_at(signal: Signal, time: float) -> float:
    assert isinstance(signal, (Sinusoid, Trace))
    return signal.at(time)


def _is_sampled(workload: Workload) -> bool:
    return len({s.period if isinstance(s, Sinusoid) else None for s in workload.operators.values()}) > 1 or any(
        isinstance(s, Trace) for s in workload.operators.values()
    )


def best_of_all(workload: Workload) -> float:
    """Return the least cost over all partitions; kinds with a count of one are used once at most."""
    known: dict[tuple[str, ...], float] = {}
    best = math.inf
    for groups in each_way(list(workload.operators), []):
        total = 0.0
        for group in groups:
            key = tuple(sorted(group))
            if key not in known:
                known[key] = reference_cost(workload, key, 480)
            total += known[key]
        best = min(best, total)
    return best


@pytest.mark.parametrize("form", FORMS)
def test_exact_finds_and_proves_what_trying_every_partition_finds(form: str) -> None:
    proved = 0
    for number in range(12 * MORE):
        workload = made(number, form, 6)
        if form == "kinds":  # every kind as often as wanted, so that groups choose by themselves
            kinds = tuple(Kind(kind.capacity, len(workload.operators), kind.price) for kind in workload.kinds)
            workload = Workload(workload.operators, kinds)
        best = best_of_all(workload)
        answer = pack(workload, "exact", number)
        assert isinstance(answer, Packing), number
        assert answer.cost <= best * (1 + 2e-3 if form == "soft" else 1 + CLOSE), (form, number)
        assert answer.lower_bound <= best * (1 + 2e-3 if form == "soft" else 1 + CLOSE), (form, number)
        assert answer.cost >= best * (1 - 2e-3 if form == "soft" else 1 - CLOSE), (form, number)
        proved += answer.proved
    assert proved >= (12 * MORE if form in {"waves", "traces", "mixed"} else 6 * MORE)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_the_rules_and_its_bound_and_answers_the_same_twice(method: str, form: str) -> None:
    for number in range(4 * MORE):
        workload = made(number, form, 9)
        answer = pack(workload, method, number)
        assert isinstance(answer, Packing)
        assert set(answer.assignment) == set(workload.operators)
        assert all(0 <= machine < workload.machines for machine in answer.assignment.values())
        assert answer.measured == measure(workload, answer.assignment)
        best = pack(workload, "exact")
        assert isinstance(best, Packing)
        assert answer.lower_bound <= best.cost * (1 + CLOSE)
        if answer.measured.is_allowed:
            assert answer.cost >= best.lower_bound * (1 - CLOSE)
        else:
            assert METHODS[method].may_overload
            assert not answer.proved
        again = pack(workload, method, number)
        assert isinstance(again, Packing)
        assert (dict(again.assignment), again.lower_bound) == (dict(answer.assignment), answer.lower_bound)


def test_no_machine_is_used_more_often_than_there_are_of_its_kind() -> None:
    for number in range(10 * MORE):
        workload = made(number, "kinds", 9)
        for method in METHODS:
            answer = pack(workload, method)
            assert isinstance(answer, Packing)
            here = [machine.number for machine in answer.measured.machines]
            large = [each for each in here if workload.kind_of(each).capacity == 900.0]
            assert len(large) <= 1, (number, method)


@pytest.mark.parametrize("form", ["waves", "traces", "mixed", "soft"])
def test_a_packing_is_measured_as_dense_samples_say(form: str) -> None:
    for number in range(20 * MORE):
        workload = made(number, form)
        rng = np.random.default_rng(number)
        assignment = {name: int(rng.integers(0, 2)) for name in workload.operators}
        judged = measure(workload, assignment)
        wanted = plainly(workload, assignment)
        close = 2e-4 if form in {"waves", "soft"} else 1e-9  # closed forms against samples of them
        assert judged.used == wanted["used"]
        assert judged.utilisation == pytest.approx(wanted["utilisation"], rel=close, abs=close)
        assert judged.overload == pytest.approx(wanted["overload"], rel=close, abs=close)
        for machine in judged.machines:
            assert machine.peak == pytest.approx(wanted[machine.number], rel=close)


def plainly(workload: Workload, assignment: Mapping[str, int]) -> dict[str | int, float]:
    """Return utilisation, overload and peaks from the words of the contract."""
    at = range(2400) if _is_sampled(workload) else [40.0 * t / 2400 for t in range(2400)]
    capacity = workload.capacity
    found: dict[str | int, float] = {}
    shares, overloads = [], []
    for machine in set(assignment.values()):
        signals = [workload.operators[name] for name, where in assignment.items() if where == machine]
        loads = [sum(load_at(signal, t) for signal in signals) for t in at]
        found[machine] = max(loads)
        shares.append(sum(min(load, capacity) / capacity for load in loads) / len(loads))
        if max(loads) > capacity:
            overloads.append(sum(max(0.0, load - capacity) / capacity for load in loads) / len(loads))
    found["used"] = len(shares)
    found["utilisation"] = sum(shares) / len(shares)
    found["overload"] = sum(overloads) / len(overloads) if overloads else 0.0
    return found


def test_other_names_and_another_order_need_as_many_machines() -> None:
    for number in range(10 * MORE):
        workload = made(number, "waves", 12)
        names = list(workload.operators)
        np.random.default_rng(number).shuffle(names)
        other = Workload({f"x{i}": workload.operators[name] for i, name in enumerate(names)}, workload.kinds)
        one, two = pack(workload, "exact"), pack(other, "exact")
        assert isinstance(one, Packing)
        assert isinstance(two, Packing)
        assert (one.used, one.proved) == (two.used, two.proved)


def worth_of_all(loads: Loads, values: Floats) -> Floats:
    """Return what each set of operators is worth, by its bits; nothing where it does not fit."""
    count = len(loads.names)
    bits = np.arange(1, 1 << count)[:, None] >> np.arange(count) & 1
    totals = bits @ loads.vectors
    worth = bits @ values
    capacity = float(loads.capacities[0])
    if loads.is_wave:
        angles = np.linspace(0, 2 * np.pi, 721)[:-1]
        swing = np.hypot(totals[:, 1], totals[:, 2])
        over = totals[:, :1] + swing[:, None] * np.cos(angles) - capacity
        peaks = totals[:, 0] + swing
    else:
        over, peaks = totals - capacity, totals.max(axis=1)
    if not loads.is_hard:
        return np.asarray(worth - loads.overload_price * np.maximum(0.0, over).mean(axis=1))
    return np.where(peaks <= capacity, worth, -np.inf)


def asked(loads: Loads, values: Floats, least: float, every: bool, rows: int) -> tuple[float, list[tuple[int, ...]]]:
    """Return what the search for columns answers: the most, and the sets it gives."""
    order = np.argsort(-values / loads.means, kind="stable")
    sets, sizes, worths = np.zeros((rows, MOST_IN_SET), np.int64), np.zeros(rows, np.int64), np.zeros(rows)
    most = price(
        np.ascontiguousarray(loads.vectors[order]), loads.is_wave, values[order], loads.means[order],
        float(loads.capacities[0]), loads.overload_price, least, sets, sizes, worths, np.array([10**8]), every,
    )  # fmt: skip
    return float(most), [tuple(sorted(order[sets[i, : sizes[i]]])) for i in np.flatnonzero(sizes)]


@pytest.mark.parametrize("form", ["waves", "mixed", "soft"])
def test_the_search_for_columns_finds_the_most_valuable_set_and_every_set_above_a_value(form: str) -> None:
    for number in range(25 * MORE):
        loads = loads_of(made(number, form, 11))
        # as in a programme: values go with loads, so that very many sets are nearly worth the same
        noise = np.random.default_rng(number).uniform(0.85, 1.15, len(loads.names))
        values = loads.means * noise / float(loads.capacities[0])
        worth = worth_of_all(loads, values)
        near = 1e-3 if form == "soft" else 1e-9
        best = float(worth.max())
        for least in (0.0, 0.7 * best, best - 2 * near):
            most, _ = asked(loads, values, least, False, len(values))
            assert most == pytest.approx(best, abs=near), (number, least)
        least = float(np.sort(worth)[-min(40, len(worth))]) - 1e-7
        _, sets = asked(loads, values, least, True, 5000)
        assert len(set(sets)) == len(sets)
        wanted = int((worth > least).sum())
        if form != "soft":
            assert len(sets) == wanted, number
        assert abs(len(sets) - wanted) <= 2, number


@pytest.mark.parametrize("form", ["waves", "traces", "kinds"])
def test_the_last_look_finds_what_is_better_and_knows_when_nothing_is(form: str) -> None:
    found = 0
    for number in range(12 * MORE):
        workload = made(number, form, 12)
        loads = loads_of(workload)
        best = pack(workload, "exact")
        assert isinstance(best, Packing)
        assert best.proved, number
        pool = Pool(loads)
        relaxed = relax(pool, np.arange(len(loads.names)), loads.counts, Limits(), enough=None)
        assert relaxed.is_whole, number
        assert relaxed.bound <= best.cost * (1 + CLOSE), number
        where, is_decided = close(pool, relaxed, best.cost, Limits())
        assert is_decided, number
        assert where is None or cost_of(loads, where) == pytest.approx(best.cost), number  # HiGHS works to 1e-6
        where, is_decided = close(pool, relaxed, best.cost + 1.0, Limits())
        if where is not None:
            found += 1
            assert cost_of(loads, where) == pytest.approx(best.cost), number
        assert is_decided == (where is not None), number
    assert found == 12 * MORE


def test_machines_that_are_too_few_are_told_with_how_many_would_do() -> None:
    for number in range(20 * MORE):
        workload = made(number, "waves", 9)
        free = pack(workload, "exact")
        assert isinstance(free, Packing)
        tight = Workload(workload.operators, (Kind(500.0, max(1, free.used - 1)),))
        answer = pack(tight, "exact")
        if free.used == 1:
            assert isinstance(answer, Packing)
            continue
        assert isinstance(answer, Unpackable)
        assert answer.needed is not None
        assert answer.needed >= free.used
