"""Which jobs is a placed and cut pipeline?

Takes the parts that `plan.deploy` gives, and makes one `Job` of each. A job keeps its part as text in which
nothing depends on the site that runs it, so that a fragment that only moves is the same job before and after;
`part_of` puts the site back in. What a source reads is known to Spark alone: it counts as a topic of its site
called '@OPERATOR', so that whoever takes the operator over also takes over its place in the source.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace

from headwater.model.project import Project
from headwater.plan.deploy import Part, part_from, part_object
from headwater.plan.jobs import JOB_NAME, Job, Topic

__all__ = ["SOURCE", "job_name", "part_of", "pipeline_jobs"]

SOURCE = "@"  # begins the name of what stands for a source; no topic can be called so
LONGEST_NAME = 120  # characters, as `JOB_NAME` has it
HASH = 8  # characters that keep two shortened names apart


def pipeline_jobs(project: Project, parts: Iterable[Part], code: str, name: str) -> dict[str, Job]:
    """Return the jobs of a pipeline, by name, writers before readers.

    Args:
        project: What the parts were made from.
        parts: One for each fragment.
        code: Hash of the uploaded project.
        name: Of the pipeline, as it is deployed; jobs are called 'NAME.FRAGMENT'.
    """
    jobs = (_job(project, part, code, name) for part in parts)
    return {job.name: job for job in jobs}


def job_name(pipeline: str, fragment: str) -> str:
    """Return the name of a fragment's job; two fragments never give the same.

    >>> job_name("city", "hot")
    'city.hot'
    """
    whole = f"{pipeline}.{fragment}"
    if len(whole) > LONGEST_NAME:
        mark = hashlib.sha256(whole.encode()).hexdigest()[:HASH]
        whole = f"{whole[: LONGEST_NAME - HASH - 1]}-{mark}"
    assert JOB_NAME.fullmatch(whole), "pipelines and fragments have names that jobs can have"
    return whole


def part_of(job: Job) -> Part:
    """Return the part that a pipeline's job runs, at its site."""
    part = part_from(json.loads(job.part))
    return replace(part, site=job.site, broker=part.broker or job.site)


def _job(project: Project, part: Part, code: str, name: str) -> Job:
    read = dict.fromkeys(Topic(one.broker, one.topic) for one in part.inputs)
    own = [Topic(part.site, f"{SOURCE}{step.name}") for step in part.steps if not step.reads]
    return Job(
        job_name(name, part.id),
        name,
        part.site,
        (*read, *own),
        _sink(project, part),
        code,
        ",".join(part.operators),
        _text(part),
        part.is_stateful,
    )


def _sink(project: Project, part: Part) -> Topic | None:
    if part.topic is not None:
        return Topic(part.broker, part.topic)
    last = project.by_name[part.steps[-1].of]
    options = dict(last.options)
    is_kafka = part.output == "sink" and last.format == "kafka" and "topic" in options
    return Topic(part.site, options["topic"]) if is_kafka else None


def _text(part: Part) -> str:
    """Return a part as JSON, without what only says where it runs, how fast, or why."""
    broker = "" if part.topic is None else part.broker  # else it is that of the site itself
    return json.dumps(part_object(replace(part, site="", broker=broker, because="", in_rps=0.0)), sort_keys=True)
