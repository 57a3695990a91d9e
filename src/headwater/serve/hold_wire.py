"""How do held goals look as JSON? Base units, as everywhere; what is not known or has no limit is null."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headwater.sim.held import Figures, Held

__all__ = ["compared_object", "held_object", "keeps", "kept"]

Object = dict[str, Any]


def held_object(held: Held) -> Object:
    """Return what came of a scenario whose goals were held; series go into files."""
    simulated = held.simulated
    return {
        "scenario": simulated.scenario,
        "seed": simulated.seed,
        "policy": held.policy,
        "every_s": held.every_s,
        "step_s": held.step_s,
        "window_s": held.window_s,
        "simulated_s": simulated.seconds,
        "decisions": held.steps,
        "classes": _classes(held),
        "applications": {one.name: _figures(one, "applications", "most_goal_s") for one in held.applications},
        "gave_way": [asdict(one) for one in held.gave_way],
        "events": [{"at_s": one.at_s, "text": one.text} for one in simulated.moments],
    }


def compared_object(rows: Sequence[tuple[Held, float]]) -> Object:
    """Return several policies side by side."""
    first = rows[0][0]
    return {
        "scenario": first.simulated.scenario,
        "seed": first.simulated.seed,
        "every_s": first.every_s,
        "window_s": first.window_s,
        "simulated_s": first.simulated.seconds,
        "policies": {
            held.policy: {"classes": _classes(held), "gave_way": [asdict(one) for one in held.gave_way], "seconds": s}
            for held, s in rows
        },
    }


def _classes(held: Held) -> Object:
    return {one.name: {**_figures(one, "quality"), "kept": kept(held, one.name)} for one in held.classes}


def kept(held: Held, quality: str) -> int:
    """Return how many applications of a class keep their goal."""
    return sum(keeps(one) for one in held.applications if one.quality == quality)


def keeps(one: Figures) -> bool:
    """Return whether an application keeps its goal: by what was done, and by what waits.

    Whoever did nothing keeps it only if nothing waits, and nobody does with whom records wait that are late already.
    """
    if one.p99_s is None:
        return one.waiting < 1.0
    return one.p99_s <= one.most_goal_s and one.overdue < 1.0


def _figures(one: Figures, *without: str) -> Object:
    found: Mapping[str, Any] = asdict(one)
    names = {"quality": "class", "worst": "worst_violations", "worst_s": "worst_end_s"}
    return {
        names.get(key, key): None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in found.items()
        if key != "name" and key not in without
    }
