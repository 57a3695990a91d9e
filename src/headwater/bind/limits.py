"""What may a runner use, and what has it used?

`Limit` and `Usage` are what `bind.limiter` is told and tells. The rest reads of the system what a session's
processes have used: their numbers come and go with processes and threads, and `Tally` sums them so that the sum
never falls.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headwater.bind.cgroup_files import PAGE_BYTES
from headwater.bind.duty_process import used_s

__all__ = ["Limit", "Tally", "Usage", "memory_bytes", "used_ns", "waited_ns"]


@dataclass(frozen=True, slots=True)
class Limit:
    """What one runner may use."""

    cores: float | None  # worth of processor time; None: all there is
    weight: float = 1.0  # against the other runners where the processor is short; 1.0 is normal
    memory_bytes: int | None = None  # None: all there is


@dataclass(frozen=True, slots=True)
class Usage:
    """What one runner has used since it was taken: counters that never fall while one process reads them."""

    used_s: float  # of processors
    throttled_s: float  # that its limit made it stand still
    run_delay_s: float  # that its threads waited for a processor; what the limit made them wait is among it
    memory_bytes: int  # that it uses now, without idle copies of files


class Tally:
    """A sum over counters whose owners come and go."""

    def __init__(self) -> None:
        """Begin with none."""
        self._last: dict[int, int] = {}
        self._past = 0  # of owners that are gone

    def add(self, counters: Mapping[int, int]) -> int:
        """Take each owner's counter as it is now, and return the sum over all that there ever were."""
        for owner, before in self._last.items():
            if counters.get(owner, -1) < before:  # gone, or gone and its number given to another
                self._past += before
        self._last = dict(counters)
        return self._past + sum(counters.values())


def waited_ns(pids: Iterable[int]) -> dict[int, int]:
    """Return how long each thread of these processes has waited for a processor while it could run.

    Empty where the kernel does not count that.
    """
    found = {}
    for pid in pids:
        folder = f"/proc/{pid}/task"
        with contextlib.suppress(OSError):
            for thread in os.listdir(folder):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    number = os.open(f"{folder}/{thread}/schedstat", os.O_RDONLY)
                    try:
                        found[int(thread)] = int(os.read(number, 128).split()[1])
                    finally:
                        os.close(number)
    return found


def used_ns(pids: Iterable[int]) -> dict[int, int]:
    """Return how much processor time each of these processes has used, with its threads that have ended."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            found[pid] = round(used_s(pid) * 1e9)
    return found


def memory_bytes(pids: Iterable[int]) -> int:
    """Return how much memory these processes have for themselves, without what they share and what files hold."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as opened:
            words = opened.read().split()
            pages += int(words[1]) - int(words[2])
    return pages * PAGE_BYTES
