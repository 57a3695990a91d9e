"""How old is a record when its result can be read?

`Ages` keeps when each record was born and when a result first told of it; `figures` makes percentiles of
that. Pure: times are arguments, in nanoseconds; nothing is read or written.

A result names the newest record that it knows of. Where results are of groups (a count by group), a result
tells of all records of its group up to that one: so a lane that answers a hundred records with one row is
judged by all hundred, as one that answers each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["REFERENCES", "Ages", "compared", "figures", "percentile"]

# What the others are compared with. With groups Spark as it comes makes 200 tasks for each batch; there it is
# given the one setting that everybody knows.
REFERENCES = ("spark micro-batch, 1 partition", "spark micro-batch")
SHARES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}
GROWTH = 1.5  # by so much older at the end of a measurement than at its begin: the lane falls behind
SLACK_MS = 500.0  # growth below this is chance


class Ages:
    """Births of records 0, 1, 2, .. and the moments at which results told of them."""

    def __init__(self, groups: int | None = None) -> None:
        """Take the number of groups, record n being of group n % groups; None: each record has its own result."""
        self._groups = groups
        self._next = list(range(groups or 0))  # the first record of each group that no result told of
        self._born_ns: list[int] = []
        self._seen_ns: list[int] = []  # 0: not yet
        self.seen_count = 0
        self.doubles = 0  # results that told nothing new

    @property
    def count(self) -> int:
        """Return how many records were born."""
        return len(self._born_ns)

    def born(self, at_ns: int) -> int:
        """Take in the next record; return its number."""
        self._seen_ns.append(0)
        self._born_ns.append(at_ns)
        return len(self._born_ns) - 1

    def seen(self, newest: int, at_ns: int) -> None:
        """Take in a result that knows of this record, and of all before it in its group."""
        if self._groups is None:
            numbers: Sequence[int] = (newest,) if not self._seen_ns[newest] else ()
        else:
            group = newest % self._groups
            numbers = range(self._next[group], newest + 1, self._groups)
            self._next[group] = max(self._next[group], newest + self._groups)
        for number in numbers:
            self._seen_ns[number] = at_ns
        self.seen_count += len(numbers)
        self.doubles += not numbers

    def between(self, begin_ns: int, end_ns: int, now_ns: int) -> tuple[list[float], int]:
        """Return the ages in ms of the records born in a span, in the order of birth, and how many have no result.

        Those without a result are taken to be as old as they are now: less than they will be.
        """
        ages, unseen = [], 0
        for born_ns, seen_ns in zip(self._born_ns, self._seen_ns, strict=False):
            if begin_ns <= born_ns < end_ns:
                unseen += not seen_ns
                ages.append(((seen_ns or now_ns) - born_ns) / 1e6)
        return ages, unseen


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of the values is not above.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return ordered[max(0, math.ceil(len(ordered) * share - 1e-9) - 1)]


def figures(ages_ms: Sequence[float], unseen: int) -> dict[str, Any]:
    """Return percentiles of ages given in the order of birth, and whether the lane falls behind.

    >>> figures([2.0, 1.0, 3.0], 0)["p50_ms"]
    2.0
    """
    ordered = sorted(ages_ms)
    third = max(1, len(ages_ms) // 3)
    early, late = (percentile(sorted(part), 0.5) for part in (ages_ms[:third], ages_ms[-third:]))
    return {
        **{name: percentile(ordered, share) for name, share in SHARES.items()},
        "max_ms": ordered[-1],
        "records": len(ordered),
        "unseen": unseen,
        "falls_behind": unseen > 0 or late > early * GROWTH + SLACK_MS,
    }


def compared(rows: Sequence[dict[str, Any]], lanes: Sequence[str] = REFERENCES) -> list[dict[str, Any]]:
    """Return the rows, each with how many times the reference's p50 and p99 are its own.

    The reference is the first of these lanes that there is at the same case and rate; where it falls behind, its
    figures say only how long was measured, and nothing is compared with them.
    """
    found = []
    for row in rows:
        beside = {one["lane"]: one for one in rows if (one["case"], one["rate_rps"]) == (row["case"], row["rate_rps"])}
        reference = next((beside[lane] for lane in lanes if lane in beside), {})
        ratios = {}
        if "p50_ms" in row and "p50_ms" in reference and not reference["falls_behind"]:
            ratios = {f"times_{name}": reference[f"{name}_ms"] / row[f"{name}_ms"] for name in ("p50", "p99")}
        found.append({**row, **ratios})
    return found
