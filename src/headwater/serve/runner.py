"""What does a runner do?

A runner is the process that runs a pipeline's fragments on one site: one Spark session, one query for each
part. It is driven over a socket (`bind.talk`): start a part, tell how all of them are, stop one, end. A
query that fails because of the outside is started again, after longer and longer pauses; one that fails
because of a record stops, or sets the record aside, as the project says. Run as
`python -m headwater.serve.runner SPEC`, with SPEC the file that `bind.process` wrote.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.author.graph import build
from headwater.author.load import Loaded, load
from headwater.bind.blame import SetAside
from headwater.bind.failure import Failure, failure_of
from headwater.bind.meter import Meter
from headwater.bind.query import Ground, Query
from headwater.bind.session import is_alive, start_session
from headwater.bind.sources import channel_rows, counted, union
from headwater.bind.talk import Server
from headwater.errors import HeadwaterError
from headwater.model.keep import from_json
from headwater.model.project import Project
from headwater.plan.deploy import Part, part_from

__all__ = ["Runner", "main"]

LOOK_S = 0.25  # between two looks at the queries
COUNT_S = 2.0  # between two looks at what a query counted
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)  # before a query is started again; the last one from then on
MOST_UNFOUND = 5  # failures on a record that cannot be found again, before the part stops
CALM_S = 60.0  # a query that ran this long starts again with the first pause


@dataclass
class _Held:
    """A part in the hands of the runner."""

    query: Query
    aside: SetAside
    state: str = (
        "starting"  # starting, running, searching (for a record), waiting (to be started again), stopped, failed
    )
    failure: Failure | None = None
    operator: str | None = None  # that the failure is laid to
    record: str | None = None  # likewise
    failures: int = 0
    again_s: float = 0.0  # when to start again
    begun_s: float = 0.0
    count_s: float = 0.0  # when to look at its counts again
    counts: dict[str, int] = field(default_factory=dict)  # by operator, of committed batches
    batch: int = -1
    pause_s: float | None = None  # from the start of the process or the stop to the first batch


class Runner:
    """The parts of one pipeline on one site."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        """Start Spark and load the project."""
        self.site: str = spec["site"]
        self._folder = Path(spec["folder"])
        brokers: dict[str, str] = spec["brokers"]
        self._ground = Ground(self.site, self._folder, brokers)
        self._project: Project = from_json(Path(spec["project"]).read_text("utf-8"))
        own = {"headwater.site": self.site, "headwater.broker": brokers[self.site]}
        self.spark = start_session(
            f"headwater {self._project.name} {self.site}",
            self._folder,
            [Path(one) for one in spec["jars"]],
            int(spec["threads"]),
            {**self._project.configuration, **own},
            int(spec["heap_mb"]),
            spec["flags"],
            float(spec["rate_rps"]),
        )
        self._loaded: Loaded = load(spec["path"], self.spark)
        self._meter = Meter(self.spark)
        self._held: dict[str, _Held] = {}
        self._lock = threading.RLock()
        self.ending = threading.Event()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is asked, and say how it went."""
        acts = {
            "start": lambda: self._start(part_from(request["part"])),
            "status": lambda: {"ok": True, "parts": self._status()},
            "stop": lambda: self._stop(str(request["id"])),
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
            with self._lock:
                for held in self._held.values():
                    try:
                        self._look(held)
                    except Exception as error:  # noqa: BLE001 - the trouble of one part must not end the others
                        traceback.print_exc()
                        held.failure = Failure("outside", f"it cannot be looked after: {error}")

    def _start(self, part: Part) -> dict[str, Any]:
        with self._lock:
            known = self._held.get(part.id)
            if known is not None and known.state not in {"stopped", "failed"}:
                return {"ok": True, "state": known.state}  # asked twice
            definition = self._project.by_name[part.steps[-1].of]
            if part.output == "sink":  # its options may name the broker of this site
                options = dict(self._loaded.by_name[definition.name].options).items()
                definition = replace(definition, options=tuple((str(key), str(value)) for key, value in options))

            def until(name: str, wanted: Any) -> Any:
                return self._rows(part, wanted, name)

            query = Query(part, self._ground, definition, lambda wanted: self._rows(part, wanted))
            held = self._held[part.id] = _Held(query, SetAside(query, until), begun_s=time.monotonic())
            self._begin(held)
            return {"ok": True, "state": held.state}

    def _begin(self, held: _Held) -> None:
        try:
            held.query.start(self.spark, held.aside.wanted())
            held.state = "starting"
        except Exception as error:  # noqa: BLE001 - whatever Spark raises; told as the part's failure
            self._failed(held, failure_of(error))

    def _rows(self, part: Part, wanted: Any, until: str | None = None) -> Any:
        """Return the rows of a part's output, or of another of its operators; each operator's are counted."""
        frames, of = {}, {}
        for one in part.inputs:
            schema = self._project.by_name[one.of].schema_json
            address = self._ground.brokers[one.broker]
            frames[one.operator] = channel_rows(self.spark, address, one.topic, schema, wanted)
            of[one.operator] = one.of
        for step in part.steps:
            reads = self._project.by_name[step.of].reads
            given = {name: union([frames[one] for one in step.reads if of[one] == name]) for name in reads}
            frames[step.name] = counted(build(self._loaded, step.of, given), step.name)
            of[step.name] = step.of
            if step.name == until:
                break
        return frames[until or part.steps[-1].name]

    def _look(self, held: _Held) -> None:
        query = held.query
        if held.state == "waiting" and time.monotonic() >= held.again_s:
            self._begin(held)
        if held.state == "starting" and query.is_taking(self.spark):
            held.state, held.pause_s = "running", time.monotonic() - held.begun_s
        running = query.running
        if running is None or held.state not in {"starting", "running"}:
            return
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
        progress = running.lastProgress
        if progress is not None and progress.batchId > held.batch:
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
        with self._lock:
            held = self._held.get(part_id)
            if held is None:
                return {"ok": False, "error": f"HW4511 no part '{part_id}' runs here"}
            held.query.stop()
            held.state = "stopped"
            return {"ok": True, "state": "stopped"}

    def _end(self) -> dict[str, Any]:
        with self._lock:
            for held in self._held.values():
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
