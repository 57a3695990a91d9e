"""How does a program of a user's run with no more rights than it needs, when we are root?

An agent may be root; the jobs that it runs are the code of others. `identity` gives the words to put before a
command so that it runs as a plain user, without capabilities and without a way to regain any (no_new_privs).
Where that user cannot reach what the command needs, it stays root by number and loses all capabilities: it can
then neither act on other users' processes and files nor on the system, but the files of root are its own; the
note says why. Who is not root has nothing to give away.

    HW4512   there is no such user
    HW4513   a folder cannot be handed over
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import BindError

__all__ = ["DEFAULT", "Identity", "dropped", "hand_over", "identity", "prefix", "switched"]

DEFAULT = ""  # the usual user
USUAL = ("headwater", "nobody")  # the first that there is
PATIENCE_S = 30.0

# Becomes the program after it has given up what setpriv would: for systems without setpriv, or with a lesser one.
# The signal that ends it with its parent is forgotten when the user changes, and so it is asked for again.
_GIVE_UP_AND_BECOME = """
import ctypes, os, sys
uid, gid = int(sys.argv[1]), int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
def must(answer):
    if answer != 0:
        sys.exit("rights cannot be given up: " + os.strerror(ctypes.get_errno()))
with_parent, parent = ctypes.c_int(), os.getppid()
must(libc.prctl(2, ctypes.byref(with_parent), 0, 0, 0))
for capability in range(64):
    if libc.prctl(23, capability, 0, 0, 0) == 1:
        must(libc.prctl(24, capability, 0, 0, 0))
libc.prctl(47, 4, 0, 0, 0)
if uid != 0:
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
must(libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()))
must(libc.prctl(38, 1, 0, 0, 0))
if with_parent.value:
    must(libc.prctl(1, with_parent.value, 0, 0, 0))
    if os.getppid() != parent:
        sys.exit(1)
os.execv(sys.argv[3], sys.argv[3:])
"""
# Run with a user's rights: prints the first path that it may not use, and ends with 0 if it may use all.
_TRY = """
import os, sys
for path in sys.argv[1:]:
    if not os.access(path, os.X_OK if os.path.isdir(path) else os.R_OK):
        print(path)
        sys.exit(3)
"""


@dataclass(frozen=True, slots=True)
class Identity:
    """With what rights a program runs."""

    words: tuple[str, ...] = ()  # before its command; they end by becoming the command, under the same process id
    note: str | None = None  # why it has more rights than it should
    user: str | None = None  # to whom its folders must belong; None: to us, who keep all our rights


def prefix(user: str | None = None, needs: Sequence[Path] = ()) -> tuple[tuple[str, ...], str | None]:
    """Return the words before a command, and why they leave it more rights than they should, if they do.

    See `identity`.
    """
    found = identity(user, needs)
    return found.words, found.note


def identity(user: str | None = None, needs: Sequence[Path] = ()) -> Identity:
    """Return with what rights a program of a user's is to run.

    Tried for real, in some 50 ms: only the system knows all the rules about who may what.

    Args:
        user: As whom; None or `DEFAULT`: the system's user 'headwater' if there is one, else 'nobody'.
        needs: Files that it reads and folders that it enters, besides this interpreter and our packages.

    Raises:
        BindError: HW4512, there is no user of that name.
    """
    if os.geteuid() != 0:
        return Identity()
    entry, program = _entry(user), sys.executable
    # The interpreter and its library are looked at by their names: setpriv can still start what its user may not
    # reach, and an interpreter that does not find its own library takes another one.
    wanted = (os.path.realpath(program), os.__file__, *_packages(), *(str(one.absolute()) for one in needs))
    why = f"user '{entry.pw_name}' is the superuser itself"
    if entry.pw_uid != 0:
        why = "this process may not become another user"
        for words in _forms(entry.pw_uid, entry.pw_gid):
            is_fine, said = _tried(words, program, wanted)
            if is_fine:
                return Identity(words, None, entry.pw_name)
            why = _because(entry, said or program)
    for words in _forms(0, 0):
        if _tried(words, program, wanted)[0]:
            # Without capabilities root writes only what is its own.
            note = f"it runs as root without capabilities and not as user '{entry.pw_name}': {why}"
            return Identity(words, note, pwd.getpwuid(0).pw_name)
    return Identity((), f"it runs with all rights of this process: {why}, and capabilities cannot be given up here")


def switched(user: str) -> tuple[str, ...]:
    """Return the words before a command that make it run as this user, without capabilities; nothing is tried.

    Raises:
        BindError: HW4512, there is no user of that name.
    """
    entry = _entry(user)
    return next(iter(_forms(entry.pw_uid, entry.pw_gid)))


def dropped() -> tuple[str, ...]:
    """Return the words before a command that take all capabilities from it and leave it its user; nothing is tried."""
    return next(iter(_forms(0, 0)))


def hand_over(folder: Path, user: str) -> None:
    """Give a folder and all in it to a user; nothing that others shall keep may lie there.

    Links are given as links, never what they lead to, and a file that has a second name is left as it is: it may
    lie elsewhere too, put there by somebody who wants to be given it.

    Raises:
        BindError: HW4512, there is no user of that name; HW4513, it cannot be given.
    """
    entry = _entry(user)
    uid, gid = entry.pw_uid, entry.pw_gid
    try:
        for _, folders, files, opened in os.fwalk(folder, follow_symlinks=False, onerror=_raise):
            for name in (*folders, *files):
                with contextlib.suppress(FileNotFoundError):  # it went away meanwhile
                    status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                    if (status.st_uid, status.st_gid) != (uid, gid) and (
                        status.st_nlink == 1 or stat.S_ISDIR(status.st_mode)
                    ):
                        os.chown(name, uid, gid, dir_fd=opened, follow_symlinks=False)
        os.chown(folder, uid, gid, follow_symlinks=False)
    except OSError as error:
        raise BindError(
            f"HW4513 the folder '{folder}' cannot be given to user '{user}': {error.strerror or error} "
            f"({error.filename}); check that this process is root and that the file system keeps owners"
        ) from error


def _raise(error: OSError) -> None:
    raise error


def _entry(user: str | None) -> pwd.struct_passwd:
    for name in (user,) if user else USUAL:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise BindError(
        f"HW4512 there is no user '{user or USUAL[-1]}' on this machine to run jobs as; make one "
        "(useradd --system --no-create-home headwater), or name one that there is"
    )


def _forms(uid: int, gid: int) -> Sequence[tuple[str, ...]]:
    """Return the ways to give rights up, the best first; user 0: all rights but those of the user."""
    own = (sys.executable, "-I", "-S", "-c", _GIVE_UP_AND_BECOME, str(uid), str(gid))
    program = shutil.which("setpriv")
    if program is None:
        return (own,)
    become = (f"--reuid={uid}", f"--regid={gid}", "--clear-groups") if uid != 0 else ()
    give_up = ("--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs", "--pdeathsig=keep")
    return ((program, *become, *give_up), own)


def _tried(words: Sequence[str], program: str, needs: Sequence[str]) -> tuple[bool, str | None]:
    """Return whether a program can run with these words and use what it needs; if not, what it may not use."""
    command = [*words, program, "-I", "-S", "-c", _TRY, *needs]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd="/"
        )
    except (OSError, subprocess.SubprocessError):
        return False, None
    return done.returncode == 0, done.stdout.strip() if done.returncode == 3 else None


def _packages() -> tuple[str, ...]:
    """Return a file of each place that our code comes from."""
    found = [importlib.util.find_spec(name) for name in ("headwater", "pyspark", "psutil")]
    return tuple(one.origin for one in found if one is not None and one.origin is not None)


def _because(entry: pwd.struct_passwd, needed: str) -> str:
    """Return why a user may not use a path, for a person: the first folder on the way that is closed to it."""
    real = Path(needed).resolve()
    for folder in reversed(real.parents):
        status = folder.stat()
        bits = 0o100 if status.st_uid == entry.pw_uid else 0o010 if status.st_gid == entry.pw_gid else 0o001
        if not status.st_mode & bits:
            return f"'{needed}' lies in '{folder}', which user '{entry.pw_name}' may not enter"
    return f"user '{entry.pw_name}' may not use '{needed}'"
