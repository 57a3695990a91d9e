"""How is a runner started, asked and ended?

A runner is a Python process with a JVM and perhaps more Python processes below it, all in one session of
the operating system. Ending it means ending all of them: a fragment must never have two writers, so a
runner is started again only when nothing of the old one is left.
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

from headwater.bind.box import Box
from headwater.bind.java import Child
from headwater.bind.talk import Caller, make_token
from headwater.errors import BindError

__all__ = ["RunnerProcess", "RunnerSpec"]

LAST_LINES = 15
PAUSE_S = 0.05


@dataclass(frozen=True)
class RunnerSpec:
    """What a runner is started with."""

    site: str
    folder: Path
    path: str  # of the user's project
    project: Path  # what was read of it, as JSON
    jars: Sequence[Path]
    brokers: Mapping[str, str]  # addresses by site
    threads: int
    rate_rps: float  # that all its parts together are expected to take in
    heap_mb: int = 512
    flags: Sequence[str] = ()  # more options of Java
    box: Box = field(default_factory=Box)


class RunnerProcess:
    """The runner of one site."""

    def __init__(self, spec: RunnerSpec) -> None:
        """Describe it; `start` starts it."""
        self.spec = spec
        self._child: Child | None = None
        self._caller: Caller | None = None
        self._token = b""

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
        return self.is_alive and self._ready_file.exists()

    def start(self) -> None:
        """Start it; nothing of an earlier one may be left, and so it is ended first."""
        self.kill()
        folder = self.spec.folder
        folder.mkdir(parents=True, exist_ok=True)
        self._end_leftover()
        self._ready_file.unlink(missing_ok=True)
        token_file = folder / "token"
        self._token = make_token(token_file)
        spec = {
            "site": self.spec.site,
            "folder": str(folder),
            "path": self.spec.path,
            "project": str(self.spec.project),
            "jars": [str(one) for one in self.spec.jars],
            "brokers": dict(self.spec.brokers),
            "threads": self.spec.threads,
            "rate_rps": self.spec.rate_rps,
            "heap_mb": self.spec.heap_mb,
            "flags": list(self.spec.flags),
            "token": str(token_file),
            "listen": self.spec.box.manage,
        }
        spec_file = folder / "spec.json"
        spec_file.write_text(json.dumps(spec), "utf-8")
        with self.log.open("ab") as output:
            command = [sys.executable, "-m", "headwater.serve.runner", str(spec_file)]
            self._child = Child([*self.spec.box.enter, *command], folder, output)
        self._pid_file.write_text(str(self._child.pid), "ascii")

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
        while not self._ready_file.exists():
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
        if self._caller is None:
            port = int(json.loads(self._ready_file.read_text("utf-8"))["port"])
            self._caller = Caller(port, self._token, self.spec.box.manage)
        try:
            return self._caller.ask(request, timeout_s)
        except BindError:
            self._hang_up()
            raise

    def end(self, timeout_s: float = 20.0) -> None:
        """Let it stop its queries and end; kill it if that takes longer."""
        if self.is_alive and self._ready_file.exists():
            with contextlib.suppress(BindError, OSError, ValueError):
                self.ask({"do": "end"}, timeout_s)
                assert self._child is not None
                self._child.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End everything that belongs to it, at once."""
        self._hang_up()
        if self._child is None:
            return
        _end_session(self._child.pid)
        self._child.wait(10.0)
        self._child = None
        self._pid_file.unlink(missing_ok=True)

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
        with contextlib.suppress(OSError):
            lines = self.log.read_text("utf-8", "replace").splitlines()[-LAST_LINES:]
            return " Its last lines:" + "".join(f"\n    {line}" for line in lines)
        return ""

    @property
    def _ready_file(self) -> Path:
        return self.spec.folder / "runner.json"

    @property
    def _pid_file(self) -> Path:
        return self.spec.folder / "runner.pid"

    def _hang_up(self) -> None:
        if self._caller is not None:
            self._caller.close()
            self._caller = None

    def _end_leftover(self) -> None:
        """End what a crashed run left behind: only a session that really is that of a runner of this folder.

        Its first process may be gone, and others of it still write.
        """
        with contextlib.suppress(OSError, ValueError):
            pid = int(self._pid_file.read_text("ascii"))
            if pid > 1 and any(self._is_mine(one) for one in _session(pid)):
                _end_session(pid)

    def _is_mine(self, one: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            if str(self.spec.folder / "spec.json") in one.cmdline():
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
