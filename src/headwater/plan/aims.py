"""Towards what do steps go, when something else is wanted before they are through?

Steps that break off may be taken up again, and lead to the same end. But whoever turns round half-way meets jobs
between two wirings, of which it cannot always be told what they still owe to whom. So what is begun is brought
to its end first: until then, the jobs of that composition are aimed at as they were wanted before (`aims`), and
`open_circles` says where the end is not reached.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headwater.plan.diff import diff
from headwater.plan.jobs import Job, Observed, circle

__all__ = ["aims", "open_circles"]


def aims(wanted: Mapping[str, Job], begun: Mapping[str, Mapping[str, Job]]) -> Mapping[str, Job]:
    """Return the jobs that steps lead to.

    Args:
        wanted: Jobs by name.
        begun: By circle: its jobs as they were wanted when the steps that are under way began.
    """
    if not begun:
        return wanted
    free = {name: job for name, job in wanted.items() if circle(job) not in begun}
    return {**free, **{name: job for jobs in begun.values() for name, job in jobs.items()}}


def open_circles(aimed: Mapping[str, Job], observed: Observed, forced: Collection[str] = ()) -> frozenset[str]:
    """Return the circles whose jobs are not yet as they are aimed at, or of which nobody knows whether they are."""
    found = {circle(one.job) for one in observed.held if not one.is_said}
    for change in diff(aimed, observed, forced).of:
        if change.bucket != "keep" or change.stale:
            jobs = (change.after, None if change.before is None else change.before.job)
            found.update(circle(job) for job in jobs if job is not None)
    return frozenset(found)
