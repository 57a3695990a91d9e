"""How do files come in and go out?

Takes paths as the user typed them and gives bytes; writes whole files or nothing. What a file means is
for `model.files`; here a file is only there or not, readable or not, small enough or not.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headwater.errors import BindError, Mistake, SpecError

__all__ = ["LARGEST_BYTES", "STANDARD_INPUT", "check_writable", "read", "replacing", "write_text"]

LARGEST_BYTES = 1_000_000_000  # a file above this is taken for a mistake
STANDARD_INPUT = "-"


def read(path: str, largest_bytes: int = LARGEST_BYTES) -> bytes:
    """Return the content of a file, or of standard input for '-'.

    Raises:
        SpecError: HW1301 to HW1304, when there is nothing to read or too much.
    """
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise _wrong("HW1303", path, "standard input is closed; give a file's name instead of '-'")
        return _bounded(sys.stdin.buffer, path, largest_bytes)
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno())
            if stat.S_ISREG(mode.st_mode) and mode.st_size > largest_bytes:
                raise _too_large(path, largest_bytes)
            return _bounded(file, path, largest_bytes)
    except FileNotFoundError:
        raise _wrong("HW1301", path, _absent(path)) from None
    except NotADirectoryError:
        raise _wrong("HW1301", path, "part of this path is a file, not a folder; check its spelling") from None
    except IsADirectoryError:
        raise _wrong("HW1302", path, "this is a folder; give the file inside it") from None
    except PermissionError:
        raise _wrong("HW1303", path, "this file may not be read; check its permissions") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise _wrong("HW1303", path, f"this file cannot be read: {_why(error)}") from None


def write_text(path: str, text: str) -> None:
    """Write a whole file or nothing, in UTF-8.

    Raises:
        BindError: HW4001 to HW4003, when the file system refuses.
    """
    with replacing(path) as part:
        Path(part).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: str) -> Iterator[str]:
    """Give a path to write to, with the same suffix; it takes the place of `path` when all went well.

    A path that is no plain file (a pipe, a terminal, /dev/null) is written to directly.

    Raises:
        BindError: HW4001 to HW4003, when the file system refuses.
    """
    check_writable(path)
    if _is_special(path):
        with _refusals(path):
            yield path
        return
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    part = os.path.join(folder, f".{os.getpid()}.part.{name}")
    try:
        with _refusals(path):
            yield part
            os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def check_writable(path: str) -> None:
    """Refuse early, before any work is done for a file that could not be written.

    Raises:
        BindError: HW4001 for a missing folder, HW4002 where nothing may be written.
    """
    if "\0" in path or not path:
        raise BindError(f"HW4001 '{path}' is no file name; name a file to write")
    if os.path.isdir(path):
        raise BindError(f"HW4002 {path}: this is a folder; name a file inside it")
    if _is_special(path):
        return
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise BindError(f"HW4001 {path}: there is no folder '{os.path.dirname(path) or folder}'; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BindError(f"HW4002 {path}: nothing may be written to '{folder}'; check its permissions")


@contextlib.contextmanager
def _refusals(path: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BindError(f"HW4003 {path}: this file cannot be written: {_why(error)}") from error


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode)


def _bounded(file: BinaryIO, path: str, largest_bytes: int) -> bytes:
    content = file.read(largest_bytes + 1)
    if len(content) > largest_bytes:
        raise _too_large(path, largest_bytes)
    return content


def _absent(path: str) -> str:
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        return f"there is no such file, and no folder '{folder}'; paths start at '{os.getcwd()}'"
    return f"there is no such file; paths start at '{os.getcwd()}'"


def _too_large(path: str, largest_bytes: int) -> SpecError:
    limit = f"{largest_bytes / 1e9:g} GB" if largest_bytes >= 1e9 else f"{largest_bytes} bytes"
    return _wrong("HW1304", path, f"this file is larger than {limit}, which no sites or pipeline file is")


def _wrong(code: str, path: str, text: str) -> SpecError:
    return SpecError(Mistake(code, text, "standard input" if path == STANDARD_INPUT else path))


def _why(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
