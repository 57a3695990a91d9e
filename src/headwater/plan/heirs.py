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
    found: dict[str, dict[Topic, str]] = {}
    for change in changes.of:
        for topic in change.enters:
            assert change.after is not None, "only a job that is wanted can come to read"
            givers = [one for one in left.get((change.after.composition, topic), ()) if one.job != change.job]
            givers = [one for one in givers if one.job not in doubles] or givers
            if givers:
                found.setdefault(change.job, {})[topic] = closest(change.after, givers, changes).job
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
    after = _way(heir, [one.after for one in changes.of if one.after is not None])
    before = [one.before.job for one in changes.of if one.before is not None]
    ways = {one.job: _way(one.before.job, before) for one in givers if one.before is not None}
    return max(givers, key=lambda one: len(after & ways[one.job]))  # of equals the first, by name


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
