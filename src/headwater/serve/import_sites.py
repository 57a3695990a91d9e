"""How does a network map become a sites file?

Reads a GraphML file, fills in what it leaves out and writes the sites; says on standard error what
was assumed.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import Mistake, SpecError
from headwater.model.files import write_sites
from headwater.model.graphml import Equipment, ImportOptions, read_graphml
from headwater.serve import disk, wire
from headwater.serve.arguments import level, named_or, quantity
from headwater.serve.load import shown_name
from headwater.serve.output import Output
from headwater.serve.progress import Teller, note

__all__ = ["import_sites", "options"]

PARTS_OF_A_MACHINE = 3  # class, slots, speed


def import_sites(path: str, options: ImportOptions, out: str | None, output: Output) -> int:
    """Import one map; gives the sites on standard output unless they go to a file."""
    with Teller(f"reading {path}"):
        sites, notes = read_graphml(disk.read(path), shown_name(path), options)
    for each in notes:
        note(f"note: {each}")
    listed = wire.sites_object(sites)
    if out is not None:
        disk.write_text(out, wire.text(listed) + "\n" if out.lower().endswith(".json") else write_sites(sites))
        note(f"{len(sites.sites)} sites and {len(sites.links)} links written to {out}")
        output.answer(listed)
    else:
        output.answer(listed, write_sites(sites).rstrip("\n"))
    return 0


def options(
    leaves: Sequence[str],
    roots: Sequence[str],
    machines: tuple[str, str, str],
    bandwidth: str,
    latency: str,
    route_factor: float,
    connected: bool,
) -> ImportOptions:
    """Return the options as the import takes them; machines are for leaf, middle and root.

    Raises:
        SpecError: HW1308 to HW1310, for a value that is none of its kind.
    """
    which = named_or("degree-1", leaves)
    is_count = isinstance(which, tuple) and len(which) == 1 and which[0].isdecimal()
    leaf, middle, root = (
        _machine(f"--{kind}", text) for kind, text in zip(("leaf", "middle", "root"), machines, strict=True)
    )
    return ImportOptions(
        default_bandwidth_bps=quantity("--bandwidth", bandwidth, "bandwidth"),
        default_latency_s=quantity("--latency", latency, "time"),
        route_factor=route_factor,
        leaves=int(which[0]) if is_count else which,
        roots=named_or("center", roots),
        require_connected=connected,
        leaf=leaf,
        middle=middle,
        root=root,
    )


def _machine(option: str, text: str) -> Equipment:
    parts = text.split(":")
    if len(parts) != PARTS_OF_A_MACHINE or not parts[1].isdecimal():
        raise SpecError(Mistake("HW1310", f"{option} is '{text}'; it must be CLASS:SLOTS:SPEED, such as medium:4:2"))
    return Equipment(level(option, parts[0]), int(parts[1]), quantity(option, parts[2], "number"))
