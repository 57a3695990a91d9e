"""What do `headwater control replay` and `policies` do?

A record is lines of JSON, one for each decision, after one that says how it began. One file may hold the decisions of
several machines; each entry then names its own. They are made again machine by machine, from what was measured.

    HW1341  there is no such policy
    HW1344  a file that is no record of decisions
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from headwater.control.policies import SUMMARIES
from headwater.control.record import Replayed, replayed
from headwater.errors import Mistake, SpecError
from headwater.model.units import show
from headwater.serve import arguments, disk
from headwater.serve.load import shown_name
from headwater.serve.output import Output
from headwater.serve.plain import plain
from headwater.serve.progress import Teller, note
from headwater.serve.render import simple_table

__all__ = ["list_policies", "replay_file"]

DONE, DIFFERS = 0, 3
MOST_ROWS = 12
NOWHERE = ""  # the machine of an entry that names none
TORN = object()  # a line that is not JSON
CLOCK_S = 1e9, 1e11  # within, a time is one of the clock; no simulation lasts for thirty years


@dataclass(frozen=True, slots=True)
class _Row:
    """A share that is another one than was written down."""

    machine: str
    now_s: float
    application: str
    recorded: tuple[float, float]  # share and limit
    decided: tuple[float, float]

    @property
    def distance(self) -> float:
        """By how much the share differs, or the limit where both shares are the same."""
        ends = [min(one, 1e9) for pair in zip(self.recorded, self.decided, strict=True) for one in pair]
        return abs(ends[0] - ends[1]) or abs(ends[2] - ends[3])


def list_policies(output: Output) -> int:
    """List the policies, and what each does."""
    output.answer({"policies": dict(SUMMARIES)}, simple_table(("policy", "what it does"), SUMMARIES.items()))
    return DONE


def replay_file(path: str, policy: str | None, output: Output) -> int:
    """Make the decisions of a record again; 3 where one of them is another, unless another policy was asked for."""
    if policy is not None:
        arguments.check_policy("--policy", policy)
    entries = _entries(path)
    steps = max(1, sum(len(of) for of in entries.values()))
    rows: list[_Row] = []
    counts: dict[str, int] = {}
    differing, before = 0, _recorded_policies(entries)
    with Teller(f"replaying {shown_name(path)}") as teller:
        for machine, of in entries.items():
            count = 0
            for one in replayed(of.values(), shown_name(path), policy, tuple(of)):
                count += 1
                differing += bool(one.differs)
                rows += _rows(machine, one)
                teller.say(_at(one.now_s), (sum(counts.values()) + count) / steps)
            counts[machine] = count
    total = sum(counts.values())
    if differing and policy is None:
        _tell_gaps(path, entries)
    if not total:
        raise _wrong(path, "it holds no decision; write one with 'headwater control --simulate SCENARIO --record FILE'")
    value = {
        "recorded_policies": list(before),
        "policy": policy,
        "machines": {machine: count for machine, count in counts.items() if machine and count},
        "decisions": total,
        "differing": differing,
        "is_same": not differing,
        "differences": [_object(row) for row in rows],
    }
    output.answer(value, *_shown(path, before, policy, total, differing, rows))
    return DIFFERS if differing and policy is None else DONE


def _entries(path: str) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Return the entries of a file by machine and line.

    A last line that was cut off is left out, and so is one before a new beginning: whoever wrote it was killed then.
    """
    found: dict[str, dict[int, Mapping[str, Any]]] = {}
    lines = disk.read(path).split(b"\n")
    rows = [(number, _entry(line)) for number, line in enumerate(lines, 1) if line.strip()]
    torn = []
    for place, (number, entry) in enumerate(rows, 1):
        if entry is TORN:
            is_last = number == len(lines) and number > 1
            after = rows[place][1] if place < len(rows) else None
            if not is_last and not (isinstance(after, dict) and after.get("kind") == "begin"):
                raise _wrong(path, "this line is not JSON; a record has one object in each line", number)
            torn.append(f"line {number}")
        elif isinstance(entry, dict):
            found.setdefault(str(entry.get("machine", NOWHERE)), {})[number] = entry
        else:
            raise _wrong(path, "this line is no object; a record has one in each line", number)
    if torn:
        where = ", ".join(torn[:MOST_ROWS]) + (", ..." if len(torn) > MOST_ROWS else "")
        lines_are = "1 line was" if len(torn) == 1 else f"{len(torn)} lines were"
        note(f"{shown_name(path)}: {lines_are} cut off and left out: {where}")
    return found


def _tell_gaps(path: str, entries: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> None:
    """Say where entries seem to be missing: what was measured is about less time than has passed."""
    for of in entries.values():
        before: Mapping[str, Any] = {}
        for number, entry in of.items():
            if entry["kind"] == before.get("kind") == "step":
                passed_s = entry["now_s"] - before["now_s"]
                if isinstance(entry["seconds"], float) and passed_s > 1.5 * entry["seconds"] > 0.0:
                    begin, end = _at(before["now_s"]), _at(entry["now_s"])
                    note(f"{shown_name(path)}:{number}: a decision between {begin} and {end} seems to be missing")
                    break
            before = entry


def _entry(line: bytes) -> object:
    """Return what a line holds, or that it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return TORN


def _recorded_policies(entries: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> tuple[str, ...]:
    named = (entry.get("policy") for of in entries.values() for entry in of.values() if entry.get("kind") == "begin")
    return tuple(dict.fromkeys(str(name) for name in named))


def _rows(machine: str, one: Replayed) -> list[_Row]:
    made = []
    for name in one.differs:
        told, i = one.recorded["decided"][name], one.decision.names.index(name)
        recorded = float(told["share"]), float(told["limit"])  # both are numbers: they were compared
        made.append(
            _Row(
                machine, one.now_s, name, recorded, (float(one.decision.shares[i]), float(one.limits[i]))
            )
        )  # fmt: skip
    return made


def _object(row: _Row) -> dict[str, Any]:
    def pair(values: tuple[float, float]) -> dict[str, float | None]:
        share, limit = (value if math.isfinite(value) else None for value in values)
        return {"share": share, "limit": limit}

    return {
        "machine": row.machine or None,
        "now_s": row.now_s,
        "application": row.application,
        "recorded": pair(row.recorded),
        "decided": pair(row.decided),
    }


def _shown(
    path: str, before: Sequence[str], policy: str | None, total: int, differing: int, rows: Sequence[_Row]
) -> list[RenderableType]:
    name = plain(shown_name(path))
    if not differing:
        return [Text(f"{name}: {total} decisions made again by {policy or ', '.join(before)}, all of them the same")]
    by = f"would have been others with {policy}" if policy is not None else "are others now"
    heads = ("at", "machine", "application", "share", "limit", "share now", "limit now")
    if policy is not None:
        heads = (*heads[:5], f"share by {policy}", f"limit by {policy}")
    widest = sorted(rows, key=lambda row: (-row.distance, row.now_s))[:MOST_ROWS]
    cells = [
        (_at(row.now_s), plain(row.machine) or "-", plain(row.application), *map(_cores, row.recorded),
         *map(_cores, row.decided))
        for row in sorted(widest, key=lambda row: (row.now_s, row.machine, row.application))
    ]  # fmt: skip
    more = len(rows) - len(widest)
    return [
        Text(f"{name}: {differing} of {total} decisions by {', '.join(before)} {by}; in cores:"),
        simple_table(heads, cells),
        *([Text(f"and {more} more that differ less (--json names all)")] if more else []),
    ]


def _at(now_s: float) -> str:
    """Return a time as a person would name it: a running site has the clock's, a simulation its own."""
    if CLOCK_S[0] <= now_s < CLOCK_S[1]:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_s))
    return show(now_s, "time")


def _cores(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "no limit"


def _wrong(path: str, text: str, line: int | None = None) -> SpecError:
    return SpecError(Mistake("HW1344", text, shown_name(path), line))
