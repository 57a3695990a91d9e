"""What sites does a network map in GraphML describe?

Takes the bytes of a GraphML file (the Internet Topology Zoo's kind: labels and coordinates on nodes, speeds
or carrier names on edges) and gives `Sites` with notes on everything that was assumed. Reads no files and
writes no sites file: both are left to the command that calls it.

A map says little about machines, so `ImportOptions` fills in what it leaves out:

    latency    max(min_latency_s, great-circle km * route_factor / speed_km_s); default_latency_s where an end
               has no coordinates. The route factor of 1 takes cables to be straight; 1.2 to 2 is usual.
    bandwidth  LinkSpeedRaw, else LinkSpeed with LinkSpeedUnits, else a speed or a carrier ('10 Gbps', '2xOC-48',
               'STM-16', 'GigE') in LinkLabel, LinkType or LinkNote ('< 10 Gbps' counts as 10), else
               default_bandwidth_bps. Carriers count at their line rate: OC-192 is 9.953 Gbit/s.
    kind       roots and leaves by the two options of that name, all others 'middle'.

Parallel edges become one link (bandwidths summed, least latency), loops are dropped, and of a map in several
parts the largest is kept. Any document type declaration is refused, so that no entity is ever expanded.
"""

from __future__ import annotations

import math
import re
import unicodedata
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

from headwater.errors import Mistake, SpecError
from headwater.model.sites import Link, Site, Sites

__all__ = ["MAX_BYTES", "MAX_SITES", "Equipment", "ImportOptions", "link_speed_bps", "read_graphml"]

MAX_BYTES = 32 * 2**20  # largest file that is read
MAX_SITES = 10_000  # most nodes that are read; finding the centre takes time in their square

_NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
_MAX_DEPTH = 100  # of nested elements
_MAX_NAME = 100  # characters of a site's name
_MAX_MISTAKES = 20  # reported at once
_EARTH_KM = 6371.0088  # mean radius
_CHUNK = 256  # sites whose distances are held in memory at once


@dataclass(frozen=True, slots=True)
class Equipment:
    """What every site of one kind is given, as a map says nothing about machines."""

    level: int  # class: 1 low, 2 medium, 3 high
    slots: int  # how many operators fit
    speed: float  # work done per core second, relative to a reference machine


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What to assume where the map is silent."""

    default_bandwidth_bps: float = 1e9  # of a link whose speed is not stated
    default_latency_s: float = 0.005  # of a link with an end without coordinates
    speed_km_s: float = 200_000.0  # of light in fibre
    route_factor: float = 1.0  # length of the cable over the great-circle distance
    min_latency_s: float = 0.0001  # of any link with coordinates
    leaves: str | int | tuple[str, ...] = "degree-1"  # sites with one link; or how many; or their names
    roots: str | tuple[str, ...] = "center"  # the site with least total latency to all others; or names
    require_connected: bool = False  # refuse a map in several parts instead of keeping the largest
    leaf: Equipment = field(default=Equipment(level=1, slots=2, speed=1.0))
    middle: Equipment = field(default=Equipment(level=2, slots=4, speed=2.0))
    root: Equipment = field(default=Equipment(level=3, slots=64, speed=4.0))


def read_graphml(text: bytes, file: str, options: ImportOptions) -> tuple[Sites, tuple[str, ...]]:
    """Return the sites that a GraphML file describes, and notes on what was assumed.

    Args:
        text: the file's content; its XML declaration says the encoding.
        file: the file as the user named it, for messages.
        options: what to assume where the map is silent.

    Raises:
        SpecError: the file is no GraphML, holds no nodes, is too large or declares a document type (HW1101
            to HW1107), or an option is wrong or names no site (HW1108, HW1109).
    """
    mistakes = _option_mistakes(options)
    if mistakes:
        raise SpecError(*mistakes)
    notes: list[str] = []
    graph = _parse(text, file, notes)
    names = _site_names(graph, notes)
    links = _links(graph, names, options, notes)
    order, links = _largest_part(tuple(names.values()), links, file, options, notes)
    roots = _roots(order, links, file, options, notes)
    leaves = _leaves(order, links, roots, file, options, notes)
    return Sites(tuple(_site(name, roots, leaves, options) for name in order), links), tuple(notes)


def _option_mistakes(options: ImportOptions) -> list[Mistake]:
    """Return what is wrong with the options themselves."""
    wrong = []
    for name in ("default_bandwidth_bps", "default_latency_s", "speed_km_s", "route_factor", "min_latency_s"):
        value = getattr(options, name)
        if not math.isfinite(value) or value < 0 or (value == 0 and not name.endswith("latency_s")):
            bound = "of at least 0" if name.endswith("latency_s") else "above 0"
            wrong.append(f"option '{name}' is {value}; it must be a number {bound}")
    for kind, given in (("leaf", options.leaf), ("middle", options.middle), ("root", options.root)):
        if given.level not in (1, 2, 3) or given.slots < 0 or not 0 < given.speed < math.inf:
            wrong.append(f"'{kind}' sites get {given}; allowed are levels 1 to 3, slots from 0 and a speed above 0")
    if not options.leaves or (isinstance(options.leaves, str) and options.leaves != "degree-1"):
        wrong.append(f"leaves are {options.leaves!r}; allowed are 'degree-1', a count from 1 or a list of names")
    if isinstance(options.leaves, int) and options.leaves < 0:
        wrong.append(f"leaves are {options.leaves}; a count must be at least 1")
    if not options.roots or (isinstance(options.roots, str) and options.roots != "center"):
        wrong.append(f"roots are {options.roots!r}; allowed are 'center' or a list of names")
    return [Mistake("HW1108", text) for text in wrong]


class _Scan:
    """One streaming pass that refuses what must not be parsed and knows the line of everything else."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.depth = 0
        self.graphs = 0
        self.nodes: dict[str, int] = {}  # id -> line
        self.edges: list[tuple[str | None, str | None, int]] = []
        self.mistakes: list[Mistake] = []

    def run(self, text: bytes) -> None:
        """Read it all; raise on what forbids parsing, then on every wrong node and edge."""
        if len(text) > MAX_BYTES:
            self._stop("HW1103", f"the file has {len(text)} bytes; at most {MAX_BYTES} are read", None)
        try:
            self.parser.Parse(text, True)
        except expat.ExpatError as error:
            self._stop("HW1101", f"the file is not well-formed XML: {error}", error.lineno)
        except (LookupError, ValueError) as error:  # an encoding that Python or expat does not know
            self._stop("HW1101", f"the file is not readable as XML: {error}", None)
        for source, target, line in self.edges:
            for end in (source, target):
                if end is None:
                    self._note("HW1106", "an edge lacks its 'source' or 'target'", line)
                elif end not in self.nodes:
                    self._note("HW1106", f"an edge ends at node '{end}', which is not declared", line)
        if self.mistakes:
            raise SpecError(*self.mistakes[:_MAX_MISTAKES])
        if not self.nodes:
            self._stop("HW1105", "the file holds no nodes; a network has at least one", None)

    def _note(self, code: str, text: str, line: int | None) -> None:
        self.mistakes.append(Mistake(code, text, self.file, line))

    def _stop(self, code: str, text: str, line: int | None) -> NoReturn:
        raise SpecError(Mistake(code, text, self.file, line)) from None

    def _doctype(self, *_: object) -> None:
        text = "the file has a document type declaration (DOCTYPE), which is refused; remove it with its entities"
        self._stop("HW1102", text, self.parser.CurrentLineNumber)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        name = tag.rpartition(" ")[2]
        self.depth += 1
        if self.depth == 1 and name != "graphml":
            self._stop("HW1104", f"the outermost element is '{name}'; GraphML begins with 'graphml'", line)
        if self.depth > _MAX_DEPTH:
            self._stop("HW1103", f"elements are nested more than {_MAX_DEPTH} deep", line)
        if self.depth == 2 and name == "graph":
            self.graphs += 1
        if self.graphs == 1 and name == "node":  # only the first graph is read
            self._node(attributes.get("id"), line)
        elif self.graphs == 1 and name == "edge":
            self.edges.append((attributes.get("source"), attributes.get("target"), line))

    def _node(self, name: str | None, line: int) -> None:
        if name is None:
            self._note("HW1106", "a node lacks its 'id'", line)
        elif name in self.nodes:
            self._note("HW1106", f"node '{name}' is declared twice, first in line {self.nodes[name]}", line)
        else:
            self.nodes[name] = line
        if len(self.nodes) > MAX_SITES:
            self._stop("HW1103", f"the file holds more than {MAX_SITES} nodes", line)

    def _end(self, _: str) -> None:
        self.depth -= 1


def _parse(text: bytes, file: str, notes: list[str]) -> Any:
    """Return the file's first graph as networkx reads it."""
    import networkx as nx  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415  # slow to load

    scan = _Scan(file)
    scan.run(text)
    if scan.graphs > 1:
        notes.append(f"{scan.graphs} graphs in the file: only the first was read")
    root = ElementTree.fromstring(text)
    for number, element in enumerate(root.iter()):
        if not element.tag.startswith("{"):
            element.tag = f"{{{_NAMESPACE}}}{element.tag}"
        if element.tag.endswith("}edge"):
            element.set("id", f"e{number}")  # networkx keeps only the last of two parallel edges with one id
    try:
        with warnings.catch_warnings(action="ignore"):
            graph: Any = nx.parse_graphml(ElementTree.tostring(root, encoding="unicode"))
    except (nx.NetworkXException, LookupError, ValueError, TypeError, AttributeError) as error:
        said = f"no {error} is known" if isinstance(error, KeyError) else str(error)
        raise SpecError(Mistake("HW1104", f"the file is XML but not GraphML that can be read: {said}", file)) from error
    return graph


def _clean(label: str) -> str:
    """Return a label as a site's name: no blanks, no control characters, no look of a tag."""
    name = "-".join(label.split())
    name = "".join(char for char in name if not unicodedata.category(char).startswith("C"))[:_MAX_NAME]
    return name.replace("tag:", "tag-", 1) if name.startswith("tag:") else name


def _site_names(graph: Any, notes: list[str]) -> Mapping[Any, str]:
    """Return a name of its own for every node: its label, else its id; a repeated one gets '-2', '-3'."""
    wanted: dict[Any, str] = {}
    unnamed = 0
    for node, data in graph.nodes(data=True):
        label = _clean(str(data.get("label") or ""))
        if label in ("", "None"):  # the Topology Zoo writes Python's None for a node that the map leaves blank
            label = _clean(str(node)) or "site"
            unnamed += 1
        wanted[node] = label
    names: dict[Any, str] = {}
    taken = set(wanted.values())  # a label that is there wins over a made one
    seen: dict[str, int] = {}
    for node, name in wanted.items():
        count = seen.get(name, 0) + 1
        unique = name
        while count > 1 and (unique := f"{name}-{count}") in taken:
            count += 1
        seen[name] = count
        taken.add(unique)
        names[node] = unique
    if unnamed:
        notes.append(f"{_count(unnamed, 'node')} without a label: named by id")
    repeated = sum(names[node] != name for node, name in wanted.items())
    if repeated:
        notes.append(f"{_count(repeated, 'repeated label')}: told apart by '-2', '-3' and so on")
    return names


def _links(graph: Any, names: Mapping[Any, str], options: ImportOptions, notes: list[str]) -> tuple[Link, ...]:
    """Return one link for every pair of nodes that edges join, in the order of the file."""
    places = {node: _coordinates(data) for node, data in graph.nodes(data=True)}
    defaults = graph.graph.get("edge_default", {})
    ways: dict[tuple[Any, Any], list[float]] = {}  # per direction, one bandwidth for every edge
    loops = unstated = 0
    for start, end, data in graph.edges(data=True):
        if start == end:
            loops += 1
            continue
        pair = (end, start) if not graph.is_directed() and (end, start) in ways else (start, end)
        bandwidth = link_speed_bps({**defaults, **data})
        unstated += bandwidth is None
        ways.setdefault(pair, []).append(options.default_bandwidth_bps if bandwidth is None else bandwidth)
    links: dict[tuple[Any, Any], Link] = {}
    merged = 0
    for (start, end), bandwidths in ways.items():
        merged += len(bandwidths) - 1
        total = sum(bandwidths)
        if (end, start) in links:  # a directed map: the link's bandwidth is that of its weaker direction
            back = links[end, start]
            total = min(total, back.bandwidth_bps)
            links[end, start] = Link(back.a, back.b, back.latency_s, total)
        else:
            latency_s = _latency_s(places[start], places[end], options)
            links[start, end] = Link(names[start], names[end], latency_s, total)
    blank = sum(place is None for place in places.values())
    if blank:
        assumed = f"{options.default_latency_s * 1e3:g} ms"
        notes.append(f"{_count(blank, 'node')} without coordinates: default latency of {assumed} used")
    if unstated:
        assumed = f"{options.default_bandwidth_bps / 1e6:g} Mbit/s"
        notes.append(f"{_count(unstated, 'edge')} without a known speed: default of {assumed} used")
    if merged:
        notes.append(f"{_count(merged, 'parallel edge')} merged: bandwidths summed, least latency kept")
    if loops:
        notes.append(f"{_count(loops, 'loop')} from a node to itself dropped")
    return tuple(links.values())


def _coordinates(data: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return latitude and longitude in degrees, or None where they are missing or impossible."""
    try:
        latitude, longitude = float(data["Latitude"]), float(data["Longitude"])
    except (KeyError, TypeError, ValueError):
        return None
    return (latitude, longitude) if abs(latitude) <= 90 and abs(longitude) <= 360 else None


def _latency_s(a: tuple[float, float] | None, b: tuple[float, float] | None, options: ImportOptions) -> float:
    """Return the one-way latency between two places, along the great circle (haversine formula)."""
    if a is None or b is None:
        return options.default_latency_s
    (lat_a, lon_a), (lat_b, lon_b) = (tuple(map(math.radians, place)) for place in (a, b))
    chord = math.sin((lat_b - lat_a) / 2) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    distance_km = 2 * _EARTH_KM * math.asin(min(1.0, math.sqrt(chord)))
    return max(options.min_latency_s, distance_km * options.route_factor / options.speed_km_s)


_TIMES = r"(?:(?P<times>\d{1,4})\s*[x*\u00d7]\s*)?"
_SPEED = re.compile(
    rf"(?<![\w.]){_TIMES}(?P<number>\d+(?:\.\d+)?)\s*"
    r"(?:(?P<prefix>[kmgt]?)(?P<unit>b(?:it)?s?)\s*(?:/\s*s(?:ec)?|ps)|(?P<short>[kmgt])(?:b(?:it)?s?)?)\b",
    re.IGNORECASE,
)
_CARRIER = re.compile(
    rf"(?<![\w.]){_TIMES}(?:(?P<family>OC|STS|STM)[-\s]?(?P<level>\d{{1,4}})c?"
    r"|(?P<fixed>E-?[1-5]|T-?[1-4]|DS-?[0-4])|(?P<ten>\d{1,4})?[-\s]?(?P<ether>Gig(?:abit)?[-\s]?E(?:thernet)?|GbE|GE"
    r"|Fast[-\s]?E(?:thernet)?|FE))\b",
    re.IGNORECASE,
)
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_STEP_BPS = {"OC": 51.84e6, "STS": 51.84e6, "STM": 155.52e6}
_FIXED_BPS = {
    "E1": 2.048e6, "E2": 8.448e6, "E3": 34.368e6, "E4": 139.264e6, "E5": 565.148e6,
    "T1": 1.544e6, "T2": 6.312e6, "T3": 44.736e6, "T4": 274.176e6,
    "DS0": 64e3, "DS1": 1.544e6, "DS2": 6.312e6, "DS3": 44.736e6, "DS4": 274.176e6,
}  # fmt: skip


def link_speed_bps(data: Mapping[str, Any]) -> float | None:
    """Return the speed that an edge's attributes state, or None.

    >>> link_speed_bps({"LinkSpeed": "2.5", "LinkSpeedUnits": "G"})
    2500000000.0
    >>> link_speed_bps({"LinkLabel": "Lit Fibre", "LinkNote": "2 x 100 Mbit/s"})
    200000000.0
    """
    try:
        raw = float(data["LinkSpeedRaw"])
    except (KeyError, TypeError, ValueError):
        raw = 0.0
    stated = f"{data.get('LinkSpeed') or ''} {data.get('LinkSpeedUnits') or ''}"
    texts = (stated, *(str(data.get(key) or "") for key in ("LinkLabel", "LinkType", "LinkNote")))
    speeds = (raw, *map(_speed_in, texts))
    return next((speed for speed in speeds if speed > 0 and math.isfinite(speed)), None)


def _speed_in(text: str) -> float:
    """Return the first speed or carrier in a text, in bit/s; 0 where there is none."""
    text = text[:500]
    if match := _SPEED.search(text):
        scale = _SCALE[(match["prefix"] or match["short"] or "").lower()]
        bits = 8 if match["unit"] == "B" else 1  # as in model files: 'MB/s' are bytes, 'Mb/s' are bits
        return int(match["times"] or 1) * float(match["number"]) * scale * bits
    if match := _CARRIER.search(text):
        times = int(match["times"] or 1)
        if match["family"]:
            return times * int(match["level"]) * _STEP_BPS[match["family"].upper()]
        if match["fixed"]:
            return times * _FIXED_BPS[match["fixed"].upper().replace("-", "")]
        return times * int(match["ten"] or 1) * (1e9 if match["ether"].upper().startswith("G") else 100e6)
    return 0.0


def _neighbours(links: Iterable[Link]) -> dict[str, list[str]]:
    near: dict[str, list[str]] = {}
    for link in links:
        near.setdefault(link.a, []).append(link.b)
        near.setdefault(link.b, []).append(link.a)
    return near


def _largest_part(
    order: Sequence[str], links: tuple[Link, ...], file: str, options: ImportOptions, notes: list[str]
) -> tuple[tuple[str, ...], tuple[Link, ...]]:
    """Return the sites and links of the largest connected part; of two as large, the one that comes first."""
    near = _neighbours(links)
    part_of: dict[str, int] = {}
    sizes: list[int] = []
    for start in order:
        if start in part_of:
            continue
        part_of[start] = len(sizes)
        waiting = deque([start])
        size = 0
        while waiting:
            size += 1
            for other in near.get(waiting.popleft(), ()):
                if other not in part_of:
                    part_of[other] = len(sizes)
                    waiting.append(other)
        sizes.append(size)
    if len(sizes) == 1:
        return tuple(order), links
    keep = sizes.index(max(sizes))
    if options.require_connected:
        text = f"the network is in {len(sizes)} parts, the largest of {_count(sizes[keep], 'site')}"
        raise SpecError(Mistake("HW1107", f"{text}; join them or allow the largest alone", file))
    lost = _count(len(order) - sizes[keep], "site")
    notes.append(f"{len(sizes)} parts that no link joins: kept the largest, left out {lost}")
    return (
        tuple(name for name in order if part_of[name] == keep),
        tuple(link for link in links if part_of[link.a] == keep),
    )


def _roots(
    order: tuple[str, ...], links: tuple[Link, ...], file: str, options: ImportOptions, notes: list[str]
) -> tuple[str, ...]:
    if not isinstance(options.roots, str):
        return _named(options.roots, order, "root", file)
    totals: list[float] = []
    for begin in range(0, len(order), _CHUNK):
        totals += _distances_ns(order, links, order[begin : begin + _CHUNK]).sum(axis=1).tolist()
    _, centre = min(zip(totals, order, strict=True))
    notes.append(f"root: '{centre}', the site with least total latency to all others")
    return (centre,)


def _leaves(
    order: tuple[str, ...],
    links: tuple[Link, ...],
    roots: tuple[str, ...],
    file: str,
    options: ImportOptions,
    notes: list[str],
) -> tuple[str, ...]:
    if not isinstance(options.leaves, str | int):
        leaves = _named(options.leaves, order, "leaf", file)
        if both := sorted(set(leaves) & set(roots)):
            raise SpecError(Mistake("HW1109", f"site '{both[0]}' is named as a root and as a leaf; choose one", file))
        return leaves
    others = [name for name in order if name not in roots]
    if not others:
        notes.append("no leaf: every site is a root")
        return ()
    near = _neighbours(links)
    away = dict(zip(order, _distances_ns(order, links, roots).min(axis=0).tolist(), strict=True))
    ranked = sorted(others, key=lambda name: (len(near[name]), -away[name], name))
    if isinstance(options.leaves, int):
        if options.leaves > len(others):
            text = f"{options.leaves} leaves are asked for; beside its roots the network has"
            raise SpecError(Mistake("HW1109", f"{text} {_count(len(others), 'site')}", file))
        notes.append(f"{_count(options.leaves, 'leaf', 'leaves')}: fewest links first, then farthest from a root")
        return tuple(ranked[: options.leaves])
    ends = tuple(name for name in others if len(near[name]) == 1)
    notes.append(
        f"{_count(len(ends), 'leaf', 'leaves')}: the sites with one link"
        if ends
        else f"leaf: '{ranked[0]}', as no site beside the roots has one link only"
    )
    return ends or (ranked[0],)


def _named(wanted: tuple[str, ...], order: tuple[str, ...], kind: str, file: str) -> tuple[str, ...]:
    """Return the sites that the user named, as labels of the map or as names of sites."""
    mistakes = []
    for name in wanted:
        if _clean(name) not in order:
            near = get_close_matches(_clean(name), order, 1)
            hint = f"Did you mean '{near[0]}'?" if near else f"One of its {len(order)} is '{order[0]}'."
            mistakes.append(Mistake("HW1109", f"{kind} '{name}' is no site of the network. {hint}", file))
    if mistakes:
        raise SpecError(*mistakes[:_MAX_MISTAKES])
    return tuple(dict.fromkeys(map(_clean, wanted)))


def _distances_ns(order: Sequence[str], links: Sequence[Link], starts: Sequence[str]) -> Any:
    """Return least latencies from each start to each site, in whole nanoseconds so that ties are exact."""
    from scipy.sparse import csr_array  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415  # slow to load
    from scipy.sparse.csgraph import dijkstra  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415

    index = {name: number for number, name in enumerate(order)}
    weights = [float(round(link.latency_s * 1e9)) for link in links]
    ends = [index[link.a] for link in links], [index[link.b] for link in links]
    matrix = csr_array((weights, ends), shape=(len(order), len(order)))
    return dijkstra(matrix, directed=False, indices=[index[name] for name in starts])


def _site(name: str, roots: tuple[str, ...], leaves: tuple[str, ...], options: ImportOptions) -> Site:
    kind = "root" if name in roots else "leaf" if name in leaves else "middle"
    equipment = {"leaf": options.leaf, "middle": options.middle, "root": options.root}[kind]
    return Site(name, kind, equipment.level, equipment.slots, equipment.speed)


def _count(number: int, one: str, many: str | None = None) -> str:
    """Return '1 site', '3 sites'."""
    return f"{number} {one if number == 1 else many or one + 's'}"
