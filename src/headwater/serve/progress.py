"""What is going on in there?

Shows progress on standard error, and only when that is a terminal and the work takes longer than a
second. Feeds on `Limits.say`, which may be called as often as a method likes.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from headwater.serve.plain import plain

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Teller", "note"]

PATIENCE_S = 1.0  # work that is done within this shows nothing
INTERVAL_S = 0.1  # updates come no faster than this


def note(text: str) -> None:
    """Write one line to standard error."""
    if sys.stderr is not None:
        sys.stderr.write(plain(text, keep="\n") + "\n")
        sys.stderr.flush()


class Teller:
    """A progress line that appears by itself when the work inside its `with` block takes long."""

    def __init__(self, title: str, patience_s: float = PATIENCE_S) -> None:
        """Name the work; nothing is shown yet."""
        self._title = plain(title)
        self._share: float | None = None
        self._text = ""
        self._last_s = 0.0
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._timer: threading.Timer | None = None
        self._patience_s = patience_s

    def __enter__(self) -> Teller:
        """Start waiting; the line appears when patience ends."""
        if sys.stderr is not None and sys.stderr.isatty():
            self._timer = threading.Timer(self._patience_s, self._appear)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the line away."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._timer = None
            if self._progress is not None:
                self._progress.stop()
                self._progress = None

    def say(self, text: str, share: float | None) -> None:
        """Take note of what is done now, and of how much of it is done (0 to 1, None: unknown)."""
        self._text, self._share = text, share
        if self._progress is None:
            return
        now_s = time.monotonic()
        if now_s - self._last_s >= INTERVAL_S:
            self._last_s = now_s
            self._update()

    def _appear(self) -> None:
        # Whoever is done before does not load it.
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        with self._lock:
            if self._timer is None:
                return
            progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            progress.start()
            progress.add_task(self._described(), total=None)
            self._progress = progress
        self._update()

    def _update(self) -> None:
        progress = self._progress
        if progress is None or not progress.task_ids:
            return
        total = None if self._share is None else 1.0
        progress.update(progress.task_ids[0], description=self._described(), total=total, completed=self._share or 0.0)

    def _described(self) -> str:
        return f"{self._title}: {plain(self._text)}" if self._text else self._title
