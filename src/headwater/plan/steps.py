"""In which order do the changes happen, so that nothing is lost, nothing comes twice, and it may break off anywhere?

Takes `Changes`, gives `Step`s; each names those that must be done before it, so that all others may happen at
once. There is no way back in them: whoever is cut off observes again, and the difference that is left leads to
the same end. What the order keeps:

- a job runs at another site only after its site has said that it stopped, and is removed there only after
  the other one runs: never both, never none;
- a reader leaves a topic only after the jobs that wrote it have left it, and after it has taken what is there;
- whoever takes over a source from another job begins where that one ended, and that one forgets its place
  only afterwards;
- a channel that nobody uses is emptied before it is used: what an earlier cut left there was read already.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from headwater.errors import BrokenInvariant
from headwater.plan.diff import Change, Changes
from headwater.plan.jobs import Job, Observed, Topic

__all__ = ["Act", "Step", "order"]

Act = Literal["warm", "clear", "halt", "run", "drop"]


@dataclass(frozen=True, slots=True)
class Step:
    """One act at one site; doing it twice is doing it once."""

    act: Act
    site: str
    job: str  # '' of a topic
    because: str
    epoch: int = 0  # run: of the job at this site from then on; halt, drop: of what is meant
    is_drain: bool = False  # halt: after all that the topics hold is taken and written
    wanted: Job | None = None  # run, warm
    take_from: str | None = None  # run: the site that hands over the checkpoint
    goes_on_from: tuple[str, ...] = ()  # run: jobs whose sources it takes over
    topic: Topic | None = None  # clear
    after: tuple[int, ...] = ()  # places in the list of steps that must be done before


@dataclass
class _Steps:
    """Steps as they come together; places are final, what must come before is added."""

    found: list[Step] = field(default_factory=list)
    after: list[set[int]] = field(default_factory=list)

    def add(self, step: Step, *earlier: int | None) -> int:
        self.found.append(step)
        self.after.append(set())
        self.put_after(len(self.found) - 1, *earlier)
        return len(self.found) - 1

    def put_after(self, later: int | None, *earlier: int | None) -> None:
        if later is not None:
            self.after[later] |= {one for one in earlier if one is not None and one != later}


@dataclass
class _Of:
    """The places of the steps of one job."""

    halt: int | None = None
    run: int | None = None
    drop: int | None = None

    @property
    def leaving(self) -> int | None:
        """Return the step after which the job writes no more as it did."""
        return next((one for one in (self.halt, self.run, self.drop) if one is not None), None)


def order(changes: Changes, observed: Observed) -> tuple[Step, ...]:
    """Return the steps of all changes, in an order in which they may be done one by one."""
    steps = _Steps()
    owners = observed.owners()
    by_job = {one.job: one for one in changes.of}
    heirs = _heirs(changes)
    left = {name for names in heirs.values() for name in names}
    of = {one.job: _of_one(one, steps, heirs.get(one.job, ()), one.job in left) for one in changes.of}
    _clear(changes, observed, steps, of)
    writers: dict[Topic, list[str]] = {}
    for name, held in owners.items():
        if held.job.sink is not None:
            writers.setdefault(held.job.sink, []).append(name)
    for change in changes.of:
        mine = of[change.job]
        if mine.halt is not None and change.must_drain:
            for topic in change.leaves:
                for name in writers.get(topic, ()):
                    after = by_job[name].after
                    if name != change.job and (after is None or after.sink != topic):
                        steps.put_after(mine.halt, of[name].leaving)
        for name in heirs.get(change.job, ()):  # it takes over from these
            steps.put_after(mine.run, of[name].halt)
            steps.put_after(of[name].run, mine.run)
            steps.put_after(of[name].drop, mine.run)
    return _sorted(steps)


def _of_one(change: Change, steps: _Steps, takes_over: tuple[str, ...], gives_over: bool) -> _Of:
    """Add the steps of one job, in their own order."""
    mine, owner, job = _Of(), change.before, change.after
    cleaned = [
        steps.add(Step("drop", one.site, change.job, "a copy from before it went elsewhere", one.epoch))
        for one in change.stale
    ]
    if change.bucket == "keep":
        return mine
    is_anew = owner is None or (change.bucket == "start" and job is not None and change.enters == job.sources)
    must_drain = change.must_drain or gives_over
    if owner is not None and not is_anew:
        is_down = not owner.is_run and (owner.is_drained or not must_drain)
        leaves_site = job is None or not job.is_run or owner.site != job.site
        if not is_down and (must_drain or leaves_site or takes_over):
            because = "takes what its topics hold, and stops" if must_drain else "stops where it is"
            mine.halt = steps.add(Step("halt", owner.site, change.job, because, owner.epoch, is_drain=must_drain))
    if job is None:
        assert owner is not None, "a job that is not wanted is held somewhere"
        mine.drop = steps.add(Step("drop", owner.site, change.job, change.because, owner.epoch), mine.halt)
        return mine
    if not job.is_run:
        return mine
    epoch, take_from = (1, None) if owner is None else (owner.epoch, None)
    if owner is not None and (owner.site != job.site or is_anew):
        epoch, take_from = owner.epoch + 1, None if is_anew else owner.site
    if take_from is not None:
        warm = steps.add(Step("warm", job.site, change.job, "makes the new place ready", wanted=job))
        steps.put_after(mine.halt, warm)
        cleaned.append(warm)
    run = Step("run", job.site, change.job, change.because, epoch, False, job, take_from, takes_over)
    mine.run = steps.add(run, mine.halt, *cleaned)
    if take_from is not None and owner is not None:
        mine.drop = steps.add(Step("drop", take_from, change.job, f"it is at '{job.site}' now", owner.epoch), mine.run)
    return mine


def _heirs(changes: Changes) -> dict[str, tuple[str, ...]]:
    """Return, by job, the jobs whose sources it takes over: they leave a topic that it comes to read."""
    leaving: dict[tuple[str, Topic], list[str]] = {}
    for change in changes.of:
        if change.before is not None and change.bucket != "keep":
            for topic in change.leaves:
                leaving.setdefault((change.before.job.composition, topic), []).append(change.job)
    found = {}
    for change in changes.of:
        if change.after is None or change.bucket == "keep" or not change.after.is_run:
            continue
        taken: set[str] = set()
        for topic in change.enters:
            if not topic.is_channel:
                taken.update(leaving.get((change.after.composition, topic), ()))
        taken.discard(change.job)
        if taken:
            found[change.job] = tuple(sorted(taken))
    return found


def _clear(changes: Changes, observed: Observed, steps: _Steps, of: Mapping[str, _Of]) -> None:
    """Let channels that no site's jobs use be emptied before a job uses them."""
    used = {topic for one in observed.held for topic in one.job.topics}
    clears: dict[Topic, int] = {}
    for change in changes.of:
        if change.after is None or of[change.job].run is None:
            continue
        for topic in change.after.topics:
            if topic.is_channel and topic not in used:
                if topic not in clears:
                    because = "nobody uses it yet: what lies there is of an earlier time"
                    clears[topic] = steps.add(Step("clear", topic.broker, "", because, topic=topic))
                steps.put_after(of[change.job].run, clears[topic])


def _sorted(steps: _Steps) -> tuple[Step, ...]:
    """Return the steps so that each comes after those that it waits for; else as they were added."""
    waits = {number: len(earlier) for number, earlier in enumerate(steps.after)}
    later: dict[int, list[int]] = {}
    for number, earlier in enumerate(steps.after):
        for one in earlier:
            later.setdefault(one, []).append(number)
    ready = [number for number, count in waits.items() if count == 0]
    heapq.heapify(ready)
    placed: dict[int, int] = {}
    result: list[Step] = []
    while ready:
        number = heapq.heappop(ready)
        placed[number] = len(result)
        after = tuple(sorted(placed[one] for one in steps.after[number]))
        result.append(replace(steps.found[number], after=after))
        for one in later.get(number, ()):
            waits[one] -= 1
            if waits[one] == 0:
                heapq.heappush(ready, one)
    if len(result) != len(steps.found):
        raise BrokenInvariant("HW9502 steps wait for each other in a circle")
    return tuple(result)
