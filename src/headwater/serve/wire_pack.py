"""How do packings look as JSON? In the shape of docs/packing.md."""

from __future__ import annotations

from typing import Any

from headwater.model.workload import Workload
from headwater.pack.result import Packing, Unpackable

__all__ = ["any_object", "packing_object", "unpackable_object"]

Object = dict[str, Any]


def packing_object(workload: Workload, packing: Packing, seconds: float) -> Object:
    """Return a packing and what is known about it; `seconds` is the wall time that it took."""
    is_plain = workload.is_plain  # then costs are numbers of machines
    return {
        "method": packing.method,
        "assignment": dict(packing.assignment),
        "used": packing.used,
        "utilisation": packing.utilisation,
        "overload": packing.overload,
        "lower_bound": round(packing.lower_bound) if is_plain else packing.lower_bound,
        "proved": packing.proved,
        "seconds": seconds,
        "cost": round(packing.cost) if is_plain else packing.cost,
        "gap": packing.gap,
        "overloaded": [machine.number for machine in packing.measured.machines if machine.is_over],
        "cut_short": packing.cut_short,
        "because": list(packing.because),
    }


def unpackable_object(method: str, answer: Unpackable) -> Object:
    """Return why there is no packing."""
    return {
        "method": method,
        "assignment": None,
        "used": None,
        "proved": answer.is_proven,
        "needed": answer.needed,
        "at_least": answer.at_least,
        "reasons": list(answer.reasons),
    }


def any_object(workload: Workload, method: str, answer: Packing | Unpackable | str, seconds: float) -> Object:
    """Return one method's answer in a comparison; text says why it did not try."""
    if isinstance(answer, Packing):
        return packing_object(workload, answer, seconds)
    if isinstance(answer, Unpackable):
        return unpackable_object(method, answer)
    return {"method": method, "assignment": None, "used": None, "refused": answer, "reasons": [answer]}
