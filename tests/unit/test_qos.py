"""Are goals held: read, decide, set?"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headwater.run.qos import Holder
from tests.held_site import BRONZE, GOLD, RATES_RPS, ROSTER, SILVER, WORK_S, Site, TableGovernor, TableMeter


def test_a_step_reads_decides_and_sets_limits_and_shares() -> None:
    site = Site(RATES_RPS)
    decision = site.holder.step(1.0)
    assert decision is not None
    assert decision.rate_rps == pytest.approx([50.0, 40.0, 30.0])
    assert site.governor.calls == [(decision.limit_of, decision.share_of)]
    assert (site.holder.steps, site.holder.nonsense) == (1, 0)
    assert [entry["kind"] for entry in site.journal.entries] == ["begin", "step"]
    assert sum(decision.share_of.values()) == pytest.approx(4.0)


def test_what_lighter_classes_have_is_within_the_limits_only_where_weights_keep_shares() -> None:
    weighing, plain = Site(RATES_RPS, 0.2), Site(RATES_RPS, 0.2)
    plain.governor.weighs = False
    first, second = weighing.holder.step(1.0), plain.holder.step(1.0)
    assert first is not None
    assert second is not None
    assert weighing.governor.calls[0][0] == first.limit_of
    assert plain.governor.calls[0][0] == second.alone_of == first.alone_of
    heaviest = first.names[int(first.rank.argmin())]
    assert first.alone_of[heaviest] < 0.19
    assert first.limit_of[heaviest] == pytest.approx(0.2), "all of the machine"


def test_a_site_where_nobody_runs_has_nothing_to_decide() -> None:
    site = Site({})
    assert site.holder.step(1.0) is None
    assert site.governor.calls == []
    assert site.holder.steps == 0
    site.meter.rates_rps.update(RATES_RPS)
    assert site.holder.step(2.0) is not None


def test_a_policy_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(KeyError):
        Site(RATES_RPS, policy="no-such-policy")


def test_somebody_who_vanishes_keeps_its_share_for_ten_steps_and_then_does_not() -> None:
    site = Site(RATES_RPS)
    before = site.steps(20)[-1]
    del site.meter.rates_rps["a"]
    away = site.steps(10)
    for shares in away:
        assert shares["a"] == pytest.approx(before["a"], rel=0.05)
    assert "a" not in site.steps(1)[0]
    assert all("a" not in limits for limits, _ in site.governor.calls[-11:])  # it is not there to be limited
    assert site.holder.nonsense == 10  # once for each step in which it was missed
    site.meter.rates_rps = RATES_RPS
    assert set(site.steps(1)[0]) == set(RATES_RPS)


def test_somebody_who_is_gone_for_good_leaves_its_share_to_others_at_once() -> None:
    gone: set[str] = set()
    meter = TableMeter({"a": 100.0, "c": 150.0})
    holder = Holder(meter, TableGovernor(meter), lambda: ROSTER, lambda: 2.0, is_there=lambda name: name not in gone)
    for second in range(20):
        holder.step(float(second))
    gone.add("a")
    del meter.rates_rps["a"]
    decision = holder.step(20.0)
    assert decision is not None
    assert decision.names == ("c",)
    assert decision.shares[0] == pytest.approx(2.0)
    assert holder.nonsense == 0, "an end is no nonsense"


def test_the_only_one_that_cannot_be_read_any_more_is_counted() -> None:
    meter = TableMeter({"a": 100.0})
    holder = Holder(meter, TableGovernor(meter), lambda: ROSTER, lambda: 2.0)
    holder.step(0.0)
    meter.rates_rps.clear()
    assert [holder.step(float(second)) for second in range(1, 4)] == [None] * 3
    assert holder.nonsense == 3


def test_somebody_who_comes_back_in_time_was_never_away() -> None:
    site = Site(RATES_RPS)
    before = site.steps(20)[-1]
    del site.meter.rates_rps["a"]
    site.steps(9)
    site.meter.rates_rps = dict(RATES_RPS)
    assert site.steps(1)[0]["a"] == pytest.approx(before["a"], rel=0.05)
    site.meter.rates_rps.pop("a")
    assert "a" in site.steps(10)[-1]  # and patience begins anew
    assert "a" not in site.steps(1)[0]


def test_another_class_counts_from_the_next_step_on() -> None:
    site = Site({"a": 150.0, "b": 150.0, "c": 150.0}, capacity=3.0)  # 4.5 are asked for
    before = site.steps(10)[-1]
    assert before["a"] > 1.5 > before["c"]
    site.roster = replace(ROSTER, qualities={"a": BRONZE, "b": SILVER, "c": GOLD})
    after = site.steps(1)[0]
    assert after["c"] > 1.5 > after["a"]
    entry = site.journal.entries[-1]
    assert entry["applications"]["c"]["name"] == "gold"  # type: ignore[index]


def test_what_an_application_can_use_at_most_counts_from_the_next_step_on() -> None:
    site = Site(RATES_RPS)
    site.steps(5)
    site.roster = replace(ROSTER, most={"a": 0.4})
    site.steps(1)
    limits, shares = site.governor.calls[-1]
    assert (limits["a"], shares["a"]) == (0.4, 0.4)
    assert sum(shares.values()) == pytest.approx(4.0)


def test_nonsense_is_counted_and_changes_no_decision_for_long() -> None:
    clean, dirty = Site(RATES_RPS), Site(RATES_RPS)
    clean.steps(20)
    dirty.steps(10)
    dirty.meter.spoil = {("a", "arrivals_rps"): math.nan, ("b", "used"): -1.0, ("c", "queue"): math.inf}
    dirty.steps(3)
    assert dirty.holder.nonsense == 9
    dirty.meter.spoil = {}
    found = dirty.steps(7)[-1]
    assert dirty.holder.nonsense == 9
    assert found == pytest.approx(clean.steps(1)[-1], rel=0.02)


def test_a_clock_that_leaps_is_counted() -> None:
    site = Site(RATES_RPS)
    site.steps(3)
    for leap_s in (-50.0, 1e6, math.nan):
        site.now_s += leap_s
        site.steps(1)
    assert site.holder.nonsense == 3


@pytest.mark.parametrize("seed", range(5))
def test_a_holder_that_is_given_the_shares_that_are_set_goes_on_from_there(seed: int) -> None:
    site, rng = Site(RATES_RPS), np.random.default_rng(seed)
    for _ in range(40):
        site.meter.rates_rps = {name: float(rng.poisson(rate_rps)) for name, rate_rps in RATES_RPS.items()}
        before = site.steps(1)[0]
    again = Site(RATES_RPS, shares=before)
    again.meter.shares, again.meter.queue = dict(site.governor.calls[-1][0]), dict(site.meter.queue)
    assert again.journal.lines == []
    first = again.steps(1)[0]
    assert again.journal.entries[0]["shares"] == before
    assert first == pytest.approx(before, rel=0.2)  # a second's count is off by 14 to 18 %, and that is all it has seen


def test_shares_that_are_set_tell_a_new_holder_how_long_what_waits_will_take() -> None:
    found = {}
    for shares in (None, {"c": 2.0}):
        site = Site(RATES_RPS, shares=shares)
        site.meter.spoil = {("c", "queue"): 100.0, ("c", "share"): math.inf}
        decision = site.holder.step(1.0)
        assert decision is not None
        found[shares is None] = decision.row("c")["late_s"]
    assert found == {False: pytest.approx(100.0 * WORK_S / 2.0), True: pytest.approx(100.0 / 30.0)}
