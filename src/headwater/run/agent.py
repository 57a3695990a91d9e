"""How does a site carry out what it is told, and keep it so?

An `Agent` holds the jobs of one site against three ports: an engine, a broker and a shelf. It writes down what
is to be before it acts, so that whoever comes after a crash finishes the act (`tend`). It needs nobody for
that: what it was told last stands until it is told otherwise. An order of an earlier epoch is refused: the job
has gone elsewhere meanwhile.

    HW4931   an order about a job that is not here, or of another epoch
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from headwater.errors import BindError
from headwater.plan.jobs import Held, Job, Topic, job_from
from headwater.ports import Broker, Engine, Positions, Record, Shelf

__all__ = ["Agent", "record_from", "record_object"]

MOST_FORMERLY = 3  # topics that a job wrote before, and whose tails are read at its start
LENGTH_BYTES = 8  # of the number in front of a packed record


class Agent:
    """The jobs of one site."""

    def __init__(self, site: str, engine: Engine, broker: Broker, shelf: Shelf) -> None:
        """Take the ports; `tend` brings the engine to what the shelf says."""
        self.site = site
        self._engine = engine
        self._broker = broker
        self._shelf = shelf
        self._locks: dict[str, threading.RLock] = {}
        self._lock = threading.Lock()

    def run(
        self,
        job: Job,
        epoch: int,
        seat: Positions,
        take: Callable[[], bytes] | None,
        brokers: Mapping[str, str],
    ) -> None:
        """Let a job run here, or stand ready here without running.

        Args:
            job: As it is wanted; where it is not to run, it is held with its checkpoint and its seat.
            epoch: Of the job from now on.
            seat: Where it takes over the sources of other jobs.
            take: Gives what `pack` of another agent gave; None: the checkpoint is here, or there is none.
            brokers: Addresses, by the names that the topics give them.

        Raises:
            BindError: HW4931; or the engine refuses.
        """
        with self._held(job.name):
            before = self._shelf.get(job.name)
            if before is not None and not before.is_going and before.epoch > epoch:
                raise _stale(self.site, job.name, before.epoch, epoch)
            if before is not None and (before.is_going or before.epoch < epoch):
                self._remove(before)
                before = None
            if before is None:
                before = self._taken(job, take)
            elif before.is_run == job.is_run and before.job.is_same(job) and not before.is_resting:  # asked twice
                if before.is_run:
                    self._engine.ensure(before)
                return
            elif before.is_run and not job.is_run:
                self._engine.halt(before, False)
            record = _next(before, job, epoch, seat, brokers)
            self._shelf.put(record)
            if record.is_run:
                self._engine.ensure(record)

    def halt(self, name: str, epoch: int, is_drain: bool) -> Positions:
        """Stop a job; drained, its topics are taken to their ends first, and where they end is returned.

        It counts as stopped when the engine has said so, not before: others act on that.

        Raises:
            BindError: HW4931; or the engine refuses, and the job goes on as before.
        """
        with self._held(name):
            record = self._meant(name, epoch)
            if not record.is_run and not is_drain:
                return {}
            positions = self._engine.halt(record, is_drain)
            positions = {**record.positions, **positions} if is_drain else {}
            stopped = replace(record, is_run=False, is_drained=is_drain, is_placed=False, positions=positions)
            self._shelf.put(stopped)
            return positions

    def pack(self, name: str, epoch: int) -> bytes:
        """Return a stopped job with its checkpoint, for another agent's `run`.

        Raises:
            BindError: HW4931.
        """
        with self._held(name):
            record = self._meant(name, epoch)
            if record.is_run:
                raise _stale(self.site, name, record.epoch, epoch)
            self._engine.halt(record, False)  # an agent that died may have left it draining
            text = json.dumps(record_object(record)).encode()
            return len(text).to_bytes(LENGTH_BYTES, "big") + text + self._engine.pack(name)

    def rest(self, name: str, epoch: int) -> None:
        """Keep a job that is not wanted any more, stopped, with its checkpoint: it goes on there if it comes back.

        Raises:
            BindError: HW4931; or the engine refuses, and the job goes on as before.
        """
        with self._held(name):
            record = self._meant(name, epoch)
            if record.is_run:
                self._engine.halt(record, False)
            self._shelf.put(replace(record, is_run=False, is_resting=True))

    def drop(self, name: str, epoch: int) -> None:
        """Forget a job of this epoch or an earlier one."""
        with self._held(name):
            record = self._shelf.get(name)
            if record is not None and (record.epoch <= epoch or record.is_going):
                self._remove(record)

    def warm(self, job: Job, brokers: Mapping[str, str]) -> None:
        """Be ready to start a job at once."""
        self._engine.warm(job, brokers)

    def clear(self, topic: Topic) -> None:
        """Empty a channel of this site's broker."""
        self._broker.clear_topics([topic.name])

    def held(self) -> tuple[Held, ...]:
        """Return what this site holds."""
        states = self._engine.states()
        found = []
        for record in self._shelf.all():
            if record.is_going:
                continue
            running = states.get(record.job.name)
            state = (
                running.state if running is not None and record.is_run else "starting" if record.is_run else "stopped"
            )
            positions = tuple(sorted(record.positions.items())) if record.is_drained else ()
            text = "" if running is None else running.text
            found.append(
                Held(
                    self.site, record.job, record.epoch, record.is_run, state, record.is_drained, record.is_placed,
                    positions, text, is_resting=record.is_resting,
                )
            )  # fmt: skip
        return tuple(found)

    def tend(self) -> list[str]:
        """Bring the engine to what the shelf says, after a crash of either; return what could not be done."""
        troubles = []
        states = self._engine.states()
        for seen in self._shelf.all():
            with self._held(seen.job.name):
                record = self._shelf.get(seen.job.name)
                if record is None:
                    continue
                try:
                    running = states.get(record.job.name)
                    self._tend_one(record, running is not None and running.state != "stopped")
                except Exception as error:  # noqa: BLE001 - of this one, whatever it is: the others have to run
                    troubles.append(f"job '{record.job.name}': {str(error) or type(error).__name__}")
        return troubles

    def _tend_one(self, record: Record, is_up: bool) -> None:
        if record.is_going:
            self._remove(record)
        elif record.is_run:
            self._engine.ensure(record)
        elif is_up:
            self._engine.halt(record, False)

    def _taken(self, job: Job, take: Callable[[], bytes] | None) -> Record | None:
        """Take the checkpoint from where the job was, or make room for one that begins anew."""
        if take is None:
            self._engine.remove(job.name)
            return None
        packed = take()
        size = int.from_bytes(packed[:LENGTH_BYTES], "big")
        found = record_from(json.loads(packed[LENGTH_BYTES : LENGTH_BYTES + size]))
        if found.job.name != job.name:
            raise BindError(f"HW4931 the checkpoint that came is of '{found.job.name}' and not of '{job.name}'.")
        self._engine.unpack(job.name, packed[LENGTH_BYTES + size :])
        return found

    def _remove(self, record: Record) -> None:
        self._shelf.put(replace(record, is_run=False, is_going=True))
        self._engine.remove(record.job.name)
        self._shelf.remove(record.job.name)

    def _meant(self, name: str, epoch: int) -> Record:
        """Return the record of a job that an order is about."""
        record = self._shelf.get(name)
        if record is None or record.epoch != epoch or record.is_going:
            raise _stale(self.site, name, None if record is None else record.epoch, epoch)
        return record

    @contextmanager
    def _held(self, name: str) -> Iterator[None]:
        """One act at a time for each job."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.RLock())
        with lock:
            yield


def _next(base: Record | None, job: Job, epoch: int, seat: Positions, brokers: Mapping[str, str]) -> Record:
    """Return the record of a job that goes on from another one, or begins."""
    if base is None:  # it has taken nothing, and so is as good as drained
        base = Record(replace(job, sources=()), epoch, False, is_drained=True)
    entered = [topic.key for topic in job.sources if topic not in base.job.sources]
    left = {topic.key for topic in base.job.sources if topic not in job.sources}
    begins = {**{key: base.positions[key] for key in entered if key in base.positions}, **seat}
    is_drained = base.is_drained and not job.is_run
    return Record(
        job,
        epoch,
        job.is_run,
        is_drained,
        is_placed=is_drained and (base.is_placed or bool(entered)),
        positions={**base.positions, **begins} if is_drained else {},
        seat={**{key: place for key, place in base.seat.items() if key not in left}, **begins},
        formerly=_formerly(base, job),
        brokers={**base.brokers, **brokers},
    )


def _formerly(base: Record, job: Job) -> tuple[Topic, ...]:
    """Return the topics, besides its sink, that may hold rows of a job since its last commit."""
    found = [] if base.is_drained else [one for one in base.formerly if one not in (job.sink, base.job.sink)]
    if base.job.sink is not None and base.job.sink != job.sink and not base.is_drained:
        found.append(base.job.sink)
    return tuple(found[-MOST_FORMERLY:])


def record_object(record: Record) -> dict[str, Any]:
    """Return a record as JSON has it."""
    return asdict(record)


def record_from(found: Mapping[str, Any]) -> Record:
    """Return the record of what `record_object` gave."""
    formerly = tuple(Topic(**one) for one in found["formerly"])
    return Record(**{**found, "job": job_from(found["job"]), "formerly": formerly})


def _stale(site: str, name: str, here: int | None, asked: int) -> BindError:
    what = "has no such job" if here is None else f"has it in epoch {here}"
    return BindError(
        f"HW4931 an order about job '{name}' in epoch {asked} came to site '{site}', which {what}: "
        "the job has changed hands meanwhile. Plan again."
    )
