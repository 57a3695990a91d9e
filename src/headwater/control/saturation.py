"""Do the applications of a machine slow each other down, and is the machine saturated?

Takes what each application used and waited in an interval, gives by what factor a record costs more processor than in
calm, which share of its time an application waits for others, and whether the machine as a whole is saturated. What to
do about it is left to the controller.

Two kinds of interference are told apart. Waiting for a processor shows as run delay, less what the own limit caused.
Waiting for caches and memory shows as processor time: the same record needs more of it. So each application has a
baseline of records per processor second: it rises quickly and, while the machine is calm, falls slowly, like a maximum
that forgets. Where hardware counters tell the memory's traffic, 80 % of its ceiling is saturation. Where they
do not, it is several applications slowed down together; one alone has only changed its own work.

That records cost more on a full machine does not say that less of it would do more: two threads of one core slow each
other down, and yet do more than one. So what all applications do, at the cost of calm, is remembered where it was most:
with less use and less done than there, of much the same mix, to hold back still more would be in vain, and it is
slowly let go instead. Slowly, because less may be used and done also where holding back works, and nothing waits.

What an application uses without any records makes each record look dear when few come. But then it uses less
altogether, while one that is disturbed uses more, or, held back by its limit or by others, as much for fewer records.
So an application that nothing holds back is slowed down at most as far as its use is above the usual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

__all__ = ["Interference", "State", "begin", "observe", "taken"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SMOOTHING = 0.25  # weight of the newest interval: batches use in one interval what they write in the next
RISE, FALL = 0.2, 0.02  # of the baseline, per interval in calm
LEAK = 0.001  # fall while the machine is not calm: what lasts for an hour is no interference but the new cost; and rise
# of a ceiling that was learned, in each interval in which nobody is slow near to it
MATURE = 10.0  # intervals before a baseline is compared
HELD = 0.1  # share of the interval, throttled, from which on an application is held back
SLOW, STILL_SLOW = 1.2, 1.1  # slowdown that counts; that goes on counting while the machine is saturated
# Slowdown of those that are slow together above which the machine is held back; by how much more it is fully so, and by
# how much less it is fully let go; the first of it for the part of the memory's ceiling above `FULL`. In between, what
# is held back goes with it, so that nothing leaps and no constant load swings from one to the other. From a little
# below on, baselines stand still: else they would follow the slowdown that is being held, and let it grow.
EASY, WIDTH, ROOM, MEMORY_WIDTH = 1.15, 1.0, 0.4, 0.1
TOGETHER = 0.5  # share of the compared applications that must be slow, and at least two
FULL = 0.8  # of the memory's ceiling
# By how much less is done than at the most that was seen, as a part of it, where the machine is let go although all are
# slow; how far below the use of then that counts fully; by how much a second what was seen counts less; how fast it is
# let go at most. The mix counts as another from the first part in common on, and as the same from the second on.
VAIN, BELOW, FORGOTTEN, GENTLE = 0.2, 0.1, 5e-4, 0.2
OTHER_MIX, SAME_MIX = 0.6, 0.8
WAITING = 0.2  # contention from which on an application is not calm, and held back
MOST_SLOWDOWN = 100.0
LEAST_USED_S, LEAST_RPS, MOST = 1e-6, 1e-9, 1e15  # readings outside say nothing


@dataclass(frozen=True, slots=True)
class State:
    """What is known of each application and of the machine."""

    seen: Floats  # intervals with traffic until now
    records: Floats  # smoothed records per interval second
    used: Floats  # smoothed processor seconds per interval second
    baseline: Floats  # records per processor second in calm
    usual: Floats  # processor seconds per interval second at which the baseline holds
    slowdown: Floats  # as it was last found
    most: Floats  # records per interval second when all together did most
    ceiling_bps: float = math.nan  # memory traffic at which applications were slowed down together, the most of it
    is_saturated: bool = False
    most_used: float = 0.0  # processor seconds per interval second of all, when they did most


@dataclass(frozen=True, slots=True)
class Interference:
    """How applications disturb each other at present."""

    slowdown: Floats  # by what factor a record costs more processor than in calm; 1 or more
    contention: Floats  # share of its time that an application waits for others; 0 to 1
    is_saturated: bool  # the machine
    because: str
    excess: float  # how far it is beyond what it bears; 1: fully, 0: just so, below 0: there is room; -1 to 1


def begin(count: int) -> State:
    """Return the state of applications of which nothing is known.

    >>> begin(2).slowdown
    array([1., 1.])
    """
    nothing = np.zeros(count)
    return State(nothing, nothing, nothing, nothing, nothing, np.ones(count), nothing)


def observe(
    state: State,
    used_s: Floats,
    run_delay_s: Floats,
    throttled_s: Floats,
    throughput_rps: Floats,
    interval_s: float,
    memory_bps: float | None = None,
    ceiling_bps: float | None = None,
) -> tuple[State, Interference]:
    """Return the state after one more interval, and the interference in it.

    Nonsense (negative, not a number, beyond all reason) is ignored for its application: nothing is learned from it,
    its slowdown stays, its contention is 0. Without traffic nothing is learned, and nothing is slow.

    Args:
        state: what was known before.
        used_s: processor seconds used in the interval.
        run_delay_s: seconds that threads could run but waited for a processor, summed over threads.
        throttled_s: the part of it that the own limit caused.
        throughput_rps: records processed per second.
        interval_s: length of the interval.
        memory_bps: traffic between the machine's processors and its memory; None where no counters tell.
        ceiling_bps: the most that the memory can carry; None where that is not known.
    """
    read = np.array((used_s, run_delay_s, throttled_s, throughput_rps))
    is_sane = ((read >= 0.0) & (read <= MOST)).all(axis=0) & (LEAST_USED_S <= interval_s <= MOST)
    used_s, run_delay_s, throttled_s, throughput_rps = np.where(is_sane, read, 0.0)
    contention = _contention(used_s, run_delay_s, throttled_s)
    has_traffic = (throughput_rps >= LEAST_RPS) & (used_s >= LEAST_USED_S)

    seen = state.seen + has_traffic
    gain = np.where(has_traffic, np.maximum(SMOOTHING, 1.0 / np.maximum(seen, 1.0)), 0.0)
    records = state.records + gain * (throughput_rps - state.records)
    used = state.used + gain * (used_s / (interval_s if is_sane.any() else 1.0) - state.used)
    pace = np.divide(records, used, out=np.zeros(len(used)), where=used > 0.0)

    is_compared = has_traffic & (state.seen >= MATURE)
    is_held = (throttled_s >= HELD * interval_s) | (contention >= WAITING)
    ratio = np.divide(state.baseline, pace, out=np.ones(len(pace)), where=is_compared)
    above = np.divide(used, state.usual, out=np.ones(len(used)), where=is_compared & ~is_held)
    ratio = np.where(is_held, ratio, np.minimum(ratio, above))
    slowdown = np.where(is_sane, np.clip(ratio, 1.0, MOST_SLOWDOWN), state.slowdown)

    limit = STILL_SLOW if state.is_saturated else SLOW
    counts = is_compared | (~is_sane & (state.seen >= MATURE))  # who says nothing for a moment is as it was
    is_slow = counts & (slowdown > limit)
    slow, compared = int(is_slow.sum()), int(counts.sum())
    are_together = slow >= max(2.0, TOGETHER * compared)
    common = _common(slowdown[counts])
    told_bps = memory_bps if _is_positive(memory_bps) else None
    known_bps = ceiling_bps if _is_positive(ceiling_bps) else None
    is_saturated, because = _judged(state, told_bps, known_bps, are_together)
    if not because:
        because = f"{slow} of {compared} applications need over {limit:g} times the processor for a record"
        because += f", {float(np.median(slowdown[is_slow])):.2f} times in the median." if slow else "."

    is_calm = (contention < WAITING) & (not (is_saturated or common > STILL_SLOW))
    fall = np.where(seen <= MATURE, 1.0 / np.maximum(seen, 1.0), FALL)  # a young baseline that falls is a mean
    fall = np.where(has_traffic, np.where(is_calm, fall, LEAK), 0.0)
    rise = np.where(has_traffic, np.where(seen == 1.0, 1.0, RISE), 0.0)  # at any time: interference makes nothing cheap
    usually = np.where(pace > state.baseline, rise, fall)  # the use goes with the baseline that was found at it
    learned = replace(
        state,
        seen=seen,
        records=records,
        used=used,
        baseline=_moved(state.baseline, pace, rise, fall),
        usual=_moved(state.usual, used, usually, fall),
        slowdown=slowdown,
        ceiling_bps=_ceiling(state.ceiling_bps, told_bps, are_together, slow),
        is_saturated=is_saturated,
    )
    learned, vain = _compared_with_most(learned)
    excess = _excess(state.ceiling_bps, told_bps, known_bps, common, vain)
    return learned, Interference(slowdown, contention, is_saturated, because, excess)


def taken(state: State, places: Ints) -> State:
    """Return entry places[i] as entry i, and one of which nothing is known where places[i] is negative.

    >>> taken(begin(1), np.array([0, -1])).seen
    array([0., 0.])
    """
    keeps = places >= 0
    found = {}
    for each in _ARRAYS:
        found[each] = getattr(begin(len(places)), each).copy()
        found[each][keeps] = getattr(state, each)[places[keeps]]
    if len(places) != len(state.most) or not keeps.all():
        found["most"] = np.zeros(len(places))  # others together do something else at most
    return replace(state, **found)


_OF_ALL = ("ceiling_bps", "is_saturated", "most_used")  # of the machine
_ARRAYS = tuple(each.name for each in fields(State) if each.name not in _OF_ALL)


def _is_positive(value: float | None) -> bool:
    return value is not None and 0.0 < value < math.inf


def _contention(used_s: Floats, run_delay_s: Floats, throttled_s: Floats) -> Floats:
    waited_s = np.maximum(run_delay_s - throttled_s, 0.0)
    all_s = used_s + waited_s
    contention: Floats = np.divide(waited_s, all_s, out=np.zeros(len(all_s)), where=all_s > 0.0)
    return contention


def _judged(state: State, memory_bps: float | None, ceiling_bps: float | None, are_together: bool) -> tuple[bool, str]:
    """Return whether the machine is saturated, and why if its memory's traffic tells.

    A ceiling that is known decides alone. One that was learned only says yes: another mix of work may have a lower one.
    """
    if memory_bps is not None:
        ceiling = state.ceiling_bps if ceiling_bps is None else ceiling_bps
        which = "of its ceiling" if ceiling_bps is not None else "of what it was when applications slowed down"
        is_full = memory_bps > FULL * ceiling  # false where no ceiling was learned
        if is_full or ceiling_bps is not None:
            return is_full, f"The memory's traffic is {100.0 * memory_bps / ceiling:.0f} % {which}."
    return are_together, ""


def _common(slowdown: Floats) -> float:
    """Return by how much all of those are slowed down that must be slow together, among those that are compared."""
    needed = max(2, math.ceil(TOGETHER * len(slowdown)))
    return float(np.partition(slowdown, -needed)[-needed]) if len(slowdown) >= needed else 1.0


def _compared_with_most(state: State) -> tuple[State, float]:
    """Return what is known of the most that was done, and how sure it is that holding back does harm, 0 to 1.

    It does when less is used than then, and less is done of the same mix. Records count by what they cost in calm, by
    what is known of that today: else a baseline that moves would make more or less of what was done before. Whoever is
    silent for a moment counts as it was: else the others would seem to do more, or less, than ever.
    """
    counts = (state.seen > MATURE) & (state.baseline > 0.0)
    cost = np.divide(1.0, state.baseline, out=np.zeros(len(state.baseline)), where=counts)
    now, then = state.records * cost, (1.0 - FORGOTTEN) * state.most * cost
    done, most, used = float(now.sum()), float(then.sum()), float(state.used[counts].sum())
    if done >= most:
        return replace(state, most=np.where(counts, state.records, 0.0), most_used=used), 0.0
    below = min(1.0, max(0.0, (1.0 - used / state.most_used) / BELOW)) if state.most_used > 0.0 else 0.0
    common = float(np.minimum(now / done, then / most).sum()) if done > 0.0 else 0.0
    alike = min(1.0, max(0.0, (common - OTHER_MIX) / (SAME_MIX - OTHER_MIX)))
    vain = alike * below * min(1.0, (1.0 - done / most) / VAIN)
    return replace(state, most=(1.0 - FORGOTTEN) * state.most), vain


def _excess(
    learned_bps: float, memory_bps: float | None, ceiling_bps: float | None, common: float, vain: float
) -> float:
    """Return how far the machine is beyond what it bears, as `_judged` judges it, without a leap."""
    slow = min(1.0, (common - EASY) / (WIDTH if common > EASY else ROOM))
    slow = max(slow - 2.0 * vain, min(slow, -GENTLE))
    if memory_bps is not None and ceiling_bps is not None:
        slow = (memory_bps / ceiling_bps - FULL) / MEMORY_WIDTH
    elif memory_bps is not None and learned_bps > 0.0:  # false where none was learned
        slow = max(slow, (memory_bps / learned_bps - FULL) / MEMORY_WIDTH)
    return min(1.0, max(-1.0, slow))


def _ceiling(learned_bps: float, memory_bps: float | None, are_together: bool, slow: int) -> float:
    """Return the traffic at which applications are taken to slow each other down; not a number: not known.

    Something else may have slowed them down while there was little traffic. What is learned then must not hold the
    machine back for ever: traffic above it that slows nobody down proves it wrong at once, and traffic near to it that
    slows nobody down for minutes does so as well.
    """
    if memory_bps is None:
        return learned_bps
    if are_together:
        return memory_bps if math.isnan(learned_bps) else max(learned_bps, memory_bps)
    if slow or not memory_bps > FULL * learned_bps:  # true where nothing was learned
        return learned_bps
    if memory_bps > learned_bps:
        return memory_bps / (FULL * (1.0 - LEAK))  # a little more, so that rounding does not call it full again
    return learned_bps * (1.0 + LEAK)


def _moved(old: Floats, new: Floats, rise: Floats, fall: Floats) -> Floats:
    moved: Floats = old + np.where(new > old, rise, fall) * (new - old)
    return moved
