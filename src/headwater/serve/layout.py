"""Where does everything in the picture go?

Takes the boxes and lines of `serve.scene`, gives a `Layout`: the same with their places, and the curves of streams,
in inches with y upward. Pure; looks are left to `serve.draw`.

Sites stand in rows by their number of hops to the nearest root, roots on top. A row that grows too wide is folded
into several, and lines that then pass a row reserve a lane in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from headwater.serve.rows import columns, ordered, spaced
from headwater.serve.scene import HEADER, LABEL_PT, Box, Chip, Line, Measure, Point, line_label

__all__ = ["Arrow", "Layout", "arrange", "scatter", "site_columns"]

_MAX_ROW = 14.0  # inches; wider rows are folded
_GAP, _GROUP_GAP, _LANE = 0.26, 0.22, 0.08  # inches between boxes, more between groups, of a passing line
_BEND, _OVER, _ASIDE = 0.45, 0.4, 0.3  # inches that a line goes below its row, a stream above it, a link beside streams
_ROW_GAPS = (1.1, 1.3, 1.6, 2.0, 2.5)  # inches between rows; tried until no label covers anything
_ALWAYS_LABELLED = 60  # with more lines than this, unused ones get no label
_SHARES = (
    0.55,
    0.5,
    0.6,
    0.45,
    0.65,
    0.4,
    0.7,
    0.35,
    0.76,
    0.3,
    0.82,
    0.24,
    0.88,
    0.18,
    0.12,
)  # of a line, for its label
_COVERED = 0.01  # square inches of overlap that nobody sees
_PIVOTS, _SPRING_TURNS, _SPRING_SITES = 40, 120, 2000

Key = str | tuple[int, int]  # a site, or the lane of a line (by its number) through a row
Area = tuple[float, float, float, float]  # centre x, centre y, width, height


@dataclass(frozen=True, slots=True)
class Arrow:
    """A stream between two chips, as a Bezier curve of four points."""

    source: str
    target: str
    points: tuple[Point, Point, Point, Point]
    boxes: tuple[Box, ...]  # that it is drawn inside; it runs behind all others


@dataclass(frozen=True, slots=True)
class Layout:
    """The whole picture."""

    boxes: Mapping[str, Box]
    lines: tuple[Line, ...]
    arrows: tuple[Arrow, ...]
    left: float = 0.0
    bottom: float = 0.0
    width: float = 0.0
    height: float = 0.0


def arrange(
    boxes: Mapping[str, Box], lines: Sequence[Line], streams: Iterable[tuple[str, str]], measure: Measure
) -> Layout:
    """Return boxes, lines, labels and streams in their places; there is at least one box.

    Args:
        boxes: the sites by name, with their operators as chips.
        lines: the links between them.
        streams: writer and reader of each stream; those of operators without a chip are left out.
        measure: gives the width of a text.
    """
    rows = _Rows(boxes, lines, measure)
    pairs = sorted(set(streams))
    best: tuple[float, Layout] | None = None
    for gap in _ROW_GAPS:
        placed = rows.placed(gap)
        layout, covered = _labelled(Layout(placed, rows.lines_between(placed), _arrows(placed, pairs)), measure)
        if best is None or covered < 0.7 * best[0]:  # a taller picture must be worth it
            best = (covered, layout)
        if best[0] < _COVERED:
            break
    assert best is not None
    return _bounded(best[1], measure)


def site_columns(boxes: Mapping[str, Box], lines: Sequence[Line], measure: Measure) -> dict[str, float]:
    """Return the x of each site as `arrange` would choose it."""
    return {key: x for key, x in _Rows(boxes, lines, measure).x.items() if isinstance(key, str)}


class _Rows:
    """Sites and passing lines in rows from the top, in order, each with its x."""

    def __init__(self, boxes: Mapping[str, Box], lines: Sequence[Line], measure: Measure) -> None:
        self.boxes, self.lines, self.measure = boxes, lines, measure
        self.between = {frozenset((line.a, line.b)): line for line in lines}
        ends: list[tuple[Key, Key]] = [(line.a, line.b) for line in lines]
        levels = ordered(_levels(boxes, lines), ends)
        rank: dict[Key, float] = {key: index / len(row) for row in levels for index, key in enumerate(row)}
        rows = [row for level in levels for row in self._folded(level)]
        row_of = {key: number for number, row in enumerate(rows) for key in row}
        self.paths: list[list[Key]] = []  # every line's stations, from the top
        for number, line in enumerate(lines):
            upper, lower = sorted((line.a, line.b), key=lambda name: row_of[name])
            lanes = [(number, row) for row in range(row_of[upper] + 1, row_of[lower])]
            for lane in lanes:
                rows[lane[1]].append(lane)
                rank[lane] = rank[lower]
            self.paths.append([upper, *lanes, lower])
        pairs = [pair for path in self.paths for pair in pairwise(path)]
        self.rows = ordered([sorted(row, key=rank.__getitem__) for row in rows], pairs)
        self.row_of = {key: number for number, row in enumerate(self.rows) for key in row}
        self.near: dict[Key, set[Key]] = {key: set() for key in self.row_of}
        for one, two in pairs:
            self.near[one].add(two)
            self.near[two].add(one)
        self.x = columns(self.rows, pairs, self._apart)

    def _folded(self, row: list[Key]) -> list[list[Key]]:
        """Deal a row that is too wide out to several, so that lines to lower ones pass between the upper ones."""
        parts = math.ceil(sum(self._width(key) + _GAP for key in row) / _MAX_ROW)
        return [row[part::parts] for part in range(parts) if row[part::parts]]

    def _width(self, key: Key) -> float:
        return self.boxes[key].width if isinstance(key, str) else _LANE

    def _apart(self, left: Key, right: Key) -> float:
        """Return the least distance between the centres of two neighbours in a row."""
        space = (self._width(left) + self._width(right)) / 2
        if not (isinstance(left, str) and isinstance(right, str)):
            return space + _LANE
        line = self.between.get(frozenset((left, right)))
        if line is not None:
            return space + max(self.measure(text, LABEL_PT, False) for text in line_label(line)) + 0.2
        above = [{other for other in self.near[key] if self.row_of[other] < self.row_of[key]} for key in (left, right)]
        return space + _GAP + (_GROUP_GAP if all(above) and not above[0] & above[1] else 0.0)

    def placed(self, gap: float) -> dict[str, Box]:
        """Return the boxes in their places, with so much space between rows."""
        bent = {self.row_of[line.a] for line in self.lines if self._is_bent(line)}
        boxes: dict[str, Box] = {}
        y = 0.0
        for number, row in enumerate(self.rows):
            sites = [key for key in row if isinstance(key, str)]
            height = max(self.boxes[name].height for name in sites)
            for name in sites:
                half = self.boxes[name].height / 2
                middle = y - half if number else y - height + half  # the first row stands on its line, others hang
                boxes[name] = _moved(self.boxes[name], self.x[name], middle)
            y -= height + gap + (_BEND if number in bent else 0.0)
        return boxes

    def lines_between(self, boxes: Mapping[str, Box]) -> tuple[Line, ...]:
        """Return the lines with their corners; labels are not placed yet."""
        edges = []  # top and bottom of every row
        for row in self.rows:
            members = [boxes[key] for key in row if isinstance(key, str)]
            edges.append((max(box.top for box in members), min(box.bottom for box in members)))
        return tuple(self._drawn(number, boxes, edges) for number in range(len(self.lines)))

    def _is_bent(self, line: Line) -> bool:
        """Tell whether a line must pass below other sites of its own row."""
        row = self.rows[self.row_of[line.a]]
        return self.row_of[line.a] == self.row_of[line.b] and abs(row.index(line.a) - row.index(line.b)) > 1

    def _drawn(self, number: int, boxes: Mapping[str, Box], edges: Sequence[tuple[float, float]]) -> Line:
        line, path = self.lines[number], self.paths[number]
        upper, lower = boxes[str(path[0])], boxes[str(path[-1])]
        if self.row_of[line.a] != self.row_of[line.b]:
            points = [(self._port(path[0], path[1]), upper.bottom)]
            for lane in path[1:-1]:
                points += [(self.x[lane], edge) for edge in edges[self.row_of[lane]]]
            points.append((self._port(path[-1], path[-2]), lower.top))
            return replace(line, points=tuple(points))
        left, right = sorted((upper, lower), key=lambda box: box.x)
        if not self._is_bent(line):
            y = min(left.top, right.top) - HEADER / 2
            return replace(line, points=((left.right, y), (right.left, y)))
        depth = edges[self.row_of[line.a]][1] - _BEND * 4 / 3
        points = [(left.x, left.bottom), (left.x, depth), (right.x, depth), (right.x, right.bottom)]
        return replace(line, points=tuple(points), is_curved=True)

    def _port(self, site: Key, toward: Key) -> float:
        """Return where on a box's edge the line to a neighbour begins: straight above or below it, if there is room."""
        row, x = self.row_of[site], self.x[site]
        is_down = self.row_of[toward] > row
        same = [key for key in self.near[site] if self.row_of[key] != row and (self.row_of[key] > row) == is_down]
        same.sort(key=lambda key: (self.x[key], str(key)))
        half = max(0.0, self._width(site) / 2 - 0.12)
        step = min(0.16, 2 * half / len(same))
        wanted = [min(max(self._aside(site, key), x - half), x + half) for key in same]
        ports = spaced(wanted, [step * number for number in range(len(same))])
        number = same.index(toward)
        return min(max(ports[number], x - half + step * number), x + half - step * (len(same) - 1 - number))

    def _aside(self, site: Key, toward: Key) -> float:
        """Return the x of a neighbour, or one beside it if streams are likely to go straight up there."""
        has_chips = any(isinstance(key, str) and self.boxes[key].chips for key in (site, toward))
        return self.x[toward] - (_ASIDE if has_chips and abs(self.x[site] - self.x[toward]) < _ASIDE else 0.0)


def _moved(box: Box, x: float, y: float) -> Box:
    chips = tuple(replace(chip, x=chip.x + x - box.x, y=chip.y + y - box.y) for chip in box.chips)
    return replace(box, x=x, y=y, chips=chips)


def _levels(boxes: Mapping[str, Box], lines: Iterable[Line]) -> list[list[Key]]:
    """Return sites by hops to the nearest root, each level in the order in which a breadth-first walk meets it."""
    near: dict[str, list[str]] = {name: [] for name in boxes}
    for line in lines:
        near[line.a].append(line.b)
        near[line.b].append(line.a)
    best = max(box.site.level for box in boxes.values())
    tops = [name for name, box in boxes.items() if box.site.kind == "root"]
    tops = tops or [next(name for name, box in boxes.items() if box.site.level == best)]
    levels: list[list[Key]] = [list(tops)]
    seen = set(tops)
    while reached := dict.fromkeys(b for a in levels[-1] for b in near[str(a)] if b not in seen):
        levels.append(list(reached))
        seen.update(reached)
    lost: list[Key] = [name for name in boxes if name not in seen]
    return [*levels, lost] if lost else levels


def _arrows(boxes: Mapping[str, Box], pairs: Iterable[tuple[str, str]]) -> tuple[Arrow, ...]:
    """Return the curves of all streams between chips that are shown."""
    chips = {chip.name: (chip, box) for box in boxes.values() for chip in box.chips}
    arrows = []
    for source, target in pairs:
        if source not in chips or target not in chips:
            continue
        (chip, box), (reader, other) = chips[source], chips[target]
        if box is not other:
            arrows.append(Arrow(source, target, _curve(chip, box, reader, other, boxes.values()), (box, other)))
        elif box.is_flow:
            ends = (chip.x, chip.top), (reader.x, reader.bottom)
            arrows.append(Arrow(source, target, (ends[0], ends[0], ends[1], ends[1]), (box,)))
    return tuple(arrows)


def _curve(chip: Chip, box: Box, reader: Chip, other: Box, boxes: Iterable[Box]) -> tuple[Point, Point, Point, Point]:
    """Return the way of a stream from a chip in one box to a reader in another."""
    if other.bottom > box.top or other.top < box.bottom:  # above or below
        is_up = other.bottom > box.top
        low, high = (chip.top, reader.bottom) if is_up else (chip.bottom, reader.top)
        bend = 0.5 * (high - low)
        return (chip.x, low), (chip.x, low + bend), (reader.x, high - bend), (reader.x, high)
    side = 1.0 if other.x > box.x else -1.0
    low, high = sorted((box.x, other.x))
    is_next = not any(low < each.x < high and each.top > box.bottom and each.bottom < box.top for each in boxes)
    start, end = (chip.x + side * chip.width / 2, chip.y), (reader.x - side * reader.width / 2, reader.y)
    if is_next and _is_free(chip, box, side, 0.0) and _is_free(reader, other, -side, 0.0):  # straight over
        middle = (start[0] + end[0]) / 2
        return start, (middle, start[1]), (middle, end[1]), end
    if is_next and _is_free(chip, box, 0.0, -1.0) and _is_free(reader, other, 0.0, -1.0):  # below, in a bow
        under = min(box.bottom, other.bottom) - _OVER
        return (chip.x, chip.bottom), (chip.x, under), (reader.x, under), (reader.x, reader.bottom)
    over = max(box.top, other.top) + _OVER
    if _is_free(reader, other, 0.0, 1.0):
        return (chip.x, chip.top), (chip.x, over), (reader.x, over), (reader.x, reader.top)
    return (chip.x, chip.top), (chip.x, over), (end[0] - side * 0.5, over), end


def _is_free(chip: Chip, box: Box, right: float, up: float) -> bool:
    """Tell whether no other chip of its box stands beside (right: 1, left: -1) or above (1) or below (-1) a chip."""
    for other in box.chips:
        dx, dy = other.x - chip.x, other.y - chip.y
        is_beside = right * dx > 0 and abs(dy) < chip.height
        is_over = up * dy > chip.height / 2 and abs(dx) < (chip.width + other.width) / 2
        if is_beside or is_over:
            return False
    return True


def _on_curve(points: Sequence[Point], share: float) -> Point:
    t, s = share, 1 - share
    weights = (s**3, 3 * s * s * t, 3 * s * t * t, t**3)
    return (
        sum(weight * x for weight, (x, _) in zip(weights, points, strict=True)),
        sum(weight * y for weight, (_, y) in zip(weights, points, strict=True)),
    )


def _along(line: Line, share: float) -> Point:
    """Return the point of a line at a share of its length (of its parameter, for a curve)."""
    if line.is_curved:
        return _on_curve(line.points, share)
    left = share * _length(line)
    for start, end in pairwise(line.points):
        length = math.dist(start, end)
        if length > 0 and left <= length:
            return start[0] + (end[0] - start[0]) * left / length, start[1] + (end[1] - start[1]) * left / length
        left -= length
    return line.points[-1]


def _length(line: Line) -> float:
    return sum(math.dist(*ends) for ends in pairwise(line.points))


def _label_size(line: Line, measure: Measure) -> tuple[float, float]:
    return max(measure(text, LABEL_PT, False) for text in line_label(line)) + 0.06, 2.4 * LABEL_PT / 72 + 0.03


def _labelled(layout: Layout, measure: Measure) -> tuple[Layout, float]:
    """Return the layout with a place for every label, and the area of boxes and labels that others cover."""
    import numpy as np  # noqa: PLC0415  # slow to load

    taken: list[Area] = [(box.x, box.y, box.width + 0.04, box.height + 0.04) for box in layout.boxes.values()]
    tracks = [[_along(line, step / 24) for step in range(1, 24)] for line in layout.lines]
    tracks += [[_on_curve(arrow.points, step / 32) for step in range(1, 32)] for arrow in layout.arrows]
    owner = np.repeat(np.arange(len(tracks)), [len(track) for track in tracks])
    xs, ys = np.array([point for track in tracks for point in track], dtype=float).reshape(-1, 2).T
    places: dict[int, Point] = {}
    covered = 0.0
    for number in sorted(range(len(layout.lines)), key=lambda number: _length(layout.lines[number])):
        line = layout.lines[number]
        if line.load_bps <= 0 and len(layout.lines) > _ALWAYS_LABELLED:
            continue
        width, height = _label_size(line, measure)
        spots = [(*_along(line, share), share) for share in _SHARES]
        reach = _hull([(x, y) for x, y, _ in spots], 2 * width, height)
        areas = [area for area in taken if _overlap(reach, area) > 0]
        is_near = (np.abs(xs - reach[0]) < reach[2] / 2) & (np.abs(ys - reach[1]) < reach[3] / 2) & (owner != number)
        near_x, near_y = xs[is_near], ys[is_near]
        best = (math.inf, 0.0, (0.0, 0.0))
        for middle, y, share in spots:
            for side in (0.0, 0.5, -0.5):
                x = middle + side * (width + 0.08)
                hit = sum(_overlap((x, y, width, height), area) for area in areas)
                is_hit = (np.abs(near_x - x) < width / 2) & (np.abs(near_y - y) < height / 2)
                passing = int(np.count_nonzero(is_hit))
                best = min(best, (100 * hit + 0.25 * passing + abs(share - 0.55) + abs(side), hit, (x, y)))
        covered += best[1]
        places[number] = best[2]
        taken.append((*best[2], width, height))
    lines = tuple(replace(line, label_at=places.get(number)) for number, line in enumerate(layout.lines))
    return replace(layout, lines=lines), covered


def _overlap(one: Area, two: Area) -> float:
    wide = (one[2] + two[2]) / 2 - abs(one[0] - two[0])
    high = (one[3] + two[3]) / 2 - abs(one[1] - two[1])
    return min(wide, one[2], two[2]) * min(high, one[3], two[3]) if wide > 0 and high > 0 else 0.0


def _hull(points: Iterable[Point], width: float, height: float) -> Area:
    """Return the area that holds rectangles of that size around all points."""
    xs, ys = zip(*points, strict=True)
    middle = (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2
    return *middle, max(xs) - min(xs) + width + 0.2, max(ys) - min(ys) + height


def _bounded(layout: Layout, measure: Measure) -> Layout:
    """Return the layout with the rectangle that holds it all."""
    points = list(_extremes(layout, measure))
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    bottom, top = min(y for _, y in points), max(y for _, y in points)
    return replace(layout, left=left, bottom=bottom, width=right - left, height=top - bottom)


def _extremes(layout: Layout, measure: Measure) -> Iterator[Point]:
    for box in layout.boxes.values():
        yield from ((box.left, box.bottom), (box.right, box.top))
    for line in layout.lines:
        yield from (_along(line, step / 8) for step in range(9))
        if line.label_at is not None:
            (x, y), (width, height) = line.label_at, _label_size(line, measure)
            yield from ((x - width / 2, y - height / 2), (x + width / 2, y + height / 2))
    for arrow in layout.arrows:
        yield from (_on_curve(arrow.points, step / 8) for step in range(9))


def scatter(names: Sequence[str], pairs: Sequence[tuple[str, str]], size: Point) -> dict[str, Point]:
    """Return places for a network that is too large for boxes, inside a rectangle of that size.

    Distances in hops to some pivots give a first picture (Pivot MDS, Brandes and Pich 2006), springs the details
    (Fruchterman and Reingold 1991) unless that would take too long.
    """
    import numpy as np  # noqa: PLC0415  # slow to load

    index = {name: number for number, name in enumerate(names)}
    ends = np.array([(index[a], index[b]) for a, b in pairs], dtype=np.intp).reshape(-1, 2)
    near: list[list[int]] = [[] for _ in names]
    for one, two in ends.tolist():
        near[one].append(two)
        near[two].append(one)
    hops = [_hops(near, 0)]
    while len(hops) < min(_PIVOTS, len(names)):
        hops.append(_hops(near, int(np.argmax(np.min(hops, axis=0)))))
    squares = np.array(hops, dtype=float).T ** 2
    centred = squares.mean(axis=0) + squares.mean(axis=1, keepdims=True) - squares - squares.mean()
    _, vectors = np.linalg.eigh(centred.T @ centred)
    at = centred @ vectors[:, [-1, -2]]
    at = at * np.where(at[np.abs(at).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)  # of two mirror images always the same
    at = at / np.maximum(np.ptp(at, axis=0), 1e-9)
    turns = np.arange(len(names))
    x, y = (at + 1e-3 * np.stack([np.cos(turns), np.sin(turns)], axis=1)).T  # no two alike
    ideal = 0.8 / math.sqrt(len(names))
    for turn in range(_SPRING_TURNS if len(names) <= _SPRING_SITES else 0):
        dx, dy = x[:, None] - x, y[:, None] - y
        push = ideal**2 / np.maximum(dx * dx + dy * dy, 1e-8)
        force = np.stack([(dx * push).sum(axis=1), (dy * push).sum(axis=1)])
        pull = np.stack([x[ends[:, 0]] - x[ends[:, 1]], y[ends[:, 0]] - y[ends[:, 1]]])
        pull *= np.hypot(*pull) / ideal
        for side, sign in ((0, -1.0), (1, 1.0)):
            np.add.at(force[0], ends[:, side], sign * pull[0])
            np.add.at(force[1], ends[:, side], sign * pull[1])
        length = np.maximum(np.hypot(*force), 1e-9)
        force *= np.minimum(length, 0.06 * (1 - turn / _SPRING_TURNS)) / length
        x, y = x + force[0], y + force[1]
    x, y = ((axis - axis.min()) / max(np.ptp(axis), 1e-9) * limit for axis, limit in zip((x, y), size, strict=True))
    return {name: (round(float(a), 4), round(float(b), 4)) for name, a, b in zip(names, x, y, strict=True)}


def _hops(near: Sequence[Sequence[int]], start: int) -> list[int]:
    """Return hops from one site to all; those out of reach are one hop farther than the farthest."""
    hops = [-1] * len(near)
    hops[start] = 0
    reached = [start]
    for here in reached:  # grows while it is walked
        for other in near[here]:
            if hops[other] < 0:
                hops[other] = hops[here] + 1
                reached.append(other)
    return [hop if hop >= 0 else hops[reached[-1]] + 1 for hop in hops]
