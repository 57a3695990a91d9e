"""Whatever is sent to any route, with a token or without: no answer is a 500, and none comes without a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headwater.bind.store import Store
from headwater.bind.tokens import Tokens
from headwater.bind.uploads import Uploads
from headwater.serve.api import describe, make_routes
from headwater.serve.api_agents import router
from headwater.serve.controller import Controller
from headwater.serve.desk import Desk
from headwater.sim.world import World
from tests.contract.controlled import Controlled, ControlledSites, composition, form, pipeline_form, running

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
KNOWN = ("A", "C", "city", "flow", "flow.out", "jobs.py")
BRIEF_S, MOST_S = 0.3, 600.0  # as long as any call may wait here, and as the API lets any wait


@pytest.fixture(scope="module")
def it(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controlled]:
    with running(tmp_path_factory.mktemp("schema")) as found:
        fill(found)
        yield found


def fill(it: Controlled) -> None:
    """Let there be something of each kind, also after a call has removed it."""
    it.upload()
    it.client.post("/jobs", json=form("A"))
    it.client.put("/compositions/city", content=composition(form("C"), form("D", "cloud")))
    it.client.put("/pipelines/flow", json=pipeline_form(it))


def described() -> dict[str, Any]:
    """What the API says of itself; it takes no server to know."""
    with TemporaryDirectory() as folder:
        store, uploads = Store(Path(folder, "store.db")), Uploads(Path(folder, "uploads"))
        controller = Controller(store, ControlledSites(World()), uploads)
        desk = Desk(uploads.folder, Path(folder, "spool"))
        found = describe(make_routes(controller, router(desk), Tokens(store)))
        desk.close()
        store.close()
    return found


schema = schemathesis.openapi.from_dict(described())


def sent(case: Case[Any], it: Controlled, token: str | None) -> Any:
    """Send a case, every other one about something that there is."""
    for key in ("name", "site"):
        given = case.path_parameters.get(key)
        if isinstance(given, str) and len(given) % 2:
            case.path_parameters[key] = KNOWN[len(given) // 2 % len(KNOWN)] if key == "name" else "edge-1"
    waits = any(one.name == "wait_s" for one in case.operation.query)
    if waits and _is_long(case.query.get("wait_s", MOST_S)):  # left out, it is long
        case.query["wait_s"] = BRIEF_S
    case.headers.pop("Authorization", None)
    more = {} if token is None else {"Authorization": f"Bearer {token}"}
    return case.call(base_url=f"http://127.0.0.1:{it.port}", headers=more, timeout=60)


def _is_long(wait_s: object) -> bool:
    try:
        return BRIEF_S < float(str(wait_s)) <= MOST_S
    except ValueError:
        return False


def is_read(response: Any) -> bool:
    """Return whether it could be read at all: who sends no HTTP is refused before there is a token to look at."""
    return not (response.status_code == 400 and "not in the form of HTTP" in response.text)


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=QUIET)
def test_an_operator_meets_only_answers_that_are_described(case: Case[Any], it: Controlled) -> None:
    response = sent(case, it, it.token)
    case.validate_response(response, checks=CHECKS)
    is_stranger = "Authorization" not in response.request.headers  # some cases leave it out on purpose
    assert (response.status_code == 401) == (is_stranger and is_read(response))
    assert (response.status_code == 403) == (case.path.startswith("/agents/") and not is_stranger)
    if case.method.upper() == "DELETE":
        fill(it)


@pytest.fixture(scope="module")
def agent(it: Controlled) -> str:
    return it.agent_token("edge-1")


@schema.include(path_regex="^/agents/").parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=QUIET)
def test_an_agent_meets_only_answers_that_are_described(case: Case[Any], it: Controlled, agent: str) -> None:
    case.validate_response(sent(case, it, agent), checks=[not_a_server_error, status_code_conformance])


@schema.parametrize()
@settings(max_examples=10, deadline=None, suppress_health_check=QUIET)
def test_nothing_is_reached_without_a_token(case: Case[Any], it: Controlled) -> None:
    before = it.store.revision, len(it.store.history(100)), len(it.store.tokens()), it.store.uploads()
    response = sent(case, it, None)
    if is_read(response):
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == ["Bearer"]
    after = it.store.revision, len(it.store.history(100)), len(it.store.tokens()), it.store.uploads()
    assert before == after


@pytest.mark.parametrize(
    "path", ["/", "/openapi.json", "/docs", "/redoc", "/nowhere", "/health", "/agents/edge-1/hello"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "TRACE"])
def test_no_path_and_no_method_answers_without_a_token(it: Controlled, method: str, path: str) -> None:
    with it.client_of(None) as stranger:
        assert stranger.request(method, path).status_code == 401


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Basic {}", "bearer{}", "Bearer {}x", "Bearer x{}", "Token {}", "Bearer \xe9", "{}"],
)
def test_a_token_must_be_given_as_it_is_said(it: Controlled, header: str) -> None:
    with it.client_of(None) as stranger:
        given = header.format(it.token).encode("latin-1")
        assert stranger.get("/health", headers=[(b"Authorization", given)]).status_code == 401
        assert stranger.get("/health", params={"token": it.token, "access_token": it.token}).status_code == 401
        assert stranger.get("/health", headers={"Cookie": f"token={it.token}"}).status_code == 401
        twice = [("Authorization", f"Bearer {it.token}"), ("Authorization", f"Bearer {it.token}")]
        assert stranger.get("/health", headers=twice).status_code == 401
