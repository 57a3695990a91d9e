"""What of a testbed is on this machine, and how does all of it go away?

Everything that a testbed makes carries its name, so that it is found by looking and not by remembering: what was
begun by a process that was killed in the middle goes away like the rest. A testbed's state file is written first
and removed last.

    HW1902   no such testbed
    HW4906   something of a testbed does not go away
    HW4907   another process makes or removes testbeds for too long
    HW4908   a state file cannot be read or written
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from headwater.bind import cgroup
from headwater.errors import BindError, Mistake, SpecError
from headwater.testbed import link_process
from headwater.testbed.network import BED_NAME, NAMESPACES, check_bed_name, namespace_pattern, run_ip, shared_names

__all__ = [
    "bed_folder",
    "clear",
    "elsewhere",
    "hold_lock",
    "hosts_file",
    "leftovers",
    "link_command",
    "processes_in",
    "read_state",
    "remove",
    "state_folder",
    "write_state",
]

GROUPS = "headwater"
PATIENCE_S = 10.0
LOCK_S = 60.0
PAUSE_S = 0.01


def state_folder() -> Path:
    """Return where testbeds keep their state, of this user and for as long as the machine runs."""
    base = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/user-{os.geteuid()}"
    return Path(base) / "headwater" / "testbed"


def bed_folder(bed: str) -> Path:
    """Return where a bed's links listen, and what its sites call each other."""
    return state_folder() / bed


def hosts_file(bed: str, namespace: str) -> Path:
    """Return what is `/etc/hosts` in a site; not in `/etc/netns`, where only root may write."""
    return bed_folder(bed) / f"{namespace}.hosts"


def link_command(bed: str) -> list[str]:
    """Return the words that a bed's link processes are known by, after the interpreter and its options."""
    return [str(Path(link_process.__file__).resolve()), "--bed", bed]


@contextlib.contextmanager
def hold_lock() -> Iterator[int]:
    """Keep other processes from making or removing testbeds; a child that is given the lock holds it too.

    Raises:
        BindError: HW4907, another process holds it for too long; HW4908, there is no place for state.
    """
    folder = state_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise BindError(f"HW4908 '{folder}' cannot hold the state of testbeds: {error.strerror}.") from error
    try:
        end_s = time.monotonic() + LOCK_S
        while not _locked(lock):
            if time.monotonic() > end_s:
                raise BindError(
                    f"HW4907 another process has been making or removing a testbed for {LOCK_S:g} s and holds "
                    f"'{folder}'. Wait for it, or end it."
                )
            time.sleep(PAUSE_S)
        yield lock
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in {errno.EAGAIN, errno.EACCES}:
            raise
        return False
    return True


def read_state(bed: str) -> dict[str, Any]:
    """Return a bed's state.

    Raises:
        SpecError: HW1901, its name; HW1902, there is none.
        BindError: HW4908, it cannot be read.
    """
    check_bed_name(bed)
    file = state_folder() / f"{bed}.json"
    try:
        state: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        up = ", ".join(sorted(one.stem for one in state_folder().glob("*.json"))) or "none"
        text = f"there is no testbed '{bed}'; those that are up: {up}. Bring it up first."
        raise SpecError(Mistake("HW1902", text)) from error
    except (OSError, ValueError) as error:
        raise BindError(f"HW4908 '{file}' cannot be read: {error}. Take testbed '{bed}' down.") from error
    return state


def write_state(bed: str, state: dict[str, Any]) -> None:
    """Replace a bed's state as a whole.

    Raises:
        BindError: HW4908, it cannot be written.
    """
    file = state_folder() / f"{bed}.json"
    fresh = file.with_suffix(".fresh")
    try:
        fresh.write_text(json.dumps(state), "utf-8")
        fresh.replace(file)
    except OSError as error:
        raise BindError(f"HW4908 '{file}' cannot be written: {error.strerror}. Make room for it.") from error


def leftovers(bed: str | None = None) -> dict[str, tuple[str, ...]]:
    """Return everything that is there of a bed, or of all beds, by bed: also of those that are up."""
    found: dict[str, list[str]] = defaultdict(list)
    namespaces = {name: _bed_of(name) for name in _names(NAMESPACES)}
    for name, owner in namespaces.items():
        if owner is not None:
            found[owner].append(f"namespace {name}")
    hierarchy = cgroup.find()
    for tree in _trees(hierarchy):
        for one in filter(BED_NAME.fullmatch, _folders(tree / GROUPS)):  # others are not of beds, see `bind.limiter`
            found[one].append(f"control group {tree / GROUPS / one}")
    for pid, owner in _link_processes():
        found[owner].append(f"link process {pid}")
    for name in _names(state_folder()):
        found[name.partition(".")[0]].append(f"state {state_folder() / name}")
    devices = [name for _, name in socket.if_nameindex()]
    for owner in {*found, *([bed] if bed is not None else [])}:
        found[owner] += [f"device {name}" for name in devices if name.partition("-")[0] == shared_names(owner)]
        found[owner] += [f"process {pid}" for pid in sorted(processes_in(_namespaces_of(owner)))]
    return {owner: tuple(what) for owner, what in sorted(found.items()) if what and bed in (None, owner)}


def _bed_of(namespace: str) -> str | None:
    match = namespace_pattern().fullmatch(namespace)
    return match[1] if match is not None else None


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _folders(folder: Path) -> list[str]:
    return [name for name in _names(folder) if (folder / name).is_dir()]


def _namespaces_of(bed: str) -> list[str]:
    pattern = namespace_pattern(bed)
    return [name for name in _names(NAMESPACES) if pattern.fullmatch(name)]


def _trees(hierarchy: cgroup.Hierarchy | None) -> list[Path]:
    if hierarchy is None:
        return []
    return [tree for tree in dict.fromkeys((hierarchy.cpu, hierarchy.usage, hierarchy.memory)) if tree is not None]


def elsewhere(bed: str) -> int | None:
    """Return a process of a bed that this user has in namespaces of its own; None: there is no such bed."""
    return next((pid for pid, owner in _link_processes(is_here=False) if owner == bed), None)


def _link_processes(is_here: bool = True) -> Iterator[tuple[int, str]]:
    """Yield the link processes of this user's beds by their command line: '... link_process.py --bed BED SPEC'.

    A bed is here if its links come from the network that this process is in. Root sees those of users elsewhere,
    and leaves them alone.
    """
    script = Path(link_process.__file__).name
    here = os.stat("/proc/self/ns/net").st_ino
    for one in psutil.process_iter(["cmdline", "status"]):
        words = one.info["cmdline"] or []
        if one.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        for number, word in enumerate(words[:-2]):
            if os.path.basename(word) == script and words[number + 1] == "--bed":
                with contextlib.suppress(OSError):  # another user's, or gone meanwhile
                    if (os.stat(f"/proc/{one.pid}/ns/net").st_ino == here) == is_here:
                        yield one.pid, words[number + 2]


def processes_in(namespaces: list[str]) -> set[int]:
    """Return the processes that stand in these namespaces, this one excepted: they keep a namespace alive."""
    wanted = set()
    for name in namespaces:
        with contextlib.suppress(OSError):
            found = os.stat(NAMESPACES / name)
            wanted.add((found.st_dev, found.st_ino))
    if not wanted:
        return set()
    there = set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            found = os.stat(f"/proc/{pid}/ns/net")
            if (found.st_dev, found.st_ino) in wanted:
                there.add(pid)
    return there - {os.getpid()}


def remove(bed: str) -> tuple[str, ...]:
    """Remove everything of a bed, also of one that is not complete; return what was there.

    Raises:
        SpecError: HW1901, its name.
        BindError: HW4906, something stays; HW4907, another process is at it.
    """
    check_bed_name(bed)
    with hold_lock():
        there = leftovers(bed).get(bed, ())
        if there:
            clear(bed)
        return there


def clear(bed: str) -> None:
    """Do what `remove` does, for one who holds the lock.

    Raises:
        BindError: HW4906, something stays.
    """
    end_s = time.monotonic() + PATIENCE_S
    while True:
        _clear_once(bed)
        left = leftovers(bed).get(bed, ())
        if not left:
            return
        if time.monotonic() > end_s:
            raise BindError(
                f"HW4906 testbed '{bed}' is not removed after {PATIENCE_S:g} s; left are: {', '.join(left[:5])} "
                f"({len(left)} in all). End what uses them and take it down again."
            )
        time.sleep(PAUSE_S)


def _clear_once(bed: str) -> None:
    namespaces = _namespaces_of(bed)
    end_s = time.monotonic() + PATIENCE_S
    hierarchy = cgroup.find()
    if hierarchy is not None:
        cgroup.Group(hierarchy, f"{GROUPS}/{bed}").remove()
        for tree in _trees(hierarchy):
            with contextlib.suppress(OSError):  # another bed's are in there, or it is gone
                (tree / GROUPS).rmdir()
    links = {pid for pid, owner in _link_processes() if owner == bed}
    while pids := processes_in(namespaces) | {pid for pid in links if _runs(pid)}:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end_s:
            break
        time.sleep(PAUSE_S)
    devices = [name for _, name in socket.if_nameindex() if name.partition("-")[0] == shared_names(bed)]
    commands = [*(f"link del dev {name}" for name in devices), *(f"netns del {name}" for name in namespaces)]
    with contextlib.suppress(BindError):  # `clear` sees what stays
        run_ip(commands, is_forced=True)
    shutil.rmtree(bed_folder(bed), ignore_errors=True)
    for suffix in (".fresh", ".json"):
        (state_folder() / f"{bed}{suffix}").unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
