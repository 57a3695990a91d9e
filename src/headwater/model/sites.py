"""Where could it run?

`Sites` is a connected graph of sites and full-duplex links in base units, already checked by
`model.files`; routes over it are in `model.routes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

__all__ = ["KINDS", "Link", "Site", "Sites"]

KINDS = ("leaf", "middle", "root")


@dataclass(frozen=True, slots=True)
class Site:
    """One machine or cluster that may run operators."""

    name: str
    kind: str = "middle"  # 'leaf' (sources live here), 'root' (sinks live here) or 'middle'
    level: int = 1  # its class: 1 low, 2 medium, 3 high
    slots: int = 1  # how many operators fit; 0: only passes data on
    speed: float = 1.0  # work done per core second, relative to a reference machine
    cores: float | None = None  # None: not declared
    memory_bytes: float | None = None  # None: not declared
    price: float = 0.0  # per hour
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex connection: bandwidth holds for each direction by itself."""

    a: str
    b: str
    latency_s: float  # one way
    bandwidth_bps: float


@dataclass(frozen=True)
class Sites:
    """Sites in file order, and the links between them."""

    sites: tuple[Site, ...]
    links: tuple[Link, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Site]:
        """Sites by their name."""
        return MappingProxyType({site.name: site for site in self.sites})
