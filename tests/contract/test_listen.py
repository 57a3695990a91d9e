"""On which port the controller answers: with TLS where others reach it, and never in clear."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from headwater.bind.certificates import issue, make_ca
from headwater.errors import BindError, SpecError
from headwater.serve.api import serve_forever
from tests.contract.controlled import WAIT_S


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """The least that answers."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"hi"})


def served(look: Callable[[int], None], tls: tuple[Path, Path] | None = None, host: str = "127.0.0.1") -> None:
    """Serve while `look` looks, and see that it ends."""
    ports: list[int] = []
    ready, stop = threading.Event(), threading.Event()

    def told(port: int) -> None:
        ports.append(port)
        ready.set()

    thread = threading.Thread(target=serve_forever, args=(hello, host, 0, tls, told, stop), daemon=True)
    thread.start()
    assert ready.wait(WAIT_S)
    try:
        look(ports[0])
    finally:
        stop.set()
        thread.join(WAIT_S)
    assert not thread.is_alive()
    with pytest.raises(ConnectionError):
        socket.create_connection(("127.0.0.1", ports[0]), timeout=WAIT_S)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n",
        b"hello\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_the_form_of_the_api(request_: bytes) -> None:
    def look(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as caller:
            caller.sendall(request_)
            answer = b"".join(iter(lambda: caller.recv(4096), b""))  # until it hangs up
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/json" in head.lower()
        assert json.loads(body)["error"]["code"] == "HW1820"
        with httpx.Client(trust_env=False) as client:
            assert client.get(f"http://127.0.0.1:{port}/").text == "hi"

    served(look)


def test_a_body_that_turns_into_no_http_ends_the_connection_and_no_other() -> None:
    def look(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as caller:
            caller.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert caller.recv(4096).startswith(b"HTTP/1.1 200 ")  # it answers without waiting for the body
            caller.sendall(b"no number\r\n")
            rest = b"".join(iter(lambda: caller.recv(4096), b""))
            assert rest in {b"", b"hi"}
        with httpx.Client(trust_env=False) as client:
            assert client.get(f"http://127.0.0.1:{port}/").text == "hi"

    served(look)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", "127.0.0.1.example.org", ""])
def test_others_are_not_answered_in_clear(host: str) -> None:
    with pytest.raises(SpecError, match="HW1831"):
        serve_forever(hello, host, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_is_answered_on_a_free_port_that_is_told(host: str) -> None:
    def look(port: int) -> None:
        with httpx.Client(trust_env=False) as client:
            assert client.get(f"http://127.0.0.1:{port}/").text == "hi"

    served(look, host=host)


def test_with_a_certificate_others_are_answered_over_tls_and_over_nothing_older(tmp_path: Path) -> None:
    made = issue(tmp_path, "controller", ["127.0.0.1"])
    trust = ssl.create_default_context(cafile=str(make_ca(tmp_path).certificate))

    def look(port: int) -> None:
        with httpx.Client(verify=trust, trust_env=False) as client:
            assert client.get(f"https://127.0.0.1:{port}/").text == "hi"
        with httpx.Client(trust_env=False) as client, pytest.raises(httpx.TransportError):
            client.get(f"http://127.0.0.1:{port}/")
        with httpx.Client(trust_env=False) as client, pytest.raises(httpx.ConnectError, match="certificate"):
            client.get(f"https://127.0.0.1:{port}/")

    served(look, (made.certificate, made.key))


def test_a_port_that_is_taken_and_a_certificate_that_is_none_are_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BindError, match=r"HW4610 .*Choose another"):
        serve_forever(hello, "127.0.0.1", taken.getsockname()[1])
    (tmp_path / "none.pem").write_text("none")
    with pytest.raises(BindError, match=r"HW4610 the certificate .*none\.pem"):
        serve_forever(hello, "127.0.0.1", 0, (tmp_path / "none.pem", tmp_path / "none.pem"))
