"""How are the processor and the memory of a group of processes limited?

Linux counts and limits processes by control groups. `find` tells which kind this machine has, `Group` is one
group: made, limited, joined by its `procs_files`, read and removed. A site's group is called 'headwater/BED/SITE'.

In version 1 every controller has a tree of folders of its own; in version 2 all share one tree, and a group
hands a controller down by `cgroup.subtree_control`.

    HW4801   a name that is no name of a group
    HW4802   the kernel refuses to make, set or read a group
    HW4803   a limit that cannot be set
    HW4804   processes or folders of a group do not go away
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import BindError

__all__ = ["ROOT", "Group", "Hierarchy", "find", "quota"]

ROOT = Path("/sys/fs/cgroup")
# A group that has used its quota stands still until the period ends. A short period makes that look like a slow
# machine and not like one that stops and goes; the kernel wants a quota of at least a millisecond.
PERIODS_US = (20_000, 100_000, 1_000_000)
SHORTEST_QUOTA_US = 1_000
LEAST_MEMORY_BYTES = 4096
PATIENCE_S = 10.0
PAUSE_S = 0.005
PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The trees of control groups of this machine, by what they are for."""

    version: int  # 1 or 2
    cpu: Path
    usage: Path | None  # where used processor time is counted
    memory: Path | None


def find(root: Path = ROOT) -> Hierarchy | None:
    """Return the control groups that this process may write; None where there are none for the processor."""
    try:
        together = (root / "cgroup.controllers").read_text("ascii").split()
    except OSError:
        together = []
    if "cpu" in together:
        if not (os.access(root, os.W_OK) and os.access(root / "cgroup.subtree_control", os.W_OK)):
            return None
        return Hierarchy(2, root, root, root if "memory" in together else None)
    cpu, usage, memory = (_own_tree(root / name) for name in ("cpu", "cpuacct", "memory"))
    return Hierarchy(1, cpu, usage, memory) if cpu is not None else None


def _own_tree(folder: Path) -> Path | None:
    is_there = (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK)
    return folder.resolve() if is_there else None  # 'cpu' and 'cpuacct' may be two names of one tree


def quota(cores: float) -> tuple[int, int]:
    """Return how many microseconds of processor time a group gets in each period, and the period.

    >>> quota(0.5), quota(0.04), quota(0.002)
    ((10000, 20000), (4000, 100000), (2000, 1000000))
    """
    for period_us in PERIODS_US:
        quota_us = round(cores * period_us)
        if quota_us >= SHORTEST_QUOTA_US:
            return quota_us, period_us
    least = SHORTEST_QUOTA_US / PERIODS_US[-1]
    raise BindError(f"HW4803 a limit of {cores:g} cores cannot be set; the least is {least:g}. Give more.")


class Group:
    """A group of processes that are limited and counted together.

    The folder for memory is made only with the first limit of it: a process that needs none stays where the
    system counts its memory.
    """

    def __init__(self, hierarchy: Hierarchy, name: str) -> None:
        """Describe it; `make` makes it.

        Raises:
            BindError: HW4801, a part of the name is not made of letters, digits, '_' and '-'.
        """
        parts = name.split("/")
        if not all(PART.fullmatch(part) for part in parts):
            raise BindError(
                f"HW4801 '{name}' cannot be the name of a control group: each part between slashes is made of "
                f"letters, digits, '_' and '-' and begins with a letter or digit. Choose another name."
            )
        self.hierarchy = hierarchy
        self.name = name
        self._parts = parts
        self._cpu = hierarchy.cpu / name
        self._usage = hierarchy.usage / name if hierarchy.usage is not None else None
        self._memory = hierarchy.memory / name if hierarchy.memory is not None else None

    def make(self) -> None:
        """Make it, and the groups above it, where they are missing.

        Raises:
            BindError: HW4802, the kernel refuses.
        """
        with self._refusals("be made"):
            if self.hierarchy.version == 2:
                self._hand_down()
            self._cpu.mkdir(parents=True, exist_ok=True)
            if self._usage is not None:
                self._usage.mkdir(parents=True, exist_ok=True)

    def _hand_down(self) -> None:
        wanted = "+cpu +memory" if self.hierarchy.memory is not None else "+cpu"
        above = self.hierarchy.cpu
        for part in self._parts:
            above.mkdir(exist_ok=True)
            (above / "cgroup.subtree_control").write_text(wanted, "ascii")
            above = above / part

    def set_cores(self, cores: float | None) -> None:
        """Let its processes together use so many cores' worth of processor time; None: all there is.

        Raises:
            BindError: HW4802, the kernel refuses; HW4803, too little.
        """
        quota_us, period_us = quota(cores) if cores is not None else (None, PERIODS_US[1])
        with self._refusals("have its processor limited"):
            if self.hierarchy.version == 2:
                (self._cpu / "cpu.max").write_text(f"{'max' if quota_us is None else quota_us} {period_us}", "ascii")
                return
            # Without a quota first: the kernel refuses a period in which the old quota makes no sense.
            (self._cpu / "cpu.cfs_quota_us").write_text("-1", "ascii")
            (self._cpu / "cpu.cfs_period_us").write_text(str(period_us), "ascii")
            if quota_us is not None:
                (self._cpu / "cpu.cfs_quota_us").write_text(str(quota_us), "ascii")

    def set_memory(self, memory_bytes: float | None) -> None:
        """Let its processes together have so much memory; None: all there is.

        Raises:
            BindError: HW4802, the kernel refuses; HW4803, memory cannot be limited here, or too little.
        """
        if self._memory is None or not self._memory.exists():
            if memory_bytes is None:
                return
            if self._memory is None:
                raise BindError(
                    f"HW4803 control group '{self.name}' cannot have its memory limited to {memory_bytes:g} bytes: "
                    f"this machine has no control groups for memory. Leave memory out of the sites file."
                )
        if memory_bytes is not None and memory_bytes < LEAST_MEMORY_BYTES:
            raise BindError(
                f"HW4803 a limit of {memory_bytes:g} bytes of memory cannot be set; the least is "
                f"{LEAST_MEMORY_BYTES} bytes. Give more."
            )
        with self._refusals("have its memory limited"):
            is_first = not self._memory.exists()
            self._memory.mkdir(parents=True, exist_ok=True)
            name, none = ("memory.max", "max") if self.hierarchy.version == 2 else ("memory.limit_in_bytes", "-1")
            (self._memory / name).write_text(none if memory_bytes is None else str(int(memory_bytes)), "ascii")
            if is_first:
                for pid in self.pids():
                    with contextlib.suppress(ProcessLookupError):
                        (self._memory / "cgroup.procs").write_text(str(pid), "ascii")

    @property
    def procs_files(self) -> tuple[Path, ...]:
        """Return the files into which a process writes its id to join."""
        folders = dict.fromkeys(folder for folder in (self._cpu, self._usage, self._memory) if folder is not None)
        return tuple(folder / "cgroup.procs" for folder in folders if folder.exists())

    def pids(self) -> tuple[int, ...]:
        """Return the processes in it and in the groups below it."""
        return tuple(sorted(self._ids()))

    def _ids(self) -> set[int]:
        found: set[int] = set()
        for folder in self._trees():
            for file in (folder / "cgroup.procs", *folder.rglob("cgroup.procs")):
                with contextlib.suppress(OSError):  # its folder was removed meanwhile
                    found.update(map(int, file.read_text("ascii").split()))
        return found

    def _trees(self) -> Iterator[Path]:
        for folder in dict.fromkeys((self._cpu, self._usage, self._memory)):
            if folder is not None and folder.exists():
                yield folder

    def used_s(self) -> float:
        """Return the processor seconds that its processes have used.

        Raises:
            BindError: HW4802, they cannot be read.
        """
        with self._refusals("tell what it used"):
            if self.hierarchy.version == 2:
                return self._statistic("usage_usec") / 1e6
            if self._usage is None:
                raise FileNotFoundError(errno.ENOENT, "no control groups count processor time here", "cpuacct")
            return int((self._usage / "cpuacct.usage").read_text("ascii")) / 1e9

    def throttled_s(self) -> float:
        """Return the seconds for which its processes had to stand still because of the limit.

        Raises:
            BindError: HW4802, they cannot be read.
        """
        with self._refusals("tell how long it stood still"):
            if self.hierarchy.version == 2:
                return self._statistic("throttled_usec") / 1e6
            return self._statistic("throttled_time") / 1e9

    def _statistic(self, name: str) -> int:
        for line in (self._cpu / "cpu.stat").read_text("ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
        return 0  # a kernel that cannot limit does not count this

    def remove(self) -> None:
        """Kill what is left in it and below it, this process excepted, and remove it; nothing if it is gone.

        Raises:
            BindError: HW4804, something of it stays.
        """
        end_s = time.monotonic() + PATIENCE_S
        while True:
            for pid in self._ids() - {os.getpid()}:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            stays = self._remove_folders()
            if not stays:
                return
            if time.monotonic() > end_s:
                left = ", ".join(map(str, self.pids())) or "none"
                raise BindError(
                    f"HW4804 control group '{self.name}' is not removed after {PATIENCE_S:g} s: '{stays[0]}' stays; "
                    f"processes in it: {left}. End them and try again."
                )
            time.sleep(PAUSE_S)

    def _remove_folders(self) -> list[Path]:
        stays = []
        for tree in self._trees():
            below = [Path(path) for path, _, _ in os.walk(tree, topdown=False)]
            for folder in below:
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    stays.append(folder)
        return stays

    @contextlib.contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BindError(
                f"HW4802 control group '{self.name}' cannot {what}: {error.strerror} at '{error.filename}'. "
                f"It takes root, and control groups of version {self.hierarchy.version} that may be written."
            ) from error
