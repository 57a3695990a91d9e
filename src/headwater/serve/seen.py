"""How do jobs, sites and plans look to whoever asks?

Makes the objects that the REST API answers with, of what is wanted, what the sites said last and what the loop
could not do. Asks no site anything, and goes over a thousand jobs in a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headwater.bind.store import Alias, Entry, Token
from headwater.plan.composition import composition_text, job_form
from headwater.plan.jobs import LONERS, Held, Job, Topic
from headwater.run.coordinator import Plan
from headwater.serve.controller import Answer, Controller
from headwater.serve.loop import Failure, is_as_wanted
from headwater.serve.sessions import Presence
from headwater.serve.wanting import composition, jobs_of, unknown

__all__ = [
    "answer_object",
    "composition_object",
    "compositions_object",
    "health_object",
    "history_object",
    "job_seen",
    "jobs_seen",
    "pipeline_object",
    "pipelines_object",
    "plan_object",
    "sites_object",
    "status_object",
    "tokens_object",
    "upload_object",
    "uploads_object",
]

Object = dict[str, Any]


def answer_object(answer: Answer) -> Object:
    """Return what came of a change."""
    return {
        "plan": plan_object(answer.plan, answer.basis),
        "is_done": answer.is_done,
        "failures": [_failure(one) for one in answer.failures],
    }


def plan_object(plan: Plan, basis: str) -> Object:
    """Return a plan."""
    return {
        "basis": basis,
        "changes": [
            {
                "bucket": one.bucket,
                "job": one.job,
                "site": one.site,
                "from_site": None if one.before is None else one.before.site,
                "because": one.because,
                "pause_s": one.pause_s,
            }
            for one in plan.changes.of
        ],
        "steps": [
            {
                "act": one.act,
                "site": one.site,
                "job": one.job,
                "because": one.because,
                "after": list(one.after),
                "topic": None if one.topic is None else _topic(one.topic),
            }
            for one in plan.steps
        ],
    }


def health_object(controller: Controller, version: str) -> Object:
    """Return that it is there."""
    seen = controller.sites.sites()
    return {"ok": True, "version": version, "sites": len(seen), "jobs": len(controller.store.wanted())}


def jobs_seen(controller: Controller) -> Object:
    """Return all jobs, as wanted and as observed."""
    return {"jobs": [_job(name, job, owner, told) for name, job, owner, told in _all(controller)]}


def job_seen(controller: Controller, name: str) -> Object:
    """Return one job.

    Raises:
        SpecError: HW1830.
    """
    for found, job, owner, told in _all(controller):
        if found == name:
            return _job(name, job, owner, told)
    unknown("job", name, controller.store.wanted())


def status_object(controller: Controller) -> Object:
    """Return how everything is, in short."""
    wanted, owners = controller.store.wanted(), controller.sites.latest().owners()
    names = {*wanted, *owners}
    return {
        "revision": controller.store.revision,
        "is_done": all(is_as_wanted(wanted.get(name), owners.get(name)) for name in names)
        and not controller.store.begun(),
        "sites": sites_object(controller)["sites"],
        "jobs": [_short(*one) for one in _all(controller)],
        "failures": [_failure(one) for one in controller.loop.failures()],
    }


def sites_object(controller: Controller) -> Object:
    """Return all sites."""
    counts: dict[str, int] = {}
    for one in (held for held in controller.sites.latest().held if not held.is_resting):
        counts[one.site] = counts.get(one.site, 0) + 1
    return {"sites": [_site(one, counts.get(one.site, 0)) for one in controller.sites.sites()]}


def compositions_object(controller: Controller) -> Object:
    """Return all compositions."""
    counts: dict[str, int] = {}
    for job in controller.store.wanted().values():
        if not job.part and job.composition != LONERS:
            counts[job.composition] = counts.get(job.composition, 0) + 1
    return {"compositions": [{"name": name, "jobs": count} for name, count in sorted(counts.items())]}


def composition_object(controller: Controller, name: str) -> Object:
    """Return a composition: its jobs as they are, and the text that would submit just them.

    Raises:
        SpecError: HW1830.
    """
    mine = composition(controller.store.wanted(), name)
    jobs = [_job(*one) for one in _all(controller) if one[0] in mine]
    return {"name": name, "jobs": jobs, "yaml": composition_text(mine.values())}


def pipelines_object(controller: Controller) -> Object:
    """Return all pipelines."""
    wanted = controller.store.wanted()
    return {"pipelines": [{"name": name, "jobs": len(jobs_of(wanted, name))} for name in controller.store.pipelines()]}


def pipeline_object(controller: Controller, name: str) -> Object:
    """Return a pipeline: where its operators are, and its jobs.

    Raises:
        SpecError: HW1830.
    """
    found = controller.pipeline(name)
    return {
        "name": name,
        "upload": found.upload,
        "method": found.method,
        "seed": found.seed,
        "asked": None if found.asked is None else dict(found.asked),
        "placement": dict(found.placement),
        "sites": found.sites,
        "jobs": [_job(*one) for one in _all(controller) if one[1] is not None and one[1].composition == name],
    }


def history_object(entries: Iterable[Entry]) -> Object:
    """Return what was changed."""
    return {
        "history": [
            {"id": one.id, "at_s": one.at_s, "who": one.who, "what": one.what, "outcome": one.outcome}
            for one in entries
        ]
    }


def tokens_object(tokens: Iterable[Token]) -> Object:
    """Return all tokens, without what they are."""
    return {
        "tokens": [
            {
                "id": one.id,
                "kind": one.kind,
                "site": one.site,
                "created_at_s": one.created_s,
                "revoked_at_s": one.revoked_s,
            }
            for one in tokens
        ]
    }


def uploads_object(uploads: Iterable[Alias]) -> Object:
    """Return all that was uploaded."""
    return {"uploads": [{**upload_object(one), "at_s": one.at_s} for one in uploads]}


def upload_object(upload: Alias) -> Object:
    """Return an upload."""
    return {"name": upload.name, "hash": upload.hash, "size_bytes": upload.size_bytes}


Row = tuple[str, Job | None, Held | None, Mapping[str, Any]]


def _all(controller: Controller) -> list[Row]:
    """Return all jobs that are wanted or held, by name, with what is told of them; those that rest are not shown."""
    wanted, owners = controller.store.wanted(), controller.sites.latest().owners()
    owners = {name: one for name, one in owners.items() if name in wanted or not one.is_resting}
    told: dict[str, Mapping[str, Any]] = {}
    for site in controller.sites.sites():
        of_jobs = site.told.get("jobs")
        if isinstance(of_jobs, Mapping):
            for name, one in of_jobs.items():
                owner = owners.get(name)
                if isinstance(one, Mapping) and owner is not None and owner.site == site.site:
                    told[name] = one
    return [(name, wanted.get(name), owners.get(name), told.get(name, {})) for name in sorted({*wanted, *owners})]


def _job(name: str, job: Job | None, owner: Held | None, told: Mapping[str, Any]) -> Object:
    observed = None
    if owner is not None:
        observed = {
            "site": owner.site,
            "epoch": owner.epoch,
            "is_run": owner.is_run,
            "state": owner.state,
            "text": owner.text,
            "job": _described(owner.job),
        }
    wanted = None if job is None else {**_described(job), "form": job_form(job)}
    return {**_short(name, job, owner, told), "wanted": wanted, "observed": observed}


def _short(name: str, job: Job | None, owner: Held | None, told: Mapping[str, Any]) -> Object:
    known = job if job is not None else None if owner is None else owner.job
    assert known is not None, "a job is wanted or held"
    state = owner.state if owner is not None else "starting" if known.is_run else "stopped"
    return {
        "name": name,
        "composition": known.composition,
        "state": state,
        "text": "" if owner is None else owner.text,
        "site": known.site if owner is None else owner.site,
        "wanted_site": None if job is None else job.site,
        "is_run": job is not None and job.is_run,
        "is_done": is_as_wanted(job, owner),
        "epoch": None if owner is None else owner.epoch,
        "entry": known.entry,
        "told": dict(told),
    }


def _described(job: Job) -> Object:
    return {
        "site": job.site,
        "composition": job.composition,
        "sources": [_topic(one) for one in job.sources],
        "sink": None if job.sink is None else _topic(job.sink),
        "code": job.code,
        "entry": job.entry,
        "is_stateful": job.is_stateful,
        "is_run": job.is_run,
        "is_fragment": bool(job.part),
    }


def _site(one: Presence, jobs: int) -> Object:
    hello = one.hello
    return {
        "name": one.site,
        "is_reached": one.is_reached,
        "seen_s": one.silence_s,
        "broker": None if hello is None else hello.broker,
        "address": None if hello is None else hello.address,
        "version": None if hello is None else hello.version,
        "jobs": jobs,
        "told": {key: value for key, value in one.told.items() if key != "jobs"},
    }


def _failure(one: Failure) -> Object:
    return {"job": one.job, "site": one.site, "act": one.act, "text": one.text}


def _topic(topic: Topic) -> Object:
    return {"broker": topic.broker, "name": topic.name}
