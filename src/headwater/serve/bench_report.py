"""How are the figures of an experiment shown?

A `Report` holds sentences, tables and pictures as plain values; `write_report` makes a Markdown page of it with the
pictures as PNG files beside it, `shown` the same for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import RenderableType
from rich.text import Text

from headwater.serve import disk
from headwater.serve.plain import plain
from headwater.serve.render import simple_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Panel", "Picture", "Report", "Table", "draw", "markdown", "shown", "write_report"]

PAGE = "report.md"
PANEL_WIDTH, HEIGHT = 5.0, 3.8  # inches
MOST_BESIDE = 3  # panels in a row
GRID = "#d9dee4"
COLOURS = ("#2a6f97", "#e07a5f", "#6a994e", "#9d6b9e", "#bc9a3c", "#5f6c7b", "#c05780")


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in rows."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of a picture."""

    title: str
    kind: Literal["boxes", "lines", "bars"]
    y: str
    series: Mapping[str, Sequence[Any]]  # boxes: values; lines: (x, y, error) each; bars: (value, error)
    x: str = ""
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """Plots beside each other, one PNG file."""

    name: str  # of the file, without its ending
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What an experiment has shown."""

    title: str
    sentences: tuple[str, ...]
    tables: tuple[Table, ...]
    pictures: tuple[Picture, ...] = field(default=())


def markdown(report: Report) -> str:
    """Return the page; pictures are named as `write_report` writes them."""
    lines = [f"# {report.title}", ""]
    lines += [line for sentence in report.sentences for line in (sentence, "")]
    for picture in report.pictures:
        lines += [f"![{picture.title}]({picture.name}.png)", ""]
    for table in report.tables:
        lines += [f"## {table.title}", "", _row(table.heads), _row(["---"] * len(table.heads))]
        lines += [_row(row) for row in table.rows]
        lines += ["", *([table.note, ""] if table.note else [])]
    return "\n".join(lines).rstrip() + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shown(report: Report) -> Iterator[RenderableType]:
    """Yield a report as things that rich can print."""
    yield Text(plain(report.title), style="bold")
    for table in report.tables:
        yield Text(plain(f"\n{table.title}", keep="\n"))
        yield simple_table(table.heads, table.rows)
        if table.note:
            yield Text(plain(table.note), style="dim")
    for sentence in report.sentences:
        yield Text(plain(f"\n{sentence}", keep="\n"))


def write_report(report: Report, folder: Path) -> Path:
    """Write the page and its pictures; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in report.pictures:
        draw(picture, str(folder / f"{picture.name}.png"))
    page = folder / PAGE
    disk.write_text(str(page), markdown(report))
    return page


def draw(picture: Picture, path: str) -> None:
    """Draw a picture into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - a second to load
    from matplotlib.figure import Figure  # noqa: PLC0415

    rows = -(-len(picture.panels) // MOST_BESIDE)
    columns = -(-len(picture.panels) // rows)
    figure = Figure(figsize=(PANEL_WIDTH * columns, HEIGHT * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for place, panel in zip(figure.subplots(rows, columns, squeeze=False).flat, picture.panels, strict=False):
        {"boxes": _boxes, "lines": _lines, "bars": _bars}[panel.kind](place, panel)
        place.set(title=plain(panel.title), xlabel=plain(panel.x), ylabel=plain(panel.y))
        if panel.is_log:
            place.set_yscale("log")
            for axis_ticks in (place.yaxis.set_major_formatter, place.yaxis.set_minor_formatter):
                axis_ticks(lambda value, _: f"{value:g}" if f"{value:g}"[0] in "125" else "")
            place.tick_params(axis="y", which="minor", labelsize=7)
        place.grid(visible=True, axis="y", color=GRID, linewidth=0.6)
        place.set_axisbelow(True)
        for side in ("top", "right"):
            place.spines[side].set_visible(False)
    figure.suptitle(plain(picture.title), fontweight="bold")
    with disk.replacing(path) as passing:
        figure.savefig(passing, format="png", dpi=130)


def _boxes(place: Axes, panel: Panel) -> None:
    """Draw quartiles, with whiskers from the 5th to the 95th percentile."""
    names = [name for name, values in panel.series.items() if values]
    drawn = place.boxplot(
        [list(panel.series[name]) for name in names],
        tick_labels=[plain(name) for name in names],
        whis=(5, 95),
        showfliers=False,
        patch_artist=True,
        medianprops={"color": "black"},
    )
    for box, colour in zip(drawn["boxes"], _colours(len(names)), strict=True):
        box.set_facecolor(colour)


def _lines(place: Axes, panel: Panel) -> None:
    for (name, points), colour in zip(panel.series.items(), _colours(len(panel.series)), strict=True):
        xs, ys, errors = (list(values) for values in zip(*points, strict=True)) if points else ([], [], [])
        is_sparse = len(xs) < 30
        place.errorbar(
            xs, ys, yerr=errors if any(errors) else None, color=colour, label=plain(name), capsize=3,
            marker="o" if is_sparse else None,
        )  # fmt: skip
    if not panel.is_log and all(y >= 0 for points in panel.series.values() for _, y, _ in points):
        place.set_ylim(bottom=0)  # an interval may reach below, a latency cannot
    place.legend(frameon=False, fontsize=8)


def _bars(place: Axes, panel: Panel) -> None:
    names = list(panel.series)
    values = [panel.series[name][0] for name in names]
    errors = [panel.series[name][1] for name in names]
    kinds = list(dict.fromkeys(name.rpartition("\n")[2] for name in names))  # bars of one case have one colour
    colours = [COLOURS[kinds.index(name.rpartition("\n")[2]) % len(COLOURS)] for name in names]
    labels = [plain(name, keep="\n") for name in names]
    place.bar(labels, values, yerr=errors if any(errors) else None, capsize=4, color=colours, width=0.6)
    place.tick_params(axis="x", labelsize=8)
    for number, value in enumerate(values):
        place.annotate(f"{value:.3g}", (number, value), ha="center", va="bottom", fontsize=8)


def _colours(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]
