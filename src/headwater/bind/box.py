"""Which part of this machine stands for a site?

A testbed gives every site a network and a share of the processor of its own; without one, all sites share
this machine as it is. Whoever starts a process for a site needs only to know what a `Box` says.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Box"]


@dataclass(frozen=True, slots=True)
class Box:
    """The part of this machine that stands for a site; by default the machine itself."""

    enter: tuple[str, ...] = ()  # words before a command that make it run in there, under the same process id
    address: str = "127.0.0.1"  # by which other sites reach it
    manage: str = "127.0.0.1"  # by which processes outside the testbed reach it, past the links
    is_apart: bool = False  # whether it has a network of its own, where every port is free
    group: str = ""  # control group that it is limited by; '': none of its own
