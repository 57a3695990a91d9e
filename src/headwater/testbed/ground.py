"""What kind of testbed can this machine carry?

`probe` looks, by trying; `choose` decides by what was found and says why. Root makes a testbed in the tiers 'netem'
and 'links', any other user in namespaces of their own (`testbed.private`), where `way_in` leads; in the tier
'loopback' there is none.

    HW4901   this machine cannot carry a testbed, or not for this user
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from dataclasses import dataclass

from headwater.bind import cgroup
from headwater.errors import BindError
from headwater.testbed import private
from headwater.testbed.network import program

__all__ = ["TIERS", "Ground", "choose", "probe", "refusal", "way_in"]

TIERS = ("netem", "links", "user namespaces", "loopback")
TUN = "/dev/net/tun"
TRY_S = 10.0
LOWEST_PRIORITY = 1


@dataclass(frozen=True, slots=True)
class Ground:
    """What this machine allows this process."""

    is_root: bool
    is_private: bool  # whether only of namespaces that end with its command
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
        """Return whether this process can make a testbed."""
        return self.is_root and self.has_namespaces

    @property
    def links(self) -> str:
        """Return by what packets are delayed: 'netem', or a process with devices of its own or with those it gets."""
        return "netem" if self.has_netem else "tun" if self.has_tun else "packet"


def choose(ground: Ground) -> tuple[str, str]:
    """Return the best tier, and a sentence why."""
    if ground.is_enough:
        by = "the kernel can delay packets (netem)"
        if not ground.has_netem:
            by = "the kernel has no netem, so a process for each link delays packets"
        if ground.is_private:
            limits = "without" if ground.group_version is None else "with"
            return TIERS[2], f"this user has namespaces of their own, {limits} limits of processor and memory; {by}"
        return TIERS[0 if ground.has_netem else 1], f"this process is root; {by}"
    why = "this process is not root"
    if ground.is_root:
        why = "this process is root, but may not make network namespaces, or the program 'ip' is missing"
    if ground.has_user_namespaces:
        return TIERS[2], f"{why}; namespaces of a user are possible, without limits of processor and memory"
    nor = "namespaces of a user are not possible, or the program 'ip' or 'unshare' is missing"
    return TIERS[3], f"{why}, and {nor}: all sites share one network"


def refusal(ground: Ground) -> str:
    """Return why a process on this ground cannot make a testbed, and what works instead."""
    if ground.has_user_namespaces and not ground.is_private:
        return (
            "a testbed that stays takes root: without, its networks would end with this command. Run it as root, or "
            "use 'headwater run --emulate' or 'headwater bench', which work without: in networks of their own, and "
            "with sites that are not limited."
        )
    return (
        f"this machine cannot carry a testbed: {ground.because}. Run as root on Linux with iproute2, or allow users to "
        f"make namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
        f"kernel.apparmor_restrict_unprivileged_userns); 'headwater run' without --emulate runs all sites on loopback, "
        f"where nothing is emulated."
    )


def way_in() -> tuple[str, ...]:
    """Return the words by which this command, started again, can make a testbed; none: this process can.

    Raises:
        BindError: HW4901, there is no way.
    """
    ground = probe()
    if ground.is_enough:
        return ()
    if ground.is_private or not ground.has_user_namespaces:
        raise BindError(f"HW4901 {refusal(ground)}")
    return private.words(private.own_command())


def probe() -> Ground:
    """Look at this machine; leaves nothing behind."""
    is_root = os.geteuid() == 0
    has_namespaces = is_root and _works("ip", "-V") and _works("unshare", "-n", "true")
    hierarchy = cgroup.find()
    return Ground(
        is_root=is_root,
        is_private=private.is_private(os.environ),
        has_namespaces=has_namespaces,
        has_netem=has_namespaces and _works("unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem"),
        has_tun=_opens(TUN),
        has_user_namespaces=_has_user_namespaces(),
        has_realtime=_may_hurry(),
        group_version=hierarchy.version if hierarchy is not None else None,
    )


def _works(*words: str) -> bool:
    try:
        command = [program(words[0]), *words[1:]]
        return subprocess.run(command, capture_output=True, timeout=TRY_S, check=False).returncode == 0
    except (BindError, OSError, subprocess.SubprocessError):
        return False


def _has_user_namespaces() -> bool:
    """Return whether a user may do all of what a testbed begins with; it is gone with the command that tries it."""
    try:
        return _works(*private.words([program("ip"), "netns", "add", "try"]))
    except BindError:  # a program is missing
        return False


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _may_hurry() -> bool:
    granted: list[bool] = []
    if not hasattr(os, "sched_setscheduler"):
        return False

    def ask() -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(LOWEST_PRIORITY))
            granted.append(True)

    thread = threading.Thread(target=ask, name="may hurry")  # the priority is a thread's, and ends with it
    thread.start()
    thread.join()
    return bool(granted)
