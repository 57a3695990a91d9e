"""What must change for the jobs that are held to become the jobs that are wanted?

Takes both, gives `Changes`: one for each job, in one of six buckets, with its reason and the pause that its
records will see. Decides no order (`plan.steps`) and acts on nothing.

| bucket | what happens to the job |
|---|---|
| start | it runs nowhere yet, or is stopped |
| stop | it is not wanted any more, or not to run |
| move | another site runs it; checkpoint and state go along |
| rewire | it stays where it is and reads or writes other topics |
| update | it stays where it is and runs other code |
| keep | nothing: same process, same query |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from headwater.plan.jobs import LONERS, Held, Job, Observed, Topic, circle

__all__ = ["BUCKETS", "Bucket", "Change", "Changes", "Pauses", "diff"]

Bucket = Literal["start", "stop", "move", "rewire", "update", "keep"]
_Side = Callable[[Job], tuple[Topic, ...]]  # what a job reads, or what it writes
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
    site: str  # where it will be; of one that goes: where it was
    because: str
    pause_s: float = 0.0  # that its records are expected to see
    before: Held | None = None  # who has it now
    after: Job | None = None  # what is wanted
    must_drain: bool = False  # whether what is in its topics must be taken before it changes
    is_lost: bool = False  # whether what its site holds is given up, and it begins anew
    rests: bool = False  # whether a job that goes is kept where it is, so that it can come back
    stale: tuple[Held, ...] = ()  # what other sites still hold of it from an earlier epoch

    @property
    def leaves(self) -> tuple[Topic, ...]:
        """Return the topics that it reads now and then no more."""
        if self.before is None or self.is_lost:
            return ()
        stays = () if self.after is None else self.after.sources
        return tuple(one for one in self.before.job.sources if one not in stays)

    @property
    def enters(self) -> tuple[Topic, ...]:
        """Return the topics that it then reads for the first time."""
        if self.after is None:
            return ()
        known = () if self.before is None or self.is_lost else self.before.job.sources
        return tuple(one for one in self.after.sources if one not in known)

    @property
    def left_sink(self) -> Topic | None:
        """Return the topic that it writes now and then no more."""
        if self.before is None or self.is_lost:
            return None
        sink = self.before.job.sink
        return None if self.after is not None and self.after.sink == sink else sink


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
    doubts = {circle(one.job): one for name, one in owners.items() if not one.is_said and name not in lost}
    awake = {name: one for name, one in owners.items() if not one.is_resting}
    closed = _closed(wanted, awake)
    awaited = _awaited(wanted, awake)
    living = {one.composition for one in wanted.values()} - {LONERS}
    found = []
    for name in sorted({*wanted, *owners}):
        owner, job = owners.get(name), wanted.get(name)
        stale = tuple(one for one in observed.held if one.job.name == name and one is not owner)
        circles = {circle(one) for one in (job, None if owner is None else owner.job) if one is not None}
        doubt = None if name in lost else next((doubts[one] for one in circles if one in doubts), None)
        if doubt is not None:
            because = f"waits: site '{doubt.site}' was told of '{doubt.job.name}' and has not said what it did"
            found.append(Change("keep", name, doubt.site if owner is None else owner.site, because))
        elif owner is None:
            assert job is not None
            found.append(Change("start", name, job.site, "it runs nowhere yet", after=job))
        elif job is None:
            rests = owner.job.composition in living and _can_rest(owner.job)
            if not (rests and owner.is_resting):
                drains = name in awaited and any(one in closed for one in owner.job.sources)
                found.append(_gone(owner, drains, rests, stale))
            elif stale:
                found.append(Change("keep", name, owner.site, "it rests, and only there", stale=stale))
        elif name in lost:
            because = f"site '{owner.site}' does not answer, and its copy is given up"
            found.append(Change("start", name, job.site, because, 0.0, owner, job, is_lost=True, stale=stale))
        elif owner.is_resting and (owner.job.sources, owner.job.composition) != (job.sources, job.composition):
            because = "one of its name rests that has other sources, and is given up"
            found.append(Change("start", name, job.site, because, 0.0, owner, job, is_lost=True, stale=stale))
        else:
            found.append(_changed(job, owner, stale, pauses))
    return Changes(tuple(found))


def _gone(owner: Held, drains: bool, rests: bool, stale: tuple[Held, ...]) -> Change:
    """Return the change of a job that is not wanted any more."""
    because = "it is not wanted any more"
    because += "; what its topic still holds goes on first" if drains else ""
    because += "; its place is kept" if rests else ""
    return Change("stop", owner.job.name, owner.site, because, 0.0, owner, must_drain=drains, stale=stale, rests=rests)


def _can_rest(job: Job) -> bool:
    """Return whether a job's place will mean something later: channels are emptied, users' topics are not."""
    return not job.part and not any(topic.is_channel for topic in job.sources)


def _changed(job: Job, owner: Held, stale: tuple[Held, ...], pauses: Pauses) -> Change:
    bucket, because = _bucket(job, owner)
    must_drain = owner.job.sources != job.sources  # only between two batches can it come to read others
    pause_s = 0.0
    if job.is_run and bucket != "keep":
        pause_s = pauses.restart_s + (0.0 if job.is_stateful is False else pauses.state_s)
        pause_s += (pauses.copy_s if bucket == "move" else 0.0) + (pauses.drain_s if must_drain else 0.0)
    return Change(bucket, job.name, job.site, because, pause_s, owner, job, must_drain, stale=stale)


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
    return _run_bucket(job, owner)


def _run_bucket(job: Job, owner: Held) -> tuple[Bucket, str]:
    """Return the bucket of a job that is at its place and wired as it should be."""
    if owner.is_resting and not job.is_run:
        return "update", "it comes back, and stands still until it is started"
    if owner.is_run and not job.is_run:
        return "stop", "it is to stop, and keeps its place and checkpoint"
    if job.is_run and not owner.is_run:
        was = "comes back" if owner.is_resting else "is stopped"
        return "start", f"it {was} and goes on from its checkpoint"
    return "keep", "it is as it should be" if job.is_run else "it is stopped, as it should be"


def _named(topics: Iterable[Topic | None]) -> str:
    return ", ".join("something else than Kafka" if one is None else f"'{one}'" for one in topics) or "nothing"


def _closed(wanted: Mapping[str, Job], owners: Mapping[str, Held]) -> frozenset[Topic]:
    """Return the topics that jobs write now and that none will write any more."""
    written = {one.job.sink for one in owners.values() if one.job.sink is not None}
    return frozenset(written - {one.sink for one in wanted.values() if one.sink is not None})


def _awaited(wanted: Mapping[str, Job], owners: Mapping[str, Held]) -> frozenset[str]:
    """Return the jobs that go, but have records in hand that others count on.

    These are records that jobs have written that stay and now write elsewhere, or that others go on for; or records
    that flow, directly or not, to where a job that stays reads, or writes from now on.
    """
    going = {name: one.job for name, one in owners.items() if name not in wanted}
    staying = {name: one.job for name, one in owners.items() if name in wanted}
    left = {topic for name, one in staying.items() if one.sink != wanted[name].sink for topic in _sinks(one)}
    entered = {(one.composition, topic) for one in wanted.values() for topic in _entered(one, owners.get(one.name))}
    for one in going.values():
        if any((one.composition, topic) in entered for topic in one.sources):
            left.update(_sinks(one))
    live = {topic for one in wanted.values() for topic in _sinks(one)}
    live |= {topic for one in staying.values() for topic in one.sources}
    return frozenset(_along(going, left, _sources, _sinks) | _along(going, live, _sinks, _sources))


def _entered(job: Job, owner: Held | None) -> tuple[Topic, ...]:
    """Return the topics that a job comes to read, or is already placed to."""
    return tuple(one for one in job.sources if owner is None or owner.is_placed or one not in owner.job.sources)


def _along(jobs: Mapping[str, Job], topics: set[Topic], near: _Side, far: _Side) -> set[str]:
    """Return the jobs on all ways from some topics, each way entering a job at one side and going on at the other."""
    found: set[str] = set()
    while more := {name for name, one in jobs.items() if name not in found and not topics.isdisjoint(near(one))}:
        found |= more
        topics = {topic for name in more for topic in far(jobs[name])}
    return found


def _sources(job: Job) -> tuple[Topic, ...]:
    return job.sources


def _sinks(job: Job) -> tuple[Topic, ...]:
    return () if job.sink is None else (job.sink,)
