"""How does the whole control plane come up on one machine, and how does it end?

`up` starts a controller and an agent for every site with slots, each a process of its own, and keeps them going: one
that dies is started again. They outlive `up` if it is killed, as jobs and brokers outlive them; the next `up` with
the same state folder takes all of it over. `down`, or Ctrl-C, ends everything in order; what is in the state folder
stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from headwater.bind.java import Child
from headwater.bind.keyring import write_private
from headwater.errors import BindError, HeadwaterError
from headwater.plan.cut import safe
from headwater.serve import agent_main
from headwater.serve.alone import alone
from headwater.serve.client import Client, find
from headwater.serve.control_options import Down, Up
from headwater.serve.fed import READY
from headwater.serve.load import load_sites
from headwater.serve.output import Output
from headwater.serve.progress import Teller, note
from headwater.serve.reading import fetched_jars, made_archives
from headwater.serve.until import until_told
from headwater.serve.up_view import up_object, up_text
from headwater.testbed.bed import Bed
from headwater.testbed.ground import way_in
from headwater.testbed.private import become

__all__ = ["down", "end_all", "up"]

DONE = 0
READY_S = 240.0
LOOK_S = 0.2
END_S = 90.0
CALM_S, MOST_PAUSE_S = 30.0, 10.0  # what lived this long is started again at once; else after at most so long


def up(options: Up) -> int:
    """Start everything, keep it going until told to end, and end it; return the exit code."""
    state = options.state.absolute()
    sites = load_sites(str(options.sites))
    if options.detach:
        return _detached(options, state)
    way = way_in() if options.is_emulated else ()
    made_archives(fetched_jars())
    if way:
        become(way)
    refusal = f"HW4604 another 'headwater up' uses the state folder '{state}'. 'headwater down' ends it."
    with alone(state, "up.lock", refusal), until_told() as stop, _bed(options, state, sites) as bed:
        whole = _Whole(state, options, [one.name for one in sites.sites if one.slots > 0], bed)
        try:
            with Teller("starting") as teller:
                found = whole.start(stop, teller)
            if found is not None:
                write_private(state / READY, json.dumps({"pid": os.getpid(), **found}).encode())
                Output(options.as_json).answer({"event": "ready", **found}, up_text(found, state))
                sys.stdout.flush()
                whole.keep(stop)
        finally:
            (state / READY).unlink(missing_ok=True)
            with Teller("ending"):
                whole.end()
    return DONE


def down(options: Down) -> int:
    """End what an `up` began; return the exit code."""
    state = options.state.absolute()
    output = Output(options.as_json)
    keeper = _told_pid(state / READY)
    with Teller("ending"):
        if keeper is not None:
            with contextlib.suppress(psutil.Error):
                psutil.Process(keeper).terminate()
                psutil.Process(keeper).wait(END_S + 30.0)
        ended = end_all(state)
    text = "everything is ended; its state stays for the next 'headwater up'" if ended or keeper else "nothing was up"
    output.answer({"ended": bool(ended or keeper)}, text)
    return DONE


def end_all(state: Path) -> int:
    """End agents, runners, brokers and the controller of a state folder, whoever started them; return how many."""
    count = 0
    folders = sorted(one.parent for one in state.glob("agents/*/instance"))
    agents = {folder: _told_pid(folder / "agent.json") for folder in folders}
    for folder, pid in agents.items():
        if pid is not None:
            (folder / agent_main.END).touch()
            with contextlib.suppress(psutil.Error):
                psutil.Process(pid).terminate()
            count += 1
    for folder, pid in agents.items():
        if pid is not None:
            with contextlib.suppress(psutil.Error):
                psutil.Process(pid).wait(END_S)
        count += agent_main.end_leftovers(folder, note)
    controller = _told_pid(state / "controller.json")
    if controller is not None:
        count += 1
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(controller)
            process.terminate()
            process.wait(END_S)
    return count


class _Kept:
    """A process that is to run."""

    def __init__(self, name: str, words: list[str], log: Path, pid_file: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._words = words
        self._log = log
        self._pid_file = pid_file
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None
        self._begun_s = -CALM_S
        self._failures = 0

    def look(self) -> None:
        """Start it if it does not run: neither one of ours nor one from before."""
        if self._child is not None and self._child.poll() is None:
            return
        if self._child is None and _told_pid(self._pid_file) is not None:
            return
        lived_s = time.monotonic() - self._begun_s
        self._failures = 0 if lived_s > CALM_S else self._failures
        if lived_s < min(MOST_PAUSE_S, 0.5 * self._failures):
            return
        if self._child is not None:
            self._failures += 1
            note(f"{self.name} ended with code {self._child.returncode}; it is started again{_last_lines(self._log)}")
        self._begun_s = time.monotonic()
        with self._log.open("ab") as out:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "headwater.serve.main", *self._words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._environment},
                start_new_session=True,
            )

    @property
    def is_failing(self) -> bool:
        """Return whether it has died again and again."""
        return self._failures >= 5


class _Whole:
    """Controller and agents of one state folder."""

    def __init__(self, state: Path, options: Up, sites: list[str], bed: Bed | None) -> None:
        self._state = state
        self._sites = sites
        self._boxes = {} if bed is None else {site: bed.box(site) for site in sites}
        self._testbed = None if bed is None else bed.name
        words = ["serve", "--state", str(state), "--port", str(options.port)]
        logs = state / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        self._controller = _Kept("the controller", words, logs / "controller.log", state / "controller.json", {})
        self._agents: dict[str, _Kept] = {}
        self._logs = logs

    def start(self, stop: threading.Event, teller: Teller) -> dict[str, Any] | None:
        """Start all and return what there is when all sites answer; None: it was told to end before."""
        end_s = time.monotonic() + READY_S
        while not stop.wait(LOOK_S):
            self._look()
            reached: dict[str, str] = {}
            with contextlib.suppress(HeadwaterError):
                place = find(None, str(self._state))
                with Client(place) as client:
                    self._meet(client, place.url)
                    told = client.get("/sites")["sites"]
                    reached = {one["name"]: self._address(one) for one in told if one["is_reached"]}
                if all(reached.get(site) for site in self._sites):
                    return up_object(place.url, {site: reached[site] for site in self._sites}, self._testbed)
            teller.say(f"{len(reached)} of {len(self._sites)} sites answer", None)
            failing = [one for one in (self._controller, *self._agents.values()) if one.is_failing]
            if failing or time.monotonic() > end_s:
                what = failing[0].name if failing else f"after {READY_S:g} s, {len(self._sites) - len(reached)} sites"
                why = "dies again and again" if failing else "do not answer"
                raise BindError(f"HW4605 {what} {why}; look into the logs in '{self._logs}'.")
        return None

    def _address(self, site: Mapping[str, Any]) -> str:
        """Return where commands on this machine reach a site's broker: not by its links; '' until that is known."""
        if not self._boxes:
            return str(site["broker"])
        return str(site["told"].get("broker", {}).get("address", ""))

    def keep(self, stop: threading.Event) -> None:
        """Start again what dies, until told to end."""
        while not stop.wait(LOOK_S):
            self._look()

    def end(self) -> None:
        """End all, in order."""
        end_all(self._state)

    def _look(self) -> None:
        self._controller.look()
        for one in self._agents.values():
            one.look()

    def _meet(self, client: Client, url: str) -> None:
        """Give every site an agent, and every agent a token."""
        for site in self._sites:
            if site in self._agents:
                continue
            folder = self._state / "agents" / safe(site)
            folder.mkdir(parents=True, exist_ok=True)
            token = folder / "token"
            if not token.exists():
                write_private(token, client.post("/tokens", {"site": site})["token"].encode())
            words = ["agent", "--site", site, "--controller", url, "--state", str(folder), "--token-file", str(token)]
            box = self._boxes.get(site)
            environment = {} if box is None else {agent_main.BOX: json.dumps(asdict(box))}
            log = self._logs / f"agent-{safe(site)}.log"
            self._agents[site] = _Kept(f"the agent of '{site}'", words, log, folder / "agent.json", environment)


def _detached(options: Up, state: Path) -> int:
    """Start an `up` that stays, and return when it is ready."""
    state.mkdir(parents=True, exist_ok=True)
    log = state / "up.log"
    words = ["up", "--sites", str(options.sites.absolute()), "--state", str(state), "--port", str(options.port)]
    words += ["--emulate"] if options.is_emulated else []
    (state / READY).unlink(missing_ok=True)
    with log.open("wb") as out:
        child = Child([sys.executable, "-m", "headwater.serve.main", *words], state, out, is_bound=False)
    with Teller("starting"):
        end_s = time.monotonic() + READY_S + 60.0
        while not (state / READY).exists():
            if child.wait(LOOK_S) or time.monotonic() > end_s:
                raise BindError(f"HW4605 the control plane did not come up.{_last_lines(log)}")
    found = json.loads((state / READY).read_text("utf-8"))
    Output(options.as_json).answer({"event": "ready", **found}, up_text(found, state))
    return DONE


@contextlib.contextmanager
def _bed(options: Up, state: Path, sites: Any) -> Iterator[Bed | None]:
    """Give a testbed, if links and machines are emulated, and remove it afterwards."""
    if not options.is_emulated:
        yield None
        return
    bed = Bed(f"up{os.getpid()}", sites)
    try:
        with Teller("testbed") as teller:
            bed.up(lambda text: teller.say(text, None))
        yield bed
    finally:
        end_all(state)  # nothing may be left in there when it goes
        bed.down()


def _told_pid(file: Path) -> int | None:
    """Return the process that a file names, if it still is one of ours."""
    with contextlib.suppress(OSError, ValueError, KeyError, psutil.Error):
        pid = int(json.loads(file.read_text("utf-8"))["pid"])
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE and any("headwater" in word for word in process.cmdline()):
            return pid
    return None


def _last_lines(log: Path) -> str:
    with contextlib.suppress(OSError):
        return "".join(f"\n    {line}" for line in log.read_text("utf-8", "replace").splitlines()[-8:])
    return ""
