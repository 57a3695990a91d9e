"""How does the coordinator of the product act on a simulated plant?

`PlantSites` is the port `Sites` over a `Plant`: an order to run a job places the instance of its name on a
machine, an order to halt takes it off. `steer` lets `run.coordinator.Coordinator` bring a placement about, by the
same diff, order and apply that drive real sites. Jobs on a machine that died are forced, as `headwater move
--force` does: what it held is taken for lost, and what waits for them is in brokers.

    HW4883   a machine that is down
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from headwater.errors import BindError
from headwater.plan.jobs import Held, Job, Observed, Topic
from headwater.ports import Positions
from headwater.run.coordinator import Coordinator
from headwater.sim.plant import Plant

__all__ = ["PlantSites", "steer"]

OUTSIDE = "brokers:9092"  # the topics between simulated operators belong to nobody's site


class PlantSites:
    """All machines of a plant, as the coordinator sees and drives them."""

    def __init__(self, plant: Plant) -> None:
        """Begin with the jobs that are placed."""
        self._plant = plant
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], Held] = {}  # by machine and job
        names, machines = plant.cast.instances, plant.cast.machines
        for name, number in zip(names, plant.machine, strict=True):
            if number >= 0:
                site = machines[int(number)].name
                self._held[site, name] = Held(site, _job(name, site), 1, True, "running")

    def observe(self) -> Observed:
        """Return what all machines hold; of those that are down, what they held last."""
        up = frozenset(one.name for one in self._plant.cast.machines if self._plant.is_up(one.name))
        return Observed(tuple(self._held[key] for key in sorted(self._held)), up)

    def warm(self, site: str, job: Job) -> None:
        """Do nothing: a simulated machine is always warm."""
        self._check(site)

    def halt(self, site: str, name: str, epoch: int, is_drain: bool) -> Positions:
        """Stop a job."""
        self._check(site)
        with self._lock:
            held = self._held.get((site, name))
            if held is not None and held.epoch <= epoch:
                self._held[site, name] = Held(site, held.job, held.epoch, False, "stopped", is_drain)
        return {}

    def run(self, site: str, job: Job, epoch: int, seat: Positions, take_from: tuple[str, int] | None) -> None:
        """Let a machine run a job."""
        self._check(site)
        with self._lock:
            self._held[site, job.name] = Held(site, job, epoch, job.is_run, "running" if job.is_run else "stopped")

    def rest(self, site: str, name: str, epoch: int) -> None:
        """Let a machine keep a job that is not wanted any more, without running it."""
        self._check(site)
        with self._lock:
            held = self._held.get((site, name))
            if held is not None and held.epoch == epoch:
                self._held[site, name] = replace(held, is_run=False, state="stopped", is_resting=True)

    def drop(self, site: str, name: str, epoch: int) -> None:
        """Let a machine forget a job."""
        self._check(site)
        with self._lock:
            held = self._held.get((site, name))
            if held is not None and held.epoch <= epoch:
                del self._held[site, name]

    def clear(self, topic: Topic) -> None:
        """Do nothing: no channel is a machine's own."""

    def placement(self) -> Mapping[str, str]:
        """Return where each job runs that runs."""
        return {name: one.site for name, one in self.observe().owners().items() if one.is_run}

    def _check(self, site: str) -> None:
        if not self._plant.is_up(site):
            raise BindError(f"HW4883 machine '{site}' is down.")


def steer(plant: Plant, placement: Mapping[str, str]) -> tuple[int, tuple[str, ...]]:
    """Bring a placement of instances about; return the number of steps that it took, and what failed."""
    sites = PlantSites(plant)
    there = {name for name, number in zip(plant.cast.instances, plant.machine, strict=True) if number >= 0}
    wanted = {name: _job(name, site) for name, site in placement.items()}
    coordinator = Coordinator(sites, lambda: wanted, lambda: there)
    outcome = coordinator.step()
    plant.place(sites.placement())
    return len(outcome.done), tuple(one.error for one in outcome.failures)


def _job(name: str, site: str) -> Job:
    sources = (Topic(OUTSIDE, f"{name}.in"),)
    return Job(name, "simulated", site, sources, Topic(OUTSIDE, f"{name}.out"), "simulated", name, is_stateful=False)
