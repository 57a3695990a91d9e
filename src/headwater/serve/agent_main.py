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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater import __version__
from headwater.bind import archive, keyring
from headwater.bind.box import Box
from headwater.bind.broker_files import Access, is_loopback
from headwater.bind.code import Code
from headwater.bind.engine import Ground, SparkEngine
from headwater.bind.hurry import in_line
from headwater.bind.kafka import ExternalBroker, KafkaBroker
from headwater.bind.keys import Keys
from headwater.bind.privilege import DEFAULT
from headwater.bind.process import RunnerProcess, RunnerSpec
from headwater.bind.runner_folders import runner_folders
from headwater.bind.shelf import FileShelf
from headwater.bind.site_broker import SiteBroker
from headwater.errors import BindError, Mistake, SpecError
from headwater.run.agent import Agent
from headwater.serve import control_options
from headwater.serve.agent import AgentLoop, instance
from headwater.serve.holding import Holding, lift_all
from headwater.serve.line import Line, read_token
from headwater.serve.plain import plain
from headwater.serve.reading import fetched_jars, made_archives
from headwater.serve.until import until_told

__all__ = ["BOX", "END", "end_leftovers", "run_agent"]

BOX = "HEADWATER_BOX"  # in the environment: what stands for the site in a testbed, as JSON
END = "end"  # in the state folder: broker and runners end with the agent
DONE = 0
JOIN_S = 5.0  # for the last step of holding goals
FIRST_S = 1.0  # for the first one, before anything else is begun: goals are held before the controller is told anything


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
            tuple(archive.flags(archives.get("spark"))),
            box,
            (options.run_as or DEFAULT) if os.geteuid() == 0 else None,
            folder / "runners.keyring.json",
        )
        engine = SparkEngine(ground, say)
        authority = _authority(options, folder)
        keys = Keys(folder / "keyring.json", folder / "runners.keyring.json", authority, lambda: engine.owner)
        if access is not None:
            keys.add({broker.address: access.password, broker.address_between: access.password})
        shelf = FileShelf(folder / "shelf", say)
        agent = Agent(options.site, engine, broker, shelf)
        in_line()  # a broker that has to be started is not ahead of anybody
        broker.up()
        adopted = engine.adopt(shelf.all())
        (folder / "agent.json").write_text(json.dumps({"pid": os.getpid(), "broker": broker.address}), "utf-8")
        say(f"agent of site '{options.site}' is up: broker at {broker.address}, {adopted} runners adopted")
        watch = threading.Thread(target=broker.keep, args=(stop,), name="broker", daemon=True)
        watch.start()
        holding = Holding(
            options.site, folder, own, engine, shelf.all, lambda: broker.address, box, say, options.control
        )
        hold = threading.Thread(target=holding.run, args=(stop,), name="goals", daemon=True)
        hold.start()
        holding.begun.wait(FIRST_S)
        told = _Told(engine, broker, holding)
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
            holding.wish,
        ).run(stop)
        watch.join()
        hold.join(JOIN_S)
        if (folder / END).exists():
            say("ending runners and broker")
            try:
                holding.end()
            except BindError as error:
                say(f"limits could not be lifted: {error}")
            engine.end()
            broker.end()
            (folder / END).unlink()
        (folder / "agent.json").unlink(missing_ok=True)
    return DONE


def end_leftovers(folder: Path, say: Callable[[str], None] = lambda _: None) -> int:
    """End runners and a broker that are left in an agent's folder without an agent; return how many there were.

    Args:
        folder: Of the agent.
        say: Hears what could not be ended; that keeps nothing else from being ended.
    """
    count = 0
    with _saying(say), instance(folder) as own:
        jars = fetched_jars()
        with _saying(say):
            lift_all(own)
        for one in runner_folders(folder):  # with whatever the user in it has left there
            with _saying(say):
                process = RunnerProcess(RunnerSpec("", one, "", None, jars.spark, {}, 0, 0.0, is_detached=True))
                count += process.is_left
                process.adopt()  # one that answers ends in order, and any other is killed
                process.end()
        with _saying(say):
            broker = KafkaBroker("", folder / "broker", jars, is_detached=True)
            count += broker.adopt()
            broker.stop()  # also one with other settings than these, which is not adopted
        (folder / END).unlink(missing_ok=True)
        (folder / "agent.json").unlink(missing_ok=True)
    return count


@contextlib.contextmanager
def _saying(say: Callable[[str], None]) -> Iterator[None]:
    """Tell what goes wrong inside, and go on behind it."""
    try:
        yield
    except (BindError, OSError) as error:
        say(str(error))


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
        flags=archive.flags(archives.get("kafka")),
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
    return Box(tuple(told["enter"]), told["address"], told["manage"], told["is_apart"], told.get("group", ""))


class _Told:
    """What is shown of a site beside what it holds."""

    def __init__(self, engine: SparkEngine, broker: SiteBroker, holding: Holding) -> None:
        self._engine = engine
        self._holding = holding
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
        return {"broker": self._broker.told, "runners": runners, "jobs": jobs, "goals": self._holding.told}

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
