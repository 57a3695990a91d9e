"""How are the figures shown?

One layout for each section: its columns, and the cells of a row. `table` makes a table for the terminal;
`bench.page` uses the same layouts for the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rich.table import Table

__all__ = ["LAYOUTS", "Layout", "table"]

Row = Mapping[str, Any]
Cells = tuple[str, ...]
NONE = "-"
TEXTS = ("note", "answer")  # columns that hold words
PROOF_TOLERANCE = 2e-6  # a gap this small to the bound of another method shows that nothing is better


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one section."""

    heads: Cells
    cells: Callable[[Row], Cells]  # of a row that was measured; without its names
    names: tuple[str, ...] = ("case",)  # keys of the first columns

    def row(self, row: Row) -> Cells:
        """Return the cells of a row; one that was left out says why in its last column."""
        names = tuple(row[name] for name in self.names)
        if "left_out" in row:
            return (*names, *[NONE] * (len(self.heads) - len(names) - 1), f"left out: {row['left_out']}")
        return (*names, *self.cells(row))

    def is_text(self, column: int) -> bool:
        """Return whether a column holds words, not numbers."""
        return column < len(self.names) or self.heads[column] in TEXTS


def table(title: str, layout: Layout, rows: Iterable[Row]) -> Table:
    """Return a table for the terminal."""
    shown = Table(title=title, title_justify="left", header_style="bold")
    for column, head in enumerate(layout.heads):
        is_name = column < len(layout.names)
        shown.add_column(head, justify="left" if layout.is_text(column) else "right", no_wrap=is_name)
    before = None
    for row in rows:
        if len(layout.names) > 1 and before not in (None, row["case"]):
            shown.add_section()
        before = row["case"]
        shown.add_row(*layout.row(row))
    return shown


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _mebibytes(value: float) -> str:
    return f"{value / 2**20:.0f}"


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def _count(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


def _f(value: float | None) -> str:
    return NONE if value is None else f"{value:.6f}"


def _methods(row: Row) -> Cells:
    counted = (NONE, NONE)
    if row["counts"]:
        counted = (_count(row["evaluations"]), _count(row["evaluations"] / max(row["search_cpu_s"], 1e-9)))
    return (
        _f(row["f"]),
        f"{row['rt_s']:.4f}",
        _percent(row["gap_to_best"]),
        _percent(row["closed"]),
        _seconds(row["seconds"]),
        _seconds(row["search_cpu_s"]),
        *counted,
        _mebibytes(row["peak_bytes"]),
        _note(row),
    )


def _note(row: Row) -> str:
    if row["proved"]:
        return "proven"
    optimal = "optimal" if row["gap_to_best"] <= PROOF_TOLERANCE else ""
    return ", ".join(text for text in (optimal, "cut short" if row["cut_short"] else "") if text)


def _command(row: Row) -> Cells:
    taken = row["seconds"]
    return (
        f"{_seconds(taken['median'])} ({_seconds(taken['least'])} to {_seconds(taken['most'])})",
        _seconds(row["cpu_s"]["median"]),
        _mebibytes(row["peak_bytes"]),
        _f(row.get("f")),
        _f(row.get("hlf_f")),
        _f(row.get("lower_bound")),
        _percent(row.get("closed")),
    )


def _speed(row: Row) -> Cells:
    return (
        *(_count(row["rate"][name]) for name in ("incremental", "compiled", "lean", "score")),
        *(f"{_count(row['ratio'][name])} x" for name in ("compiled", "lean", "score")),
    )


def _exact(row: Row) -> Cells:
    answer = "proven" if row["proved"] else row["because"][-1]
    return (
        _f(row["f"]),
        _f(row["lower_bound"]),
        _percent(row["gap"]),
        _seconds(row["seconds"]),
        _seconds(row["search_cpu_s"]),
        f"{answer}, cut short" if row["cut_short"] else answer,
    )


def _scale(row: Row) -> Cells:
    return (
        _f(row["f"]),
        _f(row["lower_bound"]),
        _percent(row["gap"]),
        _seconds(row["seconds"]),
        _seconds(row["prepare_s"]),
        _seconds(row["make_s"]),
        _mebibytes(row["held_bytes"]),
        _mebibytes(row["peak_bytes"]),
    )


def _anneal(row: Row) -> Cells:
    times = sorted(row["seconds"])
    return (
        _f(row["optimum"]),
        "yes" if row["proved"] else "no",
        f"{row['reached']} of {row['seeds']}",
        _f(max(row["found"])),
        _seconds(times[len(times) // 2]),
    )


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "methods": Layout(
            (
                *("problem", "method", "F", "RT s", "gap", "closed", "s", "cpu s"),
                *("evaluations", "per cpu s", "MiB", "note"),
            ),
            _methods,
            ("case", "method"),
        ),
        "command": Layout(
            ("command", "s: median (least to most)", "cpu s", "MiB", "F", "F of hlf", "bound", "closed"),
            _command,
            ("command",),
        ),
        "speed": Layout(
            (
                *("problem", "incremental /s", "compiled, full /s", "lean Python, full /s", "score() /s"),
                *("to compiled", "to lean Python", "to score()"),
            ),
            _speed,
        ),
        "exact": Layout(("problem", "F", "bound", "gap", "s", "cpu s", "answer"), _exact),
        "scale": Layout(
            ("problem", "F", "bound", "gap", "s", "of it preparing", "s to make", "MiB made", "MiB peak"), _scale
        ),
        "anneal": Layout(("problem", "optimum", "proven", "reached", "worst F", "s: median of seeds"), _anneal),
    }
)
