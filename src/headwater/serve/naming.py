"""Which job, composition or pipeline does a name mean?

Looks through what the controller has. A name that nothing has is answered with the one that is closest.

    HW1334   a name that nothing has, or more than one thing
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headwater.errors import Mistake, SpecError
from headwater.model.report import Report, listed, quote
from headwater.plan.jobs import LONERS
from headwater.serve.client import Client, in_address
from headwater.serve.told import JobSeen, jobs_of, named

__all__ = ["KINDS", "Mover", "check_kind", "deletable", "job_named", "jobs_named", "movable", "operators", "runnable"]

KINDS = ("job", "composition", "pipeline")


@dataclass(frozen=True, slots=True)
class Mover:
    """What moves, and what is asked for it."""

    title: str
    path: str
    content: dict[str, object]
    of: str  # the composition or pipeline that it belongs to


def job_named(name: str, client: Client) -> JobSeen:
    """Return the job of this name.

    Raises:
        SpecError: HW1334.
    """
    jobs = {one.name: one for one in jobs_of(client.get("/jobs"))}
    if name not in jobs:
        raise _unknown("job", name, jobs)
    return jobs[name]


def jobs_named(name: str, client: Client) -> list[JobSeen]:
    """Return the job of this name, or all jobs of the composition or pipeline of this name.

    Raises:
        SpecError: HW1334.
    """
    jobs = jobs_of(client.get("/jobs"))
    found = [one for one in jobs if one.name == name] or [one for one in jobs if one.composition == name]
    if not found:
        raise _unknown("job", name, {one.name for one in jobs} | {one.composition for one in jobs})
    return found


def runnable(name: str, client: Client) -> tuple[str, frozenset[str]]:
    """Return where something is stopped and started, and the jobs that this is about.

    Raises:
        SpecError: HW1334.
    """
    names = frozenset(one.name for one in jobs_named(name, client))
    if name in names:
        return f"/jobs/{in_address(name, safe='')}", names
    if name == LONERS:
        text = f"{quote(name)} stands for the jobs that belong to nothing; name one of {listed(sorted(names))}"
        raise SpecError(Mistake("HW1334", text))
    kind = "pipelines" if name in named(client.get("/pipelines"), "pipelines") else "compositions"
    return f"/{kind}/{in_address(name, safe='')}", names


def movable(name: str, site: str, force: bool, client: Client) -> Mover:
    """Return what to ask for: a job's name, PIPELINE/OPERATOR, or an operator that only one pipeline has.

    Raises:
        SpecError: HW1334.
    """
    sites = named(client.get("/sites"), "sites")
    if site not in sites:
        raise _unknown("site", site, sites)
    title = f"move {quote(name)} to {quote(site)}"
    jobs = {one.name: one.composition for one in jobs_of(client.get("/jobs"))}
    if name in jobs:
        return Mover(title, f"/jobs/{in_address(name, safe='')}/move", {"site": site, "force": force}, jobs[name])
    of = operators(client)
    pipeline, slash, operator = name.partition("/")
    holders = [pipeline] if slash and operator in of.get(pipeline, ()) else [one for one in of if name in of[one]]
    if len(holders) > 1:
        ways = " or ".join(f"'{one}/{name}'" for one in sorted(holders))
        raise SpecError(
            Mistake("HW1334", f"the pipelines {listed(sorted(holders))} have an operator {quote(name)}; say {ways}")
        )
    if not holders:
        known = {
            *jobs,
            *(f"{one}/{each}" for one in of for each in of[one]),
            *(each for one in of.values() for each in one),
        }
        raise _unknown("job or operator", name, known)
    content = {"operator": operator if slash else name, "site": site, "force": force}
    return Mover(title, f"/pipelines/{in_address(holders[0], safe='')}/move", content, holders[0])


def operators(client: Client) -> Mapping[str, Collection[str]]:
    """Return the operators of every pipeline."""
    found: dict[str, Collection[str]] = {}
    for name in named(client.get("/pipelines"), "pipelines"):
        said = client.get(f"/pipelines/{in_address(name, safe='')}")
        placement = said.get("placement") if isinstance(said, dict) else None
        found[name] = _with_families(placement or {})
    return found


def check_kind(kind: str | None) -> None:
    """Refuse a word that is no kind of thing.

    Raises:
        SpecError: HW1334.
    """
    if kind is not None and kind not in KINDS:
        raise SpecError(Mistake("HW1334", f"--kind is {quote(kind)}; it is one of {listed(KINDS)}"))


def deletable(name: str, kind: str | None, client: Client) -> tuple[str, str]:
    """Return of which kind a name is, and where it is deleted.

    Raises:
        SpecError: HW1334.
    """
    jobs = jobs_of(client.get("/jobs"))
    there = {
        "job": {one.name for one in jobs},
        "composition": {*named(client.get("/compositions"), "compositions")} - {LONERS},
        "pipeline": {*named(client.get("/pipelines"), "pipelines")},
    }
    kinds = [one for one in KINDS if name in there[one] and kind in (None, one)]
    if not kinds:
        what = kind or "job, composition or pipeline"
        raise _unknown(what, name, {one for each in KINDS if kind in (None, each) for one in there[each]})
    if len(kinds) > 1:
        text = f"{quote(name)} is a {' and a '.join(kinds)}; say which with --kind {kinds[0]} or --kind {kinds[1]}"
        raise SpecError(Mistake("HW1334", text))
    return kinds[0], f"/{kinds[0]}s/{in_address(name, safe='')}"


def _with_families(placement: Collection[str]) -> set[str]:
    """Return operators by instance, such as 'hot@pi-1', and by the name that all instances share."""
    return {*placement, *(one.partition("@")[0] for one in placement)}


def _unknown(what: str, name: str, known: Collection[str]) -> SpecError:
    tip = Report("").tip(name, sorted(known))
    if not tip:
        there = (
            f" There {'is' if len(known) == 1 else 'are'} {listed(sorted(known))}." if known else " There is none yet."
        )
    return SpecError(Mistake("HW1334", f"there is no {what} {quote(name)}.{tip or there}"))
