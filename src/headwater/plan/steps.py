"""In which order do the changes happen, so that nothing is lost, nothing comes twice, and it may break off anywhere?

Takes `Changes`, gives `Step`s; each names those that must be done before it, so that all others may happen at
once. There is no way back in them: whoever is cut off observes again, and the difference that is left leads to
the end, also when something else is wanted meanwhile. What the order keeps:

- a job runs at another site only after its site has said that it stopped, and is removed there only after
  the other one runs: never both, never none;
- a reader leaves a topic only after the jobs that wrote it have stopped, and after it has taken what is there;
  they go on elsewhere only afterwards;
- whoever takes over a source first writes down where it will begin, then the one that had it gives it up, and
  only then it runs: a place in a source is always written down, and never counts twice;
- who gets records writes to a topic only when those read it who are to read it from now on: whatever is wanted
  next, no record lies where nobody takes it; of jobs that begin, all start at once but those with the sources;
- a channel that nobody uses is emptied before it is used: what an earlier cut left there was read already.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from headwater.errors import BrokenInvariant
from headwater.plan.diff import Change, Changes
from headwater.plan.halfway import Turn, doubles, fed_again, turns
from headwater.plan.heirs import Place, heirs, leaving
from headwater.plan.jobs import Job, Observed, Topic

__all__ = ["Act", "Step", "order"]

Act = Literal["warm", "clear", "halt", "place", "run", "rest", "drop"]


@dataclass(frozen=True, slots=True)
class Step:
    """One act at one site; doing it twice is doing it once."""

    act: Act  # place: hold it as it is wanted, with its checkpoint and where it begins, and do not run it
    site: str
    job: str  # '' of a topic
    because: str
    epoch: int = 0  # place, run: of the job at this site from then on; halt, rest, drop: of what is meant
    is_drain: bool = False  # halt: after all that the topics hold is taken and written
    wanted: Job | None = None  # place, run, warm
    take_from: str | None = None  # place, run: the site that hands over the checkpoint
    goes_on_from: tuple[tuple[str, Topic], ...] = ()  # place: jobs that it takes over from, each with the source
    topic: Topic | None = None  # clear
    after: tuple[int, ...] = ()  # places in the list of steps that must be done before


@dataclass
class _Steps:
    """Steps as they come together; places are final, what must come before is added."""

    found: list[Step] = field(default_factory=list)
    after: list[set[int]] = field(default_factory=list)

    def add(self, step: Step, *earlier: int | None) -> int:
        self.found.append(step)
        self.after.append({one for one in earlier if one is not None})
        return len(self.found) - 1

    def put_after(self, later: int | None, earlier: int | None) -> None:
        """Let a step wait for another one, unless that would wait for it: jobs that exchange their sources do."""
        if later is not None and earlier is not None and not self._waits(earlier, later):
            self.after[later].add(earlier)

    def _waits(self, one: int, other: int) -> bool:
        seen, waiting = {one}, [one]
        while waiting:
            number = waiting.pop()
            if number == other:
                return True
            waiting.extend(self.after[number] - seen)
            seen |= self.after[number]
        return False


@dataclass
class _Of:
    """The places of the steps of one job, in the order in which they are done."""

    halt: int | None = None
    place: int | None = None
    run: int | None = None
    drop: int | None = None

    @property
    def giving_up(self) -> int | None:
        """Return the step that forgets how the job was before."""
        return next((one for one in (self.place, self.run, self.drop) if one is not None), None)

    @property
    def settling(self) -> int | None:
        """Return the step after which the job holds what it will hold."""
        return self.place if self.run is None else self.run


def order(changes: Changes, observed: Observed) -> tuple[Step, ...]:
    """Return the steps of all changes, in an order in which they may be done one by one."""
    shadows = doubles(changes)
    takes = heirs(changes, shadows)
    givers = {name for taken in takes.values() for name in taken.values()}
    again = fed_again(changes) - shadows
    first = tuple(map(_turned, turns(changes, takes, again, observed)))
    if first:
        return first  # all else follows from how things are then
    steps, of = _Steps(), {}
    shared, placed = _shared(changes), _placed(observed)
    for change in changes.of:
        is_watched = change.after is not None and change.left_sink in shared
        must_drain = change.must_drain or change.job in givers or is_watched
        is_kept = change.rests and change.job not in givers and placed.isdisjoint(_places(change))
        of[change.job] = _of_one(change, steps, takes.get(change.job, {}), must_drain, change.job in again, is_kept)
    _clear(changes, observed, steps, of)
    _writers_stop_first(changes, steps, of)
    _places_are_handed_over(changes, takes, steps, of)
    _readers_start_first(changes, takes, steps, of)
    return _sorted(steps)


def _shared(changes: Changes) -> set[Topic]:
    """Return the topics that several readers leave: who writes one of them must have nothing in hand meanwhile.

    Readers go one by one. If that is cut off, what the writer has in hand would have no place to go that all read.
    """
    left = [topic for change in changes.of for topic in change.leaves]
    return {topic for topic in left if left.count(topic) > 1}


def _placed(observed: Observed) -> set[Place]:
    """Return the sources that jobs were placed in which have not run there yet: they have the places of others."""
    owners = observed.owners().values()
    return {(one.job.composition, topic) for one in owners if one.is_placed for topic in one.job.sources}


def _places(change: Change) -> Iterator[Place]:
    if change.before is not None:
        yield from ((change.before.job.composition, topic) for topic in change.before.job.sources)


def _turned(turn: Turn) -> Step:
    owner = turn.change.before
    assert owner is not None, "a job that turns is held"
    job = replace(owner.job, sink=turn.sink, is_run=False)
    return Step("place", owner.site, turn.change.job, f"its readers are at '{turn.sink}'", owner.epoch, wanted=job)


def _of_one(
    change: Change,
    steps: _Steps,
    takes_over: Mapping[Topic, str],
    must_drain: bool,
    is_fed_again: bool,
    is_kept: bool,
) -> _Of:
    """Add the steps of one job, in their own order."""
    mine, owner, job = _Of(), change.before, change.after
    for one in change.stale:
        steps.add(Step("drop", one.site, change.job, "a copy from before it went elsewhere", one.epoch))
    if change.bucket == "keep":
        return mine
    if owner is not None and not change.is_lost:
        is_down = not owner.is_run and (not must_drain or (owner.is_drained and not is_fed_again))
        if not is_down and (must_drain or takes_over or _is_stopped(change)):
            because = "takes what its topics hold, and stops" if must_drain else "stops where it is"
            mine.halt = steps.add(Step("halt", owner.site, change.job, because, owner.epoch, is_drain=must_drain))
    if job is None:
        assert owner is not None, "a job that is not wanted is held somewhere"
        act: Act = "rest" if is_kept else "drop"
        mine.drop = steps.add(Step(act, owner.site, change.job, change.because, owner.epoch), mine.halt)
        return mine
    if change.bucket == "stop":
        return mine
    epoch, take_from = 1 if owner is None else owner.epoch, None
    if owner is not None and (change.is_lost or owner.site != job.site):
        epoch, take_from = owner.epoch + 1, None if change.is_lost else owner.site
    warm = None
    if take_from is not None:
        warm = steps.add(Step("warm", job.site, change.job, "makes the new place ready", wanted=job))
        steps.put_after(mine.halt, warm)
    run = Step("run", job.site, change.job, change.because, epoch, wanted=job, take_from=take_from)
    if takes_over or not job.is_run:
        names = " and ".join(f"'{name}'" for name in sorted(set(takes_over.values())))
        because = f"goes on where {names} ended" if takes_over else change.because
        taken = tuple((name, topic) for topic, name in takes_over.items())
        place = replace(run, act="place", because=because, wanted=replace(job, is_run=False), goes_on_from=taken)
        mine.place = steps.add(place, mine.halt, warm)
        run = replace(run, take_from=None)
    if job.is_run:
        mine.run = steps.add(run, mine.halt, warm, mine.place)
    if take_from is not None:
        assert owner is not None, "a checkpoint is taken from somebody"
        because = f"it is at '{job.site}' now"
        mine.drop = steps.add(Step("drop", take_from, change.job, because, owner.epoch), mine.settling)
    return mine


def _is_stopped(change: Change) -> bool:
    """Return whether a job must stop before it changes; one that only gets other code is started again at once."""
    owner, job = change.before, change.after
    assert owner is not None, "only a job that is held can be stopped"
    return job is None or not job.is_run or owner.site != job.site or owner.job.topics != job.topics


def _writers_stop_first(changes: Changes, steps: _Steps, of: Mapping[str, _Of]) -> None:
    """Let a topic be drained after its writers have left it, and let them go on only then.

    As long as they are not gone, whoever is cut off sees that the topic is still to be drained; and as long as
    they may come back, a reader that goes keeps its place there. Whoever comes to write the topic waits too: what
    it writes is for others.
    """
    writers: dict[Topic, list[str]] = {}
    newcomers: dict[Topic, list[str]] = {}
    for change in changes.of:
        if change.left_sink is not None:
            writers.setdefault(change.left_sink, []).append(change.job)
        sink = None if change.after is None else change.after.sink
        if sink is not None and (change.before is None or change.before.job.sink != sink):
            newcomers.setdefault(sink, []).append(change.job)
    for change in changes.of:
        halt = of[change.job].halt
        if halt is None or not steps.found[halt].is_drain:
            continue
        for topic in change.leaves:
            for name in (name for name in writers.get(topic, ()) if name != change.job):
                steps.put_after(halt, of[name].halt)
                steps.put_after(of[name].giving_up, halt)
                if change.after is None:
                    steps.put_after(of[change.job].drop, of[name].giving_up)
            for name in newcomers.get(topic, ()):
                steps.put_after(of[name].run, halt)


def _places_are_handed_over(
    changes: Changes, takes: Mapping[str, Mapping[Topic, str]], steps: _Steps, of: Mapping[str, _Of]
) -> None:
    """Let a source pass from one job to another by way of what is written down, never by two that run."""
    compositions = {one.job: one.after.composition for one in changes.of if one.after is not None}
    left = leaving(changes)
    for heir, taken in takes.items():
        for topic, name in taken.items():
            steps.put_after(of[heir].place, of[name].halt)
            for giver in left[compositions[heir], topic]:
                steps.put_after(of[giver.job].giving_up, of[heir].place)
    for change in changes.of:
        if change.after is not None:
            places = ((change.after.composition, topic) for topic in change.after.sources)
            for giver in (one for place in places for one in left.get(place, ()) if one.job != change.job):
                steps.put_after(of[change.job].run, of[giver.job].giving_up)


def _readers_start_first(
    changes: Changes, takes: Mapping[str, Mapping[Topic, str]], steps: _Steps, of: Mapping[str, _Of]
) -> None:
    """Let jobs that get records write to a topic after those read it who come to read it.

    A reader that has nothing in hand passes on what it gets: so its own readers are waited for too.
    """
    readers: dict[Topic, list[Change]] = {}
    dry = _dry(changes)
    for change in changes.of:
        for topic in change.enters:
            readers.setdefault(topic, []).append(change)
    for change in changes.of:
        owner, job = change.before, change.after
        if job is None or job.sink is None or _has_nothing(change, takes, dry):
            continue
        if owner is not None and owner.is_run and owner.job.sink == job.sink and not change.is_lost:
            continue
        waiting, seen = [job.sink], {job.sink}
        while waiting:
            for reader in readers.get(waiting.pop(), ()):
                steps.put_after(of[change.job].run, of[reader.job].settling)
                sink = None if reader.after is None else reader.after.sink
                if sink is not None and sink not in seen and _has_nothing(reader, takes, dry):
                    seen.add(sink)
                    waiting.append(sink)


def _has_nothing(change: Change, takes: Mapping[str, Mapping[Topic, str]], dry: Collection[Topic]) -> bool:
    """Return whether a job begins, and gets no record before one that waits for it."""
    is_new = change.before is None and change.job not in takes
    return is_new and change.after is not None and all(topic in dry for topic in change.after.sources)


def _dry(changes: Changes) -> frozenset[Topic]:
    """Return the topics that only jobs will write that do not write them yet."""
    writing = {one.before.job.sink for one in changes.of if one.before is not None}
    return frozenset(
        one.after.sink for one in changes.of if one.after is not None and one.after.sink is not None
    ) - frozenset(one for one in writing if one is not None)


def _clear(changes: Changes, observed: Observed, steps: _Steps, of: Mapping[str, _Of]) -> None:
    """Let channels that no job uses be emptied before one does."""
    used = {topic for owner in observed.owners().values() if not owner.is_resting for topic in owner.job.topics}
    clears: dict[Topic, int] = {}
    for change in changes.of:
        mine = of[change.job]
        if change.after is None or mine.settling is None:
            continue
        for topic in change.after.topics:
            if topic.is_channel and topic not in used:
                if topic not in clears:
                    because = "nobody uses it yet: what lies there is of an earlier time"
                    clears[topic] = steps.add(Step("clear", topic.broker, "", because, topic=topic))
                steps.put_after(mine.giving_up, clears[topic])


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
