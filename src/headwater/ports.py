"""What must the outside do?

The core decides; these are the hands it acts with. `bind` has the real ones (Spark, Kafka, files), `sim` the
simulated ones, and one suite of tests holds both to what is written here (`tests/contract`). Verbs are
idempotent: done twice is done once, also when the process that asked has died in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headwater.control.readings import Readings
from headwater.plan.jobs import Job, Observed, State, Topic

__all__ = [
    "Broker",
    "Engine",
    "Governor",
    "Journal",
    "Meter",
    "Positions",
    "Record",
    "Running",
    "Shelf",
    "Sites",
]

Positions = Mapping[str, str]  # by source (`Topic.key`): where it goes on, in the engine's own words


@dataclass(frozen=True, slots=True)
class Record:
    """What an agent remembers of a job; written before it acts, so that another agent can finish the act."""

    job: Job
    epoch: int
    is_run: bool  # whether the job is to run here
    is_drained: bool = False
    is_placed: bool = False  # it has not run yet as it is to
    is_going: bool = False  # it is being removed
    is_resting: bool = False  # it is not wanted any more, and its place is kept
    positions: Mapping[str, str] = field(default_factory=dict)  # drained: where its sources go on, also those it left
    seat: Mapping[str, str] = field(default_factory=dict)  # where it begins in sources that it took over, once each
    formerly: tuple[Topic, ...] = ()  # what it wrote before; rows since its last commit may lie there
    brokers: Mapping[str, str] = field(default_factory=dict)  # addresses, by the names that its topics give them


@dataclass(frozen=True, slots=True)
class Running:
    """How a job is, as its engine says."""

    state: State
    query: str = ""  # the engine's own id of what runs: another one means that it was started again
    text: str = ""  # what went wrong
    told: Mapping[str, object] = field(default_factory=dict)  # rates, lag and all else that is only shown


class Engine(Protocol):
    """Runs the jobs of one site.

    A job has a checkpoint from its first start until `remove`. After a crash of anything, `ensure` goes on from
    there: no record is lost, and none is written twice, as far as the job's rows remember their records.

    Raises from every verb: BindError, when the engine refuses; nothing has then changed, or the same call again
    finishes it.
    """

    def ensure(self, record: Record) -> None:
        """Let the job run as its record says, from its checkpoint; the same one that runs already is left alone.

        With another wiring or code, it is stopped and started again: rows that `formerly` holds are not written
        again. With other sources, it must have been drained. A source whose place in `seat` was not taken yet
        begins there; a place is taken once, also over restarts, until the source is left. Any other source that
        is new begins where the job once left it, or at the first record. A place counts only in the topic that it
        was in: one that was removed and made again is read from its first record. Returns when it is started;
        `states` says whether it runs.
        """

    def halt(self, record: Record, is_drain: bool) -> Positions:
        """Stop the job, and return when none of its rows is on the way any more.

        Which rows its sink holds since its last commit is known from then on, even if the sink is emptied.

        Args:
            record: The job; one that does not run is only drained, wired as the record says.
            is_drain: First take all that its topics hold now, write it and commit.

        Returns:
            Where its sources go on; empty unless drained.
        """

    def states(self) -> Mapping[str, Running]:
        """Return how the jobs are that the engine was asked to run, by name."""

    def pack(self, name: str) -> bytes:
        """Return the checkpoint of a job that is stopped, to be taken to another site."""

    def unpack(self, name: str, checkpoint: bytes) -> None:
        """Take a checkpoint in the place of what there is; all of it or nothing."""

    def remove(self, name: str) -> None:
        """Stop the job and forget its checkpoint."""

    def warm(self, job: Job, brokers: Mapping[str, str]) -> None:
        """Be ready to start this job at once; `brokers` has the addresses that it needs, by name."""


class Broker(Protocol):
    """Keeps the records of one site's topics."""

    def ensure_topics(self, names: Iterable[str]) -> None:
        """Make the topics that are not there."""

    def clear_topics(self, names: Iterable[str]) -> None:
        """Remove topics with all that they hold."""

    def ends(self, names: Iterable[str]) -> Mapping[tuple[str, int], int]:
        """Return the offset that the next record of each partition will get."""


class Shelf(Protocol):
    """Where an agent keeps its records; what was put is there after any crash."""

    def get(self, name: str) -> Record | None:
        """Return the record of a job."""

    def put(self, record: Record) -> None:
        """Keep a record in the place of the one before."""

    def remove(self, name: str) -> None:
        """Forget a job."""

    def all(self) -> tuple[Record, ...]:
        """Return all records, by name."""


class Sites(Protocol):
    """All sites, as the coordinator sees and drives them.

    An order whose answer does not come may have been carried out or not. Until the site has spoken again, a job
    that it was told to hold counts as held: else another site could be told the same.

    Raises from every verb but `observe`: BindError, when the site does not answer or refuses.
    """

    def observe(self) -> Observed:
        """Return what all sites hold; of those that do not answer, what they said last."""

    def warm(self, site: str, job: Job) -> None:
        """Let a site be ready to start a job at once."""

    def halt(self, site: str, name: str, epoch: int, is_drain: bool) -> Positions:
        """Stop a job of this epoch, and return where its sources go on if it was drained."""

    def run(self, site: str, job: Job, epoch: int, seat: Positions, take_from: tuple[str, int] | None) -> None:
        """Let a site run a job, or only hold it where the job says so.

        Args:
            site: Where.
            job: As it is wanted.
            epoch: Of the job from then on.
            seat: Where it begins in sources that it takes over.
            take_from: The site that has its checkpoint, and the epoch there.
        """

    def rest(self, site: str, name: str, epoch: int) -> None:
        """Let a site keep a job of this epoch that is not wanted any more, stopped, with its checkpoint."""

    def drop(self, site: str, name: str, epoch: int) -> None:
        """Let a site forget a job of this epoch or an earlier one."""

    def clear(self, topic: Topic) -> None:
        """Empty a channel."""


class Meter(Protocol):
    """Says how operators do."""

    def read(self) -> Readings:
        """Return what was measured of each application that runs, since the call before this one."""


class Governor(Protocol):
    """Limits what applications may use."""

    @property
    def weighs(self) -> bool:
        """Return whether shares are kept to where limits alone allow more than there is."""

    def set(self, limits: Mapping[str, float], shares: Mapping[str, float] | None = None) -> None:
        """Let applications use at most this much processor from now on; others keep their limits.

        A limit is in seconds of work at speed 1 in a second; infinite lifts it. Done twice is done once.

        Args:
            limits: By application.
            shares: What each gets at least when all want more than there is, if it weighs.
        """


class Journal(Protocol):
    """Keeps what was decided."""

    def write(self, entry: Mapping[str, object]) -> bool:
        """Keep an entry of plain values after the others; losing one is no reason to stop.

        Returns:
            Whether the next one will be read without those before it, and should be a beginning.
        """
