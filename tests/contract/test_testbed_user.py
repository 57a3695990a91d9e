"""Does a user who is not root get a testbed, and does nothing of it stay?

Run by root, the user is one without any rights. This file is also what that user runs: `python -m` it, with the
name of a bed, what to do there ('try' or 'wait') and nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import BindError
from headwater.model.sites import Link, Site, Sites
from headwater.testbed import network, private
from headwater.testbed.bed import Bed, leftovers, probe
from headwater.testbed.calibrate import calibrate
from headwater.testbed.ground import way_in
from tests.contract.beds import PYTHON, echo_s, until

ROOT = Path(__file__).parent.parent.parent
NOBODY = "65534"
NAME = f"v{os.getpid()}"
SITES = Sites(
    (Site("hub", cores=4.0), Site("pi", cores=1.0, memory_bytes=64e6), Site("dc")),
    (Link("pi", "hub", 0.020, 20e6), Link("hub", "dc", 0.010, 100e6)),
)
SIZE_BYTES = 2_000_000
TRIES = 10
PIPE = subprocess.PIPE
# A device that every user may open, as most distributions have it, or root alone; whichever this machine has.
TUN = 'mount -t tmpfs none /dev/net && mknod -m "$0" /dev/net/tun c 10 200 && exec "$@"'


def pour(client: socket.socket, data: bytes) -> None:
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)


def sent(bed: Bed, origin: str, target: str) -> tuple[bool, float]:
    """Return whether a stream arrives as it was sent, and how long it takes."""
    data = random.Random(7).randbytes(SIZE_BYTES)
    client, server = (network.inside(bed.layout.namespace(site), socket.socket) for site in (origin, target))
    with client, server:
        server.bind((bed.layout.address(target), 0))
        server.listen()
        client.settimeout(60)
        client.connect(server.getsockname())
        taken, _ = server.accept()
        start_s = time.monotonic()
        thread = threading.Thread(target=pour, args=(client, data))
        thread.start()
        got = hashlib.sha256()
        with taken:
            while part := taken.recv(65_536):
                got.update(part)
        thread.join()
        return got.digest() == hashlib.sha256(data).digest(), time.monotonic() - start_s


def wrong_checksums(bed: Bed) -> int:
    """Return how many packets sites have thrown away because of their checksums."""

    def read() -> int:
        lines = [line.split() for line in Path("/proc/thread-self/net/snmp").read_text("ascii").splitlines()]
        tables = [dict(zip(heads, values, strict=True)) for heads, values in zip(lines[::2], lines[1::2], strict=True)]
        return sum(int(table.get("InCsumErrors", 0)) for table in tables)

    return sum(network.inside(bed.layout.namespace(site), read) for site in bed.layout.sites)


def delays(bed: Bed) -> dict[str, float]:
    """Return the best that was seen of each direction: a busy machine makes links late, and never early."""
    best: dict[str, float] = {}
    for _ in range(TRIES):
        measured = calibrate(bed)
        for one in measured:
            key = f"{one.origin}-{one.target}"
            best[key] = min(best.get(key, 9.0), one.found or 9.0)
        if not any(one.is_off for one in measured):
            break
    return best


def live(bed: Bed) -> dict[str, Any]:
    """Return what a bed does, as its maker sees it."""
    found: dict[str, Any] = {"tier": bed.status().tier, "kind": probe().links, "delays": delays(bed)}
    found["slow"], found["fast"] = sent(bed, "pi", "dc"), sent(bed, "dc", "hub")
    bed.change("pi", "hub", bandwidth_bps=200e6)
    found["changed"] = sent(bed, "dc", "pi")
    found["wrong_checksums"] = wrong_checksums(bed)
    found["carried"] = [one.bytes for one in bed.traffic()]
    bed.cut("hub", "dc")
    found["over a cut"] = echo_s(bed, "pi", "dc", 0.5)
    bed.restore("hub", "dc")
    found["restored"] = echo_s(bed, "pi", "dc", 5.0)
    words = [*bed.box("pi").enter, *PYTHON, "import socket; print(socket.gethostbyname('dc'))"]
    found["dc"] = subprocess.run(words, stdout=PIPE, text=True, check=True).stdout.strip() == bed.box("dc").address
    inner = subprocess.Popen([*bed.box("pi").enter, "sleep", "60"])
    until(lambda: bed.status().sites[1].pids == (inner.pid,))
    inner.kill()
    inner.wait()
    found["can_limit"] = bed.can_limit
    bed.unlimit()
    with contextlib.suppress(BindError):
        found["limits"] = bed.limit()
    return found


def main(name: str, what: str) -> None:
    """Do it as the user."""
    way = way_in()
    if way:
        private.become(way)
    bed = Bed(name, SITES)
    bed.up()
    found = live(bed) if what == "try" else {}
    sys.stdout.write(json.dumps({"pid": os.getpid(), **found}) + "\n")
    sys.stdout.flush()
    if what == "wait":
        sys.stdin.readline()
    bed.down()
    assert leftovers() == {}


class User:
    """Who runs commands here."""

    def __init__(self, is_tun_open: bool = False) -> None:
        """Find out how; skips the test where there is no such user, or no Python for them."""
        self._words: list[str] = []
        if os.geteuid() == 0:
            self._words += ["unshare", "--mount", "/bin/sh", "-c", TUN, "666" if is_tun_open else "600"]
            drop = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]
            # One more program before the user's own: the first keeps the right to find it in folders of root's.
            self._words += [*drop, "/bin/sh", "-c", 'exec "$@"', "sh"]
        elif is_tun_open:
            pytest.skip("a device for all users takes root to make")
        folders = [str(ROOT), str(ROOT / "src"), *(one for one in sys.path if one.endswith("site-packages"))]
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONDONTWRITEBYTECODE": "1"}
        self._environment.pop(private.MARK, None)
        self.python = self._python()
        if self.run(*private.words(["true"])).returncode != 0:
            pytest.skip("users may not make namespaces here")

    def _python(self) -> str:
        own = shutil.which(f"python{sys.version_info[0]}.{sys.version_info[1]}", path="/usr/local/bin:/usr/bin")
        for one in (sys.executable, own):
            if one and self.run(one, "-c", "import headwater.testbed.bed, psutil, pytest").returncode == 0:
                return one
        pytest.skip(f"the user may not run '{sys.executable}', and there is no other Python of its version")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command, folder = [*self._words, *words], "/"
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=self._environment, cwd=folder, timeout=240
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [*self._words, *words]
        return subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=self._environment, cwd="/")

    def headwater(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.python, "-m", "headwater.serve.main", *words)


@pytest.fixture(scope="module")
def user() -> User:
    return User()


def in_namespace(number: int) -> list[int]:
    """Return the processes in a user namespace: while there is none, there is nothing of it."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            found += [pid] if os.stat(f"/proc/{pid}/ns/user").st_ino == number else []
    return found


@contextlib.contextmanager
def waiting(user: User, name: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Give a process that has a bed, and the user namespace that it is in."""
    process = user.start(user.python, "-m", "tests.contract.test_testbed_user", name, "wait")
    assert process.stdout is not None
    space = None
    try:
        line = process.stdout.readline()
        assert json.loads(line)["pid"] == process.pid, line
        space = os.stat(f"/proc/{process.pid}/ns/user").st_ino
        yield process, space
    finally:
        process.kill()
        process.communicate()
        for pid in in_namespace(space) if space is not None else ():  # what a failed test is about must not stay
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["packet", "tun"])
def test_a_user_has_links_as_asked_that_carry_every_byte_and_can_be_cut(kind: str) -> None:
    user = User(is_tun_open=kind == "tun")
    before = set(os.listdir("/run"))
    done = user.run(user.python, "-m", "tests.contract.test_testbed_user", f"{NAME}-1", "try")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tier"] == "user namespaces"
    if found["kind"] == "netem":
        pytest.skip("the kernel delays packets by itself here")
    assert found["kind"] == kind or os.geteuid() != 0
    for way, asked_s in (("pi-hub", 0.02), ("hub-pi", 0.02), ("hub-dc", 0.01), ("dc-hub", 0.01)):
        assert asked_s - 0.0002 < found["delays"][way] < 1.05 * asked_s + 0.002, found["delays"]
    assert [found[one][0] for one in ("slow", "fast", "changed")] == [True, True, True]
    assert found["slow"][1] > 0.95 * SIZE_BYTES * 8 / 20e6
    assert found["fast"][1] > 0.95 * SIZE_BYTES * 8 / 100e6
    assert found["wrong_checksums"] == 0
    assert min(found["carried"]) > SIZE_BYTES  # each direction has had the stream once
    assert found["over a cut"] is None
    assert 0.0299 < found["restored"] < 5
    assert found["dc"]
    assert not found["can_limit"]
    assert "limits" not in found, "a limit was promised that nobody keeps"
    assert f"{NAME}-1" not in leftovers()
    assert set(os.listdir("/run")) == before


def test_a_bed_of_a_user_is_reached_from_another_terminal_and_ends_in_order(user: User) -> None:
    name = f"{NAME}-2"
    with waiting(user, name) as (process, space):
        assert len(in_namespace(space)) == 1 + len(SITES.links)
        done = user.headwater("testbed", "link", "pi", "hub", "--cut", "--name", name, "--json")
        assert (done.returncode, json.loads(done.stdout)["is_cut"]) == (0, True), done.stderr
        status = json.loads(user.headwater("testbed", "status", "--name", name, "--json").stdout)
        assert [one["state"]["is_cut"] for one in status["links"]] == [True, False]
        assert {one["cores"] for one in status["sites"]} == {None}
        assert name not in leftovers(), "what is a user's alone must not be removed with all else"
        process.communicate("\n", timeout=30)
        assert process.returncode == 0
        until(lambda: not in_namespace(space))
    done = user.headwater("testbed", "status", "--name", name, "--json")
    assert (done.returncode, done.stderr[:6]) == (2, "HW1902")


def test_a_bed_of_a_user_ends_with_a_process_that_is_killed(user: User) -> None:
    with waiting(user, f"{NAME}-3") as (process, space):
        assert in_namespace(space)
        process.kill()
        assert process.wait(10) == -signal.SIGKILL
        until(lambda: not in_namespace(space))


def test_a_testbed_that_stays_is_refused_to_a_user_with_what_works_instead(user: User) -> None:
    done = user.headwater("testbed", "up", str(ROOT / "examples/readings/sites.yaml"), "--name", f"{NAME}-4")
    assert done.returncode == 4
    assert done.stderr.startswith("HW4901 a testbed that stays takes root")
    assert "headwater run --emulate" in done.stderr


if __name__ == "__main__":
    main(*sys.argv[1:])
