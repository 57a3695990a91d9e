"""Where do checkpoints lie on their way from one agent to another?

In a folder of the controller, one file each, from the moment that they are announced until whoever announced
them takes them back. Only the site that packs one may bring it, and only the site that takes it may get it.

    HW4911   nobody waits for this checkpoint, or it is not there
    HW4912   a checkpoint that is too large
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from headwater.errors import BindError

__all__ = ["MOST_BYTES", "Arrival", "Spool"]

MOST_BYTES = 4 * 1024**3


@dataclass
class _Parcel:
    packer: str
    taker: str
    is_here: bool = False


@dataclass
class Arrival:
    """A checkpoint that is coming in; written by one, counted when it is whole."""

    file: BinaryIO
    most_bytes: int
    size_bytes: int = field(default=0)

    def write(self, chunk: bytes) -> None:
        """Take some more of it.

        Raises:
            BindError: HW4912.
        """
        self.size_bytes += len(chunk)
        if self.size_bytes > self.most_bytes:
            raise BindError(
                f"HW4912 a checkpoint of more than {self.most_bytes} bytes does not go through the controller. Let "
                "the job keep less state, or stop it and start it anew where it is wanted."
            )
        self.file.write(chunk)


class Spool:
    """All checkpoints that are on their way."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        """Take a folder of its own; what an earlier controller left there is removed."""
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._parcels: dict[str, _Parcel] = {}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)

    @contextmanager
    def way(self, packer: str, taker: str) -> Iterator[str]:
        """Let a checkpoint go from one site to another; give its id, and remove it at the end."""
        name = secrets.token_hex(16)
        with self._lock:
            self._parcels[name] = _Parcel(packer, taker)
        try:
            yield name
        finally:
            with self._lock:
                del self._parcels[name]
            self._path(name).unlink(missing_ok=True)

    @contextmanager
    def bring(self, site: str, name: str) -> Iterator[Arrival]:
        """Take in what a site packed; brought twice, the last counts.

        Raises:
            BindError: HW4911 or HW4912.
        """
        with self._lock:
            parcel = self._parcels.get(name)
        if parcel is None or parcel.packer != site:
            raise _unknown(site, name)
        coming = self._folder / f"{name}.{secrets.token_hex(8)}"
        try:
            with coming.open("xb") as file:
                yield Arrival(file, self._most_bytes)
            with self._lock:
                if self._parcels.get(name) is not parcel:
                    raise _unknown(site, name)
                coming.replace(self._path(name))
                parcel.is_here = True
        except OSError as error:
            raise BindError(
                f"HW4911 the controller cannot keep a checkpoint on its way: {error.strerror or error}. Make room in "
                "its state folder; the move is tried again."
            ) from error
        finally:
            with contextlib.suppress(OSError):
                coming.unlink(missing_ok=True)

    def take(self, site: str, name: str) -> BinaryIO:
        """Return a checkpoint that has come, opened; it may be taken again as long as it is on its way.

        Raises:
            BindError: HW4911.
        """
        with self._lock:
            parcel = self._parcels.get(name)
            if parcel is None or parcel.taker != site or not parcel.is_here:
                raise _unknown(site, name)
            return self._path(name).open("rb")

    def _path(self, name: str) -> Path:
        return self._folder / name


def _unknown(site: str, name: str) -> BindError:
    return BindError(
        f"HW4911 there is no checkpoint '{name[:64]}' on its way for site '{site}': whoever moved the job has given "
        "up, or it is another site's. It is tried again by itself."
    )
