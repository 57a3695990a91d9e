"""Does a testbed behave like the sites it stands for?

Needs root. What is measured may be late or slow because the whole machine is, so a measurement has three tries in
which the machine was not taken away.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.bind import cgroup
from headwater.errors import BindError, SpecError
from headwater.model.sites import Site, Sites
from headwater.testbed import link_process, links, network
from headwater.testbed.bed import Bed, probe
from headwater.testbed.calibrate import DATA_PART, calibrate, is_delay_off, is_rate_off
from headwater.testbed.shares import machine_cores, sites_cores
from tests.contract.beds import ODD, PYTHON, SITES, beds, echo_s, reaches, start, tries, until

NAME = f"t{os.getpid()}"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    yield from beds(NAME)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the test."""
    made: list[subprocess.Popen[str]] = []
    yield made
    for process in made:
        process.kill()
        process.communicate()


def said(bed: Bed, site: str, *words: str) -> str:
    done = subprocess.run([*bed.box(site).enter, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def round_trip_s(bed: Bed, a: str, b: str) -> float:
    if shutil.which("ping") is None:
        both = [one.found or 0.0 for one in calibrate(bed) if {one.origin, one.target} == {a, b}]
        return sum(both)
    shown = said(bed, a, "ping", "-q", "-c", "20", "-i", "0.02", bed.box(b).address)
    match = re.search(r"= [\d.]+/([\d.]+)/", shown)
    assert match is not None, shown
    return float(match[1]) / 1e3


def rate_bps(bed: Bed, a: str, b: str, started: list[subprocess.Popen[str]]) -> float:
    if shutil.which("iperf3") is None:
        found = calibrate(bed, with_rate=True)
        return max(one.found or 0.0 for one in found if (one.origin, one.target, one.what) == (a, b, "rate"))
    server = start(bed, b, "iperf3", "--server", "--one-off", "--forceflush")
    started.append(server)
    assert server.stdout is not None
    while "listening" not in server.stdout.readline():
        assert server.poll() is None
    shown = said(bed, a, "iperf3", "--client", bed.box(b).address, "--time", "3", "--omit", "1", "--json")
    server.wait(10.0)  # its port is the next one's
    return float(json.loads(shown)["end"]["sum_received"]["bits_per_second"])


@pytest.mark.parametrize("bandwidth_bps", [10e6, 100e6])
@pytest.mark.parametrize("latency_s", [0.010, 0.040])
def test_a_link_has_the_delay_and_the_rate_that_were_asked(
    bed: Bed, started: list[subprocess.Popen[str]], latency_s: float, bandwidth_bps: float
) -> None:
    bed.change("cloud", "south", latency_s=latency_s, bandwidth_bps=bandwidth_bps)
    trips = []
    for _ in tries():
        trips.append(round_trip_s(bed, "cloud", "south"))
        if not is_delay_off(2 * latency_s, trips[-1]):
            break
    else:
        pytest.fail(f"round trips of {trips} s, asked {2 * latency_s}")
    rates = []
    for _ in tries():
        rates.append(rate_bps(bed, "cloud", "south", started))
        if not is_rate_off(bandwidth_bps * DATA_PART, rates[-1]):
            break
    else:
        pytest.fail(f"rates of {rates} bit/s, asked {bandwidth_bps * DATA_PART}")


def test_calibration_finds_every_link_as_asked_and_another_link_off(bed: Bed) -> None:
    bed.change("cloud", "south", latency_s=0.040, bandwidth_bps=100e6)
    for _ in tries():
        found = calibrate(bed)
        if not any(one.is_off for one in found):
            break
    assert [(one.origin, one.target, one.is_off) for one in found] == [
        pair for link in SITES.links for pair in ((link.a, link.b, False), (link.b, link.a, False))
    ]
    # Behind the bed's back: the link is not what the bed says it is.
    kind, wire = probe().links, bed.layout.wires[0]
    links.change(kind, bed.layout, wire, network.LinkState(0.030, 100e6), {"latency_s": 0.030})
    try:
        assert {one.origin for one in calibrate(bed) if one.is_off} >= {"cloud", "north"}
    finally:
        links.change(kind, bed.layout, wire, network.LinkState(0.010, 100e6), {"latency_s": 0.010})


def test_packets_pass_through_sites_on_their_way(bed: Bed) -> None:
    trips = [echo_s(bed, ODD, "south", 3.0) or 9.0 for _ in range(10)]
    assert not is_delay_off(0.055, min(trips)), trips


def test_a_change_holds_while_the_bed_runs_and_is_known_to_who_finds_it(bed: Bed) -> None:
    found = Bed.found(NAME)
    try:
        found.change("north", "cloud", latency_s=0.100)
        assert [one.state.latency_s for one in bed.status().links] == [0.100, 0.040, 0.005]
        assert min(echo_s(bed, "cloud", "north", 3.0) or 9.0 for _ in range(5)) > 0.0998
        found.change("north", "cloud", loss=0.5)
        before = {(one.origin, one.target): one.dropped for one in bed.traffic()}
        for _ in range(60):
            echo_s(bed, "cloud", "north", 0.0)
        until(lambda: {(one.origin, one.target): one.dropped for one in bed.traffic()} != before)
        after = {(one.origin, one.target): one.dropped for one in bed.traffic()}
        assert 10 < after["cloud", "north"] - before["cloud", "north"] < 50
    finally:
        found.change("north", "cloud", latency_s=0.010, loss=0.0)
    assert min(echo_s(bed, "cloud", "north", 3.0) or 9.0 for _ in range(5)) < 0.05


def test_a_cut_link_carries_nothing_until_it_is_restored(bed: Bed) -> None:
    bed.cut("cloud", "north")
    try:
        assert echo_s(bed, "cloud", "north", 0.3) is None
        assert not reaches(bed, ODD, bed.box("cloud").address, "cloud", 0.3)
        assert reaches(bed, ODD, bed.box("north").address, "north")
        assert bed.status().links[0].state.is_cut
    finally:
        bed.restore("cloud", "north")
    assert echo_s(bed, "cloud", "north", 3.0) is not None
    assert reaches(bed, ODD, bed.box("cloud").address, "cloud")


def test_traffic_counts_what_goes_each_way(bed: Bed) -> None:
    before = bed.traffic()
    for _ in range(20):
        echo_s(bed, "north", ODD, 1.0, size=1000)
    there, back = (
        new.bytes - old.bytes
        for new, old in zip(bed.traffic(), before, strict=True)
        if {new.origin, new.target} == {"north", ODD}
    )
    assert 0 <= there - 20 * 1028 < 1000  # with the headers of IP and UDP; the last words of an earlier test
    assert 0 <= back < 1000


def test_sites_meet_over_links_only_and_the_machine_reaches_all(bed: Bed) -> None:
    north = bed.box("north")
    assert reaches(bed, None, north.manage, "north")
    assert reaches(bed, "north", bed.layout.gateway, None)
    assert not reaches(bed, "south", north.manage, "north", 0.5)
    assert not reaches(bed, None, north.address, "north", 0.5)
    # Not even with routes of their own: the bridge does not pass it on.
    ways = [("south", north.manage), ("north", bed.box("south").manage)]
    for site, target in ways:
        network.run_ip([f"route add {target}/32 dev manage"], bed.layout.namespace(site))
    try:
        assert not reaches(bed, "south", north.manage, "north", 0.5)
    finally:
        for site, target in ways:
            network.run_ip([f"route del {target}/32 dev manage"], bed.layout.namespace(site))


def test_a_process_in_a_site_keeps_its_id_and_finds_sites_by_name(bed: Bed) -> None:
    code = (
        "import os, socket; print(os.getpid(), socket.gethostbyname('south'), "
        "socket.gethostbyname(socket.gethostname()), flush=True); input()"
    )
    words = [*bed.box("north").enter, *PYTHON, code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, south, own = process.stdout.readline().split()
        assert (int(pid), south, own) == (process.pid, bed.box("south").address, bed.box("north").address)
        group = bed.group("north")
        assert group is None or group.pids() == (process.pid,) == bed.status().sites[1].pids
        # Programs look there for the limits that they are under.
        assert set(os.listdir(f"/proc/{process.pid}/root/sys/fs/cgroup")) == set(os.listdir("/sys/fs/cgroup"))
        process.communicate("\n")


def test_every_port_is_free_in_every_site(bed: Bed) -> None:
    with contextlib.ExitStack() as stack:
        for site in bed.layout.sites:
            assert bed.box(site).is_apart
            server = stack.enter_context(network.inside(bed.layout.namespace(site), socket.socket))
            server.bind(("0.0.0.0", 9092))
            server.listen()


@pytest.mark.parametrize("cores", [0.1, 0.25, 0.5, 1.0])
def test_a_site_gets_its_share_of_the_processor(bed: Bed, started: list[subprocess.Popen[str]], cores: float) -> None:
    group = bed.group("north")
    if group is None:
        pytest.skip("this machine has no control groups")
    assert bed.limit(scale=cores)["north"] == cores
    try:
        started += [start(bed, "north", *PYTHON, "print(flush=True)\nwhile True: pass") for _ in range(2)]
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        shares = []
        for _ in tries():
            used_s, start_s = group.used_s(), time.monotonic()
            time.sleep(1.5)
            shares.append((group.used_s() - used_s) / (time.monotonic() - start_s))
            assert shares[-1] <= 1.05 * cores  # a busy machine gives less, never more
            if abs(shares[-1] - cores) <= 0.05 * cores:
                break
        else:
            pytest.fail(f"shares of {shares} cores, asked {cores}")
        assert group.throttled_s() > 0
    finally:
        for process in started:  # before they may take the whole machine
            process.kill()
        bed.unlimit()


def test_all_sites_together_leave_some_of_the_machine_to_the_links(
    bed: Bed, started: list[subprocess.Popen[str]]
) -> None:
    groups = [bed.group(site) for site in ("cloud", "south")]
    if any(group is None for group in groups):
        pytest.skip("this machine has no control groups")
    most = sites_cores(machine_cores())
    assert bed.limit(scale=100.0)["cloud"] == most
    try:
        busy = [site for site in ("cloud", "south") for _ in range(int(machine_cores()))]
        started += [start(bed, site, *PYTHON, "print(flush=True)\nwhile True: pass") for site in busy]
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        used_s, start_s = sum(group.used_s() for group in groups if group is not None), time.monotonic()
        time.sleep(1.5)  # the stretch that is measured
        passed_s = time.monotonic() - start_s
        assert (sum(group.used_s() for group in groups if group is not None) - used_s) / passed_s <= 1.05 * most
    finally:
        for process in started:
            process.kill()
        bed.unlimit()


def test_a_site_that_takes_more_memory_than_it_has_is_killed(bed: Bed) -> None:
    hierarchy = cgroup.find()
    if hierarchy is None or hierarchy.memory is None:
        pytest.skip("this machine has no control groups for memory")
    take = "import sys; x = b'x' * int(sys.argv[1]); print(len(x))"
    bed.limit()
    try:
        assert said(bed, "north", *PYTHON, take, "20000000") == "20000000\n"
        done = subprocess.run([*bed.box("north").enter, *PYTHON, take, "200000000"], capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL
    finally:
        bed.unlimit()
    assert said(bed, "north", *PYTHON, take, "200000000") == "200000000\n"


def test_what_a_bed_does_not_have_is_refused(bed: Bed) -> None:
    for wrong in (lambda: bed.box("moon"), lambda: bed.cut("north", "south"), lambda: bed.change("moon", "south")):
        with pytest.raises(SpecError, match="HW1904"):
            wrong()
    with pytest.raises(SpecError) as caught:
        bed.change("cloud", "south", latency_s=-1, bandwidth_bps=0, loss=1.5)
    assert [one.code for one in caught.value.mistakes] == ["HW1905"] * 3
    with pytest.raises(BindError, match=r"HW4902 .*is there already"):
        Bed(NAME, SITES).up()
    with pytest.raises(SpecError, match=rf"HW1902 .*{NAME}"):
        Bed.found("nowhere")


def test_a_link_also_works_on_interfaces_that_are_there(tmp_path: Path) -> None:
    """As where `/dev/net/tun` may not be opened: two pairs of veth, and the link between their outer ends."""
    bed = Bed(f"{NAME}-6", Sites((Site("a"), Site("b")), ()))
    bed.up()
    try:
        spaces = [bed.layout.namespace(site) for site in ("a", "b")]
        outer = [f"{bed.layout.bridge}-{end}" for end in ("pa", "pb")]
        network.run_ip(
            f"link add name {end} up type veth peer name l0 netns {space}"
            for end, space in zip(outer, spaces, strict=True)
        )
        for space, number in zip(spaces, (1, 2), strict=True):
            network.run_ip([f"addr add 10.77.0.{number}/24 dev l0", "link set dev l0 up"], space)
        spec = {
            "control": str(tmp_path / "l0.sock"), "mode": "packet", "ends": [[None, end] for end in outer],
            "seed": 1, "latency_s": 0.02, "bandwidth_bps": 20e6,
        }  # fmt: skip
        script = link_process.__file__
        subprocess.run([sys.executable, "-I", "-S", script, "--bed", bed.name, json.dumps(spec)], check=True)
        client, server = (network.inside(space, socket.socket) for space in spaces)
        with client, server:
            server.bind(("10.77.0.2", 0))
            server.listen()
            client.settimeout(10)
            start_s = time.monotonic()
            client.connect(server.getsockname())
            assert time.monotonic() - start_s > 0.04
            taken, _ = server.accept()
            with taken:
                client.sendall(b"x" * 100_000)
                client.shutdown(socket.SHUT_WR)
                assert sum(map(len, iter(lambda: taken.recv(65_536), b""))) == 100_000
        assert network.ask_link(tmp_path / "l0.sock", {"do": "end"})["directions"][0]["bytes"] > 100_000
    finally:
        bed.down()


def send_all(sender: socket.socket, data: bytes) -> None:
    sender.sendall(data)
    sender.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("bandwidth_bps", [100e6, 10e6], ids=["in trains of segments", "packet by packet"])
def test_a_stream_arrives_as_it_was_sent_while_the_link_changes(bed: Bed, bandwidth_bps: float) -> None:
    def make() -> socket.socket:
        return socket.socket()

    sent = random.Random(7).randbytes(1_500_000)
    got = bytearray()
    bed.change("cloud", "north", bandwidth_bps=bandwidth_bps)
    with network.inside(bed.layout.namespace("north"), make) as server:
        server.bind((bed.layout.address("north"), 0))
        server.listen()
        with network.inside(bed.layout.namespace("cloud"), make) as sender:
            sender.connect(server.getsockname())
            receiver, _ = server.accept()
            with receiver:
                thread = threading.Thread(target=send_all, args=(sender, sent))
                thread.start()
                try:
                    while chunk := receiver.recv(65_536):
                        if len(got) < len(sent) / 2 <= len(got) + len(chunk):
                            bed.change("cloud", "north", bandwidth_bps=110e6 - bandwidth_bps)
                        got += chunk
                finally:
                    thread.join()
                    bed.change("cloud", "north", bandwidth_bps=100e6)
    assert bytes(got) == sent
    carried = next(one for one in bed.traffic() if (one.origin, one.target) == ("cloud", "north"))
    assert carried.bytes >= len(sent) * 1500 / 1448, "every segment has headers of its own"
    assert carried.packets >= len(sent) / 1448
