"""What does a runner do?

A runner is the process that runs fragments on one site: one Spark session, one query for each. It is driven over a
socket (`bind.talk`): start one, tell how all of them are, halt one, end. A query that fails because of the outside is
started again, after longer and longer pauses; one that fails because of a record stops, or sets the record aside, as
the project says. What becomes of a request: `serve.fragments`. Run as `python -m headwater.serve.runner SPEC`, with
SPEC the file that `bind.process` wrote.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.bind import keyring
from headwater.bind.blame import SetAside
from headwater.bind.failure import Failure, failure_of
from headwater.bind.meter import Meter
from headwater.bind.query import Query
from headwater.bind.rehearse import rehearse
from headwater.bind.session import is_alive, start_session
from headwater.bind.talk import Server
from headwater.errors import BindError, HeadwaterError
from headwater.serve.fragments import Fragments

__all__ = ["Runner", "main"]

LOOK_S = 0.1  # between two looks at the queries that are starting or are to be started again
CHECK_S = 0.5  # between two looks at one that runs: each is a word with the JVM
COUNT_S = 2.0  # between two looks at what a query counted
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)  # before a query is started again; the last one from then on
MOST_UNFOUND = 5  # failures on a record that cannot be found again, before the part stops
FLUSH_S, FLUSH_LOOK_S = 20.0, 0.01  # how long, and how often, the last rows of a stopped query are waited for
DRAIN_S = 120  # that draining may take
CALM_S = 60.0  # a query that ran this long starts again with the first pause


@dataclass
class _Held:
    """A query in the hands of the runner."""

    query: Query
    aside: SetAside
    spec: str = ""  # what it was started as, in the words of whoever asked: another one means another query
    own: Callable[[], dict[str, list[str]]] = dict  # by operator: the sources that only Spark knows
    state: str = (
        "starting"  # starting, running, searching (for a record), waiting (to be started again), stopped, failed
    )
    failure: Failure | None = None
    operator: str | None = None  # that the failure is laid to
    record: str | None = None  # likewise
    failures: int = 0
    again_s: float = 0.0  # when to start again
    begun_s: float = 0.0
    check_s: float = 0.0  # when to look whether it still runs
    count_s: float = 0.0  # when to look at its counts again
    counts: dict[str, int] = field(default_factory=dict)  # by operator, of committed batches
    batch: int = -1
    pause_s: float | None = None  # from the start of the process or the stop to the first batch
    lock: threading.RLock = field(default_factory=threading.RLock)  # one act at a time


class Runner:
    """The fragments of one pipeline or composition on one site."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Start Spark and load the project."""
        self.site: str = spec["site"]
        if spec.get("keyring"):
            keyring.use(Path(spec["keyring"]))
        folder = Path(spec["folder"])
        brokers: dict[str, str] = spec["brokers"]
        project = Path(spec["project"]) if spec["project"] else None
        self._fragments = Fragments(self.site, folder, brokers, project, spec["path"])
        known = self._fragments.project
        own = {"headwater.site": self.site, "headwater.broker": brokers[self.site]}
        self.spark = start_session(
            f"headwater {spec['path'] if known is None else known.name} {self.site}",
            folder,
            [Path(one) for one in spec["jars"]],
            int(spec["threads"]),
            {**({} if known is None else known.configuration), **own},
            int(spec["heap_mb"]),
            spec["flags"],
            float(spec["rate_rps"]),
        )
        self._fragments.use(self.spark)
        self._meter = Meter(self.spark)
        self._folder = folder
        self._name = f"{self.site}.{folder.name}"
        self._rehearsed: set[str] = set()  # kinds of queries whose like this session has run
        self._warmed: dict[tuple[str, str], _Held] = {}  # made before they are started
        self._held: dict[str, _Held] = {}
        self._lock = threading.RLock()  # while queries are made: names of views are everybody's
        self.ending = threading.Event()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is asked, and say how it went."""
        acts = {
            "start": lambda: self._start(request),
            "status": lambda: {"ok": True, "parts": self._status()},
            "stop": lambda: self._stop(str(request["id"])),
            "halt": lambda: self._halt(request),
            "warm": lambda: self._warm(request),
            "forget": lambda: self._forget(str(request["id"])),
            "end": self._end,
        }
        act = acts.get(str(request.get("do")))
        if act is None:
            return {"ok": False, "error": f"HW4510 a runner cannot do '{request.get('do')}'"}
        try:
            return act()
        except HeadwaterError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:  # noqa: BLE001 - a request must never end the runner
            return {"ok": False, "error": f"HW9017 {error}", "trace": traceback.format_exc()}

    def keep(self) -> None:
        """Look after the queries until the runner ends or its JVM is gone."""
        while not self.ending.wait(LOOK_S):
            if not is_alive(self.spark):
                return
            for held in list(self._held.values()):
                if not held.lock.acquire(blocking=False):
                    continue  # it is being started or stopped
                try:
                    self._look(held)
                except Exception as error:  # noqa: BLE001 - the trouble of one part must not end the others
                    traceback.print_exc()
                    held.failure = Failure("outside", f"it cannot be looked after: {error}")
                finally:
                    held.lock.release()

    def _start(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name, spec = _named(request), str(request.get("spec", ""))
        known = self._held.get(name)
        if known is not None:
            with known.lock:
                if known.spec == spec and known.state not in {"stopped", "failed"}:
                    return {"ok": True, "state": known.state}  # asked twice
                if known.query.running is not None and known.state != "stopped":
                    self._calm(known)
        held = self._warmed.pop((name, spec), None) or self._made(request, name, spec)
        self._fragments.tell(held.query, request)  # one that was made to be warm knows nothing of this yet
        held.begun_s = time.monotonic()
        with held.lock:
            self._held[name] = held
            self._begin(held)
        return {"ok": True, "state": held.state}

    def _warm(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Make ready what a start would have to make while records wait."""
        name, spec = _named(request), str(request.get("spec", ""))
        held = self._made(request, name, spec)
        part = held.query.part
        kind = "stateful" if part.is_stateful else "plain"
        with self._lock:
            held.query.prepare()
            is_known = any(one.query.lane == "real-time" for one in self._held.values() if one.query.attempts)
            if part.lane == "real-time" and kind not in self._rehearsed and not (is_known and kind == "plain"):
                folder = self._folder / "rehearsal"
                tag = f"{self._name}.{kind}"
                rehearse(self.spark, self._fragments.brokers[self.site], folder, tag, part.is_stateful)
            self._rehearsed.add(kind)
        self._warmed[name, spec] = held
        return {"ok": True}

    def _made(self, request: Mapping[str, Any], name: str, spec: str) -> _Held:
        with self._lock:
            made = self._fragments.make(request)
        before = self._held.get(name)
        if before is not None:
            made.query.attempts = before.query.attempts  # its producers have names of their own
        return _Held(made.query, SetAside(made.query, made.until), spec, made.own, begun_s=time.monotonic())

    def _begin(self, held: _Held) -> None:
        try:
            with self._lock:
                held.query.start(self.spark, held.aside.wanted())
            held.state = "starting"
        except Exception as error:  # noqa: BLE001 - whatever Spark raises; told as the part's failure
            self._failed(held, failure_of(error))

    def _look(self, held: _Held) -> None:
        query = held.query
        if held.state == "waiting" and time.monotonic() >= held.again_s:
            self._begin(held)
        if held.state == "starting" and query.is_taking(self.spark):
            held.state, held.pause_s = "running", time.monotonic() - held.begun_s
        running = query.running
        if running is None or held.state not in {"starting", "running"} or time.monotonic() < held.check_s:
            return
        held.check_s = time.monotonic() + (CHECK_S if held.state == "running" else 0.0)
        if not running.isActive:
            error = running.exception()
            if error is not None and query.refuses(error):
                self._begin(held)  # in micro-batches
                return
            self._failed(held, failure_of(error) if error is not None else Failure("outside", "it ended by itself"))
            return
        if time.monotonic() < held.count_s:
            return
        held.count_s = time.monotonic() + COUNT_S
        progress = query.progress_since(held.batch)
        if progress is not None:
            held.batch = progress.batchId
            for name, row in progress.observedMetrics.items():
                held.counts[name] = held.counts.get(name, 0) + int(row["rows"])
            if time.monotonic() - held.begun_s > CALM_S:
                held.failures = 0

    def _failed(self, held: _Held, failure: Failure) -> None:
        held.failure = failure
        held.failures += 1
        if failure.blame == "record":
            self._blamed(held)
        elif failure.blame == "lost":
            held.state = "failed"
        else:
            held.state = "waiting"
            held.again_s = time.monotonic() + PAUSES_S[min(held.failures, len(PAUSES_S)) - 1]
        held.begun_s = time.monotonic()

    def _blamed(self, held: _Held) -> None:
        """Find the record that a part fails on; set it aside or stop, as the project says."""
        held.state = "searching"
        found = held.aside.find(self.spark)
        if found is None:  # it does not fail twice, so it may pass
            held.state, held.again_s = "waiting", time.monotonic() + PAUSES_S[0]
            if held.failures >= MOST_UNFOUND:
                held.state = "failed"
            return
        held.operator, held.record, held.failure = found.operator, found.place, found.failure
        if held.query.part.on_error == "stop":
            held.state = "failed"
            return
        held.aside.put(found)
        held.state, held.again_s = "waiting", time.monotonic()

    def _stop(self, part_id: str) -> dict[str, Any]:
        held = self._held.get(part_id)
        if held is None:
            return {"ok": False, "error": f"HW4511 no part '{part_id}' runs here"}
        with held.lock:
            held.query.stop()
            held.state = "stopped"
        return {"ok": True, "state": "stopped"}

    def _halt(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Stop a query for good, drained if that is asked for; where its sources go on is told then."""
        name = _named(request)
        held, spec = self._held.get(name), str(request.get("spec", ""))
        is_drain = bool(request.get("drain"))
        if held is None and not is_drain:
            return {"ok": True, "positions": {}}
        if held is None or (held.spec != spec and held.state == "stopped"):
            held = self._made(request, name, spec)
        with held.lock:
            self._calm(held)
            self._held[name] = held
            if not is_drain:
                return {"ok": True, "positions": {}}
            try:
                found = held.query.drain(self.spark, held.aside.wanted(), int(request.get("patience_s", DRAIN_S)))
            finally:
                self._calm(held)
        with self._lock:
            return {"ok": True, "positions": found, "own": held.own()}

    def _calm(self, held: _Held) -> None:
        """Stop a query, and return when all that it gave is written: another writer may begin then."""
        query = held.query
        query.stop()
        held.state = "stopped"
        end_s = time.monotonic() + FLUSH_S
        while self._meter.waiting_bytes(query.client) > 0:
            if time.monotonic() > end_s:
                raise BindError(
                    f"HW4622 what '{query.part.id}' wrote last is not taken by its broker within {FLUSH_S:g} s; it is "
                    "stopped, and nobody else may write there yet. Try again when the broker answers."
                )
            self.ending.wait(FLUSH_LOOK_S)
        query.remember()

    def _forget(self, name: str) -> dict[str, Any]:
        held = self._held.get(name)
        if held is not None:
            with held.lock:
                held.query.stop()
                held.state = "stopped"
                self._held.pop(name, None)
        return {"ok": True}

    def _end(self) -> dict[str, Any]:
        for held in list(self._held.values()):
            with held.lock:
                held.query.stop()
                held.state = "stopped"
        self.ending.set()
        return {"ok": True}

    def _status(self) -> list[dict[str, Any]]:
        readings = self._meter.read({held.query.client: held.query.checkpoint for held in list(self._held.values())})
        return [self._told(held, readings[held.query.client]) for held in list(self._held.values())]

    def _told(self, held: _Held, reading: Any) -> dict[str, Any]:
        query, failure = held.query, held.failure
        output = query.output
        return {
            "id": query.part.id,
            "state": held.state,
            "lane": query.lane,
            "spec": held.spec,
            "query": "" if query.running is None else str(query.running.runId),
            "taken": reading.taken,
            "given": held.counts.get(query.part.steps[-1].name, 0) if output is None else reading.given,
            "lag": reading.lag,
            "attempts": query.attempts,
            "left_out": query.left_out,
            "set_aside": held.aside.count,
            "pause_s": held.pause_s,
            "counts": held.counts,
            "notes": list(query.notes),
            "output": None if output is None else {"address": output[0], "topic": output[1]},
            "failure": None
            if failure is None
            else {
                "blame": failure.blame,
                "text": failure.text,
                "trace": failure.trace,
                "operator": held.operator,
                "record": held.record,
                "times": held.failures,
            },
        }


def _named(request: Mapping[str, Any]) -> str:
    return str(request["job"]["name"] if "job" in request else request["part"]["id"])


def main(arguments: list[str]) -> int:
    """Run until told to end, or until Spark is gone (then 75: try again)."""
    spec = json.loads(Path(arguments[0]).read_text("utf-8"))
    folder = Path(spec["folder"])
    runner = Runner(spec)
    server = Server(Path(spec["token"]).read_bytes(), runner.answer, spec["listen"])
    threading.Thread(target=server.serve, daemon=True).start()
    ready = folder / "runner.json"
    passing = ready.with_suffix(".new")
    passing.write_text(json.dumps({"port": server.port, "pid": os.getpid()}), "utf-8")
    passing.replace(ready)
    runner.keep()
    sys.stdout.flush()
    os._exit(0 if runner.ending.is_set() else 75)  # threads of a JVM that is gone would hold the process


if __name__ == "__main__":
    main(sys.argv[1:])
