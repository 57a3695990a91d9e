"""Which loads does a CSV file hold, one for each time unit?

Takes bytes and the name of a column. The first row may be a head; without one the file has a single
column. Where there is a column called 'time' or 't', its steps must be even: a missing row is a gap, and
so is an empty cell. A gap is a mistake, told with its line, because to guess a load is to guess a peak.

    HW1020  not a table, or no such column
    HW1021  a gap
    HW1022  a cell that is no load
"""

from __future__ import annotations

import csv
import math

from headwater.errors import Mistake, SpecError
from headwater.model.report import quote

__all__ = ["read_loads"]

TIMES = ("time", "t")
UNEVEN = 1e-6  # how far a step may be from the first, relative to it


def read_loads(text: bytes, file: str, column: str | None = None) -> tuple[float, ...]:
    r"""Return the loads of a column; without its name, of the only one beside the time.

    >>> read_loads(b"time,rate\n0,120\n1,130\n", "rates.csv")
    (120.0, 130.0)

    Raises:
        SpecError: HW1020 to HW1022.
    """
    try:
        lines = text.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise _wrong("HW1020", "the file is not UTF-8 text.", file, None) from None
    try:
        rows = [(number, [cell.strip() for cell in row]) for number, row in enumerate(csv.reader(lines), 1)]
    except csv.Error as error:
        raise _wrong("HW1020", f"the file is no CSV: {error}.", file, None) from None
    while rows and not any(rows[-1][1]):
        rows.pop()
    if not rows:
        raise _wrong("HW1021", "the file is empty; a trace needs at least one load.", file, None)
    heads = [] if all(_number(cell) is not None for cell in rows[0][1]) else rows[0][1]
    body = rows[1:] if heads else rows
    if not body:
        raise _wrong("HW1021", "the file has a head and no loads; a trace needs at least one.", file, 1)
    place = _column(heads, len(rows[0][1]), column, file)
    times = next((i for i, head in enumerate(heads) if head.lower() in TIMES and i != place), None)
    loads = tuple(_load(row, place, file, line) for line, row in body)
    if times is not None:
        _check_steps([(line, row[times] if times < len(row) else "") for line, row in body], file)
    return loads


def _column(heads: list[str], width: int, column: str | None, file: str) -> int:
    if column is not None:
        if column in heads:
            return heads.index(column)
        known = ", ".join(quote(head, 40) for head in heads) if heads else "none, the file has no head"
        raise _wrong("HW1020", f"there is no column {quote(column, 40)}; columns: {known}.", file, 1)
    others = [i for i in range(width) if not heads or heads[i].lower() not in TIMES]
    if len(others) != 1:
        raise _wrong("HW1020", f"the file has {width} columns; say which with 'column: NAME'.", file, 1)
    return others[0]


def _load(row: list[str], place: int, file: str, line: int) -> float:
    cell = row[place] if place < len(row) else ""
    if not cell:
        raise _wrong("HW1021", "the load is missing; fill the gap.", file, line)
    load = _number(cell)
    if load is None or not 0.0 <= load < math.inf:
        raise _wrong("HW1022", f"{quote(cell, 40)} is no load; it must be a number of 0 or more.", file, line)
    return load


def _check_steps(times: list[tuple[int, str]], file: str) -> None:
    before: float | None = None
    step: float | None = None
    for line, cell in times:
        now = _number(cell)
        if now is None or not math.isfinite(now):
            raise _wrong("HW1022", f"{quote(cell, 40)} is no time.", file, line)
        if before is not None:
            taken = now - before
            step = taken if step is None else step
            if taken <= 0.0 or abs(taken - step) > UNEVEN * abs(step):
                raise _wrong(
                    "HW1021",
                    f"the time goes from {before:g} to {now:g}, and by {step:g} before; fill the gap.",
                    file,
                    line,
                )
        before = now


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _wrong(code: str, text: str, file: str, line: int | None) -> SpecError:
    return SpecError(Mistake(code, text, file, line))
