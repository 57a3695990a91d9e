"""A control plane under test: `headwater up` as a user starts it, asked over REST, fed and read from outside.

Knows nothing of the inside: it starts the command, calls the API with the operator's token, writes to and reads from
the brokers that it names, and kills the processes that `/status` and the state folder name.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
from confluent_kafka import Producer

from headwater.bind.topics import ensure_topics, tail

READY_S = 240.0
SETTLED_S = 180.0
LOOK_S = 0.1

CODE = """\
from pyspark.sql import functions as F


def passing(records):
    return records.select("key", "value")


def other(records):
    return records.select("key", "value")


def counting(records):
    number = F.col("value").cast("string").cast("long")
    rows = records.select(number.alias("number"), "timestamp").withWatermark("timestamp", "10 minutes")
    counts = rows.groupBy(F.window("timestamp", "1 minute").alias("minute"), (F.col("number") % 10).alias("digit"))
    told = counts.agg(F.count("*").alias("records")).select(F.col("minute.start").alias("minute"), "digit", "records")
    return told.select(F.to_json(F.struct("*")).alias("value"))
"""


def sites_text(names: Sequence[str]) -> str:
    """Return a sites file: leaves around one root, the last."""
    *leaves, root = names
    lines = ["sites:", *(f"  {name}: {{kind: leaf, slots: 40, tags: [sensors]}}" for name in leaves)]
    lines += [f"  {root}: {{kind: root, slots: 40}}", "links:"]
    lines += [f"  - {{between: [{name}, {root}], latency: 1 ms, bandwidth: 1 Gbit/s}}" for name in leaves]
    return "\n".join(lines) + "\n"


def job(
    name: str, site: str, source: tuple[str, str], sink: tuple[str, str], entry: str = "jobs:passing"
) -> dict[str, str]:
    """Return the form of a job; topics as broker and name."""
    return {
        "job_name": name,
        "spe_address": f"http://{site}/",
        "source_broker": f"tcp://{source[0]}",
        "sink_broker": f"tcp://{sink[0]}",
        "source_topic": source[1],
        "sink_topic": sink[1],
        "entry_class": entry,
        "job_path": "jobs.py",
    }


class Control:
    """One `headwater up`."""

    def __init__(self, folder: Path, sites: str) -> None:
        self.state = folder / "state"
        self.sites_file = folder / "sites.yaml"
        self.sites_file.write_text(sites, "utf-8")
        self.log = folder / "up.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.up()

    def up(self) -> None:
        """Start it, and wait until all sites answer."""
        command = [sys.executable, "-m", "headwater.serve.main", "up", "--sites", str(self.sites_file)]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen([*command, "--state", str(self.state)], stdout=out, stderr=out)
        self.until((self.state / "up.json").exists, "it is up", READY_S)

    @property
    def brokers(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.state / "up.json").read_text("utf-8"))["brokers"]
        return found

    @property
    def url(self) -> str:
        return str(json.loads((self.state / "controller.json").read_text("utf-8"))["url"])

    @property
    def token(self) -> str:
        return (self.state / "operator.token").read_text("utf-8").strip()

    def call(self, method: str, path: str, content: Any = None, **query: Any) -> Any:
        """Call the API; a controller that is being started again is waited for."""
        kind = "content" if isinstance(content, (str, bytes)) else "json"
        arguments: dict[str, Any] = {} if content is None else {kind: content}
        end_s = time.monotonic() + 60.0
        while True:
            try:
                found = httpx.request(
                    method,
                    f"{self.url}{path}",
                    params=query,
                    headers={"Authorization": f"Bearer {self.token}"},
                    timeout=query.get("wait_s", 0) + 60.0,
                    **arguments,
                )
                break
            except (httpx.TransportError, OSError, ValueError):
                assert time.monotonic() < end_s, f"the controller does not answer. {self.told()}"
                time.sleep(LOOK_S)
        assert found.status_code < 400, f"{method} {path}: {found.status_code} {found.text}"
        return found.json()

    def upload(self, text: str = CODE, name: str = "jobs.py") -> None:
        self.call("PUT", f"/uploads/{name}", text)

    def compose(self, name: str, jobs: Sequence[Mapping[str, str]], **query: Any) -> Any:
        """Submit a composition."""
        return self.call("PUT", f"/compositions/{name}", json.dumps({"jobs": list(jobs)}), **query)

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return all jobs, as wanted and as observed."""
        return {one["name"]: one for one in self.call("GET", "/jobs")["jobs"]}

    def until(self, is_so: Callable[[], bool], what: str, timeout_s: float = SETTLED_S) -> None:
        """Wait until something is so."""
        end_s = time.monotonic() + timeout_s
        while not is_so():
            is_over = self.process is not None and self.process.poll() is not None
            is_over = is_over or time.monotonic() > end_s
            assert not is_over, f"after {timeout_s:g} s not: {what}. {self.told()}"
            time.sleep(LOOK_S)

    def told(self) -> str:
        """Return what was said last by all processes."""
        logs = [self.log, *sorted((self.state / "logs").glob("*.log"))]
        return "\n".join(f"== {one.name}\n{one.read_text('utf-8', 'replace')[-1500:]}" for one in logs if one.exists())

    def pids(self) -> dict[str, int]:
        """Return the processes that there are: 'controller', 'agent SITE', 'broker SITE', 'runner SITE COMPOSITION'."""
        found = {}
        with contextlib.suppress(OSError, ValueError, IndexError):
            found["controller"] = int(json.loads((self.state / "controller.json").read_text("utf-8"))["pid"])
        for folder in (self.state / "agents").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[f"agent {folder.name}"] = int(json.loads((folder / "agent.json").read_text("utf-8"))["pid"])
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[f"broker {folder.name}"] = int((folder / "broker" / "pid").read_text("ascii").split()[0])
            for one in folder.glob("runners/*/runner.pid"):
                with contextlib.suppress(OSError, ValueError, IndexError):
                    found[f"runner {folder.name} {one.parent.name}"] = int(one.read_text("ascii").split()[0])
        return {name: pid for name, pid in found.items() if psutil.pid_exists(pid)}

    def kill(self, what: str) -> None:
        """Kill a process that `pids` names, or all of its kind that a shorter name fits, as it is now."""
        for name, pid in self.pids().items():
            if name == what or name.startswith(f"{what} "):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def ensure_topics(self, site: str, *names: str) -> None:
        ensure_topics(self.brokers[site], names, timeout_s=60.0)

    def read(self, site: str, topic: str) -> list[bytes]:
        """Return the values of all records of a topic."""
        return [one.value() or b"" for one in tail(self.brokers[site], topic, 0, 60.0)]

    def down(self) -> None:
        """End it as Ctrl-C does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        self.process.wait(180.0)
        self.process = None

    def kill_all(self) -> None:
        """End whatever is left, also after a failure of the test."""
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(120.0)
        kill_of(self.state)
        if self.process is not None:
            self.process.kill()
            self.process.wait(30.0)


def kill_of(folder: Path) -> None:
    """Kill all processes that were started with something in a folder."""
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(str(folder) in word for word in one.cmdline()):
                one.kill()


@contextlib.contextmanager
def ending_all(folder: Path) -> Iterator[None]:
    """Leave nothing running of what a test started in a folder, however it ends."""
    try:
        yield
    finally:
        kill_of(folder)


class Feed:
    """Writes numbers, or what is made of them, to a topic at a steady rate until it is told to stop; knows how many."""

    def __init__(
        self,
        address: str,
        topic: str,
        rate_rps: float,
        start: int = 0,
        make: Callable[[int], str | bytes] = str,
        until: int | None = None,
    ) -> None:
        self.count = start
        self._until = until
        self._make = make
        self._address, self._topic, self._rate_rps = address, topic, rate_rps
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        settings = {"linger.ms": 0, "enable.idempotence": True, "delivery.timeout.ms": 600_000, "log_level": 0}
        producer = Producer({"bootstrap.servers": self._address, **settings})
        begun_s, first = time.monotonic(), self.count
        while not self._stop.is_set() and self.count != self._until:
            try:
                producer.produce(self._topic, self._make(self.count))
                self.count += 1
            except BufferError:
                producer.poll(0.1)
            producer.poll(0)
            late_s = begun_s + (self.count - first) / self._rate_rps - time.monotonic()
            if late_s > 0:
                self._stop.wait(late_s)  # this is the pace of the load
        assert producer.flush(180.0) == 0

    def join(self) -> None:
        """Wait until all are written, of one that ends by itself."""
        self._thread.join(200.0)

    def stop(self) -> int:
        """End it, and return how many numbers there are."""
        self._stop.set()
        self.join()
        return self.count


@contextlib.contextmanager
def control(folder: Path, sites: str) -> Iterator[Control]:
    """Give a control plane, and end all of it afterwards."""
    found = Control(folder, sites)
    try:
        yield found
    finally:
        found.kill_all()
