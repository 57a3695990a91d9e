"""What does the controller answer over HTTP, all together?

Puts the routes for operators (`serve.api_routes`) and for agents (`serve.api_agents`) into one app: errors in our
words, a description of all of it at `/openapi.json`, and the guard in front. `serve_forever` puts it on a port.

    HW1820  a request that is not in the form that is asked for
    HW1824  a method that a path does not have
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from headwater import __version__
from headwater.bind.tokens import Tokens
from headwater.errors import BindError, HeadwaterError, Mistake, PlanError, SpecError
from headwater.serve import api_models as forms
from headwater.serve.api_guard import Guard
from headwater.serve.api_routes import Reply, operators
from headwater.serve.controller import Controller
from headwater.serve.listen import serve_forever
from headwater.serve.wire import error_object

__all__ = ["describe", "make_app", "make_routes", "serve_forever", "status_of"]

MOST_THREADS = 100  # routes at work at once
MOST_TOLD = 20  # mistakes in the form of a request
NOT_FOUND = "HW1830"

_log = logging.getLogger(__name__)

# Named by reference: a model for each of them at each route would take a second to make.
TROUBLES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Trouble"}}},
    }
    for status, text in {
        400: "the request cannot be read",
        401: "no token, or one that does not count",
        403: "the token is not for this",
        404: "nothing has this name (HW1830)",
        409: "no plan for this, or the plan is stale",
        413: "the body is too large",
        422: "what was sent is wrong: every mistake",
        503: "something outside refused: a site, the disk",
    }.items()
}
DESCRIPTION = """\
Jobs, compositions and pipelines that run across sites, and change while they run.

**Changes.** Every changing call answers with its plan: what becomes of each job, and why. `dry_run=true` changes
nothing. The `basis` of that plan, sent with the real call, lets it happen as planned or be refused (409).
`wait_s` waits for the jobs to be as wanted. The controller goes on trying whether or not anybody waits.

**Errors** say what is wrong, where, and what to do next: `{"error": {"code", "text", "mistakes": [..]}}`.

**Units.** Keys say them: `_s` seconds, `_bytes`, `_rps` records a second.
"""


def make_app(controller: Controller, desk_router: APIRouter | None, tokens: Tokens) -> ASGIApp:
    """Return all that the controller answers over HTTP, behind the guard.

    Args:
        controller: What is asked.
        desk_router: The agents' routes; None: there are none.
        tokens: Who is let in.
    """
    return Guard(make_routes(controller, desk_router, tokens), tokens)


def make_routes(controller: Controller, desk_router: APIRouter | None, tokens: Tokens) -> FastAPI:
    """Return the same without the guard: never to be put on a port."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = MOST_THREADS
        yield

    app = FastAPI(
        title="Headwater",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        default_response_class=Reply,
        responses=TROUBLES,
    )
    app.include_router(operators(controller, tokens))
    if desk_router is not None:
        app.include_router(desk_router)
    described = lru_cache(1)(lambda: describe(app))  # made when somebody asks: it takes as long as all the rest

    @app.get("/openapi.json", include_in_schema=False)
    def openapi() -> Reply:
        return Reply(described())

    _tell_errors(app)
    return app


def status_of(error: HeadwaterError) -> int:
    """Return HTTP's number for an error."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status
    if isinstance(error, SpecError):
        return 404 if error.mistakes[0].code == NOT_FOUND else 422
    return 409 if isinstance(error, PlanError) else 503 if isinstance(error, BindError) else 500


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the description of the API, with the token that everything wants."""
    found = get_openapi(title="Headwater", version=__version__, description=DESCRIPTION, routes=app.routes)
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    trouble = forms.Trouble.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update({**trouble.pop("$defs"), "Trouble": trouble})
    scheme = {"type": "http", "scheme": "bearer", "description": "an operator's token, or that of a site's agent"}
    found["components"]["securitySchemes"] = {"token": scheme}
    found["security"] = [{"token": []}]
    return found


def _tell_errors(app: FastAPI) -> None:
    @app.exception_handler(HeadwaterError)
    def ours(_: Request, error: HeadwaterError) -> Reply:
        return _told(error, status_of(error))

    @app.exception_handler(RequestValidationError)
    def malformed(_: Request, error: RequestValidationError) -> Reply:
        mistakes = [
            Mistake("HW1820", f"{'.'.join(map(str, one['loc']))}: {one['msg']}") for one in error.errors()[:MOST_TOLD]
        ]
        return _told(SpecError(*mistakes), 422)

    @app.exception_handler(HTTPException)
    def refused(_: Request, error: HTTPException) -> Reply:
        code = {404: NOT_FOUND, 405: "HW1824"}.get(error.status_code, "HW1820")
        text = {404: "there is nothing at this path", 405: "this path does not have this method"}
        said = text.get(error.status_code, f"the request cannot be read: {error.detail}")
        answer = _told(SpecError(Mistake(code, f"{said}. '/openapi.json' tells what there is.")), error.status_code)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(ClientDisconnect)
    def gone(_: Request, __: ClientDisconnect) -> Reply:
        return _told(SpecError(Mistake("HW1820", "the request was not sent to its end.")), 400)

    @app.exception_handler(Exception)
    def broken(_: Request, error: Exception) -> Reply:
        _log.error("a call failed", exc_info=error)
        text = "HW9000 this is a mistake in Headwater; its log has more. Please report it."
        return _told(HeadwaterError(text), 500)


def _told(error: HeadwaterError, status: int) -> Reply:
    mistakes = error_object(error)["error"]["mistakes"]
    text = mistakes[0]["text"] if len(mistakes) == 1 else str(error)
    return Reply({"error": {"code": mistakes[0]["code"], "text": text, "mistakes": mistakes}}, status)
