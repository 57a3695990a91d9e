"""What did a plan that was cut off leave half done, and what does that ask of the next one?

Whoever is cut off and then wants the same goes on where things stand. When something else is wanted meanwhile,
jobs may stand between two wirings, and two things need care: `fed_again` finds jobs that were drained too early,
`turns` those that would drain to where nobody reads any more. `plan.steps` asks both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headwater.plan.diff import Change, Changes
from headwater.plan.jobs import Observed, Topic

__all__ = ["Turn", "fed_again", "turns"]


def fed_again(changes: Changes) -> set[str]:
    """Return the jobs whose topics may have got more since they were drained.

    A job that was drained to leave a topic, and then cut off, has its writers still running. If these leave the
    topic too, the job must drain once more. Where two jobs have the same place in a topic, one of which was only
    placed there to go on for the other, one of them drains: the heir, if it has already left another topic to
    do so; else the one that it would go on for; and none, if the heir stays.
    """
    relieved: set[str] = set()
    own: dict[tuple[str, str, str], list[Change]] = {}
    for change in changes.of:
        if change.before is not None and not change.before.is_placed:
            for place in _places(change):
                own.setdefault(place, []).append(change)
    for heir in changes.of:
        if heir.before is not None and heir.before.is_placed:
            left = {topic.key for topic in heir.leaves}
            for place in _places(heir):
                givers = {one.job for one in own.get(place, ())}
                if place[1] not in left or _has_left_another(heir):
                    relieved |= givers
                elif givers:
                    relieved.add(heir.job)
    closing = {change.left_sink for change in changes.of}
    return {one.job for one in changes.of if not closing.isdisjoint(one.leaves)} - relieved


def _places(change: Change) -> Iterator[tuple[str, str, str]]:
    """Yield the places of a drained job in its sources, as its composition shares them."""
    owner = change.before
    if owner is not None:
        keys = {topic.key for topic in owner.job.sources}
        yield from ((owner.job.composition, key, place) for key, place in owner.positions if key in keys)


def _has_left_another(change: Change) -> bool:
    owner = change.before
    return owner is not None and not {key for key, _ in owner.positions} <= {one.key for one in owner.job.sources}


@dataclass(frozen=True, slots=True)
class Turn:
    """A job that must write elsewhere before it drains."""

    change: Change
    sink: Topic


def turns(changes: Changes, takes: Mapping[str, Mapping[Topic, str]], observed: Observed) -> Iterator[Turn]:
    """Yield the jobs that stopped with records in hand, have to drain now, and whose readers have gone ahead.

    Readers go first to where a job is to write. If it is cut off before it follows, what it has in hand must go
    there too, and not to where nobody reads it any more.
    """
    read = {topic for one in observed.owners().values() for topic in one.job.sources}
    givers = {name for taken in takes.values() for name in taken.values()}
    for change in changes.of:
        owner = change.before
        if owner is None or owner.is_run or owner.is_drained or owner.site not in observed.reached:
            continue
        if (change.must_drain or change.job in givers) and owner.job.sink is not None and owner.job.sink not in read:
            heirs = (one.after for one in changes.of if _goes_on_for(one, change, takes))
            sinks = (None if job is None else job.sink for job in (change.after, *heirs))
            sink = next((one for one in sinks if one is not None and one in read), None)
            if sink is not None:
                yield Turn(change, sink)


def _goes_on_for(one: Change, other: Change, takes: Mapping[str, Mapping[Topic, str]]) -> bool:
    """Return whether a job takes over from another one, or comes to write in its place."""
    assert other.before is not None, "only what is held can be gone on for"
    return other.job in takes.get(one.job, {}).values() or one.left_sink in other.before.job.sources
