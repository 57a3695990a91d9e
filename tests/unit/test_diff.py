"""What must change for the jobs that are held to become the jobs that are wanted?"""

from __future__ import annotations

from dataclasses import replace

from headwater.plan.diff import diff
from headwater.plan.jobs import Held, Job, Observed, Topic, fingerprint
from headwater.plan.steps import Step, order

SITES = frozenset({"edge-1", "edge-2", "hub", "dc", "archive"})


def job(name: str, site: str, source: tuple[str, str], sink: tuple[str, str]) -> Job:
    return Job(name, "paper", site, (Topic(*source),), Topic(*sink), "hash", "jobs:passing")


FIRST = [
    job("A", "edge-1", ("edge-1", "T-1"), ("hub", "T-C")),
    job("B", "edge-2", ("edge-2", "T-2"), ("hub", "T-C")),
    job("C", "hub", ("hub", "T-C"), ("dc", "T-D")),
    job("D", "dc", ("dc", "T-D"), ("dc", "T-total")),
]
SECOND = [
    FIRST[0],
    job("C", "hub", ("hub", "T-C"), ("hub", "T-C2")),
    job("C2", "hub", ("hub", "T-C2"), ("archive", "T-D")),
    job("D", "dc", ("archive", "T-D"), ("archive", "T-total")),
]


def held(*jobs: Job) -> Observed:
    return Observed(tuple(Held(one.site, one, 1, True, "running") for one in jobs), SITES)


def wanted(*jobs: Job) -> dict[str, Job]:
    return {one.name: one for one in jobs}


def test_the_papers_listings_stop_b_start_c2_rewire_c_and_d_and_keep_a() -> None:
    found = diff(wanted(*SECOND), held(*FIRST))
    assert {one.job: one.bucket for one in found.of} == {
        "A": "keep",
        "B": "stop",
        "C": "rewire",
        "C2": "start",
        "D": "rewire",
    }


def test_a_reader_leaves_a_topic_after_its_writer_has_left_it() -> None:
    observed = held(*FIRST)
    steps = order(diff(wanted(*SECOND), observed), observed)
    acts = [(one.act, one.job) for one in steps]
    drain = acts.index(("halt", "D"))
    assert steps[drain].is_drain
    left = next(number for number, (act, name) in enumerate(acts) if name == "C" and act in {"halt", "run"})
    assert left in _all_before(steps, drain)
    assert not any(one.job == "A" for one in steps)


def test_a_move_warms_halts_runs_and_drops_in_this_order() -> None:
    observed = held(*FIRST)
    moved = [replace(FIRST[0], site="edge-2"), *FIRST[1:]]
    steps = order(diff(wanted(*moved), observed), observed)
    assert [(one.act, one.site) for one in steps if one.job == "A"] == [
        ("warm", "edge-2"),
        ("halt", "edge-1"),
        ("run", "edge-2"),
        ("drop", "edge-1"),
    ]
    run = next(one for one in steps if one.act == "run")
    assert (run.epoch, run.take_from) == (2, "edge-1")


def resting(one: Job, composition: str = "paper") -> Held:
    return Held(one.site, replace(one, composition=composition), 1, False, "stopped", is_resting=True)


def acts(asked: dict[str, Job], observed: Observed, name: str) -> list[tuple[str, str, int]]:
    return [(one.act, one.site, one.epoch) for one in order(diff(asked, observed), observed) if one.job == name]


def test_a_job_that_is_left_out_rests_and_goes_on_from_there_when_it_comes_back() -> None:
    assert acts(wanted(*SECOND), held(*FIRST), "B") == [("halt", "edge-2", 1), ("rest", "edge-2", 1)]
    rested = Observed((*held(*SECOND).held, resting(FIRST[1])), SITES)
    assert diff(wanted(*SECOND), rested).is_empty
    assert {one.job: one.bucket for one in diff(wanted(*SECOND, FIRST[1]), rested).of}["B"] == "start"
    assert acts(wanted(*SECOND, FIRST[1]), rested, "B") == [("run", "edge-2", 1)]
    elsewhere = replace(FIRST[1], site="hub")
    moved = [("warm", "hub", 0), ("run", "hub", 2), ("drop", "edge-2", 1)]
    assert acts(wanted(*SECOND, elsewhere), rested, "B") == moved


def test_a_job_that_comes_back_stopped_is_one_that_is_wanted_again() -> None:
    rested = Observed((*held(*SECOND).held, resting(FIRST[1])), SITES)
    stopped = replace(FIRST[1], is_run=False)
    assert acts(wanted(*SECOND, stopped), rested, "B") == [("place", "edge-2", 1)]
    back = Observed((*held(*SECOND).held, replace(resting(FIRST[1]), is_resting=False)), SITES)
    assert diff(wanted(*SECOND, stopped), back).is_empty


def test_a_job_that_rests_is_forgotten_with_its_composition_and_when_it_comes_back_with_other_sources() -> None:
    rested = Observed((*held(*SECOND).held, resting(FIRST[1])), SITES)
    assert acts({}, rested, "B") == [("drop", "edge-2", 1)]
    other = replace(FIRST[1], sources=(Topic("edge-2", "T-3"),))
    assert acts(wanted(*SECOND, other), rested, "B") == [("run", "edge-2", 2)]
    of_others = Observed((*held(*SECOND).held, resting(FIRST[1], "another")), SITES)
    assert acts(wanted(*SECOND, FIRST[1]), of_others, "B") == [("run", "edge-2", 2)]


def test_a_job_whose_source_is_taken_over_does_not_rest() -> None:
    renamed = [FIRST[0], replace(FIRST[1], name="B2"), *FIRST[2:]]
    assert acts(wanted(*renamed), held(*FIRST), "B") == [("halt", "edge-2", 1), ("drop", "edge-2", 1)]
    drained = Held("edge-2", FIRST[1], 1, False, "stopped", is_drained=True)
    placed = Held("edge-2", renamed[1], 1, False, "stopped", is_drained=True, is_placed=True)
    cut_off = Observed((*(one for one in held(*FIRST).held if one.job.name != "B"), drained, placed), SITES)
    assert acts(wanted(*renamed), cut_off, "B") == [("drop", "edge-2", 1)]


def test_of_two_holders_the_one_with_the_greater_epoch_has_the_truth() -> None:
    old = Held("edge-1", FIRST[0], 1, False, "stopped")
    new = Held("edge-2", replace(FIRST[0], site="edge-2"), 2, True, "running")
    observed = Observed((old, new), SITES)
    assert observed.owner("A") == new
    steps = order(diff(wanted(new.job), observed), observed)
    assert [(one.act, one.site, one.epoch) for one in steps] == [("drop", "edge-1", 1)]


def test_a_plan_is_stale_when_anybody_holds_something_else() -> None:
    before, after = held(*FIRST), held(*FIRST[:3])
    asked = wanted(*SECOND)
    assert fingerprint(asked, before) == fingerprint(asked, held(*FIRST))
    assert fingerprint(asked, before) != fingerprint(asked, after)
    assert fingerprint(asked, before) != fingerprint(wanted(*FIRST), before)


def _all_before(steps: tuple[Step, ...], number: int) -> set[int]:
    found, waiting = set(), [number]
    while waiting:
        for earlier in steps[waiting.pop()].after:
            if earlier not in found:
                found.add(earlier)
                waiting.append(earlier)
    return found
