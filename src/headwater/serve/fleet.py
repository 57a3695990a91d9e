"""Who keeps brokers and runners going?

A `Fleet` is everything that runs for one pipeline on this machine: a broker and a runner for each site. It
starts all of them at once, waits until every part takes records, and then keeps each site going in a
thread of its own: what dies is started again, and every second the site says how it is. Nothing is left
when it ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headwater.bind import archive
from headwater.bind.box import Box
from headwater.bind.jars import Jars
from headwater.bind.kafka import ExternalBroker, KafkaBroker
from headwater.bind.process import RunnerProcess, RunnerSpec
from headwater.bind.topics import ensure_topics
from headwater.errors import BindError, HeadwaterError
from headwater.plan.cut import safe
from headwater.plan.deploy import Part, part_object

__all__ = ["Fleet", "Plan", "SiteState"]

LOOK_S = 1.0  # between two looks at a site
READY_S = 180.0  # a broker or a runner that is not ready by then never will be
ASK_S = 120.0
TOPICS_S = 90.0  # brokers answer late while all runners start
MOST_PAUSE_S = 15.0  # before something that dies again and again is started again
CALM_S = 60.0  # what lived this long is started again at once
TELL = Callable[[str, Mapping[str, Any]], None]


class _Broker(Protocol):
    """What a fleet needs of a broker."""

    @property
    def address(self) -> str: ...

    @property
    def address_between(self) -> str: ...

    @property
    def is_alive(self) -> bool: ...

    def start(self) -> None: ...

    def wait_ready(self, timeout_s: float = ...) -> None: ...

    def stop(self, timeout_s: float = ...) -> None: ...


@dataclass(frozen=True)
class Plan:
    """What a fleet is to run."""

    pipeline: str
    path: str  # of the user's project
    project: Path  # what was read of it, as JSON
    parts: tuple[Part, ...]
    folder: Path  # checkpoints, tables, brokers' data
    addresses: Mapping[str, str] = field(default_factory=dict)  # of brokers that are the user's, by site
    boxes: Mapping[str, Box] = field(default_factory=dict)  # of a testbed, by site

    @property
    def sites(self) -> tuple[str, ...]:
        """Return the sites with parts, in the order of the parts."""
        return tuple(dict.fromkeys(part.site for part in self.parts))


@dataclass
class SiteState:
    """How a site is, as it last said."""

    parts: dict[str, dict[str, Any]] = field(default_factory=dict)  # by id, as the runner tells
    memory_bytes: int = 0  # of the runner
    cpu_s: float = 0.0
    broker_memory_bytes: int = 0
    broker_cpu_s: float = 0.0
    restarts: int = 0  # of the runner
    broker_restarts: int = 0
    runner_pid: int | None = None
    broker_pid: int | None = None
    is_up: bool = False  # whether the runner answered at the last look


class Fleet:
    """A broker and a runner for each site, all on this machine."""

    def __init__(self, plan: Plan, jars: Jars, archives: Mapping[str, Path], tell: TELL) -> None:
        """Describe it; `start` starts it.

        Args:
            plan: What to run.
            jars: For Spark and the brokers.
            archives: Of Java's classes, for a quick start.
            tell: Takes 'warning' or 'error' and what happened; called from several threads.
        """
        self.plan = plan
        self._tell = tell
        self._ending = threading.Event()
        self._brokers: dict[str, _Broker] = {}
        for site in plan.sites:
            if site in plan.addresses:
                self._brokers[site] = ExternalBroker(site, plan.addresses[site])
            else:
                folder = plan.folder / "sites" / safe(site) / "broker"
                self._brokers[site] = KafkaBroker(
                    site,
                    folder,
                    jars,
                    flags=archive.flags(archives.get("kafka")),
                    bootstrap=archives.get("bootstrap"),
                    box=plan.boxes.get(site),
                )
        self.addresses: dict[str, str] = {}  # of the brokers, for this process
        self._between: dict[str, str] = {}  # the same for the runners
        self._jars = jars
        self._archives = archives
        self._runners: dict[str, RunnerProcess] = {}
        self.states = {site: SiteState() for site in plan.sites}
        self._threads: list[threading.Thread] = []
        self._told: dict[str, str] = {}

    def start(self, say: Callable[[str], None]) -> None:
        """Start everything and return when every part takes records.

        Raises:
            BindError: something does not start.
        """
        for broker in self._brokers.values():
            broker.start()
        self.addresses = {site: broker.address for site, broker in self._brokers.items()}
        self._between = {site: broker.address_between for site, broker in self._brokers.items()}
        say(f"starting {len(self._brokers)} brokers and runners")
        for site in self.plan.sites:
            self._runners[site] = RunnerProcess(self._spec(site))
            self._runners[site].start()
        for broker in self._brokers.values():
            broker.wait_ready(READY_S)
        self._make_topics()
        failures = self._each_site(self._start_parts)
        if failures:
            raise failures[0]
        self._wait_taking(say)
        for site in self.plan.sites:
            thread = threading.Thread(target=self._keep, args=(site,), name=f"site {site}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def seen_from_here(self, address: str) -> str:
        """Return the address by which this process reaches the broker that the runners know by this one."""
        return next((self.addresses[site] for site, one in self._between.items() if one == address), address)

    def end(self) -> None:
        """Stop everything, in order; nothing is left."""
        self._ending.set()
        for thread in self._threads:
            thread.join(READY_S)
        self._each_site(lambda site: self._runners[site].end() if site in self._runners else None)
        self._each_site(lambda site: self._brokers[site].stop())

    def _spec(self, site: str) -> RunnerSpec:
        mine = [part for part in self.plan.parts if part.site == site]
        threads = 4 + sum(2 + 2 * max(1, len(part.inputs)) for part in mine)
        return RunnerSpec(
            site,
            self.plan.folder / "sites" / safe(site),
            self.plan.path,
            self.plan.project,
            self._jars.spark,
            self._between,
            threads,
            sum(part.in_rps for part in mine),
            flags=archive.flags(self._archives.get("spark")),
            box=self.plan.boxes.get(site, Box()),
        )

    def _make_topics(self) -> None:
        wanted: dict[str, set[str]] = {}
        for part in self.plan.parts:
            if part.output == "channel" and part.topic is not None:
                wanted.setdefault(part.broker, set()).add(part.topic)
        for site, names in wanted.items():
            ensure_topics(self.addresses[site], sorted(names), timeout_s=TOPICS_S)

    def _start_parts(self, site: str) -> None:
        runner = self._runners[site]
        runner.wait_ready(READY_S)
        for part in self.plan.parts:
            if part.site == site:
                answer = runner.ask({"do": "start", "part": part_object(part)}, ASK_S)
                if not answer.get("ok"):
                    raise BindError(
                        f"HW4601 fragment '{part.id}' does not start at site '{site}': {answer.get('error')}"
                    )

    def _wait_taking(self, say: Callable[[str], None]) -> None:
        end_s = time.monotonic() + READY_S
        while True:
            for site in self.plan.sites:
                self._look(site)
            states = [one for state in self.states.values() for one in state.parts.values()]
            waiting = [one["id"] for one in states if one["state"] in {"starting", "waiting"}]
            if len(states) == len(self.plan.parts) and not waiting:
                return
            say(f"{len(states) - len(waiting)} of {len(self.plan.parts)} fragments run")
            if time.monotonic() > end_s or self._ending.wait(0.1):
                raise BindError(
                    f"HW4602 after {READY_S:g} s these fragments do not run: {', '.join(waiting) or 'unknown'}; "
                    f"the runners' logs are in '{self.plan.folder / 'sites'}'"
                )

    def _keep(self, site: str) -> None:
        begun_s, pause_s, failures = time.monotonic(), 0.0, 0
        while not self._ending.wait(LOOK_S if failures == 0 else min(MOST_PAUSE_S, 2.0**failures)):
            try:
                if not self._brokers[site].is_alive:
                    self._restart_broker(site)
                if not self._runners[site].is_alive:
                    pause_s = 0.0 if time.monotonic() - begun_s > CALM_S else min(MOST_PAUSE_S, pause_s * 2 + 0.5)
                    begun_s = time.monotonic()
                    self._restart_runner(site, pause_s)
                self._look(site)
                failures = 0
            except HeadwaterError as error:
                failures += 1
                if not self._ending.is_set():
                    self._tell("warning", {"site": site, "text": str(error)})

    def _restart_broker(self, site: str) -> None:
        state, broker = self.states[site], self._brokers[site]
        state.broker_restarts += 1
        begun_s = time.monotonic()
        self._tell("warning", {"site": site, "text": f"the broker of site '{site}' died; it is started again"})
        broker.start()
        broker.wait_ready(READY_S)
        took_s = time.monotonic() - begun_s
        self._tell("warning", {"site": site, "text": f"the broker of site '{site}' is back after {took_s:.1f} s"})

    def _restart_runner(self, site: str, pause_s: float) -> None:
        state, runner = self.states[site], self._runners[site]
        state.restarts += 1
        state.is_up = False
        begun_s = time.monotonic()
        self._tell(
            "warning",
            {"site": site, "text": f"the runner of site '{site}' died; it is started again.{runner.last_lines()}"},
        )
        if self._ending.wait(pause_s):
            return
        runner.start()
        self._start_parts(site)
        took_s = time.monotonic() - begun_s
        self._tell("warning", {"site": site, "text": f"the runner of site '{site}' is back after {took_s:.1f} s"})

    def _look(self, site: str) -> None:
        state, runner, broker = self.states[site], self._runners[site], self._brokers[site]
        state.memory_bytes, state.cpu_s = runner.usage()
        state.runner_pid = runner.pid
        if isinstance(broker, KafkaBroker):
            state.broker_memory_bytes, state.broker_cpu_s = broker.memory_bytes or 0, broker.cpu_s or 0.0
            state.broker_pid = broker.pid
        is_up = False
        if runner.is_listening:
            with contextlib.suppress(BindError):
                answer = runner.ask({"do": "status"}, ASK_S)
                state.parts = {one["id"]: one for one in answer.get("parts", [])}
                is_up = True
        state.is_up = is_up
        for one in state.parts.values():
            self._report(site, one)

    def _report(self, site: str, one: Mapping[str, Any]) -> None:
        """Tell once what is new about a part: a failure, a record set aside, a note."""
        failure = one["failure"]
        if failure is not None:
            key = f"{one['id']} {failure['times']} {one['state']}"
            if one["state"] in {"failed", "waiting"} and self._told.get(one["id"]) != key:
                self._told[one["id"]] = key
                kind = "error" if one["state"] == "failed" else "warning"
                told = {key: failure[key] for key in ("operator", "record", "text", "trace", "blame")}
                self._tell(kind, {"site": site, "fragment": one["id"], **told})
        for note in one["notes"]:
            if f"{one['id']} {note}" not in self._told:
                self._told[f"{one['id']} {note}"] = note
                self._tell("warning", {"site": site, "fragment": one["id"], "text": note})
        if one["set_aside"] and self._told.get(f"aside {one['id']}") != str(one["set_aside"]):
            self._told[f"aside {one['id']}"] = str(one["set_aside"])
            text = f"{one['set_aside']} records are set aside in the quarantine topic"
            self._tell("warning", {"site": site, "fragment": one["id"], "text": text})

    def _each_site(self, act: Callable[[str], None]) -> list[HeadwaterError]:
        """Do something for all sites at once; return what went wrong."""
        failures: list[HeadwaterError] = []

        def guarded(site: str) -> None:
            try:
                act(site)
            except HeadwaterError as error:
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(site,), daemon=True) for site in self.plan.sites]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failures
