"""What must change for the jobs that are held to become the jobs that are wanted?

Takes both, gives `Changes`: one for each job, in one of six buckets, with its reason and the pause that its
records will see. Decides no order (`plan.steps`) and acts on nothing.

| bucket | what happens to the job |
|---|---|
| start | it runs nowhere yet |
| stop | it is not wanted any more |
| move | another site runs it; checkpoint and state go along |
| rewire | it stays where it is and reads or writes other topics |
| update | it stays where it is and runs other code |
| keep | nothing: same process, same query |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from headwater.plan.jobs import Held, Job, Observed, Topic

__all__ = ["BUCKETS", "Bucket", "Change", "Changes", "Pauses", "diff"]

Bucket = Literal["start", "stop", "move", "rewire", "update", "keep"]
BUCKETS: tuple[Bucket, ...] = ("start", "stop", "move", "rewire", "update", "keep")


@dataclass(frozen=True, slots=True)
class Pauses:
    """How long records wait while a job changes, in seconds, as measured; these are a two-core machine's."""

    restart_s: float = 0.5  # stopped and started, same checkpoint
    state_s: float = 0.4  # more, where there is state to load
    copy_s: float = 0.2  # more, for a checkpoint that goes to another site
    drain_s: float = 1.5  # more, where a topic is left and its last records are taken first


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one job."""

    bucket: Bucket
    job: str
    site: str  # where it will be; of one that is stopped: where it was
    because: str
    pause_s: float = 0.0  # that its records are expected to see
    before: Held | None = None  # who has it now
    after: Job | None = None  # what is wanted
    leaves: tuple[Topic, ...] = ()  # topics that it reads now and then no more
    enters: tuple[Topic, ...] = ()  # topics that it then reads for the first time
    must_drain: bool = False  # whether what is in the topics that it leaves must be taken first
    stale: tuple[Held, ...] = ()  # what other sites still hold of it from an earlier epoch


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes, by job."""

    of: tuple[Change, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has to be done."""
        return all(one.bucket == "keep" and not one.stale for one in self.of)

    def in_bucket(self, bucket: Bucket) -> tuple[Change, ...]:
        """Return the changes of one bucket."""
        return tuple(one for one in self.of if one.bucket == bucket)


def diff(
    wanted: Mapping[str, Job],
    observed: Observed,
    forced: Collection[str] = (),
    pauses: Pauses = Pauses(),  # noqa: B008 - frozen
) -> Changes:
    """Return what becomes of every job that is wanted or held.

    Args:
        wanted: Jobs by name.
        observed: What the sites hold.
        forced: Jobs that may leave a site that does not answer; what it holds of them is then taken for lost.
        pauses: What to expect.
    """
    owners = observed.owners()
    lost = {name for name in forced if name in owners and owners[name].site not in observed.reached}
    closed = _closed(wanted, owners)
    needed = _needed(wanted, owners)
    found = []
    for name in sorted({*wanted, *owners}):
        owner = owners.get(name)
        job = wanted.get(name)
        stale = tuple(one for one in observed.held if one.job.name == name and one is not owner)
        if owner is None:
            assert job is not None
            if job.is_run:
                found.append(_fresh(job, "it runs nowhere yet"))
        elif job is None:
            drains = owner.is_run and name in needed and any(one in closed for one in owner.job.sources)
            because = "it is not wanted any more" + ("; what its topic still holds goes on first" if drains else "")
            found.append(
                Change(
                    "stop", name, owner.site, because, before=owner, leaves=owner.job.sources, must_drain=drains,
                    stale=stale,
                )
            )  # fmt: skip
        elif name in lost:
            because = f"site '{owner.site}' does not answer, and its copy is given up"
            found.append(_fresh(job, because, before=owner, stale=stale))
        elif not job.is_run:
            found.append(_stopped(job, owner, stale))
        else:
            found.append(_changed(job, owner, stale, pauses, _taken_over(owner, job, wanted, owners)))
    return Changes(tuple(found))


def _fresh(job: Job, because: str, before: Held | None = None, stale: tuple[Held, ...] = ()) -> Change:
    return Change("start", job.name, job.site, because, before=before, after=job, enters=job.sources, stale=stale)


def _stopped(job: Job, owner: Held, stale: tuple[Held, ...]) -> Change:
    if owner.is_run:
        because = "it is to stop, and keeps its place and checkpoint"
        return Change("stop", job.name, owner.site, because, before=owner, after=job, stale=stale)
    return Change("keep", job.name, owner.site, "it is stopped, as it should be", 0.0, owner, job, stale=stale)


def _taken_over(owner: Held, job: Job, wanted: Mapping[str, Job], owners: Mapping[str, Held]) -> frozenset[Topic]:
    """Return the sources of a stopped job that another one has meanwhile gone on with, and now gives back."""
    if owner.is_run:
        return frozenset()
    found = set()
    for name, other in owners.items():
        if name != job.name and other.job.composition == owner.job.composition:
            kept = wanted[name].sources if name in wanted else ()
            found |= {one for one in other.job.sources if not one.is_channel and one not in kept}
    return frozenset(found)


def _changed(job: Job, owner: Held, stale: tuple[Held, ...], pauses: Pauses, taken_over: Collection[Topic]) -> Change:
    leaves = tuple(one for one in owner.job.sources if one not in job.sources)
    enters = tuple(one for one in job.sources if one not in owner.job.sources or one in taken_over)
    bucket, because = _bucket(job, owner)
    pause_s = 0.0
    if bucket != "keep":
        pause_s = pauses.restart_s + (0.0 if job.is_stateful is False else pauses.state_s)
        pause_s += (pauses.copy_s if bucket == "move" else 0.0) + (pauses.drain_s if leaves else 0.0)
    return Change(bucket, job.name, job.site, because, pause_s, owner, job, leaves, enters, bool(leaves), stale)


def _bucket(job: Job, owner: Held) -> tuple[Bucket, str]:
    """Return the bucket of a job that some site has, and why it is that."""
    before = owner.job
    rewired = []
    if before.sources != job.sources:
        rewired.append(f"reads {_named(job.sources)} instead of {_named(before.sources)}")
    if before.sink != job.sink:
        rewired.append(f"writes {_named([job.sink])} instead of {_named([before.sink])}")
    has_new_code = (before.code, before.entry) != (job.code, job.entry)
    news = [*rewired, *(["runs other code"] if has_new_code else [])]
    if owner.site != job.site:
        more = "".join(f", and {one}" for one in news)
        return "move", f"wanted on '{job.site}', is on '{owner.site}'{more}"
    if rewired:
        return "rewire", " and ".join(news)
    if has_new_code or not before.is_same(job):
        return "update", "runs other code" if has_new_code else "is described otherwise"
    if not owner.is_run:
        return "start", "it is stopped and goes on from its checkpoint"
    return "keep", "it is as it should be"


def _named(topics: Iterable[Topic | None]) -> str:
    return ", ".join("something else than Kafka" if one is None else f"'{one}'" for one in topics) or "nothing"


def _closed(wanted: Mapping[str, Job], owners: Mapping[str, Held]) -> frozenset[Topic]:
    """Return the topics that jobs write now and that none will write any more."""
    written = {one.job.sink for one in owners.values() if one.job.sink is not None}
    return frozenset(written - {one.sink for one in wanted.values() if one.sink is not None})


def _needed(wanted: Mapping[str, Job], owners: Mapping[str, Held]) -> frozenset[str]:
    """Return the jobs that go, but whose last records still flow, directly or not, into one that stays."""
    found: set[str] = set()
    read = {name: set(one.job.sources) for name, one in owners.items()}
    waiting = [name for name in owners if name in wanted]
    seen = set(waiting)
    while waiting:
        reader = waiting.pop()
        for name, one in owners.items():
            if name not in seen and one.job.sink is not None and one.job.sink in read[reader]:
                seen.add(name)
                found.add(name)
                waiting.append(name)
    return frozenset(found)
