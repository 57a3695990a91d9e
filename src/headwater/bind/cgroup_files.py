"""How are limits written into the files of a control group while its processes run, and read back?

`bind.cgroup` says what a group is; here are the files of one folder of it, for both versions. A change must never
open a door: a quota is replaced by the next one without a moment without any, and memory is never limited to less
than is in use, because the kernel would then kill. Refusals come out as `OSError` with the file's name.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from pathlib import Path

from headwater.errors import BindError

__all__ = [
    "PAGE_BYTES",
    "is_same_memory",
    "join",
    "kernel_weight",
    "least_cores",
    "own_cores",
    "own_folder",
    "pids_in",
    "put",
    "quota",
    "read_cores",
    "read_memory",
    "read_memory_used",
    "read_weight",
    "write_cores",
    "write_memory",
    "write_weight",
]

# A group that has used its quota stands still until the period ends. A short period makes that look like a slow
# machine and not like one that stops and goes; the kernel wants a quota of at least a millisecond.
PERIODS_US = (20_000, 100_000, 1_000_000)
SHORTEST_QUOTA_US = 1_000
NORMAL_SHARES, LEAST_SHARES, MOST_SHARES = 1024, 2, 262_144  # of version 1
NORMAL_WEIGHT, LEAST_WEIGHT, MOST_WEIGHT = 100, 1, 10_000  # of version 2
SPARE_BYTES, SPARE_PART = 16 * 2**20, 0.05  # above what is in use, whichever is more: processes go on taking some
NO_LIMIT_BYTES = 2**62  # from here on version 1 means that there is none
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")  # the kernel counts memory in these


def quota(cores: float) -> tuple[int, int]:
    """Return how many microseconds of processor time a group gets in each period, and the period.

    >>> quota(0.5), quota(0.04), quota(0.002)
    ((10000, 20000), (4000, 100000), (2000, 1000000))
    """
    for period_us in PERIODS_US if 0 < cores < math.inf else ():
        quota_us = round(cores * period_us)
        if quota_us >= SHORTEST_QUOTA_US:
            return quota_us, period_us
    least = SHORTEST_QUOTA_US / PERIODS_US[-1]
    raise BindError(f"HW4803 a limit of {cores:g} cores cannot be set; the least is {least:g}. Give more.")


def put(file: Path, text: str) -> None:
    """Write a file of a group at once, as the kernel wants it.

    Raises:
        OSError: the kernel refuses; it has the file's name.
    """
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(number, text.encode("ascii"))
    except OSError as error:
        error.filename = str(file)
        raise
    finally:
        os.close(number)


def _words(file: Path) -> list[bytes]:
    """Return what a file holds; nothing if it is not there."""
    try:
        number = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return []
    try:
        return os.read(number, 4096).split()
    except OSError as error:
        error.filename = str(file)
        raise
    finally:
        os.close(number)


def pids_in(folder: Path) -> list[int]:
    """Return the processes of a group, without those of groups below it; none if it is not there."""
    with contextlib.suppress(OSError):
        return [int(word) for word in (folder / "cgroup.procs").read_bytes().split()]
    return []


def join(folder: Path, pid: int) -> None:
    """Let a process join a group; one that has ended meanwhile is no error.

    Raises:
        OSError: the kernel refuses.
    """
    with contextlib.suppress(ProcessLookupError):
        put(folder / "cgroup.procs", str(pid))


def own_folder(tree: Path, controller: str, told: Path) -> Path:
    """Return the folder of the group that this process is in; the tree's where that cannot be seen or written.

    Args:
        tree: The uppermost folder.
        controller: What the tree is for; nothing in version 2.
        told: '/proc/self/cgroup'.
    """
    folder = _seen_folder(tree, controller, told)
    is_ours = os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
    return folder if is_ours else tree


def own_cores(root: Path, told: Path) -> float | None:
    """Return how much processor this process may use by its control groups, which it need not be allowed to write.

    Args:
        root: Where control groups are mounted.
        told: '/proc/self/cgroup'.

    Raises:
        OSError: they cannot be read.
    """
    if (root / "cgroup.controllers").exists():
        return least_cores(2, _seen_folder(root, "", told))
    tree = (root / "cpu").resolve()  # two controllers may share a tree
    return least_cores(1, _seen_folder(tree, "cpu", told))


def _seen_folder(tree: Path, controller: str, told: Path) -> Path:
    """Return the folder of the group that this process is in; the tree's where that cannot be seen.

    What the kernel tells begins at the uppermost group of a namespace, and the tree that is mounted here may begin
    further down. So every end of the path is tried, and it is the one in which this process is found.
    """
    try:
        lines = [line.split(":", 2) for line in told.read_text("utf-8", "surrogateescape").splitlines()]
    except OSError:
        return tree
    paths = [words[-1] for words in lines if len(words) == 3 and controller in words[1].split(",")]
    parts = [part for path in paths[:1] for part in path.split("/") if part not in {"", ".", ".."}]
    for number in range(len(parts)):
        folder = tree.joinpath(*parts[number:])
        if os.getpid() in pids_in(folder):
            return folder
    return tree


def least_cores(version: int, folder: Path) -> float | None:
    """Return the least of what a group and all above it may use of the processor; None: nothing limits them."""
    found = [read_cores(version, one) for one in (folder, *folder.parents) if (one / "cgroup.procs").exists()]
    return min((one for one in found if one is not None), default=None)


def read_cores(version: int, folder: Path) -> float | None:
    """Return how many cores' worth of processor time a group may use; None: no limit."""
    quota_us, period_us = _quota(version, folder)
    return quota_us / period_us if quota_us > 0 else None


def _quota(version: int, folder: Path) -> tuple[int, int]:
    """Return quota and period, the quota -1 where there is none."""
    if version == 2:
        words = _words(folder / "cpu.max")
        if len(words) != 2:
            return -1, PERIODS_US[1]
        return (-1 if words[0] == b"max" else int(words[0])), int(words[1])
    quotas, periods = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
    return int(quotas[0]) if quotas else -1, int(periods[0]) if periods else PERIODS_US[1]


def write_cores(version: int, folder: Path, cores: float | None) -> None:
    """Let a group use so many cores' worth of processor time; None: all there is.

    Raises:
        BindError: HW4803, too little.
        OSError: the kernel refuses; with EINVAL in version 1 also if a group above has less or one below has more.
    """
    quota_us, period_us = quota(cores) if cores is not None else (-1, PERIODS_US[1])
    old_quota_us, old_period_us = _quota(version, folder)
    if quota_us == old_quota_us and (period_us == old_period_us or cores is None):
        return  # each time that it is written, the kernel fills the quota up anew
    if version == 2:
        put(folder / "cpu.max", f"{quota_us if cores is not None else 'max'} {period_us}")
        return
    quota_file, period_file = folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us"
    if cores is None:
        put(quota_file, "-1")
        return
    writes = [(quota_file, quota_us), (period_file, period_us)]
    if old_quota_us < 0:
        writes.reverse()
    elif period_us == old_period_us:
        del writes[1]
    # Two files, and for a moment one is old and one is new. Of the two orders, one has a moment that allows no more
    # than the larger of what was and what will be: the product of both moments is that of old and new.
    elif old_quota_us / period_us < quota_us / old_period_us:
        writes.reverse()
    try:
        _put_all(writes)
    except OSError as error:
        if error.errno != errno.EINVAL or len(writes) == 1 or old_quota_us < 0:
            raise
        # What the moment between would be does not fit the groups above or below it, and the way round it is to have
        # no quota for that moment.
        put(quota_file, "-1")
        _put_all([(period_file, period_us), (quota_file, quota_us)])


def _put_all(writes: list[tuple[Path, int]]) -> None:
    for file, number in writes:
        put(file, str(number))


def read_weight(version: int, folder: Path) -> float:
    """Return how much a group counts against others beside it; 1.0 is normal."""
    name, normal = ("cpu.weight", NORMAL_WEIGHT) if version == 2 else ("cpu.shares", NORMAL_SHARES)
    words = _words(folder / name)
    return int(words[0]) / normal if words else 1.0


def write_weight(version: int, folder: Path, weight: float) -> None:
    """Let a group count so much against others beside it, as near as the kernel can.

    Raises:
        OSError: the kernel refuses.
    """
    wanted = kernel_weight(version, weight)
    file = folder / ("cpu.weight" if version == 2 else "cpu.shares")
    if _words(file) != [b"%d" % wanted]:
        put(file, str(wanted))


def kernel_weight(version: int, weight: float) -> int:
    """Return the kernel's number for a weight, within what it takes.

    >>> kernel_weight(1, 3.0), kernel_weight(2, 0.5), kernel_weight(2, 1e9)
    (3072, 50, 10000)
    """
    if version == 2:
        return round(min(max(NORMAL_WEIGHT * weight, LEAST_WEIGHT), MOST_WEIGHT))
    return round(min(max(NORMAL_SHARES * weight, LEAST_SHARES), MOST_SHARES))


def read_memory(version: int, folder: Path) -> int | None:
    """Return how many bytes of memory a group may have; None: no limit."""
    words = _words(folder / _memory_file(version))
    if not words or words[0] in {b"max", b"-1"} or int(words[0]) >= NO_LIMIT_BYTES:
        return None
    return int(words[0])


def _memory_file(version: int) -> str:
    return "memory.max" if version == 2 else "memory.limit_in_bytes"


def read_memory_used(version: int, folder: Path) -> int | None:
    """Return how many bytes a group has that the kernel cannot simply take back; None where it does not count them.

    Copies of files that nobody read lately do not count: they go as soon as memory is short.
    """
    words = _words(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes"))
    if not words:
        return None
    wanted, idle = b"inactive_file " if version == 2 else b"total_inactive_file ", 0
    with contextlib.suppress(OSError):
        for line in (folder / "memory.stat").read_bytes().splitlines():
            if line.startswith(wanted):
                idle = int(line[len(wanted) :])
                break
    return max(0, int(words[0]) - idle)


def is_same_memory(one: int | None, other: int | None) -> bool:
    """Return whether two limits are the same to the kernel, which counts in whole pages."""
    return one == other or (one is not None and other is not None and one // PAGE_BYTES == other // PAGE_BYTES)


def write_memory(version: int, folder: Path, memory_bytes: int | None, used_bytes: int = 0) -> int | None:
    """Let a group have so much memory, but not less than it uses and a bit; return the limit that holds then.

    `used_bytes` is what it uses by another count, should that be more.

    Raises:
        OSError: the kernel refuses, for another reason than that too much is in use.
    """
    file = folder / _memory_file(version)
    before = read_memory(version, folder)
    if memory_bytes is None:
        if before is not None:
            put(file, "max" if version == 2 else "-1")
        return None
    if is_same_memory(before, memory_bytes):
        return memory_bytes
    wanted = memory_bytes
    if before is None or memory_bytes < before:
        used = max(read_memory_used(version, folder) or 0, used_bytes)
        # Version 2 would kill, version 1 would take long to find out that it cannot: neither is asked to.
        wanted = max(memory_bytes, used + max(SPARE_BYTES, int(SPARE_PART * used))) if used else memory_bytes
        if before is not None and wanted >= before:
            return before
    try:
        put(file, str(wanted))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return before
    return wanted
