"""How do a runner and whoever drives it talk?

Requests and answers are JSON over a socket on loopback (in a testbed: on its network for management). Both
sides prove that they know the runner's token (a challenge answered with a keyed hash, by the standard
library), so nobody else can drive a runner; nothing that comes over it is ever unpickled. The port is in a
file beside the token.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from headwater.errors import BindError

__all__ = ["Caller", "Server", "make_token"]

LOOPBACK = "127.0.0.1"
LARGEST = 64 * 1024 * 1024  # bytes of a message
# Bytes of an answer, by what is asked: this one is read every second, and reading JSON holds up all else.
LARGEST_ANSWER = {"status": 2 * 1024 * 1024}
LENGTH = struct.Struct("!i")  # stands before a message, as `Connection` writes it
PIECE = 256 * 1024  # bytes that are read at once
PROOF_S = 10.0  # a caller that has not proved by then that it knows the token is a stranger
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

    def __init__(self, token: bytes, answer: Callable[[Mapping[str, Any]], Answer], host: str = LOOPBACK) -> None:
        """Listen on a free port, of loopback or of a testbed's own network for management."""
        self._token = token
        self._answer = answer
        self._listener = socket.create_server((host, 0), backlog=64)
        self._serving = threading.Lock()  # held while somebody may be in accept
        self._closing = threading.Event()

    @property
    def port(self) -> int:
        """Return the port."""
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Answer until it is closed, or the process ends."""
        with self._serving:
            while not self._closing.is_set():
                try:
                    caller, _ = self._listener.accept()
                except OSError:
                    continue  # whoever it was has gone, or it is being closed
                # The proof is asked for in the caller's own thread: a silent stranger keeps nobody else waiting.
                threading.Thread(target=self._attend, args=(Connection(caller.detach()),), daemon=True).start()

    def close(self) -> None:
        """Take no more callers."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in accept
        # Closed only when nobody is in accept any more: whatever is opened next gets the same number, and an
        # accept that was about to begin would take that one's callers.
        with self._serving:
            self._listener.close()

    def _attend(self, connection: Connection) -> None:
        with connection:
            try:
                _limit(connection, PROOF_S)
                deliver_challenge(connection, self._token)
                answer_challenge(connection, self._token)
                _limit(connection, None)
            except (AuthenticationError, AssertionError, EOFError, OSError):
                return  # whoever it was does not know the token, or has gone
            while True:
                try:
                    request = json.loads(connection.recv_bytes(LARGEST))
                    connection.send_bytes(json.dumps(self._answer(request)).encode())
                except (EOFError, OSError, ValueError):
                    return


class Caller:
    """Asks a runner."""

    def __init__(self, port: int, token: bytes, host: str = LOOPBACK) -> None:
        """Connect, and prove that the token is known.

        Raises:
            BindError: HW4501.
        """
        self._lock = threading.Lock()
        try:
            reached = socket.create_connection((host, port), PROOF_S)
            reached.settimeout(None)
            connection = Connection(reached.detach())
        except OSError as error:
            raise BindError(f"HW4501 the runner on port {port} does not answer: {error}.") from error
        with connection:
            try:
                _limit(connection, PROOF_S)
                answer_challenge(connection, token)
                deliver_challenge(connection, token)
            except (OSError, EOFError, AuthenticationError, AssertionError) as error:
                why = "it said nothing in time" if isinstance(error, BlockingIOError) else str(error) or "it hung up"
                raise BindError(f"HW4501 the runner on port {port} does not answer: {why}.") from error
            self._socket = socket.socket(fileno=os.dup(connection.fileno()))

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> Answer:
        """Return the answer to a request.

        Raises:
            BindError: HW4502, no answer in time; HW4503, the runner is gone.
        """
        do = request.get("do")
        with self._lock:
            try:
                message = json.dumps(request).encode()
                end_s = time.monotonic() + timeout_s  # for all of it: an answer may come a byte at a time
                self._socket.settimeout(timeout_s)
                self._socket.sendall(LENGTH.pack(len(message)) + message)
                (size,) = LENGTH.unpack(self._received(LENGTH.size, end_s))
                if not 0 <= size <= LARGEST_ANSWER.get(str(do), LARGEST):
                    raise ValueError("its answer is too large")
                found = json.loads(self._received(size, end_s))
                if not isinstance(found, dict):
                    raise ValueError("it says what is no answer")
            except TimeoutError:
                self._socket.close()  # a late answer must not be taken for that to the next request
                raise BindError(f"HW4502 the runner did not answer '{do}' within {timeout_s:g} s.") from None
            # The last one: it is nested too deeply.
            except (OSError, EOFError, ValueError, OverflowError, struct.error, RecursionError) as error:
                self._socket.close()  # what else comes would be taken for an answer
                raise BindError(f"HW4503 the runner is gone: {str(error) or 'it closed the connection'}.") from error
        return found

    def _received(self, size: int, end_s: float) -> bytearray:
        """Return so many bytes, all of which have to come by then."""
        found = bytearray()
        while len(found) < size:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            piece = self._socket.recv(min(PIECE, size - len(found)))
            if not piece:
                raise EOFError
            found += piece
        return found

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def __del__(self) -> None:
        """Hang up when nobody holds it any more: an agent that goes leaves its runners as they are."""
        if hasattr(self, "_socket"):  # nobody was reached otherwise
            self._socket.close()


def _limit(connection: Connection, limit_s: float | None) -> None:
    """Let everything that this connection waits for fail after so long; None: never."""
    whole = int(limit_s or 0.0)
    value = struct.pack("@ll", whole, max(1, int(((limit_s or 0.0) - whole) * 1e6)) if limit_s is not None else 0)
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        same.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)
