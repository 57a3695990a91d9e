"""Does the controller keep its laws: shares within bounds whatever is measured, calm at constant load, no leaps?"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.control import mpc
from headwater.control.decision import Applications, Decision, applications
from headwater.control.readings import COLUMNS, Readings
from headwater.model.quality import QUALITIES

CLASSES = tuple(QUALITIES.values())
NAMES = tuple("abcdefgh")
SETTINGS = (mpc.Settings(), mpc.Settings(is_delay=True))
NONSENSE = (-1.0, math.nan, math.inf, -math.inf, 1e16, -1e-300)


def group(draw, names: tuple[str, ...]) -> Applications:
    """Draw what applications are held to."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    return applications(
        names,
        tuple(CLASSES[i] for i in rng.integers(0, 3, len(names))),
        rng.choice([0.0, 0.01, 0.5, 3.0], len(names)),
        rng.choice([math.inf, math.inf, 0.0, 0.3, 4.0], len(names)),
    )


def measured(draw, names: tuple[str, ...], seconds: float = 1.0) -> Readings:
    """Make readings without nonsense, however odd."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    count = len(names)
    odd = rng.choice([0.0, 1e-300, 1e-9, 1.0, 1e15], (len(COLUMNS), count))
    usual = rng.choice([0.01, 1.0, 2000.0], (len(COLUMNS), 1)) * rng.random((len(COLUMNS), count))
    columns = dict(zip(COLUMNS, np.where(rng.random(usual.shape) < rng.choice([0.1, 0.5]), odd, usual), strict=True))
    for key, value in (("share", math.inf), ("late_s", math.nan)):
        columns[key][rng.random(count) < 0.5] = value
    return Readings(names, seconds, columns)


def is_fine(key: str, value: float) -> bool:
    """Return whether a meter may say this."""
    return 0.0 <= value <= 1e15 or (key == "share" and value > 0.0) or (key == "late_s" and math.isnan(value))


def spoiled(draw, readings: Readings) -> tuple[Readings, int, frozenset[str]]:
    """Put nonsense into some entries; return how many, and whose entries were touched."""
    columns = {key: column.copy() for key, column in readings.columns.items()}
    cells = st.tuples(st.sampled_from(COLUMNS), st.integers(0, len(readings.names) - 1), st.sampled_from(NONSENSE))
    found = draw(st.lists(cells, max_size=6, unique_by=lambda cell: cell[:2])) if readings.names else []
    for key, i, value in found:
        columns[key][i] = value
    count = sum(not is_fine(key, value) for key, _, value in found)
    return replace(readings, columns=columns), count, frozenset(readings.names[i] for _, i, _ in found)


def check(decision: Decision, apps: Applications, capacity: float) -> None:
    """Shares and limits are within all bounds."""
    most_there_is = capacity if math.isfinite(capacity) else 0.0
    assert decision.names == apps.names
    shares, limits = decision.shares, decision.limits
    assert np.isfinite(shares).all()
    assert np.isfinite(limits).all()
    assert shares.sum() <= most_there_is * (1.0 + 1e-9)
    assert (shares <= apps.most * (1.0 + 1e-9)).all()
    # Whoever asks for nothing has its least share, too. Up to 30 % of a saturated machine is held back.
    surely = 0.7 * most_there_is
    first = np.minimum(np.minimum(apps.least, apps.most), surely)
    assert (shares >= first * min(1.0, surely / max(first.sum(), 1e-300)) * (1.0 - 1e-9)).all()
    assert (decision.reach >= shares * (1.0 - 1e-9)).all()
    assert (limits >= decision.reach * (1.0 - 1e-9)).all()
    assert (decision.alone >= decision.reach * (1.0 - 1e-9)).all()
    assert (decision.alone <= np.minimum(apps.most, most_there_is) * (1.0 + 1e-9)).all()
    lighter = np.array([shares[apps.grouped.of > rank].sum() for rank in apps.grouped.of])
    assert (limits >= np.minimum(decision.reach + lighter, np.minimum(apps.most, decision.shares.sum())) - 1e-9).all()
    assert (limits <= (decision.reach + lighter) * (1.0 + 1e-9) + 1e-9).all()
    assert (limits <= np.minimum(apps.most, most_there_is) * (1.0 + 1e-9)).all()
    assert np.isfinite(decision.demand).all()
    assert np.isfinite(decision.rate_rps).all()


@given(st.data())
def test_shares_are_within_bounds_whatever_is_measured_and_nonsense_is_counted_exactly(data) -> None:
    draw = data.draw
    settings = draw(st.sampled_from(SETTINGS))
    names = tuple(draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True)))
    apps = group(draw, names)
    state = mpc.begin(apps)
    now_s, clock_s = 100.0, math.nan  # the time that is told, and the one that was told before
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.integers(0, 3)) == 0:  # names come and go
            names = tuple(draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True)))
            apps = group(draw, names)
        read = tuple(draw(st.permutations(NAMES[: draw(st.integers(0, 8))])))
        seconds = draw(st.sampled_from([1.0, 1.0, 0.5, 0.0, -1.0, math.nan, math.inf]))
        readings, _, _ = spoiled(draw, measured(draw, read, seconds))
        told_s = now_s = now_s + draw(st.sampled_from([1.0, 1.0, 0.01, -5.0, 0.0, 1e6]))
        told_s = draw(st.sampled_from([now_s, now_s, math.nan, math.inf]))
        capacity = draw(st.sampled_from([8.0, 8.0, 1e-3, 200.0, 0.0, -1.0, math.nan, math.inf]))
        expected = sum(name not in read for name in names)
        for key in COLUMNS:
            told = zip(read, readings.columns[key].tolist(), strict=True)
            expected += sum(name in names and not is_fine(key, value) for name, value in told)
        expected += not (math.isfinite(seconds) and seconds > 0.0)
        passed_s = told_s - clock_s
        expected += not math.isfinite(told_s) or (math.isfinite(clock_s) and not 0.0 < passed_s <= 60.0)
        clock_s = told_s
        state, decision = mpc.step(state, told_s, readings, apps, capacity, settings)
        check(decision, apps, max(0.0, capacity) if math.isfinite(capacity) else 0.0)
        assert decision.nonsense == expected


@given(st.data())
def test_nonsense_of_one_does_not_keep_the_readings_of_others_from_being_used(data) -> None:
    draw = data.draw
    names = NAMES[: draw(st.integers(2, 5))]
    apps = group(draw, names)
    clean = dirty = mpc.begin(apps)
    hit: frozenset[str] = frozenset()
    for second in range(draw(st.integers(1, 4))):
        readings = measured(draw, names)
        bad, count, whose = spoiled(draw, readings)
        hit |= whose
        clean, wanted = mpc.step(clean, float(second), readings, apps, 8.0, SETTINGS[0])
        dirty, found = mpc.step(dirty, float(second), bad, apps, 8.0, SETTINGS[0])
        assert (wanted.nonsense, found.nonsense) == (0, count)
        good = [i for i, name in enumerate(names) if name not in hit]
        for key in ("rate_rps", "queue"):
            np.testing.assert_allclose(getattr(found, key)[good], getattr(wanted, key)[good], rtol=1e-12)
        np.testing.assert_array_equal(dirty.work_s[good], clean.work_s[good])


@dataclass(frozen=True)
class Load:
    """Applications with loads that do not change, on a machine."""

    apps: Applications
    rate_rps: np.ndarray
    work_s: np.ndarray
    capacity: float


def load(draw, fullest: float = 0.7, least_rps: float = 1.0) -> Load:
    """Draw a load."""
    count = draw(st.integers(1, 8))
    rate_rps = 10.0 ** np.array([draw(st.floats(math.log10(least_rps), 3.3)) for _ in range(count)])
    work_s = 10.0 ** np.array([draw(st.floats(-4.0, -2.0)) for _ in range(count)])
    capacity = float((rate_rps * work_s).sum()) / draw(st.floats(0.05, fullest))
    names = NAMES[:count]
    qualities = tuple(draw(st.sampled_from(CLASSES)) for _ in names)
    return Load(applications(names, qualities, 0.001 * capacity / count), rate_rps, work_s, capacity)


def played(
    the: Load, steps: int, settings: mpc.Settings = SETTINGS[0], rng: np.random.Generator | None = None
) -> tuple[mpc.State, list[Decision], list[Readings]]:
    """Return what is decided for records that flow: a queue is what came and was not done."""
    count = len(the.apps.names)
    state, queue, share = mpc.begin(the.apps), np.zeros(count), np.full(count, the.capacity / count)
    decisions, all_readings = [], []
    for second in range(steps):
        came = the.rate_rps if rng is None else rng.poisson(the.rate_rps).astype(np.float64)
        done = np.minimum(queue + came, share / the.work_s)
        queue = np.maximum(0.0, queue + came - done)
        columns = {key: np.zeros(count) for key in COLUMNS} | {
            "arrivals_rps": came, "throughput_rps": done, "queue": queue, "used": done * the.work_s, "share": share,
            "latency_s": queue / np.maximum(done, 1e-9) + the.work_s / share, "late_s": np.full(count, np.nan),
        }  # fmt: skip
        readings = Readings(the.apps.names, 1.0, columns)
        state, decision = mpc.step(state, float(second), readings, the.apps, the.capacity, settings)
        share = np.maximum(decision.alone, 1e-9)
        decisions.append(decision)
        all_readings.append(readings)
    return state, decisions, all_readings


def is_enough(decision: Decision) -> bool:
    """Return whether the goals ask for less than there is."""
    return float(decision.demand.sum()) <= decision.capacity * (1.0 - 1e-9)


@given(st.data(), st.sampled_from(SETTINGS))
def test_constant_load_settles_without_turning_back(data, settings) -> None:
    the = load(data.draw)
    _, decisions, _ = played(the, 70, settings)
    assume(is_enough(decisions[-1]))
    shares = np.array([one.shares for one in decisions[60:]])
    moves = np.diff(shares, axis=0) / shares[:-1]
    assert np.abs(moves).max() < 1e-3
    for moved in moves.T:
        signs = np.sign(moved[np.abs(moved) > 1e-6])
        assert (signs == signs[:1]).all()


@pytest.mark.parametrize("seed", range(4))
def test_chance_in_the_arrivals_moves_shares_little(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rate_rps, work_s = 10.0 ** rng.uniform(1.0, 3.3, 6), 10.0 ** rng.uniform(-4.0, -2.0, 6)
    capacity = float((rate_rps * work_s).sum()) / 0.4
    apps = applications(NAMES[:6], tuple(CLASSES[i % 3] for i in range(6)), 0.01 * capacity / 6)
    _, decisions, _ = played(Load(apps, rate_rps, work_s, capacity), 160, rng=rng)
    assert all(is_enough(one) for one in decisions[60:])
    shares = np.array([one.shares for one in decisions[60:]])
    by_chance = 1.0 / np.sqrt(rate_rps)  # how far a second's count is off
    assert (shares.std(axis=0) <= (0.03 + by_chance) * shares.mean(axis=0)).all()


@given(st.data())
def test_a_small_change_of_one_measurement_changes_all_shares_little(data) -> None:
    draw = data.draw
    the = load(draw, fullest=1.3)
    state, _, all_readings = played(the, draw(st.integers(2, 12)), rng=np.random.default_rng(draw(st.integers(0, 99))))
    columns = {key: column.copy() for key, column in all_readings[-1].columns.items()}
    count = len(the.apps.names)
    columns["queue"] = columns["queue"] + np.array(
        [draw(st.sampled_from([0.0, 0.0, 3.0, 50.0])) for _ in NAMES[:count]]
    )
    if draw(st.booleans()):
        late_s = the.apps.goal_s * np.array([draw(st.floats(0.1, 3.0)) for _ in NAMES[:count]])
        columns["late_s"] = late_s
        trimmed = np.array([draw(st.floats(1.0, 3.0)) for _ in NAMES[:count]])
        state = replace(state, trim=trimmed)
    likely = st.sampled_from(["queue", "late_s", "arrivals_rps"])
    key, i, size = (
        draw(st.one_of(st.sampled_from(COLUMNS), likely)),
        draw(st.integers(0, count - 1)),
        draw(st.sampled_from([1e-5, -1e-5])),
    )
    if key == "late_s" and draw(st.booleans()):
        columns["late_s"][i] = 0.8 * the.apps.goal_s[i] * (1.0 - 0.5 * size)  # where it begins to be too late
    if key == "queue" and draw(st.booleans()):  # where what waits begins to explain why it is late
        columns["queue"][i] = columns["throughput_rps"][i] * 0.8 * the.apps.goal_s[i] * (1.0 - 0.5 * size)
    other = {name: column.copy() for name, column in columns.items()}
    other[key][i] *= 1.0 + size
    found = [
        mpc.step(state, 100.0, Readings(the.apps.names, 1.0, each), the.apps, the.capacity, SETTINGS[0])[1]
        for each in (columns, other)
    ]
    for one, another in ((getattr(each, key) for each in found) for key in ("shares", "limits", "alone")):
        assert np.abs(one - another).sum() <= LEAP * abs(size) * the.capacity


LEAP = 20.0  # times as much, relative to the machine, as a measurement that changes by a small part of itself


POINTS = 2000


def scanned(key: str, values: np.ndarray, most: np.ndarray | float = math.inf, **others: float) -> Decision:
    """Decide for applications that differ in one measurement alone, from one to the next by very little."""
    names = tuple(f"a{i}" for i in range(POINTS))
    usual = {"arrivals_rps": 100.0, "throughput_rps": 100.0, "used": 1.0, "share": 1.5, "late_s": math.nan} | others
    columns = {name: np.full(POINTS, usual.get(name, 0.0)) for name in COLUMNS}
    apps = applications(names, (CLASSES[0],) * POINTS, 0.01, most)
    state, _ = mpc.step(mpc.begin(apps), 0.0, Readings(names, 1.0, columns), apps, 5.0 * POINTS, SETTINGS[0])
    state = replace(state, trim=np.full(POINTS, 2.0), demand=np.zeros(POINTS))
    told = Readings(names, 1.0, columns | {key: values})
    return mpc.step(state, 1.0, told, apps, 5.0 * POINTS, SETTINGS[0])[1]


AIM_S = 0.8 * CLASSES[0].goal_s


@pytest.mark.parametrize(
    ("key", "end", "others"),
    [
        ("late_s", 4.0 * AIM_S, {}),  # from early to late, where all of a share is used
        ("late_s", 4.0 * AIM_S, {"share": 2.5}),  # and where less of it is
        ("queue", 300.0 * AIM_S, {"late_s": 2.0 * AIM_S}),  # until what waits explains that records are late
        ("used", 2.0, {"late_s": 2.0 * AIM_S}),
        ("latency_s", 4.0 * AIM_S, {}),
    ],
)
def test_demand_does_not_leap_where_records_begin_to_be_late_or_to_wait(key: str, end: float, others) -> None:
    values = np.linspace(0.02 * end, end, POINTS)
    demand = scanned(key, values, **others).demand
    assert demand.min() > 1.0  # what comes takes a core
    assert np.abs(np.diff(demand)).max() <= 10.0 / POINTS * demand.max()
    assert np.ptp(demand) > 0.01 * demand.max() or key == "latency_s"  # it does make a difference


def test_demand_does_not_leap_where_more_and_more_of_a_share_is_used() -> None:
    for late_s in (0.8, 0.9, 1.05):  # of the aim: what was corrected fades where little of a share is used
        demand = scanned("share", np.linspace(1.0, 10.0, POINTS), late_s=late_s * AIM_S).demand
        assert np.abs(np.diff(demand)).max() <= 10.0 / POINTS * demand.max()
        assert np.ptp(demand) > 0.01 * demand.max()


def test_what_is_predicted_never_rises_with_the_share() -> None:
    most = np.linspace(0.2, 4.0, POINTS)  # around a load of 1
    decision = scanned("queue", np.zeros(POINTS), most)
    assert decision.shares == pytest.approx(most)
    assert (np.diff(decision.predicted_s) <= 1e-9).all()
    assert decision.predicted_s[0] > CLASSES[0].goal_s > decision.predicted_s[-1]


@given(st.data())
def test_without_shortage_no_goal_is_broken_in_the_model(data) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 99))) if draw(st.booleans()) else None
    the = load(draw)
    _, decisions, _ = played(the, 25, draw(st.sampled_from(SETTINGS)), rng)
    for decision in decisions[5:]:
        if is_enough(decision) and (decision.late_s <= decision.goal_s).all():
            assert (decision.predicted_s <= decision.goal_s).all()
            assert decision.gives_way == ()


@given(st.data())
def test_in_a_shortage_heavier_classes_are_whole_first_and_those_that_lack_are_named(data) -> None:
    the = load(data.draw)
    state, decisions, readings = played(the, 12)
    demand, of = decisions[-1].demand, the.apps.grouped.of
    assume(is_enough(decisions[-1]) and (demand > 10.0 * the.apps.least).all())
    held = np.bincount(of, demand)
    whole = data.draw(st.integers(0, len(held) - 1))  # so many classes are to be whole
    least = the.apps.least
    capacity = float(held[:whole].sum()) + 0.2 * float(held[whole]) + float(least[of > whole].sum())
    _, found = mpc.step(state, 12.0, readings[-1], the.apps, capacity, SETTINGS[0])
    np.testing.assert_allclose(found.shares[of < whole], found.demand[of < whole], rtol=1e-9)
    np.testing.assert_allclose(found.shares[of > whole], least[of > whole], rtol=1e-9)
    # Others lack something; what they are lent may be enough. They are named if it is not, and nobody else is.
    is_short = (found.reach < found.asked * (1.0 - 1e-9)) & (found.predicted_s > found.goal_s)
    assert not is_short[of < whole].any()
    assert [one.quality for one in found.gives_way] == [
        the.apps.qualities[np.argmax(of == number)].name for number in range(len(held)) if is_short[of == number].any()
    ]
    for one in found.gives_way:
        mine = is_short & (the.apps.weight == QUALITIES[one.quality].weight)
        assert one.count == mine.sum()
        assert one.lacking == pytest.approx((found.asked - found.reach)[mine].sum())
        assert one.predicted_s > one.goal_s
    # What everybody would use is more than the machine: no lending helps, and somebody must be named.
    if float((the.rate_rps * the.work_s).sum()) > 1.2 * capacity:
        assert found.gives_way
    lightest = of == len(held) - 1
    if float((the.rate_rps * the.work_s)[~lightest].sum()) > 1.1 * capacity:
        assert found.gives_way[-1].quality == the.apps.qualities[int(np.argmax(lightest))].name


@given(st.data())
def test_all_together_are_expected_to_use_no_more_than_the_machine(data) -> None:
    """What each will use of its share, and all that is lent beside shares."""
    draw = data.draw
    the = load(draw, fullest=1.3)
    state, decisions, _ = played(the, draw(st.integers(2, 20)), rng=np.random.default_rng(draw(st.integers(0, 99))))
    last = decisions[-1]
    expected = np.fmin(last.shares, state.work_s * (last.rate_rps + last.queue / 3.0))  # all of it where none is known
    lent = last.reach - last.shares
    assert expected.sum() + lent.sum() <= the.capacity * (1.0 + 1e-9)
    is_still_short = (last.reach < last.demand * (1.0 - 1e-9)) & (last.reach < the.capacity * (1.0 - 1e-9))
    if is_still_short.any():  # then nobody who lacks nothing is lent to
        has_all = last.shares >= last.demand * (1.0 - 1e-9)
        assert (lent[has_all] <= 1e-9 * the.capacity).all()
