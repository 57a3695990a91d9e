"""Which shares hold the goals? Model-predictive control of one machine.

Every second, from what was measured there alone (paper 003, section IV):

1. what cannot be believed is left out and counted;
2. arrivals of the next seconds are forecast, and the forecast is weighed by how well it did so far;
3. for each application, the share is found with which latency follows its reference: its goal, approached from where
   it is by a factor of e within T_ref seconds (the response factor), over a horizon of kappa seconds. What waits
   already has to be served in that time, and beside it chance has to find room (`control.queueing`);
4. shares are allocated (`control.allocate`); where there is not enough, lighter classes give way, and it is said which;
5. one step of it is applied, and the next second begins anew: what the model gets wrong shows in what waits, and in
   the latency that is measured.

`step` is a function from what is known and what was measured to what is known now and a decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import numpy as np

from headwater.control import forecast, saturation
from headwater.control.allocate import by_delay, by_weight, spread
from headwater.control.decision import Applications, Decision, given_way
from headwater.control.normal import quantile
from headwater.control.queueing import least_rate, wait_percentile
from headwater.control.readings import Bools, Cleaned, Floats, Readings, cleaned, oddities

__all__ = ["LEAST_WORK_S", "LONGEST_GAP", "MOST_WORK_S", "Disturb", "Settings", "State", "begin", "step"]

Disturb = Callable[[Floats], Floats]  # of forecast rates (steps by applications): puts errors in, to see what they do

LEAST_RATE_RPS = LEAST_SHARE = 1e-9  # below, it is none
LEAST_WORK_S, MOST_WORK_S = 1e-12, 1e6  # of a record: what is beyond was not measured, but made of nearly nothing
WORK_GAIN = 0.15  # of a new measurement in the means that work per record comes from
RECORD_GAIN = 0.2  # of a new error in the record of forecasts
BIAS_GAIN, MOST_BIAS = 0.1, 10.0  # of a new value in the means that set forecasts right, and by how much at most
# Of the plain guess that forecasts are weighed against, and that takes over from one that is wrong. It is quick: behind
# a load that moves it is late by a fraction of a second, and chance from second to second has its own room.
LEVEL_GAIN, TREND_GAIN, DAMPING = 0.8, 0.4, 0.8
MOST_CA2 = 4.0  # squared variation of arrivals within a second; what is above varies from second to second
WIDEST = 0.25  # of a rate: what is taken off for uncertainty; after a leap errors look larger than they will be
MOST_RISE, CALM_TRIM, MOST_TRIM = 1.1, 0.95, 3.0  # how fast a correction grows and fades in a second; the largest
SATURATED, LEAST_CAPACITY = 0.97, 0.7  # of the machine: what is left in a second of full excess, and at least
LENT = 0.95  # of what is not expected to be used
SURPRISED = 0.1  # of a rate: errors of forecasts beyond chance with which room is kept for leaps
# Whoever has records waiting uses its limit up, unless something else holds it up: a sink that hangs, a thread too few.
# Below the first part of the limit it surely is held up, above the second surely not; likewise by what waits, in
# seconds of arrivals: a moment's work always waits.
IDLE, BUSY = 0.6, 0.8
FEW_S, MANY_S = 0.2, 0.4
QUICKENING = 1.5  # times what it used: as much is left for it in the next second, so that it can come back
LITTLE_DONE, LITTLE_USED = 0.1, 0.25  # of what comes, and of what is usual: it stands still; twice as much: it works
LONGEST_GAP = 60.0  # control steps after which a clock is not believed


@dataclass(frozen=True, slots=True)
class Settings:
    """How the controller behaves."""

    interval_s: float = 1.0
    horizon: int = 3  # kappa: intervals looked ahead
    response_s: float = 3.0  # T_ref: in which the distance to the goal falls by a factor of e
    margin: float = 0.8  # of a goal that is aimed at
    queue_part: float = 0.5  # of what is aimed at, for what waits already; the rest is for chance
    part: float = 0.99  # of the records that a goal is about
    is_delay: bool = False  # share what is spare so that weighted waits are least, and not by weighted demand


@dataclass(frozen=True)
class State:
    """What is known of the applications of a machine; columns in the order of `names`."""

    names: tuple[str, ...]
    history: forecast.History
    interference: saturation.State
    done_rps: Floats  # means so far: of records done,
    used: Floats  # and of processor used
    work_s: Floats  # processor seconds for a record; NaN: not known yet
    level_rps: Floats  # arrivals, smoothed; NaN: not known yet
    trend_rps: Floats  # by which they grow in an interval
    guess_rps: Floats  # what the forecast said for the interval that follows; NaN: nothing
    plain_rps: Floats  # and the plain guess
    told_rps: Floats  # means so far: of what the forecast said,
    came_rps: Floats  # and of what came then; what it gets wrong always the same way is set right by these
    miss: Floats  # mean square errors so far: of the forecast that is set right,
    plain_miss: Floats  # of the plain guess,
    blend_miss: Floats  # and of what was made of both
    demand: Floats
    trim: Floats  # by which demand is multiplied, because of measured latency
    shares: Floats
    set_before: Floats  # shares that were set when it began; NaN: none
    held_back: float = 1.0  # part of the machine that is handed out
    now_s: float = math.nan


def begin(apps: Applications, shares: Floats | None = None) -> State:
    """Return what is known at first; `shares` are those that are set already."""
    count = len(apps.names)
    unknown = np.full(count, np.nan)
    given = np.full(count, np.nan) if shares is None else np.asarray(shares, np.float64)
    none = np.zeros(count)
    return State(
        apps.names, forecast.begin(count), saturation.begin(count), none, none, unknown, unknown, none, unknown,
        unknown, none, none, none, none, none, none, np.ones(count), given, given,
    )  # fmt: skip


def _aligned(state: State, apps: Applications, shares: Floats | None) -> State:
    """Return the state for other applications: those that stay keep what is known of them."""
    if state.names == apps.names:
        return state
    known = {name: i for i, name in enumerate(state.names)}
    places = np.array([known.get(name, -1) for name in apps.names], np.int64)
    fresh = begin(apps, shares)

    def kept(old: Floats, new: Floats) -> Floats:
        return np.where(places >= 0, old[places], new) if len(old) else new

    columns = ("done_rps", "used", "work_s", "level_rps", "trend_rps", "guess_rps", "plain_rps", "told_rps", "came_rps",
               "miss", "plain_miss", "blend_miss", "demand", "trim", "shares", "set_before")  # fmt: skip
    return replace(
        fresh,
        history=forecast.taken(state.history, places),
        interference=saturation.taken(state.interference, places),
        held_back=state.held_back,
        now_s=state.now_s,
        **cast(dict[str, Any], {key: kept(getattr(state, key), getattr(fresh, key)) for key in columns}),
    )


def step(
    state: State,
    now_s: float,
    readings: Readings,
    apps: Applications,
    capacity: float,
    settings: Settings,
    disturb: Disturb | None = None,
    set_before: Floats | None = None,
) -> tuple[State, Decision]:
    """Return what is known after a measurement, and what follows from it.

    Args:
        state: What was known before.
        now_s: When; only told on, and checked.
        readings: What was measured since the step before.
        apps: Who shares the machine, and what each is held to.
        capacity: Of the machine, in seconds of work at speed 1 in a second.
        settings: How to behave.
        disturb: Puts errors into forecasts.
        set_before: Shares that were set already of applications that are new here; NaN: none.
    """
    state = _aligned(state, apps, set_before)
    seen = cleaned(readings, apps.names)
    longest_s = LONGEST_GAP * settings.interval_s
    nonsense = seen.nonsense + oddities(readings, apps.names, now_s, state.now_s, longest_s)
    capacity = capacity if math.isfinite(capacity) and capacity > 0.0 else 0.0
    is_timed = math.isfinite(readings.seconds) and readings.seconds > 0.0
    is_known = seen.is_known["arrivals_rps"] & is_timed

    done_rps, used, work_s = _work(state, seen, is_timed)
    interference, found = saturation.observe(
        state.interference, seen["used"], seen["run_delay"], seen["throttled"],
        np.where(is_timed & seen.is_known["throughput_rps"] & seen.is_known["used"], seen["throughput_rps"], np.nan),
        1.0, seen.memory_bps,
    )  # fmt: skip
    held_back = min(1.0, max(LEAST_CAPACITY, state.held_back * SATURATED**found.excess))
    room = capacity * held_back

    expected = _expected(state, seen["arrivals_rps"], is_known, apps, settings, disturb)
    late_s = _latency(state, seen, work_s)
    trim = _trimmed(state, seen, apps, settings)
    wanted = _wanted(state, expected, seen["queue"], late_s, work_s, trim, apps, settings, room)
    demand = np.minimum(wanted, np.minimum(room, apps.most))
    falling = math.exp(-settings.interval_s / settings.response_s)
    before = np.minimum(state.demand, np.minimum(room, apps.most))
    demand = np.maximum(demand, falling * before + (1.0 - falling) * demand)

    shares = by_weight(demand, room, apps.grouped, np.minimum(apps.least, apps.most))
    shares = _with_spare(shares, demand, expected, work_s, apps, room, settings)
    reach = _lent(state, shares, demand, expected, seen, work_s, apps, room, settings)
    limits = _above_lighter(reach, shares, apps, room)
    alone = _apart(reach, demand, expected, apps, room, held_back, settings)
    predicted_s = _predicted(reach, expected, seen["queue"], work_s, settings)
    asked = np.maximum(demand, wanted)
    decision = Decision(
        now_s, apps.names, shares, reach, limits, alone, demand, asked,
        expected.rate_rps, seen["queue"], late_s, predicted_s, apps.goal_s, apps.most, apps.grouped.of, capacity,
        given_way(apps, reach, asked, predicted_s, work_s), nonsense, _because(asked, room, found),
    )  # fmt: skip
    known_now = State(
        apps.names, expected.history, interference, done_rps, used, work_s, expected.level_rps, expected.trend_rps,
        expected.guess_rps, expected.plain_rps, expected.told_rps, expected.came_rps, expected.miss,
        expected.plain_miss, expected.blend_miss, demand, trim, shares, state.set_before, held_back, now_s,
    )  # fmt: skip
    return known_now, decision


def _work(state: State, seen: Cleaned, is_timed: bool) -> tuple[Floats, Floats, Floats]:
    """Return records done and processor used in the mean, and what a record takes of it, as far as it is known.

    Means of both come first: what is read in batches comes in one second and is paid for in the next. But whoever does
    next to nothing of what comes, and uses next to nothing beside what is usual, stands still; what it uses then is no
    work of records.
    """
    done, used, came = seen["throughput_rps"], seen["used"], seen["arrivals_rps"]
    is_new = seen.is_known["throughput_rps"] & seen.is_known["used"] & is_timed
    is_new &= (done > 0.0) | (came > 0.0)  # what is used without any records is no work of theirs
    stands = _falls(done, LITTLE_DONE * came, 2.0 * LITTLE_DONE * came)
    stands = stands * _falls(used, LITTLE_USED * state.used, 2.0 * LITTLE_USED * state.used)
    gain = np.where(np.isnan(state.work_s), 1.0, WORK_GAIN * (1.0 - stands))
    # And it is found from as much as was done: of next to nothing, next to nothing follows.
    part = np.divide(done, LITTLE_DONE * came, out=(done > 0.0).astype(np.float64), where=came > LEAST_RATE_RPS)
    done = np.where(is_new, state.done_rps + gain * (done - state.done_rps), state.done_rps)
    used = np.where(is_new, state.used + gain * (used - state.used), state.used)
    is_sound = is_new & (part > 0.0) & (done > LEAST_RATE_RPS) & (used > 0.0)
    work_s = np.divide(used, done, out=state.work_s.copy(), where=is_sound)
    before = np.where(np.isnan(state.work_s), work_s, state.work_s)
    return done, used, np.clip(before + np.minimum(part, 1.0) * (work_s - before), LEAST_WORK_S, MOST_WORK_S)


def _falls(value: Floats, begin: Floats, end: Floats) -> Floats:
    """Return 1 up to where a value begins to be large, 0 from its end on, and straight in between: nothing leaps."""
    width = end - begin
    part = np.divide(end - value, width, out=np.zeros(len(value)), where=width > LEAST_SHARE)
    return np.clip(part, 0.0, 1.0)


@dataclass(frozen=True)
class _Expected:
    """Arrivals that are reckoned with, and the record of forecasts."""

    rate_rps: Floats  # that is expected, the highest of the horizon
    rates_rps: Floats  # that may come if it goes badly, intervals by applications
    ca2: Floats  # squared coefficient of variation of arrivals within a second
    history: forecast.History
    level_rps: Floats
    trend_rps: Floats
    guess_rps: Floats
    plain_rps: Floats
    told_rps: Floats
    came_rps: Floats
    miss: Floats
    plain_miss: Floats
    blend_miss: Floats


def _expected(
    state: State, came_rps: Floats, is_known: Bools, apps: Applications, settings: Settings, disturb: Disturb | None
) -> _Expected:
    """Forecast arrivals; a forecast that does worse than a plain guess counts for less."""
    history = forecast.observe(state.history, came_rps, is_known)
    level, trend = _smoothed(state, came_rps, is_known)
    guess = state.guess_rps * _set_right(state.told_rps, state.came_rps)
    was_told = is_known & ~np.isnan(state.guess_rps)  # and then a plain guess was, too
    told = _followed(state.told_rps, state.guess_rps, was_told)
    came = _followed(state.came_rps, came_rps, was_told)
    miss = _recorded(state.miss, guess, came_rps, was_told)
    plain_miss = _recorded(state.plain_miss, state.plain_rps, came_rps, was_told)
    trust = _trust(state.miss, state.plain_miss)
    blend_miss = _recorded(state.blend_miss, trust * guess + (1.0 - trust) * state.plain_rps, came_rps, was_told)
    ahead = forecast.ahead(history, settings.horizon)
    mean = ahead.mean_rps if disturb is None else np.maximum(0.0, disturb(ahead.mean_rps))
    steps = np.cumsum(DAMPING ** np.arange(1, settings.horizon + 1))[:, None]
    plain = np.where(np.isnan(level), 0.0, np.maximum(0.0, level + steps * trend))
    trust = _trust(miss, plain_miss)
    blend = trust * mean * _set_right(told, came) + (1.0 - trust) * plain
    chance = blend / max(settings.interval_s, 1e-9)  # the square error of a mean that is known, with chance alone
    widest = np.maximum(WIDEST * blend, 3.0 * np.sqrt(chance))
    growth = ahead.deviation_rps / np.maximum(ahead.deviation_rps[0], LEAST_RATE_RPS)
    deviation = np.minimum(np.sqrt(blend_miss) * np.clip(growth, 1.0, 3.0), widest)
    rates = blend + apps.caution * deviation
    rate = blend.max(axis=0)
    ca2 = np.clip(blend_miss * settings.interval_s / np.maximum(rate, LEAST_RATE_RPS), 1.0, MOST_CA2)
    return _Expected(
        rate, rates, ca2, history, level, trend, mean[0], plain[0], told, came, miss, plain_miss, blend_miss
    )


def _recorded(record: Floats, guess: Floats, came: Floats, was_told: Bools) -> Floats:
    return np.where(was_told, record + RECORD_GAIN * ((came - guess) ** 2 - record), record)


def _smoothed(state: State, came_rps: Floats, is_known: Bools) -> tuple[Floats, Floats]:
    """Return the level of arrivals and their trend: a plain guess, which forecasts are weighed against."""
    miss = came_rps - (state.level_rps + DAMPING * state.trend_rps)
    is_next = is_known & ~np.isnan(state.level_rps)
    level = np.where(is_next, came_rps - (1.0 - LEVEL_GAIN) * miss, np.where(is_known, came_rps, state.level_rps))
    trend = np.where(is_next, DAMPING * state.trend_rps + TREND_GAIN * miss, state.trend_rps)
    return level, trend


def _followed(mean: Floats, value: Floats, is_known: Bools) -> Floats:
    return np.where(is_known, mean + BIAS_GAIN * (value - mean), mean)


def _set_right(told: Floats, came: Floats) -> Floats:
    """Return by what a forecast is multiplied that is always wrong in the same way."""
    found = np.divide(came, told, out=np.ones(len(told)), where=told > LEAST_RATE_RPS)
    return np.clip(found, 1.0 / MOST_BIAS, MOST_BIAS)


def _trust(miss: Floats, plain_miss: Floats) -> Floats:
    """Return how much of the forecast is taken, beside the plain guess."""
    a, b = plain_miss * plain_miss, miss * miss
    total = a + b
    return np.where(total > 0.0, a / np.where(total > 0.0, total, 1.0), 0.5)


def _latency(state: State, seen: Cleaned, work_s: Floats) -> Floats:
    """Return the latency that records seem to have at present: what was measured, and what those that wait will see."""
    share = np.where(np.isfinite(state.shares) & (state.shares > 0.0), state.shares, np.inf)
    share = np.minimum(share, np.where(seen["share"] > 0.0, seen["share"], np.inf))
    is_known = np.isfinite(share) & (work_s > 0.0)
    does_rps = np.divide(share, work_s, out=np.zeros(len(share)), where=is_known)
    does_rps = np.maximum(does_rps, seen["throughput_rps"])
    waits_s = np.where(seen["queue"] > 0.0, seen["queue"] / np.maximum(does_rps, LEAST_RATE_RPS), 0.0)
    return np.minimum(np.maximum(seen.measured_s, waits_s), 1e6)


def _trimmed(state: State, seen: Cleaned, apps: Applications, settings: Settings) -> Floats:
    """Return by what demand is multiplied: more while records are late, nothing waits, and the limit is used up.

    What waits is in the model. Latency that is too long without it says that the model is wrong; but whoever does not
    use what it has would not be faster with more.
    """
    aim_s = settings.margin * apps.goal_s
    over = seen["late_s"] / aim_s  # 0 where it is not known
    had = _had(state, seen)
    full = np.divide(seen["used"], had, out=np.zeros(len(aim_s)), where=had > LEAST_SHARE)
    pressed = np.clip((full - 0.5) / 0.3, 0.0, 1.0)
    explains = seen["queue"] / np.maximum(seen["throughput_rps"] * aim_s, LEAST_RATE_RPS)  # 1 and 2: half, all of it
    rise = np.clip(over, 1.0, MOST_RISE) ** (np.clip(2.0 - explains, 0.0, 1.0) * pressed)
    # It fades while records are early, and while they are late and more would not help; nothing leaps in between.
    calm = np.clip((0.75 - over) / 0.25, 0.0, 1.0)
    vain = np.clip((over - 1.0) / (MOST_RISE - 1.0), 0.0, 1.0) * (1.0 - pressed)
    idle = np.clip((0.5 - full) / 0.2, 0.0, 1.0) * (seen["used"] > 0.0)  # less would have done as well
    faded = 1.0 + (state.trim - 1.0) * (1.0 - (1.0 - CALM_TRIM) * np.maximum(calm + vain, idle))
    return np.clip(faded * rise, 1.0, MOST_TRIM)


def _wanted(
    state: State, expected: _Expected, queue: Floats, late_s: Floats, work_s: Floats, trim: Floats, apps: Applications,
    settings: Settings, room: float,
) -> Floats:  # fmt: skip
    """Return the least shares with which the references are kept over the horizon.

    The machine may have less, and the application may not be able to use as much: both are for the caller.
    """
    aim_s = settings.margin * apps.goal_s
    over_s = np.maximum(0.0, late_s - aim_s)
    does_rps = least_rate(expected.rate_rps, (1.0 - settings.queue_part) * aim_s, settings.part, expected.ca2)
    coming = queue
    for k in range(1, settings.horizon + 1):
        passed_s = k * settings.interval_s
        coming = coming + expected.rates_rps[k - 1] * settings.interval_s
        reference_s = aim_s + over_s * math.exp(-passed_s / settings.response_s)
        does_rps = np.maximum(does_rps, coming / (passed_s + settings.queue_part * reference_s))
    is_idle = (expected.rate_rps <= LEAST_RATE_RPS) & (queue <= 0.0)
    is_unseen = is_idle & np.isnan(expected.level_rps)  # it was never known what comes to it
    wanted = np.where(is_idle, np.where(is_unseen, np.nan, 0.0), does_rps * work_s * trim)
    # Of whom nothing is known: what an earlier controller found and set, which knew more; else as much as everybody.
    unknown = np.where(np.isfinite(state.set_before), state.set_before, room / max(1, len(apps.names)))
    wanted = np.where(np.isfinite(wanted), wanted, unknown)
    return np.maximum(wanted, apps.least)


def _with_spare(
    shares: Floats, demand: Floats, expected: _Expected, work_s: Floats, apps: Applications, room: float,
    settings: Settings,
) -> Floats:  # fmt: skip
    """Hand out what nobody asks for, so that a burst that nobody foresaw finds room; nobody gets what it cannot use."""
    left = room - float(shares.sum())
    if left <= 0.0:
        return shares
    if settings.is_delay:
        work = np.where(np.isfinite(work_s), work_s, 0.0)
        best = by_delay(expected.rate_rps, work, apps.weight, room)
        by = np.maximum(best - shares, 0.0) + 1e-3 * demand
    else:
        by = apps.weight * np.maximum(demand, apps.least)
    if float(by.sum()) <= 0.0:  # nobody asks for anything: the same for everybody
        by = np.ones(len(shares))
    return spread(shares, room, by, apps.most)


def _lent(
    state: State, shares: Floats, demand: Floats, expected: _Expected, seen: Cleaned, work_s: Floats,
    apps: Applications, room: float, settings: Settings,
) -> Floats:  # fmt: skip
    """Return what each can reckon with: its share, and what others have and are not expected to use.

    All together are expected to use no more than the machine. Whoever lacks something is lent to first, and nobody whom
    something else holds up: that one does not even use what it has.
    """
    wants = work_s * (expected.rate_rps + seen["queue"] / (settings.horizon * settings.interval_s))
    used = np.minimum(shares, np.where(np.isfinite(wants), wants, shares))
    held_up = _held_up(state, seen)
    used = used - held_up * np.maximum(0.0, used - QUICKENING * _would_use(seen))
    lent = LENT * max(0.0, room - float(used.sum()))
    uses = 1.0 - held_up  # of more than it has
    most = np.minimum(apps.most, max(room, 0.0))
    limits = shares + by_weight(uses * np.maximum(0.0, demand - shares), lent, apps.grouped)
    by = apps.weight * np.maximum(demand, apps.least)
    limits = spread(limits, float(shares.sum()) + lent, by, shares + uses * np.maximum(0.0, most - shares))
    return np.minimum(limits, most)


def _would_use(seen: Cleaned) -> Floats:
    """Return what was used, and what would have been if a processor had been free and no limit had been there."""
    return seen["used"] + seen["run_delay"]


def _above_lighter(reach: Floats, shares: Floats, apps: Applications, room: float) -> Floats:
    """Return limits: what each can reckon with, and what lighter classes have.

    Heavier classes come first, so nothing of a lighter one needs to be kept from them. An application that is suddenly
    short, because Java tidies up or a burst comes that nobody foresaw, has it at once and not in the next second. Only
    for a governor that keeps shares by weights: to one that does not, so many limits say nothing.
    """
    of_class = np.bincount(apps.grouped.of, shares, len(apps.grouped.weights))
    lighter = of_class.sum() - np.cumsum(of_class)
    more = np.maximum(lighter, 0.0)[apps.grouped.of]
    return np.asarray(np.minimum(reach + more, np.minimum(apps.most, max(room, 0.0))), np.float64)


def _apart(
    reach: Floats, demand: Floats, expected: _Expected, apps: Applications, room: float, held_back: float,
    settings: Settings,
) -> Floats:  # fmt: skip
    """Return limits where limits alone keep shares: what each can reckon with, and room for a load that leaps.

    Whose load nobody foresees may use its part by weight, the more of it the more forecasts erred beyond chance, and as
    long as heavier classes would still find what they ask for. Not so where the machine is held back: it would be used.
    """
    rate = np.maximum(expected.rate_rps, LEAST_RATE_RPS)
    beyond = np.maximum(expected.blend_miss - rate / max(settings.interval_s, 1e-9), 0.0)
    calm = (held_back - LEAST_CAPACITY) / (1.0 - LEAST_CAPACITY)
    part = apps.weight * (calm * room / max(float(apps.weight.sum()), 1e-300))
    part = part * np.minimum(np.sqrt(beyond) / (SURPRISED * rate), 1.0)
    count = len(apps.grouped.weights)
    asked, parts = (np.bincount(apps.grouped.of, one, count) for one in (demand, part))
    left = np.maximum(room - (np.cumsum(asked) - asked), 0.0)
    fits = np.divide(left, parts, out=np.zeros(count), where=parts > 1e-200)
    part = part * np.minimum(fits, 1.0)[apps.grouped.of]
    return np.asarray(np.minimum(np.maximum(reach, part), apps.most), np.float64)


def _had(state: State, seen: Cleaned) -> Floats:
    """Return the share that each one had, and no more than its limit; infinite where neither is known."""
    return np.asarray(np.fmin(np.where(np.isfinite(state.shares), state.shares, np.inf), seen["share"]), np.float64)


def _held_up(state: State, seen: Cleaned) -> Floats:
    """Return how sure it is that something else than processor holds an application up: 0 to 1.

    Records wait, and yet it uses little of what it has. Where no limit was set, or nothing was measured, nobody knows.
    """
    limit = np.where(np.isfinite(seen["share"]), _had(state, seen), 0.0)
    idle = _falls(_would_use(seen), IDLE * limit, BUSY * limit) * (limit > LEAST_SHARE) * seen.is_known["used"]
    waits_s = np.divide(seen["queue"], seen["arrivals_rps"], out=np.full(len(limit), np.inf),
                        where=seen["arrivals_rps"] > LEAST_RATE_RPS)  # fmt: skip
    waits_s = np.where(seen["queue"] > 0.0, waits_s, 0.0)
    return idle * np.clip((waits_s - FEW_S) / (MANY_S - FEW_S), 0.0, 1.0)


def _predicted(reach: Floats, expected: _Expected, queue: Floats, work_s: Floats, settings: Settings) -> Floats:
    """Return the latency that 99 of 100 records stay below at the end of the horizon, with what is within reach."""
    does_rps = reach / np.where(work_s > 0.0, work_s, np.inf)
    does_rps = np.where(does_rps > 0.0, does_rps, LEAST_RATE_RPS)
    waits = queue + (expected.rates_rps.sum(axis=0) - does_rps * settings.horizon) * settings.interval_s
    waits_s = np.maximum(0.0, waits) / does_rps
    # What more may come than is expected is in what waits by then: it does not last long enough to be a load.
    chance_s = wait_percentile(expected.rate_rps, does_rps, settings.part, expected.ca2)
    horizon_s = settings.horizon * settings.interval_s
    gathered = _deviations(settings.part) * np.sqrt(
        (expected.ca2 + 1.0) * expected.rate_rps * horizon_s
    )  # by a random walk
    found = np.minimum(chance_s, gathered / does_rps) + waits_s + 1.0 / does_rps
    return np.where(np.isfinite(work_s), np.minimum(found, 1e6), np.nan)


@cache
def _deviations(part: float) -> float:
    """Return within how many deviations of the mean this part of a normal distribution lies, from below."""
    return float(quantile(part))


def _because(asked: Floats, room: float, found: saturation.Interference) -> str:
    total = float(asked.sum())
    text = f"goals ask for {total:.3g} of {room:.3g} cores"
    if total > room:
        text += ", more than there is"
    return f"{text}; {found.because}" if found.is_saturated else text
