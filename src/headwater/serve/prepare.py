"""What is to be run, and where?

From a project and a sites file to a placed, cut pipeline: read (`author.inspect`), expand, place or take the
user's placement, judge it, cut. Loads the search, so the command line imports it late.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.cost.problem import Problem
from headwater.cost.score import Score, evaluate
from headwater.errors import Mistake, PlanError, SpecError
from headwater.model.files import read_placement
from headwater.model.project import Project
from headwater.model.sites import Sites
from headwater.place import Infeasible
from headwater.plan.cut import Cut
from headwater.plan.deploy import Part, deploy
from headwater.plan.expand import Expanded, Replication, expand, spread
from headwater.serve import disk, wire
from headwater.serve.arguments import Search
from headwater.serve.commands import searched
from headwater.serve.load import load_sites, shown_name

__all__ = ["Prepared", "expanded", "kept_placement", "plan_object", "prepare", "prepared"]


@dataclass(frozen=True)
class Prepared:
    """A project that is ready to run."""

    project: Project
    sites: Sites
    expanded: Expanded
    placement: Mapping[str, str]
    score: Score
    because: str  # of the placement
    cut: Cut
    parts: tuple[Part, ...]


def expanded(project: Project, sites: Sites) -> Expanded:
    """Return the instances of a project on these sites."""
    replication = {one.name: Replication(one.each, one.once) for one in project.definitions}
    return expand(project.pipeline, replication, sites)


def prepare(
    project: Project, sites_file: str, placement_file: str | None, search: Search, kept: Mapping[str, str] | None
) -> Prepared:
    """Return the project, placed and cut as files say.

    Args:
        project: As it was read.
        sites_file: The sites.
        placement_file: The user's placement, by operator or by instance; None: search for one.
        search: How to search.
        kept: Where an earlier run with the same state placed the instances; None: there was none.

    Raises:
        SpecError: a file is wrong, or the placement differs from the one that the state belongs to.
        PlanError: no valid placement.
    """
    sites = load_sites(sites_file)
    if placement_file is None:
        return prepared(project, sites, search, kept)
    whole = expanded(project, sites)
    text = disk.read(placement_file)
    named = read_placement(text, shown_name(placement_file), whole.pipeline, sites, project.pipeline.by_name)
    return prepared(project, sites, search, kept, named, f"given by {shown_name(placement_file)}")


def prepared(
    project: Project,
    sites: Sites,
    search: Search,
    kept: Mapping[str, str] | None = None,
    named: Mapping[str, str] | None = None,
    because: str = "given",
) -> Prepared:
    """Return the placed and cut project.

    Args:
        project: As it was read.
        sites: Where it may run.
        search: How to search.
        kept: Where an earlier run with the same state placed the instances; None: there was none.
        named: Where operators or instances are to stand; None: search for it.
        because: Why they are to stand there.

    Raises:
        SpecError: the placement differs from the one that the state belongs to.
        PlanError: no valid placement.
    """
    whole = expanded(project, sites)
    problem = Problem(whole.pipeline, sites)
    if named is not None:
        pinned = {one.name: one.at[0] for one in whole.pipeline.operators if one.at is not None and len(one.at) == 1}
        pinned = {name: site for name, site in pinned.items() if site in sites.by_name}
        chosen: Mapping[str, str] = spread({**pinned, **named}, whole)
    elif kept is not None and set(kept) == set(whole.instances) and set(kept.values()) <= set(sites.by_name):
        chosen, because = kept, "kept from the run before"
    else:
        answer, _ = searched(problem, search)
        if isinstance(answer, Infeasible):
            reasons = "; ".join(wire.infeasible_sentences(answer))
            raise PlanError(f"HW2101 no valid placement exists: {reasons}.")
        chosen, because = answer.placement, f"found by {search.method}"
    score = evaluate(problem, chosen)
    if not score.valid:
        raise PlanError(f"HW2102 this placement is not valid: {'; '.join(score.reasons)}.")
    _check_kept(chosen, kept)
    pieces, parts = deploy(project, whole, chosen)
    return Prepared(project, sites, whole, chosen, score, because, pieces, parts)


def _check_kept(chosen: Mapping[str, str], kept: Mapping[str, str] | None) -> None:
    moved = [name for name, site in chosen.items() if kept is not None and kept.get(name, site) != site]
    if moved and kept is not None:
        what = ", ".join(f"'{name}' from {kept[name]} to {chosen[name]}" for name in moved[:3])
        raise SpecError(
            Mistake(
                "HW1310",
                f"the state folder belongs to another placement: this one moves {what}, and their checkpoints and "
                "unread records would stay behind. Leave --placement and --method out to go on as before, or begin "
                "anew with another --state.",
            )
        )


def plan_object(prepared: Prepared) -> list[dict[str, Any]]:
    """Return the fragments as JSON has them."""
    return [
        {
            "id": part.id,
            "site": part.site,
            "operators": list(part.operators),
            "has_source": any(not step.reads for step in part.steps),
            "lane": part.lane,
            "because": part.because,
            "output": part.output,
            "topic": part.topic,
            "broker": part.broker,
            "inputs": [one.topic for one in part.inputs],
        }
        for part in prepared.parts
    ]


def kept_placement(file: Path, project: Project) -> Mapping[str, str] | None:
    """Return the placement that a state folder belongs to, or None for a new one.

    Raises:
        SpecError: HW1311, the folder belongs to another pipeline.
    """
    try:
        found = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SpecError(
            Mistake("HW1311", f"'{file}' cannot be read: {error}. Begin anew with another --state.")
        ) from None
    if found.get("pipeline") != project.name:
        text = (
            f"the state folder belongs to pipeline '{found.get('pipeline')}', and this one is '{project.name}'. "
            "Begin anew with another --state."
        )
        raise SpecError(Mistake("HW1311", text))
    placement: dict[str, str] = found["placement"]
    return placement
