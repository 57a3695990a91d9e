"""A runner without Spark: a process that stands for it, and a server that answers in its place when it is told to."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headwater.bind.adopted import started_at
from headwater.bind.process import MODULE
from headwater.bind.talk import Server, make_token
from headwater.plan.jobs import Job, Topic
from headwater.ports import Record

LEADER = "print(flush=True); import time; time.sleep(600)"
CODE = "0" * 64  # of all jobs
Answer = Callable[[Mapping[str, Any]], dict[str, Any]]


class Pretended:
    """A runner that an earlier agent has left; it listens, and says nothing before `speak`."""

    def __init__(self, state: Path, composition: str) -> None:
        """Start it in the state folder of an agent."""
        self.folder = state / "runners" / composition
        self.folder.mkdir(parents=True)
        (self.folder / "composition.json").write_text(json.dumps([composition, ""]))
        command = [sys.executable, "-c", LEADER, MODULE, str(self.folder / "spec.json")]
        self.leader = subprocess.Popen(command, start_new_session=True, cwd=self.folder, stdout=subprocess.PIPE)
        assert self.leader.stdout is not None
        self.leader.stdout.readline()  # for a moment after its start, the kernel does not tell its command line
        (self.folder / "runner.pid").write_text(f"{self.leader.pid} {started_at(self.leader.pid)}")
        self.asked: list[str] = []
        self.answer: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda _: {
            "ok": True,
            "parts": [],
            "positions": {},
        }
        self._server = Server(make_token(self.folder / "token"), self._answered)
        (self.folder / "runner.json").write_text(json.dumps({"port": self._server.port}))

    def _answered(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(request["do"])
        if request["do"] == "end":
            self.leader.kill()
        return self.answer(request)

    def speak(self) -> None:
        """Answer from now on, also those that wait already."""
        threading.Thread(target=self._server.serve, daemon=True).start()

    def hang_up(self) -> None:
        """Let those go that wait, and take no more."""
        self._server.close()

    @property
    def lives(self) -> bool:
        """Return whether its process runs."""
        return self.leader.poll() is None

    def end(self) -> None:
        """Leave nothing."""
        self._server.close()
        self.leader.kill()
        self.leader.communicate()


Leave = Callable[[str], Pretended]  # leaves the runner of a composition


def held(composition: str) -> Record:
    """The only job of a composition, which is to run."""
    return Record(Job(f"{composition}-1", composition, "a", (), Topic("a", "out"), CODE, "main:run"), 1, is_run=True)
