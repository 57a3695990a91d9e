"""What may agents ask of the controller?

The routes under `/agents/SITE`. The guard in front of them says whose token came; here it must be this site's
agent's. All else is the desk's business. Nothing here blocks: whatever touches a disk is done aside.
What an agent of a later version says beyond these forms is left unread.

    HW1820   a request that is not in the form of `docs/control.md`
    HW4935   the token is not this site's agent's
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any, BinaryIO

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from headwater.errors import BindError
from headwater.plan.jobs import JOB_NAME, Held
from headwater.serve.desk import Desk
from headwater.serve.sessions import Hello, Refused

__all__ = ["router"]

CHUNK_BYTES = 1024 * 1024
STATUS = {"HW4911": 404, "HW4912": 413}  # else 503
MOST_JOBS = 10_000  # of a site
MOST_TEXT = 100_000


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Refuse what could be read and could not be written again: numbers that are none, halves of characters."""
    json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    return found


def _paired(found: Any) -> Any:
    """Take a job as `held_object` gives it, where positions are by name."""
    if isinstance(found, dict) and isinstance(found.get("positions"), dict):
        return {**found, "positions": sorted(found["positions"].items())}
    return found


def _sound(found: Held) -> Held:
    """Refuse what no site can hold."""
    if not JOB_NAME.fullmatch(found.job.name):
        raise ValueError("that is no name of a job")
    if not 0 <= found.epoch <= 2**53:
        raise ValueError("that is no epoch")
    return found


Session = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16,64}$")]
JobName = Annotated[str, StringConstraints(pattern=f"^{JOB_NAME.pattern}$")]
Short = Annotated[str, StringConstraints(max_length=300)]
Text = Annotated[str, StringConstraints(max_length=MOST_TEXT)]
Count = Annotated[int, Field(ge=0, le=2**53)]
Holding = Annotated[Held, BeforeValidator(_paired), AfterValidator(_sound)]
Plain = Annotated[dict[str, Any], AfterValidator(_plain)]
Site = Annotated[str, Path(max_length=300)]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]
Checkpoint = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


class _Hello(BaseModel):
    session: Session
    instance: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{16,64})?$")] = ""
    broker: Short
    address: Short | None = None
    version: Short = ""
    held: Annotated[list[Holding], Field(max_length=MOST_JOBS)] = []
    busy: Annotated[list[JobName], Field(max_length=MOST_JOBS)] = []
    password: Annotated[str, StringConstraints(max_length=300)] | None = None


class _Report(BaseModel):
    session: Session
    number: Count
    held: Annotated[list[Holding], Field(max_length=MOST_JOBS)]
    told: Plain = {}
    busy: Annotated[list[JobName], Field(max_length=MOST_JOBS)] = []
    after: Count = 0


class _Answer(BaseModel):
    session: Session
    id: Count
    ok: bool
    error: Text | None = None
    result: Plain | None = None


class _Bye(BaseModel):
    session: Session


class _AgentRoute(APIRoute):
    """Lets only this site's agent in, and tells errors in our words."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            site = request.path_params.get("site", "")
            who = request.scope.get("headwater")
            if not isinstance(who, dict) or who.get("kind") != "agent" or who.get("site") != site:
                return _error(
                    403,
                    f"HW4935 this is for the agent of site '{site}' alone, and the token is another's. Use the token "
                    "that was made for this site.",
                )
            try:
                return await answer(request)
            except RequestValidationError as error:
                places = "; ".join(
                    f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:5]
                )
                return _error(422, f"HW1820 the request is not in the form that is asked for: {places}.")
            except HTTPException as error:
                return _error(error.status_code, f"HW1820 the request cannot be read: {error.detail}.")
            except Refused as error:
                return _error(error.status, str(error))
            except BindError as error:
                code = str(error).partition(" ")[0]
                return _error(STATUS.get(code, 503), str(error))

        return guarded


def router(desk: Desk) -> APIRouter:
    """Return the agents' routes."""
    found = APIRouter(prefix="/agents/{site}", route_class=_AgentRoute, tags=["agents"])

    @found.post("/hello")
    async def hello(site: Site, body: _Hello) -> dict[str, Any]:
        """Begin a session."""
        held = _held(site, body.held)
        await desk.hello(
            site,
            Hello(
                body.session,
                body.instance,
                body.broker,
                body.address,
                body.version,
                held,
                frozenset(body.busy),
                body.password,
            ),
        )
        return {"session": body.session}

    @found.post("/report")
    async def report(site: Site, body: _Report) -> dict[str, Any]:
        """Say what the site holds."""
        held = _held(site, body.held)
        await desk.report(site, body.session, body.number, held, body.told, frozenset(body.busy), body.after)
        return dict(desk.wishes())

    @found.get("/orders")
    async def orders(
        site: Site,
        session: Annotated[Session, Query()],
        after: Annotated[int, Query(ge=0, le=2**53, description="the greatest id that has come")] = 0,
        wait_s: Annotated[float, Query(ge=0, le=60, allow_inf_nan=False)] = 20.0,
    ) -> Response:
        """Wait for orders."""
        return JSONResponse({"orders": await desk.orders(site, session, after, wait_s)})

    @found.post("/answers")
    async def answers(site: Site, body: _Answer) -> dict[str, Any]:
        """Say what came of an order."""
        error = None if body.ok else body.error or "it gave no reason"
        desk.answer(site, body.session, body.id, error, body.result or {})
        return {}

    @found.post("/bye")
    async def bye(site: Site, body: _Bye) -> dict[str, Any]:
        """End a session: the agent stops, and its jobs go on."""
        desk.bye(site, body.session)
        return {}

    @found.get("/uploads/{digest}")
    async def uploads(site: Site, digest: Digest) -> Response:
        """Get what was uploaded."""
        path = await desk.aside(lambda: desk.upload(digest))
        if path is None:
            raise Refused(404, f"HW1830 nothing was uploaded with the hash '{digest}'. Upload it again.")
        file = await desk.aside(lambda: path.open("rb"))
        return StreamingResponse(_chunks(desk, file), media_type="application/octet-stream")

    @found.put("/checkpoints/{checkpoint}")
    async def bring(site: Site, checkpoint: Checkpoint, request: Request) -> dict[str, Any]:
        """Bring a packed checkpoint."""
        try:
            with desk.spool(site).bring(site, checkpoint) as arrival:
                waiting = bytearray()
                async for chunk in request.stream():
                    waiting += chunk
                    if len(waiting) >= CHUNK_BYTES:
                        await desk.aside(lambda some=bytes(waiting): arrival.write(some))  # type: ignore[misc]
                        waiting.clear()
                await desk.aside(lambda: arrival.write(bytes(waiting)))
        except ClientDisconnect:
            raise Refused(400, "HW1820 the checkpoint was not sent to its end.") from None
        return {"size_bytes": arrival.size_bytes}

    @found.get("/checkpoints/{checkpoint}")
    async def take(site: Site, checkpoint: Checkpoint) -> Response:
        """Get a packed checkpoint."""
        file = desk.spool(site).take(site, checkpoint)
        return StreamingResponse(_chunks(desk, file), media_type="application/octet-stream")

    return found


async def _chunks(desk: Desk, file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while chunk := await desk.aside(lambda: file.read(CHUNK_BYTES)):
            yield chunk


def _held(site: str, found: list[Held]) -> tuple[Held, ...]:
    """Return what a site says that it holds."""
    if any(one.site != site for one in found):
        raise Refused(422, f"HW1820 site '{site}' speaks of what another site holds.")
    return tuple(found)


def _error(status: int, text: str) -> JSONResponse:
    text = text.encode("utf-8", "replace").decode()
    code, _, rest = text.partition(" ")
    mistake = {"code": code, "text": rest, "file": None, "line": None}
    return JSONResponse({"error": {"code": code, "text": rest, "mistakes": [mistake]}}, status)
