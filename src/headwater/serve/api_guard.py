"""Who gets through the door?

Stands before everything that the controller answers with, unknown paths and the description of the API included:
without a token that counts there is only 401. An agent's token opens what is under `/agents/` and its own site,
an operator's all the rest. A body is refused as soon as it is known to be too large: by what it announces, or by
counting. Nothing of this takes longer for a wrong token than for a right one, and nobody waits for anybody else's
mistakes. What is logged of a token is its id.

    HW1821  a token that is not for this
    HW1822  a body that is too large
    HW1823  no token, or one that does not count
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.bind.tokens import Caller, Tokens
from headwater.bind.uploads import LARGEST_BYTES
from headwater.model.report import quote
from headwater.serve.spool import MOST_BYTES

__all__ = ["IDENTITY", "Guard", "most_bytes", "refusal"]

IDENTITY = "headwater"  # key in the scope: whose token came
AGENTS = "agents"
MIB = 2**20
# By the first name in the path; bodies of all others are small.
MOST = {"uploads": LARGEST_BYTES, "compositions": 4 * MIB, "pipelines": 32 * MIB, AGENTS: 32 * MIB}
MOST_OTHERWISE = MIB
LONGEST_TOKEN = 200  # characters
MOST_DIGITS = 18  # of a length that is announced
TELL_EVERY_S = 10.0  # of wrong tokens from one address
MOST_ADDRESSES = 1000  # that are told apart

_log = logging.getLogger(__name__)


class _TooLarge(Exception):
    """More came than is allowed."""


@dataclass
class _Refusals:
    """Wrong tokens, by address: told now and then, so that they fill no disk."""

    count: dict[str, int] = field(default_factory=dict)
    told_s: dict[str, float] = field(default_factory=dict)

    def add(self, address: str, path: str) -> None:
        if len(self.count) >= MOST_ADDRESSES:
            self.count.clear()
            self.told_s.clear()
        self.count[address] = self.count.get(address, 0) + 1
        now_s = time.monotonic()
        if now_s - self.told_s.get(address, -TELL_EVERY_S) >= TELL_EVERY_S:
            self.told_s[address] = now_s
            _log.warning("%d calls without a token that counts from %s, the last to %s",
                         self.count[address], address, path)  # fmt: skip


class Guard:
    """An ASGI app around another one."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        """Take what is guarded, and who knows the tokens."""
        self._app, self._tokens = app, tokens
        self._refusals = _Refusals()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let through."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._call(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, begun_s = str(scope["path"]), time.monotonic()
        caller = self._caller(scope)
        if caller is None:
            self._refusals.add(str((scope.get("client") or ("?",))[0]), quote(path, 80))
            text = "there is no token that counts. Send one as 'Authorization: Bearer TOKEN'."
            await _refuse(send, 401, "HW1823", text, [(b"www-authenticate", b"Bearer")])
            return
        status = [0]

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        if not _may(caller, path):
            of = "an operator" if caller.site is None else f"the agent of site {quote(caller.site, 60)}"
            await _refuse(noted, 403, "HW1821", f"this is not for the token of {of}.")
        else:
            scope[IDENTITY] = {"kind": caller.kind, "site": caller.site, "token_id": caller.id}
            await self._bounded(scope, receive, noted, most_bytes(path))
        is_loud = caller.kind == "operator" and scope["method"] not in {"GET", "HEAD"}
        level = logging.WARNING if status[0] >= 500 else logging.INFO if is_loud else logging.DEBUG
        took_s, asked = time.monotonic() - begun_s, f"{scope['method']} {quote(path, 200)}"
        _log.log(level, "token %s: %s: %d in %.3f s", caller.id, asked, status[0], took_s)

    def _caller(self, scope: Scope) -> Caller | None:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return None
        kind, _, text = given[0].decode("latin-1").partition(" ")
        token = text.strip()
        return self._tokens.check(token) if kind.lower() == "bearer" and len(token) <= LONGEST_TOKEN else None

    async def _bounded(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        """Let through, and break off when the body becomes too large."""
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not announced.isdigit() or len(announced) > MOST_DIGITS or int(announced) > most:
            await _refuse_large(send, most)
            return
        taken, is_begun, is_over = 0, False, False

        async def counted() -> Message:
            nonlocal taken, is_over
            message = await receive()
            taken += len(message.get("body", b"")) if message["type"] == "http.request" else 0
            if taken > most:
                is_over = True
                raise _TooLarge
            return message

        async def passed(message: Message) -> None:
            nonlocal is_begun
            if not is_over or is_begun:
                is_begun = True
                await send(message)

        try:
            await self._app(scope, counted, passed)
        except Exception:
            if not is_over:
                raise
        if is_over and not is_begun:  # whatever the app made of it
            await _refuse_large(send, most)


def most_bytes(path: str) -> int:
    """Return how large a body may be."""
    names = path.split("/")
    is_checkpoint = names[1:2] == [AGENTS] and names[3:4] == ["checkpoints"]
    return MOST_BYTES if is_checkpoint else MOST.get(names[1] if len(names) > 1 else "", MOST_OTHERWISE)


def refusal(code: str, text: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers and the body of an answer that refuses, and after which nothing is read any more."""
    mistake = {"code": code, "text": text, "file": None, "line": None}
    body = json.dumps({"error": {"code": code, "text": text, "mistakes": [mistake]}}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    return headers, body


def _may(caller: Caller, path: str) -> bool:
    """Return whether a token opens a path."""
    names = path.split("/")
    if names[1:2] != [AGENTS]:
        return caller.kind == "operator"
    return caller.kind == "agent" and names[2:3] == [caller.site]


async def _refuse_large(send: Send, most: int) -> None:
    text = f"the body has more than {most} bytes, which is the most that is taken here. Send less."
    await _refuse(send, 413, "HW1822", text)


async def _refuse(
    send: Send, status: int, code: str, text: str, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Answer at once, and close: what is still on its way is not wanted."""
    more, body = refusal(code, text)
    await send({"type": "http.response.start", "status": status, "headers": [*more, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})
