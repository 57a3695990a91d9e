"""A data plane under test: `headwater run` as a user starts it, fed and read from outside.

Knows nothing of the inside: it starts the command, reads its events, writes to and reads from the brokers
that `ready` names, and kills the processes that `progress` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Message, Producer

from headwater.bind.topics import tail
from headwater.errors import BindError

Record = tuple[str, bytes | None, bytes]  # topic, key, value
READY_S = 240.0
SETTLED_S = 90.0


class Plane:
    """One run of `headwater run --json`."""

    def __init__(self, project: Path, sites: Path, state: Path, *options: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._producers: dict[str, Producer] = {}
        command = [sys.executable, "-m", "headwater.serve.main", "run", str(project), "--sites", str(sites)]
        self.log = state.with_suffix(".log")
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*command, "--state", str(state), "--json", *options], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            with self._changed:
                self.events.append(event)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait(self, wanted: Callable[[dict[str, Any]], bool], timeout_s: float, since: int = 0) -> dict[str, Any]:
        """Return the first event that is wanted, from the one numbered `since` on."""
        end_s = time.monotonic() + timeout_s
        with self._changed:
            while True:
                for event in self.events[since:]:
                    if wanted(event):
                        return event
                since = len(self.events)
                is_over = self.process.poll() is not None and not self._reader.is_alive()
                left_s = end_s - time.monotonic()
                if is_over or left_s <= 0:
                    told = [event for event in self.events if event.get("event") != "progress"][-8:]
                    last = self.log.read_text("utf-8", "replace")[-3000:]
                    raise AssertionError(f"{'ended' if is_over else 'late'}: {json.dumps(told)[-6000:]}\n{last}")
                self._changed.wait(min(left_s, 1.0))

    def ready(self) -> dict[str, Any]:
        """Wait until every query runs."""
        found = self.wait(lambda event: event.get("event") == "ready" or "error" in event, READY_S)
        assert found.get("event") == "ready", found
        return found

    @property
    def brokers(self) -> dict[str, str]:
        return dict(self.ready()["brokers"])

    def latest(self) -> dict[str, Any]:
        """Return the next progress event."""
        return self.wait(lambda event: event["event"] == "progress", 60.0, len(self.events))

    def pid(self, site: str, which: str) -> int:
        """Return the process id of a site's 'runner' or 'broker', as it is now."""
        found = self.wait(
            lambda event: (
                event["event"] == "progress"
                and event["sites"][site][f"{which}_pid"] is not None
                and psutil.pid_exists(event["sites"][site][f"{which}_pid"])
            ),
            60.0,
            len(self.events),
        )
        return int(found["sites"][site][f"{which}_pid"])

    def kill(self, site: str, which: str) -> None:
        """Kill a site's 'runner' or 'broker' and wait until it is back."""
        pid = self.pid(site, which)
        before = len(self.events)
        os.kill(pid, signal.SIGKILL)
        self.wait(lambda event: event["event"] == "warning" and "is back" in event["text"], READY_S, before)

    def feed(self, site: str, records: Iterable[Record], rate_rps: float | None = None) -> int:
        """Write records to a site's broker; return how many."""
        producer = self._producers.setdefault(
            site,
            Producer(
                {"bootstrap.servers": self.brokers[site], "linger.ms": 0, "enable.idempotence": True, "log_level": 0}
            ),
        )
        begun_s, count = time.monotonic(), 0
        for topic, key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
            count += 1
            if rate_rps is not None:
                late_s = begun_s + count / rate_rps - time.monotonic()
                if late_s > 0:
                    time.sleep(late_s)  # this is the pace of the load, not a wait for something
        assert producer.flush(120.0) == 0
        return count

    def read(self, site: str, topic: str) -> list[Message]:
        """Return all records of a topic."""
        try:
            return list(tail(self.brokers[site], topic, 0, 60.0))
        except BindError as error:
            if str(error).startswith("HW4206"):  # nothing was written to it yet
                return []
            raise

    def settle(self, site: str, topic: str, count: int, timeout_s: float = SETTLED_S) -> list[Message]:
        """Return the records of a topic as soon as it has so many, and nothing more comes in the next second."""
        end_s = time.monotonic() + timeout_s
        while True:
            self.latest()
            found = self.read(site, topic)
            if len(found) >= count:
                self.latest()
                return self.read(site, topic)
            assert time.monotonic() < end_s, f"{len(found)} of {count} records in '{topic}'. {self.told()}"

    def told(self) -> str:
        """Return what went wrong so far."""
        found = [event for event in self.events if event["event"] in {"warning", "error"}]
        return json.dumps(found[-6:])[-4000:] + self.log.read_text("utf-8", "replace")[-2000:]

    def end(self) -> dict[str, Any]:
        """End it as Ctrl-C does, and return the summary."""
        self.process.send_signal(signal.SIGINT)
        found = self.wait(lambda event: event["event"] == "summary", 120.0)
        self.process.wait(120.0)
        return found

    def kill_all(self) -> None:
        """End whatever is left, also after a failure of the test."""
        children = []
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children(recursive=True)
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(60.0)
        for one in children:
            with contextlib.suppress(psutil.Error):
                one.kill()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30.0)
        if self.process.stdout is not None:
            self._reader.join(10.0)
            self.process.stdout.close()


@contextlib.contextmanager
def plane(project: Path, sites: Path, state: Path, *options: str) -> Iterator[Plane]:
    """Give a run, and end all of it afterwards."""
    run = Plane(project, sites, state, *options)
    try:
        yield run
    finally:
        run.kill_all()
