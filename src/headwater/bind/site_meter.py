"""How do the runners of one site do, right now?

`SiteMeter` keeps the port `Meter` over real runners. What came in is counted at the broker, so that it is known even
of a runner that has no time to say anything; what was taken is said by the runner; how old records are when they leave
is read from their headers, by a thread of its own (`bind.ages`); processor time is the kernel's. Each count has the
time at which it was taken, and rates are made of counts and times of the same kind.

A runner is left out while one of its jobs is starting, until it has been counted twice, and while it has said nothing
since it was read last: what follows covers the longer time. `known` is all that a meter which comes after a crash has
to be given so that its first reading counts.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaException

from headwater.bind.ages import Ages
from headwater.bind.contention import MemoryTraffic
from headwater.bind.engine import OUTSIDE
from headwater.bind.latency import percentile
from headwater.bind.limiter import Limiter
from headwater.bind.limits import Usage
from headwater.bind.spans import Spans
from headwater.control.readings import Reading, Readings, of_rows
from headwater.plan.jobs import Job
from headwater.ports import Running

__all__ = ["SiteMeter", "Work"]

OLDEST_S = 30.0  # a count from before that is nothing to go on from
GOING_S = 3.0  # as long a runner is waited for whose topics let go of old records
SETTLED = frozenset(("running", "waiting", "failed", "stopped"))


@dataclass(frozen=True, slots=True)
class Work:
    """What one runner has to do."""

    leader: int  # process id
    jobs: tuple[Job, ...]
    said_s: float | None  # when it last said how they are; None: never
    states: Mapping[str, Running]  # by job, as it said

    @property
    def running(self) -> tuple[Job, ...]:
        """Return the jobs that run."""
        return tuple(job for job in self.jobs if self._state(job) == "running")

    @property
    def is_settled(self) -> bool:
        """Return whether its jobs run, but for those that failed, which may be tried again, or were stopped."""
        return bool(self.running) and all(self._state(job) in SETTLED for job in self.jobs)

    @property
    def is_starting(self) -> bool:
        """Return whether it said that one of its jobs is on its way: that takes more processor than running does."""
        return self.said_s is not None and any(self._state(job) == "starting" for job in self.jobs)

    def _state(self, job: Job) -> str:
        """Return how a job is.

        One that the runner does not know yet is on its way. One that failed and is tried again may be so for hours: it
        waits, and the jobs beside it are not let off because of it.
        """
        told = self.states.get(job.name)
        if told is None:
            return "starting"
        return "waiting" if told.state == "starting" and told.told.get("failure") else told.state


@dataclass(slots=True)
class _Count:
    """What has been counted of one runner, and when."""

    leader: int
    queries: tuple[str, ...]
    ways: tuple[str, ...]  # of each job: who says what came to it, and whether it has taken anything yet
    at_s: float  # when the broker was asked
    said_s: float  # when the runner said what it has taken
    used_at_s: float  # when the kernel was asked
    came: float = 0.0  # records, ever
    taken: float = 0.0
    gone: float = 0.0  # of which the broker has let go of the oldest
    usage: Usage = field(default_factory=lambda: Usage(0.0, 0.0, 0.0, 0))


class SiteMeter:
    """The port `Meter` over the runners of one site."""

    def __init__(
        self,
        site: str,
        runners: Callable[[], Mapping[str, Work]],
        broker: Callable[[], str],
        limiter: Limiter,
        traffic: MemoryTraffic | None = None,
        clock: Callable[[], float] = time.monotonic,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        """Begin to count.

        Args:
            site: Whose broker it is.
            runners: What runs, by composition.
            broker: Address of the site's broker.
            limiter: Knows what the kernel counted.
            traffic: Knows what the processor counted.
            clock: That never goes back, and that all processes of this machine share.
            known: What an earlier one had counted.
        """
        self._site, self._runners, self._address, self._limiter, self._clock = site, runners, broker, limiter, clock
        self._traffic = traffic
        self._before = _from_plain(known or {}, clock())
        self._spans: Spans | None = None
        self._ages: Ages | None = None
        self._used_address = ""
        self._gone: dict[str, tuple[float, float]] = {}  # by runner: what its topics have let go of, and since when
        self.used_s: dict[str, float] = {}  # processor seconds of each runner that is counted, as it is now
        self.memory_bytes: dict[str, int] = {}  # and memory
        self.record_bytes: dict[str, float] = {}  # and the size of the records that come to it, as far as it is known

    @property
    def known(self) -> dict[str, Any]:
        """Return what has been counted, as plain values."""
        return {name: asdict(one) for name, one in self._before.items()}

    def read(self) -> Readings:
        """Return what was measured since it was read last."""
        runners = self._runners()
        for name, work in runners.items():
            self._limiter.take(name, work.leader)
        usage, used_at_s = self._limiter.usage(), self._clock()
        self.used_s = {name: usage[name].used_s for name in runners if name in usage}
        self.memory_bytes = {name: usage[name].memory_bytes for name in self.used_s}
        limits = self._limiter.limits()
        settled = {name: work for name, work in runners.items() if work.is_settled and name in usage}
        held, at_s = self._held(settled)
        assert self._ages is not None, "it was made before anything was counted"
        self._ages.watch(
            (topic for work in settled.values() for topic in self._outputs(work)),
            (topic for work in settled.values() for topic in self._inputs(work)),
        )
        sizes = {
            name: [self._ages.record_bytes(topic) for topic in self._inputs(work)] for name, work in settled.items()
        }
        self.record_bytes = {name: max(one for one in each if one) for name, each in sizes.items() if any(each)}
        rows: dict[str, Reading] = {}
        for name, work in settled.items():
            before = self._before.get(name)
            if before is not None and before.said_s == work.said_s and before.leader == work.leader:
                continue  # it has said nothing since
            now, queue = self._counted(work, held, at_s, used_at_s, usage[name])
            if before is not None and self._is_too_early(name, before, now):
                continue
            self._before[name] = now
            if before is not None and _is_next(before, now):
                cores = limits[name].cores if name in limits else None
                rows[name] = _row(before, now, queue, self._late_s(work), cores)
        self._before = {name: one for name, one in self._before.items() if name in runners}
        self._gone = {name: one for name, one in self._gone.items() if name in runners}
        return replace(of_rows(rows), memory_bps=None if self._traffic is None else self._traffic.read(at_s))

    def _is_too_early(self, name: str, before: _Count, now: _Count) -> bool:
        """Return whether a runner said what it has taken before the broker let go of old records.

        A whole segment of them would count as taken in one second, and be missing in the next. What it says then is
        counted over the longer time.
        """
        if self._gone.get(name, (None, 0.0))[0] != now.gone:
            self._gone[name] = (now.gone, now.at_s)
        is_known = now.gone == before.gone or now.said_s >= self._gone[name][1]
        return not is_known and now.at_s - before.at_s < GOING_S

    def close(self) -> None:
        """Let the clients go."""
        for one in (self._ages, self._spans):
            if one is not None:
                with contextlib.suppress(KafkaException, RuntimeError):
                    one.close()
        self._ages = self._spans = None

    def _held(self, settled: Mapping[str, Work]) -> tuple[Mapping[str, tuple[int, int]], float]:
        """Return what the topics of the site hold that are read here, and when that was so."""
        address = self._address()
        if address != self._used_address:
            self.close()
            self._used_address = address
        if self._spans is None or self._ages is None:
            self._spans, self._ages = Spans(address), Ages(address)
        return self._spans.held(topic for work in settled.values() for topic in self._inputs(work)), self._clock()

    def _counted(
        self, work: Work, held: Mapping[str, tuple[int, int]], at_s: float, used_at_s: float, usage: Usage
    ) -> tuple[_Count, float]:
        """Return what has been counted of a runner, and how many records wait."""
        queries = tuple(work.states[job.name].query for job in work.running)
        assert work.said_s is not None, "a runner that never said anything is not settled"
        found, queue, ways = _Count(work.leader, queries, (), at_s, work.said_s, used_at_s, usage=usage), 0.0, []
        for job in work.running:
            told = work.states[job.name]
            taken, lag = _told(told, "taken"), _told(told, "lag")
            spans = [held.get(topic.name) if topic.broker == self._site else None for topic in job.sources]
            way = "nothing" if taken <= 0.0 else "broker" if spans and all(spans) else "runner"
            if way == "broker":
                first, end = (sum(one[i] for one in spans if one is not None) for i in (0, 1))
                # A runner says how many it has taken of those that are still there, which fall as old ones go; where
                # nothing comes, its client learns of that only with the next record.
                found.came += end
                found.gone += first
                found.taken += min(end, first + taken)
                queue += max(0.0, end - first - taken)
            else:
                found.came += taken + lag
                found.taken += taken
                queue += lag
            ways.append(way)
        found.ways = tuple(ways)
        return found, queue

    def _inputs(self, work: Work) -> list[str]:
        """Return the topics of this site that a runner reads."""
        return [topic.name for job in work.running for topic in job.sources
                if topic.broker == self._site and not topic.name.startswith(OUTSIDE)]  # fmt: skip

    def _outputs(self, work: Work) -> list[str]:
        """Return the topics of this site that leave a runner."""
        return [job.sink.name for job in work.running if job.sink is not None and job.sink.broker == self._site]

    def _late_s(self, work: Work) -> float:
        """Return the 99th percentile of the ages of records that just left; NaN where none did."""
        assert self._ages is not None, "it was made before anything was counted"
        ages = sorted(age for topic in self._outputs(work) for age in self._ages.taken(topic))
        return percentile(ages, 0.99) if ages else math.nan


def _is_next(before: _Count, now: _Count) -> bool:
    """Return whether one count goes on from another: the same queries, counted the same way, later."""
    is_same = (before.leader, before.queries, before.ways) == (now.leader, now.queries, now.ways)
    is_later = before.at_s < now.at_s and before.said_s < now.said_s and before.used_at_s < now.used_at_s
    return is_same and is_later and before.usage.used_s <= now.usage.used_s


def _row(before: _Count, now: _Count, queue: float, late_s: float, cores: float | None) -> Reading:
    seconds, used_s = now.at_s - before.at_s, now.used_at_s - before.used_at_s
    return Reading(
        seconds,
        (now.came - before.came) / seconds,
        (now.taken - before.taken) / (now.said_s - before.said_s),
        queue,
        0.0,
        (now.usage.used_s - before.usage.used_s) / used_s,
        math.inf if cores is None else cores,
        late_s,
        (now.usage.run_delay_s - before.usage.run_delay_s) / used_s,
        (now.usage.throttled_s - before.usage.throttled_s) / used_s,
    )


def _told(running: Running, key: str) -> float:
    value = running.told.get(key)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _from_plain(known: Mapping[str, Any], now_s: float) -> dict[str, _Count]:
    """Return what an earlier meter had counted; what is too old, from before the machine's start, or torn is left."""
    found = {}
    for name, one in known.items():
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
            leader, queries, ways = int(one["leader"]), tuple(map(str, one["queries"])), tuple(map(str, one["ways"]))
            at_s, said_s, used_at_s = float(one["at_s"]), float(one["said_s"]), float(one["used_at_s"])
            came, taken, gone = float(one["came"]), float(one["taken"]), float(one["gone"])
            count = _Count(leader, queries, ways, at_s, said_s, used_at_s, came, taken, gone, Usage(**one["usage"]))
            if now_s - OLDEST_S < count.at_s < now_s:
                found[str(name)] = count
    return found
