"""What the tests of testbeds share: sites, beds that go away again, and ways to try what reaches what."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from headwater.bind import cgroup
from headwater.model.sites import Link, Site, Sites
from headwater.testbed import network
from headwater.testbed.bed import Bed, leftovers, probe, remove

STOLEN_SHARE = 0.02  # of the processors, from which on a try does not count
ODD = "far out, übrigens"
SITES = Sites(
    (
        Site("cloud", "root", cores=4.0, speed=2.0),
        Site("north", cores=1.0, memory_bytes=64e6),
        Site("south"),
        Site(ODD, "leaf"),
    ),
    (
        Link("cloud", "north", 0.010, 100e6),
        Link("cloud", "south", 0.040, 100e6),
        Link("north", ODD, 0.005, 50e6),
    ),
)
PYTHON = (sys.executable, "-I", "-S", "-c")


def beds(name: str) -> Iterator[Bed]:
    """Yield a bed that is up, and remove every bed whose name begins so, whatever became of the tests."""
    ground = probe()
    if not ground.is_enough:
        pytest.skip(ground.because)
    try:
        bed = Bed(name, SITES)
        bed.up()
        go_first()
        yield bed
    finally:
        for one in leftovers():
            if one.startswith(name):
                remove(one)


def go_first() -> None:
    """Put what runs in testbeds before what else runs here, which must not decide what is measured."""
    hierarchy = cgroup.find()
    if hierarchy is not None:
        name, most = ("cpu.weight", "2000") if hierarchy.version == 2 else ("cpu.shares", "20480")
        (hierarchy.cpu / "headwater" / name).write_text(most)


def start(bed: Bed, site: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*bed.box(site).enter, *words], stdout=subprocess.PIPE, text=True)


def reaches(bed: Bed, origin: str | None, address: str, owner: str | None, patience_s: float = 3.0) -> bool:
    """Return whether a connection from a site (or from outside) to a server at an address of another comes about."""

    def make() -> socket.socket:
        return socket.socket()

    server = network.inside(bed.layout.namespace(owner), make) if owner is not None else make()
    client = network.inside(bed.layout.namespace(origin), make) if origin is not None else make()
    with server, client:
        server.bind((address, 0))
        server.listen()
        client.settimeout(patience_s)
        try:
            client.connect(server.getsockname())
        except OSError:
            return False
    return True


def echo_s(bed: Bed, origin: str, target: str, patience_s: float, size: int = 1) -> float | None:
    """Return how long a datagram takes one way; None if it does not come."""

    def make() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    here, there = (network.inside(bed.layout.namespace(site), make) for site in (origin, target))
    with here, there:
        there.bind((bed.layout.address(target), 0))
        sent_s = time.monotonic()
        here.sendto(b"x" * size, there.getsockname())
        return time.monotonic() - sent_s if select.select([there], [], [], patience_s)[0] else None


def until(holds: Callable[[], bool], patience_s: float = 10.0) -> None:
    end_s = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def tries(wanted: int = 3, most: int = 12) -> Iterator[int]:
    """Yield the numbers of tries: as many as wanted in which the machine was ours, and not more than the most.

    A virtual machine that is taken off its processor stands still, and all that it measures is late. Such a try does
    not count; when there was hardly another, nothing can be said, and the test is skipped.
    """
    undisturbed = 0
    for number in range(most):
        taken_s, begun_s = psutil.cpu_times().steal, time.monotonic()
        yield number
        share = (psutil.cpu_times().steal - taken_s) / (time.monotonic() - begun_s) / (psutil.cpu_count() or 1)
        undisturbed += share <= STOLEN_SHARE
        if undisturbed == wanted:
            return
    pytest.skip(f"this machine was taken away too often: {most - undisturbed} of {most} tries were disturbed")
