"""How does the user's code come in, lie, and come out again?

An upload is a Python file or a zip of a project. It is written to a file of its own while it comes, never more
of it than is allowed, and takes its place under the hash of its content when it is whole and found to be
harmless. `unpack` lays it out where it is to run; controller and agents use the same, so nothing that comes
over a network is trusted because somebody else has looked at it. What a zip may hold is in `bind.zips`.

    HW1220  too large
    HW1221  neither Python nor a zip
    HW4223  the file system refuses
    HW4224  all uploads together are too large
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NoReturn
from zipfile import ZipFile, ZipInfo

from headwater.bind import zips
from headwater.errors import BindError, Mistake, SpecError
from headwater.model.report import quote

__all__ = [
    "LARGEST_BYTES",
    "Incoming",
    "Kept",
    "Uploads",
    "check",
    "unpack",
]

LARGEST_BYTES = 64 * 2**20
LARGEST_TOTAL_BYTES = 8 * 2**30

_HASH = re.compile(r"[0-9a-f]{64}")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


@dataclass(frozen=True, slots=True)
class Kept:
    """What was uploaded."""

    hash: str  # sha256 of its content, in hex
    size_bytes: int


class Uploads:
    """A folder of uploads, each under its hash."""

    def __init__(self, folder: Path) -> None:
        """Take or make the folder; what an earlier process left half-written is removed.

        Raises:
            BindError: HW4223.
        """
        self.folder = folder
        with _refusals(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in folder.glob(".part-*"):
                part.unlink()

    def begin(self) -> Incoming:
        """Return where the bytes of a new upload go.

        Raises:
            BindError: HW4223, HW4224.
        """
        with _refusals(self.folder):
            taken = sum(one.stat().st_size for one in self.folder.iterdir())
            if taken + LARGEST_BYTES > LARGEST_TOTAL_BYTES:
                raise BindError(
                    f"HW4224 uploads take {taken / 1e9:.1f} GB of at most {LARGEST_TOTAL_BYTES / 1e9:.1f} GB in "
                    f"'{self.folder}'. Remove those that no job needs any more."
                )
            handle, name = tempfile.mkstemp(prefix=".part-", dir=self.folder)
        return Incoming(os.fdopen(handle, "wb"), Path(name), self.folder)

    def take(self, chunks: Iterable[bytes]) -> Kept:
        """Keep an upload that comes piece by piece.

        Raises:
            SpecError: HW1220 to HW1222; nothing is left of it.
            BindError: HW4223, HW4224.
        """
        with self.begin() as incoming:
            for chunk in chunks:
                incoming.write(chunk)
            return incoming.keep()

    def path(self, hash_: str) -> Path | None:
        """Return the file of an upload, or None where there is none."""
        if not _HASH.fullmatch(hash_):
            return None
        file = self.folder / hash_
        return file if file.is_file() else None


class Incoming:
    """An upload on its way; what is not kept when the block ends is removed."""

    def __init__(self, out: BinaryIO, part: Path, folder: Path) -> None:
        """Begin with nothing."""
        self._out, self._part, self._folder = out, part, folder
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def __enter__(self) -> Incoming:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what was not kept."""
        self._out.close()
        self._part.unlink(missing_ok=True)

    def write(self, chunk: bytes) -> None:
        """Take some bytes.

        Raises:
            SpecError: HW1220, as soon as there are too many.
            BindError: HW4223.
        """
        self.size_bytes += len(chunk)
        if self.size_bytes > LARGEST_BYTES:
            _wrong("HW1220", f"the upload has more than {LARGEST_BYTES // 2**20} MiB, which is the most. Send less.")
        with _refusals(self._folder):
            self._out.write(chunk)
        self._digest.update(chunk)

    def keep(self) -> Kept:
        """Give the upload its place, if there is nothing wrong with it.

        Raises:
            SpecError: HW1221, HW1222.
            BindError: HW4223.
        """
        hash_ = self._digest.hexdigest()
        target = self._folder / hash_
        with _refusals(self._folder):
            self._out.flush()
            check(self._part)
            if not target.exists():
                os.fsync(self._out.fileno())
                self._part.replace(target)
                _sync_folder(self._folder)
        return Kept(hash_, self.size_bytes)


def check(file: Path) -> None:
    """Refuse an upload that is neither Python nor a harmless zip.

    Raises:
        SpecError: HW1221, HW1222.
    """
    with file.open("rb") as found:
        if not zips.is_zip(found):
            _check_python(found)
            return
        with zips.opened(found) as archive:
            for entry in zips.allowed(archive):
                for _ in zips.content(archive, entry):  # whole, and as long as it says
                    pass


def unpack(file: Path, folder: Path, module: str = "job") -> None:
    """Lay out an upload in a folder that is not there yet; all of it or nothing.

    Args:
        file: The upload.
        folder: Where to; its parent is there.
        module: What a single Python file is to be called, without '.py'; it may have dots.

    Raises:
        SpecError: HW1221, HW1222: not everything in it is allowed.
        BindError: HW4223.
    """
    with _refusals(folder), tempfile.TemporaryDirectory(prefix=".unpack-", dir=folder.parent) as work:
        target = Path(work, "content")
        target.mkdir(mode=0o755)
        with file.open("rb") as found:
            if zips.is_zip(found):
                with zips.opened(found) as archive:
                    for entry in zips.allowed(archive):
                        _lay_out(archive, entry, target)
            else:
                _check_python(found)
                _lay_out_module(file, target, module)
        if not folder.exists():
            target.rename(folder)


def _check_python(file: BinaryIO) -> None:
    content = file.read(LARGEST_BYTES + 1)
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        _wrong(
            "HW1221", f"the upload is neither a zip nor Python: byte {error.start} is no UTF-8 text. Send one of both."
        )
    if not content.strip() or b"\0" in content:
        what = "is empty" if not content.strip() else "holds a zero byte"
        _wrong("HW1221", f"the upload {what}; wanted is a Python file or a zip of them.")


def _lay_out(archive: ZipFile, entry: ZipInfo, target: Path) -> None:
    path = target.joinpath(*entry.filename.removesuffix("/").split("/"))
    if entry.is_dir():
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "wb") as out:
        for chunk in zips.content(archive, entry):
            out.write(chunk)


def _lay_out_module(file: Path, target: Path, module: str) -> None:
    if not _MODULE.fullmatch(module):
        _wrong("HW1221", f"a Python file cannot be called {quote(module, 60)}.")
    *folders, name = module.split(".")
    folder = target.joinpath(*folders)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    shutil.copyfile(file, folder / f"{name}.py")


def _sync_folder(folder: Path) -> None:
    """Let a new name in a folder outlive a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BindError(
            f"HW4223 an upload cannot be kept or unpacked in '{folder}': {error}. Look at the disk's space."
        ) from error


def _wrong(code: str, text: str) -> NoReturn:
    raise SpecError(Mistake(code, text))
