"""What is shown in the picture, and how large is it?

Takes a pipeline, sites, a placement and the load of links, gives boxes for sites with chips for their operators,
all around (0, 0), and lines for links. Of a large network it keeps what carries something. Where boxes and lines
go is left to `serve.layout`, their looks to `serve.draw`, which lends a function that measures text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from headwater.model.pipeline import Pipeline
from headwater.model.sites import Site, Sites
from headwater.model.units import parse, show
from headwater.serve.plain import plain
from headwater.serve.rows import columns, ordered

__all__ = [
    "CHIP_PT",
    "HEADER",
    "LABEL_PT",
    "LARGE",
    "NAME_PT",
    "NOTE_PT",
    "Box",
    "Chip",
    "Line",
    "Measure",
    "Point",
    "compose",
    "line_label",
    "short",
    "side_pulls",
]

LARGE = 40  # above so many sites, those that carry nothing are left out
NAME_PT, NOTE_PT, CHIP_PT, LABEL_PT = 9.0, 7.0, 7.5, 6.8  # text sizes
HEADER = 0.42  # inches: height of the two rows of text in a box

Point = tuple[float, float]
Measure = Callable[[str, float, bool], float]  # text, size in points, bold -> width in inches

_CHIP_HEIGHT, _CHIP_GAP_X, _CHIP_GAP_Y = 0.23, 0.10, 0.21
_PAD = 0.10  # inches around chips and text
_MAX_CHIPS = 5.0  # inches; wider rows of chips are packed
_MAX_DEPTH = 7  # rows of chips that follow the flow
_MAX_TEXT = 32  # characters of a name


@dataclass(frozen=True, slots=True)
class Chip:
    """One operator, by its centre."""

    name: str
    x: float
    y: float
    width: float
    height: float = _CHIP_HEIGHT

    @property
    def top(self) -> float:
        """Its upper edge."""
        return self.y + self.height / 2

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y - self.height / 2


@dataclass(frozen=True, slots=True)
class Box:
    """One site, by its centre, with its operators."""

    site: Site
    x: float
    y: float
    width: float
    height: float
    label: tuple[str, str]  # the two rows of its header
    chips: tuple[Chip, ...] = ()
    is_flow: bool = True  # chips stand in rows, readers above writers

    @property
    def top(self) -> float:
        """Its upper edge."""
        return self.y + self.height / 2

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y - self.height / 2

    @property
    def left(self) -> float:
        """Its left edge."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Line:
    """A link, or a chain of links through sites that are not shown."""

    a: str
    b: str
    latency_s: float  # of the whole chain
    bandwidth_bps: float  # of its most used link
    load_bps: float = 0.0  # in the busier direction of that link
    hidden: int = 0  # sites inside the chain
    points: tuple[Point, ...] = ()  # corners; four with is_curved: a Bezier curve
    is_curved: bool = False
    label_at: Point | None = None  # centre of its label; None: it has no label

    @property
    def utilisation(self) -> float:
        """Load over bandwidth, of the busier direction."""
        return self.load_bps / self.bandwidth_bps if self.bandwidth_bps > 0 else math.inf if self.load_bps else 0.0


def short(text: str) -> str:
    """Return a name fit to be drawn: nothing but what shows, and not longer than a box should be wide."""
    text = plain(text)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 9]}\u2026{text[-8:]}"


def line_label(line: Line) -> tuple[str, str]:
    """Return the two rows of a line's label.

    >>> line_label(Line("a", "b", 0.08, 1e8, 24e6))
    ('80 ms', '24 of 100 Mbit/s')
    """
    chain = f"{line.hidden} site{'s' * (line.hidden != 1)}, " if line.hidden else ""
    capacity = show(line.bandwidth_bps, "bandwidth")
    if line.load_bps > 0:
        load, _, unit = show(line.load_bps, "bandwidth").partition(" ")
        whole = line.bandwidth_bps / parse(f"1 {unit}", "bandwidth")
        capacity = f"{load} of {whole:.6g} {unit}" if 1e-3 <= whole < 1e5 else f"{load} {unit} of {capacity}"
    return f"{chain}{show(line.latency_s, 'time')}", capacity


def compose(
    pipeline: Pipeline,
    sites: Sites,
    placement: Mapping[str, str],
    loads_bps: Mapping[tuple[str, str], float],
    *,
    measure: Measure,
    remarks: Mapping[str, str],
    pulls: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Mapping[str, Box], tuple[Line, ...]]:
    """Return the boxes of all sites that are shown, by name, and the lines between them.

    Args:
        pipeline: the operators.
        sites: the network.
        placement: site of each operator; those on unknown sites are left out.
        loads_bps: load of each link by direction, (from, to).
        measure: gives the width of a text.
        remarks: a few words more for the headers of some sites.
        pulls: from left to right, where each operator would like to stand inside its site.
    """
    placed: dict[str, list[str]] = {}
    for name in pipeline.order:
        if placement.get(name) in sites.by_name:
            placed.setdefault(placement[name], []).append(name)
    lines = tuple(
        Line(link.a, link.b, link.latency_s, link.bandwidth_bps, _busier_bps(loads_bps, link.a, link.b))
        for link in sites.links
    )
    shown = tuple(site.name for site in sites.sites)
    if len(shown) > LARGE and placed:
        shown, lines = _condense(shown, lines, placed)
    boxes = {}
    for name in shown:
        site, names = sites.by_name[name], placed.get(name, ())
        widths = {each: measure(short(each), CHIP_PT, False) + 0.15 for each in names}
        chips = _chip_rows(pipeline, names, widths, pulls)
        boxes[name] = _box(site, _header(site, len(names), remarks.get(name)), widths, chips, measure)
    return boxes, lines


def side_pulls(pipeline: Pipeline, placement: Mapping[str, str], x: Mapping[str, float]) -> dict[str, float]:
    """Return for each operator the mean x of the other sites that it talks to; that of its own if there are none."""
    others: dict[str, list[float]] = {name: [] for name in pipeline.by_name}
    for stream in pipeline.streams:
        for here, there in ((stream.source, stream.target), (stream.target, stream.source)):
            site = placement.get(there, "")
            if site in x and site != placement.get(here):
                others[here].append(x[site])
    own = {name: x.get(placement.get(name, ""), 0.0) for name in others}
    return {name: sum(places) / len(places) if places else own[name] for name, places in others.items()}


def _header(site: Site, used: int, remark: str | None) -> tuple[str, str]:
    """Return the name of a site, and its kind, slots and what else must be said."""
    slots = f"{used}/{site.slots} slots" if site.slots or used else "passes on"
    words = ("" if site.kind == "middle" else site.kind, slots, remark)
    return short(site.name), " \u00b7 ".join(word for word in words if word)


def _busier_bps(loads_bps: Mapping[tuple[str, str], float], a: str, b: str) -> float:
    return max(0.0, loads_bps.get((a, b), 0.0), loads_bps.get((b, a), 0.0))


def _condense(
    shown: tuple[str, ...], lines: tuple[Line, ...], placed: Mapping[str, Sequence[str]]
) -> tuple[tuple[str, ...], tuple[Line, ...]]:
    """Keep sites that hold operators or lie on loaded links; make chains of pass-through sites one line."""
    touching: dict[str, list[Line]] = {name: [] for name in placed}
    for line in lines:
        if line.load_bps > 0 or (line.a in placed and line.b in placed):
            touching.setdefault(line.a, []).append(line)
            touching.setdefault(line.b, []).append(line)
    inner = {name for name, near in touching.items() if len(near) == 2 and name not in placed}
    visible = tuple(name for name in shown if name in touching and name not in inner)
    chains: list[Line] = []
    done: set[tuple[str, str]] = set()
    for start in visible:
        for first in touching[start]:
            if (first.a, first.b) in done:
                continue
            chain, here = [first], _far_end(first, start)
            while here in inner:
                chain.append(next(line for line in touching[here] if line is not chain[-1]))
                here = _far_end(chain[-1], here)
            done.update((line.a, line.b) for line in chain)
            worst = max(chain, key=lambda line: line.utilisation)
            latency_s = sum(line.latency_s for line in chain)
            chains.append(replace(worst, a=start, b=here, latency_s=latency_s, hidden=len(chain) - 1))
    return visible, tuple(line for line in chains if line.a != line.b)


def _far_end(line: Line, end: str) -> str:
    return line.b if line.a == end else line.a


_ChipRows = tuple[
    list[list[str]], Mapping[str, float], bool
]  # rows from the bottom, x of each, do rows follow the flow


def _box(site: Site, label: tuple[str, str], widths: Mapping[str, float], placed: _ChipRows, measure: Measure) -> Box:
    """Return a site's box around (0, 0)."""
    rows, x, is_flow = placed
    left = min((x[name] - widths[name] / 2 for name in widths), default=0.0)
    right = max((x[name] + widths[name] / 2 for name in widths), default=0.0)
    width = max(right - left, measure(label[0], NAME_PT, True), measure(label[1], NOTE_PT, False)) + 2 * _PAD
    pitch = _CHIP_HEIGHT + (_CHIP_GAP_Y if is_flow else _CHIP_GAP_X)
    height = HEADER + (_CHIP_HEIGHT + pitch * (len(rows) - 1) + 2 * _PAD if rows else 0.0)
    chips = []
    for number, row in enumerate(rows):
        y = -height / 2 + _PAD + _CHIP_HEIGHT / 2 + number * pitch
        chips += [Chip(name, x[name] - (left + right) / 2, y, widths[name]) for name in row]
    return Box(site, 0.0, 0.0, width, height, label, tuple(chips), is_flow)


def _chip_rows(
    pipeline: Pipeline, names: Sequence[str], widths: Mapping[str, float], pulls: Mapping[str, float]
) -> _ChipRows:
    """Return where a site's operators stand in it.

    Rows follow the flow, readers above writers, where that does not grow too large; else they are packed like words.
    """
    depth: dict[str, int] = {}
    pairs: list[tuple[str, str]] = []
    for name in names:
        writers = dict.fromkeys(stream.source for stream in pipeline.by_name[name].inputs if stream.source in depth)
        depth[name] = max((depth[writer] + 1 for writer in writers), default=0)
        pairs += [(writer, name) for writer in writers]
    for name in reversed(names):  # right below the first reader
        depth[name] = min((depth[reader] - 1 for writer, reader in pairs if writer == name), default=depth[name])
    rows: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in names:
        rows[depth[name]].append(name)
    if len(rows) <= _MAX_DEPTH and all(sum(widths[name] + _CHIP_GAP_X for name in row) <= _MAX_CHIPS for row in rows):
        rows = ordered([sorted(row, key=lambda name: pulls.get(name, 0.0)) for row in rows], pairs)
        return rows, columns(rows, pairs, lambda a, b: (widths[a] + widths[b]) / 2 + _CHIP_GAP_X), True
    limit = max(*widths.values(), _MAX_CHIPS, math.sqrt(sum(widths.values()) * _CHIP_HEIGHT * 4))
    packed: list[list[str]] = [[]]
    x: dict[str, float] = {}
    reached = 0.0
    for name in names:
        if packed[-1] and reached + widths[name] > limit:
            packed.append([])
            reached = 0.0
        packed[-1].append(name)
        x[name] = reached + widths[name] / 2
        reached += widths[name] + _CHIP_GAP_X
    return packed[::-1], x, False
