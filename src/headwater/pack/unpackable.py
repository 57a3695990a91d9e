"""Why is there no packing? Operators that no machine holds, or machines that are too few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.model.report import listed
from headwater.model.workload import Kind, Workload
from headwater.pack.loads import Found, Loads, loads_of
from headwater.pack.result import Unpackable
from headwater.pack.simple import fitted

__all__ = ["never_fits", "too_few"]


def never_fits(workload: Workload, loads: Loads) -> Unpackable | None:
    """Return which operators are too large for every machine, where overload is forbidden."""
    if not loads.is_hard:
        return None
    most = float(loads.capacities.max())
    large = np.flatnonzero(loads.peaks > most)
    if not len(large):
        return None
    shown = [
        f"operator '{loads.names[i]}' has a peak of {loads.peaks[i]:.6g}, and the largest machine a capacity of "
        f"{workload.capacity:g}"
        for i in large[:10]
    ]
    if len(large) > 10:
        shown.append(f"so have {len(large) - 10} more: {listed([loads.names[i] for i in large[10:]])}")
    shown.append("split these operators, use larger machines, or give overload a price")
    return Unpackable(tuple(shown), True)


def too_few(workload: Workload, loads: Loads, method: str, bound: float, found: Found) -> Unpackable:
    """Return that the machines are not enough, and how many would be."""
    count = len(loads.names)
    unlimited = replace(workload, kinds=tuple(Kind(kind.capacity, count, kind.price) for kind in workload.kinds))
    free = loads_of(unlimited)
    where = fitted(free, np.argsort(-free.peaks, kind="stable"))
    needed = None if where is None else len(np.unique(where))
    at_least = int(np.ceil(bound - 1e-6)) if loads.is_plain else None
    is_proven = at_least is not None and at_least > workload.machines
    reasons = [
        f"at least {at_least} machines are needed, and {workload.machines} may be used"
        if is_proven
        else f"{workload.machines} machines may be used, and method '{method}' found no way to fit all operators"
    ]
    if needed is not None:
        reasons.append(f"{needed} machines are enough (best fit)")
    reasons.append("allow more machines, or give overload a price" + ("" if is_proven else ", or try 'auto'"))
    return Unpackable(tuple(reasons) + found.because, is_proven, needed, at_least)
