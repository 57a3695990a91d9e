"""Until when does a process stay?"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

__all__ = ["until_told"]


@contextlib.contextmanager
def until_told() -> Iterator[threading.Event]:
    """Give an event that is set when this process is told to end: Ctrl-C, a closed terminal, SIGTERM."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before: dict[int, Callable[..., Any] | int | None] = {one: signal.signal(one, on_signal) for one in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
