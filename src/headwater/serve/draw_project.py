"""What does a project look like?

Draws its operators as boxes in layers from left to right, with the streams between them: what comes from
outside, what goes out, what keeps state, what calls Python, and the lane of each. The same project gives the
same SVG, byte for byte.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater.errors import Mistake, SpecError
from headwater.model.project import STATEFUL, Definition, Project
from headwater.serve.plain import plain
from headwater.serve.rows import columns, ordered

__all__ = ["draw_project"]

Key = tuple[str, ...]  # an operator, or a bend of a stream that passes a layer
Point = tuple[float, float]

_INK, _SOFT, _LINE = "#1f2933", "#5f6b7a", "#475569"
_FILL = {"source": "#fff3c9", "sink": "#d3f0ea", "step": "#ffffff"}
_EDGE = {"source": "#c79a1b", "sink": "#2f8f7b", "step": "#8793a1"}
_STATE, _PYTHON = "#8259b3", "#3b6ea8"
_LANE = {"real-time": "#c2571a", "micro-batch": "#5f6b7a"}
_NAME_PT, _NOTE_PT, _TITLE_PT, _BADGE_PT = 9.5, 7.2, 13.0, 6.6
_PAD, _ROW = 0.14, 0.165  # inches: inside a box, of a row of small text
_GAP_X, _GAP_Y, _BEND = 0.75, 0.28, 0.18  # inches between layers, boxes, streams that pass
_MARGIN = 0.35
_BADGE_GAP, _BADGE_HEIGHT, _BADGE_ROW = 0.07, 0.165, 0.27  # inches
_LEAST_WIDTH = 6.4
_DPI, _MOST_PIXELS = 160, 40e6
_MAX_TEXT = 34  # characters of one row
_SETTINGS: dict[Any, Any] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "svg.fonttype": "none",  # text stays text: it can be found, copied and read aloud
    "svg.hashsalt": "headwater",
}


@dataclass(frozen=True, slots=True)
class _Card:
    """What is written in one box."""

    name: str
    part: str  # source, sink or step
    rows: tuple[str, ...]
    badges: tuple[tuple[str, str], ...]  # text, colour

    @property
    def width(self) -> float:
        """Inches."""
        rows = [_measure(self.name, _NAME_PT, True), *(_measure(row, _NOTE_PT, False) for row in self.rows)]
        badges = sum(_badge_width(text) + _BADGE_GAP for text, _ in self.badges) - _BADGE_GAP
        return max(*rows, badges, 0.9) + 2 * _PAD

    @property
    def height(self) -> float:
        """Inches."""
        return 0.40 + _ROW * len(self.rows) + (_BADGE_ROW if self.badges else 0.0)


def draw_project(project: Project, lanes: Mapping[str, tuple[str, str]], path: str | os.PathLike[str]) -> None:
    """Write a picture of a project's graph, '.svg' or '.png'.

    Raises:
        SpecError: HW1201 for another kind of file.
        OSError: the file cannot be written.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in {"svg", "png"}:
        raise SpecError(Mistake("HW1201", f"a picture is an .svg or a .png file; found '{os.fspath(path)}'"))
    import matplotlib as mpl  # noqa: PLC0415  # slow to load

    with warnings.catch_warnings(), mpl.rc_context():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # shown as a box, found as text
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        content = _rendered(project, lanes, kind)
    Path(path).write_bytes(content)


def _card(project: Project, each: Definition, lane: str) -> _Card:
    operator = project.pipeline.by_name[each.name]
    part = "source" if operator.is_source else "sink" if operator.is_sink else "step"
    rows = []
    if operator.is_source and each.format is not None:
        rows.append(f"{each.kind}, reads {each.format}")
    elif operator.is_sink and each.format is not None:
        rows.append(f"{each.kind}, writes {each.format}")
    else:
        rows.append(each.kind)
    if each.each is not None:
        rows.append(f"on each of {each.each}")
    if each.once:
        rows.append("once for all")
    calm = sorted(each.traits & {"generate", "static-join", "watermark"})
    if calm:
        rows.append(", ".join(calm))
    badges: list[tuple[str, str]] = [(trait, _STATE) for trait in sorted(each.traits) if trait in STATEFUL]
    badges += [(trait, _PYTHON) for trait in ("python", "arrow") if trait in each.traits]
    badges += [(lane, _LANE[lane])] if lane in _LANE else []
    return _Card(_short(each.name), part, tuple(map(_short, rows)), tuple(badges))


def _rendered(project: Project, lanes: Mapping[str, tuple[str, str]], kind: str) -> bytes:
    cards = {each.name: _card(project, each, lanes[each.name][0]) for each in project.definitions}
    routes, layers = _routed(project)
    pairs = [pair for route in routes for pair in pairwise(route)]
    layers = ordered(layers, pairs)
    height_of = {key: cards[key[0]].height if len(key) == 1 else _BEND for layer in layers for key in layer}
    y = columns(layers, pairs, lambda one, other: (height_of[one] + height_of[other]) / 2 + _GAP_Y)
    x: dict[Key, float] = {}
    spans: dict[Key, tuple[float, float]] = {}  # left and right of each layer
    at = 0.0
    for layer in layers:
        width = max(cards[key[0]].width for key in layer if len(key) == 1)
        x |= dict.fromkeys(layer, at + width / 2)
        spans |= dict.fromkeys(layer, (at, at + width))
        at += width + _GAP_X
    places = {key: (x[key], -y[key]) for key in y}
    top = max(places[key][1] + height_of[key] / 2 for key in places)
    bottom = min(places[key][1] - height_of[key] / 2 for key in places)
    canvas = _Canvas(at - _GAP_X, top, bottom, _legend(cards.values()), plain(project.name))
    for route in routes:
        canvas.stream(_corners(route, places, spans, cards))
    for name, card in cards.items():
        canvas.card(card, places[(name,)])
    return canvas.rendered(kind)


def _routed(project: Project) -> tuple[list[list[Key]], list[list[Key]]]:
    """Return each stream as the operators and bends that it passes, and what stands in each layer."""
    pipeline = project.pipeline
    depth: dict[str, int] = {}
    for name in pipeline.order:
        depth[name] = max((depth[one.source] + 1 for one in pipeline.by_name[name].inputs), default=0)
    for name in reversed(pipeline.order):  # a source stands just before its first reader
        readers = [depth[one.target] for one in pipeline.streams if one.source == name]
        if pipeline.by_name[name].is_source and readers:
            depth[name] = min(readers) - 1
    layers: list[list[Key]] = [[] for _ in range(max(depth.values()) + 1)]
    for operator in pipeline.operators:
        layers[depth[operator.name]].append((operator.name,))
    routes: list[list[Key]] = []
    for stream in pipeline.streams:
        bends: list[Key] = [
            (stream.source, stream.target, str(number))
            for number in range(depth[stream.source] + 1, depth[stream.target])
        ]
        for number, bend in enumerate(bends, start=depth[stream.source] + 1):
            layers[number].append(bend)
        routes.append([(stream.source,), *bends, (stream.target,)])
    return routes, layers


def _corners(
    route: Sequence[Key],
    places: Mapping[Key, Point],
    spans: Mapping[Key, tuple[float, float]],
    cards: Mapping[str, _Card],
) -> list[Point]:
    """Return where a stream begins, passes a layer (in and out at one height) and ends."""
    first, last = route[0], route[-1]
    points = [(places[first][0] + cards[first[0]].width / 2, places[first][1])]
    for bend in route[1:-1]:
        points += [(side, places[bend][1]) for side in spans[bend]]
    return [*points, (places[last][0] - cards[last[0]].width / 2, places[last][1])]


def _legend(cards: Any) -> list[tuple[str, str, str]]:
    """Return what must be explained, and only that: form, colour, text."""
    shown = list(cards)
    entries = [("box", part, text) for part, text in (("source", "source"), ("step", "operator"), ("sink", "sink"))]
    entries = [entry for entry in entries if any(card.part == entry[1] for card in shown)]
    colours = {colour for card in shown for _, colour in card.badges}
    badges = ((_STATE, "keeps state"), (_PYTHON, "calls Python"), *((colour, lane) for lane, colour in _LANE.items()))
    return entries + [("badge", colour, text) for colour, text in badges if colour in colours]


class _Canvas:
    """A figure whose unit is the inch."""

    def __init__(
        self, width: float, top: float, bottom: float, legend: Sequence[tuple[str, str, str]], title: str
    ) -> None:
        from matplotlib import patches, path  # noqa: PLC0415  # slow to load
        from matplotlib.figure import Figure  # noqa: PLC0415

        self._patches, self._path, self._title = patches, path.Path, title
        legend_width = sum(0.44 + _measure(text, _NOTE_PT, False) + 0.26 for _, _, text in legend)
        full = max(width, legend_width, _measure(title, _TITLE_PT, True), _LEAST_WIDTH)
        left = (width - full) / 2 - _MARGIN
        self._width, self._height = full + 2 * _MARGIN, top - bottom + 2 * _MARGIN + 0.95
        self._figure = Figure(figsize=(self._width, self._height), facecolor="white")
        self._axes = self._figure.add_axes((0, 0, 1, 1))
        self._axes.set_xlim(left, left + self._width)
        self._axes.set_ylim(bottom - _MARGIN - 0.40, top + _MARGIN + 0.55)
        self._axes.set_axis_off()
        self._text((left + _MARGIN, top + 0.48), title, _TITLE_PT, weight="bold", ha="left")
        rule = bottom - 0.25
        self._stroke([(left + _MARGIN, rule), (left + _MARGIN + full, rule)], edgecolor="#e3e7ec", linewidth=0.8)
        at = left + _MARGIN
        for form, value, text in legend:
            if form == "box":
                self._box((at + 0.17, rule - 0.22), 0.34, 0.15, 0.05, facecolor=_FILL[value], edgecolor=_EDGE[value])
            else:
                self._box((at + 0.17, rule - 0.22), 0.34, 0.13, 0.065, facecolor=value, linewidth=0)
            self._text((at + 0.44, rule - 0.225), text, _NOTE_PT, ha="left", color=_SOFT)
            at += 0.44 + _measure(text, _NOTE_PT, False) + 0.26

    def card(self, card: _Card, centre: Point) -> None:
        """Draw one operator."""
        x, y = centre
        looks = {"facecolor": _FILL[card.part], "edgecolor": _EDGE[card.part], "linewidth": 1.3, "zorder": 4}
        self._box(centre, card.width, card.height, 0.09, **looks)
        at = y + card.height / 2 - 0.2
        self._text((x, at), card.name, _NAME_PT, weight="bold")
        at -= 0.03
        for row in card.rows:
            at -= _ROW
            self._text((x, at), row, _NOTE_PT, color=_SOFT)
        if card.badges:
            widths = [_badge_width(text) for text, _ in card.badges]
            left = x - (sum(widths) + _BADGE_GAP * (len(widths) - 1)) / 2
            at -= 0.235
            for (text, colour), width in zip(card.badges, widths, strict=True):
                self._box((left + width / 2, at), width, _BADGE_HEIGHT, 0.08, facecolor=colour, linewidth=0, zorder=5)
                self._text((left + width / 2, at - 0.003), text, _BADGE_PT, color="white")
                left += width + _BADGE_GAP

    def stream(self, points: Sequence[Point]) -> None:
        """Draw a stream through its corners, flat where it leaves, passes and arrives."""
        *_, tip = points
        base = (tip[0] - 0.085, tip[1])
        codes, curve = [self._path.MOVETO], [points[0]]
        for number, (start, end) in enumerate(pairwise((*points[:-1], base))):
            if number % 2:  # across a layer
                codes.append(self._path.LINETO)
                curve.append(end)
                continue
            middle = (start[0] + end[0]) / 2
            codes += [self._path.CURVE4] * 3
            curve += [(middle, start[1]), (middle, end[1]), end]
        patch = self._patches.PathPatch(
            self._path(curve, codes), fill=False, edgecolor=_LINE, linewidth=1.3, capstyle="butt", zorder=2
        )
        self._axes.add_artist(patch)
        head = [tip, (tip[0] - 0.12, tip[1] + 0.045), (tip[0] - 0.12, tip[1] - 0.045)]
        self._axes.add_artist(self._patches.Polygon(head, closed=True, linewidth=0, facecolor=_LINE, zorder=3))

    def rendered(self, kind: str) -> bytes:
        """Return the file's content."""
        stream = io.BytesIO()
        dpi = min(_DPI, (_MOST_PIXELS / (self._width * self._height)) ** 0.5)
        metadata = {"Title": self._title, "Date": None} if kind == "svg" else {"Title": self._title}
        self._figure.savefig(stream, format=kind, dpi=dpi if kind == "png" else 72, metadata=metadata)
        return stream.getvalue()

    def _text(self, at: Point, text: str, size_pt: float, **looks: Any) -> None:
        given = {"color": _INK, "ha": "center", "va": "center", "zorder": 8, **looks}
        self._axes.text(*at, text, fontsize=size_pt, parse_math=False, **given)

    def _box(self, centre: Point, width: float, height: float, rounding: float, **looks: Any) -> None:
        corner = (centre[0] - width / 2, centre[1] - height / 2)
        style = f"round,pad=0,rounding_size={rounding}"
        self._axes.add_artist(self._patches.FancyBboxPatch(corner, width, height, boxstyle=style, **looks))

    def _stroke(self, points: Sequence[Point], **looks: Any) -> None:
        codes = [self._path.MOVETO, *[self._path.LINETO] * (len(points) - 1)]
        self._axes.add_artist(self._patches.PathPatch(self._path(points, codes), fill=False, **looks))


def _badge_width(text: str) -> float:
    return _measure(text, _BADGE_PT, False) + 0.16


def _short(text: str) -> str:
    shown = plain(text)
    return shown if len(shown) <= _MAX_TEXT else f"{shown[: _MAX_TEXT - 1]}…"


@lru_cache(maxsize=4096)
def _measure(text: str, size_pt: float, is_bold: bool) -> float:
    """Return the width of a text in inches."""
    from matplotlib.font_manager import FontProperties  # noqa: PLC0415  # slow to load
    from matplotlib.textpath import TextToPath  # noqa: PLC0415

    font = FontProperties(family="DejaVu Sans", weight="bold" if is_bold else "normal", size=size_pt)
    width: float = TextToPath().get_text_width_height_descent(text, font, False)[0]
    return width / 72
