"""How does an agent hold the latency goals of its site?

`Holding` lets `run.qos.Holder` take a step every second, in a thread of its own, from what is measured at the site
alone: it needs the controller for nothing. Nothing is limited unless some pipeline or composition at the site has a
goal, from its `headwater.yml` or by `headwater control set-class`. Limits stay when the agent dies; the next one reads
them from the kernel, and from a file what the one before it knew and had counted, and goes on from there.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from headwater.bind import cgroup
from headwater.bind.box import Box
from headwater.bind.cgroup_files import least_cores, own_cores
from headwater.bind.contention import MemoryTraffic, Others
from headwater.bind.engine import SparkEngine
from headwater.bind.highest import Highest
from headwater.bind.hurry import ahead
from headwater.bind.java import HEAP_MB
from headwater.bind.journal import FileJournal
from headwater.bind.limiter import Limiter
from headwater.bind.site_governor import SiteGovernor
from headwater.bind.site_meter import SiteMeter, Work
from headwater.control import mpc
from headwater.control.decision import Decision
from headwater.control.memory import MemoryNeed, bounds
from headwater.control.policies import POLICIES
from headwater.control.record import plain_state, state_of
from headwater.errors import BindError
from headwater.model.quality import LOWEST, MOST_GOAL_S, QUALITIES, Quality, quality_of
from headwater.plan.jobs import Job
from headwater.ports import Record
from headwater.run.qos import Holder, Roster
from headwater.testbed.shares import machine_cores

__all__ = ["Holding", "lift_all"]

EVERY_S = 1.0
# Between two looks before the first decision, and for how long: whoever comes after one that was killed is waited for.
SOON_S, SOON_FOR_S = 0.1, 5.0
ANSWER_S = 0.25  # for runners to say how they are; one that takes longer is counted when it has answered
OLDEST_S = 30.0  # what an earlier agent knew is used if it is not older
LEAST_CORES = 0.15  # of a runner: with less, Java does not answer within seconds
SPARE = 0.97  # of the machine that is handed out
OTHERS_GAIN = 0.3
# Part of the machine that is left to others at most. Whoever takes all that is idle would else take what limits leave
# idle, limits would shrink by it, and so on; above this, the kernel shares by weight.
MOST_OTHERS = 0.3
MEMORY_STEPS = 10  # between two looks at memory
MEMORY_PART = 0.9  # of what is free, for runners
NO_GOAL = {"class": None, "p99_s": None}
NEARLY = 0.92  # of its limit of memory: whoever uses more gets a new limit at once


class Holding:
    """Holds the goals of one site."""

    def __init__(
        self,
        site: str,
        folder: Path,
        instance: str,
        engine: SparkEngine,
        records: Callable[[], Sequence[Record]],
        broker: Callable[[], str],
        box: Box,
        say: Callable[[str], None],
        policy: str = "predictive",
    ) -> None:
        """Take what is measured and limited; `run` begins.

        Args:
            site: Its name.
            folder: Of the agent: goals and decisions are kept there.
            instance: Id of the folder, which names the control groups.
            engine: Runs the jobs.
            records: Gives the jobs that the site holds.
            broker: Address of the site's broker.
            box: What stands for the site.
            say: Is told what happens.
            policy: By which shares are found.
        """
        self._site, self._engine, self._records, self._say = site, engine, records, say
        self._lock = threading.Lock()  # whoever ends it waits until a step is done
        self._file = folder / "goals.json"
        self._own_policy = policy
        self._wishes: dict[str, dict[str, Any]] = {}
        self._policy = policy
        self._told_last: dict[str, Any] | None = _read(self._file)
        self._take(self._told_last)
        self._declared: dict[str, dict[str, Any]] = {}  # by code: what the project says
        hierarchy = cgroup.find()
        self._limiter = _limiter(instance, hierarchy, say, box.group)
        self._cores = _cores(hierarchy, box)
        self._is_apart = bool(box.group)
        self._governor = SiteGovernor(self._limiter, self._cores, LEAST_CORES)
        self._traffic = MemoryTraffic()
        self._kept = folder / "held.json"
        kept = _recent(self._kept)
        self._meter = SiteMeter(
            site, self._crew, broker, self._limiter, self._traffic, known=_mapping(kept.get("counted"))
        )
        # Where weights are nice values, what runs at a lower priority are runners.
        self._others, self._others_cores = Others(counts_nice=self._limiter.is_nice), 0.0
        self._roster = Roster(least=LEAST_CORES)
        self._journal = FileJournal(folder / "decisions.jsonl", say)
        self._holder = self._begun(_known(kept) if kept.get("policy") == self._policy else None)
        self._jobs: Mapping[str, Sequence[Job]] = {}  # that are to run here, by composition
        self._works: Mapping[str, Work] = {}
        self._leaders: dict[str, int] = {}  # by runner: the process that said something last
        self._decision: Decision | None = None
        self._gave_way: tuple[str, ...] = ()
        self._is_on = self._is_swept = self._is_spoiled = False
        self._trouble = ""
        self._because: dict[str, str] = {}  # of memory, by runner
        self._highest = Highest(_mapping(_read(self._kept).get("memory")))  # it forgets by itself what is too old
        self.begun = threading.Event()  # the first decision was made, or there is none to make at once

    def run(self, stop: threading.Event) -> None:
        """Take a step every second until stopped; limits stay."""
        ahead()
        next_s = time.monotonic()
        soon_s = next_s + SOON_FOR_S
        while not stop.is_set():
            try:
                with self._lock:
                    if self._is_spoiled:
                        self._holder, self._is_spoiled = self._begun(), False
                    self._step()
                self._trouble = ""
            except Exception as error:  # noqa: BLE001 - runs as long as the agent does, whatever the outside does
                if not isinstance(error, (BindError, OSError)):  # what is remembered may be the reason
                    self._is_spoiled = True
                if str(error) != self._trouble:
                    self._trouble = str(error)
                    self._say(f"latency goals: {str(error) or type(error).__name__}")
            is_soon = self._is_on and bool(self._works) and self._decision is None and next_s < soon_s
            if not is_soon:
                self.begun.set()
            next_s = max(next_s + (SOON_S if is_soon else EVERY_S), time.monotonic())
            stop.wait(max(0.0, next_s - time.monotonic()))
        self._meter.close()
        self._limiter.close()

    def end(self) -> None:
        """Lift all limits, so that runners can end as fast as they can."""
        with self._lock:
            self._limiter.end()
            self._kept.unlink(missing_ok=True)

    def wish(self, told: Mapping[str, Any]) -> None:
        """Take what the controller wants: the goals that were set by `headwater control set-class`, and a policy."""
        found = {"goals": told.get("goals", {}), "policy": told.get("policy")}
        if found == self._told_last:
            return
        self._take(found)
        try:
            _replace(self._file, json.dumps(found, sort_keys=True))
        except OSError as error:  # it is held, and tried again with the next report
            if self._told_last is not None:
                self._say(f"latency goals: what is wanted cannot be written down: {error}")
            self._told_last = None
        else:
            self._told_last = found

    def _take(self, told: Mapping[str, Any]) -> None:
        goals = _mapping(told.get("goals")).items()
        self._wishes = {str(name): wish for name, one in goals if (wish := _wish(_mapping(one)))}
        policy = told.get("policy")
        self._policy = policy if isinstance(policy, str) and policy in POLICIES else self._own_policy

    def _begun(self, known: mpc.State | None = None) -> Holder:
        shares = {name: one.cores for name, one in self._limiter.limits().items() if one.cores is not None}
        return Holder(
            self._meter, self._governor, lambda: self._roster, self._capacity, self._policy, self._journal, shares,
            known=known, is_there=lambda name: name in self._engine.crew(),
        )  # fmt: skip

    @property
    def told(self) -> dict[str, Any]:
        """Return what is shown of it."""
        decision, roster = self._decision, self._roster
        if not self._is_on or decision is None:
            return {"is_on": self._is_on, "how": self._limiter.how, "policy": self._holder.policy, "runners": {}}
        rows = {}
        for name in decision.names:
            quality = roster.qualities.get(name, LOWEST)
            row = decision.row(name)
            row["late_s"] = row["late_s"] or math.inf  # nothing was measured, which is not the same as no time
            cores = self._governor.limit_of(name).cores  # as it is set: runners that start are not limited yet
            row["limit"] = math.inf if cores is None else cores
            rows[name] = {
                "class": quality.name,
                **{key: _rounded(row[key]) for key in ("goal_s", "late_s", "predicted_s", "share", "limit", "demand",
                                                      "rate_rps", "queue")},
                "because": row["because"],
                "memory": self._because.get(name, ""),
            }  # fmt: skip
        return {
            "is_on": True,
            "how": self._limiter.how,
            "policy": self._holder.policy,
            "at_s": round(decision.now_s, 3),
            "capacity": _rounded(decision.capacity),
            "because": decision.because,
            "counters": self._traffic.because,
            "nonsense": self._holder.nonsense,
            "steps": self._holder.steps,
            "gives_way": [{**asdict(one), "because": str(one)} for one in decision.gives_way],
            "runners": rows,
        }

    def _step(self) -> None:
        self._jobs = self._wanted()
        self._roster = self._asked()
        crew = self._engine.crew().keys()
        if not self._roster.qualities:  # nothing is asked, measured or limited then
            self._stop_holding(crew)
            return
        self._works = self._found()
        self._governor.loosen(name for name, work in self._works.items() if self._is_starting(name, work))
        self._governor.forget(crew)
        if not self._is_on:
            self._is_on = True
            self._say(f"latency goals: held by {self._limiter.how}, {self._holder.policy}")
        if self._policy != self._holder.policy:
            self._holder = self._begun()
            self._say(f"latency goals: held by {self._limiter.how}, {self._holder.policy}")
        decision = self._holder.step(time.time())
        self._highest.take(self._meter.memory_bytes, time.monotonic())
        if self._is_memory_due(decision):
            self._bound_memory(decision)
        if decision is None:
            return
        self._decision = decision
        self._keep()
        self._sweep()
        gave_way = tuple(str(one.quality) for one in decision.gives_way)
        if gave_way != self._gave_way:
            self._gave_way = gave_way
            for one in decision.gives_way:
                self._say(f"latency goals: {one}")

    def _stop_holding(self, crew: Collection[str]) -> None:
        """Lift the limits of runners, but for those of an earlier agent that are not taken over yet."""
        self._governor.lift(self._limiter.limits().keys() & crew)
        self._governor.forget(crew)
        self._sweep()
        self._engine.fetch_bytes = {}
        if self._is_on:
            self._is_on, self._decision = False, None
            self._kept.unlink(missing_ok=True)
            self._say("latency goals: nobody has one any more; nothing is limited")

    def _sweep(self) -> None:
        """Lift, once, what an earlier agent has set elsewhere: by now, whoever is to be limited is so here."""
        if not self._is_swept:
            self._is_swept = True
            held = self._limiter.limits().keys()
            leaders = {name: pid for name, (pid, _) in self._engine.crew().items() if pid is not None}
            self._limiter.sweep({name: pid for name, pid in leaders.items() if name not in held})

    def _is_starting(self, name: str, work: Work) -> bool:
        """Return whether a runner is on its way: one that this agent knew by another process, or a job of it."""
        is_new = work.said_s is None and self._leaders.get(name, work.leader) != work.leader
        if work.said_s is not None:
            self._leaders[name] = work.leader
        return is_new or work.is_starting

    def _keep(self) -> None:
        """Write down what the next agent needs to go on at once; losing it costs that one a second."""
        known = self._holder.known
        kept = {
            "at_s": time.time(),
            "policy": self._holder.policy,
            "counted": self._meter.known,
            "memory": self._highest.known,
            "known": None if known is None else plain_state(known),
        }
        with contextlib.suppress(OSError):
            _replace(self._kept, json.dumps(kept))

    def _wanted(self) -> dict[str, list[Job]]:
        """Return the jobs that are to run, by composition."""
        jobs: dict[str, list[Job]] = {}
        for record in self._records():
            if record.is_run and record.job.is_run and not record.is_drained:
                jobs.setdefault(record.job.composition, []).append(record.job)
        return jobs

    def _found(self) -> dict[str, Work]:
        """Return what runs, by composition."""
        jobs = self._jobs
        answers = self._engine.answers(ANSWER_S)
        return {
            name: Work(pid, tuple(jobs.get(name, ())), *answers.get(name, (None, {})))
            for name, (pid, _) in self._engine.crew().items()
            if pid is not None
        }

    def _crew(self) -> Mapping[str, Work]:
        return self._works

    def _asked(self) -> Roster:
        """Return what runners are held to: as was set, else as their project says; the same one if nothing changed.

        Whoever is to run counts before its runner is there: a moment without the only one that has a goal is no reason
        to lift the limits of the others.
        """
        wishes = self._wishes
        codes = {name: next((job.code for job in jobs if job.part), "") for name, jobs in self._jobs.items()}
        codes |= {name: code for name, (_, code) in self._engine.crew().items()}
        qualities: dict[str, Quality] = {}
        for name, code in codes.items():
            wish = wishes.get(name) or self._declares(code)
            if wish.get("class") is not None or wish.get("p99_s") is not None:
                known = wish.get("class") if wish.get("class") in QUALITIES else None
                qualities[name] = quality_of(known, wish.get("p99_s"))
        most = dict.fromkeys(codes, self._cores)
        if (qualities, most) == (self._roster.qualities, self._roster.most):
            return self._roster
        return Roster(qualities, LEAST_CORES, most)

    def _declares(self, code: str) -> dict[str, Any]:
        """Return the goal in a pipeline's project, as far as it can be held; it came with an upload."""
        if code and code not in self._declared:
            try:
                text = self._engine.read_of(code).read_bytes()
            except OSError:  # it is not there yet
                return {}
            found: dict[str, Any] = {}
            with contextlib.suppress(ValueError, RecursionError):
                goals = _mapping(_mapping(json.loads(text)).get("goals"))
                found = _wish({"class": goals.get("quality"), "p99_s": goals.get("p99_s")})
            self._declared[code] = found
        return self._declared.get(code, {})

    def _capacity(self) -> float:
        """Return what is there for all runners that are held: the machine, without what others use of it."""
        if self._is_apart:  # a testbed's box is the site's alone, but for its broker
            return SPARE * self._cores
        # Runners on their way, and those that nobody can measure, are not held: what they use, the others cannot have.
        held = () if self._decision is None else self._decision.names
        ours = {*held, *(name for name, work in self._works.items() if work.is_settled)}
        used = self._others.others_cores(time.monotonic(), self._meter.used_s, ours)
        used = max(0.0, used - ((os.cpu_count() or 1) - self._cores))  # they have what this site may not use first
        self._others_cores += OTHERS_GAIN * (used - self._others_cores)
        return SPARE * self._cores - min(self._others_cores, MOST_OTHERS * self._cores)

    def _is_memory_due(self, decision: Decision | None) -> bool:
        """Return whether limits of memory are to be found anew: at times, for a new runner, and before one is full."""
        if decision is not None and self._holder.steps % MEMORY_STEPS == 1:
            return True
        if not self._because.keys() >= self._works.keys():
            return True
        limits = {name: self._governor.limit_of(name).memory_bytes for name in self._works}
        return any(
            limit is not None and self._meter.memory_bytes.get(name, 0) > NEARLY * limit
            for name, limit in limits.items()
        )

    def _bound_memory(self, decision: Decision | None) -> None:
        usage = {name: one for name, one in self._limiter.usage().items() if name in self._works}
        free = psutil.virtual_memory().available + sum(one.memory_bytes for one in usage.values())
        self._highest.take({name: one.memory_bytes for name, one in usage.items()}, time.monotonic())
        rates = {} if decision is None else dict(zip(decision.names, decision.rate_rps.tolist(), strict=True))
        sizes = self._meter.record_bytes
        needs = [
            MemoryNeed(name, HEAP_MB, self._highest.of(name), self._roster.qualities.get(name, LOWEST).weight,
                       rates.get(name, 0.0), sizes.get(name), self._roster.qualities.get(name, LOWEST).goal_s)
            for name in usage
        ]  # fmt: skip
        found = bounds(needs, None if self._holder.policy == "equal" else MEMORY_PART * free)
        self._because = {one.name: one.because for one in found}
        fetch = {one.name: one.buffer_bytes for one in found if one.name in rates and one.name in sizes}
        before = {name: size for name, size in self._engine.fetch_bytes.items() if name in usage}
        self._engine.fetch_bytes = {**before, **fetch}
        self._governor.bound({one.name: one.limit_bytes for one in found})


def lift_all(instance: str) -> None:
    """Lift the limits that an agent has left which is not there any more, and let go of its control groups.

    Raises:
        BindError: HW4802 or HW4804, a control group does not go away.
    """
    limiter = _limiter(instance, cgroup.find(), lambda _: None)
    limiter.end()
    limiter.close()


def _limiter(instance: str, hierarchy: cgroup.Hierarchy | None, say: Callable[[str], None], group: str = "") -> Limiter:
    return Limiter(f"site-{instance[:12]}", hierarchy, say, group)


def _cores(hierarchy: cgroup.Hierarchy | None, box: Box) -> float:
    """Return how many cores the site has: those of its box, or what the group that the agent is in may use."""
    with contextlib.suppress(OSError, ValueError):
        if box.group and hierarchy is not None:
            found = least_cores(hierarchy.version, hierarchy.cpu / box.group)
        else:
            found = own_cores(cgroup.ROOT, cgroup.TOLD)
        return min(found or math.inf, machine_cores())
    return machine_cores()


def _read(file: Path) -> dict[str, Any]:
    """Return what an earlier agent wrote."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        return _mapping(json.loads(file.read_text("utf-8")))
    return {}


def _wish(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return a goal that can be held, of one that was told: a class by its name, a time."""
    quality, p99_s = told.get("class"), told.get("p99_s")
    is_time = isinstance(p99_s, (int, float)) and not isinstance(p99_s, bool) and 0.0 < p99_s <= MOST_GOAL_S
    found = {"class": quality if isinstance(quality, str) else None, "p99_s": p99_s if is_time else None}
    return found if found != NO_GOAL else {}


def _recent(file: Path) -> dict[str, Any]:
    """Return what an earlier agent wrote a moment ago."""
    found = _read(file)
    at_s = found.get("at_s")
    return found if isinstance(at_s, float) and 0.0 <= time.time() - at_s <= OLDEST_S else {}


def _known(kept: Mapping[str, Any]) -> mpc.State | None:
    """Return what an earlier agent knew, if it can be understood."""
    with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return state_of(kept["known"])
    return None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _replace(file: Path, text: str) -> None:
    passing = file.with_name(f".{file.name}.new")
    passing.write_text(text, "utf-8")
    passing.replace(file)


def _rounded(value: float) -> float | None:
    """Return a number with what counts of it, as JSON can carry it."""
    return float(f"{value:.4g}") if abs(value) < float("inf") else None
