"""Which networks, links and addresses make one machine look like many sites?

`lay_out` describes them from `Sites`, without touching anything: every site is a network namespace with an
address of its own, every link of the sites is a pair of devices, every other site is reached over the next site
on the way of least latency. The rest of the module turns that into commands of `ip` and `tc` and runs them.

Beside the links there is a management network: a bridge in the machine's own namespace, over which processes
outside the testbed reach every site without delay, and over which no site reaches another.

    HW1901   the name of a bed
    HW1903   more sites or links than there are addresses
    HW4903   a program is missing or refuses
    HW4905   a link does not answer
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from headwater.errors import BindError, Mistake, SpecError
from headwater.model.sites import Sites
from headwater.testbed.link_process import SEGMENTED_BPS, enter_namespace, queue_limit

__all__ = [
    "MTU_BYTES",
    "NAMESPACES",
    "Layout",
    "LinkState",
    "Wire",
    "ask_link",
    "check_bed_name",
    "congestion_control",
    "hosts_file",
    "inside",
    "lay_out",
    "namespace_pattern",
    "netem_command",
    "netem_counts",
    "next_hops",
    "prepare_namespace",
    "program",
    "root_commands",
    "run_ip",
    "run_program",
    "shared_names",
    "site_commands",
    "train_command",
]

NAMESPACES = Path("/run/netns")
MTU_BYTES = 1500
QUEUE_PACKETS = 2000  # of a TUN device; only bursts wait there, the link has its own queue
MOST_SITES = 250  # addresses of one management network
MOST_LINKS = 16_384
MOST_PROGRAM_S = 30.0
ANSWER_S = 10.0
BED_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
NETEM_COUNTS = {"packets": "packets", "bytes": "bytes", "dropped": "drops", "backlog_bytes": "backlog"}
BOTH_ENDS = "02:00:00:00:00:01"  # the hardware address at both ends of a link by packets
LONGEST_TRAIN = 65_535  # segments; the kernel's own default
MANAGE = "manage"  # a site's device on the management network
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class LinkState:
    """How a link is, or is to be; each direction by itself."""

    latency_s: float
    bandwidth_bps: float
    loss: float = 0.0  # the part of packets that is lost by chance
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Wire:
    """One link of the testbed."""

    number: int
    a: str
    b: str
    device: str  # its name at both ends
    addresses: tuple[str, str]  # of the two ends themselves, so that this link and no other can be measured


@dataclass(frozen=True)
class Layout:
    """Everything that a testbed has a name or an address for."""

    bed: str
    manage_net: int  # N of 10.79.N.0/24
    sites: tuple[str, ...]
    wires: tuple[Wire, ...]
    hops: Mapping[str, Mapping[str, str]]  # the next site from the first to the second

    @cached_property
    def _number(self) -> Mapping[str, int]:
        return {site: number for number, site in enumerate(self.sites)}

    def namespace(self, site: str) -> str:
        """Return the network namespace that stands for a site."""
        return f"hw-{self.bed}-{self._number[site]}"

    @property
    def whole_group(self) -> str:
        """Return the control group of all sites' processes."""
        return f"headwater/{self.bed}"

    def group(self, site: str) -> str:
        """Return the control group of a site's processes."""
        return f"{self.whole_group}/{self._number[site]}"

    def address(self, site: str) -> str:
        """Return the address by which other sites reach it."""
        number = self._number[site] + 1
        return f"10.78.{number >> 8}.{number & 255}"

    def manage(self, site: str) -> str:
        """Return the address by which processes outside the testbed reach it."""
        return f"10.79.{self.manage_net}.{self._number[site] + 2}"

    @property
    def gateway(self) -> str:
        """Return the machine's own address on the management network."""
        return f"10.79.{self.manage_net}.1"

    @property
    def bridge(self) -> str:
        """Return the bridge of the management network."""
        return shared_names(self.bed)

    def port(self, site: str) -> str:
        """Return the bridge's device that leads to a site."""
        return f"{self.bridge}-{self._number[site]}"

    @property
    def between(self) -> str:
        """Return the namespace of the devices that lie between two sites, where link processes need such."""
        return f"hw-{self.bed}-{len(self.sites)}"

    def outer(self, wire: Wire) -> tuple[str, str]:
        """Return those of a link there: what leaves its first site comes out of the first, and the other way round."""
        return f"{wire.device}a", f"{wire.device}b"

    def wires_of(self, site: str) -> tuple[Wire, ...]:
        """Return the links that end at a site."""
        return tuple(wire for wire in self.wires if site in (wire.a, wire.b))

    def wire(self, a: str, b: str) -> Wire | None:
        """Return the link of two sites; None if there is none."""
        return next((wire for wire in self.wires if {wire.a, wire.b} == {a, b}), None)


def shared_names(bed: str) -> str:
    """Return what the names of a bed's devices in the machine's own namespace begin with.

    Those names have at most 15 letters, and two beds must not share one.
    """
    return "hw" + hashlib.sha256(bed.encode()).hexdigest()[:7]


def namespace_pattern(bed: str | None = None) -> re.Pattern[str]:
    """Return what the namespaces of a bed, or of any, look like; its group 1 is the bed's name.

    >>> [bool(namespace_pattern("a").fullmatch(name)) for name in ("hw-a-12", "hw-a-1-2", "hw-b-1")]
    [True, False, False]
    """
    return re.compile(rf"hw-({BED_NAME.pattern if bed is None else re.escape(bed)})-(\d+)")


def check_bed_name(name: str) -> None:
    """Make sure that a bed can be called so.

    Raises:
        SpecError: HW1901, it cannot.
    """
    if not BED_NAME.fullmatch(name):
        text = (
            f"a testbed cannot be called {name!r}: its name is made of at most 20 small letters, digits and '-' and "
            f"begins with a letter. Choose a name such as 'city-1'."
        )
        raise SpecError(Mistake("HW1901", text))


def lay_out(bed: str, sites: Sites, manage_net: int) -> Layout:
    """Return the layout of a bed for these sites.

    Raises:
        SpecError: HW1901, the bed's name; HW1903, too many sites or links.
    """
    check_bed_name(bed)
    for what, count, most in (("sites", len(sites.sites), MOST_SITES), ("links", len(sites.links), MOST_LINKS)):
        if count > most:
            text = f"a testbed has at most {most} {what}, and {count} are asked for. Leave some out."
            raise SpecError(Mistake("HW1903", text))
    wires = tuple(
        Wire(number, link.a, link.b, f"l{number}", (_end_address(number, 1), _end_address(number, 2)))
        for number, link in enumerate(sites.links)
    )
    return Layout(bed, manage_net, tuple(site.name for site in sites.sites), wires, next_hops(sites))


def _end_address(number: int, end: int) -> str:
    return f"10.77.{number >> 6}.{(number & 63) * 4 + end}"


def next_hops(sites: Sites) -> dict[str, dict[str, str]]:
    """Return the next site on the route from each site to each other one.

    Routes are those of `model.routes`, found without what that module needs to be fast on large networks. Where
    several routes tie in latency and links, packets may take another of them: a site decides by destination only.
    """
    near: dict[str, list[tuple[int, str]]] = {site.name: [] for site in sites.sites}
    for link in sites.links:
        latency_ns = round(link.latency_s * 1e9)
        near[link.a].append((latency_ns, link.b))
        near[link.b].append((latency_ns, link.a))
    hops: dict[str, dict[str, str]] = {name: {} for name in near}
    for origin in near:
        for target, way in _ways_from(origin, near).items():
            if origin < target:  # a route is read from its smaller end
                hops[origin][target] = way[1]
                hops[target][origin] = way[-2]
    return hops


def _ways_from(origin: str, near: Mapping[str, Sequence[tuple[int, str]]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    waiting: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, (origin,))]
    while waiting:
        latency_ns, links, way = heapq.heappop(waiting)
        if way[-1] in found:
            continue
        found[way[-1]] = way
        for more_ns, site in near[way[-1]]:
            if site not in found:
                heapq.heappush(waiting, (latency_ns + more_ns, links + 1, (*way, site)))
    del found[origin]
    return found


def hosts_file(layout: Layout, site: str, machine: str) -> str:
    """Return what `/etc/hosts` says in a site: every site whose name can be that of a host.

    The machine's own name leads to the site: programs ask by it which address is theirs.
    """
    lines = ["127.0.0.1 localhost"]
    if HOST_NAME.fullmatch(machine) and machine not in layout.sites:
        lines.append(f"{layout.address(site)} {machine}")
    lines += [f"{layout.address(other)} {other}" for other in layout.sites if HOST_NAME.fullmatch(other)]
    return "\n".join(lines) + "\n"


def root_commands(layout: Layout, links: str) -> list[str]:
    """Return what `ip` does in the machine's own namespace: namespaces, the management network, links of veth.

    Links are made by 'netem', between two sites; by 'packet', from each site to a namespace where link processes
    take packets from one to the other; by 'tun' they are left to the link processes.
    """
    commands = [f"netns add {layout.namespace(site)}" for site in layout.sites]
    commands += [
        f"link add name {layout.bridge} type bridge",
        f"addr add {layout.gateway}/24 dev {layout.bridge}",
        f"link set dev {layout.bridge} up",
    ]
    for site in layout.sites:
        port = layout.port(site)
        commands += [
            f"link add name {port} type veth peer name {MANAGE} netns {layout.namespace(site)}",
            f"link set dev {port} master {layout.bridge}",
            f"link set dev {port} type bridge_slave isolated on",
            f"link set dev {port} up",
        ]
    if links == "packet":
        commands.append(f"netns add {layout.between}")
        for wire in layout.wires:
            for site, outer in zip((wire.a, wire.b), layout.outer(wire), strict=True):
                ends = f"name {outer} netns {layout.between} type veth peer name {wire.device}"
                commands.append(f"link add {ends} netns {layout.namespace(site)}")
    if links == "netem":
        commands += [
            f"link add name {wire.device} netns {layout.namespace(wire.a)} "
            f"type veth peer name {wire.device} netns {layout.namespace(wire.b)}"
            for wire in layout.wires
        ]
    return commands


def site_commands(layout: Layout, site: str, congestion: str | None, links: str) -> list[str]:
    """Return what `ip` does in a site's namespace once its links are there: addresses and routes.

    A route's congestion control is that of most of the internet, whatever this kernel's default is. Links by
    'packet' ask nobody who is at the other end, which would take as long as a packet there and back: both ends have
    the one hardware address that a device without such questions sends to, its own.
    """
    alike = f" address {BOTH_ENDS} arp off" if links == "packet" else ""
    own, control = layout.address(site), f" congctl {congestion}" if congestion else ""
    commands = [
        f"addr add {own}/32 dev lo",
        "link set dev lo up",
        f"addr add {layout.manage(site)}/32 dev {MANAGE}",
        f"link set dev {MANAGE} up",
        f"route add {layout.gateway}/32 dev {MANAGE} src {layout.manage(site)}",
    ]
    device: dict[str, str] = {}
    for wire in layout.wires_of(site):
        here, there = wire.addresses if site == wire.a else wire.addresses[::-1]
        peer = wire.b if site == wire.a else wire.a
        device[peer] = wire.device
        commands += [
            f"link set dev {wire.device}{alike} txqueuelen {QUEUE_PACKETS} up",
            f"addr add {here} peer {there}/32 dev {wire.device}",
            f"route replace {there}/32 dev {wire.device} src {here}{control}",
        ]
    for target, hop in layout.hops[site].items():
        way = f"dev {device[hop]}" if hop == target else f"via {layout.address(hop)} dev {device[hop]} onlink"
        commands.append(f"route replace {layout.address(target)}/32 {way} src {own}{control}")
    return commands


def train_command(wire: Wire, bandwidth_bps: float) -> str:
    """Return what `ip` does in a site, so that it hands over trains of segments to fast links by 'packet' only."""
    return f"link set dev {wire.device} gso_max_segs {LONGEST_TRAIN if bandwidth_bps >= SEGMENTED_BPS else 1}"


def netem_command(wire: Wire, state: LinkState) -> str:
    """Return what `tc` does at either end of a link: delay, rate and loss of what leaves there.

    The queue also holds what is on its way, so that the limit is that of both.
    """
    waiting_bytes = queue_limit(state.latency_s, state.bandwidth_bps) + state.latency_s * state.bandwidth_bps / 8
    loss = 1.0 if state.is_cut else state.loss
    return (
        f"qdisc replace dev {wire.device} root netem limit {math.ceil(waiting_bytes / MTU_BYTES)} "
        f"delay {round(state.latency_s * 1e6)}us rate {round(state.bandwidth_bps)}bit loss {loss:.6%}"
    )


def netem_counts(shown: str) -> dict[str, Any]:
    """Return what a link's end has done, of what `tc -s -json qdisc show` shows."""
    found = next(one for one in json.loads(shown) if one["kind"] == "netem")
    kept = {name: int(found.get(key, 0)) for name, key in NETEM_COUNTS.items()}
    return {**kept, "late": None, "greatest_lateness_s": None}


def program(name: str) -> str:
    """Return where a program of the system is.

    Raises:
        BindError: HW4903, it is not installed.
    """
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    found = shutil.which(name, path=path)
    if found is None:
        raise BindError(
            f"HW4903 the program '{name}' is missing; a testbed is made with it. "
            f"Install it (Debian: apt install iproute2 util-linux)."
        )
    return found


def run_program(words: Sequence[str], text: str = "", held: int | None = None) -> str:
    """Return what a program of the system prints; it keeps the descriptor `held` open for as long as it runs.

    Raises:
        BindError: HW4903, it is missing, fails or takes too long.
    """
    command = [program(words[0]), *words[1:]]
    try:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=MOST_PROGRAM_S,
            check=False,
            pass_fds=() if held is None else (held,),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BindError(f"HW4903 '{' '.join(words)}' does not run: {error}. See that the machine is well.") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split()) or "nothing"
        raise BindError(
            f"HW4903 '{' '.join(words)}' fails with exit code {done.returncode} and says: {said[:500]}. "
            f"A testbed needs root and a kernel that has network namespaces."
        )
    return done.stdout


def run_ip(
    commands: Iterable[str],
    namespace: str | None = None,
    tool: str = "ip",
    is_forced: bool = False,
    held: int | None = None,
) -> None:
    """Run commands of `ip` or `tc`, all in one process; a forced run goes on after one that fails.

    Raises:
        BindError: HW4903, one of them fails.
    """
    text = "\n".join(commands)
    if text:
        where = ["-n", namespace] if namespace is not None else []
        run_program([tool, *where, *(["-force"] if is_forced else []), "-batch", "-"], text + "\n", held)


def inside(namespace: str, act: Callable[[], Result]) -> Result:
    """Return what a function returns that runs within a namespace; a socket that it makes stays there.

    Raises:
        OSError: the namespace cannot be entered, or what the function raises.
    """
    results: list[Result] = []
    failures: list[BaseException] = []

    def stand_there() -> None:
        try:
            enter_namespace(str(NAMESPACES / namespace))
            results.append(act())
        except BaseException as error:  # noqa: BLE001 - it goes on in the thread that asked
            failures.append(error)

    # Linux moves a thread, not a process: this one goes there and ends there.
    thread = threading.Thread(target=stand_there, name=f"inside {namespace}")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def prepare_namespace(namespace: str) -> None:
    """Let a namespace pass packets on, and keep IPv6, which no site uses, from filling its links.

    Raises:
        OSError: the kernel refuses.
    """

    def write() -> None:
        net = Path("/proc/sys/net")
        (net / "ipv4/ip_forward").write_text("1", "ascii")
        for scope in ("all", "default"):
            file = net / "ipv6/conf" / scope / "disable_ipv6"
            if file.exists():
                file.write_text("1", "ascii")

    inside(namespace, write)


def congestion_control() -> str | None:
    """Return the congestion control for the links; None where the kernel has no other than its default."""
    try:
        available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text("ascii").split()
    except OSError:
        return None
    return "cubic" if "cubic" in available else None


def ask_link(control: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a link process's answer.

    Raises:
        BindError: HW4905, it does not answer, or cannot do what is asked.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            caller.settimeout(ANSWER_S)
            caller.connect(str(control))
            caller.send(json.dumps(request).encode())
            answer: dict[str, Any] = json.loads(caller.recv(65_536))
    except (OSError, ValueError) as error:
        raise BindError(
            f"HW4905 the link process at '{control}' does not answer: {error}. Take the testbed down and up again."
        ) from error
    if "error" in answer:
        raise BindError(f"HW4905 the link process at '{control}' refuses {dict(request)}: {answer['error']}.")
    return answer
