"""What is a job, and what do the sites hold of it?

A job is a query on one site that reads topics and writes one: the unit that is started, stopped, moved and
rewired. A fragment of a pipeline is a job; so is a function that a user submits by itself. `Held` is a job as
a site has it: with its checkpoint, running or not. Both are plain values that travel as JSON
(`job_object`, `held_object`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = [
    "CHANNEL",
    "JOB_NAME",
    "LONERS",
    "Held",
    "Job",
    "Observed",
    "State",
    "Topic",
    "circle",
    "fingerprint",
    "held_from",
    "held_object",
    "job_from",
    "job_object",
]

CHANNEL = "hw."  # what the names of topics begin with that are ours; users' do not
LONERS = "jobs"  # the composition of jobs that were submitted by themselves
JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")  # also safe as a folder and in an address

# starting, running: its query runs; waiting: it is started again soon; failed: it will not run as it is;
# stopped: by us.
State = Literal["starting", "running", "waiting", "failed", "stopped"]


@dataclass(frozen=True, slots=True, order=True)
class Topic:
    """A topic of a broker."""

    broker: str  # the site whose broker holds it, or 'host:port' of one that is the user's
    name: str

    @property
    def is_channel(self) -> bool:
        """Return whether it is ours alone: made, emptied and removed without asking."""
        return self.name.startswith(CHANNEL)

    @property
    def key(self) -> str:
        """Return what positions call it: 'BROKER/NAME'."""
        return f"{self.broker}/{self.name}"

    def __str__(self) -> str:
        """Return 'name at broker'."""
        return f"{self.name} at {self.broker}"


@dataclass(frozen=True, slots=True)
class Job:
    """A query that is to run on a site."""

    name: str  # the only one of this name
    composition: str  # jobs of one composition share a runner on each site
    site: str
    sources: tuple[Topic, ...]  # a source of a pipeline that only Spark knows is called '@OPERATOR'
    sink: Topic | None  # None: it writes something else than Kafka
    code: str  # hash of what was uploaded
    entry: str  # 'module:function', or for a fragment the operators in it
    part: str = ""  # of a pipeline: its fragment as JSON
    is_stateful: bool | None = None  # None: nobody knows before it has run
    is_run: bool = True  # False: it keeps its place and checkpoint, and does not run

    def is_same(self, other: Job) -> bool:
        """Return whether both run the same code on the same topics, wherever that is."""
        return (self.sources, self.sink, self.code, self.entry, self.part, self.composition) == (
            other.sources,
            other.sink,
            other.code,
            other.entry,
            other.part,
            other.composition,
        )

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Return all that it reads and writes."""
        return (*self.sources, *(() if self.sink is None else (self.sink,)))


@dataclass(frozen=True, slots=True)
class Held:
    """A job as a site holds it."""

    site: str
    job: Job  # as it was last told to run
    epoch: int  # grows whenever the job changes hands; of two holders the one with the greater has the truth
    is_run: bool  # whether the site keeps it running
    state: State
    is_drained: bool = False  # stopped, and all that its topics held when it stopped is taken and written
    is_placed: bool = False  # told how to run, with a place in its sources, and has not run so yet
    positions: tuple[tuple[str, str], ...] = ()  # of a drained one: where each source goes on, also of those it left
    text: str = field(default="", compare=False)  # what went wrong
    is_said: bool = True  # False: the site was told to hold it so, and has not said yet whether it does
    is_resting: bool = False  # stopped, because it was not wanted any more; it goes on from here if it comes back


@dataclass(frozen=True)
class Observed:
    """What all sites hold."""

    held: tuple[Held, ...]
    reached: frozenset[str]  # sites whose agents answer; what others hold is what they said last

    def owner(self, name: str) -> Held | None:
        """Return who has the truth about a job: nobody, or the holder of the greatest epoch."""
        holders = [one for one in self.held if one.job.name == name]
        return max(holders, key=lambda one: (one.epoch, one.is_run, one.site), default=None)

    def owners(self) -> dict[str, Held]:
        """Return the owner of every job that is held anywhere."""
        found: dict[str, Held] = {}
        for one in self.held:
            before = found.get(one.job.name)
            if before is None or (one.epoch, one.is_run, one.site) > (before.epoch, before.is_run, before.site):
                found[one.job.name] = one
        return found


def circle(job: Job) -> str:
    """Return what a job has in common with those whose places in topics depend on its own, and with no others."""
    return f"{LONERS}/{job.name}" if job.composition == LONERS else job.composition


def fingerprint(wanted: Mapping[str, Job], observed: Observed) -> str:
    """Return what a plan was made from, in a few letters: another one means that the plan is stale.

    How far a job has come on its own (starting, running) does not matter, who holds it and how it is wired does.
    """
    basis = {
        "wanted": {name: job_object(job) for name, job in sorted(wanted.items())},
        "held": sorted(
            json.dumps([one.site, one.epoch, one.is_run, job_object(one.job)], sort_keys=True) for one in observed.held
        ),
        "reached": sorted(observed.reached),
    }
    return hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:16]


def job_object(job: Job) -> dict[str, Any]:
    """Return a job as JSON has it."""
    return asdict(job)


def job_from(found: Mapping[str, Any]) -> Job:
    """Return the job of what `job_object` gave."""
    sources = tuple(Topic(**one) for one in found["sources"])
    sink = None if found["sink"] is None else Topic(**found["sink"])
    return Job(**{**found, "sources": sources, "sink": sink})


def held_object(held: Held) -> dict[str, Any]:
    """Return what a site holds as JSON has it."""
    return {**asdict(held), "positions": dict(held.positions)}


def held_from(found: Mapping[str, Any]) -> Held:
    """Return what `held_object` gave."""
    positions = tuple(sorted((str(key), str(value)) for key, value in found["positions"].items()))
    return Held(**{**found, "job": job_from(found["job"]), "positions": positions})
