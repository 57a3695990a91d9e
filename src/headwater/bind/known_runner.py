"""What does an engine know of one of its runners?

What it was last asked to run, what it said last, and, if an earlier agent has started it, whether it was taken over. A
runner may have little of the processor, or be stuck: whatever waits for it does so in a thread of its own.

    HW4516   it is not known yet whether a runner is taken over
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.bind.process import RunnerProcess
from headwater.bind.said import parts_of
from headwater.errors import BindError

__all__ = ["KnownRunner"]

STATUS_S = 10.0
BELIEVED_S = 60.0  # as long one that does not answer is as it said last: it may have too little of the processor
DECIDE_S = 15.0  # by then one that says nothing has failed to prove itself; see `talk.PROOF_S`


@dataclass
class KnownRunner:
    """A runner, and what it was last asked to run."""

    process: RunnerProcess
    code: str  # of its project; '' : it runs jobs by themselves
    lock: threading.RLock = field(default_factory=threading.RLock)
    pid: int | None = None  # for which `specs` holds
    specs: dict[str, str] = field(default_factory=dict)  # by job
    begun_s: float = 0.0
    pause_s: float = 0.0
    idle_s: float | None = None  # since when it has had nothing to run
    parts: Sequence[Mapping[str, Any]] = ()  # the last answer
    said_s: float | None = None  # when it came, by the clock that never goes back; None: there is none
    _turn: int = 0  # grows with all that makes an answer an old one
    _question: threading.Event | None = None  # how its parts are: set when it has answered, or will not
    _adoption: threading.Thread | None = None
    _decided_by_s: float = 0.0

    def forget(self, part: str | None = None) -> None:
        """Let what it said of a part, or of all, count no more: that part is another one from now on."""
        self._turn += 1
        self.parts = [] if part is None else [one for one in self.parts if one["id"] != part]
        if part is None:
            self.said_s = None

    def ask(self) -> None:
        """Ask it how its parts are, unless it has not answered yet."""
        if self._question is None or self._question.is_set():
            self._question = threading.Event()
            threading.Thread(target=self._hear, args=(self._question,), name="asking", daemon=True).start()

    def wait(self, timeout_s: float) -> None:
        """Wait for what it was asked, at most so long."""
        if self._question is not None:
            self._question.wait(timeout_s)

    def _hear(self, question: threading.Event) -> None:
        """Take its answer; one that something has made old meanwhile is none."""
        turn = self._turn
        parts: Sequence[Mapping[str, Any]] | None = None
        try:
            parts = parts_of(self.process.ask({"do": "status"}, STATUS_S))
        except Exception:  # noqa: BLE001 - whatever comes of it is no answer: nobody waits for it, and it is asked again
            if self.said_s is not None and time.monotonic() - self.said_s > BELIEVED_S:
                parts = ()
        finally:
            if turn == self._turn and parts is not None:
                self.parts, self.said_s = parts, time.monotonic() if parts else self.said_s
            question.set()

    def adopt(self, say: Callable[[str], None]) -> threading.Thread:
        """Begin to take it over from an earlier agent, if it runs and answers; return what ends when that is known."""
        self._decided_by_s = time.monotonic() + DECIDE_S
        adoption = threading.Thread(target=self._adopt, args=(say,), name="adopting", daemon=True)
        adoption.start()
        self._adoption = adoption
        return adoption

    def _adopt(self, say: Callable[[str], None]) -> None:
        try:
            with self.lock:
                self.process.adopt()
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever needs the runner next tries again
            say(f"the runner in '{self.process.spec.folder}' is not taken over: {str(error) or type(error).__name__}")

    def decide(self) -> None:
        """Return when it is known whether it was taken over: until then, nobody starts, ends or replaces it.

        Raises:
            BindError: HW4516, it talks, but does not prove that it is the one that was left.
        """
        if self._adoption is not None:
            self._adoption.join(max(0.0, self._decided_by_s - time.monotonic()))
            if self._adoption.is_alive():
                raise BindError(
                    f"HW4516 the runner in '{self.process.spec.folder}' is from an earlier agent and has not proved "
                    "yet that it is that one; it is waited for. If it stays so, end it."
                )
