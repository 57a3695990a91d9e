"""What is there besides the engines: topics, an order of events, and bad luck?

A `World` is all brokers, one count of events, and a `Fuse` that breaks the n-th effect. Nothing in it moves by
itself and nothing is random: whoever holds it says what happens next, so that everything that goes wrong can be
repeated. `sim.engine` runs jobs in it, `sim.sites` is the coordinator's view of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.plan.jobs import Topic

__all__ = ["OUTSIDE", "Crash", "Fuse", "Log", "Row", "SimBroker", "World"]

OUTSIDE = ""  # who wrote the records that no job wrote


class Crash(BaseException):
    """Whoever acted is dead; like a kill -9, it passes every `except` that handles errors."""


class Fuse:
    """Lets a chosen effect be the last one."""

    def __init__(self) -> None:
        """Begin unlit: nothing breaks."""
        self._left: int | None = None

    def light(self, effects: int) -> None:
        """Let so many effects happen, and break at the next one."""
        self._left = effects

    def put_out(self) -> bool:
        """Let nothing break any more; return whether it was still burning."""
        was_burning, self._left = self._left is not None, None
        return was_burning

    def burn(self) -> None:
        """Stand between two effects: called by every simulated part wherever it could die."""
        if self._left is None:
            return
        if self._left == 0:
            self._left = None
            raise Crash
        self._left -= 1


@dataclass(frozen=True, slots=True)
class Row:
    """A record of a topic, with what our headers say of it."""

    number: int  # which event of the world wrote it: no two rows share one
    id: str  # of the record from outside that it was made of, unchanged through all jobs
    by: str  # the job that wrote it
    life: int = 0  # of that job, from its first start to its removal
    log: int = -1  # where the record lies that it was made of, and
    offset: int = -1  # its place there
    made_of: int = -1  # and that record's number

    @property
    def key(self) -> str:
        """Return what a stateful job counts records by."""
        return self.id.rpartition("#")[0]


@dataclass
class Log:
    """What a topic holds from when it is made until it is removed."""

    id: int  # another one, when it is made again
    rows: list[Row] = field(default_factory=list)


@dataclass
class SimBroker:
    """The topics of one site, each of one partition."""

    world: World
    topics: dict[str, Log] = field(default_factory=dict)

    def ensure_topics(self, names: Iterable[str]) -> None:
        """Make the topics that are not there."""
        for name in names:
            self.world.fuse.burn()
            self.log(name)

    def clear_topics(self, names: Iterable[str]) -> None:
        """Remove topics with all that they hold."""
        for name in names:
            self.world.fuse.burn()
            self.topics.pop(name, None)

    def ends(self, names: Iterable[str]) -> Mapping[tuple[str, int], int]:
        """Return the offset that the next record of each partition will get."""
        return {(name, 0): len(self.log(name).rows) for name in names}

    def log(self, name: str) -> Log:
        """Return a topic; it comes into being when it is named."""
        if name not in self.topics:
            self.topics[name] = Log(self.world.tick())
        return self.topics[name]


@dataclass
class World:
    """Everything that outlives a process."""

    fuse: Fuse = field(default_factory=Fuse)
    brokers: dict[str, SimBroker] = field(default_factory=dict)
    written: list[Row] = field(default_factory=list)  # all that was ever written, also where it was removed since
    running: dict[str, set[str]] = field(default_factory=dict)  # by job: the sites whose engines run it
    faults: list[str] = field(default_factory=list)  # what must never happen, and did
    now: int = 0  # the number of the last event

    def broker(self, name: str) -> SimBroker:
        """Return a broker; those of users come into being when they are named."""
        return self.brokers.setdefault(name, SimBroker(self))

    def log(self, topic: Topic) -> Log:
        """Return what a topic is at present."""
        return self.broker(topic.broker).log(topic.name)

    def tick(self) -> int:
        """Let something happen; return its number."""
        self.now += 1
        return self.now

    def write(self, topic: Topic, row: Row) -> None:
        """Add a record to a topic."""
        self.log(topic).rows.append(row)
        self.written.append(row)

    def feed(self, topic: Topic, ids: Iterable[str]) -> None:
        """Write records from outside; an id is 'KEY#NUMBER'."""
        for one in ids:
            self.write(topic, Row(self.tick(), one, OUTSIDE))
