"""How does the coordinator see a simulated world?

`SimSites` is the port `Sites` over agents on simulated engines. Agents can be thrown away and made again over
what they leave behind, a site can fall silent, and an answer can get lost after the deed.

    HW4881   a site that does not answer
    HW4882   an answer that got lost
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.errors import BindError
from headwater.plan.jobs import Held, Job, Observed, Topic
from headwater.ports import Positions, Record
from headwater.run.agent import Agent
from headwater.sim.engine import SimEngine
from headwater.sim.world import Fuse, World

__all__ = ["MemoryShelf", "SimSite", "SimSites"]

Found = TypeVar("Found")


@dataclass
class MemoryShelf:
    """The records of one agent."""

    fuse: Fuse
    records: dict[str, Record] = field(default_factory=dict)

    def get(self, name: str) -> Record | None:
        """Return the record of a job."""
        return self.records.get(name)

    def put(self, record: Record) -> None:
        """Keep a record in the place of the one before."""
        self.fuse.burn()
        self.records[record.job.name] = record
        self.fuse.burn()

    def remove(self, name: str) -> None:
        """Forget a job."""
        self.fuse.burn()
        self.records.pop(name, None)
        self.fuse.burn()

    def all(self) -> tuple[Record, ...]:
        """Return all records, by name."""
        return tuple(self.records[name] for name in sorted(self.records))


class SimSite:
    """A site with all that it consists of."""

    def __init__(self, name: str, world: World) -> None:
        """Begin without jobs."""
        self.name = name
        self.engine = SimEngine(name, world)
        self.shelf = MemoryShelf(world.fuse)
        self._broker = world.broker(name)
        self.agent = self._new_agent()
        self.is_silent = False
        self.said: tuple[Held, ...] = ()  # when it was heard of last
        self.asked: dict[str, Held] = {}  # by job: what it was told since, and may have done

    def restart(self) -> None:
        """Let another agent take over; it has not tended its jobs yet."""
        self.agent = self._new_agent()

    def held(self) -> tuple[Held, ...]:
        """Return what the site holds, as far as anybody can know."""
        if not self.is_silent:
            self.said, self.asked = self.agent.held(), {}
        said = {one.job.name: one for one in self.said}
        return tuple({**said, **self.asked}.values())

    def _new_agent(self) -> Agent:
        return Agent(self.name, self.engine, self._broker, self.shelf)


class SimSites:
    """All sites."""

    def __init__(self, world: World, names: Iterable[str]) -> None:
        """Make the sites."""
        self.world = world
        self.by_name = {name: SimSite(name, world) for name in names}
        self.answers_lost: set[int] = set()  # orders, counted from 0, whose answers get lost
        self.orders = 0

    def observe(self) -> Observed:
        """Return what all sites hold; of those that do not answer, what they said last."""
        held = tuple(one for site in self.by_name.values() for one in site.held())
        return Observed(held, frozenset(name for name, site in self.by_name.items() if not site.is_silent))

    def warm(self, site: str, job: Job) -> None:
        """Let a site be ready to start a job at once."""
        self._ask(site, lambda one: one.agent.warm(job, {}))

    def halt(self, site: str, name: str, epoch: int, is_drain: bool) -> Positions:
        """Stop a job of this epoch, and return where its sources go on if it was drained."""
        return self._ask(site, lambda one: one.agent.halt(name, epoch, is_drain))

    def run(self, site: str, job: Job, epoch: int, seat: Positions, take_from: tuple[str, int] | None) -> None:
        """Let a site run a job, or only hold it where the job says so."""
        packed: bytes | None = None
        if take_from is not None:
            holder, of_epoch = take_from
            packed = self._ask(holder, lambda one: one.agent.pack(job.name, of_epoch))
        if not self._site(site).is_silent:
            self._site(site).asked[job.name] = Held(site, job, epoch, job.is_run, "starting", is_said=False)
        take = None if packed is None else lambda: packed
        self._ask(site, lambda one: one.agent.run(job, epoch, seat, take, {}))

    def rest(self, site: str, name: str, epoch: int) -> None:
        """Let a site keep a job that is not wanted any more."""
        self._ask(site, lambda one: one.agent.rest(name, epoch))

    def drop(self, site: str, name: str, epoch: int) -> None:
        """Let a site forget a job of this epoch or an earlier one."""
        self._ask(site, lambda one: one.agent.drop(name, epoch))

    def clear(self, topic: Topic) -> None:
        """Empty a channel."""
        self._ask(topic.broker, lambda one: one.agent.clear(topic))

    def _site(self, name: str) -> SimSite:
        return self.by_name[name]

    def _ask(self, name: str, act: Callable[[SimSite], Found]) -> Found:
        site, number = self._site(name), self.orders
        self.orders += 1
        if site.is_silent:
            raise BindError(f"HW4881 site '{name}' does not answer.")
        self.world.fuse.burn()
        found = act(site)
        self.world.fuse.burn()
        if number in self.answers_lost:
            raise BindError(f"HW4882 the answer of site '{name}' got lost.")
        return found
