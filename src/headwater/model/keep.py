"""How is a project kept?

Turns a `Project` into JSON text and back without loss, so that it can wait in a file and travel to every
process that needs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from headwater.model.pipeline import Objective, Operator, Pipeline, Stream
from headwater.model.project import Definition, Goals, Project

__all__ = ["from_json", "to_json"]

FORM = 1  # of the text; another number means another meaning


def to_json(project: Project) -> str:
    """Return a project as one line of JSON."""
    kept = {
        "form": FORM,
        "folder": project.folder,
        "pipeline": asdict(project.pipeline),
        "definitions": [{**asdict(each), "traits": sorted(each.traits)} for each in project.definitions],
        "fingerprint": project.fingerprint,
        "configuration": dict(project.configuration),
        "delivery": project.delivery,
        "goals": asdict(project.goals),
        "notes": project.notes,
    }
    return json.dumps(kept, allow_nan=False)


def from_json(text: str) -> Project:
    """Return the project that a text of `to_json` holds.

    Raises:
        ValueError: it holds none, or one that another version wrote.
    """
    kept = json.loads(text)
    if not isinstance(kept, dict) or kept.get("form") != FORM:
        raise ValueError("this text holds no project that this version can read")
    try:
        pipeline = kept["pipeline"]
        return Project(
            kept["folder"],
            Pipeline(pipeline["name"], tuple(map(_operator, pipeline["operators"])), _objective(pipeline["objective"])),
            tuple(map(_definition, kept["definitions"])),
            kept["fingerprint"],
            MappingProxyType(kept["configuration"]),
            kept["delivery"],
            Goals(**kept["goals"]),
            tuple(kept["notes"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"this text holds no whole project: {error}") from error


def _operator(kept: Mapping[str, Any]) -> Operator:
    inputs = tuple(Stream(**stream) for stream in kept["inputs"])
    at = None if kept["at"] is None else tuple(kept["at"])
    return Operator(**{**_with_tuples(kept, "together", "apart"), "inputs": inputs, "at": at})


def _objective(kept: Mapping[str, Any]) -> Objective:
    return Objective(**(kept if kept["between"] is None else _with_tuples(kept, "between")))


def _definition(kept: Mapping[str, Any]) -> Definition:
    options = tuple((key, value) for key, value in kept["options"])
    return Definition(**{**_with_tuples(kept, "reads"), "traits": frozenset(kept["traits"]), "options": options})


def _with_tuples(kept: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the same with lists as tuples: JSON knows only one of the two."""
    return {**kept, **{key: tuple(kept[key]) for key in keys}}
