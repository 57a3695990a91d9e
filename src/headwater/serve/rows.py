"""How do things that stand in rows cross least, and where do they stand?

Takes rows of anything and the pairs that are joined, gives an order inside each row and an x for each member.
Members of a row are sorted by the mean position of their partners (barycentre, Sugiyama et al. 1981), keeping the
order with the fewest crossings seen; then each moves as near to its partners as the distances allow (isotonic
regression). Used for sites in the picture and for operators inside a site.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

__all__ = ["columns", "ordered", "spaced"]

K = TypeVar("K", bound=Hashable)

_ORDER_TURNS, _COLUMN_TURNS = 24, 30
_LEVEL_PULL = 0.3  # of a partner in the same row, against 1 for one above or below


def ordered(rows: Sequence[Sequence[K]], pairs: Sequence[tuple[K, K]]) -> list[list[K]]:
    """Return the rows with their members sorted so that few joining lines cross.

    >>> ordered([["a", "b"], ["c", "d"]], [("a", "d"), ("b", "c")])
    [['a', 'b'], ['d', 'c']]
    """
    row_of = {key: number for number, row in enumerate(rows) for key in row}
    near = _partners(row_of, pairs)
    current = [list(row) for row in rows]
    place = {key: (index + 0.5) / len(row) for row in current for index, key in enumerate(row)}
    best, least = [list(row) for row in current], _crossings(current, row_of, pairs)
    for turn in range(_ORDER_TURNS):
        down = turn % 2 == 0
        for number in range(len(current)) if down else reversed(range(len(current))):
            row = current[number]
            pull = {}
            for key in row:
                fixed = [
                    place[other] for other in near[key] if (row_of[other] < number) == down != (row_of[other] == number)
                ]
                level = [place[other] for other in near[key] if row_of[other] == number]
                total, weight = sum(fixed) + _LEVEL_PULL * sum(level), len(fixed) + _LEVEL_PULL * len(level)
                pull[key] = total / weight if weight else place[key]
            row.sort(key=pull.__getitem__)
            place.update({key: (index + 0.5) / len(row) for index, key in enumerate(row)})
        count = _crossings(current, row_of, pairs)
        if count < least:
            best, least = [list(row) for row in current], count
    return best


def columns(
    rows: Sequence[Sequence[K]], pairs: Iterable[tuple[K, K]], apart: Callable[[K, K], float]
) -> dict[K, float]:
    """Return an x for every member: near its partners in other rows, in order, at least `apart` from its neighbours."""
    row_of = {key: number for number, row in enumerate(rows) for key in row}
    near = _partners(row_of, pairs)
    offsets = []
    x: dict[K, float] = {}
    for row in rows:
        places = [0.0]
        for left, right in pairwise(row):
            places.append(places[-1] + apart(left, right))
        offsets.append(places)
        x.update({key: place - places[-1] / 2 for key, place in zip(row, places, strict=False)})
    for turn in range(_COLUMN_TURNS):
        for number in range(len(rows)) if turn % 2 else reversed(range(len(rows))):
            wanted = []
            for key in rows[number]:
                others = [x[other] for other in near[key] if row_of[other] != number]
                wanted.append(sum(others) / len(others) if others else x[key])
            x.update(zip(rows[number], spaced(wanted, offsets[number]), strict=True))
    return x


def spaced(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Return places nearest to the wanted ones (least squares) that stand at least as far apart as the offsets.

    >>> spaced([0.0, 0.0, 9.0], [0.0, 2.0, 4.0])
    [-1.0, 1.0, 9.0]
    """
    blocks: list[tuple[float, int]] = []  # sum and count of each run of members that touch
    for want, offset in zip(wanted, offsets, strict=True):
        blocks.append((want - offset, 1))
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1] = (blocks[-1][0] + total, blocks[-1][1] + count)
    means = [total / count for total, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _partners(keys: Iterable[K], pairs: Iterable[tuple[K, K]]) -> dict[K, list[K]]:
    near: dict[K, list[K]] = {key: [] for key in keys}
    for one, two in pairs:
        near[one].append(two)
        near[two].append(one)
    return near


def _crossings(rows: Sequence[Sequence[K]], row_of: Mapping[K, int], pairs: Iterable[tuple[K, K]]) -> float:
    """Return how many lines cross between rows, plus a little for every member that a line of its row must pass."""
    index = {key: number for row in rows for number, key in enumerate(row)}
    between: dict[int, list[tuple[int, int]]] = {}
    total = 0.0
    for one, two in pairs:
        upper, lower = (one, two) if row_of[one] <= row_of[two] else (two, one)
        if row_of[upper] == row_of[lower]:
            total += 0.2 * (abs(index[upper] - index[lower]) - 1)
        else:
            between.setdefault(row_of[upper], []).append((index[upper], index[lower]))
    for ends in between.values():
        ends.sort()
        lower_ends: list[int] = []
        for _, end in ends:
            total += len(lower_ends) - bisect_right(lower_ends, end)
            insort(lower_ends, end)
    return total
