"""How do the commands of a testbed go?

Reads what the user gave, lets `testbed.bed` act, and shows how the testbed is.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from headwater.errors import BindError, Mistake, SpecError
from headwater.model.units import Kind, show
from headwater.serve import arguments, render
from headwater.serve.load import load_sites
from headwater.serve.output import Output
from headwater.serve.plain import plain
from headwater.serve.progress import Teller
from headwater.testbed import private, traces
from headwater.testbed.bed import Bed, Status, Traffic
from headwater.testbed.calibrate import Measured, calibrate

__all__ = ["Change", "down", "execute", "go_where_it_is", "link", "status", "up"]


@dataclass(frozen=True, slots=True)
class Change:
    """How a link is to be changed, as the user wrote it."""

    latency: str | None = None
    rate: str | None = None
    loss: float | None = None
    is_cut: bool = False
    is_restored: bool = False


def up(sites_file: str, name: str, is_checked: bool, with_rates: bool, output: Output) -> int:
    """Bring a testbed up; return the exit code.

    Raises:
        SpecError: the sites file or the name is wrong.
        BindError: this machine cannot, or something of the name is already there.
    """
    bed = Bed(name, load_sites(sites_file))
    begun_s = time.monotonic()
    with Teller("testbed") as teller:
        bed.up(lambda text: teller.say(text, None))
        took_s = time.monotonic() - begun_s
        measured: tuple[Measured, ...] = ()
        if is_checked:
            measured = calibrate(bed, with_rate=with_rates, say=lambda text: teller.say(text, None))
    found = bed.status()
    value = {
        **_object(found, bed.traffic()),
        "seconds": round(took_s, 3),
        "measured": [asdict(one) for one in measured],
    }
    lines: list[RenderableType] = [Text(f"testbed '{name}' is up after {took_s:.1f} s: {plain(found.because)}")]
    off = [one for one in measured if one.is_off]
    if measured:
        lines.append(render.simple_table(("from", "to", "what", "asked", "measured", ""), map(_measured_row, measured)))
    if off:
        lines.append(Text(f"{len(off)} of {len(measured)} measurements are off: this machine may be too busy."))
    output.answer(value, *lines)
    return 0


def down(name: str | None, output: Output) -> int:
    """Remove a testbed, or all of them; return the exit code."""
    if name is not None:
        go_where_it_is(name)
    names = [name] if name is not None else sorted(traces.leftovers())
    removed = {one: list(traces.remove(one)) for one in names}
    text = "".join(f"testbed '{one}' is removed: {len(what)} things\n" for one, what in removed.items())
    output.answer({"removed": removed}, Text(plain(text.rstrip() or "no testbed is up")))
    return 0


def status(name: str, output: Output) -> int:
    """Say how a testbed is; return the exit code.

    Raises:
        SpecError: HW1902, there is none.
    """
    bed = _found(name)
    found, traffic = bed.status(), bed.traffic()
    carried = {(one.origin, one.target): one for one in traffic}
    sites = render.simple_table(
        ("site", "address", "managed at", "cores", "memory", "processes"),
        (
            (
                one.name,
                one.address,
                one.manage,
                "all" if one.cores is None else f"{one.cores:.2f}",
                "all" if one.memory_bytes is None else show(one.memory_bytes, "size"),
                str(len(one.pids)),
            )
            for one in found.sites
        ),
    )
    links = render.simple_table(
        ("link", "one way", "bandwidth", "loss", "carried there", "and back", "dropped"),
        (
            (
                f"{one.a} - {one.b}" + (" (cut)" if one.state.is_cut else ""),
                show(one.state.latency_s, "time"),
                show(one.state.bandwidth_bps, "bandwidth"),
                f"{one.state.loss:.1%}",
                show(carried[one.a, one.b].bytes, "size"),
                show(carried[one.b, one.a].bytes, "size"),
                str(carried[one.a, one.b].dropped + carried[one.b, one.a].dropped),
            )
            for one in found.links
        ),
    )
    output.answer(_object(found, traffic), Text(plain(f"testbed '{name}': {found.because}")), sites, links)
    return 0


def link(name: str, a: str, b: str, change: Change, output: Output) -> int:
    """Change a link; return the exit code.

    Raises:
        SpecError: HW1315, nothing to change or a cut and its end at once; HW1902 and HW1904, no such testbed or link.
    """
    wishes = (change.latency, change.rate, change.loss)
    if change.is_cut and change.is_restored:
        raise SpecError(Mistake("HW1315", "--cut and --restore ask for opposite things; give one of them"))
    if not (change.is_cut or change.is_restored) and all(one is None for one in wishes):
        text = "nothing is to be changed; give --latency, --rate, --loss, --cut or --restore"
        raise SpecError(Mistake("HW1315", text))
    bed = _found(name)
    if any(one is not None for one in wishes):
        latency_s = None if change.latency is None else arguments.quantity("--latency", change.latency, "time")
        rate_bps = None if change.rate is None else arguments.quantity("--rate", change.rate, "bandwidth")
        bed.change(a, b, latency_s=latency_s, bandwidth_bps=rate_bps, loss=change.loss)
    if change.is_cut:
        bed.cut(a, b)
    if change.is_restored:
        bed.restore(a, b)
    state = next(one.state for one in bed.status().links if {one.a, one.b} == {a, b})
    is_cut = ", cut" if state.is_cut else ""
    text = (
        f"{a} - {b}: {show(state.latency_s, 'time')} one way, {show(state.bandwidth_bps, 'bandwidth')}, "
        f"loss {state.loss:.1%}{is_cut}"
    )
    output.answer({"a": a, "b": b, **asdict(state)}, Text(plain(text)))
    return 0


def execute(name: str, site: str, command: Sequence[str], output: Output) -> int:
    """Become a command that runs inside a site; as JSON, only tell its words.

    Raises:
        SpecError: HW1902 and HW1904, no such testbed or site.
        BindError: HW4007, there is no such command.
    """
    words = [*_found(name).box(site).enter, *command]
    if output.as_json:
        output.answer({"site": site, "words": words})
        return 0
    if shutil.which(command[0]) is None:
        raise BindError(
            f"HW4007 there is no command '{command[0]}' to run in site '{site}'; check its name or install it"
        )
    os.execvp(words[0], words)


def _found(name: str) -> Bed:
    go_where_it_is(name)
    return Bed.found(name)


def go_where_it_is(name: str) -> None:
    """Start this command again in the namespaces of a bed that this user has there."""
    pid = traces.elsewhere(name) if os.geteuid() != 0 else None
    if pid is not None:
        private.become(private.join_words(pid, private.own_command()))


def _object(found: Status, traffic: Sequence[Traffic]) -> dict[str, Any]:
    return {**asdict(found), "traffic": [asdict(one) for one in traffic]}


def _measured_row(one: Measured) -> Sequence[str]:
    kind: Kind = "time" if one.what == "delay" else "bandwidth"
    found = "nothing came" if one.found is None else show(one.found, kind)
    return one.origin, one.target, one.what, show(one.asked, kind), found, "off" if one.is_off else ""
