"""How does `headwater run` go?

Places and cuts the project, starts brokers and runners for all its sites on this machine, shows how they
are every second, and ends them. What is shown and what `--json` prints are the same values (`Progress`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from headwater.bind.latency import Latency, LatencyReader
from headwater.errors import Mistake, SpecError
from headwater.model.keep import to_json
from headwater.serve.alone import alone
from headwater.serve.arguments import Search
from headwater.serve.draw_run import draw_run
from headwater.serve.fleet import Fleet, Plan
from headwater.serve.live import Screen
from headwater.serve.prepare import Prepared, kept_placement, plan_object, prepare
from headwater.serve.profile import with_profile
from headwater.serve.progress import Teller, note
from headwater.serve.reading import fetched_jars, made_archives, read
from headwater.testbed.bed import Bed
from headwater.testbed.ground import way_in
from headwater.testbed.private import become, is_private, join_words
from headwater.testbed.shares import running_scale

__all__ = ["Options", "run"]

TICK_S = 1.0
LONGEST_HISTORY = 3_600  # of progress, for the picture
DONE, FAILED = 0, 4


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    project: str
    sites: str
    placement: str | None
    search: Search
    seconds: float | None  # None: until Ctrl-C
    state: str | None  # None: a folder that is removed at the end
    brokers: Mapping[str, str]  # addresses of the user's own, by site
    picture: str | None = None  # where to draw how it went
    profile: str | None = None  # what was measured, in place of what was declared
    is_emulated: bool = False  # links and machines as the sites file describes them


def run(options: Options, screen: Screen) -> int:
    """Run the project until the time is over or the user ends it; return the exit code."""
    way = way_in() if options.is_emulated else ()
    jars = fetched_jars()
    archives = made_archives(jars)
    if way:  # not before the jars are here: there is no way to the internet in there
        become(way)
    project = with_profile(read(options.project, jars), options.profile)
    with _state(options.state) as folder:
        deployment = folder / "deployment.json"
        prepared = prepare(
            project, options.sites, options.placement, options.search, kept_placement(deployment, project)
        )
        _check_brokers(options.brokers, prepared)
        kept = {
            "pipeline": project.name,
            "fingerprint": project.fingerprint,
            "placement": dict(prepared.placement),
            "schemas": {one.name: one.schema_json for one in project.definitions},
        }
        _write(deployment, json.dumps(kept, indent=1))
        _write(folder / "project.json", to_json(project))
        screen.plan(prepared, folder, options.state is None)
        with _bed(options, prepared) as bed:
            plan = Plan(
                project.name,
                os.path.abspath(options.project),
                folder / "project.json",
                prepared.parts,
                folder,
                dict(options.brokers),
                {} if bed is None else {site.name: bed.box(site.name) for site in prepared.sites.sites},
            )
            whole = _Run(Fleet(plan, jars, archives, screen.tell), prepared, folder, options.seconds, screen, bed)
            code = whole.go()
        if options.picture is not None:
            draw_run(project.name, whole.history, options.picture)
            note(f"picture written to {options.picture}")
        return code


class _Run:
    """One run, from start to summary."""

    def __init__(
        self,
        fleet: Fleet,
        prepared: Prepared,
        folder: Path,
        seconds: float | None,
        screen: Screen,
        bed: Bed | None = None,
    ) -> None:
        self._bed = bed
        self._fleet = fleet
        self._prepared = prepared
        self._folder = folder
        self._seconds = seconds
        self._screen = screen
        self._stop = threading.Event()
        self.history: list[dict[str, Any]] = []  # of progress
        self._readers: dict[str, LatencyReader] = {}
        self._before: dict[str, tuple[float, int, int]] = {}  # by part: when, taken, given
        self._cpu: dict[str, tuple[float, float]] = {}  # by site: when, processor seconds
        self._cores_used: dict[str, float] = {}  # by site, lately

    def go(self) -> int:
        begun_s = time.monotonic()
        with _signals(self._stop):
            try:
                with Teller("starting") as teller:
                    self._fleet.start(lambda text: teller.say(text, None))
                ready = {
                    "event": "ready",
                    "brokers": dict(self._fleet.addresses),
                    "placement": dict(self._prepared.placement),
                    "fragments": plan_object(self._prepared),
                    "seconds": round(time.monotonic() - begun_s, 3),
                }
                if self._bed is not None:
                    ready["testbed"] = self._bed.name
                    # From now on: a start under the limits of a small box takes minutes.
                    ready["cores"] = _limits(self._bed, self._prepared)
                _write(self._folder / "ready.json", json.dumps(ready, indent=1))
                self._screen.ready(ready)
                begun_s = time.monotonic()
                self._loop(begun_s)
                last = self._progress(time.monotonic() - begun_s)
                summary = {**last, "event": "summary", "seconds": round(time.monotonic() - begun_s, 3)}
                summary["overall"] = self._overall()
            finally:
                with Teller("ending"):
                    if self._bed is not None:
                        self._bed.unlimit()
                    self._fleet.end()
                    for reader in self._readers.values():
                        reader.close()
                (self._folder / "ready.json").unlink(missing_ok=True)
        self._screen.summary(summary)
        failed = [one for one in summary["fragments"] if one["state"] == "failed"]
        return FAILED if failed else DONE

    def _loop(self, begun_s: float) -> None:
        while True:
            now_s = time.monotonic()
            left_s = None if self._seconds is None else begun_s + self._seconds - now_s
            if left_s is not None and left_s <= 0:
                return
            if self._stop.wait(TICK_S if left_s is None else min(TICK_S, left_s)):
                return
            progress = self._progress(time.monotonic() - begun_s)
            self.history.append(progress)
            del self.history[:-LONGEST_HISTORY]
            self._screen.progress(progress)

    def _progress(self, at_s: float) -> dict[str, Any]:
        """Return how every part is."""
        now_s = time.monotonic()
        rows = []
        for part in self._prepared.parts:
            state = self._fleet.states[part.site]
            told = state.parts.get(part.id, {})
            taken, given = int(told.get("taken", 0)), int(told.get("given", 0))
            before_s, before_taken, before_given = self._before.get(part.id, (now_s - TICK_S, taken, given))
            passed_s = max(now_s - before_s, 1e-6)
            self._before[part.id] = (now_s, taken, given)
            latency = self._latency(told.get("output"))
            rows.append(
                {
                    "id": part.id,
                    "site": part.site,
                    "operators": list(part.operators),
                    "lane": told.get("lane", part.lane),
                    "state": told.get("state", "starting") if state.is_up else "down",
                    "in_rps": max(0, taken - before_taken) / passed_s,
                    "out_rps": max(0, given - before_given) / passed_s,
                    "in_total": taken,
                    "out_total": given,
                    "lag": told.get("lag", 0),
                    **_latency_object(latency),
                    "memory_bytes": state.memory_bytes,
                    "cores": self._cores(part.site, now_s),
                    "left_out": told.get("left_out", 0),
                    "set_aside": told.get("set_aside", 0),
                    "counts": told.get("counts", {}),
                }
            )
        sites = {
            site: {
                "memory_bytes": state.memory_bytes,
                "broker_memory_bytes": state.broker_memory_bytes,
                "cpu_s": round(state.cpu_s, 2),
                "broker_cpu_s": round(state.broker_cpu_s, 2),
                "runner_pid": state.runner_pid,
                "broker_pid": state.broker_pid,
                "runner_restarts": state.restarts,
                "broker_restarts": state.broker_restarts,
            }
            for site, state in self._fleet.states.items()
        }
        progress = {"event": "progress", "at_s": round(at_s, 3), "fragments": rows, "sites": sites}
        if self._bed is not None:
            progress["links"] = [asdict(one) for one in self._bed.traffic()]
        return progress

    def _cores(self, site: str, now_s: float) -> float:
        used_s = self._fleet.states[site].cpu_s
        before_s, before_used_s = self._cpu.get(site, (now_s, used_s))
        if site not in self._cpu or now_s - before_s >= TICK_S / 2:
            self._cpu[site] = (now_s, used_s)
            self._cores_used[site] = max(0.0, used_s - before_used_s) / max(now_s - before_s, TICK_S / 2)
        return round(self._cores_used[site], 3)

    def _latency(self, output: Mapping[str, str] | None) -> Latency | None:
        if output is None:
            return None
        address = self._fleet.seen_from_here(output["address"])
        reader = self._readers.get(address) or self._readers.setdefault(address, LatencyReader(address))
        reader.look([output["topic"]])
        return reader.recent(output["topic"])

    def _overall(self) -> dict[str, Any]:
        found = {}
        for part in self._prepared.parts:
            output = self._fleet.states[part.site].parts.get(part.id, {}).get("output")
            reader = None if output is None else self._readers.get(self._fleet.seen_from_here(output["address"]))
            if output is not None and reader is not None:
                found[part.id] = _latency_object(reader.overall(output["topic"]))
        return found


def _latency_object(latency: Latency | None) -> dict[str, float | None]:
    if latency is None:
        return {"p50_s": None, "p99_s": None, "hop_p50_s": None, "hop_p99_s": None}
    return {
        "p50_s": latency.p50_s,
        "p99_s": latency.p99_s,
        "hop_p50_s": latency.hop_p50_s,
        "hop_p99_s": latency.hop_p99_s,
    }


def _scale(prepared: Prepared) -> float:
    """Return how many cores of this machine stand for a strength of 1; a broker and a runner need some at each site."""
    running = {part.site for part in prepared.parts}
    hosts = (site for site in prepared.sites.sites if site.name in running)
    return running_scale(hosts)


def _limits(bed: Bed, prepared: Prepared) -> dict[str, float | None]:
    """Limit the sites, if that is possible, and return to how many cores; None: to all there are."""
    if bed.can_limit:
        return bed.limit(_scale(prepared))
    return dict.fromkeys(prepared.sites.by_name)


@contextlib.contextmanager
def _bed(options: Options, prepared: Prepared) -> Iterator[Bed | None]:
    """Give a testbed for this run, if one is wanted, and remove it afterwards."""
    if not options.is_emulated:
        yield None
        return
    if options.brokers:
        raise SpecError(
            Mistake("HW1316", "--emulate gives every site a network of its own; a broker of yours is not reached there")
        )
    bed = Bed(f"run{os.getpid()}", prepared.sites)
    try:
        with Teller("testbed") as teller:
            bed.up(lambda text: teller.say(text, None))
        if not bed.can_limit:
            note("links are emulated, machines are not: without root every site may use all processors and memory")
        if is_private(os.environ):
            note(f"from another terminal: {shlex.join(join_words(os.getpid(), ()))} headwater feed ..")
        yield bed
    finally:
        bed.down()


def _check_brokers(brokers: Mapping[str, str], prepared: Prepared) -> None:
    unknown = [site for site in brokers if site not in prepared.sites.by_name]
    if unknown:
        raise SpecError(Mistake("HW1312", f"--broker names '{unknown[0]}', which is no site of the sites file"))


@contextlib.contextmanager
def _state(path: str | None) -> Iterator[Path]:
    """Give the state folder, held by this process alone; one that nobody asked for is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-") if path is None else path).absolute()
    refusal = f"HW4604 another run uses the state folder '{folder}'. End it first, or take another --state."
    with alone(folder, "lock", refusal):
        try:
            yield folder
        finally:
            if path is None:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the run in order; a second Ctrl-C ends it at once."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()
        note("ending: stopping queries and brokers")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(file: Path, text: str) -> None:
    passing = file.with_name(f".{file.name}")
    passing.write_text(text, "utf-8")
    passing.replace(file)
