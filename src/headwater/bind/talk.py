"""How do a runner and whoever drives it talk?

Requests and answers are JSON over a socket on loopback. Both sides prove that they know the runner's
token (a challenge answered with a keyed hash, by the standard library), so nobody else on the machine can
drive a runner; nothing that comes over it is ever unpickled. The port is in a file beside the token.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from headwater.errors import BindError

__all__ = ["Caller", "Server", "make_token"]

LOOPBACK = "127.0.0.1"
LARGEST = 64 * 1024 * 1024  # bytes of a message
Answer = dict[str, Any]


def make_token(file: Path) -> bytes:
    """Write a token that only this user can read, and return it."""
    token = secrets.token_hex(32).encode()
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(token)
    return token


class Server:
    """Answers requests in a runner, each caller in a thread of its own."""

    def __init__(self, token: bytes, answer: Callable[[Mapping[str, Any]], Answer]) -> None:
        """Listen on a free port of loopback."""
        self._answer = answer
        self._listener = Listener((LOOPBACK, 0), backlog=8, authkey=token)

    @property
    def port(self) -> int:
        """Return the port."""
        address = self._listener.address
        assert isinstance(address, tuple)
        return int(address[1])

    def serve(self) -> None:
        """Answer until the process ends."""
        while True:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, OSError):
                continue  # whoever it was does not know the token, or has gone
            threading.Thread(target=self._attend, args=(connection,), daemon=True).start()

    def _attend(self, connection: Connection) -> None:
        with connection:
            while True:
                try:
                    request = json.loads(connection.recv_bytes(LARGEST))
                    connection.send_bytes(json.dumps(self._answer(request)).encode())
                except (EOFError, OSError, ValueError):
                    return


class Caller:
    """Asks a runner."""

    def __init__(self, port: int, token: bytes) -> None:
        """Connect, and prove that the token is known."""
        self._lock = threading.Lock()
        try:
            self._connection = Client((LOOPBACK, port), authkey=token)
        except (OSError, EOFError, AuthenticationError) as error:
            raise BindError(f"HW4501 the runner on port {port} does not answer: {error}.") from error

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> Answer:
        """Return the answer to a request.

        Raises:
            BindError: HW4502, no answer in time; HW4503, the runner is gone.
        """
        with self._lock:
            try:
                self._connection.send_bytes(json.dumps(request).encode())
                if not self._connection.poll(timeout_s):
                    self._connection.close()  # a late answer must not be taken for that to the next request
                    raise BindError(f"HW4502 the runner did not answer '{request.get('do')}' within {timeout_s:g} s.")
                found = json.loads(self._connection.recv_bytes(LARGEST))
            except (OSError, EOFError, ValueError) as error:
                raise BindError(f"HW4503 the runner is gone: {str(error) or 'it closed the connection'}.") from error
        assert isinstance(found, dict)
        return found

    def close(self) -> None:
        """Hang up."""
        self._connection.close()
