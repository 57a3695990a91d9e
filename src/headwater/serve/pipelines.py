"""Which jobs does a submitted pipeline become?

Takes a project as text, a sites file and perhaps a placement; gives the jobs and what has to be kept to make
them again with another placement. A pipeline that is submitted again stays where it is unless its sites or the
way to search have changed: only what differs is to be touched. Loads the search late.

    HW1812  a project that cannot be read or does not hang together
    HW1813  a site that has no agent
    HW1814  files of a project that were not uploaded
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headwater.bind.code import pipeline_code
from headwater.bind.store import Deployed
from headwater.errors import HeadwaterError, Mistake, PlanError, SpecError
from headwater.model.files import read_pipeline, read_sites, write_pipeline
from headwater.model.keep import from_json, to_json
from headwater.model.project import Project
from headwater.model.report import Report, listed, quote
from headwater.model.sites import Sites
from headwater.plan.jobs import Job
from headwater.plan.pipeline_jobs import pipeline_jobs
from headwater.serve.arguments import Search
from headwater.serve.kernels import load_core

__all__ = ["Asked", "deploy", "moved", "runnable"]

MOST_SEARCH_S = 60.0
SITES_FILE = "sites"  # what messages call it


@dataclass(frozen=True, slots=True)
class Asked:
    """A pipeline as it is submitted."""

    project: str  # as `model.keep.to_json` gives it
    upload: str  # hash of its files
    sites: str  # text of the sites file
    placement: Mapping[str, str] | None = None  # by operator or instance; None: search for one
    seed: int = 0
    method: str = "auto"


def deploy(name: str, asked: Asked, before: Deployed | None, known: Collection[str]) -> tuple[Deployed, dict[str, Job]]:
    """Return a pipeline, placed, and its jobs.

    Args:
        name: What it is called here; topics and jobs are named after it.
        asked: What was submitted.
        before: What was submitted under this name earlier.
        known: Sites that have agents.

    Raises:
        SpecError: HW1812, HW1813, or mistakes in the sites file or the placement.
        PlanError: no valid placement.
    """
    project, sites = _project(asked.project, name), read_sites(asked.sites.encode(), SITES_FILE)
    _check_sites(sites, known)
    kept = None
    if before is not None and asked.placement is None:
        is_alike = (before.sites, before.method, before.seed) == (asked.sites, asked.method, asked.seed)
        kept = before.placement if is_alike else None
    prepared = _prepared(project, sites, asked, kept)
    placement = dict(prepared.placement)
    deployed = Deployed(asked.project, asked.upload, asked.sites, asked.method, asked.seed, asked.placement, placement)
    code = pipeline_code(asked.upload, hashlib.sha256(_runnable(prepared.project)).hexdigest())
    return deployed, pipeline_jobs(prepared.project, prepared.parts, code, name)


def runnable(name: str, deployed: Deployed) -> bytes:
    """Return what runners need of a pipeline's project beside its files; jobs name it by its hash."""
    return _runnable(_project(deployed.project, name))


def _runnable(project: Project) -> bytes:
    """Return a project as JSON without where it was read: the same files read elsewhere are the same."""
    definitions = tuple(replace(one, file=one.file.rpartition("/")[2]) for one in project.definitions)
    return to_json(replace(project, folder="", definitions=definitions, fingerprint="")).encode()


def moved(
    name: str, before: Deployed, operators: Collection[str], site: str, known: Collection[str]
) -> tuple[Deployed, dict[str, Job]]:
    """Return a pipeline with some operators at another site, and its jobs: it is cut again.

    Args:
        name: Of the pipeline.
        before: As it is.
        operators: Operators or instances.
        site: Where they go.
        known: Sites that have agents.

    Raises:
        SpecError: HW1813.
        PlanError: they may not stand there.
    """
    placement = dict(before.placement)
    for one in placement:
        if one in operators or one.partition("@")[0] in operators:
            placement[one] = site
    asked = Asked(before.project, before.upload, before.sites, placement, before.seed, before.method)
    deployed, jobs = deploy(name, asked, before, known)
    return replace(deployed, asked=before.asked), jobs


def _project(text: str, name: str) -> Project:
    """Return the project under its name here, if it hangs together: it comes from outside, and nobody read it yet."""
    try:
        found = from_json(text)
        written = write_pipeline(replace(found.pipeline, name=name))
    except Exception as error:  # text of any kind may come, and fail anywhere
        raise _wrong(f"{type(error).__name__}: {error}") from error
    try:
        pipeline = read_pipeline(written.encode("utf-8", "surrogatepass"), "the project")
    except SpecError as error:
        raise _wrong("; ".join(one.text for one in error.mistakes)) from error
    if {one.name for one in found.definitions} != set(pipeline.by_name):
        raise _wrong("its operators and their definitions do not agree")
    return replace(found, pipeline=pipeline)


def _prepared(project: Project, sites: Sites, asked: Asked, kept: Mapping[str, str] | None) -> Any:
    prepare = load_core("headwater.serve.prepare")
    search = Search(asked.method, asked.seed, MOST_SEARCH_S)
    try:
        if asked.placement is not None:
            _check_placement(asked.placement, sites)
            return prepare.prepared(project, sites, search, None, asked.placement, "given")
        if kept is not None and set(kept) == set(prepare.expanded(project, sites).instances):
            try:
                return prepare.prepared(project, sites, search, None, kept, "kept from before")
            except PlanError:  # it does not fit any more, so another one is searched for
                pass
        return prepare.prepared(project, sites, search)
    except HeadwaterError:
        raise
    except Exception as error:  # as above: what is in the project is only now looked at
        raise _wrong(f"{type(error).__name__}: {error}") from error


def _check_sites(sites: Sites, known: Collection[str]) -> None:
    missing = [one.name for one in sites.sites if one.slots and one.name not in known]
    if missing:
        there = listed(sorted(known)) or "none yet"
        text = (
            f"the sites file has {listed(missing)}, where no agent is; known are: {there}. Start agents there, or "
            "give sites that run nothing 'slots: 0'."
        )
        raise SpecError(Mistake("HW1813", text))


def _check_placement(placement: Mapping[str, str], sites: Sites) -> None:
    tips = Report("")
    wrong = [
        Mistake(
            "HW1813",
            f"operator {quote(operator, 60)} is placed on {quote(site, 60)}, which the sites file does not have."
            f"{tips.tip(site, sites.by_name)}",
        )
        for operator, site in placement.items()
        if site not in sites.by_name
    ]
    if wrong:
        raise SpecError(*wrong[:20])


def _wrong(why: str) -> SpecError:
    text = f"the project cannot be used: {why[:300]}. Submit what 'headwater apply' makes of it."
    return SpecError(Mistake("HW1812", text))
