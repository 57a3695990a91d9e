"""What would be wanted, after a change?

Takes the jobs that are wanted and what a caller asks for; gives the jobs that would be wanted then (`Next`), or
names what is wrong with it. Changes nothing: `serve.controller` does.

    HW1830  a name that nothing has
    HW1810  a name that another composition, pipeline or job has
    HW1811  a name that is not allowed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from headwater.bind.store import Deployed
from headwater.errors import Mistake, SpecError
from headwater.model.report import Report, quote
from headwater.plan.jobs import JOB_NAME, LONERS, Job, Observed

__all__ = [
    "Next",
    "check_name",
    "check_taken",
    "composition",
    "found",
    "given_up",
    "jobs_of",
    "kept",
    "replaced",
    "running",
    "unknown",
    "wrong",
]


@dataclass(frozen=True, slots=True)
class Next:
    """What would be wanted."""

    what: str  # was asked for, in a few words
    scope: frozenset[str]  # jobs that it is about
    put: Mapping[str, Job] = field(default_factory=dict)
    removed: Collection[str] = ()
    pipelines: Mapping[str, Deployed | None] = field(default_factory=dict)


def running(what: str, jobs: Iterable[Job], is_run: bool) -> Next:
    """Return that jobs are to run, or to stop."""
    put = {job.name: replace(job, is_run=is_run) for job in jobs}
    return Next(f"{what} {'started' if is_run else 'stopped'}", frozenset(put), put)


def replaced(what: str, jobs: Mapping[str, Job], before: Mapping[str, Job]) -> Next:
    """Return that jobs take the place of others; those of the same name stay and change."""
    return Next(what, frozenset({*jobs, *before}), jobs, tuple(name for name in before if name not in jobs))


def kept(job: Job, before: Job | None) -> Job:
    """Return a job with what the user did to it since: one that was stopped stays so until it is started."""
    return job if before is None else replace(job, is_run=before.is_run)


def jobs_of(wanted: Mapping[str, Job], name: str) -> dict[str, Job]:
    """Return the jobs of a composition or pipeline."""
    return {key: job for key, job in wanted.items() if job.composition == name}


def composition(wanted: Mapping[str, Job], name: str) -> dict[str, Job]:
    """Return the jobs of a composition.

    Raises:
        SpecError: HW1830.
    """
    known = {job.composition for job in wanted.values() if not job.part} - {LONERS}
    if name not in known:
        unknown("composition", name, known)
    return jobs_of(wanted, name)


def check_name(what: str, name: str) -> None:
    """Refuse a name that could not be a file's or stand in an address.

    Raises:
        SpecError: HW1811.
    """
    if not JOB_NAME.fullmatch(name):
        allowed = "allowed are 1 to 120 letters, digits, '.', '_' and '-', and the first is a letter or digit"
        wrong("HW1811", f"{what} cannot be called {quote(name, 60)}: {allowed}.")


def check_taken(
    jobs: Iterable[Job], name: str, wanted: Mapping[str, Job], lines: Mapping[str, int | None] | None = None
) -> None:
    """Refuse names of jobs that belong to something else.

    Args:
        jobs: What a composition or pipeline would have.
        name: Its name.
        wanted: All that is wanted.
        lines: Where each job stands in the text that was submitted.

    Raises:
        SpecError: HW1810.
    """
    mistakes = []
    for job in jobs:
        other = wanted.get(job.name)
        if other is not None and other.composition != name:
            line = None if lines is None else lines.get(job.name)
            text = (
                f"a job {quote(job.name)} belongs to {_owner(other.composition)} already, so {_owner(name)} cannot "
                "have one. Rename one of the two."
            )
            mistakes.append(Mistake("HW1810", text, None if lines is None else name, line))
    if mistakes:
        raise SpecError(*mistakes)


def given_up(scope: Collection[str], then: Mapping[str, Job], observed: Observed) -> frozenset[str]:
    """Return the jobs that are to leave a site that does not answer; one that stays there is not given up."""
    owners = observed.owners()
    return frozenset(
        name
        for name in scope
        if name in then
        and name in owners
        and owners[name].site not in observed.reached
        and owners[name].site != then[name].site
    )


def found(wanted: Mapping[str, Job], name: str) -> Job:
    """Return a job.

    Raises:
        SpecError: HW1830.
    """
    if name not in wanted:
        unknown("job", name, wanted)
    return wanted[name]


def _owner(composition: str) -> str:
    return "the jobs that were submitted by themselves" if composition == LONERS else quote(composition)


def unknown(what: str, name: str, known: Collection[str]) -> NoReturn:
    """Raise SpecError HW1830, with the name that was perhaps meant."""
    wrong("HW1830", f"there is no {what} {quote(name, 60)}.{Report('').tip(name, known)}")


def wrong(code: str, text: str) -> NoReturn:
    """Raise SpecError with one mistake."""
    raise SpecError(Mistake(code, text))
