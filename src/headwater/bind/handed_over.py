"""How are files read and written in a folder that belongs to somebody else?

The folder of a runner is handed over to the user that it runs as (`bind.privilege`), and whoever looks after the runner
may be root. In the place of each file there may be anything: a link to what others must not read or lose, a pipe that
nobody writes to, a folder. None of them is followed, waited for or in the way.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tarfile
from pathlib import Path
from typing import IO

__all__ = ["open_log", "pack", "put", "remove", "take"]

MOST_BYTES = 65536


def pack(archive: tarfile.TarFile, folder: Path, name: str) -> None:
    """Put a folder and all in it into an archive under a name.

    Raises:
        OSError: something in it is neither a folder nor a plain file with one name: what that leads to may be no
            business of whoever the folder belongs to, and to leave it out would lose what it stands for.
    """
    base = os.fspath(folder)
    for path, folders, files, opened in os.fwalk(base, follow_symlinks=False, onerror=_raise):
        for one in folders:
            if not stat.S_ISDIR(os.stat(one, dir_fd=opened, follow_symlinks=False).st_mode):
                raise OSError(errno.EINVAL, "it is a link", f"{path}/{one}")
        inside = name + path[len(base) :]
        made = tarfile.TarInfo(inside)
        made.type, made.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(made)
        for one in files:
            try:
                number = os.open(one, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened)
            except OSError as error:
                error.filename = f"{path}/{one}"
                raise
            with os.fdopen(number, "rb") as found:
                if not _is_plain(number):
                    raise OSError(errno.EINVAL, "it is no plain file", f"{path}/{one}")
                archive.addfile(archive.gettarinfo(arcname=f"{inside}/{one}", fileobj=found), found)


def _raise(error: OSError) -> None:
    raise error


def put(file: Path, text: str) -> None:
    """Write a file anew, the whole of it or nothing; what stands in its place is replaced.

    Raises:
        OSError: the folder refuses.
    """
    passing = _unused(file)
    try:
        with os.fdopen(os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w", encoding="utf-8") as opened:
            opened.write(text)
        try:
            passing.replace(file)
        except IsADirectoryError:
            remove(file)
            passing.replace(file)
    finally:
        with contextlib.suppress(OSError):
            passing.unlink(missing_ok=True)


def remove(file: Path) -> None:
    """Let nothing stand there; a folder is put aside, for it could be so full that it takes hours to go.

    Raises:
        OSError: the folder refuses.
    """
    try:
        file.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):
        file.rename(_unused(file))


def open_log(file: Path) -> IO[bytes]:
    """Open a log to append to it; what is no plain file with one name is not touched but replaced.

    Raises:
        OSError: the folder refuses.
    """
    with contextlib.suppress(OSError):
        number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
        if _is_plain(number):
            return os.fdopen(number, "ab")
        os.close(number)
    remove(file)
    return os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644), "ab")


def take(file: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the end of a plain file; nothing else may stand there, like a link to what others must not read.

    Raises:
        OSError: there is none, or it is something else.
    """
    number = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(number, "rb") as opened:
        if not _is_plain(number):
            raise OSError(errno.EINVAL, "it is no plain file", str(file))
        opened.seek(max(0, os.fstat(number).st_size - most_bytes))
        return opened.read(most_bytes)


def _unused(file: Path) -> Path:
    """Return a name beside a file that nobody can have put anything at."""
    return file.with_name(f".{file.name}.{secrets.token_hex(8)}")


def _is_plain(number: int) -> bool:
    status = os.fstat(number)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
