"""How are the processor and the memory of a group of processes limited?

Linux counts and limits processes by control groups. `find` tells which kind this machine has, `Group` is one
group: made, limited, joined, read, and removed with its processes or dissolved without harm to them. A site's group
in a testbed is called 'headwater/BED/SITE'. `own` tells in which groups this process is, `places` where groups of a
name stand. What is written into the files is in `bind.cgroup_files`.

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
import itertools
import os
import re
import signal
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.bind import cgroup_files as files
from headwater.bind.cgroup_files import pids_in, quota
from headwater.errors import BindError

__all__ = ["REST", "ROOT", "TOLD", "Group", "Hierarchy", "find", "own", "places", "quota"]

ROOT = Path("/sys/fs/cgroup")
TOLD = Path("/proc/self/cgroup")
LEAST_MEMORY_BYTES = 4096
PATIENCE_S = 10.0
PAUSE_S = 0.005
REST = "the__rest"  # of the processes of a group of version 2 that has groups below it
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


def own(hierarchy: Hierarchy, told: Path = TOLD) -> Hierarchy:
    """Return the trees from the groups on that this process is in; the whole tree where it may not write its own."""
    names = ("cpu", "cpuacct", "memory") if hierarchy.version == 1 else ("", "", "")
    trees = (hierarchy.cpu, hierarchy.usage, hierarchy.memory)
    cpu, usage, memory = (tree and files.own_folder(tree, name, told) for tree, name in zip(trees, names, strict=True))
    return replace(hierarchy, cpu=cpu or hierarchy.cpu, usage=usage, memory=memory)


def places(hierarchy: Hierarchy, name: str) -> list[Hierarchy]:
    """Return every place on this machine below which a group of this name stands, each as a hierarchy of one tree."""
    found = []
    for tree in dict.fromkeys((hierarchy.cpu, hierarchy.usage, hierarchy.memory)):
        for path, _, _ in os.walk(tree) if tree is not None else ():
            if os.path.isdir(f"{path}/{name}"):
                found.append(Hierarchy(hierarchy.version, Path(path), None, None))
    return found


class Group:
    """A group of processes that are limited and counted together.

    The folder for memory is made only with the first limit of it or when memory is to be counted: a process that
    needs neither stays where the system counts its memory.
    """

    def __init__(self, hierarchy: Hierarchy, name: str, home: Hierarchy | None = None) -> None:
        """Describe it; `make` makes it.

        Args:
            hierarchy: The trees that it stands in.
            name: Its path from their beginning on.
            home: The groups in which its processes go on when it is dissolved; without, the next above it.

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
        self._home = home
        self._parts = parts
        self._cpu = hierarchy.cpu / name
        self._usage = hierarchy.usage / name if hierarchy.usage is not None else None
        self._memory = hierarchy.memory / name if hierarchy.memory is not None else None
        homes = (home.cpu, home.usage, home.memory) if home is not None else (None, None, None)
        self._homes = dict(zip((self._cpu, self._usage, self._memory), homes, strict=True))

    def below(self, name: str) -> Group:
        """Describe a group below it, with the same home.

        Raises:
            BindError: HW4801, its name.
        """
        return Group(self.hierarchy, f"{self.name}/{name}", self._home)

    def make(self, *, is_parent: bool = False) -> None:
        """Make it, and the groups above it, where they are missing.

        Args:
            is_parent: Whether other groups are to stand below it, beside processes of its own. In version 2 a group
                has either; its own processes are then in a group below it, too.

        Raises:
            BindError: HW4802, the kernel refuses.
        """
        with self._refusals("be made"):
            for is_last in (False, False, True):
                try:
                    self._make(is_parent)
                except FileNotFoundError:  # somebody else found a group above it empty and removed it meanwhile
                    if is_last:
                        raise
                else:
                    return

    def _make(self, is_parent: bool) -> None:
        if self.hierarchy.version == 2:
            self._hand_down(is_parent)
        self._cpu.mkdir(parents=True, exist_ok=True)
        if self._usage is not None:
            self._usage.mkdir(parents=True, exist_ok=True)

    def _hand_down(self, is_parent: bool) -> None:
        wanted = "+cpu +memory" if self.hierarchy.memory is not None else "+cpu"
        above = self.hierarchy.cpu
        for part in [*self._parts, REST] if is_parent else self._parts:
            above.mkdir(exist_ok=True)
            files.put(above / "cgroup.subtree_control", wanted)
            above = above / part
        above.mkdir(exist_ok=True)

    def count_memory(self) -> bool:
        """Have the memory of its processes counted and limited from now on; return whether that can be.

        What a process took before it joined stays counted where it was.

        Raises:
            BindError: HW4802, the kernel refuses.
        """
        if self._memory is None:
            return False
        if self.hierarchy.version == 1:
            with self._refusals("have its memory counted"):
                self._memory.mkdir(parents=True, exist_ok=True)
                for pid in self._ids_in(self._cpu) - self._ids_in(self._memory):
                    files.join(self._memory, pid)
        return True

    @property
    def is_there(self) -> bool:
        """Return whether it was made and not removed since; no if whoever did either was killed at it."""
        return self._cpu.exists() and (self._usage is None or self._usage.exists())

    def set_cores(self, cores: float | None) -> None:
        """Let its processes together use so many cores' worth of processor time; None: all there is.

        A limit is replaced by another without a moment without any. Version 1 knows no more than the group above has
        and no less than those below have: there it gets what the one above has, and those below get what it has.

        Raises:
            BindError: HW4802, the kernel refuses; HW4803, too little.
        """
        version = self.hierarchy.version
        with self._refusals("have its processor limited"):
            try:
                files.write_cores(version, self._cpu, cores)
            except OSError as error:
                if error.errno != errno.EINVAL or version != 1 or cores is None:
                    raise
                fitting = self._fit_above(cores)
                for folder in self._below(self._cpu):
                    found = files.read_cores(version, folder)
                    if found is not None and found > fitting:
                        files.write_cores(version, folder, fitting)
                files.write_cores(version, self._cpu, fitting)

    def _fit_above(self, cores: float) -> float:
        """Return no more cores than any group above has, this tree's beginning and those above it included."""
        for folder in itertools.takewhile(lambda one: (one / "cgroup.procs").exists(), self._cpu.parents):
            found = files.read_cores(1, folder)
            if found is not None and found < cores:
                quota_us, period_us = files.quota(found)
                cores = (quota_us - (quota_us / period_us > found)) / period_us
        return cores

    def cores(self) -> float | None:
        """Return how many cores' worth of processor time it may use; None: all there is.

        Raises:
            BindError: HW4802, it cannot be read.
        """
        with self._refusals("tell its limit of the processor"):
            return files.read_cores(self.hierarchy.version, self._cpu)

    def set_weight(self, weight: float) -> None:
        """Let it count so much against the groups beside it where the processor is short; 1.0 is normal.

        Raises:
            BindError: HW4802, the kernel refuses; HW4803, a weight that is not above 0.
        """
        if not weight > 0:
            raise BindError(f"HW4803 a weight of {weight:g} cannot be set; it is above 0, and 1 is normal. Give more.")
        with self._refusals("be weighed"):
            files.write_weight(self.hierarchy.version, self._cpu, weight)

    def weight(self) -> float:
        """Return how much it counts against the groups beside it; 1.0 is normal.

        Raises:
            BindError: HW4802, it cannot be read.
        """
        with self._refusals("tell its weight"):
            return files.read_weight(self.hierarchy.version, self._cpu)

    def set_memory(self, memory_bytes: float | None, used_bytes: int = 0) -> int | None:
        """Let its processes together have so much memory (None: all there is); return the limit that holds then.

        Nobody is killed by it: while more is in use, the limit is that and a bit, or stays what it was.

        Args:
            memory_bytes: The limit.
            used_bytes: What is in use by other means of counting: the kernel does not count in this group what a
                process took before it joined.

        Raises:
            BindError: HW4802, the kernel refuses; HW4803, memory cannot be limited here, or too little.
        """
        if memory_bytes is None and (self._memory is None or not self._memory.exists()):
            return None
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
        self.count_memory()
        with self._refusals("have its memory limited"):
            wanted = int(memory_bytes) if memory_bytes is not None else None
            return files.write_memory(self.hierarchy.version, self._memory, wanted, used_bytes)

    def memory(self) -> int | None:
        """Return how many bytes of memory it may have; None: all there is.

        Raises:
            BindError: HW4802, it cannot be read.
        """
        with self._refusals("tell its limit of memory"):
            return files.read_memory(self.hierarchy.version, self._memory) if self._memory is not None else None

    def memory_used(self) -> int | None:
        """Return how many bytes of memory it uses, without idle copies of files; None where that is not counted.

        Raises:
            BindError: HW4802, it cannot be read.
        """
        with self._refusals("tell its memory"):
            return files.read_memory_used(self.hierarchy.version, self._memory) if self._memory is not None else None

    @property
    def procs_files(self) -> tuple[Path, ...]:
        """Return the files into which a process writes its id to join."""
        folders = dict.fromkeys(folder for folder in (self._cpu, self._usage, self._memory) if folder is not None)
        return tuple(_own(folder) / "cgroup.procs" for folder in folders if folder.exists())

    def join(self, pids: Collection[int]) -> None:
        """Let running processes join, with all their threads; one that ends meanwhile is no error.

        Raises:
            BindError: HW4802, the kernel refuses.
        """
        with self._refusals("be joined"):
            for file in self.procs_files:
                for pid in pids:
                    files.join(file.parent, pid)

    def pids(self) -> tuple[int, ...]:
        """Return the processes in it and in the groups below it."""
        return tuple(sorted(self._ids()))

    def settled(self) -> set[int]:
        """Return the processes that are in every tree of it: whoever lets one join may be killed at it."""
        return set.intersection(*map(self._ids_in, self._trees())) if self.is_there else set()

    def _ids(self) -> set[int]:
        return set().union(*map(self._ids_in, self._trees()))

    def _ids_in(self, tree: Path) -> set[int]:
        return {pid for folder in (tree, *self._below(tree)) for pid in pids_in(folder)}

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
                raise self._staying(stays)
            time.sleep(PAUSE_S)

    def dissolve(self) -> None:
        """Remove it and the groups below it; its processes go on at home, or in the next group above that takes them.

        Raises:
            BindError: HW4802, the kernel refuses; HW4804, something of it stays.
        """
        end_s = time.monotonic() + PATIENCE_S
        while True:
            with self._refusals("be dissolved"):
                for tree in self._trees():
                    for folder in (*self._below(tree), tree):
                        for pid in pids_in(folder):
                            self._lift(tree, pid)
            stays = self._remove_folders()
            if not stays:
                return
            if time.monotonic() > end_s:
                raise self._staying(stays)
            time.sleep(PAUSE_S)  # a process was made meanwhile, or one that ends is not gone yet

    def retire(self) -> None:
        """Remove it if no groups are below it; its processes go on above, as when it is dissolved.

        Raises:
            BindError: HW4802, the kernel refuses.
        """
        with self._refusals("be retired"):
            for tree in self._trees_backwards():
                if not self._below(tree):
                    for pid in pids_in(tree):
                        self._lift(tree, pid)
                    with contextlib.suppress(OSError):  # somebody made a group in it, or joined, meanwhile
                        tree.rmdir()

    def remove_empty(self) -> bool:
        """Remove it and the groups below it if no process is in any of them; return whether it is gone."""
        return not self._ids() and not self._remove_folders()

    def groups(self) -> tuple[str, ...]:
        """Return the names of the groups right below it, without that for processes of its own."""
        try:
            found = sorted(one.name for one in os.scandir(self._cpu) if one.is_dir())
        except FileNotFoundError:
            return ()
        return tuple(name for name in found if name != REST)

    def _lift(self, tree: Path, pid: int) -> None:
        """Move a process home or up; in version 2 a group that has groups below it takes none, the uppermost does."""
        home = self._homes.get(tree)
        targets = [*([home] if home is not None else []), *list(tree.parents)[: len(self._parts)]]
        for number, folder in enumerate(targets, 1):
            try:
                files.join(_own(folder), pid)
            except OSError as error:
                if error.errno not in {errno.EBUSY, errno.EOPNOTSUPP, errno.ENOENT} or number == len(targets):
                    raise
            else:
                return

    def _trees_backwards(self) -> list[Path]:
        """Return its trees in the order in which they go: what is left by one who is killed at it is still listed."""
        return list(self._trees())[::-1]

    def _remove_folders(self) -> list[Path]:
        stays = []
        for tree in self._trees_backwards():
            for folder in (*self._below(tree), tree):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    continue
                except OSError:
                    stays.append(folder)
        return stays

    @staticmethod
    def _below(tree: Path) -> list[Path]:
        """Return the folders below one, the deepest first."""
        return [Path(path) for path, _, _ in os.walk(tree, topdown=False)][:-1]

    def _staying(self, stays: list[Path]) -> BindError:
        left = ", ".join(map(str, self.pids())) or "none"
        return BindError(
            f"HW4804 control group '{self.name}' is not removed after {PATIENCE_S:g} s: '{stays[0]}' stays; "
            f"processes in it: {left}. End them and try again."
        )

    @contextlib.contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BindError(
                f"HW4802 control group '{self.name}' cannot {what}: {error.strerror} at '{error.filename}'. "
                f"It takes root, and control groups of version {self.hierarchy.version} that may be written."
            ) from error


def _own(folder: Path) -> Path:
    """Return where processes of a group itself are."""
    rest = folder / REST
    return rest if rest.exists() else folder
