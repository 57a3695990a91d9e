"""Who does what an agent is told, and how long does it wait between two tries?"""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Callable

__all__ = ["Hands", "Tries"]

SOONEST_S, LATEST_S = 0.1, 5.0


class Hands:
    """A few threads that end with the process, each made when all others are busy."""

    def __init__(self, most: int) -> None:
        """Make no thread yet, and never more than `most`."""
        self._most = most
        self._acts: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._count = 0
        self._open = 0  # acts that wait or are being done

    def do(self, act: Callable[[], None]) -> None:
        """Let an act be done as soon as a thread is free."""
        with self._changed:
            self._open += 1
            self._acts.put(act)
            if self._open > self._count and self._count < self._most:
                self._count += 1
                threading.Thread(target=self._work, name=f"order-{self._count}", daemon=True).start()

    def join(self, within_s: float) -> None:
        """Wait until nothing is left to do, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0, within_s)

    def _work(self) -> None:
        while True:
            act = self._acts.get()
            try:
                act()
            finally:
                with self._changed:
                    self._open -= 1
                    self._changed.notify_all()


class Tries:
    """Pauses between tries, ever longer, by chance so that not all agents come at once."""

    def __init__(self, stop: threading.Event) -> None:
        """Begin with a short pause; `stop` ends them all."""
        self._stop = stop
        self._pause_s = SOONEST_S

    def pause(self) -> None:
        """Wait, unless it is time to stop."""
        self._stop.wait(self._pause_s * random.uniform(0.5, 1.0))
        self._pause_s = min(LATEST_S, self._pause_s * 2)

    def reset(self) -> None:
        """Begin again with a short pause."""
        self._pause_s = SOONEST_S
