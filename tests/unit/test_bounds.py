"""Bounds from below, part by part, on examples that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import instances
from headwater.cost.problem import Problem
from headwater.errors import SpecError
from headwater.model.pipeline import Objective, Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites
from headwater.place import METHODS, place
from headwater.place.arrays import arrays
from headwater.place.bounds import bw_bound, lower_bound, rf_bound, rt_bound

SITES = Sites((Site("leaf", "leaf", 1, 2, 1.0), Site("root", "root", 3, 2, 4.0)), (Link("leaf", "root", 0.010, 1e6),))
CAM = Operator("cam", is_source=True, rate_rps=10.0, size_bytes=20_000.0, at=("leaf",), work_s=0.004)
SEE = Operator("see", (Stream("cam", "see"),), needs=3, work_s=0.080, size_factor=0.01)
END = Operator("end", (Stream("see", "end"),), is_sink=True)


def made(*operators: Operator, sites: Sites = SITES):
    return arrays(Problem(Pipeline("p", operators), sites))


def test_rt_takes_the_better_side_of_every_stream() -> None:
    """Either the large record is sent and seen fast, or it is seen slowly and the small one sent."""
    sent, kept = 0.010 + 8 * 20_000 / 1e6 + 0.080 / 4, 0.080 + 0.010 + 8 * 200 / 1e6
    assert rt_bound(made(CAM, SEE, END)) == pytest.approx(0.004 + min(sent, kept))


def test_a_host_with_one_slot_does_not_hold_both_ends() -> None:
    tight = replace(SITES, sites=(replace(SITES.sites[0], slots=1), SITES.sites[1]))
    assert rt_bound(made(CAM, SEE, END, sites=tight)) == pytest.approx(0.004 + 0.010 + 8 * 20_000 / 1e6 + 0.080 / 4)


def test_rf_counts_what_the_slots_of_a_class_cannot_hold() -> None:
    more = [replace(SEE, name=f"see-{i}", inputs=(Stream("cam", f"see-{i}"),)) for i in range(4)]
    end = Operator("end", tuple(Stream(one.name, "end") for one in more), is_sink=True)
    wide = replace(SITES, sites=(replace(SITES.sites[0], slots=9), SITES.sites[1]))
    assert rf_bound(made(CAM, *more, end, sites=wide)) == 4  # four need high, two slots: two lack two levels each


def test_rf_counts_what_the_own_rules_rule_out() -> None:
    assert rf_bound(made(CAM, replace(SEE, at=("leaf",)), END)) == 2


def test_bw_counts_what_pinned_operators_must_send() -> None:
    away = replace(SEE, at=("root",))
    assert bw_bound(made(CAM, away, END)) == pytest.approx(8 * 10 * 20_000 - 1e6)
    assert bw_bound(made(CAM, SEE, END)) == 0.0  # there is a slot beside the source


def test_bw_counts_what_cannot_stay_for_want_of_slots() -> None:
    tight = replace(SITES, sites=(replace(SITES.sites[0], slots=1), SITES.sites[1]))
    assert bw_bound(made(CAM, SEE, END, sites=tight)) == pytest.approx(8 * 10 * 20_000 - 1e6)


def test_the_bound_of_fire_is_below_its_optimum_and_not_far() -> None:
    bound = lower_bound(arrays(instances.fire(1)))
    assert 0.8 * 0.08649630048732532 < bound <= 0.08649630048732532


@pytest.mark.parametrize("method", METHODS)
def test_a_scale_of_rt_that_is_turned_round_is_refused(method: str) -> None:
    """With a `max` below the computed `min` slower placements would be better, and no bound would hold."""
    turned = Problem(Pipeline("p", (CAM, SEE, END), Objective(rt_max_s=0.001)), SITES)
    with pytest.raises(SpecError, match=r"HW1405 objective.rt: .*raise 'max', lower 'min'"):
        place(turned, method)
