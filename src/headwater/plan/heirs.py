"""Who goes on with the source that another job leaves?

A job that comes to read a topic which another job of its composition leaves at the same time takes over from
it: so a fragment that is split, joined or called otherwise loses no record and repeats none. Where several jobs
leave one topic, each led its records somewhere else; an heir goes on for the one whose records went where its own
will go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from headwater.plan.diff import Change, Changes
from headwater.plan.jobs import Job, Topic

__all__ = ["Place", "closest", "heirs", "leaving"]

Place = tuple[str, Topic]  # a source as a composition shares it


def heirs(changes: Changes, doubles: Collection[str] = ()) -> dict[str, dict[Topic, str]]:
    """Return, by job and source, the job that it takes over from.

    Args:
        changes: All of them.
        doubles: Jobs whose places are another's; they give only what that one does not.
    """
    left = leaving(changes)
    entering: dict[Place, list[Change]] = {}
    for change in changes.of:
        for topic in change.enters:
            assert change.after is not None, "only a job that is wanted can come to read"
            entering.setdefault((change.after.composition, topic), []).append(change)
    found: dict[str, dict[Topic, str]] = {}
    for place, coming in entering.items():
        givers = [one for one in left.get(place, ()) if one.job not in doubles] or left.get(place, [])
        for heir, giver in _matched(coming, givers, changes).items():
            found.setdefault(heir, {})[place[1]] = giver
    return found


def _matched(coming: Sequence[Change], givers: Sequence[Change], changes: Changes) -> dict[str, str]:
    """Return who goes on for whom: those first who have most in common, and each giver has an heir before one has two.

    Of two jobs that are called otherwise at once, the second is known by what the first leaves over.
    """
    others = {one.job: [giver for giver in givers if giver.job != one.job] for one in coming}
    found: dict[str, str] = {}
    if len(coming) > 1 and len(givers) > 1:
        common = _common(coming, givers, changes)
        for heir, giver in sorted(common, key=lambda pair: -common[pair]):  # of equals the first, by name
            if heir not in found and giver not in found.values() and heir != giver:
                found[heir] = giver
    for one in coming:
        if one.job not in found and others[one.job]:
            assert one.after is not None, "it comes to read"
            found[one.job] = closest(one.after, others[one.job], changes).job
    return found


def leaving(changes: Changes) -> dict[Place, list[Change]]:
    """Return the jobs that leave a source, by composition and topic."""
    found: dict[Place, list[Change]] = {}
    for change in changes.of:
        if change.before is not None:
            for topic in change.leaves:
                found.setdefault((change.before.job.composition, topic), []).append(change)
    return found


def closest(heir: Job, givers: Sequence[Change], changes: Changes) -> Change:
    """Return the giver that has most in common with an heir of what comes after them; the first of equals."""
    if len(givers) == 1:
        return givers[0]
    after, before = _all_after(changes), _all_before(changes)
    way = _way(heir, after)
    ways = {one.job: _way(one.before.job, before) for one in givers if one.before is not None}
    return max(givers, key=lambda one: len(way & ways[one.job]))  # of equals the first, by name


def _common(heirs: Sequence[Change], givers: Sequence[Change], changes: Changes) -> dict[tuple[str, str], int]:
    """Return how much each heir and giver have in common of what comes after them."""
    after, before = _all_after(changes), _all_before(changes)
    to = {one.job: _way(one.after, after) for one in heirs if one.after is not None}
    ways = {one.job: _way(one.before.job, before) for one in givers if one.before is not None}
    return {(heir, giver): len(to[heir] & ways[giver]) for heir in to for giver in ways}


def _all_after(changes: Changes) -> list[Job]:
    return [one.after for one in changes.of if one.after is not None]


def _all_before(changes: Changes) -> list[Job]:
    return [one.before.job for one in changes.of if one.before is not None]


def _way(job: Job, jobs: Iterable[Job]) -> set[str | Topic]:
    """Return the jobs and topics that a job's rows come to, its own included."""
    readers: dict[Topic, list[Job]] = {}
    for one in jobs:
        for topic in one.sources:
            readers.setdefault(topic, []).append(one)
    found: set[str | Topic] = {job.name}
    waiting = [job]
    while waiting:
        sink = waiting.pop().sink
        if sink is not None and sink not in found:
            found.add(sink)
            found.update(one.name for one in readers.get(sink, ()))
            waiting.extend(readers.get(sink, ()))
    return found
