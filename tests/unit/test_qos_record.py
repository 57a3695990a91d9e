"""Can all that was decided be made again from what was written down?"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headwater.control.mpc import Settings
from headwater.control.policies import POLICIES
from headwater.control.readings import COLUMNS
from headwater.control.record import begin_entry, made_policy, plain_state, replayed, state_of, step_entry
from headwater.errors import BindError, SpecError
from headwater.run.qos import Holder
from tests.held_site import BRONZE, GOLD, RATES_RPS, ROSTER, Lines, Site, TableGovernor, TableMeter


def eventful(policy: str = "predictive") -> Site:
    """Return a site in which applications came and went, and a meter that was out of its mind now and then."""
    site = Site(RATES_RPS, policy=policy, shares={"a": 1.0})
    rng = np.random.default_rng(3)
    for second in range(60):
        site.meter.rates_rps = {
            name: float(rng.poisson(rate_rps))
            for name, rate_rps in {**RATES_RPS, "d": 20.0}.items()
            if not (name == "d" and second < 10) and not (name == "b" and 20 <= second < 45)
        }
        site.meter.spoil = {}
        if second % 7 == 3:
            names = sorted(site.meter.rates_rps)
            for key in rng.choice(COLUMNS, 3, replace=False):
                value = float(rng.choice([-1.0, math.nan, math.inf, -math.inf]))
                site.meter.spoil[str(rng.choice(names)), str(key)] = value
        if second == 30:
            site.roster = replace(ROSTER, qualities={"a": BRONZE, "d": GOLD}, most={"c": 2.0})
        if second == 40:
            site.now_s -= 5.0
        site.steps(1)
    return site


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_decisions_are_made_again_from_what_was_written_down(policy: str) -> None:
    site = eventful(policy)
    entries = site.journal.entries
    assert len(entries) == 61
    made = list(replayed(entries, "journal"))
    assert len(made) == 60
    assert [one.number for one in made] == list(range(2, 62))
    assert {one.differs for one in made} == {()}
    assert sum(one.decision.nonsense for one in made) == site.holder.nonsense > 0
    for (limits, shares), one in zip(site.governor.calls, made, strict=True):
        assert {name: one.decision.limit_of[name] for name in limits} == limits
        assert {name: one.decision.share_of[name] for name in shares} == shares


def test_limits_are_written_down_as_they_were_set_where_nothing_weighs() -> None:
    site = Site(RATES_RPS, 0.2)
    site.governor.weighs = False
    site.steps(5)
    steps = site.journal.entries[1:]
    for (limits, _), entry in zip(site.governor.calls, steps, strict=True):
        assert {name: row["limit"] for name, row in entry["decided"].items()} == limits  # type: ignore[attr-defined]
    assert {one.differs for one in replayed(site.journal.entries, "journal")} == {()}
    steps[2]["decided"]["a"]["limit"] *= 1.0 + 1e-6  # type: ignore[index]
    assert [one.differs for one in replayed([site.journal.entries[0], *steps], "journal")][2] == ("a",)


class Refusing(TableGovernor):
    """Refuses once."""

    is_refusing = False

    def set(self, limits: Mapping[str, float], shares: Mapping[str, float] | None = None) -> None:
        if self.is_refusing:
            self.is_refusing = False
            raise BindError("HW4802 no")
        super().set(limits, shares)


def test_decisions_after_one_whose_limits_were_refused_can_be_made_again() -> None:
    site = Site(RATES_RPS)
    refusing = Refusing(site.meter)
    site.holder = Holder(site.meter, refusing, lambda: ROSTER, lambda: 4.0, "predictive", site.journal)
    site.steps(5)
    refusing.is_refusing = True
    site.now_s += 1.0
    with pytest.raises(BindError):
        site.holder.step(site.now_s)
    site.steps(5)
    assert [entry["kind"] for entry in site.journal.entries].count("begin") == 2
    made = list(replayed(site.journal.entries, "journal"))
    assert len(made) == 10
    assert {one.differs for one in made} == {()}


class Full(Lines):
    """Takes nothing at first."""

    refused = 1

    def write(self, entry: Mapping[str, object]) -> bool:
        if self.refused:
            self.refused -= 1
            return True
        return super().write(entry)


def test_no_decision_is_written_down_without_a_beginning() -> None:
    site = Site(RATES_RPS)
    site.journal = Full()
    site.holder = Holder(site.meter, site.governor, lambda: ROSTER, lambda: 4.0, "predictive", site.journal)
    site.steps(3)
    assert [entry["kind"] for entry in site.journal.entries] == ["begin", "step", "step"]
    assert {one.differs for one in replayed(site.journal.entries, "journal")} == {()}


def test_whoever_is_silent_for_a_moment_keeps_its_place() -> None:
    site = Site(RATES_RPS)
    site.steps(3)
    for silent in RATES_RPS:  # the last as well as the first
        rates_rps, site.meter.rates_rps = site.meter.rates_rps, {k: v for k, v in RATES_RPS.items() if k != silent}
        decision = site.holder.step(site.now_s + 1.0)
        assert decision is not None
        assert decision.names == tuple(RATES_RPS)
        site.meter.rates_rps = rates_rps


def test_a_share_that_was_changed_afterwards_differs() -> None:
    entries = eventful().journal.entries
    entries[5]["decided"]["a"]["share"] *= 1.0 + 1e-6  # type: ignore[index]
    entries[9]["decided"]["c"]["limit"] *= 1.0 + 1e-6  # type: ignore[index]
    found = {one.number: one.differs for one in replayed(entries, "journal") if one.differs}
    assert found == {6: ("a",), 10: ("c",)}


def test_another_policy_can_be_asked_what_it_would_have_decided() -> None:
    entries = eventful().journal.entries
    made = list(replayed(entries, "journal", policy="fixed"))
    assert len(made) == 60
    assert all(set(one.differs) == set(one.decision.names) for one in made[1:])
    for one in made:
        assert one.decision.shares == pytest.approx(np.full(len(one.decision.names), 4.0 / len(one.decision.names)))
    assert any(one.differs for one in replayed(eventful("fixed").journal.entries, "journal", policy="predictive"))


def broken(entries: list[dict[str, object]], how: str) -> list[dict[str, object]]:
    """Break the fourth entry, or the first."""
    entry = entries[3]
    if how == "a kind that is none":
        entry["kind"] = "stop"
    elif how == "no time":
        del entry["now_s"]
    elif how == "columns of different length":
        entry["readings"]["queue"].append(1.0)  # type: ignore[index]
    elif how == "a column that is missing":
        del entry["readings"]["used"]  # type: ignore[attr-defined]
    elif how == "a word where a number belongs":
        entry["readings"]["used"][0] = "much"  # type: ignore[index]
    elif how == "applications that are none":
        entry["applications"] = [1, 2, 3]
    elif how == "nobody decided":
        entry["decided"] = {}
    elif how == "a setting that is none":
        entries[3] = {**entries[0], "settings": {"no_such": 1}}
    elif how == "a policy that is none":
        entries[3] = {**entries[0], "policy": "no-such"}
    elif how == "no entry":
        entries[3] = [1, 2]  # type: ignore[call-overload]
    else:
        spoil(entries, *SPOILED[how])
    return entries


def spoil(entries: list[dict[str, object]], path: tuple[str, ...], value: object) -> None:
    """Put another value into the fourth entry, which is a beginning if settings are meant."""
    if path[0] == "settings":
        entries[3] = json.loads(json.dumps(entries[0]))
    found: dict[str, Any] = entries[3]
    for key in path[:-1]:
        found = found[key]
    found[path[-1]] = value


APP = ("applications", "a")
SPOILED: dict[str, tuple[tuple[str, ...], object]] = {
    "a share that is none": (("decided", "a", "share"), None),
    "a time that is none": (("now_s",), None),
    "a number that is too large": (("capacity",), 10**400),
    "a response of nothing": (("settings", "response_s"), 0),
    "a part that is all": (("settings", "part"), 1.0),
    "no horizon": (("settings", "horizon"), 0),
    "a horizon without end": (("settings", "horizon"), 10**9),
    "a goal of nothing": ((*APP, "goal_s"), 0.0),
    "a goal that is no number": ((*APP, "goal_s"), math.nan),
    "a negative weight": ((*APP, "weight"), -1.0),
    "a weight of nothing": ((*APP, "weight"), 0),
    "nothing tolerated": ((*APP, "tolerated"), 0.0),
    "everything tolerated": ((*APP, "tolerated"), 1.0),
    "a negative least share": ((*APP, "least"), -0.1),
    "a most that is no number": ((*APP, "most"), None),
}


@pytest.mark.parametrize(
    "how",
    [
        "a kind that is none", "no time", "columns of different length", "a column that is missing",
        "a word where a number belongs", "applications that are none", "nobody decided", "a setting that is none",
        "a policy that is none", "no entry", *SPOILED,
    ],
)  # fmt: skip
def test_a_spoiled_entry_is_refused_by_its_number_and_line(how: str) -> None:
    entries = broken(eventful().journal.entries, how)
    with pytest.raises(SpecError) as caught:
        list(replayed(entries, "journal.jsonl", lines=range(11, 11 + len(entries))))
    (mistake,) = caught.value.mistakes
    assert (mistake.code, mistake.file, mistake.line) == ("HW1345", "journal.jsonl", 14)
    assert mistake.text.startswith("entry 4 is none of a record of decisions: ")
    assert not any(word in mistake.text for word in ("Error", "NoneType", "__init__", "indices"))


@pytest.mark.parametrize("key", ["baseline", "usual", "slowdown", "most", "records"])
def test_what_is_known_with_a_hole_in_it_is_not_gone_on_from(key: str) -> None:
    site = Site(RATES_RPS)
    site.steps(3)
    assert site.holder.known is not None
    plain = plain_state(site.holder.known)
    assert plain_state(state_of(plain)) == plain
    plain["interference"][key][1] = None
    with pytest.raises(ValueError, match=key):
        state_of(plain)


def test_a_record_without_a_beginning_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        list(replayed(eventful().journal.entries[1:], "journal"))
    (mistake,) = caught.value.mistakes
    assert mistake.code == "HW1345"
    assert "entry 1 " in mistake.text


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_record_that_begins_in_the_middle_says_what_the_policy_remembers(policy: str) -> None:
    """As after a file is full: the new one is read alone."""
    meter, chosen, rng = TableMeter(RATES_RPS), made_policy(policy), np.random.default_rng(5)
    lines = Lines()
    for second in range(60):
        meter.rates_rps = {name: float(rng.poisson(rate_rps)) for name, rate_rps in RATES_RPS.items()}
        readings = replace(meter.read(), memory_bps=math.inf if second % 3 else 1e9)
        apps = ROSTER.of(readings.names)
        if second == 30:
            lines.write(begin_entry(1000.0, policy, {}, Settings(), chosen))
        decision = chosen.decide(1000.0 + second, readings, apps, 1.5)
        meter.shares.update(decision.limit_of)
        if second >= 30:
            lines.write(step_entry(readings, apps, decision))
    made = list(replayed(lines.entries, "journal"))
    assert len(made) == 30
    assert {one.differs for one in made} == {()}
    other = "weighted" if policy != "weighted" else "reactive"
    assert len(list(replayed(lines.entries, "journal", other))) == 30  # which does not remember what another one does
