"""How is a process under test driven, and one lane measured from end to end?

A `Subject` is a process that answers lines of JSON (`bench.lanes_child`, `bench.flink_child`). `rates`
measures it at one rate after another: for each a query of its own between topics of its own, in a session
that is warm from the second on. The first rate at which it falls behind is the last one.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from bench.lanes_load import GROUPS, Load, Pace, measure, tree_usage
from bench.measure import ROOT
from headwater.bind.topics import ensure_topics, remove_topics

__all__ = ["Fallen", "Subject", "rates"]

ANSWER_S = 240.0
Row = dict[str, Any]


class Fallen(Exception):
    """The process under test ended or says nothing."""


class Subject:
    """A process that is asked for one thing after another."""

    def __init__(self, command: Sequence[str], job: Mapping[str, Any], folder: Path) -> None:
        """Start it, and wait until it is up."""
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                list(command), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._answers: queue.Queue[Row | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.ask({**job, "folder": str(folder)})

    def ask(self, request: Mapping[str, Any]) -> Row:
        """Return its answer.

        Raises:
            Fallen: there is none.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
        try:
            answer = self._answers.get(timeout=ANSWER_S)
        except queue.Empty:
            raise Fallen(f"no answer in {ANSWER_S:.0f} s") from None
        if answer is None:
            lines = self._log.read_text("utf-8", "replace").strip().splitlines() or ["nothing said"]
            raise Fallen(f"ended: {lines[-1]}")
        return answer

    def usage(self) -> tuple[float, int]:
        """Return processor seconds and bytes of memory of all its processes."""
        return tree_usage(self._process.pid)

    def end(self) -> None:
        """End it and everything that it started."""
        below: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for one in below:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(below, timeout=10.0)
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith('{"event"'):
                self._answers.put(json.loads(line))
        self._answers.put(None)


def rates(
    command: Sequence[str], job: Mapping[str, Any], paces: Sequence[Pace], folder: Path, is_grouped: bool
) -> Iterator[Row]:
    """Yield a row for each pace, one that was left out included; `job` names kind, lane and the broker's address."""
    names = {"case": job["kind"], "lane": job["lane"]}
    name = f"{job['kind']}-{job['lane']}".replace(",", "").replace(" ", "-")
    why = ""
    subject = None
    try:
        subject = Subject(command, job, folder / name)
        for pace in paces:
            row: Row = {**names, "rate_rps": pace.rate_rps}
            if why:
                yield {**row, "left_out": why}
                continue
            row |= _one(subject, job["address"], f"{name}-{pace.rate_rps:g}", pace, is_grouped)
            if row.get("falls_behind"):
                why = f"it falls behind at {pace.rate_rps:g} records/s"
            elif "left_out" in row:
                why = row["left_out"]
            yield row
    except Fallen as error:
        yield {**names, "rate_rps": 0.0, "left_out": str(error), "failed": True}
    finally:
        if subject is not None:
            subject.end()


def _one(subject: Subject, address: str, name: str, pace: Pace, is_grouped: bool) -> Row:
    topics = (f"{name}-in", f"{name}-out")
    ensure_topics(address, topics)
    try:
        answer = subject.ask({"do": "start", "input": topics[0], "output": topics[1]})
        if answer["event"] == "refused":
            return {"left_out": f"refused: {answer['why']}"}
        load = Load(address, topics[:1], address, topics[1:], GROUPS if is_grouped else None)
        row = measure(load, pace, subject.usage)
        stopped = subject.ask({"do": "stop"})
        if stopped["failure"]:
            return {"left_out": f"failed: {stopped['failure']}", "failed": True}
        return row | ({"notes": answer["notes"]} if answer.get("notes") else {})
    finally:
        remove_topics(address, topics)  # what is written for one measurement is not kept for the next
