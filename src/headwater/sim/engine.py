"""How would an engine run the jobs of one site?

`SimEngine` keeps what ports.py says of an engine, in the way in which Spark keeps it. A job takes records in the
order of each topic, counts them by key, and writes a row for each. Rows are written at once, but how far it has
come is committed only now and then: a kill loses the rest, and the next start finds in the sink which rows are
there already. A checkpoint is a value, and what replaces it replaces all of it.

    HW4880   other sources, and the job was not drained before
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from random import Random
from typing import Any

from headwater.errors import BindError
from headwater.plan.jobs import Job, Topic
from headwater.ports import Positions, Record, Running
from headwater.sim.world import Row, World

__all__ = ["Checkpoint", "SimEngine"]

COMMITS = 0.2  # of the records, that a commit follows
Place = tuple[int, int]  # where a record lies: the id of a log, and its offset there


@dataclass(frozen=True)
class Checkpoint:
    """What a job knows after any crash."""

    life: int  # which start of a job of this name was its first
    committed: int  # when it was committed last: older rows are accounted for
    positions: Mapping[str, Place] = field(default_factory=dict)  # by source: the next record
    counts: Mapping[str, int] = field(default_factory=dict)  # by key: the state of the job
    taken: Mapping[str, str] = field(default_factory=dict)  # by source: the place that was given and taken
    left: Mapping[str, Place] = field(default_factory=dict)  # by topic that it once read: where it was left
    written: frozenset[Place] = frozenset()  # of which records there were rows when the job was stopped
    is_drained: bool = True  # whether it is between two batches


@dataclass
class _Query:
    """A job that runs; all of it is lost with the engine."""

    record: Record
    number: int
    positions: dict[str, Place]
    counts: dict[str, int]
    written: frozenset[Place]  # rows that are there already


class SimEngine:
    """The jobs of one site."""

    def __init__(self, site: str, world: World) -> None:
        """Begin without jobs."""
        self.site = site
        self._world = world
        self._checkpoints: dict[str, Checkpoint] = {}
        self._queries: dict[str, _Query] = {}

    # The port `Engine`.

    def ensure(self, record: Record) -> None:
        """Let the job run as its record says."""
        query = self._queries.get(record.job.name)
        if query is not None and query.record.job.is_same(record.job):
            return
        if query is not None:
            self._note(query.record.job)
            self._stop(record.job.name)
        self._start(record)

    def halt(self, record: Record, is_drain: bool) -> Positions:
        """Stop the job, drained or not."""
        name = record.job.name
        if not is_drain:
            self._note(record.job)
            self._stop(name)
            return {}
        self.ensure(record)
        while self._take(name, None):
            self._world.fuse.burn()
        self._commit(name, is_drained=True)
        self._stop(name)
        return {key: f"{log}:{offset}" for key, (log, offset) in self._checkpoints[name].positions.items()}

    def states(self) -> Mapping[str, Running]:
        """Return how the jobs are."""
        return {name: Running("running", f"{self.site}-{one.number}") for name, one in self._queries.items()}

    def pack(self, name: str) -> bytes:
        """Return the checkpoint of a stopped job."""
        self._world.fuse.burn()
        found = self._checkpoints.get(name)
        return json.dumps(None if found is None else _object(found)).encode()

    def unpack(self, name: str, checkpoint: bytes) -> None:
        """Take a checkpoint in the place of what there is."""
        found = json.loads(checkpoint)
        self._stop(name)
        self._world.fuse.burn()
        if found is None:
            self._checkpoints.pop(name, None)
        else:
            self._checkpoints[name] = _checkpoint(found)
        self._world.fuse.burn()

    def remove(self, name: str) -> None:
        """Stop the job and forget its checkpoint."""
        self._stop(name)
        self._checkpoints.pop(name, None)
        self._world.fuse.burn()

    def warm(self, job: Job, brokers: Mapping[str, str]) -> None:
        """Do nothing: a simulated engine is always warm."""
        self._world.fuse.burn()

    # What the world does to it.

    def kill(self) -> None:
        """Lose all that is not committed."""
        for name in list(self._queries):
            self._lose(name)

    def advance(self, rng: Random) -> bool:
        """Let some job take a record or commit; return whether any had a record to take."""
        names = sorted(name for name in self._queries if self._waiting(name))
        if not names:
            return False
        name = rng.choice(names)
        self._take(name, rng)
        if rng.random() < COMMITS:
            self._commit(name, is_drained=False)
        return True

    @property
    def names(self) -> frozenset[str]:
        """Return the jobs that have a checkpoint here."""
        return frozenset(self._checkpoints)

    def counts(self, name: str) -> Mapping[str, int]:
        """Return the state of a job, by key, as it runs or as it was committed."""
        query = self._queries.get(name)
        return dict(self._checkpoints[name].counts if query is None else query.counts)

    def life(self, name: str) -> int:
        """Return which life of a job this is: it begins with the first start and ends with the removal."""
        return self._checkpoints[name].life

    # Starting and stopping.

    def _start(self, record: Record) -> None:
        name, job = record.job.name, record.job
        before = self._checkpoints.get(name)
        if before is None:
            before = Checkpoint(self._world.tick(), self._world.now)
        logs = {topic: self._world.log(topic).id for topic in job.topics}
        checkpoint = _seated(before, record, logs)
        self._world.fuse.burn()
        self._checkpoints[name] = checkpoint
        self._world.fuse.burn()
        self._queries[name] = _Query(
            record,
            self._world.tick(),
            dict(checkpoint.positions),
            dict(checkpoint.counts),
            checkpoint.written | self._tail(job, checkpoint),
        )
        sites = self._world.running.setdefault(name, set())
        sites.add(self.site)
        if len(sites) > 1:
            self._world.faults.append(f"job '{name}' runs at {' and '.join(sorted(sites))}")
        self._world.fuse.burn()

    def _stop(self, name: str) -> None:
        self._world.fuse.burn()
        self._lose(name)
        self._world.fuse.burn()

    def _lose(self, name: str) -> None:
        if self._queries.pop(name, None) is not None:
            self._world.running[name].discard(self.site)

    def _note(self, job: Job) -> None:
        """Remember which rows the sink holds, for a start that cannot look there any more."""
        self._world.fuse.burn()
        checkpoint = self._checkpoints.get(job.name)
        if checkpoint is not None:
            written = checkpoint.written | self._tail(job, checkpoint)
            self._checkpoints[job.name] = replace(checkpoint, written=written)

    def _tail(self, job: Job, checkpoint: Checkpoint) -> frozenset[Place]:
        """Return of which records the job's own rows were made that its sink holds since the last commit."""
        rows = () if job.sink is None else self._world.log(job.sink).rows
        return frozenset(
            (row.log, row.offset)
            for row in rows
            if row.by == job.name and row.life == checkpoint.life and row.number > checkpoint.committed
        )

    # Records.

    def _waiting(self, name: str) -> list[Topic]:
        """Return the sources that have a record for a job."""
        query = self._queries[name]
        found = []
        for topic in query.record.job.sources:
            log, (of, offset) = self._world.log(topic), query.positions[topic.key]
            if log.id != of:
                self._world.faults.append(f"topic '{topic}' was removed under job '{name}'")
                query.positions[topic.key] = (log.id, 0)
            elif offset < len(log.rows):
                found.append(topic)
        return found

    def _take(self, name: str, rng: Random | None) -> bool:
        """Let a job take the next record of one of its sources; return whether there was any."""
        waiting = self._waiting(name)
        if not waiting:
            return False
        topic = waiting[0] if rng is None else rng.choice(waiting)
        query, job = self._queries[name], self._queries[name].record.job
        log, offset = place = query.positions[topic.key]
        record = self._world.log(topic).rows[offset]
        query.positions[topic.key] = (log, offset + 1)
        query.counts[record.key] = query.counts.get(record.key, 0) + 1
        if place not in query.written and job.sink is not None:
            life = self._checkpoints[name].life
            self._world.write(job.sink, Row(self._world.tick(), record.id, name, life, log, offset, record.number))
        return True

    def _commit(self, name: str, is_drained: bool) -> None:
        query = self._queries[name]
        self._world.fuse.burn()
        self._checkpoints[name] = replace(
            self._checkpoints[name],
            committed=self._world.now,
            positions=dict(query.positions),
            counts=dict(query.counts),
            written=query.written & _ahead(query),
            is_drained=is_drained,
        )
        self._world.fuse.burn()


def _ahead(query: _Query) -> frozenset[Place]:
    """Return the records with rows that a replay has not come to yet: a commit on the way must not forget them."""
    ends = dict(query.positions.values())
    return frozenset((log, offset) for log, offset in query.written if offset >= ends.get(log, offset + 1))


def _seated(checkpoint: Checkpoint, record: Record, logs: Mapping[Topic, int]) -> Checkpoint:
    """Return the checkpoint of a job that goes on with the sources of its record.

    Args:
        checkpoint: As it was.
        record: Of the job.
        logs: What its topics are at present: a place in a log that is no more is none.

    Raises:
        BindError: HW4880.
    """
    job = record.job
    keys = [topic.key for topic in job.sources]
    if set(keys) != set(checkpoint.positions) and not checkpoint.is_drained:
        raise BindError(
            f"HW4880 job '{job.name}' is to read {', '.join(keys)} instead of "
            f"{', '.join(checkpoint.positions)}, and has records in hand. Halt it with its topics drained first."
        )
    known = {**checkpoint.left, **checkpoint.positions}
    taken = {key: place for key, place in checkpoint.taken.items() if key in keys}
    for key, text in record.seat.items():
        if key in keys and taken.get(key) != text:
            known[key], taken[key] = _place(text), text
    positions = {}
    for topic in job.sources:
        log, offset = known.get(topic.key, (logs[topic], 0))
        positions[topic.key] = (logs[topic], offset if log == logs[topic] else 0)
    left = {key: place for key, place in known.items() if key not in keys}
    return replace(checkpoint, positions=positions, taken=taken, left=left, is_drained=False)


def _place(text: str) -> Place:
    log, _, offset = text.partition(":")
    return int(log), int(offset)


def _object(checkpoint: Checkpoint) -> dict[str, Any]:
    return {**asdict(checkpoint), "written": sorted(checkpoint.written)}


def _checkpoint(found: Mapping[str, Any]) -> Checkpoint:
    places = {of: {key: (log, offset) for key, (log, offset) in found[of].items()} for of in ("positions", "left")}
    return Checkpoint(**{**found, **places, "written": frozenset((log, offset) for log, offset in found["written"])})
