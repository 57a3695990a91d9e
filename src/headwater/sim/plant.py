"""What state are all operators, machines and links in?

A `Plant` holds the flat arrays of a scenario and is changed in few ways: run on, place instances, switch operators
and machines on and off, change shares, loads and links. What it counted is read by `sim.result`.

When an instance moves, what waits for it comes along, for brokers keep it. Records that are on links whose route
is no more are sent again on the new one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from headwater.model.scenario import Samples, Scenario
from headwater.model.sites import Link, Sites
from headwater.model.workload import Sinusoid
from headwater.sim.advance import EXPONENTIAL, POISSON, advance
from headwater.sim.arrays import Counts, Detail, Floats, Ints, Knobs, Loads, State, empty_counts, empty_detail, settle
from headwater.sim.wiring import Cast, Wiring, cast, wire

__all__ = ["MOST_DETAILED", "SAMPLES", "Plant"]

MOST_DETAILED = 5_000  # instances with series and histograms; in larger runs only sums are kept
MOST_ROWS = 400  # of a series
MOST_CELLS = 4_000_000  # of all series of one kind
SAMPLES = 512  # of the history of arrivals; when they are full, two become one


class Plant:
    """The flat arrays of a scenario, from its first step on."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        """Make everybody who ever appears; operators and machines that come later are switched off."""
        self.cast: Cast = cast(scenario)
        self.dt = scenario.step_s
        self.steps = scenario.steps
        self.step = 0
        self._seed = np.uint64(seed)
        self._sites = scenario.sites
        there = {one.name for one in scenario.operators}
        self._is_there = [one.name in there for one in self.cast.operators]
        count = len(self.cast.operator_of)
        self.is_detailed = count <= MOST_DETAILED
        rows = min(MOST_ROWS, max(50, MOST_CELLS // max(1, count)))
        self.bucket_steps = max(1, math.ceil(self.steps / rows))
        self.sample_steps = 1
        self._loads = _loads(self.cast, self.dt)
        self.machine: Ints = np.full(count, -1, np.int64)
        active = self._active()
        wiring = wire(self.cast, self.machine, [bool(one) for one in active], self._sites, self.dt)
        machines = len(self.cast.machines) + (0 if self._sites is None else 2 * len(self._sites.links))
        is_up = np.zeros(machines, np.uint8)
        up = {one.name for one in scenario.machines}
        is_up[: len(self.cast.machines)] = [one.name in up for one in self.cast.machines]
        is_up[len(self.cast.machines) :] = 1
        self._knobs = _knobs(self.cast, active, self._power(), is_up)
        self._wiring = wiring
        self._counts = empty_counts(count, machines)
        rows = -(-self.steps // self.bucket_steps)
        self._detail, marks = empty_detail(
            count, machines, len(self.cast.sinks), rows, SAMPLES, is_kept=self.is_detailed
        )
        self._state = State(
            np.zeros(int(self.cast.queue_at[-1])),
            np.zeros(int(self.cast.queue_at[-1])),
            np.zeros(wiring.slots),
            np.zeros(wiring.slots),
            *marks,
        )
        self.place(
            {
                name: one.on[i % len(one.on)]
                for one in self.cast.operators
                for i, name in ((i, one.instance(i)) for i in range(len(one.weights)))
                if one.on
            }
        )

    # Running.

    def run(self, until: int) -> None:
        """Advance to before a step, however many calls that takes: the result is the same."""
        while self.step < until:
            last = min(until, SAMPLES * self.sample_steps) if self.is_detailed else until
            advance(
                self.step, last, self.dt, self._seed, self.bucket_steps, self.sample_steps, tuple(self._wiring.fixed),
                tuple(self._loads), tuple(self._knobs), tuple(self._state), tuple(self._counts), tuple(self._detail),
            )  # fmt: skip
            self.step = last
            if self.is_detailed and last == SAMPLES * self.sample_steps:
                history = self._detail.history
                history[: SAMPLES // 2] = history[0::2] + history[1::2]
                history[SAMPLES // 2 :] = 0.0
                self.sample_steps *= 2

    # Changes.

    def place(self, on: Mapping[str, str | None]) -> None:
        """Let instances stand on machines, by name; None: on no machine. Others stay."""
        if on:
            number = {name: i for i, name in enumerate(self.cast.instances)}
            for instance, machine in on.items():
                self.machine[number[instance]] = -1 if machine is None else self.cast.machine_number[machine]
        self._rewire()

    def switch_operator(self, name: str, is_on: bool) -> None:
        """Let an operator appear, or go; with it goes what waits for it."""
        number = self.cast.operator_number[name]
        self._is_there[number] = is_on
        for i in self.cast.own(number):
            self._knobs.is_active[i] = is_on
            if not is_on:
                self._drop(i)
                self.machine[i] = -1
        self._rewire()

    def switch_machine(self, name: str, is_on: bool, drops: bool = False) -> None:
        """Let a machine run, or not; `drops`: what waited for its operators is lost."""
        number = self.cast.machine_number[name]
        self._knobs.is_up[number] = is_on
        if drops:
            for i in np.flatnonzero(self.machine == number):
                self._drop(int(i))

    def multiply(self, operator: str, factor: float) -> None:
        """Multiply what comes to an operator from outside, counted from what its load says."""
        number = self.cast.operator_number[operator]
        one = self.cast.operators[number]
        for i, weight in zip(self.cast.own(number), one.weights, strict=True):
            self._loads.share[self.cast.queue_at[i]] = weight * factor

    def share(self, caps: Mapping[str, float]) -> None:
        """Let instances get at most this much work in a second; others stay as they are."""
        number = {name: i for i, name in enumerate(self.cast.instances)}
        for name, cap in caps.items():
            self._knobs.cap[number[name]] = cap

    def change_link(self, between: tuple[str, str], latency_s: float | None, bandwidth_bps: float | None) -> None:
        """Let a link have another latency or bandwidth; routes follow."""
        assert self._sites is not None, "only sites have links"

        def changed(link: Link) -> Link:
            if {link.a, link.b} != set(between):
                return link
            return replace(
                link,
                latency_s=link.latency_s if latency_s is None else latency_s,
                bandwidth_bps=link.bandwidth_bps if bandwidth_bps is None else bandwidth_bps,
            )

        self._sites = Sites(self._sites.sites, tuple(changed(link) for link in self._sites.links))
        self._knobs.power[:] = self._power()
        self._rewire()

    def settle(self) -> None:
        """Bring times and histograms up to date."""
        settle(self._counts, self._detail, self._knobs.own_s, self._wiring.fixed.sink_row)

    # Looking.

    @property
    def sites(self) -> Sites | None:
        """The network as it is."""
        return self._sites

    @property
    def counts(self) -> Counts:
        """What was counted; instances first, then those that stand on links."""
        return self._counts

    @property
    def detail(self) -> Detail:
        """Series and histograms."""
        return self._detail

    @property
    def knobs(self) -> Knobs:
        """What may change between two steps."""
        return self._knobs

    def waiting(self) -> Floats:
        """Return how many records wait for each instance, and for each link's carrier after them."""
        at = self._wiring.fixed.queue_at
        if int(at[-1]) == len(at) - 1:  # one queue each
            return self._state.q.copy()
        return np.array([self._state.q[a:b].sum() for a, b in pairwise(at)])

    def queue_of(self, instances: range) -> float:
        """Return how many records wait for some neighbouring instances."""
        at = self.cast.queue_at
        return float(self._state.q[int(at[instances.start]) : int(at[instances.stop])].sum())

    def on_the_way(self) -> Floats:
        """Return how many records are on the way on each stream, in lines and on links."""
        fixed, found = self._wiring.fixed, np.zeros(len(self.cast.streams))
        for number, (lines, queues) in enumerate(self._wiring.chain):
            for line in lines:
                at = fixed.line_at[line]
                found[number] += self._state.way_n[at : at + fixed.line_long[line]].sum()
            found[number] += self._state.q[list(queues)].sum()
        return found

    def arrivals(self) -> Floats:
        """Return what came to each instance so far, one row for each sample of `sample_steps` steps."""
        whole = self.step // self.sample_steps
        return self._detail.history[:whole, : len(self.cast.operator_of)]

    def is_up(self, machine: str) -> bool:
        """Return whether a machine runs."""
        return bool(self._knobs.is_up[self.cast.machine_number[machine]])

    def is_there(self, operator: str) -> bool:
        """Return whether an operator is there."""
        return self._is_there[self.cast.operator_number[operator]]

    # How it is done.

    def _active(self) -> Any:
        return np.array(self._is_there, np.uint8)[self.cast.operator_of]

    def _power(self) -> Floats:
        links = () if self._sites is None else self._sites.links
        both = [bandwidth for link in links for bandwidth in (link.bandwidth_bps, link.bandwidth_bps)]
        return np.array([machine.capacity for machine in self.cast.machines] + both, np.float64)

    def _drop(self, instance: int) -> None:
        at = slice(int(self.cast.queue_at[instance]), int(self.cast.queue_at[instance + 1]))
        self._counts.lost[instance] += self._state.q[at].sum()
        self._state.q[at] = 0.0
        self._state.age[at] = 0.0
        if self.is_detailed:
            self._state.marks[instance] = 0

    def _rewire(self) -> None:
        """Join everybody anew after somebody has moved, come or gone."""
        self.settle()
        knobs, cast = self._knobs, self.cast
        count = len(cast.operator_of)
        if cast.streams:
            wiring = wire(cast, self.machine, [bool(one) for one in self._active()], self._sites, self.dt)
            self._state = self._moved(wiring)
            self._wiring = wiring
            carriers = len(wiring.carrier_machine)
            counts: list[Any] = [_grown(one, count, carriers) for one in self._counts[:12]]
            counts += self._counts[12:]
            self._counts = Counts(*counts)
            detail = self._detail
            if self.is_detailed:
                self._detail = detail._replace(
                    **{
                        name: _grown(getattr(detail, name).T, count, carriers).T.copy()
                        for name in ("flow_in", "flow_out", "wait_mean", "wait_most", "late", "history")
                    },
                    delays=_grown(detail.delays, count, carriers),
                )
            speed = np.array([1.0] * carriers)
            self._knobs = knobs._replace(
                machine=np.concatenate((self.machine, wiring.carrier_machine)),
                work=np.concatenate((knobs.work[:count], wiring.carrier_work)),
                cap=_grown(knobs.cap, count, carriers, math.inf),
                alpha=_grown(knobs.alpha, count, carriers, 1.0),
                bound=_grown(knobs.bound, count, carriers, math.inf),
                chance=_grown(knobs.chance, count, carriers),
                is_active=_grown(knobs.is_active, count, carriers, 1),
                own_s=np.concatenate((knobs.own_s[:count], wiring.carrier_work / _pace(wiring, knobs.power) * speed)),
            )
        else:
            self._knobs = knobs._replace(machine=self.machine.copy())
        self._own_times()

    def _own_times(self) -> None:
        """Set what a record spends at each instance without waiting: processing, and the way in from outside."""
        cast, knobs, count = self.cast, self._knobs, len(self.cast.operator_of)
        speed = np.array([machine.speed for machine in cast.machines] + [1.0])  # the last one: not placed
        hop = np.array([one.hop if one.load is not None else 0.0 for one in cast.operators])[cast.operator_of]
        fixed = (knobs.chance[:count] & EXPONENTIAL) == 0
        knobs.own_s[:count] = hop + knobs.work[:count] / speed[self.machine] * ((self.machine >= 0) & fixed)

    def _moved(self, wiring: Wiring) -> State:
        """Return the state for another wiring: records on their way begin it anew where their route has changed."""
        old, state, count = self._wiring, self._state, int(self.cast.queue_at[-1])
        carriers = len(wiring.carrier_machine)
        way_n, way_a = np.zeros(wiring.slots), np.zeros(wiring.slots)
        q, age = _grown(state.q, count, carriers), _grown(state.age, count, carriers)
        for (before, waiting), (after, queues) in zip(old.chain, wiring.chain, strict=True):
            is_same = len(before) == len(after) and all(
                old.fixed.line_long[a] == wiring.fixed.line_long[b] for a, b in zip(before, after, strict=True)
            )
            is_same = is_same and [old.carrier_machine[k - count] for k in waiting] == [
                wiring.carrier_machine[k - count] for k in queues
            ]
            if is_same:
                for a, b in zip(before, after, strict=True):
                    long = wiring.fixed.line_long[b]
                    here, there = old.fixed.line_at[a], wiring.fixed.line_at[b]
                    way_n[there : there + long] = state.way_n[here : here + long]
                    way_a[there : there + long] = state.way_a[here : here + long]
                q[list(queues)], age[list(queues)] = state.q[list(waiting)], state.age[list(waiting)]
                continue
            slot = wiring.fixed.line_at[after[0]] + self.step % wiring.fixed.line_long[after[0]]
            for a in before:
                here = slice(int(old.fixed.line_at[a]), int(old.fixed.line_at[a] + old.fixed.line_long[a]))
                way_n[slot] += state.way_n[here].sum()
                way_a[slot] += state.way_a[here].sum()
            way_n[slot] += state.q[list(waiting)].sum()
            way_a[slot] += state.age[list(waiting)].sum()
        if not self.is_detailed:
            return State(q, age, way_n, way_a, *state[4:])
        own = len(self.cast.operator_of)
        marks = (_grown(one, own, carriers) for one in state[4:])
        return State(q, age, way_n, way_a, *marks)


def _pace(wiring: Wiring, power: Floats) -> Floats:
    return power[wiring.carrier_machine] if len(wiring.carrier_machine) else np.ones(0)


def _grown(values: Any, count: int, more: int, fill: float = 0) -> Any:
    """Return the first rows of an array, and some more that hold the same everywhere."""
    rest = np.full((more, *values.shape[1:]), fill, values.dtype)
    return np.concatenate((values[:count], rest))


def _knobs(cast: Cast, active: Any, power: Floats, is_up: Any) -> Knobs:
    of = cast.operator_of

    def each(values: Sequence[float]) -> Floats:
        return np.array(values, np.float64)[of]

    chance = [POISSON * one.is_poisson + EXPONENTIAL * one.is_exponential for one in cast.operators]
    return Knobs(
        np.full(len(of), -1, np.int64),
        each([one.work_s for one in cast.operators]),
        each([one.share for one in cast.operators]),
        each([one.rate_factor for one in cast.operators]),
        each([one.queue for one in cast.operators]),
        np.zeros(len(of)),
        np.array(chance, np.uint8)[of],
        active,
        power,
        is_up,
    )


def _loads(cast: Cast, dt: float) -> Loads:
    queues = int(cast.queue_at[-1])
    kind, trace_at, trace_long = np.zeros(queues, np.uint8), np.zeros(queues, np.int64), np.ones(queues, np.int64)
    base, swing, omega, phase, share = (np.zeros(queues) for _ in range(5))
    trace_dt = np.ones(queues)
    traces: list[float] = []
    for v, one in enumerate(cast.operators):
        if one.load is None:
            continue
        begin = len(traces)
        if isinstance(one.load, Samples):
            traces.extend(one.load.rates_rps)
        for i, weight in zip(cast.own(v), one.weights, strict=True):
            k = int(cast.queue_at[i])
            share[k] = weight
            if isinstance(one.load, Sinusoid):
                kind[k], base[k], swing[k] = 1, one.load.baseline, one.load.amplitude
                omega[k], phase[k] = 2.0 * math.pi / one.load.period, one.load.phase
            else:
                kind[k], trace_at[k], trace_long[k] = 2, begin, len(one.load.rates_rps)
                trace_dt[k] = one.load.step_s
    return Loads(
        kind, base, swing, np.sin(phase), np.cos(phase), np.sin(omega * dt), np.cos(omega * dt), omega, phase, share,
        trace_at, trace_long, trace_dt, np.array(traces, np.float64),
    )  # fmt: skip
