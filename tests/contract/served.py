"""A controller's desk behind a real server, for tests of how agents and controller talk.

Stands in for the guard with a few lines: a token is 'SITE' for that site's agent. What the desk keeps of the
sites lies in a file, as the store keeps it, so that a controller can be killed and begun again.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater.plan.jobs import Held, Job, Topic
from headwater.serve.api_agents import router
from headwater.serve.desk import Desk

WAIT_S = 20.0  # a loaded machine is no reason to fail


class Guard:
    """Says whose token came, as the real one does; may lose answers that are asked for again."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.lost: list[str] = []  # ends of paths: the next answer to each gets lost after the deed
        self.is_forgetful = False  # all orders that are not answered are given at each poll

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
            kind = "operator" if token == "operator" else "agent"
            scope["headwater"] = {"kind": kind, "site": token if kind == "agent" else None, "token_id": "1"}
            if self.is_forgetful:
                scope = {**scope, "query_string": re.sub(rb"after=\d+", b"after=0", scope["query_string"])}
        said: list[Any] = []

        async def keep(message: Any) -> None:
            said.append(message)

        await self.app(scope, receive, keep)
        end = next((one for one in self.lost if scope["path"].endswith(one) and _body(said) != b'{"orders":[]}'), None)
        if end is not None:
            self.lost.remove(end)
            await send({"type": "http.response.start", "status": 502, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        for message in said:
            await send(message)


def _body(said: list[Any]) -> bytes:
    return b"".join(one.get("body", b"") for one in said)


class Served:
    """One controller as its agents see it: a desk and a server. `stop` and `start` make it another one."""

    def __init__(self, folder: Path, tls: Mapping[str, str] | None = None, **options: Any) -> None:
        self.folder = folder
        self.tls: Mapping[str, Any] = tls or {}
        self.options = options
        self.kept: list[str] = []  # sites, in the order in which they were written
        self.port = 0
        self.agents: list[RawAgent] = []
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        uploads = self.folder / "uploads"
        uploads.mkdir(parents=True, exist_ok=True)
        self.desk = Desk(uploads, self.folder / "spool", self._load, self._keep, **self.options)
        self.known_at_first = self.desk.latest()  # nobody can have called yet
        app = FastAPI()
        app.include_router(router(self.desk))
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self.guard = Guard(app)
        config = uvicorn.Config(self.guard, log_config=None, lifespan="off", timeout_graceful_shutdown=2, **self.tls)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()
        until(lambda: self._server.started)

    def stop(self) -> None:
        self.desk.close()
        self._server.should_exit = True
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _load(self) -> dict[str, Any]:
        return {one.stem: json.loads(one.read_text()) for one in self.folder.glob("*.holdings")}

    def _keep(self, site: str, held: list[dict[str, Any]]) -> None:
        self.kept.append(site)
        (self.folder / f"{site}.holdings").write_text(json.dumps(held))


@contextlib.contextmanager
def served(folder: Path, **options: Any) -> Iterator[Served]:
    found = Served(folder, **options)
    try:
        yield found
    finally:
        found.stop()
        for one in found.agents:
            one.http.close()


class RawAgent:
    """An agent by hand: every call as it goes over the wire."""

    def __init__(self, plane: Served, site: str, instance: str = "", token: str | None = None) -> None:
        self.site, self.instance = site, instance
        self.session, self.number = "", 0
        headers = {"Authorization": f"Bearer {site if token is None else token}"}
        self.http = httpx.Client(base_url=f"{plane.url}/agents/{site}", headers=headers, trust_env=False, timeout=30.0)
        plane.agents.append(self)

    def hello(self, session: str, held: list[Any] | None = None, **more: Any) -> httpx.Response:
        self.session, self.number = session, 0
        body = {"session": session, "instance": self.instance, "broker": f"{self.site}:9092", "held": held or []}
        return self.http.post("/hello", json={**body, **more})

    def report(self, held: list[Any] | None = None, **more: Any) -> httpx.Response:
        self.number += 1
        body = {"session": self.session, "number": self.number, "held": held or [], "told": {}, **more}
        return self.http.post("/report", json=body)

    def orders(self, after: int = 0, wait_s: float = 10.0) -> httpx.Response:
        return self.http.get("/orders", params={"session": self.session, "after": after, "wait_s": wait_s})

    def next(self, after: int = 0) -> dict[str, Any]:
        """Return the next order."""
        found = self.orders(after).json()["orders"]
        assert len(found) == 1, found
        return dict(found[0])

    def answer(self, number: int, ok: bool = True, **more: Any) -> httpx.Response:
        return self.http.post("/answers", json={"session": self.session, "id": number, "ok": ok, **more})


class Later:
    """A call in a thread, to be waited for."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.took_s = 0.0
        self._act = act
        self._thread = threading.Thread(target=self._do, daemon=True)
        self._thread.start()

    def _do(self) -> None:
        begun_s = time.monotonic()
        try:
            self.value = self._act()
        except BaseException as error:  # noqa: BLE001 - told by `result`
            self.error = error
        self.took_s = time.monotonic() - begun_s

    def result(self, within_s: float = WAIT_S) -> Any:
        self._thread.join(within_s)
        assert not self._thread.is_alive(), "it still waits"
        if self.error is not None:
            raise self.error
        return self.value


def until(is_so: Callable[[], Any], within_s: float = WAIT_S) -> None:
    """Wait until something outside this process or thread has come about that tells nobody."""
    end_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end_s, "it did not come about"
        time.sleep(0.01)


def job(name: str, site: str, source: Topic, sink: Topic, **more: Any) -> Job:
    return Job(name, more.pop("composition", "city"), site, (source,), sink, "ab" * 32, "jobs:count", **more)


ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32
JOB = job("count", "a", Topic("a", "cars"), Topic("a", "hw.city.1"))
HELD = Held("a", JOB, 1, True, "running")


def present(
    plane: Served, site: str = "a", session: str = ONE, instance: str = "", held: list[Any] | None = None
) -> RawAgent:
    agent = RawAgent(plane, site, instance)
    assert agent.hello(session, held).status_code == 200
    return agent


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]
