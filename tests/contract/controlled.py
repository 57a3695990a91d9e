"""A controller over a simulated world, behind a real server: what its users and attackers meet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from headwater.bind.store import Store
from headwater.bind.tokens import Tokens
from headwater.bind.uploads import Uploads
from headwater.model.keep import to_json
from headwater.plan.jobs import Job, Observed
from headwater.ports import Positions
from headwater.serve.api import make_app, serve_forever
from headwater.serve.api_agents import router
from headwater.serve.controller import Controller
from headwater.serve.desk import Desk
from headwater.serve.sessions import Hello, Presence
from headwater.sim.sites import SimSite, SimSites
from headwater.sim.world import World
from tests.unit.test_deploy import SOURCE, project
from tests.unit.test_lanes import one, sink

Found = TypeVar("Found")
SITES = ("edge-1", "edge-2", "cloud")
CODE = b"def forward(rows):\n    return rows\n"
WAIT_S = 30.0  # a loaded machine is no reason to fail
WAIT = {"wait_s": WAIT_S}
SITES_FILE = """\
sites:
  edge-1: {kind: leaf, slots: 9}
  edge-2: {kind: middle, slots: 9}
  cloud: {kind: root, slots: 9}
links:
  - {between: [edge-1, edge-2], latency: 10 ms, bandwidth: 100 Mbit/s}
  - {between: [edge-2, cloud], latency: 10 ms, bandwidth: 100 Mbit/s}
"""
PROJECT = project(SOURCE, one("warm", "taxis"), one("busy", "warm", "aggregate"), sink("out", "busy"))
PLACED = {"taxis": "edge-1", "warm": "edge-1", "busy": "cloud", "out": "cloud"}


class ControlledSites(SimSites):
    """Simulated sites with what the controller asks beyond the port, by as many threads at once as it has callers."""

    def __init__(self, world: World, names: tuple[str, ...] = SITES) -> None:
        super().__init__(world, names)
        self._lock = threading.RLock()  # the simulated world knows one thread
        self.told: dict[str, dict[str, Any]] = {}
        self.revoked: list[str] = []
        self.observed = 0

    def observe(self) -> Observed:
        with self._lock:
            self.observed += 1
            return super().observe()

    def latest(self) -> Observed:
        with self._lock:
            return super().observe()

    def run(self, site: str, job: Job, epoch: int, seat: Positions, take_from: tuple[str, int] | None) -> None:
        with self._lock:
            super().run(site, job, epoch, seat, take_from)

    def _ask(self, name: str, act: Callable[[SimSite], Found]) -> Found:
        with self._lock:
            return super()._ask(name, act)

    def sites(self) -> tuple[Presence, ...]:
        return tuple(
            Presence(
                name,
                not site.is_silent,
                0.5,
                Hello("ab" * 16, "", f"127.0.0.1:{9000 + number}", f"http://10.0.0.{number}:8081/", "0.1.0"),
                self.told.get(name, {}),
            )
            for number, (name, site) in enumerate(self.by_name.items())
        )

    def brokers(self) -> Mapping[str, str]:
        return {one.site: one.hello.broker for one in self.sites() if one.hello is not None}

    def logs(self, site: str, name: str, lines: int) -> str:
        return "".join(f"{site} {name} {number}\n" for number in range(lines))

    def revoke(self, site: str) -> None:
        self.revoked.append(site)


class Controlled:
    """One controller with its server; `restart` makes it another one over the same state."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.options = folder, {"every_s": 0.2, **options}
        self.sites = ControlledSites(World())
        self.start()

    def start(self) -> None:
        self.store = Store(self.folder / "store.db")
        self.tokens = Tokens(self.store)
        self.token = self.tokens.ensure_operator(self.folder / "operator.token")
        self.uploads = Uploads(self.folder / "uploads")
        self.controller = Controller(self.store, self.sites, self.uploads, **self.options)
        self.desk = Desk(self.folder / "uploads", self.folder / "spool", self.store.held, self.store.keep_held)
        self.app = make_app(self.controller, router(self.desk), self.tokens)
        self.controller.start()
        self._stop, ready = threading.Event(), threading.Event()

        def told(port: int) -> None:
            self.port = port
            ready.set()

        arguments = (self.app, "127.0.0.1", 0, None, told, self._stop)
        self._thread = threading.Thread(target=serve_forever, args=arguments, daemon=True)
        self._thread.start()
        assert ready.wait(WAIT_S)
        self.client = self.client_of(self.token)

    def client_of(self, token: str | None) -> httpx.Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=WAIT_S, trust_env=False)

    def stop(self) -> None:
        self.client.close()
        self.desk.close()
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self.controller.close()
        self.store.close()

    def restart(self) -> None:
        self.stop()
        self.start()

    def agent_token(self, site: str) -> str:
        answer = self.client.post("/tokens", json={"site": site})
        assert answer.status_code == 201
        return str(answer.json()["token"])

    def upload(self, name: str = "jobs.py", content: bytes = CODE) -> str:
        answer = self.client.put(f"/uploads/{name}", content=content)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["hash"])

    def call(self, method: str, path: str, status: int, **more: Any) -> Any:
        answer = self.client.request(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json()


def form(name: str = "A", site: str = "edge-1", **more: str) -> dict[str, str]:
    return {
        "job_name": name,
        "spe_address": f"http://{site}:8081/",
        "source_broker": f"tcp://{site}:1883",
        "sink_broker": "tcp://cloud:1883",
        "source_topic": f"T-{name}",
        "sink_topic": "T-filter",
        "entry_class": "jobs:forward",
        "job_path": "jobs.py",
    } | more


def composition(*forms: Mapping[str, str]) -> str:
    lines = ["jobs:"]
    for each in forms:
        lines += (f"{'- ' if number == 0 else '  '}{key}: {value}" for number, (key, value) in enumerate(each.items()))
    return "\n".join(lines) + "\n"


def buckets(answer: Any) -> dict[str, str]:
    return {change["job"]: change["bucket"] for change in answer["plan"]["changes"]}


def pipeline_form(it: Controlled, **more: Any) -> dict[str, Any]:
    code = it.upload("city.zip")
    return {"project": to_json(PROJECT), "upload": code, "sites": SITES_FILE, "placement": PLACED, **more}


def settled(it: Controlled) -> None:
    assert until(lambda: it.call("GET", "/status", 200)["is_done"])


def until(is_so: Any) -> bool:
    """Ask again and again: the controller rings no bell for those outside."""
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.02)
    return True


@contextmanager
def running(folder: Path) -> Iterator[Controlled]:
    """A controller that has code for jobs; in its world nothing may have gone wrong at the end."""
    found = Controlled(folder)
    try:
        found.upload()
        yield found
    finally:
        found.stop()
    assert found.sites.world.faults == []
