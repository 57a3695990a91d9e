"""Where are decisions written down?

Lines of JSON in one file; when it is full, it becomes the file before, and whoever writes begins anew with what a
reader needs to know first. A disk that is full or gone loses lines and stops nobody. What was cut off stays a line of
its own, and after it, too, whoever writes begins anew: what follows cannot be made again from what is missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

__all__ = ["FileJournal"]

MOST_BYTES = 16 * 1024 * 1024  # of one of two files


class FileJournal:
    """The port `Journal` in a file."""

    def __init__(self, file: Path, say: Callable[[str], None] = lambda _: None, most_bytes: int = MOST_BYTES) -> None:
        """Go on after what is there."""
        self.file = file
        self._say, self._most = say, most_bytes
        self._trouble = ""

    def write(self, entry: Mapping[str, object]) -> bool:
        """Append an entry; return whether the next one should be a beginning: of a file, or after one that is lost."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a+b") as opened:
                begin = b"\n" if _is_torn(opened) else b""
                opened.write(begin + json.dumps(entry, separators=(",", ":")).encode() + b"\n")
                size = opened.tell()
            if size > self._most:
                os.replace(self.file, self.file.with_name(f"{self.file.name}.1"))
            self._trouble = ""
            return size > self._most
        except OSError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._say(f"decisions cannot be written down: {error}")
            return True


def _is_torn(opened: BinaryIO) -> bool:
    """Return whether the last line was cut off: the disk was full in the middle of it, or whoever wrote it died."""
    if opened.seek(0, os.SEEK_END) == 0:
        return False
    opened.seek(-1, os.SEEK_END)
    return opened.read(1) != b"\n"
