"""What did the controller say?

Values of the JSON that the REST API answers with, as commands use them: jobs, sites, plans, failures. Asks
nothing and shows nothing. What is missing in an answer is unknown, not wrong, so that a command also
understands a controller that is a little older or newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Change",
    "Failure",
    "JobSeen",
    "PlanSeen",
    "SiteSeen",
    "failures_of",
    "job_of",
    "jobs_of",
    "named",
    "plan_of",
    "rows",
    "sites_of",
]

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one job."""

    bucket: str
    job: str
    site: str
    from_site: str | None
    because: str
    pause_s: float


@dataclass(frozen=True)
class PlanSeen:
    """A plan as it was told."""

    basis: str
    changes: tuple[Change, ...]
    steps: tuple[Object, ...]
    object: Object = field(default_factory=dict, repr=False)  # as it came

    @property
    def to_do(self) -> tuple[Change, ...]:
        """Return the changes that do something."""
        return tuple(one for one in self.changes if one.bucket != "keep")

    @property
    def jobs(self) -> frozenset[str]:
        """Return the jobs that something is done to."""
        return frozenset(one.job for one in self.to_do) | {str(one["job"]) for one in self.steps if one.get("job")}

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do at all."""
        return not self.to_do and not self.steps

    @property
    def longest_pause_s(self) -> float:
        """Return the longest pause that records of a job will see."""
        return max((one.pause_s for one in self.to_do), default=0.0)


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that did not succeed."""

    job: str
    site: str
    act: str
    text: str


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job as it is wanted and as it is."""

    name: str
    composition: str
    site: str  # where it is; of one that runs nowhere: where it is wanted
    wanted_site: str | None  # None: it is not wanted any more
    state: str
    text: str  # what went wrong
    sources: tuple[str, ...]  # 'topic at broker'
    sink: str
    entry: str
    epoch: int | None
    numbers: Mapping[str, float]  # in_rps, out_rps, lag, p50_s: those that are known
    object: Object = field(repr=False)  # as it came

    @property
    def is_leaving(self) -> bool:
        """Return whether a site still has it and nobody wants it any more."""
        return self.wanted_site is None and bool({"wanted", "wanted_site"} & self.object.keys())


@dataclass(frozen=True, slots=True)
class SiteSeen:
    """A site as it answers."""

    name: str
    is_reached: bool
    seen_s: float | None  # how long ago it was last heard of
    broker: str
    memory_bytes: float | None
    jobs: int | None
    version: str


def rows(answer: object, key: str) -> list[Object]:
    """Return the entries of a list in an answer; by name, if it is a mapping."""
    found: Any = answer.get(key) if isinstance(answer, Mapping) else answer
    if isinstance(found, Mapping):
        return [{"name": name, **one} for name, one in found.items() if isinstance(one, Mapping)]
    return [one if isinstance(one, Mapping) else {"name": str(one)} for one in found or ()]


def named(answer: object, key: str) -> list[str]:
    """Return the names of the entries of a list in an answer."""
    return [str(one.get("name", "")) for one in rows(answer, key)]


def plan_of(answer: object) -> PlanSeen:
    """Return the plan in an answer."""
    found: Object = answer if isinstance(answer, Mapping) else {}
    inner = found.get("plan")
    plan: Object = inner if isinstance(inner, Mapping) else found
    changes = tuple(
        Change(
            str(one.get("bucket", "")),
            str(one.get("job", "")),
            str(one.get("site") or ""),
            one.get("from_site"),
            str(one.get("because", "")),
            float(one.get("pause_s") or 0.0),
        )
        for one in rows(plan, "changes")
    )
    return PlanSeen(str(plan.get("basis", "")), changes, tuple(rows(plan, "steps")), plan)


def failures_of(answer: object) -> tuple[Failure, ...]:
    """Return what failed, as an answer tells it."""
    found = []
    for one in rows(answer, "failures") if isinstance(answer, Mapping) else []:
        text = one.get("text") or one.get("error") or one.get("name") or ""
        found.append(
            Failure(str(one.get("job") or ""), str(one.get("site") or ""), str(one.get("act") or ""), str(text))
        )
    return tuple(found)


def jobs_of(answer: object) -> list[JobSeen]:
    """Return the jobs in an answer, by composition and name."""
    return sorted(map(job_of, rows(answer, "jobs")), key=lambda one: (one.composition, one.name))


def job_of(found: Object) -> JobSeen:
    """Return one job."""
    wanted, held = _inside(found, "wanted"), _inside(found, "observed")
    job = {**wanted, **_inside(held, "job"), **found}
    is_run = bool(wanted.get("is_run", found.get("is_run", True)))
    state = found.get("state") or held.get("state") or ("starting" if is_run else "stopped")
    told = {**_inside(held, "told"), **_inside(found, "told")}
    return JobSeen(
        str(found.get("name") or found.get("job_name") or job.get("name") or ""),
        str(job.get("composition") or ""),
        str(held.get("site") or found.get("site") or wanted.get("site") or ""),
        wanted.get("site") or found.get("wanted_site"),
        str(state),
        str(found.get("text") or held.get("text") or ""),
        tuple(map(_topic, job.get("sources") or ())),
        _topic(job.get("sink")),
        str(job.get("entry") or job.get("entry_class") or ""),
        held.get("epoch", found.get("epoch")),
        {key: float(value) for key, value in _numbers({**told, **found})},
        found,
    )


def sites_of(answer: object) -> list[SiteSeen]:
    """Return the sites in an answer, by name."""
    found = []
    for one in rows(answer, "sites"):
        jobs = one.get("jobs")
        found.append(
            SiteSeen(
                str(one.get("name") or ""),
                bool(one.get("is_reached", False)),
                _number(one.get("seen_s")),
                str(one.get("broker") or ""),
                _memory(one),
                jobs if isinstance(jobs, int) else None,
                str(one.get("version") or ""),
            )
        )
    return sorted(found, key=lambda one: one.name)


def _memory(site: Object) -> float | None:
    """Return what a site's processes take together, as far as it is told: runners and the broker."""
    inner = _inside(site, "told")
    parts = [_inside(inner, "broker"), *rows(inner, "runners")]
    known = [number for one in parts if (number := _number(one.get("memory_bytes"))) is not None]
    return sum(known) if known else None


def _inside(found: Object, key: str) -> Object:
    inner = found.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _numbers(told: Object) -> Iterator[tuple[str, float]]:
    for key in ("in_rps", "out_rps", "lag", "p50_s", "p99_s", "memory_bytes"):
        number = _number(told.get(key))
        if number is not None:
            yield key, number


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _topic(found: object) -> str:
    if isinstance(found, Mapping):
        return f"{found.get('name')} at {found.get('broker')}"
    return "" if found is None else str(found)
