"""Into which brokers of a control plane does the outside write?

Takes the state folder of a `headwater up` and gives what `headwater run` tells of itself in its own: the
address of each site's broker, and the sites where something is read that no job writes. Asks the controller, as
any command does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headwater.serve.client import Client, find

__all__ = ["READY", "ready_plane", "source_sites"]

READY = "up.json"  # in the state folder of a control plane while all of it is up
OUTSIDE = "@"  # what the names of topics begin with that stand for sources that only Spark knows


def ready_plane(state: str) -> dict[str, Any]:
    """Return the brokers of a control plane that is up, and where its jobs read from outside.

    Raises:
        OSError, ValueError: none is up with this state folder.
        BindError: its controller does not answer.
    """
    told = json.loads((Path(state) / READY).read_text("utf-8"))
    with Client(find(None, state)) as client:
        sites = source_sites(client.get("/jobs")["jobs"])
    return {**told, "fragments": [{"site": site, "has_source": True} for site in sites if site in told["brokers"]]}


def source_sites(jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the sites whose topics jobs read and no job writes, of jobs as the API tells them."""
    wanted = [one["wanted"] for one in jobs if one.get("wanted")]
    written = {(one["sink"]["broker"], one["sink"]["name"]) for one in wanted if one["sink"] is not None}
    found = set()
    for one in wanted:
        for topic in one["sources"]:
            if topic["name"].startswith(OUTSIDE):
                found.add(one["site"])
            elif (topic["broker"], topic["name"]) not in written:
                found.add(topic["broker"])
    return sorted(found)
