"""How is a session of processes kept to its share of the processor where the kernel may not be asked to?

A program of its own, which `bind.duty` starts: it stops (SIGSTOP) each session that has used its share and lets it
go on (SIGCONT), about ten times a second. It imports nothing of the project, so that it starts at once and stays
small. Orders come as lines of JSON on its standard input:

    {"keep": {"NAME": [LEADER, BEGUN, CORES], ...}}   these sessions and no others, to so many cores each
    {"tell": true}                                    it answers with one line: seconds each was stopped, by name

A session is known by the number of its leader and by when that began: another process may get the number, and must
not be stopped. It is a process of its own because whoever limits may be killed at any moment, and then nobody may
stay stopped: it lets all go on and ends as soon as its input ends or its parent is another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

__all__ = ["PERIOD_S", "Keeper", "begun", "let_go_on", "main", "members", "sessions", "used_s"]

PERIOD_S = 0.1  # from one stop to the next
LEAST_S = 0.002  # between two looks
DEEPEST_DEBT_S = 0.5  # that one who used far more than its share has to stand still for
PASSES = 3  # until nobody is found who was made meanwhile
CPUCLOCK_SCHED = 2


def sessions() -> dict[int, list[int]]:
    """Return the processes of each session, by the number of its leader."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(name)
                found.setdefault(os.getsid(pid), []).append(pid)
    return found


def members(leader: int) -> list[int]:
    """Return the processes of one session."""
    return sessions().get(leader, [])


def begun(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine did; None: there is none of that number."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as opened:
            return int(opened.read().rpartition(b")")[2].split()[19])  # its name may have spaces and brackets
    except (OSError, ValueError, IndexError):
        return None


def let_go_on(pids: Iterable[int]) -> None:
    """Let processes go on that may be stopped."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def used_s(pid: int) -> float:
    """Return how much processor time a process has used, with all threads that it ever had.

    Raises:
        OSError: there is no such process.
    """
    return time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)  # the clock of another process, as Linux numbers them


class Keeper:
    """Keeps one session to its share.

    It has a budget of processor time that fills with its share and is used up by its processes. With nothing left
    it is stopped, for so long that stop and go together take a period.
    """

    def __init__(self, leader: int, begun_at: int | None, cores: float, now_s: float) -> None:
        """Begin with a full budget; what was used before does not count.

        Args:
            leader: The number of the session.
            begun_at: When its leader began, see `begun`; once that is not so any more, nobody is stopped.
            cores: Its share.
            now_s: The time.
        """
        self.leader = leader
        self.begun_at = begun_at
        self.cores = cores
        self.stopped_s = 0.0  # in all, without the present stop
        self._budget_s = cores * PERIOD_S
        self._then_s = self._looked_s = now_s
        self._wake_s = now_s
        self._pids = members(leader)
        self._used = self._read()
        self._held: set[int] = set()
        self._stopped_at_s: float | None = None

    def _read(self) -> dict[int, float]:
        found = {}
        for pid in self._pids:
            with contextlib.suppress(OSError):
                found[pid] = used_s(pid)
        return found

    def told_s(self, now_s: float) -> float:
        """Return for how long it was stopped until now."""
        return self.stopped_s + (now_s - self._stopped_at_s if self._stopped_at_s is not None else 0.0)

    def look(self, now_s: float) -> float:
        """Stop it or let it go on, if it is time; return when to look again."""
        if now_s < self._wake_s:
            return self._wake_s
        passed_s = now_s - self._then_s
        self._then_s = now_s
        self._budget_s += self.cores * passed_s
        if self._stopped_at_s is not None:
            self.go_on(now_s)
            self._pids = members(self.leader)
            self._looked_s = now_s
            self._budget_s = min(self._budget_s, self.cores * PERIOD_S)
            return self._soon(now_s)
        if now_s - self._looked_s >= PERIOD_S:
            self._pids = members(self.leader)
            self._looked_s = now_s
        used = self._read()
        spent_s = sum(one - self._used.get(pid, 0.0) for pid, one in used.items())
        self._used = used
        self._budget_s = min(self._budget_s - spent_s, self.cores * PERIOD_S)
        if self._budget_s > 0:
            return self._soon(now_s)
        if self.begun_at is None or begun(self.leader) != self.begun_at:
            self._wake_s = now_s + PERIOD_S
            return self._wake_s
        self._budget_s = max(self._budget_s, -self.cores * DEEPEST_DEBT_S)
        self._stop(now_s)
        rate = max(spent_s / passed_s if passed_s > 0 else 1.0, 1.05 * self.cores)
        self._wake_s = now_s + PERIOD_S * (1 - self.cores / rate) - self._budget_s / self.cores
        return self._wake_s

    def _soon(self, now_s: float) -> float:
        """Look again when the budget may be used up at the earliest."""
        spare = max((os.cpu_count() or 1) - self.cores, 0.1)
        self._wake_s = now_s + min(max(self._budget_s / spare, LEAST_S), PERIOD_S)
        return self._wake_s

    def _stop(self, now_s: float) -> None:
        self._stopped_at_s = now_s
        for _ in range(PASSES):
            new = set(members(self.leader)) - self._held - {os.getpid()}
            if not new:
                return
            self._held |= new
            for pid in new:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGSTOP)

    def go_on(self, now_s: float) -> None:
        """Let all go on that were stopped."""
        self.stopped_s = self.told_s(now_s)
        self._stopped_at_s = None
        let_go_on(self._held)
        self._held.clear()


class _Keepers:
    """All sessions that are kept to their share."""

    def __init__(self) -> None:
        self._by_name: dict[str, Keeper] = {}
        self._past_s: dict[str, float] = {}  # stopped, under orders that hold no more

    def look(self, now_s: float) -> float:
        return min((one.look(now_s) for one in self._by_name.values()), default=now_s + PERIOD_S)

    def obey(self, order: dict[str, Any], now_s: float) -> dict[str, float] | None:
        if order.get("tell"):
            told = dict(self._past_s)
            for name, one in self._by_name.items():
                told[name] = told.get(name, 0.0) + one.told_s(now_s)
            return told
        wanted = order["keep"]
        for name, one in list(self._by_name.items()):
            if name not in wanted or wanted[name][:2] != [one.leader, one.begun_at]:
                one.go_on(now_s)
                self._past_s[name] = self._past_s.get(name, 0.0) + one.stopped_s
                del self._by_name[name]
        for name, (leader, begun_at, cores) in wanted.items():
            if name in self._by_name:
                self._by_name[name].cores = cores
            else:
                self._by_name[name] = Keeper(leader, begun_at, cores, now_s)
        return None

    def end(self) -> None:
        for one in self._by_name.values():
            one.go_on(time.monotonic())


def main(words: list[str]) -> int:
    """Keep sessions to their shares until the input ends or the parent is not this one."""
    parent = int(words[0])
    asked: list[int] = []  # to end: a signal that raised could break off what lets the others go on
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: asked.append(number))
    with contextlib.suppress(OSError):  # whoever is to be stopped keeps the processors busy
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    keepers, rest = _Keepers(), b""
    try:
        while os.getppid() == parent and not asked:
            wait_s = keepers.look(time.monotonic()) - time.monotonic()
            if not select.select([0], [], [], max(0.0, min(wait_s, PERIOD_S)))[0]:
                continue
            read = os.read(0, 65536)
            if not read:
                break
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                told = keepers.obey(json.loads(line), time.monotonic())
                if told is not None:
                    os.write(1, json.dumps(told).encode("ascii") + b"\n")
    finally:
        keepers.end()
    return 1 if asked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
