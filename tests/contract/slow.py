"""A broker that is far away: a relay in front of a real one lets everything take its time."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
import time

__all__ = ["Relay"]

MOST_BYTES = 1 << 20
Waiting = queue.SimpleQueue[tuple[float, bytes]]  # what came, and when it may go on


class Relay:
    """Stands in front of a broker that listens on 127.0.0.1; whoever asks it there stays with it."""

    def __init__(self, address: str) -> None:
        """Listen on a free port."""
        host, _, port = address.rpartition(":")
        self.delay_s = 0.0  # of what comes from the broker
        self._broker = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        # The broker tells its clients where it is: a name, and a number of four bytes.
        theirs, ours = (struct.pack(">i", one) for one in (int(port), self._listener.getsockname()[1]))
        self._told = host.encode() + theirs, host.encode() + ours
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._broker)
            waiting: Waiting = queue.SimpleQueue()
            for part, words in ((_ask, (client, broker)), (self._hear, (broker, waiting)), (_tell, (waiting, client))):
                threading.Thread(target=part, args=words, daemon=True).start()

    def _hear(self, broker: socket.socket, waiting: Waiting) -> None:
        with broker, contextlib.suppress(OSError):
            while data := broker.recv(MOST_BYTES):
                waiting.put((time.monotonic() + self.delay_s, data.replace(*self._told)))
        waiting.put((0.0, b""))

    def close(self) -> None:
        """Take no more."""
        self._listener.close()


def _ask(client: socket.socket, broker: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(MOST_BYTES):
            broker.sendall(data)
    with contextlib.suppress(OSError):
        broker.shutdown(socket.SHUT_RDWR)


def _tell(waiting: Waiting, client: socket.socket) -> None:
    with client, contextlib.suppress(OSError):
        while True:
            due_s, data = waiting.get()
            if not data:
                return
            time.sleep(max(0.0, due_s - time.monotonic()))
            client.sendall(data)
