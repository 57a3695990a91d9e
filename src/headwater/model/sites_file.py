"""What does a sites file say? Makes `Sites` of its values and reports what is wrong with them."""

from __future__ import annotations

from headwater.model import fields
from headwater.model.fields import Body, Field, Known, Spot, read_fields, read_file, read_named, read_pair
from headwater.model.graph import check_connected
from headwater.model.pipeline import LEVELS
from headwater.model.report import Report, describe, quote
from headwater.model.sites import KINDS, Link, Site, Sites
from headwater.model.tree import line_of

__all__ = ["TAG", "make_sites"]

MOST_SLOTS = 1_000_000_000
TAG = "tag:"  # begins an entry of 'at' that names a tag

FILE = {"sites": Field("sites", fields.mapping), "links": Field("links", fields.entries)}
SITE = {
    "kind": Field("kind", fields.one_of({kind: kind for kind in KINDS})),
    "class": Field("level", fields.one_of(LEVELS)),
    "slots": Field("slots", fields.whole(0, MOST_SLOTS)),
    "speed": Field("speed", fields.quantity("number", above_zero=True)),
    "cores": Field("cores", fields.quantity("cores", above_zero=True)),
    "memory": Field("memory_bytes", fields.quantity("size")),
    "price": Field("price", fields.quantity("number")),
    "tags": Field("tags", fields.names),
}
LINK = {
    "between": Field("between", fields.entries, "[site-1, site-2]"),
    "latency": Field("latency_s", fields.quantity("time"), "40 ms"),
    "bandwidth": Field("bandwidth_bps", fields.quantity("bandwidth", above_zero=True), "100 Mbit/s"),
}


def make_sites(report: Report, root: Body) -> Sites:
    """Return the sites and links of a file; what is reported as wrong is left out."""
    found = read_file(Spot(report, root, "the file"), FILE, "sites", "operators")
    if found is None:
        return Sites((), ())
    given: Body = found["sites"]
    sites = []
    for name in given:
        spot = read_named(report, given, name, "site")
        if name.startswith(TAG):
            report.add(
                "HW1013",
                f"the name of {spot.what} begins with '{TAG}', which marks a tag in 'at'. Choose another.",
                line_of(given, name),
            )
        sites.append(Site(name, **read_fields(spot, SITE)))
    links = _links(report, found.get("links", []), given)
    is_complete = "links" in found or root.get("links") is None
    if is_complete and len(links) == len(found.get("links", [])):  # else one mistake would bring another
        check_connected(report, list(given), [(link.a, link.b) for link in links], lambda name: line_of(given, name))
    return Sites(tuple(sites), tuple(links))


def _links(report: Report, given: list[object], sites: Body) -> list[Link]:
    links = []
    known = Known("site", sites)
    lines: dict[tuple[str, str], int | None] = {}
    for i, body in enumerate(given):
        what, line = f"link {i + 1}", line_of(given, i)
        if not isinstance(body, dict):
            report.add("HW1005", f"{what} must be a mapping; found {describe(body)}.", line)
            continue
        spot = Spot(report, body, what)
        found = read_fields(spot, LINK)
        ends = read_pair(spot, "between", known) if "between" in found else None
        if ends is None:
            continue
        a, b = ends
        pair = (a, b) if a <= b else (b, a)
        if a == b:
            report.add("HW1011", f"{what} joins site {quote(a)} to itself. Remove it.", line)
        elif pair in lines:
            report.add(
                "HW1008",
                f"{what} joins {quote(a)} and {quote(b)}, as the link on line {lines[pair]} does; "
                "two sites have at most one link. Remove one of the two.",
                line,
            )
        else:
            lines[pair] = line
            if len(found) == len(LINK):
                links.append(Link(a, b, found["latency_s"], found["bandwidth_bps"]))
    return links
