"""How much of this machine does each site get?

A site's strength is its cores times their speed; a scale says how many cores of this machine stand for a strength
of 1, so that sites stay as unequal as they are declared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from headwater.model.sites import Site, Sites

__all__ = ["fitting_scale", "machine_cores", "quotas", "running_scale", "sites_cores"]

SPARE_SHARE, MOST_SPARE_CORES = 0.15, 2.0  # of the machine, for links and for whoever feeds and watches
LEAST_CORES = 0.5  # of a site that runs a broker and a runner: Java on less takes minutes to warm up


def quotas(sites: Sites, machine_cores: float, scale: float | None = None) -> dict[str, float | None]:
    """Return how many of the machine's cores each site gets; None: all, for a site that declares none.

    A site's strength is its cores times their speed. `scale` is the machine's cores for a strength of 1; without
    it, the strongest site gets the whole machine. None gets more than there is.
    """
    if scale is None:
        scale = fitting_scale(sites.sites, machine_cores)
    strengths = {site.name: site.cores * site.speed if site.cores is not None else None for site in sites.sites}
    return {name: None if one is None else min(machine_cores, scale * one) for name, one in strengths.items()}


def fitting_scale(sites: Iterable[Site], machine_cores: float, least_cores: float = 0.0) -> float:
    """Return the scale by which the strongest gets the whole machine, unless the weakest then had less than the least.

    >>> fitting_scale([Site("pi", cores=1), Site("dc", cores=16)], 2, 0.5)
    0.5
    """
    strengths = [site.cores * site.speed for site in sites if site.cores is not None]
    if not strengths:
        return machine_cores
    return max(machine_cores / max(strengths), least_cores / min(strengths))


def sites_cores(machine_cores: float) -> float:
    """Return how many cores all sites together may use: links that wait for a processor are not what was asked for.

    >>> sites_cores(2.0), sites_cores(32.0)
    (1.7, 30.0)
    """
    return machine_cores - min(SPARE_SHARE * machine_cores, MOST_SPARE_CORES)


def running_scale(sites: Iterable[Site]) -> float:
    """Return the scale for sites that run something, on this machine."""
    return fitting_scale(sites, sites_cores(machine_cores()), LEAST_CORES)


def machine_cores() -> float:
    """Return how many cores this process may use."""
    return float(len(os.sched_getaffinity(0)))
