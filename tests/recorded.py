"""A controller from outside: a small HTTP server that speaks the REST API with answers that a test wrote down.

What a command asks is kept in `asked`. Nothing answers without the token, as at a real one. The plans in it are
real ones: of a composition as in listing 1.1 of paper 002, and as it is changed in listing 1.2.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from headwater.plan.jobs import Held, Job, Observed, Topic, held_object, job_object
from headwater.run.coordinator import make_plan

TOKEN = "hw_o" + "t" * 43
SITES = frozenset({"edge-1", "edge-2", "hub", "cloud"})


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes

    @property
    def object(self) -> Any:
        return json.loads(self.body)


Answer = Any  # an object; (status, object); or a function of the request that gives either


@dataclass
class Recorded:
    """Answers by 'METHOD /path'; of several in a list, each is given once and the last one for ever."""

    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, method: str, path: str = "") -> list[Asked]:
        """Return what was asked so far by one method."""
        return [one for one in self.asked if one.method == method and one.path.startswith(path)]

    def answer(self, asked: Asked) -> tuple[int, Any]:
        with self._lock:
            self.asked.append(asked)
            found = self.answers.get(f"{asked.method} {asked.path}")
            if isinstance(found, list):
                found = found.pop(0) if len(found) > 1 else found[0]
        if callable(found):
            found = found(asked)
        if found is None:
            text = f"there is no '{asked.path}'"
            return 404, {"error": {"code": "HW1830", "text": text, "mistakes": [{"code": "HW1830", "text": text}]}}
        return found if isinstance(found, tuple) else (200, found)


@contextmanager
def recorded(state: Path, answers: dict[str, Answer]) -> Iterator[Recorded]:
    """Serve answers on this machine, and tell of it in a state folder as a controller does."""
    controller = Recorded(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for head and body

        def do(self) -> None:
            parts = urlsplit(self.path)
            status: int
            said: Any
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, said = 401, {"error": {"code": "HW4935", "text": "a token is needed", "mistakes": []}}
            else:
                asked = Asked(self.command, unquote(parts.path), dict(parse_qsl(parts.query)), body)
                status, said = controller.answer(asked)
            content = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do

        def log_message(self, format: str, *values: object) -> None:
            del format, values

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        controller.url = f"http://127.0.0.1:{server.server_port}"
        state.mkdir(parents=True, exist_ok=True)
        (state / "operator.token").write_text(TOKEN + "\n")
        (state / "controller.json").write_text(json.dumps({"url": controller.url, "pid": 1}))
        yield controller
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def job(name: str, site: str, reads: str, writes: str) -> Job:
    source, sink = (Topic(*reversed(one.split("@"))) for one in (reads, writes))
    return Job(name, "town", site, (source,), sink, "c" * 64, "town:run", is_stateful=False)


BEFORE = {
    one.name: one
    for one in (
        job("A", "edge-1", "T-1@edge-1", "T-C@hub"),
        job("B", "edge-2", "T-2@edge-2", "T-C@hub"),
        job("C", "hub", "T-C@hub", "T-D@cloud"),
        job("D", "hub", "T-D@cloud", "T-E@cloud"),
    )
}
AFTER = {
    one.name: one
    for one in (
        BEFORE["A"],
        job("C", "hub", "T-C@hub", "T-C2@hub"),
        job("C2", "hub", "T-C2@hub", "T-D@cloud"),
        job("D", "cloud", "T-D@cloud", "T-E@cloud"),
    )
}


def held(jobs: Mapping[str, Job], state: str = "running") -> Observed:
    return Observed(tuple(Held(one.site, one, 1, True, state) for one in jobs.values()), SITES)  # type: ignore[arg-type]


def plan_object(wanted: Mapping[str, Job], observed: Observed) -> dict[str, Any]:
    """Return a plan as the API tells it."""
    plan = make_plan(wanted, observed)
    changes = [
        {
            "bucket": one.bucket,
            "job": one.job,
            "site": one.site,
            "from_site": one.before.site if one.bucket == "move" and one.before is not None else None,
            "because": one.because,
            "pause_s": one.pause_s,
        }
        for one in plan.changes.of
    ]
    keys = ("act", "site", "job", "because", "after")
    steps = [{key: getattr(one, key) for key in keys} for one in plan.steps]
    return {"basis": plan.basis, "changes": changes, "steps": steps}


def jobs_object(jobs: Mapping[str, Job], state: str = "running", text: str = "") -> dict[str, Any]:
    return {
        "jobs": [
            {
                "name": one.name,
                "wanted": job_object(one),
                "observed": {**held_object(Held(one.site, one, 1, True, state, text=text)), "told": {}},  # type: ignore[arg-type]
            }
            for one in jobs.values()
        ]
    }


TO_DO, NOTHING = plan_object(AFTER, held(BEFORE)), plan_object(AFTER, held(AFTER))
