"""What did a plan that was cut off leave half done, and what does that ask of the next one?

Whoever is cut off and then wants the same goes on where things stand. When something else is wanted meanwhile,
jobs may stand between two wirings, and three things need care: `doubles` finds jobs that have a place in a source
which is another's, `fed_again` those that were drained too early, and `turns` those that would drain to where
nobody reads any more. `plan.steps` asks all three.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from headwater.plan.diff import Change, Changes
from headwater.plan.heirs import closest
from headwater.plan.jobs import Observed, Topic

__all__ = ["Turn", "doubles", "fed_again", "turns"]


def doubles(changes: Changes) -> set[str]:
    """Return the jobs whose places in their sources are meant to be another's.

    A job that takes over is placed in a source before the one that had it gives it up, so for a while both have
    the same place, and one of them counts: who stays there; else the heir, if it has already left another
    topic for it; else the one that it would go on for.
    """
    own: dict[tuple[str, str, str], list[Change]] = {}
    for change in changes.of:
        if change.before is not None and not change.before.is_placed:
            for place in _places(change):
                own.setdefault(place, []).append(change)
    found: set[str] = set()
    for heir in changes.of:
        if heir.before is None or not heir.before.is_placed:
            continue
        for place in _places(heir):
            if place in own:
                giver = closest(heir.before.job, own[place], changes)
                counts = _stays(heir, place) or (_has_left_another(heir) and not _stays(giver, place))
                found.add(giver.job if counts else heir.job)
    return found


def fed_again(changes: Changes) -> set[str]:
    """Return the jobs whose topics may have got more since they were drained.

    A job that was drained to leave a topic, and then cut off, has its writers still running. If these leave the
    topic too, the job must drain once more.
    """
    closing = {change.left_sink for change in changes.of}
    return {one.job for one in changes.of if not closing.isdisjoint(one.leaves)}


def _places(change: Change) -> Iterator[tuple[str, str, str]]:
    """Yield the places of a drained job in its sources, as its composition shares them."""
    owner = change.before
    if owner is not None:
        keys = {topic.key for topic in owner.job.sources}
        yield from ((owner.job.composition, key, place) for key, place in owner.positions if key in keys)


def _stays(change: Change, place: tuple[str, str, str]) -> bool:
    return change.after is not None and place[1] not in {topic.key for topic in change.leaves}


def _has_left_another(change: Change) -> bool:
    owner = change.before
    return owner is not None and not {key for key, _ in owner.positions} <= {one.key for one in owner.job.sources}


@dataclass(frozen=True, slots=True)
class Turn:
    """A job that must write elsewhere before it drains."""

    change: Change
    sink: Topic


def turns(
    changes: Changes, takes: Mapping[str, Mapping[Topic, str]], again: Collection[str], observed: Observed
) -> Iterator[Turn]:
    """Yield the jobs that were stopped, have to drain now, and whose readers have gone ahead.

    Readers go first to where a job is to write. If it is cut off before it follows, what it drains must go there
    too, and not to where nobody reads it any more.

    Args:
        changes: All of them.
        takes: Who takes over from whom, by heir and source.
        again: The jobs that must drain although they were drained before.
        observed: What the sites hold.
    """
    read = {topic for one in observed.owners().values() if not one.is_resting for topic in one.job.sources}
    givers = {name for taken in takes.values() for name in taken.values()}
    for change in changes.of:
        owner = change.before
        if owner is None or owner.is_run or owner.site not in observed.reached:
            continue
        if owner.is_drained and change.job not in again:
            continue
        if (change.must_drain or change.job in givers) and owner.job.sink is not None and owner.job.sink not in read:
            heirs = (one.after for one in changes.of if change.job in takes.get(one.job, {}).values())
            sinks = (None if job is None else job.sink for job in (change.after, *heirs))
            sink = next((one for one in sinks if one is not None and one in read), None)
            if sink is not None:
                yield Turn(change, sink)
