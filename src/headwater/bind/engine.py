"""How does Spark run the jobs of one site?

`SparkEngine` is the engine of the control plane on Spark. Jobs of one composition share a runner, a Spark session in
a process of its own, which outlives the agent and is adopted by the next one. Each job has a folder under `jobs` with
its checkpoint; that folder is what goes to another site when the job moves.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.bind.box import Box
from headwater.bind.code import Code
from headwater.bind.handed_over import pack
from headwater.bind.jars import Jars
from headwater.bind.known_runner import KnownRunner
from headwater.bind.privilege import Identity, hand_over, identity, switched
from headwater.bind.process import RunnerProcess, RunnerSpec
from headwater.bind.runner_folders import folder_of, mark, marked, runner_folders
from headwater.bind.said import STATES, error_of, parts_of, places_of
from headwater.errors import BindError
from headwater.plan.cut import safe
from headwater.plan.jobs import Job
from headwater.ports import Positions, Record, Running

__all__ = ["Ground", "SparkEngine"]

READY_S = 180.0  # a runner that is not ready by then never will be
ASK_S = 120.0
STATUS_WAIT_S = 1.0  # for all runners together
ADOPT_S = 0.3  # for all runners together; whoever was killed is waited for
STATES_S = 0.2  # as long an answer about states is good
DRAIN_S = 150.0
THREADS = 1024  # a real-time query holds its threads for good; a number costs nothing, threads come as they are needed
IDLE_S = 300.0  # as long a runner with nothing to run is kept
MOST_PAUSE_S = 15.0  # before a runner that dies again and again is started again
CALM_S = 60.0  # one that lived this long is started again at once
OUTSIDE = "@"  # what the names of topics begin with that stand for sources that only Spark knows


@dataclass(frozen=True)
class Ground:
    """What the engine of a site stands on."""

    site: str
    folder: Path  # for runners and jobs
    jars: Jars
    broker: Callable[[], str]  # the address of the site's broker, as runners reach it
    code: Code
    flags: tuple[str, ...] = ()  # of Java
    box: Box = field(default_factory=Box)
    user: str | None = None  # that runners run as, where this process is root
    keyring: Path | None = None  # with what brokers beyond this machine ask for


class SparkEngine:
    """The jobs of one site, on Spark."""

    def __init__(self, ground: Ground, say: Callable[[str], None] = lambda _: None) -> None:
        """Take the ground; runners that still run in its folder are taken over when their jobs are ensured."""
        self._ground = ground
        self._say = say
        self._runners: dict[str, KnownRunner] = {}
        self._lock = threading.Lock()
        needs = [ground.folder, *ground.jars.spark[:1]]  # as a runner's start looks at them
        self._trial: Future[Identity] | None = None  # of the rights that runners will have; it takes a moment
        if ground.user is not None:
            switched(ground.user)  # there is such a user
            trying = ThreadPoolExecutor(1)
            self._trial = trying.submit(identity, ground.user, needs)
            trying.shutdown(wait=False)
        self._refused: dict[str, tuple[str, str]] = {}  # by job: the spec that its runner refused, and why
        self._names: dict[tuple[str, str], str] = {}  # by composition and fragment: the job
        self._seen: tuple[float, Mapping[str, Running]] = (-STATES_S, {})  # when, and how the jobs were
        self.fetch_bytes: Mapping[str, int] = {}  # by composition: what its queries fetch at most when they start next

    def ensure(self, record: Record) -> None:
        """Let the job run as its record says."""
        job, request = record.job, self._request(record)
        spec = str(request["spec"])
        if self._refused.get(job.name, ("",))[0] == spec:
            return  # the same code would be refused again
        runner = self._runner(job)
        with runner.lock:
            if runner.specs.get(job.name) == spec and runner.process.is_alive and runner.process.pid == runner.pid:
                return
            self._up(runner)
        if runner.specs.get(job.name) == spec:
            return
        answer = runner.process.ask({"do": "start", **request}, ASK_S)
        runner.forget(_part_id(job))
        if answer.get("ok"):
            runner.specs[job.name] = spec
            self._refused.pop(job.name, None)
        else:
            self._refused[job.name] = (spec, error_of(answer))

    def halt(self, record: Record, is_drain: bool) -> Positions:
        """Stop the job, drained or not."""
        job = record.job
        runner = self._runner(job)
        with runner.lock:
            self._refused.pop(job.name, None)
            if not is_drain and not self._is_up(runner):
                runner.process.kill()  # nothing of it is left that could still write
                return {}
            self._up(runner)
        request = {"do": "halt", "drain": is_drain, **self._request(record)}
        answer = runner.process.ask(request, DRAIN_S)
        runner.specs.pop(job.name, None)
        runner.forget(_part_id(job))
        if not answer.get("ok"):
            raise BindError(error_of(answer))
        return _by_topic(job, *places_of(answer)) if is_drain else {}

    def states(self) -> Mapping[str, Running]:
        """Return how the jobs are; asked a moment ago or now."""
        if time.monotonic() - self._seen[0] > STATES_S:
            self._seen = (time.monotonic(), self._asked())
        return self._seen[1]

    def answers(self, wait_s: float) -> Mapping[str, tuple[float, Mapping[str, Running]]]:
        """Return how the jobs of runners are, by composition, with the time (monotonic) at which each runner said so.

        All runners are asked. One that has little of the processor may take seconds to answer: nobody waits for it
        longer than `wait_s`, it is as it said last, and its answer counts when it comes. One that has never answered
        is left out.
        """
        runners = self._those_up()
        for runner in runners.values():
            runner.ask()
        end_s = time.monotonic() + wait_s
        found: dict[str, tuple[float, Mapping[str, Running]]] = {}
        for composition, runner in runners.items():
            runner.wait(max(0.0, end_s - time.monotonic()))
            said_s, parts = runner.said_s, runner.parts
            if said_s is not None:
                named = ((self._names.get((composition, one["id"])), one) for one in parts)
                jobs = {name: _running(one) for name, one in named if name is not None}
                found[composition] = (said_s, jobs | self._refusals(composition))
        return found

    def _asked(self) -> dict[str, Running]:
        self._end_idle()
        found = {name: one for _, jobs in self.answers(STATUS_WAIT_S).values() for name, one in jobs.items()}
        return found | self._refusals(None)

    def _refusals(self, composition: str | None) -> dict[str, Running]:
        """Return the jobs of a composition, or all, that their runner refused."""
        refused = dict(self._refused)
        if composition is not None:
            own = {name for (of, _), name in list(self._names.items()) if of == composition}
            refused = {name: one for name, one in refused.items() if name in own}
        return {name: Running("failed", text=why) for name, (_, why) in refused.items()}

    def pack(self, name: str) -> bytes:
        """Return the checkpoint of a stopped job.

        Raises:
            BindError: HW4527, it holds what is neither a folder nor a plain file, or cannot be read.
        """
        packed, folder = io.BytesIO(), self._folder(name)
        try:
            with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
                for one in ("checkpoints", "aside"):
                    if (folder / one).is_dir():
                        pack(archive, folder / one, one)
        except OSError as error:
            raise BindError(
                f"HW4527 job '{name}' cannot go elsewhere: '{error.filename}' in its folder cannot be taken along "
                f"({error.strerror or error}). Spark writes nothing but folders and plain files there; remove what "
                "else there is, if it is of no use."
            ) from error
        return packed.getvalue()

    def unpack(self, name: str, checkpoint: bytes) -> None:
        """Take a checkpoint in the place of what there is."""
        folder = self._folder(name)
        passing = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(passing, ignore_errors=True)
        passing.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(checkpoint), mode="r:gz") as archive:
            archive.extractall(passing, filter="data")
        self._hand_over(passing)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(passing, folder)

    def remove(self, name: str) -> None:
        """Stop the job and forget its checkpoint."""
        self._refused.pop(name, None)
        for (composition, part), known in list(self._names.items()):
            if known == name:
                runner = self._runners.get(composition)  # there is none if it ended while nobody looked
                if runner is not None:
                    self._forget(runner, part)
                    runner.specs.pop(name, None)
                del self._names[composition, part]
        shutil.rmtree(self._folder(name), ignore_errors=True)

    def _forget(self, runner: KnownRunner, part: str) -> None:
        """Let a part not run any more."""
        runner.decide()
        if self._is_up(runner):
            runner.process.ask({"do": "forget", "id": part}, ASK_S)
        elif not runner.process.is_alive:
            with runner.lock:
                if not runner.process.is_alive:
                    runner.process.kill()  # one that did not answer may still write

    def warm(self, job: Job, brokers: Mapping[str, str]) -> None:
        """Let the runner of the job be up, and have seen its like."""
        runner = self._runner(job)
        with runner.lock:
            self._up(runner)
        request = self._request(Record(job, 0, False, brokers=brokers))
        answer = runner.process.ask({"do": "warm", **request}, ASK_S)
        if not answer.get("ok"):
            raise BindError(error_of(answer))

    def usage(self) -> Mapping[str, tuple[int | None, int, float]]:
        """Return process id, memory in bytes and processor seconds of each runner, by composition."""
        return {name: (one.process.pid, *one.process.usage()) for name, one in list(self._runners.items())}

    def crew(self) -> Mapping[str, tuple[int | None, str]]:
        """Return process id and code of each runner that is up, by composition."""
        return {name: (one.process.pid, one.code) for name, one in self._those_up().items()}

    def read_of(self, code: str) -> Path:
        """Return the file with what was read of a pipeline's project; nothing is fetched for it."""
        return self._ground.code.read_of(code)

    def log(self, name: str, lines: int) -> str:
        """Return the last lines of what the runner of a job printed."""
        for (composition, _), known in list(self._names.items()):
            if known == name and composition in self._runners:
                return "\n".join(self._runners[composition].process.tail(lines) or ())
        return ""

    def end(self) -> None:
        """End all runners, in order; checkpoints stay."""
        for runner in list(self._runners.values()):
            with runner.lock:
                runner.process.end()
                runner.specs.clear()

    @property
    def owner(self) -> str | None:
        """Return the user that runners run as; None: as this process."""
        return None if self._trial is None else self._trial.result().user

    def kill(self) -> None:
        """Kill all runners, as a crash would."""
        for runner in list(self._runners.values()):
            with runner.lock:
                runner.process.kill()
                runner.begun_s = 0.0

    def adopt(self, records: Iterable[Record] = ()) -> int:
        """Take over the runners that still run from an earlier agent; return how many, so far.

        All at once: each has to answer, and one that has little of the processor takes its time. It is waited for a
        moment only, and taken over when it answers; whoever has to do with its jobs waits longer.

        Args:
            records: Jobs that this site holds: what runners say of their parts is understood by them.
        """
        for record in records:
            self._names[record.job.composition, _part_id(record.job)] = record.job.name
        runners = list(self._found())
        adoptions = [one.adopt(self._say) for one in runners]
        end_s = time.monotonic() + ADOPT_S
        for one in adoptions:
            one.join(max(0.0, end_s - time.monotonic()))
        late = sum(one.is_alive() for one in adoptions)
        if late:
            self._say(f"{late} of {len(adoptions)} runners have not answered yet; they are taken over when they do")
        return sum(one.process.is_alive for one in runners)

    def _found(self) -> Iterator[KnownRunner]:
        """Yield the runners of earlier agents; a folder that is not as it should be keeps none of the others away."""
        for folder in runner_folders(self._ground.folder):
            try:
                yield self._known(*self._marked(folder))
            except Exception as error:  # noqa: BLE001 - an agent starts, whatever lies in a folder that is not its own
                self._say(f"a runner is not taken over: {str(error) or type(error).__name__}")

    def _marked(self, folder: Path) -> tuple[str, str]:
        """Return whose runner is in a folder; where that is not known, nothing of it may run on.

        It would be taken for the runner of its composition, with whatever code it has.
        """
        try:
            return marked(folder)
        except BindError:
            RunnerProcess(self._spec(folder, "")).kill()
            raise

    def _end_idle(self) -> None:
        """End runners that have had nothing to run for a while; for that while they are the warmest place to go to."""
        now_s = time.monotonic()
        for composition, runner in list(self._runners.items()):
            if runner.specs:
                runner.idle_s = None
            elif runner.idle_s is None:
                runner.idle_s = now_s
            elif now_s - runner.idle_s > IDLE_S and runner.lock.acquire(blocking=False):
                try:
                    with self._lock:
                        if runner.specs or runner.idle_s is None:  # somebody came for it
                            continue
                        del self._runners[composition]
                        self._names = {key: name for key, name in self._names.items() if key[0] != composition}
                    runner.process.end()
                    shutil.rmtree(runner.process.spec.folder, ignore_errors=True)
                finally:
                    runner.lock.release()

    def _runner(self, job: Job) -> KnownRunner:
        """Return the runner of a job's composition; a pipeline whose code is another one gets another runner."""
        runner = self._known(job.composition, job.code if job.part else "")
        self._names[job.composition, _part_id(job)] = job.name
        return runner

    def _known(self, composition: str, code: str) -> KnownRunner:
        known = self._runners.get(composition)
        if known is not None:
            known.decide()
        with self._lock:
            runner = self._runners.get(composition)
            if runner is None or runner.code != code:
                if runner is not None:
                    runner.process.end()
                folder = folder_of(self._ground.folder, composition)
                folder.mkdir(parents=True, exist_ok=True)
                mark(folder, composition, code)
                runner = self._runners[composition] = KnownRunner(RunnerProcess(self._spec(folder, code)), code)
            runner.idle_s = None
            return runner

    def _spec(self, folder: Path, code: str) -> RunnerSpec:
        ground = self._ground
        project, read = ground.code.of_pipeline(code) if code else ("", None)
        return RunnerSpec(
            ground.site,
            folder,
            str(project),
            read,
            ground.jars.spark,
            {ground.site: ground.broker()},
            THREADS,
            0.0,
            flags=ground.flags,
            box=ground.box,
            is_detached=True,
            user=ground.user,
            keyring=ground.keyring,
        )

    def _is_up(self, runner: KnownRunner) -> bool:
        return runner.process.is_alive and runner.process.is_listening

    def _those_up(self) -> dict[str, KnownRunner]:
        """Return the runners that are up, by composition."""
        found = {}
        for name, one in list(self._runners.items()):
            try:
                if self._is_up(one):
                    found[name] = one
            except Exception:  # noqa: BLE001 - whatever is odd about one hides no other
                continue
        return found

    def _up(self, runner: KnownRunner) -> None:
        """Let a runner be up: the one that runs, one that ran before this agent came, or a new one."""
        if not self._is_up(runner) and not runner.process.is_alive and not runner.process.adopt():
            lived_s = time.monotonic() - runner.begun_s
            is_calm = runner.begun_s == 0.0 or lived_s > CALM_S
            runner.pause_s = 0.0 if is_calm else min(MOST_PAUSE_S, runner.pause_s * 2 + 0.5)
            if lived_s < runner.pause_s:
                raise BindError(
                    f"HW4523 the runner died a moment ago and is started again soon.{runner.process.last_lines()}"
                )
            runner.begun_s = time.monotonic()
            runner.process.start()
        runner.process.wait_ready(READY_S)
        if runner.process.pid != runner.pid:
            runner.pid = runner.process.pid
            runner.forget()
            runner.specs = dict(self._specs_in(runner))

    def _specs_in(self, runner: KnownRunner) -> Iterator[tuple[str, str]]:
        """Yield what a runner that was taken over runs already."""
        names = {part: name for (_, part), name in self._names.items()}
        for one in parts_of(runner.process.ask({"do": "status"}, ASK_S)):
            if one["id"] in names and one["state"] != "stopped":
                yield names[one["id"]], one["spec"]

    def _folder(self, name: str) -> Path:
        return self._ground.folder / "jobs" / safe(name)

    def _hand_over(self, folder: Path) -> None:
        """Let a folder belong to whoever the runners run as."""
        if (owner := self.owner) is not None:
            hand_over(folder, owner)

    def _request(self, record: Record) -> dict[str, Any]:
        """Return what a runner is told of a job."""
        job = record.job
        brokers = {**record.brokers, self._ground.site: self._ground.broker()}
        used = {topic.broker: brokers.get(topic.broker, topic.broker) for topic in job.topics}
        folder = self._folder(job.name)
        if not folder.exists():
            folder.mkdir(parents=True)
            self._hand_over(folder)
        request: dict[str, Any] = {
            "brokers": brokers,
            "folder": str(folder),
            "writer": job.name,
            "seat": _by_source(record.seat),
            # One that is not the first of its name, and has no checkpoint, was given up elsewhere: what it wrote
            # there tells how far it came.
            "begun_ms": 0 if record.epoch > 1 else int(time.time() * 1000),
            "formerly": [[one.broker, one.name] for one in record.formerly],
            "fetch_bytes": self.fetch_bytes.get(job.composition),
            "spec": _digest([job.code, job.entry, job.part, [str(one) for one in job.topics], used]),
        }
        if job.part:
            request["part"] = {**json.loads(job.part), "site": self._ground.site}
        else:
            assert job.sink is not None, "a job by itself writes a topic"
            request["job"] = {
                "name": job.name,
                "entry": job.entry,
                "code": str(self._ground.code.of_job(job.code, job.entry)),
                "sources": [[one.broker, one.name] for one in job.sources],
                "sink": [job.sink.broker, job.sink.name],
            }
        return request


def _by_topic(job: Job, found: Mapping[str, str], own: Mapping[str, list[str]]) -> dict[str, str]:
    """Return places by the job's topics; what an operator reads from outside is one topic, called after it."""
    places: dict[str, str] = {}
    for topic in job.sources:
        if topic.name.startswith(OUTSIDE):
            held = {key: found[key] for key in own.get(topic.name.removeprefix(OUTSIDE), ()) if key in found}
            places |= {topic.key: json.dumps(held, sort_keys=True)} if held else {}
        elif topic.key in found:
            places[topic.key] = found[topic.key]
    return places


def _by_source(seat: Mapping[str, str]) -> dict[str, str]:
    """Return places by the sources that Spark knows."""
    found: dict[str, str] = {}
    for key, place in seat.items():
        found |= json.loads(place) if key.rpartition("/")[2].startswith(OUTSIDE) else {key: place}
    return found


def _part_id(job: Job) -> str:
    return str(json.loads(job.part)["id"]) if job.part else job.name


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _running(one: Mapping[str, Any]) -> Running:
    text = "" if one["state"] in {"starting", "running"} else one["failure"]
    return Running(STATES[one["state"]], one["query"], text, one)
