"""Which jobs could be wanted, and what next? Random flows of stages over topics, and random edits of them.

A `Flow` says which stage reads and writes which stream, and, apart from that, which topic stands for each stream.
An edit changes one or the other: streams keep their names when their topics change. So it can be told for any two
flows whether a record should find the same ways through both (`ways`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.plan.jobs import CHANNEL, Job, Topic
from tests.strategies import Dice

__all__ = ["EDITS", "Flow", "Stage", "edited", "make_flow", "owed"]

SITES = ("pi", "fog", "hub", "sky")
INPUT, OUTLET, MIDDLE = "in-", "out-", "t-"  # what the names of streams begin with
MOST_STAGES = 9


@dataclass(frozen=True)
class Stage:
    """A job, of which is said what it reads and writes, and not where that is."""

    name: str
    site: str
    reads: tuple[str, ...]
    writes: str
    code: str = "v0"
    is_run: bool = True


@dataclass(frozen=True)
class Flow:
    """Stages, and the topics of their streams."""

    stages: tuple[Stage, ...]
    topics: Mapping[str, Topic]  # by stream
    made: int = 0  # how many names were given so far

    @property
    def jobs(self) -> dict[str, Job]:
        """Return what is wanted."""
        return {
            one.name: Job(
                one.name,
                "city",
                one.site,
                tuple(self.topics[stream] for stream in one.reads),
                self.topics[one.writes],
                one.code,
                "code:run",
                is_run=one.is_run,
            )
            for one in self.stages
        }

    @property
    def streams(self) -> list[str]:
        """Return the streams that stages use."""
        return sorted({stream for one in self.stages for stream in (*one.reads, one.writes)})

    @property
    def inputs(self) -> list[str]:
        """Return the streams that are fed from outside."""
        return [stream for stream in self.streams if stream.startswith(INPUT)]

    @property
    def running(self) -> Flow:
        """Return the same flow with all stages running."""
        return replace(self, stages=tuple(replace(one, is_run=True) for one in self.stages))

    def readers(self, stream: str) -> list[Stage]:
        """Return the stages that read a stream."""
        return [one for one in self.stages if stream in one.reads]

    def writers(self, stream: str) -> list[Stage]:
        """Return the stages that write a stream."""
        return [one for one in self.stages if one.writes == stream]

    def ways(self, stream: str) -> Counter[str]:
        """Return in how many ways a record of a stream comes to each outlet."""
        if stream.startswith(OUTLET):
            return Counter({stream: 1})
        return sum((self.ways(one.writes) for one in self.readers(stream)), Counter())

    def put(self, old: Stage, *new: Stage) -> Flow:
        """Return the flow with other stages in the place of one."""
        place = self.stages.index(old)
        return replace(self, stages=(*self.stages[:place], *new, *self.stages[place + 1 :]))


def make_flow(dice: Dice) -> Flow:
    """Return a random flow: any graph without circles, with several writers or readers of a topic here and there."""
    flow = Flow((), {})
    unread: list[str] = []
    for _ in range(dice.whole(1, 2)):
        flow, stream = _new_stream(flow, INPUT, dice)
        unread.append(stream)
    while unread and len(flow.stages) < MOST_STAGES - 3:
        reads = tuple(dice.shuffle(unread)[: dice.pick((1, 1, 2))])
        unread = [one for one in unread if one not in reads]
        into = [one for one in unread if one.startswith(MIDDLE)]
        if into and dice.chance(30):
            writes = dice.pick(into)
        else:
            flow, writes = _new_stream(flow, dice.pick((MIDDLE, OUTLET)), dice)
            unread += [writes] if writes.startswith(MIDDLE) else []
        flow = _with_stage(flow, reads, writes, dice)
        if reads[0].startswith(MIDDLE) and dice.chance(20):
            flow, writes = _new_stream(flow, OUTLET, dice)
            flow = _with_stage(flow, reads[:1], writes, dice)
    for stream in unread:
        flow, writes = _new_stream(flow, OUTLET, dice)
        flow = _with_stage(flow, (stream,), writes, dice)
    return flow


def edited(dice: Dice, flow: Flow, edits: Sequence[Callable[[Dice, Flow], Flow]], most: int = 3) -> Flow:
    """Return a flow after some edits."""
    for _ in range(dice.whole(1, most)):
        after = dice.pick(edits)(dice, flow)
        if 0 < len(after.stages) <= MOST_STAGES:
            flow = after
    return flow


def owed(flows: Sequence[Flow], stream: str) -> Counter[str]:
    """Return how often a record of an input must come to each outlet, of flows that were wanted one after the other.

    Left out are outlets that it reaches on another number of ways in some of them. An input that came later is
    owed as much as others, at outlets that were there before: a job that begins reads its topic from the first
    record.
    """
    since = next(number for number, flow in enumerate(flows) if stream in flow.streams)
    ways = [flow.ways(stream) for flow in flows[since:]]
    before = flows[max(0, since - 1)].streams
    return Counter(
        {one: count for one, count in ways[-1].items() if one in before and all(each[one] == count for each in ways)}
    )


def are_left_for_good(flows: Sequence[Flow]) -> bool:
    """Return whether no topic of a user is left and then read again by others, or by a job that has no place there.

    Whoever reads such a topic for the first time reads what others have read there before: that is what the user
    asks for, and no fault.
    """
    inputs = {(stream, flow.topics[stream]) for flow in flows for stream in flow.inputs}
    if len(inputs) > len({stream for stream, _ in inputs}):  # two that came on different ways have one name
        return False
    if not all(_keeps_its_place(flows, name) for name in {name for flow in flows for name in flow.jobs}):
        return False
    names = {topic for flow in flows for stream, topic in flow.topics.items() if stream.startswith(MIDDLE)}
    for topic in (one for one in names if not one.is_channel):
        used = [
            {one.name for one in flow.stages if topic in (flow.topics[stream] for stream in one.reads)}
            for flow in flows
        ]
        places = [number for number, readers in enumerate(used) if readers]
        if not places or places == list(range(places[0], places[-1] + 1)):
            continue
        if any(used[place] != used[places[0]] for place in places):
            return False
    return True


def _keeps_its_place(flows: Sequence[Flow], name: str) -> bool:
    """Return whether a job that goes and comes back finds its place again, each time.

    It does when it reads the same topics of users as before, and nobody took them over when it went; or when it
    reads channels, which are empty whenever somebody begins with them.
    """
    for number in range(1, len(flows) - 1):
        before, gone = flows[number - 1].jobs.get(name), flows[number].jobs
        after = next((flow.jobs[name] for flow in flows[number:] if name in flow.jobs), None)
        if before is None or name in gone or after is None:
            continue
        kinds = {topic.is_channel for topic in (*before.sources, *after.sources)}
        read_before = {topic for job in flows[number - 1].jobs.values() if job.name != name for topic in job.sources}
        taken = {topic for job in gone.values() for topic in job.sources} - read_before
        if kinds == {False} and before.sources == after.sources and taken.isdisjoint(before.sources):
            continue
        return False
    return True


# Edits: each returns another flow, or the same where it does not apply.


def move(dice: Dice, flow: Flow) -> Flow:
    """Let a stage run elsewhere."""
    stage = dice.pick(flow.stages)
    return flow.put(stage, replace(stage, site=dice.pick(SITES)))


def update(dice: Dice, flow: Flow) -> Flow:
    """Let a stage run other code."""
    stage = dice.pick(flow.stages)
    return flow.put(stage, replace(stage, code=f"v{dice.whole(0, 2)}"))


def rewire(dice: Dice, flow: Flow) -> Flow:
    """Let another topic stand for a stream."""
    streams = [one for one in flow.streams if not one.startswith(INPUT)]
    stream = dice.pick(streams)
    return _named(flow, stream, dice)


def split_front(dice: Dice, flow: Flow) -> Flow:
    """Let a new stage read in the place of one, and hand on to it over a new channel."""
    stage = dice.pick(flow.stages)
    taken = tuple(dice.shuffle(list(stage.reads))[: dice.whole(1, len(stage.reads))])
    flow, stream = _new_stream(flow, MIDDLE, dice, is_channel=True)
    flow = _with_stage(flow, taken, stream, dice)
    left = tuple(one for one in stage.reads if one not in taken)
    return flow.put(stage, replace(stage, reads=(*left, stream)))


def split_back(dice: Dice, flow: Flow) -> Flow:
    """Let a new stage write in the place of one, and read from it over a new topic."""
    stage = dice.pick(flow.stages)
    flow, stream = _new_stream(flow, MIDDLE, dice)
    flow = _with_stage(flow, (stream,), stage.writes, dice)
    return flow.put(stage, replace(stage, writes=stream))


def join_front(dice: Dice, flow: Flow) -> Flow:
    """Let a stage read what the one before it read, which goes."""
    found = [(one, two) for one, two in _pairs(flow) if set(one.reads).isdisjoint(two.reads)]
    if not found:
        return flow
    one, two = dice.pick(found)
    reads = tuple(stream for stream in two.reads if stream != one.writes)
    return flow.put(two, replace(two, reads=(*reads, *one.reads))).put(one)


def join_back(dice: Dice, flow: Flow) -> Flow:
    """Let a stage write what the one after it wrote, which goes."""
    found = [(one, two) for one, two in _pairs(flow) if two.reads == (one.writes,)]
    if not found:
        return flow
    one, two = dice.pick(found)
    return flow.put(one, replace(one, writes=two.writes)).put(two)


def rename(dice: Dice, flow: Flow) -> Flow:
    """Let another job do the same."""
    stage = dice.pick(flow.stages)
    return replace(flow, made=flow.made + 1).put(stage, replace(stage, name=f"job-{flow.made}"))


def stop_or_start(dice: Dice, flow: Flow) -> Flow:
    """Let a stage stop, or run again."""
    stage = dice.pick(flow.stages)
    return flow.put(stage, replace(stage, is_run=not stage.is_run))


def remove(dice: Dice, flow: Flow) -> Flow:
    """Let a stage go."""
    return flow.put(dice.pick(flow.stages))


def add(dice: Dice, flow: Flow) -> Flow:
    """Let a stage come: with an input of its own, or as one more reader."""
    middles = [one for one in flow.streams if one.startswith(MIDDLE)]
    if middles and dice.chance(50):
        flow, writes = _new_stream(flow, OUTLET, dice)
        return _with_stage(flow, (dice.pick(middles),), writes, dice)
    flow, stream = _new_stream(flow, INPUT, dice)
    return _with_stage(flow, (stream,), dice.pick([one for one in flow.streams if not one.startswith(INPUT)]), dice)


EDITS = (
    move, rewire, split_front, join_front, split_back, join_back, rename, stop_or_start, update, remove, add,
)  # fmt: skip


def _pairs(flow: Flow) -> list[tuple[Stage, Stage]]:
    """Return stages of which the first writes for the second, and nobody else does either."""
    found = []
    for stream in flow.streams:
        writers, readers = flow.writers(stream), flow.readers(stream)
        if len(writers) == 1 and len(readers) == 1:
            found.append((writers[0], readers[0]))
    return found


def _new_stream(flow: Flow, kind: str, dice: Dice, is_channel: bool = False) -> tuple[Flow, str]:
    stream = f"{kind}{flow.made}"
    return _named(replace(flow, made=flow.made + 1), stream, dice, is_channel), stream


def _named(flow: Flow, stream: str, dice: Dice, is_channel: bool = False) -> Flow:
    """Return the flow with another topic for a stream: a channel at some site, or a topic of the user's."""
    if stream.startswith(MIDDLE) and (is_channel or dice.chance(60)):
        topic = Topic(dice.pick(SITES), f"{CHANNEL}city.{stream}")
    else:
        topic = Topic(dice.pick(SITES), f"{stream}.{flow.made}")
    return replace(flow, topics={**flow.topics, stream: topic}, made=flow.made + 1)


def _with_stage(flow: Flow, reads: tuple[str, ...], writes: str, dice: Dice) -> Flow:
    stage = Stage(f"job-{flow.made}", dice.pick(SITES), reads, writes)
    return replace(flow, stages=(*flow.stages, stage), made=flow.made + 1)
