"""How do simulations look as JSON? Base units, as everywhere; what is not known is null."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from headwater.sim.result import Moment, Simulated

__all__ = ["compared_object", "result_object"]

Object = dict[str, Any]


def result_object(result: Simulated) -> Object:
    """Return what came of a scenario; series go into files."""
    return {
        "scenario": result.scenario,
        "seed": result.seed,
        "simulated_s": result.seconds,
        "steps": result.steps,
        "operator_steps": result.operator_steps,
        "totals": _clean(asdict(result.totals)),
        "operators": {one.name: _clean({**asdict(one), "wait_s": one.wait_s}, "name") for one in result.operators},
        "machines": {one.name: _clean(asdict(one), "name") for one in result.machines},
        "links": [_clean(asdict(one)) for one in result.links],
        "events": [_moment(one) for one in result.moments],
        "bucket_s": None if result.series is None else result.series.bucket_s,
    }


def compared_object(scenario: str, rows: Sequence[tuple[str, Simulated, float]]) -> Object:
    """Return several methods side by side."""
    return {
        "scenario": scenario,
        "methods": {
            method: {**_clean(asdict(result.totals)), "moved": sum(one.moved for one in result.moments), "seconds": s}
            for method, result, s in rows
        },
    }


def _moment(one: Moment) -> Object:
    found: Object = {"at_s": one.at_s, "text": one.text}
    if one.placement is not None:
        found |= {"placement": dict(one.placement), "moved": one.moved, "because": one.because}
    return found


def _clean(found: Object, *without: str) -> Object:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in found.items()
        if key not in without
    }
