"""What the REST API does about latency goals: set, tried and taken away, of what is there and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.controlled import WAIT, Controlled, composition, form, pipeline_form, running

B = form("B", "edge-2")
C = form("C", "cloud", source_topic="T-filter", sink_topic="T-D")
CITY = composition(B, C)
GOLD = {"class": "gold", "p99_s": None}
TRIED = {"dry_run": True}


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Controlled]:
    with running(tmp_path) as found:
        yield found


@pytest.fixture
def city(it: Controlled) -> Controlled:
    it.call("PUT", "/compositions/city", 200, content=CITY, params=WAIT)
    return it


def test_latency_goals_are_set_for_what_is_there(city: Controlled) -> None:
    assert city.call("PUT", "/goals/city", 200, json={"class": "gold"})["goals"] == {"city": GOLD}
    assert city.call("PUT", "/goals/city", 200, json={"p99_s": 0.2})["goals"]["city"]["p99_s"] == 0.2
    assert city.call("PUT", "/goals/city", 422, json={"class": "golden"})["error"]["code"] == "HW1816"
    assert city.call("PUT", "/goals/city", 422, json={})["error"]["code"] == "HW1820"
    assert city.call("PUT", "/policy", 422, json={"policy": "kind"})["error"]["code"] == "HW1817"
    assert city.call("PUT", "/policy", 200, json={"policy": "weighted"}) == {"policy": "weighted"}
    assert city.call("DELETE", "/goals/city", 200) == {"goals": {}}
    assert "latency goal" in city.call("GET", "/history", 200)["history"][1]["what"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nowhere", "there is no composition or pipeline 'nowhere'."),
        ("citty", "there is no composition or pipeline 'citty'. Did you mean 'city'?"),
        ("B", "'B' is a job, and goals are of what jobs belong to. Name 'city'."),
    ],
)
@pytest.mark.parametrize("params", [{}, TRIED])
def test_what_is_not_there_has_no_goal_and_the_name_that_was_meant_is_told(
    city: Controlled, name: str, told: str, params: dict[str, Any]
) -> None:
    for method, more in (("PUT", {"json": {"class": "gold"}}), ("DELETE", {})):
        error = city.call(method, f"/goals/{name}", 404, params=params, **more)["error"]
        assert (error["code"], error["mistakes"][0]["text"]) == ("HW1830", told)


@pytest.mark.parametrize(
    "body",
    [
        *({"p99_s": p99_s} for p99_s in (True, "0.2", 0, 1e-300, 0.000999, 1_000_001, 10**400, -1, [0.2])),
        {"quality": "gold"},
        {"quality": "gold", "class": "gold"},
        {"class": "gold", "p99": 0.2},
        {"class": True},
    ],
)
def test_a_goal_in_another_form_is_refused(city: Controlled, body: dict[str, Any]) -> None:
    assert city.call("PUT", "/goals/city", 422, json=body)["error"]["code"] == "HW1820"
    assert city.store.goals() == {}


@pytest.mark.parametrize("p99_s", [0.001, 1, 1_000_000])
def test_a_goal_is_at_least_a_millisecond(city: Controlled, p99_s: float) -> None:
    found = city.call("PUT", "/goals/city", 200, json={"p99_s": p99_s})["goals"]
    assert found == {"city": {"class": None, "p99_s": p99_s}}


def test_what_is_only_tried_answers_as_it_would_be_and_changes_nothing(city: Controlled) -> None:
    silver = {"class": "silver", "p99_s": 0.2}
    assert city.call("PUT", "/goals/city", 200, json=silver, params=TRIED) == {"goals": {"city": silver}}
    assert city.call("GET", "/goals", 200) == {"goals": {}}
    city.call("PUT", "/goals/city", 200, json={"class": "gold"})
    assert city.call("PUT", "/goals/city", 200, json=silver, params=TRIED) == {"goals": {"city": silver}}
    assert city.call("DELETE", "/goals/city", 200, params=TRIED) == {"goals": {}}
    assert city.call("GET", "/goals", 200) == {"goals": {"city": GOLD}}
    assert city.call("PUT", "/policy", 200, json={"policy": "equal"}, params=TRIED) == {"policy": "equal"}
    assert city.call("PUT", "/policy", 422, json={"policy": "kind"}, params=TRIED)["error"]["code"] == "HW1817"
    assert city.call("PUT", "/goals/city", 422, json={"class": "x"}, params=TRIED)["error"]["code"] == "HW1816"
    assert city.call("GET", "/policy", 200) == {"policy": None}
    told = [one["what"] for one in city.call("GET", "/history", 200)["history"]]
    assert told == ["latency goal of 'city': class gold", "composition 'city' submitted"]


def test_another_composition_of_the_same_name_does_not_inherit_the_goal(city: Controlled) -> None:
    city.call("PUT", "/goals/city", 200, json={"class": "gold"})
    city.call("PUT", "/compositions/city", 200, content=composition(B), params=WAIT)
    city.call("DELETE", "/compositions/city", 200, params=TRIED)
    assert city.call("GET", "/goals", 200) == {"goals": {"city": GOLD}}, "it is the same composition"
    city.call("DELETE", "/compositions/city", 200, params=WAIT)
    city.call("PUT", "/compositions/city", 200, content=CITY, params=WAIT)
    assert city.call("GET", "/goals", 200) == {"goals": {}}
    city.restart()
    assert city.call("GET", "/goals", 200) == {"goals": {}}


def test_a_composition_whose_jobs_were_all_deleted_one_by_one_has_no_goal(city: Controlled) -> None:
    city.call("PUT", "/goals/city", 200, json={"class": "gold"})
    city.call("DELETE", "/jobs/B", 200, params=WAIT)
    assert city.call("GET", "/goals", 200) == {"goals": {"city": GOLD}}
    city.call("DELETE", "/jobs/C", 200, params=WAIT)
    assert city.call("GET", "/goals", 200) == {"goals": {}}


def test_a_pipeline_keeps_its_goal_while_it_is_cut_again_and_until_it_is_deleted(it: Controlled) -> None:
    it.call("PUT", "/pipelines/flow", 200, json=pipeline_form(it), params=WAIT)
    it.call("PUT", "/goals/flow", 200, json={"class": "gold"})
    it.call("POST", "/pipelines/flow/move", 200, json={"operator": "busy", "site": "edge-1"}, params=WAIT)
    it.call("POST", "/pipelines/flow/stop", 200, params=WAIT)
    assert it.call("GET", "/goals", 200) == {"goals": {"flow": GOLD}}
    it.call("DELETE", "/pipelines/flow", 200, params=WAIT)
    assert it.call("GET", "/goals", 200) == {"goals": {}}
    it.call("PUT", "/goals/flow", 404, json={"class": "gold"})
