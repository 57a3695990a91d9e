"""What kind of testbed can this machine carry?

`probe` looks, by trying; `choose` decides by what was found and says why. A testbed is made in the tiers 'netem'
and 'links'; the other two are told apart for whoever wants to know what the machine could do.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from dataclasses import dataclass

from headwater.bind import cgroup
from headwater.errors import BindError
from headwater.testbed.network import program

__all__ = ["TIERS", "Ground", "choose", "probe"]

TIERS = ("netem", "links", "user namespaces", "loopback")
TRY_S = 10.0
LOWEST_PRIORITY = 1


@dataclass(frozen=True, slots=True)
class Ground:
    """What this machine allows this process."""

    is_root: bool
    has_namespaces: bool  # whether it may make network namespaces, and has the programs to do so
    has_netem: bool  # whether the kernel delays packets by itself
    has_tun: bool  # whether `/dev/net/tun` may be opened
    has_user_namespaces: bool  # whether a process without rights may make namespaces
    has_realtime: bool  # whether a process may go before all others
    group_version: int | None  # of control groups that may be written

    @property
    def tier(self) -> str:
        """Return the best kind of testbed for this machine."""
        return choose(self)[0]

    @property
    def because(self) -> str:
        """Return why it is that one."""
        return choose(self)[1]

    @property
    def is_enough(self) -> bool:
        """Return whether a testbed can be made here."""
        return self.tier in TIERS[:2]


def choose(ground: Ground) -> tuple[str, str]:
    """Return the best tier, and a sentence why."""
    if ground.is_root and ground.has_namespaces:
        if ground.has_netem:
            return "netem", "this process is root and the kernel can delay packets (netem)"
        if ground.has_tun:
            return "links", "this process is root; the kernel has no netem, so a process for each link delays packets"
        why = "this process is root, but the kernel has no netem and '/dev/net/tun' cannot be opened"
    elif ground.is_root:
        why = "this process is root, but may not make network namespaces, or the program 'ip' is missing"
    else:
        why = "this process is not root"
    if ground.has_user_namespaces:
        return "user namespaces", f"{why}; namespaces of a user are possible, without limits of processor and memory"
    return "loopback", f"{why}, and namespaces of a user are not possible: all sites share one network"


def probe() -> Ground:
    """Look at this machine; leaves nothing behind."""
    is_root = os.geteuid() == 0
    has_namespaces = is_root and _works("ip", "-V") and _works("unshare", "-n", "true")
    hierarchy = cgroup.find()
    return Ground(
        is_root=is_root,
        has_namespaces=has_namespaces,
        has_netem=has_namespaces and _works("unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem"),
        has_tun=os.access("/dev/net/tun", os.R_OK | os.W_OK),
        has_user_namespaces=_works("unshare", "-U", "-r", "-n", "-m", "true"),
        has_realtime=_may_hurry(),
        group_version=hierarchy.version if hierarchy is not None else None,
    )


def _works(*words: str) -> bool:
    try:
        command = [program(words[0]), *words[1:]]
        return subprocess.run(command, capture_output=True, timeout=TRY_S, check=False).returncode == 0
    except (BindError, OSError, subprocess.SubprocessError):
        return False


def _may_hurry() -> bool:
    granted: list[bool] = []

    def ask() -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(LOWEST_PRIORITY))
            granted.append(True)

    thread = threading.Thread(target=ask, name="may hurry")  # the priority is a thread's, and ends with it
    thread.start()
    thread.join()
    return bool(granted)
