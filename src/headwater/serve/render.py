"""How do answers look to a person?

Takes values, gives things that rich can print; prints nothing itself. Whatever comes from a file is
shown as text, never read as markup or as a terminal's command.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headwater.model.pipeline import LEVEL_NAMES, Pipeline
from headwater.model.sites import Sites
from headwater.model.units import show
from headwater.serve.path import PathStep
from headwater.serve.plain import plain

if TYPE_CHECKING:  # loading the search would compile it
    from headwater.cost.score import Score
    from headwater.place.result import Infeasible, Result

__all__ = ["Row", "compared", "infeasible", "placed", "scored", "share", "simple_table"]

MOST_SITES = 30  # rows of the table of sites
MOST_NAMES = 12  # operators named in one row
MOST_STEPS = 24  # operators of the critical path
MOST_WARNINGS = 8
MOST_REASONS = 20
MARK = "\u25b6"  # beside the best row


def share(value: float) -> str:
    """Return a share as percent, never rounding what is not nothing to nothing.

    >>> share(0.0), share(0.1234), share(0.0000001)
    ('0 %', '12.3 %', '< 0.001 %')
    """
    percent = 100 * value
    if not math.isfinite(percent):
        return "-"
    if 0 < percent < 0.001:
        return "< 0.001 %"
    return f"{percent:.3g} %"


def scored(
    pipeline: Pipeline, sites: Sites, placement: Mapping[str, str], score: Score, steps: Sequence[PathStep]
) -> RenderableType:
    """Return how one placement is judged."""
    if not score.valid:
        return Group(_line(("not valid", "bold red"), ": this placement has no F"), *_bullets(score.reasons))
    return Group(
        _sites_table(sites, placement, score), _figures(score), *_path(pipeline, score, steps), *_warnings(sites, score)
    )


def placed(
    pipeline: Pipeline, sites: Sites, result: Result, steps: Sequence[PathStep], wall_s: float
) -> RenderableType:
    """Return a placement, how good it is and why."""
    used = len(set(result.placement.values()))
    title = _line(
        (plain(pipeline.name) or "pipeline", "bold"),
        f": {len(result.placement)} operators on {used} of {len(sites.sites)} sites, placed by ",
        (result.method, "bold"),
        f" in {_time(wall_s)} ({result.evaluations:,} candidates)".replace(",", " "),
    )
    return Group(
        title,
        _sites_table(sites, result.placement, result.score),
        _figures(result.score),
        _quality(result),
        *_path(pipeline, result.score, steps),
        *_warnings(sites, result.score),
        *(["", _line(("why", "bold")), *_bullets(result.because)] if result.because else []),
    )


def _gap(result: Result) -> str:
    return share(0.0 if result.proved else result.gap)


def _quality(result: Result) -> Text:
    verdict: tuple[str, str]
    if result.proved:
        verdict = ("proven optimal", "bold green")
    else:
        verdict = (f"at most {share(result.gap)} from the best possible", "yellow")
    line = _line(f"lower bound {result.lower_bound:.6f}   gap {_gap(result)}   ", verdict)
    if result.cut_short:
        line.append("   cut short by --seconds", style="yellow")
    return line


@dataclass(frozen=True, slots=True)
class Row:
    """One method's line in a comparison."""

    method: str
    answer: Result | str  # the result, or why there is none
    wall_s: float  # time that placing took
    is_best: bool = False


def compared(title: str, rows: Iterable[Row]) -> RenderableType:
    """Return methods side by side, the best one marked."""
    table = _table("", "method", "F", "RT", "BW above", "RF", "gap", "time", "proved", right=(2, 3, 4, 5, 6, 7))
    refused: list[Text] = []
    for row in rows:
        if isinstance(row.answer, str):
            table.add_row("", row.method, *["-"] * 5, _time(row.wall_s) if row.wall_s else "-", "-", style="dim")
            refused.append(_line((row.method, "bold"), f": {plain(row.answer)}"))
            continue
        result, score = row.answer, row.answer.score
        table.add_row(
            MARK if row.is_best else "",
            row.method,
            f"{result.f:.6f}",
            _time(score.rt_s),
            _bits(score.bw_bps),
            str(score.rf),
            _gap(result),
            _time(row.wall_s) + ("*" if result.cut_short else ""),
            "yes" if result.proved else "no",
            style="bold green" if row.is_best else "",
        )
        if result.cut_short:
            refused.append(_line((row.method, "bold"), ": * cut short by --seconds"))
    return Group(_line((plain(title), "bold")), table, *refused)


def infeasible(answer: Infeasible) -> RenderableType:
    """Return why no placement exists, operator by operator."""
    parts: list[RenderableType] = [_line(("no valid placement exists", "bold red"))]
    for each in answer.unplaced[:MOST_REASONS]:
        parts.append(_line("no site can run ", (f"'{plain(each.operator)}'", "bold"), ":"))
        parts.extend(_bullets(each.because))
    if len(answer.unplaced) > MOST_REASONS:
        parts.append(_line(f"and {len(answer.unplaced) - MOST_REASONS} more operators (--json names all)"))
    if answer.conflict:
        parts.append(_line(("these demands cannot hold together:", "bold")))
        parts.extend(_bullets(answer.conflict))
    return Group(*parts)


def simple_table(heads: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a plain table of texts."""
    table = _table(*heads)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row))
    return table


def _sites_table(sites: Sites, placement: Mapping[str, str], score: Score) -> RenderableType:
    table = _table("site", "kind", "class", "slots", "cores", "operators", right=(3, 4))
    here: dict[str, list[str]] = {}
    for operator, name in placement.items():
        here.setdefault(name, []).append(operator)
    used = [site for site in sites.sites if site.name in here]
    loads = score.load_cores or {}
    for site in used[:MOST_SITES]:
        load = f"{loads.get(site.name, 0.0):.3g}" + ("" if site.cores is None else f"/{site.cores:g}")
        is_over = site.name in score.overloaded
        table.add_row(
            Text(plain(site.name)),
            site.kind,
            LEVEL_NAMES[site.level],
            f"{len(here[site.name])}/{site.slots}",
            Text(load, style="yellow" if is_over else ""),
            Text(_named(here[site.name])),
        )
    if len(used) <= MOST_SITES:
        return table
    return Group(table, _line(f"and {len(used) - MOST_SITES} more sites (--json or --out gives all)"))


def _figures(score: Score) -> Text:
    return _line(
        ("F ", "dim"), (f"{score.f:.6f}", "bold"), ("   RT ", "dim"), _time(score.rt_s),
        ("   BW above ", "dim"), _bits(score.bw_bps), ("   RF ", "dim"), str(score.rf),
    )  # fmt: skip


def _path(pipeline: Pipeline, score: Score, steps: Sequence[PathStep]) -> list[RenderableType]:
    if not steps:
        return []
    between = pipeline.objective.between
    scope = "" if between is None else f" from {plain(between[0])} to {plain(between[1])}"
    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    for column in ("operator", "site", "way", "work"):
        table.add_column(column, justify="right" if column in {"way", "work"} else "left", overflow="fold")
    for step in steps[:MOST_STEPS]:
        way = f"{_time(step.delay_s)} on the way" if step.route else ""
        table.add_row(
            Text(plain(step.operator)),
            Text(f"@ {plain(step.site)}", style="dim"),
            Text(way, style="cyan"),
            Text(f"{_time(step.processing_s)} work" if step.processing_s else ""),
        )
    parts: list[RenderableType] = [
        "",
        _line(("critical path", "bold"), f"{scope}: {_time(score.rt_s)}"),
        Padding(table, (0, 0, 0, 2), expand=False),
    ]
    if len(steps) > MOST_STEPS:
        parts.append(_line(f"  and {len(steps) - MOST_STEPS} more operators"))
    return parts


def _warnings(sites: Sites, score: Score) -> list[RenderableType]:
    by_name, loads = sites.by_name, score.load_cores or {}
    texts = [
        f"site '{name}' is asked for {loads.get(name, 0.0):.3g} of its {by_name[name].cores:g} cores"
        for name in score.overloaded
    ]
    texts += [
        f"link '{each.link[0]}' - '{each.link[1]}' toward '{each.toward}' is {_bits(each.over_bps)} above its bandwidth"
        for each in score.congested
    ]
    if not texts:
        return []
    more = [] if len(texts) <= MOST_WARNINGS else [f"and {len(texts) - MOST_WARNINGS} more (--json names all)"]
    return ["", *(_line(("! ", "bold yellow"), plain(each)) for each in texts[:MOST_WARNINGS] + more)]


def _bullets(texts: Sequence[str]) -> list[RenderableType]:
    shown = [plain(each) for each in texts[:MOST_REASONS]]
    if len(texts) > MOST_REASONS:
        shown.append(f"and {len(texts) - MOST_REASONS} more (--json names all)")
    return [Padding(Text(f"- {each}"), (0, 0, 0, 2), expand=False) for each in shown]


def _named(names: Sequence[str]) -> str:
    more = "" if len(names) <= MOST_NAMES else f" and {len(names) - MOST_NAMES} more"
    return ", ".join(map(plain, names[:MOST_NAMES])) + more


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*parts)


def _table(*heads: str, right: Sequence[int] = ()) -> Table:
    table = Table(box=box.SIMPLE, header_style="dim", pad_edge=False)
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i in right else "left", overflow="fold")
    return table


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else show(value_s, "time")


def _bits(value_bps: float | None) -> str:
    return "-" if value_bps is None else show(value_bps, "bandwidth")
