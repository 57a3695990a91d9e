"""Which ports does a broker of ours listen on?

One for clients and one for its own controller, chosen once and remembered in the broker's folder. A port that
another program has taken meanwhile is replaced, unless clients elsewhere know the broker by it: then the broker
has to wait for its port.

A broker listens a second or two after its ports were chosen. Until then they are reserved, so that brokers which are
started at once, by several processes, never choose the same: by the name of a local socket, which no two may have, and
which the kernel frees with the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
from pathlib import Path

from headwater.bind.keyring import write_private
from headwater.errors import BindError

__all__ = ["choose_ports", "is_free", "release_ports", "remembered_ports"]

# Below the ports that systems give to outgoing connections: a client that tries to reach a broker that is down
# could be given the broker's own port, be connected to itself, and keep the broker from coming back.
PORTS = range(20_000, 32_000)
_reserved: dict[int, tuple[Path, int]] = {}  # by port, of this process: for the broker of which folder, by which socket
_reserving = threading.Lock()


def remembered_ports(folder: Path) -> tuple[int, int] | None:
    """Return the ports for clients and for the controller that a folder remembers."""
    try:
        found = json.loads((folder / "ports.json").read_text("ascii"))
        return int(found["client"]), int(found["controller"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def choose_ports(
    folder: Path, site: str, host: str, fixed_port: int | None = None, *, is_kept: bool = False
) -> tuple[int, int]:
    """Return the ports for clients and for the controller, free and reserved, and remember them.

    Args:
        folder: That remembers them.
        site: Whose broker it is.
        host: That clients reach it by.
        fixed_port: For clients, if the user named one.
        is_kept: Whether a port for clients that was chosen once stays for ever.

    Raises:
        BindError: HW4203, the port that it must have is in use, or the host is not this machine.
    """

    def may_have(host: str, port: int) -> bool:
        return is_free(host, port) and _reserve(folder, port)

    wishes = list(remembered_ports(folder) or ())
    if fixed_port is not None:
        if not may_have(host, fixed_port):
            raise BindError(
                f"HW4203 port {fixed_port} of {host}, asked for by the broker of site '{site}', "
                "is in use by another program or may not be used; name another port, or none to get a free one"
            )
        wishes[:1] = [fixed_port]
    elif not is_free(host, 0):
        raise BindError(
            f"HW4203 the broker of site '{site}' cannot listen on '{host}': that is no address of this "
            "machine; name one, or 127.0.0.1 if only this machine needs to reach it"
        )
    first = int.from_bytes(hashlib.sha256(str(folder).encode()).digest()[:4], "big") % len(PORTS)
    others = (PORTS[(first + step) % len(PORTS)] for step in range(len(PORTS)))
    port = next(iter(wishes[:1]), None)
    if port is not None and is_kept and not may_have(host, port):
        raise BindError(
            f"HW4203 port {port} of {host}, which the broker of site '{site}' has had since it was first started, is "
            "in use by another program; its clients know it by this port, so it gets no other: end that program, "
            "then start again"
        )
    if port is None or not may_have(host, port):
        port = next(other for other in others if may_have(host, other))
    controller = next(iter(wishes[1:]), None)
    if controller in (None, port) or not may_have("127.0.0.1", controller):
        controller = next(other for other in others if other != port and may_have("127.0.0.1", other))
    if (port, controller) != tuple(wishes):
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / "ports.json", json.dumps({"client": port, "controller": controller}).encode())
    return port, controller


def is_free(host: str, port: int) -> bool:
    """Return whether this process could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: closing connections do not count
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def release_ports(folder: Path) -> None:
    """Let others have what was reserved for the broker of a folder: it listens by now, or will not."""
    with _reserving:
        for port in [port for port, (owner, _) in _reserved.items() if owner == folder]:
            os.close(_reserved.pop(port)[1])


def _reserve(folder: Path, port: int) -> bool:
    """Keep a port for the broker of a folder until it is released; return whether no other broker of ours has it."""
    if sys.platform != "linux":  # elsewhere names of sockets are files, and stay when their process is killed
        return True
    with _reserving:
        if port in _reserved:
            return _reserved[port][0] == folder
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name.bind(f"\0headwater-port-{port}")
        except OSError:
            name.close()
            return False
        _reserved[port] = folder, name.detach()
        return True
