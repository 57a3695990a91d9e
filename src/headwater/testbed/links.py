"""How do the links of a testbed come to be, and how are they asked and changed?

There are three kinds: by 'netem' the kernel delays what leaves either end; by 'tun' and by 'packet' a process of
`testbed.link_process` does, between two devices of its own or between two that were made for it.

    HW4904   a link process does not start
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.errors import BindError
from headwater.model.sites import Link
from headwater.testbed import network, traces
from headwater.testbed.network import Layout, LinkState, Wire

__all__ = ["change", "counts", "start"]

START_S = 20.0


def start(kind: str, layout: Layout, links: Sequence[Link], owner: int | None, lock: int) -> None:
    """Start all link processes at once, and return when each has its two devices; by 'netem' there is none to start.

    Args:
        kind: Of links.
        layout: Of the bed.
        links: As they are asked for.
        owner: The process with which they end; None: they stay.
        lock: The descriptor that keeps others from testbeds, held until all have started.

    Raises:
        BindError: HW4904, one does not start.
    """
    if kind == "netem":
        return
    if kind == "packet":
        network.prepare_namespace(layout.between)
        ups = [f"link set dev {outer} up" for wire in layout.wires for outer in layout.outer(wire)]
        network.run_ip(ups, layout.between, held=lock)
    words = [sys.executable, "-I", "-S", *traces.link_command(layout.bed)]
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    started = []
    for wire, link in zip(layout.wires, links, strict=True):
        spec = json.dumps({**_spec(kind, layout, wire, link), "owner": owner, "held": [lock]})
        started.append(
            subprocess.Popen([*words, spec], stdin=quiet, stdout=quiet, stderr=pipe, text=True, pass_fds=(lock,))
        )
    failed = []
    for wire, process in zip(layout.wires, started, strict=True):
        try:
            _, said = process.communicate(timeout=START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            said = f"nothing for {START_S:g} s {process.communicate()[1]}"
        if process.returncode != 0:
            failed.append(f"'{wire.a}'-'{wire.b}': {' '.join(said.split())[-300:]}")
    if failed:
        raise BindError(f"HW4904 {len(failed)} of {len(started)} links do not start; the first, {failed[0]}.")


def _spec(kind: str, layout: Layout, wire: Wire, link: Link) -> dict[str, Any]:
    ends = [[layout.namespace(site), wire.device] for site in (wire.a, wire.b)]
    if kind == "packet":
        ends = [[layout.between, outer] for outer in layout.outer(wire)]
    return {
        "control": str(_control(layout, wire)),
        "mode": kind,
        "ends": ends,
        "seed": wire.number,
        "latency_s": link.latency_s,
        "bandwidth_bps": link.bandwidth_bps,
    }


def _control(layout: Layout, wire: Wire) -> Path:
    return traces.bed_folder(layout.bed) / f"{wire.device}.sock"


def change(kind: str, layout: Layout, wire: Wire, wanted: LinkState, settings: Mapping[str, Any]) -> None:
    """Bring a link from how it is to how it is wanted, which is the same but for the settings.

    Raises:
        BindError: HW4905, it does not answer; HW4903, the kernel refuses.
    """
    if kind != "netem" and settings:
        network.ask_link(_control(layout, wire), {"do": "set", **settings})
    for site in (wire.a, wire.b):
        if kind == "netem":
            network.run_ip([network.netem_command(wire, wanted)], layout.namespace(site), tool="tc")
        if kind == "packet":
            network.run_ip([network.train_command(wire, wanted.bandwidth_bps)], layout.namespace(site))


def counts(kind: str, layout: Layout, wire: Wire, is_fresh: bool) -> list[dict[str, Any]]:
    """Return what a link has carried, there and back; `is_fresh` forgets the greatest lateness.

    Raises:
        BindError: HW4905, it does not answer; HW4903, the kernel refuses.
    """
    if kind == "netem":
        return [_netem_counts(layout.namespace(site), wire) for site in (wire.a, wire.b)]
    answer = network.ask_link(_control(layout, wire), {"do": "stats", "fresh": is_fresh})
    return list(answer["directions"])


def _netem_counts(namespace: str, wire: Wire) -> dict[str, Any]:
    words = ["tc", "-n", namespace, "-s", "-json", "qdisc", "show", "dev", wire.device]
    return network.netem_counts(network.run_program(words))
