"""How does a command come to know a project?

Fetches the jars that Spark needs to understand Kafka sources, and asks `author.inspect`, which keeps its
answers: Spark starts only for a project that was not read before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from headwater.bind import archive, jars
from headwater.bind.jars import Jars
from headwater.model.project import Project
from headwater.serve.progress import Teller

__all__ = ["cache_folder", "fetched_jars", "lanes_of", "made_archives", "read"]


def cache_folder() -> Path:
    """Return where answers about projects are kept."""
    base = os.environ.get("HEADWATER_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "headwater" / "projects"


def fetched_jars() -> Jars:
    """Return the jars; the first time they are downloaded, with a line of progress."""
    with Teller("fetching jars") as teller:
        return jars.ensure(lambda text: teller.say(text, None))


def made_archives(found: Jars) -> Mapping[str, Path]:
    """Return the archives of Java's classes; the first time they are made, with a line of progress."""
    with Teller("preparing") as teller:
        return archive.ensure(found, lambda text: teller.say(text, None))


def read(path: str, found: Jars) -> Project:
    """Return what a project says."""
    from headwater.author.inspect import inspect  # noqa: PLC0415 - an agent fetches jars, starts often and reads nothing

    with Teller(f"reading {path}"):
        return inspect(path, [str(one) for one in found.spark], str(cache_folder()))


def lanes_of(project: Project) -> Mapping[str, tuple[str, str]]:
    """Return the lane that each operator would have by itself, and why."""
    from headwater.cost.flow import flow  # noqa: PLC0415 - likewise
    from headwater.plan.lanes import operator_lanes  # noqa: PLC0415 - likewise

    return operator_lanes(project, flow(project.pipeline).in_rate_rps)
