"""Does a program that another process started still run, and how is it ended?

`Adopted` has the verbs of `bind.java.Child` for a program that is not our child: the process that started it has
ended, and the program went on. Process ids are given out again, so one alone proves nothing: it is the same
process only if it also began at the same moment.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

__all__ = ["UNKNOWN_CODE", "Adopted", "find_leader", "started_at"]

UNKNOWN_CODE = 256  # no program can end with it
PAUSE_S = 0.05  # where the system does not tell when a process ends
SAME_S = 0.005  # half of what the system's clock of processes steps by
_DEAD = {b"Z", b"X", b"x"}


class Adopted:
    """A running program that this process did not start; it goes on when this process ends."""

    def __init__(self, pid: int, started_at: float) -> None:
        """Name it by its process id and what `started_at` said of it."""
        self._pid = pid
        self._started_at = started_at

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs, then `UNKNOWN_CODE`: only who started a program is told how it ended."""
        return None if self._runs() else UNKNOWN_CODE

    def wait(self, timeout_s: float) -> bool:
        """Return whether it has ended, after waiting for that at most so long."""
        end_s = time.monotonic() + timeout_s
        with self._handle() as handle:
            if not self._runs():  # asked after the handle was had: the number cannot change hands behind it
                return True
            if handle is not None:
                poll = select.poll()
                poll.register(handle, select.POLLIN)
                return bool(poll.poll(max(0.0, timeout_s) * 1000))
        while self._runs():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(PAUSE_S, left_s))
        return True

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended; never to another process that has its number by now."""
        with self._handle() as handle, contextlib.suppress(ProcessLookupError):
            if self._runs():
                if handle is None:
                    os.kill(self._pid, number)
                else:
                    signal.pidfd_send_signal(handle, number)

    def _runs(self) -> bool:
        found = started_at(self._pid)
        return found is not None and abs(found - self._started_at) < SAME_S

    @contextlib.contextmanager
    def _handle(self) -> Iterator[int | None]:
        """Give what the system names this process by and no other, where there is such a thing."""
        try:
            handle = os.pidfd_open(self._pid)
        except (AttributeError, OSError):
            yield None
            return
        try:
            yield handle
        finally:
            os.close(handle)


def started_at(pid: int) -> float | None:
    """Return when a process began, in seconds; None when there is none, or a dead one that nobody has buried.

    On Linux since the start of the machine: a clock that is set right meanwhile must not make it another process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in _DEAD else int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        if Path("/proc/self/stat").exists():
            return None
    with contextlib.suppress(psutil.Error, ValueError, OverflowError):
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    return None


def find_leader(is_it: Callable[[Sequence[str]], bool]) -> Adopted | None:
    """Return the running program with such a command line that is the first of its session, as ours all are."""
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(one.pid) == one.pid and is_it(one.cmdline()):
                began = started_at(one.pid)
                if began is not None:
                    return Adopted(one.pid, began)
    return None
