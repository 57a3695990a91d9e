"""Is a zip harmless, and what is in it?

`opened` gives a zip whose list of entries is short enough to be read, `allowed` its entries if all of them may be
unpacked, `content` the bytes of one. A zip is refused, as a whole, if any entry leaves its folder, is a link or
another thing than a file or folder, has a name that is a device or another entry's on some file system, or if it
unpacks to too much. It does not matter who made the zip or who has looked at it before.

    HW1222  a zip with something in it that is not allowed
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from headwater.errors import Mistake, SpecError
from headwater.model.report import quote

__all__ = ["LARGEST_UNPACKED_BYTES", "MOST_FILES", "allowed", "content", "is_zip", "opened"]

LARGEST_UNPACKED_BYTES = 256 * 2**20
MOST_FILES = 10_000
MOST_RATIO = 100  # unpacked to packed; program text has less than 10
RATIO_FREE_BYTES = 2**20  # so much may be unpacked from however little
MOST_DIRECTORY_BYTES = 4 * 2**20  # of a zip's list of entries: read whole into memory
LONGEST_NAME = 255  # bytes of a file's or folder's name
LONGEST_PATH = 1000  # characters
DEEPEST = 40  # folders
CHUNK_BYTES = 2**20

_STARTS = (b"PK\x03\x04", b"PK\x05\x06")  # the first bytes of a zip, and of an empty one
_END, _END_BYTES, _LOCATOR, _LOCATOR_BYTES = b"PK\x05\x06", 22, b"PK\x06\x07", 20
_DRIVE = re.compile(r"[A-Za-z]:")
_BAD_CHARACTERS = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')
_DEVICE = re.compile(r"con|prn|aux|nul|clock\$|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³]", re.IGNORECASE)
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


def is_zip(file: BinaryIO) -> bool:
    """Return whether a file begins like a zip; it is then read from its beginning."""
    start = file.read(4)
    file.seek(0)
    return start in _STARTS


@contextmanager
def opened(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """Give a zip whose list of entries is short enough to be read at all.

    Raises:
        SpecError: HW1222, also where the zip turns out to be broken within the block.
    """
    _check_directory(file)
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeError, ValueError) as error:
        raise _wrong(f"the zip cannot be read: {error}. Make it again.") from error


def _check_directory(file: BinaryIO) -> None:
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - _END_BYTES - 2**16)
    file.seek(start)
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_BYTES:
        raise _wrong("the zip has no end: it was cut off. Make it again.")
    if tail[max(0, at - _LOCATOR_BYTES) : at].startswith(_LOCATOR):
        raise _wrong("the zip is of the kind for very large files (zip64), which is not taken. Make a plain one.")
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    if length > MOST_DIRECTORY_BYTES:
        raise _wrong(f"the zip lists more entries than are taken; at most {MOST_FILES} are.")


def allowed(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the entries of a zip, if all of them are allowed.

    Raises:
        SpecError: HW1222.
    """
    entries = archive.infolist()
    if len(entries) > MOST_FILES:
        raise _wrong(f"the zip has {len(entries)} entries; at most {MOST_FILES} are taken.")
    unpacked = sum(one.file_size for one in entries)
    if unpacked > LARGEST_UNPACKED_BYTES:
        most = f"at most {LARGEST_UNPACKED_BYTES // 2**20} MiB are taken"
        raise _wrong(f"the zip unpacks to {unpacked / 2**20:.0f} MiB; {most}.")
    packed = sum(one.compress_size for one in entries)
    if unpacked > RATIO_FREE_BYTES + MOST_RATIO * packed:
        raise _wrong(f"the zip unpacks to {unpacked} bytes from {packed}, which no program does.")
    kinds: dict[str, bool] = {}  # by path as a file system without case sees it: whether it is a folder
    for entry in entries:
        because = _trouble(entry)
        if because is not None:
            raise _wrong(f"the zip's entry {quote(entry.filename, 60)} {because}. Make the zip without it.")
        _place(entry, kinds)
    return entries


def _place(entry: zipfile.ZipInfo, kinds: dict[str, bool]) -> None:
    """Refuse an entry that would lie where another one lies."""
    names = [_plain(name) for name in entry.filename.rstrip("/").split("/")]
    for depth in range(1, len(names)):
        if not kinds.setdefault("/".join(names[:depth]), True):
            raise _wrong(f"the zip's entry {quote(entry.filename, 60)} lies inside another entry that is a file.")
    whole = "/".join(names)
    is_again = whole in kinds and not (kinds[whole] and entry.is_dir())
    if is_again:
        raise _wrong(
            f"the zip has two entries for {quote(entry.filename, 60)}, which on some file systems are one. "
            "Rename one of the two.",
        )
    kinds[whole] = entry.is_dir()


def _trouble(entry: zipfile.ZipInfo) -> str | None:
    """Return why an entry is not allowed, or None."""
    path, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
    names = path.removesuffix("/").split("/")
    is_odd = kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR and not entry.is_dir())
    troubles = (
        (kind == stat.S_IFLNK, "is a link"),
        (is_odd, "is neither a file nor a folder"),
        (entry.flag_bits & _ENCRYPTED, "is encrypted"),
        (entry.compress_type not in _METHODS, "is packed by another method than deflate"),
        ("\0" in entry.orig_filename, "has a zero byte in its name"),
        (len(path) > LONGEST_PATH, f"has a path of more than {LONGEST_PATH} characters"),
        (len(names) > DEEPEST, f"lies more than {DEEPEST} folders deep"),
        (path.startswith(("/", "\\")) or _DRIVE.match(path), "has an absolute path"),
    )
    return next((text for is_so, text in troubles if is_so), None) or next(
        filter(None, map(_name_trouble, names)), None
    )


def _name_trouble(name: str) -> str | None:
    troubles = (
        (name == "..", "leaves its folder"),
        (name in {"", "."}, "has an empty folder in its path"),
        (_BAD_CHARACTERS.search(name), "has a character in its name that some file systems refuse"),
        (_DEVICE.fullmatch(name.partition(".")[0].rstrip()), "has the name of a device"),
        (name.endswith((".", " ")), "has a name that ends in a dot or a blank"),
        (len(name.encode("utf-8", "surrogatepass")) > LONGEST_NAME, f"has a name of more than {LONGEST_NAME} bytes"),
    )
    return next((text for is_so, text in troubles if is_so), None)


def _plain(name: str) -> str:
    """Return a name as the least careful file system sees it."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield the bytes of an entry, never more than it says."""
    left = entry.file_size
    with archive.open(entry) as packed:
        while chunk := packed.read(CHUNK_BYTES):
            left -= len(chunk)
            if left < 0:
                raise zipfile.BadZipFile(f"{quote(entry.filename, 60)} is longer than it says")
            yield chunk
    if left:
        raise zipfile.BadZipFile(f"{quote(entry.filename, 60)} is shorter than it says")


def _wrong(text: str) -> SpecError:
    return SpecError(Mistake("HW1222", text))
