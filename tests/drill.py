"""How is a coordinator tried out in a simulated world, with all the bad luck there is?

A `Drill` brings a world from one wanted set to the next, feeds records all the while, and lets things die. What
it feeds and how far jobs come meanwhile follows from its seed. `settle` ends the bad luck and brings everything
to its end, and `verdict` says whether all is as it should be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from random import Random

from headwater.plan.jobs import Job, Topic
from headwater.plan.steps import Step
from headwater.run.apply import Done, Outcome, apply
from headwater.run.coordinator import make_plan
from headwater.sim.sites import SimSites
from headwater.sim.world import OUTSIDE, Crash, World
from tests.flows import OUTLET, SITES, Flow, owed

__all__ = ["Drill", "in_another_order", "verdict"]

MOST_ROUNDS = 12  # after which a world without bad luck is as it is wanted, or never will be


class Drill:
    """A world under a coordinator."""

    def __init__(self, seed: int) -> None:
        """Make a world with nothing in it."""
        self.world = World()
        self.sites = SimSites(self.world, SITES)
        self.rng = Random(seed)
        self.inputs: set[Topic] = set()
        self.fed = 0
        self.forced: Collection[str] = ()
        self._steps_left: int | None = None

    def want(self, flow: Flow) -> dict[str, Job]:
        """Let a flow be wanted: from now on its inputs are fed."""
        self.inputs |= {flow.topics[stream] for stream in flow.inputs}
        return flow.jobs

    def live(self) -> None:
        """Let some time pass."""
        for _ in range(self.rng.choice((0, 0, 1, 3))):
            topic = self.rng.choice(sorted(self.inputs))
            self.world.feed(topic, [f"{topic.name.partition('.')[0]}/{self.rng.choice('ab')}#{self.fed}"])
            self.fed += 1
        for _ in range(self.rng.choice((0, 2, 10))):
            self.rng.choice(list(self.sites.by_name.values())).engine.advance(self.rng)

    def step(self, wanted: Mapping[str, Job]) -> Outcome:
        """Do what a coordinator does, one step after the other, in one of the orders that are allowed."""
        plan = make_plan(wanted, self.sites.observe(), self.forced)
        return apply(in_another_order(plan.steps, self.rng), plan.observed, self.sites, self._done, at_once=1)

    def suffer(self, wanted: Mapping[str, Job], effects: int | None, steps: int | None) -> bool:
        """Step, and die after so many effects or steps; return whether it came to that."""
        if effects is not None:
            self.world.fuse.light(effects)
        self._steps_left = steps
        try:
            self.step(wanted)
        except Crash:
            has_died = True
        else:
            has_died = False
        self.world.fuse.put_out()
        self._steps_left = None
        if has_died:
            self.rise()
        return has_died

    def rise(self) -> None:
        """Go on after a crash: agents are new, some engines were killed too, and some agents take their time."""
        for site in self.sites.by_name.values():
            if self.rng.random() < 0.4:
                site.engine.kill()
            site.restart()
            if self.rng.random() < 0.6:
                site.agent.tend()
            self.live()

    def settle(self, wanted: Mapping[str, Job]) -> int:
        """Let all be as wanted, and all records be taken; return how many steps it took."""
        count = 0
        for _ in range(MOST_ROUNDS):
            for site in self.sites.by_name.values():
                troubles = site.agent.tend()
                assert not troubles, troubles
            outcome = self.step(wanted)
            assert outcome.is_whole, [one.error for one in outcome.done if one.error]
            count += len(outcome.done)
            if not outcome.done:
                break
        assert not make_plan(wanted, self.sites.observe()).steps, "a world without bad luck comes to rest"
        self.drift()
        return count

    def drift(self) -> None:
        """Let the jobs take all that there is."""
        while any([site.engine.advance(self.rng) for site in self.sites.by_name.values()]):
            pass

    def _done(self, done: Done) -> None:
        self.live()
        if self._steps_left is not None:
            if self._steps_left == 0:
                raise Crash
            self._steps_left -= 1


def in_another_order(steps: Sequence[Step], rng: Random) -> tuple[Step, ...]:
    """Return the same steps in another order that their `after` allows."""
    places: dict[int, int] = {}
    found: list[Step] = []
    while len(found) < len(steps):
        ready = [one for one in range(len(steps)) if one not in places and all(x in places for x in steps[one].after)]
        number = rng.choice(ready)
        places[number] = len(found)
        found.append(replace(steps[number], after=tuple(sorted(places[one] for one in steps[number].after))))
    return tuple(found)


def verdict(drill: Drill, wanted: Mapping[str, Job], flows: Sequence[Flow]) -> list[str]:
    """Return all that is not as it should be, of a drill that has settled."""
    faults = list(drill.world.faults)
    faults += _misplaced(drill, wanted)
    faults += _miscounted(drill, wanted)
    faults += _made_twice(drill)
    faults += _undelivered(drill, flows)
    return faults


def _misplaced(drill: Drill, wanted: Mapping[str, Job]) -> list[str]:
    held = [one for one in drill.sites.observe().held if one.job.name in wanted or not one.is_resting]
    found = sorted((one.job.name, one.site) for one in held)
    faults = [] if found == sorted((name, job.site) for name, job in wanted.items()) else [f"held are {found}"]
    for one in held:
        job = wanted.get(one.job.name)
        if job is None or not job.is_same(one.job) or one.is_run != job.is_run:
            faults.append(f"job '{one.job.name}' is held as {one}, wanted as {job}")
        running = drill.world.running.get(one.job.name, set())
        if running != ({one.site} if one.is_run else set()):
            faults.append(f"job '{one.job.name}' is held at {one.site} and runs at {running}")
    return faults


def _miscounted(drill: Drill, wanted: Mapping[str, Job]) -> list[str]:
    faults = []
    for name, job in wanted.items():
        engine = drill.sites.by_name[job.site].engine
        if name not in engine.names:
            continue
        made = Counter(row.key for row in drill.world.written if (row.by, row.life) == (name, engine.life(name)))
        if made != Counter(engine.counts(name)):
            faults.append(f"job '{name}' has counted {engine.counts(name)} and written {made}")
    return faults


def _made_twice(drill: Drill) -> list[str]:
    made = Counter((row.by, row.life, row.made_of) for row in drill.world.written if row.by != OUTSIDE)
    return [f"job '{by}' made {count} rows of record {number}" for (by, _, number), count in made.items() if count > 1]


def _undelivered(drill: Drill, flows: Sequence[Flow]) -> list[str]:
    arrived: Counter[tuple[str, str]] = Counter()
    for broker in drill.world.brokers.values():
        for name, log in broker.topics.items():
            if name.startswith(OUTLET):
                arrived.update((name.partition(".")[0], row.id) for row in log.rows)
    due = {stream: owed(flows, stream) for stream in {one for flow in flows for one in flow.inputs}}
    faults = []
    for row in drill.world.written:
        if row.by == OUTSIDE:
            for outlet, count in due[row.id.partition("/")[0]].items():
                if arrived[outlet, row.id] != count:
                    faults.append(f"record {row.id} came {arrived[outlet, row.id]} times to {outlet}, not {count}")
    return faults
