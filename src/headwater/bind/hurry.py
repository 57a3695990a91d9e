"""How does whoever holds latency goals get the processor first?

An agent does little, but what it does cannot wait: on a machine that its runners keep full, it would else start and
decide several times slower than it can. Only who may lower a nice value gets ahead (root); for others nothing changes.

Linux has a nice value for each thread, which threads and programs that it starts inherit: programs are started by
threads that are not ahead. Where the kernel shares by session first (autogroups), a nice value of the session counts.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

__all__ = ["ahead", "in_line"]

AHEAD = -10
USUAL = os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0  # of this process, as it was started
SESSION = Path("/proc/self/autogroup")


def ahead() -> None:
    """Let the thread that calls it come before others, and this process's session, which runners are not of."""
    if os.getsid(0) == os.getpid():  # it is ours alone
        with contextlib.suppress(OSError):
            SESSION.write_text(str(AHEAD), "ascii")
    _set(AHEAD)


def in_line() -> None:
    """Let the thread that calls it, and what it starts from now on, come in line with all others."""
    _set(USUAL)


def _set(nice: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
