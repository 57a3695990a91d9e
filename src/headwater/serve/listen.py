"""On which port does the controller answer?

Puts an app on a port and stays until it is told to end. Without TLS only this machine itself is answered: a token
must not travel in clear. What cannot be read as HTTP is refused in the form in which the API refuses all else.

    HW1820  a request that is no HTTP
    HW1831  an address that others reach, without a certificate
    HW4610  the port, the address or the certificate cannot be used
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwater.errors import BindError, Mistake, SpecError
from headwater.serve.api_guard import refusal

__all__ = ["is_loopback", "serve_forever"]

GRACE_S = 3  # for calls that are under way at the end
IDLE_S = 30  # for a connection that asks nothing
MOST_CONNECTIONS = 1000
MOST_WAITING = 512  # that the system keeps for us


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None], stop: threading.Event) -> None:
        super().__init__(config)
        self._on_started, self._stop = on_started, stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._on_started()

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._stop.is_set()


class _Protocol(H11Protocol):
    def send_400_response(self, msg: str) -> None:
        headers, body = refusal("HW1820", "the request cannot be read: it is not in the form of HTTP.")
        with contextlib.suppress(h11.LocalProtocolError):  # an answer to it was begun before the rest of it came
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def serve_forever(
    app: ASGIApp,
    host: str,
    port: int,
    tls: tuple[Path, Path] | None = None,
    on_ready: Callable[[int], None] = lambda port: None,
    stop: threading.Event | None = None,
) -> None:
    """Answer until SIGINT or SIGTERM, or until `stop` is set.

    Args:
        app: What answers.
        host: Name or address to listen on.
        port: 0: a free one.
        tls: Files of the certificate and its key.
        on_ready: Is called with the port once it answers.
        stop: Ends it, from another thread.

    Raises:
        SpecError: HW1831.
        BindError: HW4610.
    """
    if tls is None and not is_loopback(host):
        raise SpecError(
            Mistake(
                "HW1831",
                f"'{host}' is reached from other machines, and without TLS tokens would travel in clear. Give a "
                "certificate and its key ('headwater ca' makes them), or listen on 127.0.0.1.",
            )
        )
    try:
        listener = _bound(host, port)
    except (OSError, OverflowError, UnicodeError) as error:
        raise BindError(f"HW4610 {host}:{port} cannot be listened on: {error}. Choose another port.") from error
    with listener:
        config = uvicorn.Config(
            app,
            http=_Protocol,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        config.load()
        if tls is not None:
            config.ssl = _context(*tls)
        bound = listener.getsockname()[1]
        _Server(config, lambda: on_ready(bound), stop or threading.Event()).run(sockets=[listener])


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::")
    (True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bound(host: str, port: int) -> socket.socket:
    kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    # Without its protocol asyncio does not take it for TCP, and the second half of each answer waits for 40 ms.
    listener = socket.socket(kind, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MOST_WAITING)
    except BaseException:
        listener.close()
        raise
    return listener


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise BindError(
            f"HW4610 the certificate '{certificate}' or its key '{key}' cannot be used: {error}. 'headwater ca' makes "
            "both."
        ) from error
    return context
