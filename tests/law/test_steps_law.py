"""Do the steps of any change lead to what is wanted, wherever they break off, without a record lost or doubled?

Random flows of jobs over four sites, edited at random: moved, rewired, split, joined, renamed, stopped, removed. The
real coordinator, steps and agents act on simulated engines and brokers, records are fed all the while, and whatever
can die dies in the middle of any act.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from headwater.plan.aims import aims, open_circles
from headwater.plan.diff import diff
from headwater.plan.steps import order
from headwater.run.coordinator import make_plan
from tests.drill import Drill, verdict
from tests.flows import EDITS, Flow, are_left_for_good, edited, make_flow
from tests.strategies import Drawn

Begun = tuple[Drawn, Drill, Flow]


def begun(data: st.DataObject) -> Begun:
    """Return a drill whose first flow runs."""
    dice = Drawn(data.draw)
    drill, flow = Drill(dice.whole(0, 2**16)), make_flow(dice)
    drill.settle(drill.want(flow))
    return dice, drill, flow


def changed(data: st.DataObject, suffering: Callable[[Drawn, Drill, Flow], None]) -> None:
    """Edit a flow a few times, or go back to an earlier one, with bad luck in between; all must be well in the end."""
    dice, drill, flow = begun(data)
    flows = [flow]
    for _ in range(dice.whole(1, 4)):
        flows.append(dice.pick(flows) if dice.chance(25) else edited(dice, flows[-1], EDITS))
        suffering(dice, drill, flows[-1])
        drill.settle(drill.want(flows[-1]))
    flows.append(flows[-1].running)
    wanted = drill.want(flows[-1])
    drill.settle(wanted)
    assert drill.settle(wanted) == 0, "a second time there is nothing to do"
    if are_left_for_good(flows):
        assert verdict(drill, wanted, flows) == []


@given(st.data())
def test_the_difference_of_a_world_that_is_as_wanted_is_empty(data: st.DataObject) -> None:
    _, drill, flow = begun(data)
    found = diff(drill.want(flow), drill.sites.observe())
    assert {one.bucket for one in found.of} <= {"keep"}
    assert found.is_empty
    assert order(found, drill.sites.observe()) == ()


@given(st.data())
def test_each_step_waits_only_for_steps_before_it(data: st.DataObject) -> None:
    dice, drill, flow = begun(data)
    steps = make_plan(drill.want(edited(dice, flow, EDITS)), drill.sites.observe()).steps
    assert all(earlier < number for number, step in enumerate(steps) for earlier in step.after)


@given(st.data())
def test_the_steps_of_any_change_reach_what_is_wanted_and_lose_nothing(data: st.DataObject) -> None:
    changed(data, lambda dice, drill, flow: None)


@given(st.data())
def test_steps_that_break_off_anywhere_and_begin_again_reach_it_too(data: st.DataObject) -> None:
    def suffering(dice: Drawn, drill: Drill, flow: Flow) -> None:
        wanted = drill.want(flow)
        for _ in range(dice.whole(1, 3)):
            within, after = dice.whole(0, 80), dice.whole(0, 8)  # an act of any port, or a step
            kind = dice.whole(0, 2)
            drill.suffer(wanted, None if kind == 1 else within, None if kind == 0 else after)

    changed(data, suffering)


@given(st.data())
def test_whoever_changes_their_mind_half_way_gets_what_they_want_last_and_loses_nothing(data: st.DataObject) -> None:
    dice, drill, flow = begun(data)
    flows, former = [flow], None  # what was aimed at, and of these what is still to be reached
    for _ in range(dice.whole(2, 5)):
        last = flow if former is None else former
        if former is None and is_open(drill, flow):
            former = flow
        flow = dice.pick(flows) if dice.chance(25) else edited(dice, last, EDITS)
        while dice.chance(60):
            aimed = flow if former is None else former
            flows += [] if flows[-1] == aimed else [aimed]
            assert aims(flow.jobs, {} if former is None else {"city": former.jobs}) == aimed.jobs
            drill.suffer(
                drill.want(aimed), *dice.pick([(dice.whole(0, 80), None), (None, dice.whole(0, 8)), (None, None)])
            )
            former = former if former is not None and is_open(drill, former) else None
    if former is not None:
        flows.append(former)
        drill.settle(drill.want(former))
    flows += [flow, flow.running]
    drill.settle(drill.want(flow))
    wanted = drill.want(flow.running)
    drill.settle(wanted)
    if are_left_for_good(flows):
        assert verdict(drill, wanted, flows) == []


def is_open(drill: Drill, flow: Flow) -> bool:
    """Return whether a flow that was aimed at is not reached, or not known to be."""
    return "city" in open_circles(flow.jobs, drill.sites.observe())


@given(st.data())
def test_an_answer_that_is_lost_or_a_site_that_is_silent_delays_and_spoils_nothing(data: st.DataObject) -> None:
    def suffering(dice: Drawn, drill: Drill, flow: Flow) -> None:
        wanted = drill.want(flow)
        drill.sites.answers_lost = {drill.sites.orders + dice.whole(0, 12)}
        for site in drill.sites.by_name.values():
            site.is_silent = dice.chance(25)
        drill.suffer(wanted, None, None)
        drill.sites.answers_lost = set()
        for site in drill.sites.by_name.values():
            site.is_silent = False

    changed(data, suffering)
