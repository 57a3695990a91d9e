"""How does `headwater agent` go?

Puts an agent together from its real parts: the site's broker, an engine on Spark, a shelf of files, the line to the
controller. It adopts whatever of these still runs from an earlier agent, keeps the broker going, and lives until it
is told to end. Broker and runners go on then, unless the file END lies in its state folder: `headwater down` puts it
there, to end all of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater import __version__
from headwater.bind import keyring
from headwater.bind.box import Box
from headwater.bind.broker_files import Access, is_loopback
from headwater.bind.code import Code
from headwater.bind.engine import Ground, SparkEngine
from headwater.bind.kafka import ExternalBroker, KafkaBroker
from headwater.bind.keys import Keys
from headwater.bind.privilege import DEFAULT
from headwater.bind.process import RunnerProcess, RunnerSpec
from headwater.bind.shelf import FileShelf
from headwater.bind.site_broker import SiteBroker
from headwater.errors import BindError, Mistake, SpecError
from headwater.run.agent import Agent
from headwater.serve import control_options
from headwater.serve.agent import AgentLoop, instance
from headwater.serve.fleet import shared
from headwater.serve.line import Line, read_token
from headwater.serve.plain import plain
from headwater.serve.reading import fetched_jars, made_archives
from headwater.serve.until import until_told

__all__ = ["BOX", "END", "end_leftovers", "run_agent"]

BOX = "HEADWATER_BOX"  # in the environment: what stands for the site in a testbed, as JSON
END = "end"  # in the state folder: broker and runners end with the agent
DONE = 0


def run_agent(options: control_options.Agent) -> int:
    """Live until told to end; return the exit code."""
    folder = options.state.absolute()
    say = _Says(options.site, options.as_json)
    with instance(folder) as own, until_told() as stop:
        (folder / END).unlink(missing_ok=True)
        (folder / "broker").mkdir(mode=0o700, exist_ok=True)  # records are nobody else's
        jars = fetched_jars()
        archives = made_archives(jars)
        box = _box()
        access = _access(options, folder)
        broker = SiteBroker(_broker(options, folder, jars, archives, box, access), say)
        line = Line(
            options.controller, options.site, lambda: read_token(options.token_file), folder / "uploads", options.ca
        )
        ground = Ground(
            options.site,
            folder,
            jars,
            lambda: broker.address_between,
            Code(folder / "code", line.fetch_upload),
            tuple(shared(archives.get("spark"))),
            box,
            (options.run_as or DEFAULT) if os.geteuid() == 0 else None,
            folder / "runners.keyring.json",
        )
        engine = SparkEngine(ground, say)
        keys = Keys(folder / "keyring.json", folder / "runners.keyring.json", _authority(options, folder), engine.owner)
        if access is not None:
            keys.add({broker.address: access.password, broker.address_between: access.password})
        agent = Agent(options.site, engine, broker, FileShelf(folder / "shelf", say))
        broker.up()
        adopted = engine.adopt()
        (folder / "agent.json").write_text(json.dumps({"pid": os.getpid(), "broker": broker.address}), "utf-8")
        say(f"agent of site '{options.site}' is up: broker at {broker.address}, {adopted} runners adopted")
        watch = threading.Thread(target=broker.keep, args=(stop,), name="broker", daemon=True)
        watch.start()
        told = _Told(engine, broker)
        AgentLoop(
            agent,
            line,
            own,
            lambda: broker.address_between,
            told,
            engine.log,
            options.address,
            __version__,
            say,
            None if access is None else access.password,
            keys.add,
        ).run(stop)
        watch.join()
        if (folder / END).exists():
            say("ending runners and broker")
            engine.end()
            broker.end()
            (folder / END).unlink()
        (folder / "agent.json").unlink(missing_ok=True)
    return DONE


def end_leftovers(folder: Path) -> int:
    """End runners and a broker that are left in an agent's folder without an agent; return how many there were."""
    with contextlib.suppress(BindError), instance(folder):
        jars, count = fetched_jars(), 0
        for one in sorted(folder.glob("runners/*/composition.json")):
            process = RunnerProcess(RunnerSpec("", one.parent, "", None, jars.spark, {}, 0, 0.0, is_detached=True))
            if process.adopt():
                process.end()
                count += 1
        broker = KafkaBroker("", folder / "broker", jars, is_detached=True)
        if broker.adopt():
            broker.stop()
            count += 1
        (folder / END).unlink(missing_ok=True)
        (folder / "agent.json").unlink(missing_ok=True)
        return count
    return 0


def _broker(
    options: control_options.Agent,
    folder: Path,
    jars: Any,
    archives: Mapping[str, Path],
    box: Box,
    access: Access | None,
) -> KafkaBroker | ExternalBroker:
    if options.broker is not None:
        return ExternalBroker(options.site, options.broker)
    return KafkaBroker(
        options.site,
        folder / "broker",
        jars,
        host=options.listen,
        flags=shared(archives.get("kafka")),
        bootstrap=archives.get("bootstrap"),
        box=box if box.is_apart else None,
        access=access,
        is_detached=True,
    )


def _access(options: control_options.Agent, folder: Path) -> Access | None:
    """Return whom the broker lets in; its password is made here, and told to the controller alone."""
    if is_loopback(options.listen):
        return None
    if options.cert is None or options.key is None or options.ca is None:
        raise SpecError(
            Mistake(
                "HW1321",
                f"the broker is to listen on {options.listen}, which others can reach, so it needs --cert, --key and "
                "--ca. 'headwater ca' makes them.",
            )
        )
    file = folder / "broker.password"
    if not file.exists():
        keyring.write_private(file, secrets.token_hex(32).encode())
    cert, key, ca = (one.absolute() for one in (options.cert, options.key, options.ca))
    return Access(keyring.USER, file.read_text("ascii"), cert, key, ca)


def _authority(options: control_options.Agent, folder: Path) -> Path | None:
    """Return the certificate of the authority where runners, who may be another user, find and read it."""
    if options.ca is None:
        return None
    kept = folder / "authority.pem"
    try:
        kept.write_bytes(options.ca.read_bytes())
    except OSError as error:
        raise SpecError(
            Mistake("HW1323", f"the certificate of the authority cannot be read: {error}. --ca names it.")
        ) from None
    kept.chmod(0o644)
    return kept


def _box() -> Box:
    found = os.environ.get(BOX)
    if not found:
        return Box()
    told = json.loads(found)
    return Box(tuple(told["enter"]), told["address"], told["manage"], told["is_apart"])


class _Told:
    """What is shown of a site beside what it holds."""

    def __init__(self, engine: SparkEngine, broker: SiteBroker) -> None:
        self._engine = engine
        self._broker = broker
        self._before: dict[str, tuple[float, int, int]] = {}  # by job: when, taken, given
        self._rates: dict[str, tuple[float, float]] = {}

    def __call__(self) -> Mapping[str, Any]:
        runners = {
            name: {"pid": pid, "memory_bytes": memory, "cpu_s": round(used, 2)}
            for name, (pid, memory, used) in self._engine.usage().items()
        }
        jobs = {}
        for name, running in self._engine.states().items():
            told = running.told
            if told:
                in_rps, out_rps = self._rate(name, int(str(told["taken"])), int(str(told["given"])))
                keys = ("lane", "taken", "given", "lag", "left_out", "set_aside", "attempts", "notes")
                jobs[name] = {
                    **{key: told[key] for key in keys},
                    "query": running.query,
                    "in_rps": in_rps,
                    "out_rps": out_rps,
                }
        return {"broker": self._broker.told, "runners": runners, "jobs": jobs}

    def _rate(self, name: str, taken: int, given: int) -> tuple[float, float]:
        """Return records a second in and out, over a second or so."""
        now_s = time.monotonic()
        before_s, before_taken, before_given = self._before.setdefault(name, (now_s, taken, given))
        passed_s = now_s - before_s
        if passed_s >= 0.5:
            self._before[name] = (now_s, taken, given)
            rates = ((taken - before_taken) / passed_s, (given - before_given) / passed_s)
            self._rates[name] = (max(0.0, round(rates[0], 2)), max(0.0, round(rates[1], 2)))
        return self._rates.get(name, (0.0, 0.0))


class _Says:
    """Says what happens on standard error, or as JSON on standard output."""

    def __init__(self, site: str, as_json: bool) -> None:
        self._site = site
        self._as_json = as_json
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._as_json:
                sys.stdout.write(json.dumps({"event": "said", "site": self._site, "text": text}) + "\n")
                sys.stdout.flush()
            else:
                at = time.strftime("%H:%M:%S")
                sys.stderr.write(f"{at} {self._site}: {plain(text, keep=chr(10))}\n")
                sys.stderr.flush()
