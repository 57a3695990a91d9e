"""Towards what do steps go, when something else is wanted before they are through?"""

from __future__ import annotations

from dataclasses import replace

from headwater.plan.aims import aims, open_circles
from headwater.plan.jobs import LONERS, Held, Job, Observed, Topic, circle

A = Job("A", "city", "edge", (Topic("edge", "in"),), Topic("hub", "out"), "hash", "jobs:passing")
LONE = replace(A, name="lone", composition=LONERS)
OTHER = replace(A, name="other", composition=LONERS)


def held(*jobs: Job, is_said: bool = True) -> Observed:
    found = tuple(Held(job.site, job, 1, True, "running", is_said=is_said) for job in jobs)
    return Observed(found, frozenset({"edge"}))


def by_name(*jobs: Job) -> dict[str, Job]:
    return {job.name: job for job in jobs}


def test_jobs_of_a_composition_depend_on_each_other_and_jobs_by_themselves_on_nobody() -> None:
    assert circle(A) == circle(replace(A, name="B"))
    assert len({circle(A), circle(LONE), circle(OTHER)}) == 3


def test_what_is_begun_is_aimed_at_first_and_everything_else_as_it_is_wanted() -> None:
    wanted = by_name(replace(A, site="hub"), replace(LONE, site="hub"))
    assert aims(wanted, {}) == wanted
    assert aims(wanted, {"city": by_name(A)}) == by_name(A, wanted["lone"])


def test_a_job_that_is_removed_or_comes_while_others_are_on_their_way_waits_for_them() -> None:
    assert aims({}, {"city": by_name(A)}) == by_name(A)
    assert aims(by_name(A, replace(A, name="B")), {"city": by_name(A)}) == by_name(A)


def test_a_circle_is_open_until_its_jobs_are_as_aimed_and_have_been_heard_of() -> None:
    def found(observed: Observed, *jobs: Job) -> set[str]:
        return set(open_circles(by_name(*jobs), observed))

    assert found(held(A, LONE), A, LONE) == set()
    assert found(held(A, LONE), replace(A, site="hub"), LONE) == {"city"}
    assert found(held(A), A, LONE) == {circle(LONE)}
    assert found(held(A, LONE), A) == {circle(LONE)}
    assert found(held(A, is_said=False), A) == {"city"}
