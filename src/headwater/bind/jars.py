"""Which jars do Spark and Kafka need, and are they here?

jars.xml names them, jars.sha256 says what each must be; the Ivy that comes with PySpark fetches them, once for
each user and each jars.xml. They are fetched beside their folder and moved there as a whole, with a list that
marks the set as complete: a half set is never used, and a fetch that was broken off goes on where it stood.

    HW4103   PySpark or the Ivy in it is missing
    HW4104   the fetch failed or stalled
    HW4105   what came is not what jars.sha256 says
    HW4106   the cache folder refuses

Java itself: `bind.java`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import selectors
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.bind.java import java
from headwater.errors import BindError

__all__ = ["Jars", "ensure", "is_complete", "jars_folder", "verify"]

WANTED = Path(__file__).with_name("jars.xml")
PINNED = Path(__file__).with_name("jars.sha256")
LIST = "complete"  # in the folder: a line 'sha256 size_bytes conf/name.jar' for each jar, written last
LONGEST_SILENCE_S = 120.0  # Ivy itself waits for ever on a connection that says nothing
PATTERN = "lib/[conf]/[artifact]-[revision].[ext]"
SAY_EVERY = 10


@dataclass(frozen=True, slots=True)
class Jars:
    """Where the jars are."""

    spark: tuple[Path, ...]  # for spark.jars, sorted by name
    kafka: Path  # a folder: everything in it belongs on a broker's class path


def jars_folder() -> Path:
    """Return the folder that the jars of this jars.xml are kept in."""
    base = os.environ.get("HEADWATER_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "headwater" / f"jars-{hashlib.sha256(WANTED.read_bytes()).hexdigest()[:16]}"


def ensure(say: Callable[[str], None] = lambda _: None) -> Jars:
    """Return the jars, fetched unless they are here; `say` gets a line of progress now and then.

    Raises:
        BindError: HW4101 to HW4106: no Java, no PySpark, no network, a wrong jar, no place to keep them.
    """
    folder = jars_folder()
    if not is_complete():
        program, ivy = java(), _ivy()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _lock(folder.with_name(f"{folder.name}.lock"), say) as lock:
                if not is_complete():  # another process may have fetched them while this one waited
                    _fetch([str(program), "-jar", str(ivy)], folder, lock, say)
        except OSError as error:
            raise BindError(
                f"HW4106 {folder}: the jars of Spark and Kafka cannot be kept here: {error.strerror or error}; "
                "make room or set HEADWATER_CACHE to a folder that can be written, with 200 MB free"
            ) from error
    return Jars(tuple(sorted(folder.glob("spark/*.jar"))), folder / "kafka")


def is_complete() -> bool:
    """Return whether exactly the pinned jars are here, by their names and sizes; cheap enough for each use."""
    folder = jars_folder()
    try:
        rows = [line.split(maxsplit=2) for line in folder.joinpath(LIST).read_text("utf-8").splitlines()]
        fetched = {name: digest for digest, _, name in rows}
        sizes = {name: int(size) for _, size, name in rows}
        return fetched == _pinned() and sizes == {name: (folder / name).stat().st_size for name in _names(folder)}
    except (OSError, ValueError):
        return False


def verify() -> tuple[str, ...]:
    """Return what is wrong with the jars that are here, one sentence each; reads all of them, nothing is fetched."""
    folder = jars_folder()
    if not folder.exists():
        return (f"{folder}: the jars have not been fetched yet",)
    return _faults(folder, _pinned())


def _pinned() -> Mapping[str, str]:
    """Return the digest that each jar must have, by 'conf/name.jar'."""
    rows = (line.split(maxsplit=1) for line in PINNED.read_text("utf-8").splitlines())
    return {name: digest for digest, name in rows}


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*"))


def _faults(folder: Path, pinned: Mapping[str, str]) -> tuple[str, ...]:
    there = _names(folder)
    return (
        *(f"'{name}' is missing" for name in pinned if name not in there),
        *(f"'{name}' is not wanted" for name in there if name not in pinned),
        *(
            f"'{name}' has sha256 {digest[:12]}..., {pinned[name][:12]}... is wanted"
            for name in there
            if name in pinned and (digest := _digest(folder / name)) != pinned[name]
        ),
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ivy() -> Path:
    """Return the Ivy inside PySpark, found without loading PySpark."""
    found = importlib.util.find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found is not None and found.origin is not None else None
    ivy = sorted(folder.glob("ivy-*.jar")) if folder is not None else []
    if not ivy:
        what = "PySpark is not installed" if folder is None else f"there is no ivy-*.jar in '{folder}'"
        raise BindError(
            f"HW4103 the jars of Spark and Kafka cannot be fetched: {what}; run 'make setup' in Headwater's folder"
        )
    return ivy[-1]


@contextlib.contextmanager
def _lock(path: Path, say: Callable[[str], None]) -> Iterator[int]:
    """Hold a lock file; the system lets go of it when its last holder ends, however that happens."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching the jars; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _fetch(ivy: list[str], folder: Path, lock: int, say: Callable[[str], None]) -> None:
    pinned = _pinned()
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(exist_ok=True)
    came = part / "lib"
    shutil.rmtree(came, ignore_errors=True)
    say("fetching the jars of Kafka and of Spark's connector to it (once, 54 MB, about a minute)")
    # user.dir: jars that other programs left in the user's own Ivy folder are none of ours
    options = ["-ivy", str(WANTED), "-cache", "ivy", "-retrieve", PATTERN]
    why = _run([ivy[0], f"-Divy.default.ivy.user.dir={part / 'ivy'}", *ivy[1:], *options], part, lock, len(pinned), say)
    if why:
        raise BindError(
            f"HW4104 the jars of Spark and Kafka could not be fetched: {why}; all that was said is in "
            f"'{part / 'ivy.log'}'. Check the network, and that there is room on the disk; behind a proxy set "
            "JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=NAME -Dhttps.proxyPort=NUMBER'. Then run this again: what came is "
            f"kept. Without a network copy the folder '{folder.name}' from a machine that has it to '{folder.parent}'"
        )
    faults = _faults(came, pinned)
    if faults:
        shutil.rmtree(part)
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise BindError(
            f"HW4105 the jars that came are not those that were tested; none is used: {'; '.join(faults[:3])}{more} "
            f"(by {PINNED.name}). Run this again; if it stays so, something between here and the registry of jars "
            "changes them: ask whoever runs your network or proxy"
        )
    sizes = {name: (came / name).stat().st_size for name in pinned}
    came.joinpath(LIST).write_text("".join(f"{pinned[name]} {sizes[name]} {name}\n" for name in pinned), "utf-8")
    if folder.exists():
        shutil.rmtree(folder)
    came.rename(folder)
    shutil.rmtree(part, ignore_errors=True)
    say(f"{len(pinned)} jars are here")


def _run(command: list[str], folder: Path, lock: int, total: int, say: Callable[[str], None]) -> str:
    """Run Ivy to its end; return why it failed, or nothing.

    It shares the lock: should this process be killed, no other may write beside an Ivy that still runs.
    """
    said = bytearray()
    with (
        folder.joinpath("ivy.log").open("wb") as log,
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
        ) as process,
        selectors.DefaultSelector() as waiting,
    ):
        assert process.stdout is not None
        waiting.register(process.stdout, selectors.EVENT_READ)
        told = 0
        try:
            while waiting.select(LONGEST_SILENCE_S):
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    process.wait()
                    break
                log.write(chunk)
                said += chunk
                looked_up, fetched = said.count(b"\tfound "), said.count(b"[SUCCESSFUL ]")
                if looked_up + fetched >= told + SAY_EVERY:
                    told = looked_up + fetched
                    say(f"{fetched} of {total} jars fetched" if fetched else f"{looked_up} of {total} jars looked up")
            else:
                return f"nothing came for {LONGEST_SILENCE_S:.0f} s"
        finally:
            process.kill()  # unless it has ended by itself
    return _why(said.decode("utf-8", "replace")) if process.returncode else ""


def _why(said: str) -> str:
    """Return what counts in what a failed Ivy said."""
    telling = ("Exception", "Server access error", "UNRESOLVED", "FAILED", "No space")
    lines = [" ".join(line.split()) for line in said.splitlines()]
    return next((line for mark in telling for line in lines if mark in line), lines[-1] if lines else "it said nothing")
