"""What does a placement look like?

Draws sites as boxes with their operators as chips, links with their use, streams between sites and the critical
path, into an SVG or PNG file. What is shown is decided in `serve.scene` and where it goes in `serve.layout`; this
module gives it looks. The same input gives the same SVG, byte for byte. Errors of the file system are left to the
caller (see `serve.disk`).
"""

from __future__ import annotations

import io
import math
import os
import unicodedata
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater.cost.score import Score
from headwater.errors import Mistake, SpecError
from headwater.model.pipeline import LEVEL_NAMES, Operator, Pipeline
from headwater.model.sites import Sites
from headwater.model.units import show
from headwater.serve.layout import Arrow, Layout, arrange, scatter, site_columns
from headwater.serve.plain import plain
from headwater.serve.scene import (
    CHIP_PT,
    HEADER,
    LABEL_PT,
    LARGE,
    NAME_PT,
    NOTE_PT,
    Box,
    Chip,
    Line,
    Point,
    compose,
    line_label,
    short,
    side_pulls,
)

__all__ = ["draw"]

Entry = tuple[str, Any, str]  # of the legend: which swatch, its colour or level, its text

_INK, _SOFT, _FAINT = "#1f2933", "#5f6b7a", "#b8c0ca"
_CRITICAL = "#c8102e"
_STREAM = "#475569"
_FILL = {1: "#f6faf3", 2: "#f3f7fd", 3: "#f9f5fd"}  # of a site, by its level
_BAND = {1: "#e1efd9", 2: "#d9e7f8", 3: "#e7dbf5"}  # of its header
_EDGE = {1: "#6f9e5c", 2: "#4d82bf", 3: "#8259b3"}
_ROUNDING = {1: 0.03, 2: 0.08, 3: 0.15}
_SOURCE, _SINK, _STEP = "#fff3c9", "#d3f0ea", "#ffffff"  # of an operator, by its part
_USE = ((0.0, (0.20, 0.60, 0.33)), (0.5, (0.88, 0.70, 0.10)), (1.0, (0.93, 0.45, 0.05)))  # colour of a used link
_OVER = "#d7191c"
_SETTINGS: dict[Any, Any] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # the first is measured; a viewer without it has others
    "svg.fonttype": "none",  # text stays text: it can be found, copied and read aloud
    "svg.hashsalt": "headwater",
}
_MARGIN = 0.35  # inches around everything
_LEAST_WIDTH = 7.8  # inches, for legend and caption
_DPI, _MOST_PIXELS = 160, 40e6
_REASONS = 3  # shown of a placement that is not valid
_HEAD = (0.10, 0.036)  # length and half width of an arrow's head
_TITLE_PT, _CAPTION_PT, _CAPTION_ROWS = 13.0, 9.0, 6
_SWATCH = 0.42  # inches from the start of a legend's entry to its text
_DASHES = (0, (2.2, 1.6))
_OVERVIEW = (11.0, 7.2)  # inches of a large network without operators


def draw(
    pipeline: Pipeline,
    sites: Sites,
    placement: Mapping[str, str],
    score: Score | None,
    loads_bps: Mapping[tuple[str, str], float],
    path: str | os.PathLike[str],
    title: str,
) -> None:
    """Write a picture of a placement; of the network alone where nothing is placed.

    Args:
        pipeline: the operators and streams.
        sites: the network.
        placement: site of each operator; operators without a known site are named in the caption.
        score: what the placement costs; None writes no figures.
        loads_bps: load of each link by direction, (from, to); a missing one is 0.
        path: the file to write, '.svg' or '.png'.
        title: first line of the picture.

    Raises:
        SpecError: HW1201 for another kind of file, HW1202 for a network without sites.
        OSError: the file cannot be written.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in {"svg", "png"}:
        raise SpecError(Mistake("HW1201", f"a picture is an .svg or a .png file; found '{os.fspath(path)}'"))
    if not sites.sites:
        raise SpecError(Mistake("HW1202", "there are no sites to draw; a network has at least one"))
    import matplotlib as mpl  # noqa: PLC0415  # slow to load

    is_placed = any(placement.get(each.name) in sites.by_name for each in pipeline.operators)
    with warnings.catch_warnings(), mpl.rc_context():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # shown as a box, found as text
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        if len(sites.sites) > LARGE and not is_placed:
            canvas = _overview(sites, title)
        else:
            canvas = _picture(pipeline, sites, placement, score, loads_bps, title)
        content = canvas.rendered(kind, title)
    Path(path).write_bytes(content)


@lru_cache(maxsize=4096)
def _measure(text: str, size_pt: float, bold: bool) -> float:
    """Return the width of a text in inches."""
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415  # slow to load
    from matplotlib.textpath import text_to_path  # noqa: PLC0415

    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal", size=size_pt)
    width_pt = float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)  # shown by another font, a full square each
    return (width_pt + 0.4 * size_pt * wide) / 72


def _wrapped(text: str, size_pt: float, width: float) -> list[str]:
    """Return a text in rows that are not wider than the width, cut at blanks where that is possible."""
    rows = [""]
    for word in text.split(" "):
        longer = f"{rows[-1]} {word}" if rows[-1] else word
        if _measure(longer, size_pt, False) <= width:
            rows[-1] = longer
            continue
        rows += [word] if rows[-1] else []
        while _measure(word, size_pt, False) > width:
            fits = max(1, int(len(word) * width / _measure(word, size_pt, False)) - 1)
            rows[-1:] = [word[:fits], word[fits:]]
            word = word[fits:]  # noqa: PLW2901  # what is left of it
    return rows


class _Canvas:
    """A figure whose unit is the inch, and the few shapes that the picture is made of."""

    def __init__(self, left: float, bottom: float, width: float, height: float) -> None:
        from matplotlib import patches, path  # noqa: PLC0415  # slow to load
        from matplotlib.figure import Figure  # noqa: PLC0415

        self.patches, self.path = patches, path.Path
        self.width, self.height, self.left = width, height, left
        self.figure = Figure(figsize=(width, height), facecolor="white")
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_xlim(left, left + width)
        self.axes.set_ylim(bottom, bottom + height)
        self.axes.set_axis_off()

    def text(self, at: Point, text: str, size_pt: float, **looks: Any) -> None:
        """Write one row of text, literally."""
        given = {"color": _INK, "ha": "center", "va": "center", "zorder": 8, **looks}
        self.axes.text(*at, text, fontsize=size_pt, parse_math=False, **given)

    def box(
        self, centre: Point, width: float, height: float, rounding: float, clip: Box | None = None, **looks: Any
    ) -> None:
        """Draw a rectangle with rounded corners; only inside a box if one is given."""
        corner = (centre[0] - width / 2, centre[1] - height / 2)
        style = f"round,pad=0,rounding_size={rounding}"
        self._add(self.patches.FancyBboxPatch(corner, width, height, boxstyle=style, **looks), clip)

    def stroke(self, points: Sequence[Point], is_curved: bool, clip: Box | None = None, **looks: Any) -> None:
        """Draw a line through points, or one Bezier curve; only inside a box if one is given."""
        codes = [self.path.MOVETO, *([self.path.CURVE4 if is_curved else self.path.LINETO] * (len(points) - 1))]
        given = {"capstyle": "round", "joinstyle": "round", "fill": False, **looks}
        patch = self.patches.PathPatch(self.path(points, codes), **given)
        self._add(patch, clip)

    def head(self, tip: Point, before: Point, clip: Box | None = None, **looks: Any) -> None:
        """Draw the head of an arrow."""
        dx, dy = tip[0] - before[0], tip[1] - before[1]
        length = max(1e-9, (dx * dx + dy * dy) ** 0.5)
        dx, dy = dx / length, dy / length
        base = (tip[0] - dx * _HEAD[0], tip[1] - dy * _HEAD[0])
        corners = [
            tip,
            (base[0] - dy * _HEAD[1], base[1] + dx * _HEAD[1]),
            (base[0] + dy * _HEAD[1], base[1] - dx * _HEAD[1]),
        ]
        self._add(self.patches.Polygon(corners, closed=True, linewidth=0, **looks), clip)

    def _add(self, patch: Any, clip: Box | None) -> None:
        self.axes.add_artist(patch)  # as add_patch, but does not search for the limits of the axes
        if clip is not None:
            corner = (clip.left, clip.bottom)
            patch.set_clip_path(self.patches.Rectangle(corner, clip.width, clip.height, transform=self.axes.transData))

    def rendered(self, kind: str, title: str) -> bytes:
        """Return the file's content."""
        stream = io.BytesIO()
        dpi = min(_DPI, (_MOST_PIXELS / (self.width * self.height)) ** 0.5)
        metadata = {"Title": plain(title), "Date": None} if kind == "svg" else {"Title": plain(title)}
        self.figure.savefig(stream, format=kind, dpi=dpi if kind == "png" else 72, metadata=metadata)
        return stream.getvalue()


def _picture(
    pipeline: Pipeline,
    sites: Sites,
    placement: Mapping[str, str],
    score: Score | None,
    loads_bps: Mapping[tuple[str, str], float],
    title: str,
) -> _Canvas:
    remarks = {} if score is None else {name: _cores_text(sites, score, name) for name in score.overloaded}
    boxes, lines = compose(pipeline, sites, placement, loads_bps, measure=_measure, remarks=remarks)
    pulls = side_pulls(pipeline, placement, site_columns(boxes, lines, _measure))
    boxes, lines = compose(pipeline, sites, placement, loads_bps, measure=_measure, remarks=remarks, pulls=pulls)
    layout = arrange(boxes, lines, [(stream.source, stream.target) for stream in pipeline.streams], _measure)
    critical = score.critical_path if score is not None and score.valid else ()
    chips = {chip.name: chip for box in layout.boxes.values() for chip in box.chips}
    caption = _caption(pipeline, chips, score)
    if len(boxes) < len(sites.sites):
        caption.append(
            f"{len(sites.sites) - len(boxes)} of {len(sites.sites)} sites are hidden: no operator runs there."
        )
    canvas = _framed(layout, title, caption, _legend(layout, pipeline, bool(critical)))
    for line in layout.lines:
        _draw_line(canvas, line)
    for name, box in layout.boxes.items():
        _draw_box(canvas, box, name in remarks)
    for name, chip in chips.items():
        _draw_chip(canvas, chip, _part_colour(pipeline.by_name[name]), name in critical)
    on_path = set(pairwise(critical))
    for arrow in layout.arrows:
        _draw_arrow(canvas, arrow, (arrow.source, arrow.target) in on_path)
    return canvas


def _cores_text(sites: Sites, score: Score, name: str) -> str:
    cores = sites.by_name[name].cores if name in sites.by_name else None
    load = (score.load_cores or {}).get(name)
    return "overloaded" if cores is None or load is None else f"{load:.3g}/{cores:g} cores"


def _overview(sites: Sites, title: str) -> _Canvas:
    """Return a picture of a large network on which nothing is placed: a dot for each site, roots by name."""
    places = scatter([site.name for site in sites.sites], [(link.a, link.b) for link in sites.links], _OVERVIEW)
    kinds = [kind for kind in ("root", "middle", "leaf") if any(site.kind == kind for site in sites.sites)]
    caption = [f"{len(sites.sites)} sites and {len(sites.links)} links; nothing is placed. Roots are named."]
    frame = Layout({}, (), (), width=_OVERVIEW[0], height=_OVERVIEW[1])
    canvas = _framed(frame, title, caption, [("dot", kind, kind) for kind in kinds])
    for link in sites.links:
        canvas.stroke([places[link.a], places[link.b]], False, edgecolor=_FAINT, linewidth=0.8, zorder=1)
    for site in sites.sites:
        _draw_dot(canvas, places[site.name], site.kind)
        if site.kind == "root":
            x, y = places[site.name]
            canvas.text((x, y + 0.17), short(site.name), NAME_PT, weight="bold", bbox=_backing())
    return canvas


def _caption(pipeline: Pipeline, placed: Container[str], score: Score | None) -> list[str]:
    """Return the sentences below the picture."""
    rows = []
    if score is not None and score.valid and None not in {score.f, score.rt_s, score.bw_bps, score.rf}:
        time, excess = show(score.rt_s or 0.0, "time"), show(score.bw_bps or 0.0, "bandwidth")
        rows.append(f"F = {score.f:.4g}     RT = {time}     BW = {excess}     RF = {score.rf}")
    elif score is not None and not score.valid and score.reasons:
        more = f" (and {len(score.reasons) - _REASONS} more)" if len(score.reasons) > _REASONS else ""
        rows.append(f"Not valid: {'; '.join(map(plain, score.reasons[:_REASONS]))}{more}")
    lost = [short(operator.name) for operator in pipeline.operators if operator.name not in placed]
    if lost and len(lost) == len(pipeline.operators):
        rows.append("The network alone: no operator is placed.")
    elif lost:
        rows.append(f"Not placed: {', '.join(lost[:20])}{' and others' if len(lost) > 20 else ''}.")
    return rows


def _framed(layout: Layout, title: str, caption: Iterable[str], legend: Sequence[Entry]) -> _Canvas:
    """Return a canvas with room for the layout, and title, legend and caption around it."""
    full = max(layout.width, _LEAST_WIDTH - 2 * _MARGIN)
    left = layout.left + (layout.width - full) / 2
    titles = _wrapped(plain(title), _TITLE_PT, full * 0.9)[:2]
    entries = _flowed(legend, full)
    rows = [row for text in caption for row in _wrapped(text, _CAPTION_PT, full)[:_CAPTION_ROWS]]
    top = layout.bottom + layout.height + 0.15 + 0.27 * len(titles) + 0.15
    rule = layout.bottom - 0.22
    legend_y = rule - 0.2
    caption_y = legend_y - 0.22 * (entries[-1][1] + 1 if entries else 0) - 0.06
    bottom = caption_y - 0.2 * len(rows) - 0.05
    canvas = _Canvas(left - _MARGIN, bottom, full + 2 * _MARGIN, top - bottom)
    for number, text in enumerate(titles):
        canvas.text((left, top - 0.25 - 0.27 * number), text, _TITLE_PT, weight="bold", ha="left")
    canvas.stroke([(left, rule), (left + full, rule)], False, edgecolor="#e3e7ec", linewidth=0.8)
    for x, row, entry in entries:
        _draw_entry(canvas, entry, left + x, legend_y - 0.22 * row)
    for number, text in enumerate(rows):
        canvas.text((left, caption_y - 0.2 * number), text, _CAPTION_PT, ha="left")
    return canvas


def _legend(layout: Layout, pipeline: Pipeline, has_path: bool) -> list[Entry]:
    """Return what must be explained: only what the picture shows."""
    boxes, lines = layout.boxes.values(), layout.lines
    colours = {_part_colour(pipeline.by_name[chip.name]) for box in boxes for chip in box.chips}
    entries: list[Entry] = []
    for level in sorted({box.site.level for box in boxes}):
        entries.append(("site", level, f"{LEVEL_NAMES.get(level, level)} site"))
    for text, colour in (("source", _SOURCE), ("operator", _STEP), ("sink", _SINK)):
        if colour in colours:
            entries.append(("chip", colour, text))
    if layout.arrows:
        entries.append(("stream", "", "stream"))
    if has_path:
        entries.append(("path", "", "critical path"))
    if any(line.load_bps <= 0 for line in lines):
        entries.append(("line", 0.0, "unused link"))
    if any(line.load_bps > 0 for line in lines):
        entries.append(("use", "", "link in use, 0 to 100 %"))
    if any(line.utilisation > 1 for line in lines):
        entries.append(("line", 2.0, "link overloaded"))
    if any(line.hidden for line in lines):
        entries.append(("chain", "", "link through hidden sites"))
    if lines:
        entries.append(("none", "", "wider line: more bandwidth"))
    return entries


def _flowed(entries: Sequence[Entry], width: float) -> list[tuple[float, int, Entry]]:
    """Return each entry with its x and row, filling rows of that width."""
    placed = []
    x, row = 0.0, 0
    for entry in entries:
        needed = _SWATCH + _measure(entry[2], NOTE_PT, False) + 0.25 - (_SWATCH if entry[0] == "none" else 0)
        if x > 0 and x + needed > width + 0.25:
            x, row = 0.0, row + 1
        placed.append((x, row, entry))
        x += needed
    return placed


def _draw_entry(canvas: _Canvas, entry: Entry, x: float, y: float) -> None:
    kind, value, text = entry
    right = x + _SWATCH - 0.08
    middle = (x + right) / 2
    if kind == "site":
        level = int(value)
        looks: dict[str, Any] = {"facecolor": _BAND.get(level), "edgecolor": _EDGE.get(level), "linewidth": 1.2}
        canvas.box((middle, y), right - x, 0.15, _ROUNDING.get(level, 0.03) * 0.5, **looks)
    elif kind == "chip":
        canvas.box((middle, y), right - x, 0.13, 0.04, facecolor=value, edgecolor=_SOFT, linewidth=0.8)
    elif kind in {"stream", "path"}:
        _draw_arrow(canvas, Arrow("", "", ((x, y), (middle, y), (middle, y), (right, y)), ()), kind == "path")
    elif kind == "use":
        for step in range(8):
            start = x + (right - x) * step / 8
            colour = _use_colour((step + 0.5) / 8)
            canvas.stroke([(start, y), (right, y)], False, edgecolor=colour, linewidth=3, capstyle="butt")
    elif kind == "line":
        canvas.stroke([(x, y), (right, y)], False, edgecolor=_use_colour(float(value)), linewidth=3)
    elif kind == "chain":
        canvas.stroke([(x, y), (right, y)], False, edgecolor=_SOFT, linewidth=2.5, linestyle=_DASHES)
    elif kind == "dot":
        _draw_dot(canvas, (middle, y), str(value))
    canvas.text((x if kind == "none" else x + _SWATCH, y), text, NOTE_PT, ha="left", color=_SOFT)


def _draw_dot(canvas: _Canvas, at: Point, kind: str) -> None:
    size = {"root": 0.17, "leaf": 0.09}.get(kind, 0.06)
    colour = {"root": _EDGE[3], "leaf": _EDGE[1]}.get(kind, _EDGE[2])
    canvas.box(at, size, size, size / 2, facecolor=colour, edgecolor="white", linewidth=0.4, zorder=3)


def _use_colour(use: float) -> str | tuple[float, float, float]:
    """Return the colour of a link: grey unused, green to orange, red above its bandwidth."""
    if use <= 0 or use > 1:
        return _FAINT if use <= 0 else _OVER
    (low, start), (high, end) = next(pair for pair in pairwise(_USE) if use <= pair[1][0])
    share = (use - low) / (high - low)
    red, green, blue = (a + (b - a) * share for a, b in zip(start, end, strict=True))
    return red, green, blue


def _backing(colour: str = "white") -> dict[str, Any]:
    return {"boxstyle": "round,pad=0.15", "facecolor": colour, "edgecolor": "none", "alpha": 0.9}


def _draw_line(canvas: _Canvas, line: Line) -> None:
    width = min(6.0, max(1.0, 1.0 + 0.8 * math.log10(max(line.bandwidth_bps, 1.0) / 1e6)))
    dashes = _DASHES if line.hidden else "solid"
    canvas.stroke(
        line.points,
        line.is_curved,
        edgecolor=_use_colour(line.utilisation),
        linewidth=width,
        linestyle=dashes,
        zorder=1,
    )
    if line.label_at is not None:
        x, y = line.label_at
        rows = line_label(line)
        colour = _OVER if line.utilisation > 1 else _SOFT if line.load_bps <= 0 else _INK
        width, height = max(_measure(row, LABEL_PT, False) for row in rows) + 0.06, LABEL_PT / 72 * 1.22
        canvas.box((x, y), width, 2 * height + 0.02, 0.04, facecolor="white", linewidth=0, alpha=0.93, zorder=2.5)
        for row, at in zip(rows, (y + height / 2, y - height / 2), strict=True):
            canvas.text((x, at), row, LABEL_PT, color=colour, zorder=2.6)


def _draw_box(canvas: _Canvas, box: Box, is_overloaded: bool) -> None:
    """Draw a site: body, header above the streams that pass behind it, and outline."""
    level = box.site.level
    is_plain = not box.site.slots and not box.chips
    rounding = min(_ROUNDING.get(level, 0.03), box.height / 3)
    whole = (box.x, box.y), box.width, box.height, rounding
    band = replace(box, y=box.top - HEADER / 2, height=HEADER)
    canvas.box(*whole, facecolor="white" if is_plain else _FILL.get(level, "white"), linewidth=0, zorder=3)
    canvas.box(*whole, band, facecolor="white" if is_plain else _BAND.get(level, "white"), linewidth=0, zorder=5)
    style: Any = (0, (4, 2)) if is_plain else "solid"
    looks: dict[str, Any] = {"edgecolor": _EDGE.get(level, _SOFT), "linewidth": 0.9 + 0.3 * level, "linestyle": style}
    canvas.box(*whole, fill=False, zorder=5.1, **looks)
    canvas.text((box.x, box.top - 0.14), box.label[0], NAME_PT, weight="bold")
    is_wrong = is_overloaded or len(box.chips) > box.site.slots
    canvas.text((box.x, box.top - 0.3), box.label[1], NOTE_PT, color=_OVER if is_wrong else _SOFT)


def _part_colour(operator: Operator) -> str:
    return _SOURCE if operator.is_source else _SINK if operator.is_sink else _STEP


def _draw_chip(canvas: _Canvas, chip: Chip, colour: str, is_critical: bool) -> None:
    colours: dict[str, Any] = {"facecolor": colour, "edgecolor": _CRITICAL if is_critical else _SOFT}
    canvas.box(
        (chip.x, chip.y), chip.width, chip.height, 0.06, linewidth=1.9 if is_critical else 0.8, zorder=6, **colours
    )
    canvas.text((chip.x, chip.y - 0.005), short(chip.name), CHIP_PT)


def _draw_arrow(canvas: _Canvas, arrow: Arrow, is_critical: bool) -> None:
    """Draw a stream behind all boxes, and again inside its own."""
    *curve, tip = arrow.points
    before = next((point for point in reversed(curve) if point != tip), (tip[0], tip[1] - 1))
    share = 0.8 * _HEAD[0] / max(math.dist(tip, before), 1e-9)
    base = (tip[0] + (before[0] - tip[0]) * share, tip[1] + (before[1] - tip[1]) * share)
    colour = _CRITICAL if is_critical else _STREAM
    style: Any = "solid" if is_critical else (0, (1, 1.6))
    width = 1.6 if is_critical else 1.0
    for clip in (None, *arrow.boxes):
        zorder = (2.0 if clip is None else 4.0) + 0.1 * is_critical
        canvas.stroke((*curve, base), True, clip, edgecolor=colour, linewidth=width, linestyle=style, zorder=zorder)
        canvas.head(tip, before, clip, facecolor=colour, zorder=zorder)
