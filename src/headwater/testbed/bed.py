"""How does one machine become many sites, and one again?

A `Bed` is made of `Sites`: `up` makes its networks, links and control groups, `box` says how a process is started
in a site, `limit` makes sites as unequal as they are declared, `change`, `cut` and `restore` change links while it
runs, `down` removes everything. What it looks like is in `testbed.network`, what is left of it in `testbed.traces`.

    HW1904   a site or link that the bed does not have
    HW1905   a value that a link or a limit cannot have
    HW4901   this machine cannot carry a testbed
    HW4902   a bed of this name is there, or is not complete
    HW4909   limits are asked for and there are no control groups
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from headwater.bind import cgroup
from headwater.bind.box import Box
from headwater.errors import BindError, Mistake, SpecError
from headwater.model.sites import Link, Site, Sites
from headwater.testbed import links, network, traces
from headwater.testbed.ground import Ground, probe, refusal
from headwater.testbed.network import Layout, LinkState, Wire
from headwater.testbed.shares import machine_cores, quotas, sites_cores
from headwater.testbed.traces import leftovers, remove

__all__ = ["Bed", "Ground", "LinkStatus", "SiteStatus", "Status", "Traffic", "leftovers", "probe", "quotas", "remove"]

FASTEST_BPS = 1e9  # that a link process was seen to carry exactly
COMING_UP, UP = "coming up", "up"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one direction of a link has done since it is up."""

    origin: str
    target: str
    packets: int  # that came out
    bytes: int
    dropped: int  # by chance, by a full queue, or by a cut
    backlog_bytes: int  # that wait to be sent
    late: int | None  # packets that came out more than 5 ms later than they should; None: the kernel does not tell
    greatest_lateness_s: float | None  # of any packet; None: the kernel does not tell


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """One site of a bed."""

    name: str
    namespace: str
    address: str
    manage: str
    cores: float | None  # of this machine that it may use; None: all
    memory_bytes: float | None  # that it may use; None: all
    pids: tuple[int, ...]  # of its processes


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One link of a bed."""

    a: str
    b: str
    asked: LinkState  # as the sites file has it
    state: LinkState  # as it is


@dataclass(frozen=True, slots=True)
class Status:
    """How a bed is."""

    name: str
    tier: str
    because: str
    sites: tuple[SiteStatus, ...]
    links: tuple[LinkStatus, ...]


class Bed:
    """A testbed; any process of its user can find it again by its name."""

    def __init__(self, name: str, sites: Sites) -> None:
        """Describe it; `up` makes it.

        Raises:
            SpecError: HW1901, it cannot be called so; HW1903, it is too large.
        """
        network.lay_out(name, sites, 0)  # what is wrong is said before anything is made
        self.name = name
        self.sites = sites
        self._layout: Layout | None = None

    @classmethod
    def found(cls, name: str) -> Bed:
        """Return the bed of this name that is up.

        Raises:
            SpecError: HW1902, there is none.
            BindError: HW4902, it is not complete.
        """
        state = traces.read_state(name)
        _check_complete(name, state)
        sites = tuple(Site(**{**one, "tags": tuple(one["tags"])}) for one in state["sites"])
        return cls(name, Sites(sites, tuple(Link(**one) for one in state["asked"])))

    def up(self, say: Say | None = None) -> None:
        """Make it; `say` hears what is being done.

        Raises:
            BindError: HW4901, this machine cannot; HW4902, it is there; HW49xx, something refuses.
        """
        say = say or (lambda text: None)
        ground = probe()
        if not ground.is_enough:
            raise BindError(f"HW4901 {refusal(ground)}")
        with traces.hold_lock() as lock:
            there = leftovers(self.name).get(self.name)
            if there:
                raise BindError(
                    f"HW4902 testbed '{self.name}' is there already ({len(there)} things, the first: {there[0]}). "
                    f"Take it down first, or choose another name."
                )
            layout = network.lay_out(self.name, self.sites, _free_manage_net())
            state = {
                "stage": COMING_UP,
                "manage_net": layout.manage_net,
                "tier": ground.tier,
                "kind": ground.links,
                "because": ground.because,
                "sites": [asdict(site) for site in self.sites.sites],
                "asked": [asdict(link) for link in self.sites.links],
                "links": [asdict(LinkState(link.latency_s, link.bandwidth_bps)) for link in self.sites.links],
                "limits": {},
            }
            traces.write_state(self.name, state)
            try:
                self._make(layout, ground, lock, say)
                traces.write_state(self.name, {**state, "stage": UP})
            except BaseException:
                traces.clear(self.name)
                raise
        self._layout = layout

    def _make(self, layout: Layout, ground: Ground, lock: int, say: Say) -> None:
        say(f"{len(layout.sites)} sites: namespaces and the management network")
        network.run_ip(network.root_commands(layout, ground.links), held=lock)
        try:
            traces.bed_folder(self.name).mkdir(mode=0o700, exist_ok=True)
            for site in layout.sites:
                network.prepare_namespace(layout.namespace(site))
                text = network.hosts_file(layout, site, socket.gethostname())
                traces.hosts_file(self.name, layout.namespace(site)).write_text(text, "utf-8")
        except OSError as error:
            raise BindError(f"HW4903 a site cannot be prepared: {error}. A testbed needs root.") from error
        say(f"{len(layout.wires)} links")
        fast = [link for link in self.sites.links if link.bandwidth_bps > FASTEST_BPS]
        if fast and ground.links != "netem":
            say(f"{len(fast)} links ask for more than {FASTEST_BPS / 1e6:g} Mbit/s; a link process may not keep up")
        links.start(ground.links, layout, self.sites.links, os.getpid() if ground.is_private else None, lock)
        say("addresses and routes")
        congestion = network.congestion_control()
        for site in layout.sites:
            commands = network.site_commands(layout, site, congestion, ground.links)
            network.run_ip(commands, layout.namespace(site), held=lock)
        for wire, link in zip(layout.wires, self.sites.links, strict=True):
            links.change(ground.links, layout, wire, LinkState(link.latency_s, link.bandwidth_bps), {})
        hierarchy = cgroup.find()
        if hierarchy is not None:
            say("control groups")
            for site in layout.sites:
                cgroup.Group(hierarchy, layout.group(site)).make(is_parent=True)

    def down(self) -> tuple[str, ...]:
        """Remove everything of it, with every process in it; return what was there.

        Raises:
            BindError: HW4906, something stays.
        """
        self._layout = None
        return remove(self.name)

    def box(self, site: str) -> Box:
        """Return how a process is started in a site, and how the site is reached.

        Raises:
            SpecError: HW1902, the bed is not up; HW1904, it has no such site.
        """
        layout = self.layout
        self._check_site(site)
        group = self._group(site)
        # Not `ip netns exec`: it hides the control groups, by which Java knows how much processor and memory it has.
        space = layout.namespace(site)
        hosts = shlex.quote(str(traces.hosts_file(self.name, space)))
        enter = [
            network.program("nsenter"),
            f"--net={network.NAMESPACES / space}",
            network.program("unshare"),
            "--mount",
        ]
        enter += ["/bin/sh", "-c", f'{network.program("mount")} -n --bind {hosts} /etc/hosts && exec "$@"', space]
        if group is not None:
            files = " ".join(shlex.quote(str(file)) for file in group.procs_files)
            join = f'for file in {files}; do echo $$ > "$file" || exit 126; done; exec "$@"'
            enter = ["/bin/sh", "-c", join, "join", *enter]
        name = "" if group is None else group.name
        return Box(tuple(enter), layout.address(site), layout.manage(site), is_apart=True, group=name)

    @property
    def layout(self) -> Layout:
        """Return its names and addresses.

        Raises:
            SpecError: HW1902, it is not up.
            BindError: HW4902, it is not complete.
        """
        if self._layout is None:
            state = traces.read_state(self.name)
            _check_complete(self.name, state)
            self._layout = network.lay_out(self.name, self.sites, state["manage_net"])
        return self._layout

    def limit(self, scale: float | None = None) -> dict[str, float | None]:
        """Limit processor and memory of every site as `quotas` says, and return its answer.

        All sites together leave some of the machine to the links.

        Raises:
            SpecError: HW1905, a scale that is not above 0.
            BindError: HW4909, this machine has no control groups; HW48xx, they refuse.
        """
        if scale is not None and not scale > 0:
            raise SpecError(Mistake("HW1905", f"a scale of {scale:g} is not above 0. Give one that is."))
        most = sites_cores(machine_cores())
        shares = quotas(self.sites, most, scale)
        self._set_limits(shares, {site.name: site.memory_bytes for site in self.sites.sites}, most)
        return shares

    def unlimit(self) -> None:
        """Let every site use the whole machine again; where sites cannot be limited, they do so anyway.

        Raises:
            BindError: HW48xx, control groups refuse.
        """
        if self.can_limit:
            self._set_limits({}, {}, None)

    @property
    def can_limit(self) -> bool:
        """Return whether this process may limit processor and memory of sites."""
        return cgroup.find() is not None

    def _set_limits(
        self, shares: Mapping[str, float | None], memory: Mapping[str, float | None], most: float | None
    ) -> None:
        hierarchy = cgroup.find()
        if hierarchy is None:
            raise BindError(
                "HW4909 sites cannot be limited: this machine has no control groups that this process may write. "
                "Run as root, with '/sys/fs/cgroup' mounted."
            )
        held: dict[str, float | None] = {}  # memory; more than asked where more is in use
        for site in self.layout.sites:
            group = cgroup.Group(hierarchy, self.layout.group(site))
            group.set_cores(shares.get(site))
            held[site] = group.set_memory(memory.get(site))
        cgroup.Group(hierarchy, self.layout.whole_group).set_cores(most)
        with self._changed_state() as state:
            state["limits"] = {site: [shares.get(site), held[site]] for site in self.layout.sites}

    def _group(self, site: str) -> cgroup.Group | None:
        hierarchy = cgroup.find()
        return cgroup.Group(hierarchy, self.layout.group(site)) if hierarchy is not None else None

    def group(self, site: str) -> cgroup.Group | None:
        """Return the control group of a site's processes; None where the machine has none.

        Raises:
            SpecError: HW1902, the bed is not up; HW1904, it has no such site.
        """
        self._check_site(site)
        return self._group(site)

    def change(
        self,
        a: str,
        b: str,
        latency_s: float | None = None,
        bandwidth_bps: float | None = None,
        loss: float | None = None,
    ) -> LinkState:
        """Change a link in both directions, while it runs; return how it is then. What is None stays.

        Raises:
            SpecError: HW1904, no such link; HW1905, a value that a link cannot have.
            BindError: HW4905, the link does not answer.
        """
        bad = []
        if latency_s is not None and not 0 <= latency_s < math.inf:
            bad.append(f"a latency of {latency_s:g} s; 0 or more is allowed")
        if bandwidth_bps is not None and not 0 < bandwidth_bps < math.inf:
            bad.append(f"a bandwidth of {bandwidth_bps:g} bit/s; more than 0 is allowed")
        if loss is not None and not 0 <= loss <= 1:
            bad.append(f"a loss of {loss:g} of its packets; 0 to 1 is allowed")
        if bad:
            raise SpecError(*(Mistake("HW1905", f"the link '{a}'-'{b}' cannot have {text}.") for text in bad))
        given = {"latency_s": latency_s, "bandwidth_bps": bandwidth_bps, "loss": loss}
        return self._set_link(a, b, {name: value for name, value in given.items() if value is not None})

    def cut(self, a: str, b: str) -> LinkState:
        """Let a link carry nothing; what is under way on it is lost.

        Raises:
            SpecError: HW1904, no such link.
            BindError: HW4905, the link does not answer.
        """
        return self._set_link(a, b, {"is_cut": True})

    def restore(self, a: str, b: str) -> LinkState:
        """Let a link carry again, as it was before it was cut.

        Raises:
            SpecError: HW1904, no such link.
            BindError: HW4905, the link does not answer.
        """
        return self._set_link(a, b, {"is_cut": False})

    def _set_link(self, a: str, b: str, settings: Mapping[str, Any]) -> LinkState:
        wire = self._wire(a, b)
        with self._changed_state() as state:
            wanted = replace(LinkState(**state["links"][wire.number]), **settings)
            links.change(state["kind"], self.layout, wire, wanted, settings)
            state["links"][wire.number] = asdict(wanted)
        return wanted

    @contextlib.contextmanager
    def _changed_state(self) -> Iterator[dict[str, Any]]:
        with traces.hold_lock():
            state = traces.read_state(self.name)
            yield state
            traces.write_state(self.name, state)

    def traffic(self, is_fresh: bool = False) -> tuple[Traffic, ...]:
        """Return what every link has carried, two directions each; `is_fresh` forgets the greatest lateness.

        Raises:
            BindError: HW4905, a link does not answer.
        """
        kind = traces.read_state(self.name)["kind"]
        found = []
        for wire in self.layout.wires:
            counts = links.counts(kind, self.layout, wire, is_fresh)
            for (origin, target), count in zip(((wire.a, wire.b), (wire.b, wire.a)), counts, strict=True):
                kept = {name: count[name] for name in Traffic.__dataclass_fields__ if name in count}
                found.append(Traffic(origin, target, **kept))
        return tuple(found)

    def status(self) -> Status:
        """Return how it is.

        Raises:
            SpecError: HW1902, it is not up.
        """
        state, layout = traces.read_state(self.name), self.layout
        sites = []
        for site in layout.sites:
            group = self._group(site)
            cores, memory_bytes = state["limits"].get(site, (None, None))
            names = (layout.namespace(site), layout.address(site), layout.manage(site))
            pids = group.pids() if group is not None else tuple(sorted(traces.processes_in([names[0]])))
            sites.append(SiteStatus(site, *names, cores, memory_bytes, pids))
        lines = (
            LinkStatus(link.a, link.b, LinkState(link.latency_s, link.bandwidth_bps), LinkState(**one))
            for link, one in zip(self.sites.links, state["links"], strict=True)
        )
        return Status(self.name, state["tier"], state["because"], tuple(sites), tuple(lines))

    def _check_site(self, site: str) -> None:
        if site not in self.sites.by_name:
            known = ", ".join(f"'{name}'" for name in self.sites.by_name)
            text = f"testbed '{self.name}' has no site '{site}'; it has {known}. Name one of these."
            raise SpecError(Mistake("HW1904", text))

    def _wire(self, a: str, b: str) -> Wire:
        self._check_site(a)
        self._check_site(b)
        wire = self.layout.wire(a, b)
        if wire is None:
            ends = [one.b if one.a == a else one.a for one in self.layout.wires_of(a)]
            known = ", ".join(f"'{name}'" for name in ends) or "none"
            text = f"testbed '{self.name}' has no link '{a}'-'{b}'; '{a}' has links to {known}. Name one of these."
            raise SpecError(Mistake("HW1904", text))
        return wire


def _check_complete(name: str, state: Mapping[str, Any]) -> None:
    if state["stage"] != UP:
        raise BindError(
            f"HW4902 testbed '{name}' is not complete: it is {state['stage']}, or was when its maker was ended. "
            f"Wait for it, or take it down and up again."
        )


def _free_manage_net() -> int:
    """Return the number of a management network that no address of this machine is in."""
    found = json.loads(network.run_program(["ip", "-json", "-4", "address", "show"]) or "[]")
    taken = {entry["local"] for device in found for entry in device.get("addr_info", ())}
    used = {int(address.split(".")[2]) for address in taken if address.startswith("10.79.")}
    for number in range(256):
        if number not in used:
            return number
    raise BindError("HW4902 all 256 management networks 10.79.N.0/24 are taken. Take a testbed down.")
