"""What the REST API does with pipelines, and how it describes itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from headwater.model.keep import to_json
from headwater.plan.jobs import Topic
from headwater.serve import api_models as forms
from tests.contract.controlled import (
    PLACED,
    PROJECT,
    SITES_FILE,
    WAIT,
    Controlled,
    buckets,
    composition,
    form,
    pipeline_form,
    running,
)


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Controlled]:
    with running(tmp_path) as found:
        yield found


def test_a_pipeline_is_placed_cut_deployed_moved_and_removed(it: Controlled) -> None:
    answer = it.call("PUT", "/pipelines/flow", 200, json=pipeline_form(it), params=WAIT)
    assert buckets(answer) == {"flow.warm": "start", "flow.out": "start"}
    seen = it.call("GET", "/pipelines/flow", 200)
    assert seen["placement"] == PLACED
    assert it.store.wanted()["flow.warm"].sink == Topic("cloud", "hw.flow.warm")
    assert it.call("GET", "/jobs/flow.warm", 200)["wanted"]["is_fragment"]
    moved = it.call("POST", "/pipelines/flow/move", 200, json={"operator": "warm", "site": "cloud"}, params=WAIT)
    assert moved["is_done"]
    assert {name: job.site for name, job in it.store.wanted().items()} == {
        "flow.taxis": "edge-1",
        "flow.out": "cloud",
    }
    refused = it.call("POST", "/jobs/flow.out/move", 409, json={"site": "edge-2"})
    assert "'out' is a sink and needs a root" in refused["error"]["text"]
    for operator, site in (("warm", "edge-2"), ("busy", "edge-2")):
        it.call("POST", "/pipelines/flow/move", 200, json={"operator": operator, "site": site}, params=WAIT)
    back = it.call("POST", "/jobs/flow.busy/move", 200, json={"site": "cloud"}, params=WAIT)
    assert back["is_done"]
    assert it.call("GET", "/pipelines/flow", 200)["placement"] == {**PLACED, "warm": "cloud", "busy": "cloud"}
    it.call("POST", "/pipelines/flow/stop", 200, params=WAIT)
    assert {job["state"] for job in it.call("GET", "/jobs", 200)["jobs"]} == {"stopped"}
    assert it.call("GET", "/pipelines", 200) == {"pipelines": [{"name": "flow", "jobs": 2}]}
    it.call("DELETE", "/jobs/flow.out", 422)
    it.call("DELETE", "/pipelines/flow", 200, params=WAIT)
    assert it.call("GET", "/jobs", 200) == {"jobs": []}
    it.call("GET", "/pipelines/flow", 404)


def test_a_pipeline_that_is_submitted_again_stays_where_it_was_moved_to(it: Controlled) -> None:
    asked = pipeline_form(it, placement=None)
    it.call("PUT", "/pipelines/flow", 200, json=asked, params=WAIT)
    found = it.call("GET", "/pipelines/flow", 200)["placement"]
    other = "edge-2" if found["busy"] != "edge-2" else "cloud"  # where no search puts it
    it.call("POST", "/pipelines/flow/move", 200, json={"operator": "busy", "site": other}, params=WAIT)
    again = it.call("PUT", "/pipelines/flow", 200, json=asked, params=WAIT)
    assert set(buckets(again).values()) == {"keep"}
    assert it.call("GET", "/pipelines/flow", 200)["placement"] == {**found, "busy": other}
    back = it.call("PUT", "/pipelines/flow", 200, json={**asked, "placement": PLACED}, params=WAIT)
    assert back["is_done"]
    assert it.call("GET", "/pipelines/flow", 200)["placement"] == PLACED


@pytest.mark.parametrize(
    ("more", "status", "code"),
    [
        ({"upload": "ab" * 32}, 422, "HW1814"),
        ({"project": "{}"}, 422, "HW1812"),
        ({"project": "[" * 100_000}, 422, "HW1812"),
        ({"project": to_json(PROJECT).replace('"taxis"', '"warm"')}, 422, "HW1812"),
        ({"project": to_json(PROJECT).replace('"rate_rps": 100.0', '"rate_rps": "x"')}, 422, "HW1812"),
        ({"project": to_json(PROJECT).replace("fields", "field")}, 422, "HW1812"),
        ({"sites": "sites: 7"}, 422, "HW1005"),
        ({"sites": SITES_FILE.replace("edge-2", "mars")}, 422, "HW1813"),
        ({"placement": {**PLACED, "warm": "mars"}}, 422, "HW1813"),
        ({"placement": {**PLACED, "warn": "cloud"}}, 422, "HW1507"),
        ({"placement": {}}, 422, "HW1508"),
        ({"method": "magic", "placement": None}, 422, "HW1402"),
        ({"seed": -1}, 422, "HW1820"),
        ({"colour": "red"}, 422, "HW1820"),
        ({"sites": SITES_FILE.replace("slots: 9", "slots: 1"), "placement": None}, 409, "HW2101"),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused_with_the_reason(
    it: Controlled, more: dict[str, Any], status: int, code: str
) -> None:
    answer = it.call("PUT", "/pipelines/flow", status, json=pipeline_form(it, **more))
    assert answer["error"]["code"] == code
    assert it.store.pipelines() == ()


def test_an_operator_that_does_not_exist_cannot_move(it: Controlled) -> None:
    it.call("PUT", "/pipelines/flow", 200, json=pipeline_form(it), params=WAIT)
    answer = it.call("POST", "/pipelines/flow/move", 404, json={"operator": "warn", "site": "cloud"})
    assert "Did you mean 'warm'?" in answer["error"]["text"]
    it.call("POST", "/pipelines/none/move", 404, json={"operator": "warm", "site": "cloud"})


def test_a_pipeline_and_a_composition_cannot_have_one_name(it: Controlled) -> None:
    it.call("PUT", "/compositions/city", 202, content=composition(form("A")))
    assert it.call("PUT", "/pipelines/city", 422, json=pipeline_form(it))["error"]["code"] == "HW1810"
    it.call("PUT", "/pipelines/flow", 202, json=pipeline_form(it))
    assert it.call("PUT", "/compositions/flow", 422, content=composition(form("Z")))["error"]["code"] == "HW1810"
    assert it.call("PUT", "/pipelines/jobs", 422, json=pipeline_form(it))["error"]["code"] == "HW1811"


def test_the_description_is_whole_and_answers_have_the_forms_that_it_says(it: Controlled) -> None:
    described = it.call("GET", "/openapi.json", 200)
    assert described["security"] == [{"token": []}]
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    for path, methods in described["paths"].items():
        for method, call in methods.items():
            assert call["summary"], (method, path)
            assert path.startswith("/agents/") or call["description"], (method, path)
    it.call("PUT", "/compositions/city", 202, content=composition(form("A")))
    it.call("PUT", "/pipelines/flow", 200, json=pipeline_form(it), params=WAIT)
    models: dict[str, type[BaseModel]] = {
        "/health": forms.Health,
        "/status": forms.Status,
        "/sites": forms.SitesSeen,
        "/plan": forms.Changed,
        "/history": forms.History,
        "/jobs": forms.JobsSeen,
        "/jobs/A": forms.JobSeen,
        "/compositions": forms.CompositionsSeen,
        "/compositions/city": forms.CompositionSeen,
        "/pipelines": forms.PipelinesSeen,
        "/pipelines/flow": forms.PipelineSeen,
        "/uploads": forms.UploadsSeen,
        "/tokens": forms.TokensSeen,
    }
    for path, model in models.items():
        model.model_validate(it.call("GET", path, 200), strict=True)
