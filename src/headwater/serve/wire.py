"""How do answers look as JSON?

Takes values of the core and gives plain dictionaries in base units, in the shapes of docs/model.md;
`text` makes the one line that goes to standard output. A number that is not finite becomes null,
because JSON has no word for it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import Mistake, SpecError
from headwater.model.pipeline import LEVEL_NAMES

if TYPE_CHECKING:  # an error must be told without loading the search
    from headwater.cost.score import Score
    from headwater.model.sites import Sites
    from headwater.place.result import Infeasible, Result

__all__ = [
    "error_object",
    "infeasible_object",
    "infeasible_sentences",
    "refused_object",
    "result_object",
    "score_object",
    "sites_object",
    "text",
]

Object = dict[str, Any]
CODED = re.compile(r"(HW\d{4}) (.*)", re.DOTALL)


def text(value: Mapping[str, Any]) -> str:
    """Return one JSON object on one line, in ASCII."""
    return json.dumps(value, allow_nan=False)


def score_object(score: Score) -> Object:
    """Return what a placement costs."""
    bounds = score.bounds
    return {
        "valid": score.valid,
        "f": _number(score.f),
        "rt_s": _number(score.rt_s),
        "rf": _number(score.rf),
        "bw_bps": _number(score.bw_bps),
        "bounds": {
            "rt_min_s": _number(bounds.rt_min_s),
            "rt_max_s": _number(bounds.rt_max_s),
            "rf_max": _number(bounds.rf_max),
            "bw_max_bps": _number(bounds.bw_max_bps),
        },
        "critical_path": list(score.critical_path),
        "load_cores": {site: _number(load) for site, load in (score.load_cores or {}).items()},
        "overloaded": list(score.overloaded),
        "congested": [
            {"link": list(each.link), "toward": each.toward, "over_bps": _number(each.over_bps)}
            for each in score.congested
        ],
        "reasons": list(score.reasons),
    }


def result_object(result: Result, seconds: float) -> Object:
    """Return a placement and what is known about it; `seconds` is the wall time that it took."""
    return {
        "method": result.method,
        "placement": dict(result.placement),
        "score": score_object(result.score),
        "lower_bound": _number(result.lower_bound),
        "gap": _number(result.gap),
        "proved": result.proved,
        "seconds": seconds,
        "evaluations": result.evaluations,
        "cut_short": result.cut_short,
        "because": list(result.because),
    }


def infeasible_object(method: str, answer: Infeasible) -> Object:
    """Return why no placement exists."""
    return {
        "method": method,
        "placement": None,
        "score": None,
        "unplaced": [{"operator": each.operator, "because": list(each.because)} for each in answer.unplaced],
        "conflict": list(answer.conflict),
        "reasons": list(infeasible_sentences(answer)),
    }


def infeasible_sentences(answer: Infeasible) -> tuple[str, ...]:
    """Return why no placement exists, a sentence each."""
    sentences = [f"no site can run '{each.operator}': {'; '.join(each.because)}" for each in answer.unplaced]
    if answer.conflict:
        sentences.append(f"these demands cannot hold together: {'; '.join(answer.conflict)}")
    return tuple(sentences) or ("no valid placement exists",)


def refused_object(method: str, reason: str) -> Object:
    """Return that a method did not try, and why."""
    return {"method": method, "placement": None, "score": None, "refused": reason, "reasons": [reason]}


def error_object(error: Exception) -> Object:
    """Return what went wrong: each mistake with its code, file and line where they are known."""
    mistakes: Iterable[Mistake]
    if isinstance(error, SpecError):
        mistakes = error.mistakes
    else:
        coded = CODED.match(str(error))
        mistakes = (Mistake(coded[1], coded[2]) if coded else Mistake("HW9000", str(error)),)
    return {
        "error": {
            "mistakes": [
                {"code": each.code, "file": each.file, "line": each.line, "text": each.text} for each in mistakes
            ]
        }
    }


def sites_object(sites: Sites) -> Object:
    """Return the sites in the form of a sites file, in base units."""
    return {
        "sites": {
            site.name: {
                "kind": site.kind,
                "class": LEVEL_NAMES[site.level],
                "slots": site.slots,
                "speed": site.speed,
                **({} if site.cores is None else {"cores": site.cores}),
                **({} if site.memory_bytes is None else {"memory": site.memory_bytes}),
                **({"price": site.price} if site.price else {}),
                **({"tags": list(site.tags)} if site.tags else {}),
            }
            for site in sites.sites
        },
        "links": [
            {"between": [link.a, link.b], "latency": link.latency_s, "bandwidth": link.bandwidth_bps}
            for link in sites.links
        ],
    }


def _number(value: float | None) -> float | int | None:
    if value is None or not math.isfinite(value):
        return None
    return int(value) if isinstance(value, int) else float(value)
