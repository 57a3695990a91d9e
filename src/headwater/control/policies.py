"""Which ways of sharing a machine are there?

Ours is `Predictive` (`control.mpc`). The others are what it is measured against, and what a user may prefer where
there is nothing to hold: each one decides from the same readings, and remembers what it needs between two seconds.

    equal      nothing is limited: every record counts alike, as engines do by default
    fixed      everybody has the same limit
    weighted   shares by weight; what one does not ask for goes to the others by weight
    priority   heavier classes get all that they ask for, the others what is left
    reactive   a share grows when it is nearly used up or its goal is missed, and shrinks when it lies idle
    paper      the controller of paper 003 as it is written: means, and dynamic programming on a grid
    predictive model-predictive control
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Protocol

import numpy as np

from headwater.control import forecast, mpc
from headwater.control.allocate import by_weight, spread
from headwater.control.bellman import bellman
from headwater.control.decision import Applications, Decision, given_way
from headwater.control.readings import Cleaned, Floats, Readings, cleaned, oddities

__all__ = [
    "POLICIES", "SUMMARIES", "Equal", "Fixed", "Paper", "Policy", "Predictive", "Priority", "Reactive", "Weighted",
]  # fmt: skip

WORK_GAIN = 0.3
TOLD_S = 3.0  # within which what waits would have to be done, where it is told what is missing; `mpc` looks as far


class Policy(Protocol):
    """A way of sharing a machine."""

    def decide(self, now_s: float, readings: Readings, apps: Applications, capacity: float) -> Decision:
        """Return shares from what was measured since the last call."""


@dataclass
class Predictive:
    """Model-predictive control."""

    settings: mpc.Settings = field(default_factory=mpc.Settings)
    disturb: mpc.Disturb | None = None
    set_before: Mapping[str, float] = field(default_factory=dict)  # shares that are set already when it begins
    state: mpc.State | None = None

    def decide(self, now_s: float, readings: Readings, apps: Applications, capacity: float) -> Decision:
        """Return shares that hold the goals."""
        shares = None
        if self.state is None or self.state.names != apps.names:
            shares = np.array([self.set_before.get(name, math.nan) for name in apps.names], np.float64)
        state = mpc.begin(apps, shares) if self.state is None else self.state
        self.state, decision = mpc.step(state, now_s, readings, apps, capacity, self.settings, self.disturb, shares)
        return decision


@dataclass
class _Rival:
    """What the simple ways have in common: they reckon with what came last, and with all that waits at once."""

    work_s: dict[str, float] = field(default_factory=dict)
    now_s: float = math.nan
    is_by_class: ClassVar[bool] = False  # whether heavier classes come first

    def decide(self, now_s: float, readings: Readings, apps: Applications, capacity: float) -> Decision:
        """Return shares, within what is there and what each one needs at least and can use at most."""
        seen = cleaned(readings, apps.names)
        longest_s = mpc.LONGEST_GAP * max(1.0, readings.seconds)
        nonsense = seen.nonsense + oddities(readings, apps.names, now_s, self.now_s, longest_s)
        self.now_s = now_s
        capacity = capacity if math.isfinite(capacity) and capacity > 0.0 else 0.0
        work_s = self._work(apps, seen)
        seconds = readings.seconds if readings.seconds > 0.0 else 1.0
        wanted = np.minimum(work_s * (seen["arrivals_rps"] + seen["queue"] / seconds), apps.most)
        shares, reach, limits = self._decided(seen, wanted, apps, capacity)
        # What is told to be missing must not depend on how often somebody looks.
        asked = work_s * (seen["arrivals_rps"] + seen["queue"] / max(seconds, TOLD_S))
        late_s = seen.measured_s
        gives_way = given_way(apps, reach, asked, late_s, work_s)
        expected_s = np.where(late_s > 0.0, late_s, np.nan)  # what came last will go on, if anything did
        return Decision(
            now_s, apps.names, shares, reach, limits, reach, wanted, asked, seen["arrivals_rps"], seen["queue"], late_s,
            expected_s, apps.goal_s, apps.most, apps.grouped.of, capacity, gives_way, nonsense,
            is_by_class=self.is_by_class,
        )  # fmt: skip

    def _decided(
        self, seen: Cleaned, wanted: Floats, apps: Applications, capacity: float
    ) -> tuple[Floats, Floats, Floats]:
        """Return shares, what each can reckon with, and limits where weights keep shares; all of them are the same."""
        shares = _within(self._shares(seen, wanted, apps, capacity), apps, capacity)
        self._keep(apps, shares)
        return shares, shares, shares

    def _work(self, apps: Applications, seen: Cleaned) -> Floats:
        before = np.array([self.work_s.get(name, np.nan) for name in apps.names])
        with np.errstate(divide="ignore", invalid="ignore"):
            fresh = np.where((seen["used"] > 0.0) & (seen["throughput_rps"] > 0.0),
                             seen["used"] / seen["throughput_rps"], np.nan)  # fmt: skip
        work = np.where(
            np.isnan(before), fresh, np.where(np.isnan(fresh), before, before + WORK_GAIN * (fresh - before))
        )
        work = np.clip(work, mpc.LEAST_WORK_S, mpc.MOST_WORK_S)
        self.work_s = dict(zip(apps.names, work.tolist(), strict=True))
        return np.where(np.isnan(work), 0.0, work)

    def _shares(self, seen: Cleaned, wanted: Floats, apps: Applications, capacity: float) -> Floats:
        raise NotImplementedError

    def _keep(self, apps: Applications, shares: Floats) -> None:
        """Remember what was decided, if that matters next time."""


def _within(shares: Floats, apps: Applications, capacity: float) -> Floats:
    """Return shares of which none is below its least, as far as that can be for all, and none above its most."""
    shares = np.minimum(shares, apps.most)
    first = np.minimum(apps.least, apps.most)
    needed = float(first.sum())
    if needed > capacity:
        return np.asarray(first * (capacity / needed), np.float64)
    rest = np.maximum(shares - first, 0.0)
    total, left = float(rest.sum()), capacity - needed
    return np.asarray(first + (rest if total <= left else rest * (left / total)), np.float64)


class Equal(_Rival):
    """Nothing is limited, but for those that could not use more."""

    def _decided(
        self, seen: Cleaned, wanted: Floats, apps: Applications, capacity: float
    ) -> tuple[Floats, Floats, Floats]:
        return apps.most, apps.most, apps.most


class Fixed(_Rival):
    """The same limit for everybody."""

    def _shares(self, seen: Cleaned, wanted: Floats, apps: Applications, capacity: float) -> Floats:
        return np.full(len(wanted), capacity / max(1, len(wanted)))


class _Guaranteed(_Rival):
    """Everybody has its part by weight at any moment, whatever it asked for a second ago; nobody is kept below it.

    Where weights keep shares, as in the kernel, nothing else is limited. Where there are limits alone, one is what a
    class is found to get, and never less than its part.
    """

    def _decided(
        self, seen: Cleaned, wanted: Floats, apps: Applications, capacity: float
    ) -> tuple[Floats, Floats, Floats]:
        shares = _within(self._shares(seen, wanted, apps, capacity), apps, capacity)
        part = apps.weight * (capacity / max(float(apps.weight.sum()), 1e-300))
        return shares, np.maximum(shares, np.minimum(part, apps.most)), apps.most


class Weighted(_Guaranteed):
    """By weight, as weighted fair queueing does."""

    def _shares(self, seen: Cleaned, wanted: Floats, apps: Applications, capacity: float) -> Floats:
        shares, open_ = np.zeros(len(wanted)), np.ones(len(wanted), bool)
        left = capacity
        while left > 1e-12 * capacity and open_.any():
            offer = np.where(open_, apps.weight * left / apps.weight[open_].sum(), 0.0)
            is_enough = open_ & (wanted - shares <= offer)
            if not is_enough.any():
                return shares + offer
            left -= float((wanted - shares)[is_enough].sum())
            shares = np.where(is_enough, wanted, shares)
            open_ &= ~is_enough
        return spread(shares, capacity, apps.weight, apps.most)


class Priority(_Guaranteed):
    """The heaviest first."""

    is_by_class = True

    def _shares(self, seen: Cleaned, wanted: Floats, apps: Applications, capacity: float) -> Floats:
        return spread(by_weight(wanted, capacity, apps.grouped), capacity, apps.weight, apps.most)


@dataclass
class Reactive(_Rival):
    """Thresholds."""

    shares: dict[str, float] = field(default_factory=dict)
    rise: float = 1.3
    fall: float = 0.9
    full: float = 0.8
    idle: float = 0.4

    def _shares(self, seen: Cleaned, wanted: Floats, apps: Applications, capacity: float) -> Floats:
        fair = capacity / max(1, len(wanted))
        before = np.array([self.shares.get(name, fair) for name in apps.names])
        is_short = (seen.measured_s > apps.goal_s) | (seen["used"] > self.full * before)
        is_idle = ~is_short & (seen["used"] < self.idle * before)
        after = before * np.where(is_short, self.rise, np.where(is_idle, self.fall, 1.0))
        after = np.maximum(after, 0.01 * fair)
        total = float(after.sum())
        return np.asarray(after if total <= capacity else after * (capacity / total), np.float64)

    def _keep(self, apps: Applications, shares: Floats) -> None:
        self.shares = dict(zip(apps.names, shares.tolist(), strict=True))


@dataclass
class Paper(_Rival):
    """Paper 003 as it is written."""

    response: float = 3.0  # T_ref, in control intervals
    finest: int = 800  # quanta of the machine, at least: 1 % of each of eight cores
    history: forecast.History | None = None
    before: Floats | None = None
    names: tuple[str, ...] = ()  # that both of these are about

    def _shares(self, seen: Cleaned, wanted: Floats, apps: Applications, capacity: float) -> Floats:
        count = len(wanted)
        fair = np.full(count, capacity / max(1, count))
        if self.history is None or self.before is None:
            self.history, self.before = forecast.begin(count), fair
        elif self.names != apps.names:
            known = {name: i for i, name in enumerate(self.names)}
            places = np.array([known.get(name, -1) for name in apps.names], np.int64)
            self.history = forecast.taken(self.history, places)
            self.before = np.where(places >= 0, self.before[places], fair) if len(self.before) else fair
        self.names = apps.names
        self.history = forecast.observe(self.history, seen["arrivals_rps"], seen.is_known["arrivals_rps"])
        rate = forecast.ahead(self.history, 1).mean_rps[0]
        work = np.array([self.work_s[name] for name in apps.names])
        work = np.where(np.isnan(work), 0.0, work)
        # Equation 1 with what waits: (queue + 1) / mu + rho / (mu - rate) = goal, one server, solved for mu.
        goal, queue = apps.goal_s, seen["queue"]
        half = 0.5 * (rate + (queue + 1.0) / goal)
        does = half + np.sqrt(np.maximum(0.0, half * half - queue * rate / goal))
        demand = does * work
        quanta = max(self.finest, 8 * count)
        part = demand / capacity if capacity > 0.0 else np.zeros(count)
        asked = np.minimum(np.ceil(part * quanta), quanta).astype(np.int64)
        is_enough = int(asked.sum()) <= quanta
        target = demand if is_enough else bellman(asked, quanta, apps.weight) * (capacity / quanta)
        self.before = self.before + (1.0 - math.exp(-1.0 / self.response)) * (target - self.before)
        return self.before


POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        "equal": Equal, "fixed": Fixed, "weighted": Weighted, "priority": Priority, "reactive": Reactive,
        "paper": Paper, "predictive": Predictive,
    }
)  # fmt: skip

SUMMARIES: Mapping[str, str] = MappingProxyType(
    {
        "equal": "Nothing is limited: every record counts alike, as engines do by default.",
        "fixed": "Everybody has the same limit, whatever comes.",
        "weighted": "Shares by weight; what one does not ask for goes to the others by weight.",
        "priority": "Heavier classes get all that they ask for, the others what is left.",
        "reactive": "A share grows when it is nearly used up or its goal is missed, and shrinks when it lies idle.",
        "paper": "The controller of paper 003 as it is written: means, and dynamic programming on a grid.",
        "predictive": "Forecasts what comes, finds the share with which each goal is kept, and says which give way.",
    }
)
