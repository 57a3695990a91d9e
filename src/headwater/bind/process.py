"""How is a runner started, asked and ended?

A runner is a Python process with a JVM and perhaps more Python processes below it, all in one session of
the operating system. Ending it means ending all of them: a fragment must never have two writers, so a
runner is started again only when nothing of the old one is left. It ends with the process that started it, or,
detached, goes on and is adopted by the next one.

A runner may run as another user, to whom its folder then belongs: nothing of others may lie in there, and what this
process reads and writes there goes through `bind.handed_over`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from headwater.bind.adopted import Adopted, find_leader, started_at
from headwater.bind.box import Box
from headwater.bind.duty_process import let_go_on, members
from headwater.bind.handed_over import open_log, put, remove, take
from headwater.bind.java import HEAP_MB, Child
from headwater.bind.privilege import Identity, hand_over, identity
from headwater.bind.talk import Caller, make_token
from headwater.errors import BindError

__all__ = ["RunnerProcess", "RunnerSpec"]

LAST_LINES = 15
MOST_LOG_BYTES = 4 * 1024 * 1024  # of the end of a log
MODULE = "headwater.serve.runner"
PAUSE_S = 0.05


@dataclass(frozen=True)
class RunnerSpec:
    """What a runner is started with."""

    site: str
    folder: Path
    path: str  # of the user's project
    project: Path | None  # what was read of it, as JSON; None: it runs jobs by themselves
    jars: Sequence[Path]
    brokers: Mapping[str, str]  # addresses by site
    threads: int
    rate_rps: float  # that all its parts together are expected to take in
    heap_mb: int = HEAP_MB
    flags: Sequence[str] = ()  # more options of Java
    box: Box = field(default_factory=Box)
    is_detached: bool = False  # whether it goes on when this process ends
    user: str | None = None  # as whom it runs if we are root, see `bind.privilege`; None: as we do, with all our rights
    keyring: Path | None = None  # what it reaches brokers with, see `bind.keyring`; it must be able to read it


class RunnerProcess:
    """The runner of one site."""

    def __init__(self, spec: RunnerSpec) -> None:
        """Describe it; `start` starts it."""
        self.spec = spec
        self._child: Child | Adopted | None = None
        self._caller: Caller | None = None
        self._token = b""
        self.note: str | None = None  # why it has more rights than it should

    @property
    def pid(self) -> int | None:
        """Return the process id, while it runs."""
        return self._child.pid if self._child is not None and self.is_alive else None

    @property
    def is_alive(self) -> bool:
        """Return whether its first process runs."""
        return self._child is not None and self._child.exit_code is None

    @property
    def is_listening(self) -> bool:
        """Return whether it can be asked."""
        return self.is_alive and self._is_ready

    @property
    def is_left(self) -> bool:
        """Return whether a runner of this folder runs, whoever started it."""
        return self._running() is not None

    def start(self) -> None:
        """Start it; nothing of an earlier one may be left, and so it is ended first.

        Raises:
            BindError: HW4512 or HW4513, the user that it is to run as is not there, or cannot have the folder.
            OSError: the folder refuses.
        """
        self.kill()
        folder = self.spec.folder
        folder.mkdir(parents=True, exist_ok=True)
        self._end_leftover()
        token_file = folder / "token"
        for file in (self._ready_file, token_file):
            remove(file)
        self._token = make_token(token_file)
        put(self._spec_file, json.dumps(self._told(token_file)))
        rights = Identity()
        if self.spec.user is not None:
            rights = identity(self.spec.user, self._needs())
        self.note = rights.note
        with open_log(self.log) as log:
            if rights.user is not None:
                hand_over(folder, rights.user)
            command = [sys.executable, "-m", MODULE, str(self._spec_file)]
            command = [*self.spec.box.enter, *rights.words, *command]
            self._child = Child(command, folder, log, is_bound=not self.spec.is_detached)
        put(self._pid_file, f"{self._child.pid} {started_at(self._child.pid) or 0.0}")

    def adopt(self) -> bool:
        """Take over the detached runner of this folder; return whether one runs that knows its token.

        One that does not answer is left alone: `start` ends it.
        """
        if self.is_alive:
            return True
        found = self._running() if self.spec.is_detached else None
        if found is None:
            return False
        self._hang_up()
        with contextlib.suppress(OSError):  # whoever kept it to its share by stopping it may have been killed meanwhile
            let_go_on(members(found.pid))
        try:
            self._token = take(self.spec.folder / "token")
            self._call()
        except (BindError, OSError):
            return False
        self._child = found
        with contextlib.suppress(OSError):  # without its number, it is found by its command line
            put(self._pid_file, f"{found.pid} {started_at(found.pid) or 0.0}")
        return True

    def _needs(self) -> list[Path]:
        """Return what a user must be able to reach to run it."""
        needs = [self.spec.folder.parent, *self.spec.jars[:1]]
        if self.spec.project is not None:
            needs.append(self.spec.project)
        return needs + ([Path(self.spec.path)] if os.path.isabs(self.spec.path) else [])

    def _told(self, token_file: Path) -> dict[str, Any]:
        """Return what the runner reads."""
        return {
            "site": self.spec.site,
            "folder": str(self.spec.folder),
            "path": self.spec.path,
            "project": str(self.spec.project) if self.spec.project is not None else "",
            "jars": [str(one) for one in self.spec.jars],
            "brokers": dict(self.spec.brokers),
            "threads": self.spec.threads,
            "rate_rps": self.spec.rate_rps,
            "heap_mb": self.spec.heap_mb,
            "flags": list(self.spec.flags),
            "token": str(token_file),
            "listen": self.spec.box.manage,
            "keyring": str(self.spec.keyring) if self.spec.keyring is not None else None,
        }

    @property
    def log(self) -> Path:
        """Return the file that everything it prints goes to."""
        return self.spec.folder / "runner.log"

    def wait_ready(self, timeout_s: float) -> None:
        """Return as soon as it can be asked.

        Raises:
            BindError: HW4509, it ended or is not ready in time.
        """
        assert self._child is not None
        end_s = time.monotonic() + timeout_s
        while not self._is_ready:
            if self._child.wait(PAUSE_S):
                raise BindError(f"HW4509 the runner of site '{self.spec.site}' ended.{self.last_lines()}")
            if time.monotonic() > end_s:
                raise BindError(
                    f"HW4509 the runner of site '{self.spec.site}' is not ready after {timeout_s:g} s; the machine may "
                    f"be too busy.{self.last_lines()}"
                )

    def ask(self, request: Mapping[str, Any], timeout_s: float = 60.0) -> dict[str, Any]:
        """Return its answer.

        Raises:
            BindError: HW4501 to HW4503, it does not answer.
        """
        caller = self._caller or self._call()
        try:
            return caller.ask(request, timeout_s)
        except BindError:
            self._hang_up(caller)
            raise

    def end(self, timeout_s: float = 20.0) -> None:
        """Let it stop its queries and end; kill it if that takes longer."""
        if self.is_listening:
            with contextlib.suppress(BindError, OSError, ValueError):
                self.ask({"do": "end"}, timeout_s)
                assert self._child is not None
                self._child.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End everything that belongs to it, at once.

        Raises:
            BindError: HW4514, a detached one stays.
        """
        self._hang_up()
        if self._child is not None:
            _end_session(self._child.pid)
            self._child.wait(10.0)
            self._child = None
        elif self.spec.is_detached:
            self._end_leftover()  # one that was not adopted
        else:
            return
        remove(self._pid_file)

    def usage(self) -> tuple[int, float]:
        """Return memory in bytes and processor seconds of all its processes."""
        memory, used = 0, 0.0
        if self._child is not None:
            for one in _session(self._child.pid):
                with contextlib.suppress(psutil.Error):
                    memory += one.memory_info().rss
                    times = one.cpu_times()
                    used += times.user + times.system
        return memory, used

    def last_lines(self) -> str:
        """Return the end of what it printed, to be appended to a message."""
        lines = self.tail(LAST_LINES)
        return "" if lines is None else " Its last lines:" + "".join(f"\n    {line}" for line in lines)

    def tail(self, count: int) -> list[str] | None:
        """Return the last lines that it printed; None if there is no log."""
        with contextlib.suppress(OSError):
            return take(self.log, MOST_LOG_BYTES).decode("utf-8", "replace").splitlines()[-count:]
        return None

    @property
    def _ready_file(self) -> Path:
        return self.spec.folder / "runner.json"

    @property
    def _is_ready(self) -> bool:
        # It may be anything: a link to a name that is too long would raise if it were followed.
        return os.path.lexists(self._ready_file)

    @property
    def _spec_file(self) -> Path:
        return self.spec.folder / "spec.json"  # its path tells this runner from all others, in the command line

    @property
    def _pid_file(self) -> Path:
        return self.spec.folder / "runner.pid"  # its process id, and when it began

    def _call(self) -> Caller:
        try:
            port = json.loads(take(self._ready_file))["port"]
            if not isinstance(port, int) or not 0 < port < 65536:
                raise ValueError(port)
        # The last one is what JSON that is nested too deeply ends with.
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise BindError(
                f"HW4501 the runner of site '{self.spec.site}' does not answer: no port can be read in "
                f"'{self._ready_file}'."
            ) from error
        self._caller = Caller(port, self._token, self.spec.box.manage)
        return self._caller

    def _hang_up(self, only: Caller | None = None) -> None:
        """Let go of the connection; of `only` this one, for another thread may have made a new one meanwhile."""
        if only is None or self._caller is only:
            # First it is nobody's: two threads that closed it could close what has its number by then.
            caller, self._caller = self._caller, None
            if caller is not None:
                caller.close()

    def _end_leftover(self) -> None:
        """End what a crashed run left behind: only a session that really is that of a runner of this folder.

        Its first process may be gone, and others of it still write.
        """
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(take(self._pid_file).decode("ascii").split()[0])
            if pid > 1 and any(self._is_mine(one) for one in _session(pid)):
                _end_session(pid)
        # Whoever started a detached one may have been killed before it could write down the number.
        for is_last in (False, False, True) if self.spec.is_detached else ():
            found = find_leader(self._is_my_command)
            if found is None:
                return
            if is_last:
                raise BindError(
                    f"HW4514 the runner of site '{self.spec.site}' in '{self.spec.folder}', process {found.pid}, "
                    "cannot be ended, and two of them must never run; end it, then start again"
                )
            _end_session(found.pid)

    def _running(self) -> Adopted | None:
        """Return the runner of this folder that runs, whoever started it."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            pid, *began = take(self._pid_file).decode("ascii").split()
            found = started_at(int(pid))
            if found is not None and began == [str(found)] and self._is_my_command(psutil.Process(int(pid)).cmdline()):
                return Adopted(int(pid), found)
        return find_leader(self._is_my_command)

    def _is_my_command(self, command: Sequence[str]) -> bool:
        return MODULE in command and str(self._spec_file) in command

    def _is_mine(self, one: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            if str(self._spec_file) in one.cmdline():
                return True
            return bool(Path(one.cwd()).samefile(self.spec.folder))
        return False


def _session(leader: int) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(one.pid) == leader and one.status() != psutil.STATUS_ZOMBIE:
                found.append(one)
    return found


def _end_session(leader: int) -> None:
    """Kill a session's processes, and those that they make meanwhile, until none is left."""
    for _ in range(100):
        left = _session(leader)
        if not left:
            return
        for one in left:
            with contextlib.suppress(psutil.Error, OSError):
                one.send_signal(signal.SIGKILL)
        psutil.wait_procs(left, timeout=PAUSE_S)
