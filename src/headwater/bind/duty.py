"""How are runners limited where control groups may not be written?

A program beside us (`bind.duty_process`) stops and continues the processes of a runner so that they use no more than
their cores. That is coarser than what the kernel does: it works within some percent, ten times a second, it ends with
the process that asked for it, and memory is not limited. Nobody stays stopped, whoever of the two is killed; where both
are at once, nobody does from when the next process takes the runner over.

Weights become nice values where those may be lowered again. Whoever may only raise them leaves them alone: weights
follow what is decided every second, and each runner would end at the highest value for good.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping

from headwater.bind import duty_process
from headwater.bind.duty_process import begun, let_go_on, sessions
from headwater.bind.limits import Limit, Tally, Usage, memory_bytes, used_ns, waited_ns

__all__ = ["DutyCycle", "SignalHands", "least_nice", "nice_values"]

STEP = 1.25  # of the processor that one nice value more or less means, as Linux has it
LEAST_NICE, MOST_NICE = -20, 19
PATIENCE_S = 2.0
MOST_STARTS = 5  # of the program, should something end it again and again
FRESH_S = 0.5  # for so long, a look at all processes does for runners that are known: theirs inherit nice values
Session = tuple[int, int | None]  # its leader, and when that began


def least_nice() -> int:
    """Return the lowest nice value that this process may give to one that has the highest.

    It is tried, by a thread that ends then: rights of root count here or do not, as where users are numbered anew.
    """
    found = [MOST_NICE]

    def lower() -> None:
        number = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, number, MOST_NICE)
        for nice in range(LEAST_NICE, MOST_NICE):
            with contextlib.suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, number, nice)
                found[0] = nice
                return

    trying = threading.Thread(target=lower, name="nice")
    trying.start()
    trying.join()
    return found[0]


def nice_values(weights: Mapping[str, float], least: int) -> dict[str, int]:
    """Return the nice value by which each gets the processor by its weight; `least` is the lowest that may be given.

    Without the right to go before others, the heaviest has the usual value and the others a higher one.

    >>> nice_values({"a": 1.0, "b": 1.25**3}, least=-20), nice_values({"a": 1.0, "b": 1.25**3}, least=0)
    ({'a': 0, 'b': -3}, {'a': 3, 'b': 0})
    """
    usual = 1.0 if least < 0 else max(weights.values(), default=1.0)
    steps = {name: round(math.log(usual / weight) / math.log(STEP)) for name, weight in weights.items()}
    return {name: min(max(one, least), MOST_NICE) for name, one in steps.items()}


class DutyCycle:
    """The program that stops and continues; it runs while there is something to keep."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Describe it; the first order starts it."""
        self._say = say
        self._lock = threading.RLock()
        self._wanted: dict[str, tuple[int, int | None, float]] = {}
        self._touched: set[Session] = set()  # that the program may have stopped, also by orders that hold no more
        self._process: subprocess.Popen[bytes] | None = None
        self._past_s: dict[str, float] = {}  # stopped, by programs that ended
        self._last_s: dict[str, float] = {}  # stopped, as this one said last
        self._starts = 0
        self._is_closed = self._has_given_up = False

    def keep(self, wanted: Mapping[str, tuple[int, int | None, float]]) -> None:
        """Keep these sessions and no others: by name, the leader, when it began, and how many cores."""
        with self._lock:
            if dict(wanted) == self._wanted and (self._process is not None or not wanted):
                return
            self._wanted = dict(wanted)
            new = {(leader, begun_at) for leader, begun_at, _ in wanted.values()} - self._touched
            if new:
                found = sessions()
                self._touched = {one for one in self._touched if one[0] in found} | new
            if self._process is None and wanted and not self._is_closed:
                self._start()
            self._order({"keep": self._wanted})

    def _start(self) -> None:
        if self._starts >= MOST_STARTS:
            if not self._has_given_up:
                self._has_given_up = True
                self._say(
                    f"the program that keeps runners to their cores was ended {MOST_STARTS} times and is not started "
                    f"again; runners use what they can get. Find what ends it, and start the agent again"
                )
            return
        self._starts += 1
        if self._starts == 1:
            atexit.register(self.close)
        words = [sys.executable, "-I", "-S", str(duty_process.__file__), str(os.getpid())]
        # Of a session of its own: what ends all of ours at once must leave one who lets the others go on.
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", start_new_session=True
        )
        threading.Thread(target=self._watch, args=(self._process,), name="duty cycle", daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Let all go on if the program is ended by others, and start it again."""
        process.wait()
        with self._lock:
            if self._process is not process:
                return
            self._forget()
            self._release()
            if not self._is_closed:
                if self._starts < MOST_STARTS:
                    self._say(
                        "the program that keeps runners to their cores was ended by something else; it starts again"
                    )
                if self._wanted:
                    self._start()
                    self._order({"keep": self._wanted})

    def _release(self) -> None:
        """Let all go on that the program may have stopped: it may have ended before it read the last order."""
        found = sessions()
        for session in self._touched:
            let_go_on(_pids(session, found))

    def _order(self, order: Mapping[str, object]) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):  # it has ended, and `_watch` sees to that
                self._process.stdin.write(json.dumps(order).encode("ascii") + b"\n")
                self._process.stdin.flush()

    def stopped_s(self) -> Mapping[str, float]:
        """Return for how long each was stopped since it is kept."""
        with self._lock:
            self._order({"tell": True})
            if self._process is not None and self._process.stdout is not None:
                with contextlib.suppress(OSError, ValueError):
                    if select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
                        self._last_s = json.loads(self._process.stdout.readline())
            names = {*self._past_s, *self._last_s}
            return {name: self._past_s.get(name, 0.0) + self._last_s.get(name, 0.0) for name in names}

    def _forget(self) -> None:
        process, self._process = self._process, None
        for name, stopped_s in self._last_s.items():
            self._past_s[name] = self._past_s.get(name, 0.0) + stopped_s
        self._last_s = {}
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()

    def close(self) -> None:
        """End the program; everybody goes on, without a limit."""
        with self._lock:
            self._is_closed = True
            process = self._process
            self._forget()
        atexit.unregister(self.close)
        if process is not None:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with self._lock:
            self._release()


def _pids(session: Session, found: Mapping[int, list[int]]) -> list[int]:
    """Return the processes of a session; none if its number is another's by now."""
    leader, begun_at = session
    return found.get(leader, []) if begun(leader) in {begun_at, None} else []


def _nice_of(pid: int) -> int:
    """Return the nice value of a process: an earlier process of this site may have set it, and be gone."""
    with contextlib.suppress(ProcessLookupError):
        return os.getpriority(os.PRIO_PROCESS, pid)
    return 0


class SignalHands:
    """Limits runners by nice values and by stopping them; see `bind.limiter.Limiter` for what the verbs mean."""

    def __init__(self, say: Callable[[str], None], because: str = "") -> None:
        """Say so, and because of what, as it is coarser than what the kernel can do."""
        self._least = least_nice()
        self.weighs = self._least <= 0
        self.how = f"{'nice and ' if self.weighs else ''}duty cycle: control groups may not be written here"
        self._duty = DutyCycle(say)
        self._sessions: dict[str, Session] = {}
        self._limits: dict[str, Limit] = {}
        self._nice: dict[int, int] = {}  # by process
        self._tallies: dict[str, tuple[Tally, Tally]] = {}
        self._weighed_s = -math.inf
        lacks = "" if self.weighs else ", and weights are not kept: only root may lower a nice value"
        say(f"runners are limited by {self.how}; memory is not limited{lacks}{because and f'. {because}'}")

    def take(self, runner: str, leader: int) -> None:
        """Let a session be this runner's."""
        session = known = self._sessions.get(runner)
        if session is None or session[0] != leader or session[1] is None:
            session = leader, begun(leader)
        if session != known or time.monotonic() - self._weighed_s >= FRESH_S:
            self._sessions[runner] = session
            self._limits.setdefault(runner, Limit(None))
            self._apply()

    def set(self, limits: Mapping[str, Limit]) -> None:
        """Set the limits of these runners."""
        self._limits.update(limits)
        self._apply()

    def _apply(self) -> None:
        self._duty.keep(
            {
                name: (*self._sessions[name], limit.cores)
                for name, limit in self._limits.items()
                if limit.cores is not None and name in self._sessions
            }
        )
        if self.weighs:
            self._weigh(self._pids())
        self._weighed_s = time.monotonic()

    def _pids(self) -> dict[str, list[int]]:
        """Return the processes of every runner, by one look at all that there are."""
        found = sessions()
        return {name: _pids(session, found) for name, session in self._sessions.items()}

    def _weigh(self, pids: Mapping[str, Collection[int]]) -> None:
        """Give every process its nice value; one that refuses it, as a runner may arrange, keeps what it has."""
        wanted = nice_values({name: one.weight for name, one in self._limits.items()}, self._least)
        now: dict[int, int] = {}
        for name, own in pids.items():
            for pid in own:
                before = self._nice[pid] if pid in self._nice else _nice_of(pid)
                is_so = before == wanted[name] or self._set_nice(pid, wanted[name])
                now[pid] = wanted[name] if is_so else before
        self._nice = now

    @staticmethod
    def _set_nice(pid: int, nice: int) -> bool:
        """Set it for every thread, because Linux has one for each; return whether that was allowed."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(ProcessLookupError):
                    try:
                        os.setpriority(os.PRIO_PROCESS, int(thread), nice)
                    except PermissionError:
                        return False
        return True

    def limits(self) -> Mapping[str, Limit]:
        """Return what was set here; the kernel keeps nothing of it but nice values."""
        return dict(self._limits)

    def usage(self) -> Mapping[str, Usage]:
        """Return what each runner has used."""
        stopped = self._duty.stopped_s()
        found = {}
        for name, pids in self._pids().items():
            used, waited = self._tallies.setdefault(name, (Tally(), Tally()))
            found[name] = Usage(
                used.add(used_ns(pids)) / 1e9,
                stopped.get(name, 0.0),
                waited.add(waited_ns(pids)) / 1e9,
                memory_bytes(pids),
            )
        return found

    def drop(self, runner: str) -> None:
        """Lift the limits of a runner and forget it."""
        if runner in self._sessions:
            self.set({runner: Limit(None)})
        for kept in (self._sessions, self._limits, self._tallies):
            kept.pop(runner, None)

    def sweep(self, leaders: Mapping[str, int]) -> None:
        """Give runners that nobody limits the usual nice value again, which an earlier process may have changed."""
        for runner, leader in leaders.items():
            if runner not in self._sessions:
                self.take(runner, leader)
                self.drop(runner)

    def drop_dead(self, alive: Collection[str]) -> None:
        """Forget the runners that are not among these and have no process."""
        pids = self._pids()
        for runner in [one for one in self._limits if one not in alive and not pids.get(one)]:
            self.drop(runner)

    def close(self) -> None:
        """End the program that stops and continues; nice values stay."""
        self._duty.close()
