"""What does a project do on a testbed, under one placement?

A trial starts a placed project in the boxes of a testbed, feeds it, lets it warm up, and watches a stretch of time:
what came out and how old it was, what each link carried, how much processor each site used. Experiments are made
of trials (`serve.bench`).

    HW4605   a fragment failed, or the feed did, so that the trial says nothing
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from headwater.bind.headers import CREATED, ORIGIN, headers_of
from headwater.bind.jars import Jars
from headwater.bind.topics import end_offsets, ensure_topics, tail
from headwater.errors import BindError
from headwater.model.keep import to_json
from headwater.serve.fleet import Fleet, Plan
from headwater.serve.prepare import Prepared
from headwater.testbed.bed import Bed
from headwater.testbed.calibrate import Measured, calibrate
from headwater.testbed.shares import running_scale

__all__ = ["Arrival", "Fed", "Outcome", "Source", "Times", "Trial", "run_trial"]

LOOK_S = 0.5  # between two looks at what was processed
STILL_S, LONGEST_DRAIN_S = 3.0, 180.0  # when nothing waits and topics do not grow for so long, all has come
TELLING_PACKETS = 500  # of a link, from which on a share of them says something
FEED_S = 60.0  # beyond the time of a feed, after which it is given up
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """What is fed where an operator stands."""

    operator: str
    generator: str
    rate_rps: float  # into each site
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Times:
    """How long a trial goes."""

    warm_s: float
    watched_s: float

    @property
    def fed_s(self) -> float:
        """Return how long records are fed."""
        return self.warm_s + self.watched_s


@dataclass(frozen=True, slots=True)
class Trial:
    """What is to be tried."""

    prepared: Prepared
    sources: tuple[Source, ...]
    sinks: Mapping[str, str]  # the topic that each sink writes, by operator
    times: Times
    seed: int = 0
    steps: tuple[float, ...] = (1.0,)  # by which all rates are multiplied, one after the other
    on_begin: Callable[[], None] | None = None  # called when the watched stretch begins, in a thread of its own


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record that came out."""

    origin: str  # site/topic/partition/offset of the record behind it
    key: str
    value: bytes
    created_ms: int  # when the record behind it was born
    written_ms: int

    @property
    def latency_s(self) -> float:
        """Return its age when it was written."""
        return (self.written_ms - self.created_ms) / 1000


@dataclass(frozen=True, slots=True)
class Fed:
    """What was fed into one site."""

    site: str
    generator: str
    settings: Mapping[str, str]
    seed: int
    start: int  # number of the first record
    records: int
    behind_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step of a trial has shown."""

    placement: Mapping[str, str]
    rt_s: float | None  # as predicted
    factor: float  # of the rates
    start_s: float
    drain_s: float  # from the end of the last feed until all had come out
    begin_ms: int  # of the watched stretch
    end_ms: int
    fed: tuple[Fed, ...]  # in all steps
    arrivals: Mapping[str, tuple[Arrival, ...]]  # by topic, of all steps
    link_bytes: Mapping[tuple[str, str], int]  # in the watched stretch, by direction
    late_share: float  # of packets, on the link with most: more than 5 ms later than they should
    cores: Mapping[str, float]  # used on average, by site
    ground: tuple[Measured, ...]
    warnings: tuple[str, ...]

    def watched(self, topic: str) -> list[Arrival]:
        """Return what came out of records born in the watched stretch."""
        return [one for one in self.arrivals[topic] if self.begin_ms <= one.created_ms < self.end_ms]


def run_trial(
    trial: Trial, path: str, bed: Bed, jars: Jars, archives: Mapping[str, Path], say: Say
) -> tuple[Outcome, ...]:
    """Run a trial on a testbed that is up, and leave the testbed as it was; return what each step has shown.

    Args:
        trial: What to try.
        path: Of the user's project.
        bed: With all sites of the placement.
        jars: For Spark and the brokers.
        archives: Of Java's classes.
        say: Hears what is being done.

    Raises:
        BindError: HW4605, and what starting brokers and runners can raise.
    """
    say("measuring delays of the links")
    ground = calibrate(bed)
    folder = Path(tempfile.mkdtemp(prefix="headwater-trial-"))
    try:
        return _Going(trial, path, bed, jars, archives, folder, say).outcomes(ground)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_Packets = Mapping[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Where all counters stand."""

    sent: Mapping[tuple[str, str], int]  # bytes, by direction of a link
    used_s: Mapping[str, float]  # of processor, by site
    packets: _Packets  # and how many of them were late, by direction


@dataclass(frozen=True, slots=True)
class _Step:
    """One rate, watched."""

    factor: float
    begin_ms: int
    end_ms: int
    before: _Snapshot
    after: _Snapshot


class _Going:
    """A trial that is going on."""

    def __init__(
        self, trial: Trial, path: str, bed: Bed, jars: Jars, archives: Mapping[str, Path], folder: Path, say: Say
    ) -> None:
        self._trial = trial
        self._bed = bed
        self._say = say
        self._told: list[tuple[str, str]] = []
        prepared = trial.prepared
        (folder / "project.json").write_text(to_json(prepared.project), "utf-8")
        boxes = {site.name: bed.box(site.name) for site in prepared.sites.sites}
        plan = Plan(
            prepared.project.name,
            str(Path(path).absolute()),
            folder / "project.json",
            prepared.parts,
            folder,
            {},
            boxes,
        )
        self._fleet = Fleet(plan, jars, archives, self._tell)

    def outcomes(self, ground: tuple[Measured, ...]) -> tuple[Outcome, ...]:
        trial = self._trial
        begun_s = time.monotonic()
        steps: list[_Step] = []
        fed: list[Fed] = []
        try:
            self._fleet.start(self._say)
            for site, topic in self._outlets():  # where nothing comes out, there is an end to look at nevertheless
                ensure_topics(self._fleet.addresses[site], [topic])
            start_s = time.monotonic() - begun_s
            self._limit()
            for factor in trial.steps:
                step, now_fed = self._step(factor, fed)
                steps.append(step)
                fed += now_fed
            ended_s = time.monotonic()
            self._drain()
            drain_s = time.monotonic() - ended_s - STILL_S
            arrivals = {topic: self._arrivals(topic) for topic in trial.sinks.values()}
        finally:
            self._say("ending")
            try:
                self._bed.unlimit()
            finally:
                self._fleet.end()
        failed = [text for kind, text in self._told if kind == "error"]
        if failed:
            raise BindError(f"HW4605 the trial says nothing, because a fragment failed: {failed[0]}")
        return tuple(
            Outcome(
                placement=dict(trial.prepared.placement),
                rt_s=trial.prepared.score.rt_s,
                factor=step.factor,
                start_s=start_s,
                drain_s=max(0.0, drain_s),
                begin_ms=step.begin_ms,
                end_ms=step.end_ms,
                fed=tuple(fed),
                arrivals=arrivals,
                link_bytes={way: step.after.sent[way] - step.before.sent[way] for way in step.after.sent},
                late_share=_late_share(step.before.packets, step.after.packets),
                cores={
                    site: (step.after.used_s[site] - step.before.used_s[site]) * 1000 / (step.end_ms - step.begin_ms)
                    for site in step.after.used_s
                },
                ground=ground,
                warnings=tuple(text for _, text in self._told),
            )
            for step in steps
        )

    def _step(self, factor: float, before: Sequence[Fed]) -> tuple[_Step, list[Fed]]:
        """Feed at one rate, let it warm up and watch it."""
        trial = self._trial
        number = trial.steps.index(factor) + 1
        what = f", step {number} of {len(trial.steps)}" if len(trial.steps) > 1 else ""
        with _feeds(trial, factor, before, self._fleet.addresses) as feeds:
            since_s = time.monotonic()
            self._wait_until(since_s + trial.times.warm_s, f"warming up{what}")
            if trial.on_begin is not None:
                threading.Thread(target=trial.on_begin, daemon=True).start()
            begin_ms, first = int(time.time() * 1000), self._snapshot()
            self._wait_until(since_s + trial.times.fed_s, f"watching{what}")
            end_ms, last = int(time.time() * 1000), self._snapshot()
            fed = [_fed(feed, site, source, trial.seed, start) for feed, site, source, start in feeds]
        return _Step(factor, begin_ms, end_ms, first, last), fed

    def _tell(self, kind: str, told: Mapping[str, Any]) -> None:
        self._told.append((kind, str(told.get("text", ""))))

    def _limit(self) -> None:
        """Make sites unequal, now that all queries run: under the limits of a small box a start takes minutes."""
        if self._bed.can_limit:
            # by all sites, not only those of this placement: the same for every trial on this bed
            self._bed.limit(running_scale(site for site in self._bed.sites.sites if site.slots))
        else:
            self._told.append(("warning", "machines are not emulated: every site may use all processors and memory"))

    def _wait_until(self, end_s: float, what: str) -> None:
        while (left_s := end_s - time.monotonic()) > 0:
            self._say(f"{what}: {left_s:.0f} s left")
            time.sleep(min(LOOK_S, left_s))

    def _snapshot(self) -> _Snapshot:
        traffic = self._bed.traffic()
        states = self._fleet.states
        return _Snapshot(
            {(one.origin, one.target): one.bytes for one in traffic},
            {site: states[site].cpu_s + states[site].broker_cpu_s for site in self._fleet.plan.sites},
            {(one.origin, one.target): (one.packets, one.late or 0) for one in traffic},
        )

    def _outlets(self) -> list[tuple[str, str]]:
        """Return the sites and topics where records come out."""
        return [(site, topic) for sink, topic in self._trial.sinks.items() for site in _sites_of(self._trial, sink)]

    def _drain(self) -> None:
        """Wait until nothing more comes out."""
        end_s = time.monotonic() + LONGEST_DRAIN_S
        before, still_s = -1, time.monotonic()
        while time.monotonic() < end_s and time.monotonic() - still_s < STILL_S:
            self._say("waiting for the last records")
            now = sum(
                sum(end_offsets(self._fleet.addresses[site], [topic]).values()) for site, topic in self._outlets()
            )
            lag = sum(part.get("lag") or 0 for state in self._fleet.states.values() for part in state.parts.values())
            if now != before or lag:
                before, still_s = now, time.monotonic()
            time.sleep(LOOK_S)

    def _arrivals(self, topic: str) -> tuple[Arrival, ...]:
        addresses = [self._fleet.addresses[site] for site, one in self._outlets() if one == topic]
        return tuple(_arrival(message) for address in addresses for message in tail(address, topic, 0))


def _sites_of(trial: Trial, operator: str) -> list[str]:
    """Return where an operator, or instances of it, stand."""
    return sorted({site for name, site in trial.prepared.placement.items() if name.partition("@")[0] == operator})


def _late_share(before: _Packets, after: _Packets) -> float:
    """Return the share of packets that were late, on the link with most; one with few packets says nothing."""
    shares = [
        (late - before[way][1]) / (packets - before[way][0])
        for way, (packets, late) in after.items()
        if packets - before[way][0] >= TELLING_PACKETS
    ]
    return max(shares, default=0.0)


Feeding = tuple["subprocess.Popen[str]", str, Source, int]  # with the number of its first record


@contextlib.contextmanager
def _feeds(trial: Trial, factor: float, before: Sequence[Fed], addresses: Mapping[str, str]) -> Iterator[list[Feeding]]:
    """Feed every source where it stands, each by a process of its own; none is left afterwards."""
    feeds: list[Feeding] = []
    try:
        for source in trial.sources:
            for site in _sites_of(trial, source.operator):
                start = sum(one.records for one in before if one.site == site)
                words = [sys.executable, "-m", "headwater.serve.main", "feed", source.generator, "--json"]
                words += ["--broker", f"{site}={addresses[site]}", "--rate", f"{source.rate_rps * factor:g}/s"]
                words += ["--for", f"{trial.times.fed_s:g}s", "--seed", str(trial.seed), "--start", str(start)]
                words += [word for name, value in source.settings.items() for word in ("--set", f"{name}={value}")]
                feed = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                feeds.append((feed, site, source, start))
        yield feeds
    finally:
        for feed, *_ in feeds:
            if feed.poll() is None:
                feed.kill()
            feed.wait()
            for pipe in (feed.stdout, feed.stderr):
                if pipe is not None:
                    pipe.close()


def _fed(feed: subprocess.Popen[str], site: str, source: Source, seed: int, start: int) -> Fed:
    try:
        said, errors = feed.communicate(timeout=FEED_S)
    except subprocess.TimeoutExpired as error:
        raise BindError(f"HW4605 the feed of site '{site}' does not end; the trial says nothing") from error
    if feed.returncode != 0:
        lines = errors.strip().splitlines() or ["it said nothing"]
        raise BindError(f"HW4605 the trial says nothing, because the feed of site '{site}' failed: {lines[-1]}")
    answer = json.loads(said)
    records = answer["sites"][site]["records"]
    return Fed(site, source.generator, dict(source.settings), seed, start, records, answer["behind_s"])


def _arrival(message: Message) -> Arrival:
    headers = headers_of(message)
    key, value = message.key() or b"", message.value() or b""
    return Arrival(headers[ORIGIN].decode(), key.decode(), value, int(headers[CREATED]), message.timestamp()[1])
