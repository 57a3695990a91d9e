"""Agents of a simulated world that talk with a real controller over real connections.

Each lives in threads of this process, or in a process of its own that can be killed: run as a script, it is one.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from headwater.bind.shelf import FileShelf
from headwater.errors import BindError
from headwater.plan.jobs import Job
from headwater.ports import Positions, Record, Running
from headwater.run.agent import Agent
from headwater.serve.agent import AgentLoop, instance
from headwater.serve.line import Line
from headwater.sim.engine import SimEngine
from headwater.sim.world import World
from tests.contract.served import WAIT_S, Served


class SharedWorld(World):
    """A world that several threads live in, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()


class Gates:
    """Where a test holds up an engine: acts wait while their gate is closed."""

    def __init__(self) -> None:
        self._gates: dict[str, threading.Event] = {}
        self.reached: dict[str, threading.Event] = {}
        self.passed: list[str] = []  # acts that came to a gate

    def close(self, act: str) -> None:
        self._gates[act], self.reached[act] = threading.Event(), threading.Event()

    def open(self, act: str) -> None:
        self._gates[act].set()

    def open_all(self) -> None:
        for one in self._gates.values():
            one.set()

    def pass_by(self, act: str) -> None:
        if act in self._gates:
            self.passed.append(act)
            self.reached[act].set()
            assert self._gates[act].wait(WAIT_S), f"nobody opens '{act}'"


class ThreadedEngine(SimEngine):
    """A simulated engine that several threads may use; its checkpoints may be padded."""

    def __init__(self, site: str, world: SharedWorld) -> None:
        super().__init__(site, world)
        self.shared = world
        self.gates = Gates()
        self.padding_bytes = 0
        self.trouble = ""  # why it starts nothing
        self.ensured: list[str] = []  # jobs, each time

    def ensure(self, record: Record) -> None:
        self.gates.pass_by(f"ensure {record.job.name}")
        with self.shared.lock:
            self.ensured.append(record.job.name)
            if self.trouble:
                raise BindError(self.trouble)
            super().ensure(record)

    def halt(self, record: Record, is_drain: bool) -> Positions:
        with self.shared.lock:
            return super().halt(record, is_drain)

    def states(self) -> Mapping[str, Running]:
        with self.shared.lock:
            return super().states()

    def pack(self, name: str) -> bytes:
        with self.shared.lock:
            return super().pack(name) + b" " * self.padding_bytes

    def unpack(self, name: str, checkpoint: bytes) -> None:
        with self.shared.lock:
            super().unpack(name, checkpoint)

    def remove(self, name: str) -> None:
        self.gates.pass_by(f"remove {name}")
        with self.shared.lock:
            super().remove(name)

    def warm(self, job: Job, brokers: Mapping[str, str]) -> None:
        self.gates.pass_by(f"warm {job.name}")

    def kill(self) -> None:
        with self.shared.lock:
            super().kill()


class Living:
    """An agent in threads; `stop` and `start` make it another one over the same site."""

    def __init__(self, plane: Served, site: str, engine: ThreadedEngine, folder: Path) -> None:
        self.plane, self.site, self.engine, self.folder = plane, site, engine, folder
        self.said: list[str] = []
        self.stop_event = threading.Event()
        self.start()

    def start(self) -> None:
        self.stop_event = threading.Event()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._live, args=(self.stop_event, ready), daemon=True)
        self._thread.start()
        assert ready.wait(WAIT_S)

    def _live(self, stop: threading.Event, ready: threading.Event) -> None:
        with instance(self.folder) as own:
            agent = Agent(
                self.site,
                self.engine,
                self.engine.shared.broker(self.site),
                FileShelf(self.folder / "shelf", self.said.append),
            )
            self.line = Line(self.plane.url, self.site, lambda: self.site, self.folder / "uploads")
            self.loop = AgentLoop(
                agent,
                self.line,
                own,
                lambda: f"{self.site}:9092",
                lambda: {"jobs": {}},
                lambda name, lines: f"{lines} of {name}",
                f"http://{self.site}/",
                "0.1.0",
                self.said.append,
            )
            ready.set()
            self.loop.run(stop)

    def stop(self) -> None:
        self.stop_event.set()
        self.engine.gates.open_all()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def living(plane: Served, names: str, folder: Path) -> Iterator[tuple[SharedWorld, dict[str, Living]]]:
    """Give a world and an agent for each letter."""
    world = SharedWorld()
    found = {one: Living(plane, one, ThreadedEngine(one, world), folder / one) for one in names}
    try:
        yield world, found
    finally:
        for one in found.values():
            one.stop()


def flow(world: SharedWorld, agents: Mapping[str, Living], seed: int = 1) -> None:
    """Let all records flow to where nobody takes them."""
    rng = Random(seed)
    with world.lock:
        while any([one.engine.advance(rng) for one in agents.values()]):
            pass


class Child:
    """An agent in a process of its own, with an engine that may be told to be slow."""

    def __init__(self, plane: Served, site: str, folder: Path, slow: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.looped", plane.url, site, str(folder), slow],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def wait_for(self, text: str) -> None:
        """Wait until it says something."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return
        raise AssertionError(f"it ended and never said '{text}'")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


class _TellingEngine(ThreadedEngine):
    def __init__(self, site: str, world: SharedWorld, say: Callable[[str], None], slow: str) -> None:
        super().__init__(site, world)
        self._say, self._slow = say, slow

    def ensure(self, record: Record) -> None:
        self._say(f"ensure {record.job.name}")
        if record.job.name == self._slow:
            threading.Event().wait()  # until it is killed
        super().ensure(record)


def _say(text: str) -> None:
    sys.stdout.write(json.dumps(text) + "\n")
    sys.stdout.flush()


def _main(url: str, site: str, folder: str, slow: str) -> None:
    world: Any = SharedWorld()
    with instance(Path(folder)) as own:
        engine = _TellingEngine(site, world, _say, slow)
        agent = Agent(site, engine, world.broker(site), FileShelf(Path(folder, "shelf"), _say))
        line = Line(url, site, lambda: site, Path(folder, "uploads"))
        AgentLoop(agent, line, own, lambda: f"{site}:9092", say=_say).run(threading.Event())


if __name__ == "__main__":
    _main(*sys.argv[1:])
