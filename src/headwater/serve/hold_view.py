"""How do held goals look to a person?"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headwater.model.units import show
from headwater.serve.hold_wire import keeps, kept
from headwater.serve.plain import plain
from headwater.serve.render import share, simple_table
from headwater.sim.held import Figures, GaveWay, Held

__all__ = ["compared", "shown"]

MOST_ROWS = 10


def shown(held: Held, wall_s: float) -> RenderableType:
    """Return what came of a scenario whose goals were held."""
    simulated = held.simulated
    return Group(
        Text.assemble(
            (plain(simulated.scenario), "bold"),
            f": {_time(simulated.seconds)} with ",
            (held.policy, "bold"),
            f" simulated in {_time(wall_s)}, seed {simulated.seed}, {held.steps} decisions",
        ),
        _classes(held),
        *_applications(held),
        *_gave_way(held.gave_way),
    )


def compared(rows: Sequence[tuple[Held, float]]) -> RenderableType:
    """Return policies side by side: how late the records of each class were."""
    first = rows[0][0]
    heads = ["\npolicy"]
    for one in first.classes:
        heads += [f"{one.name}\np99", "late\n%", "worst\n%"]
    table = simple_table(
        (*heads, "\nwaiting"),
        (
            (
                held.policy,
                *(cell for one in held.classes for cell in (_late(one), _percent(one.violations), _percent(one.worst))),
                _count(sum(one.waiting for one in held.classes)),
            )
            for held, _ in rows
        ),
    )
    goals = ", ".join(f"{one.name} {_goal(one)}" for one in first.classes)
    simulated = first.simulated
    return Group(
        Text.assemble(
            (plain(simulated.scenario), "bold"),
            f": {_time(simulated.seconds)} with each of {len(rows)} policies, seed {simulated.seed}",
        ),
        Text(f"goals: {goals}; worst: of any {_time(first.window_s)}"),
        _right(table, 1),
    )


def _classes(held: Held) -> RenderableType:
    rows = (
        (one.name, f"{kept(held, one.name)} of {one.applications}", _goal(one), *_figures(one)) for one in held.classes
    )
    return _right(
        simple_table(("class", "keep it", "goal", "p50", "p99", "late", _worst(held), "used", "waiting"), rows), 3
    )


def _applications(held: Held) -> list[RenderableType]:
    worst = sorted(held.applications, key=lambda one: (keeps(one), -(one.p99_s or 0.0) / one.goal_s))
    rows = ((plain(one.name), one.quality, _goal(one), *_figures(one)) for one in worst[:MOST_ROWS])
    heads = ("application", "class", "goal", "p50", "p99", "late", _worst(held), "used", "waiting")
    more = len(worst) - MOST_ROWS
    rest = [Text(f"and {more} more applications that are nearer to their goals (--json names all)")] if more > 0 else []
    return [_right(simple_table(heads, rows), 3), *rest]


def _figures(one: Figures) -> tuple[str | Text, ...]:
    return (
        _brief(one.p50_s), _late(one), share(one.violations), share(one.worst), share(one.used), _count(one.waiting),
    )  # fmt: skip


def _late(one: Figures) -> Text:
    return Text(_brief(one.p99_s), style="" if keeps(one) else "yellow")


def _worst(held: Held) -> str:
    """Return the heading of the worst window, as long as it is: at least one interval."""
    return f"worst {_time(held.window_s)}"


def _gave_way(ways: Sequence[GaveWay]) -> list[RenderableType]:
    if not ways:
        return [Text("no goal gave way")]
    rows = [(_time(one.begin_s), _time(one.end_s), plain(one.machine), plain(one.because)) for one in ways[:MOST_ROWS]]
    more = len(ways) - MOST_ROWS
    rest = [Text(f"and {more} more times (--json names all)")] if more > 0 else []
    return [simple_table(("gave way from", "to", "machine", "at the worst moment"), rows), *rest]


def _percent(part: float) -> str:
    """Return a part as a number of percent, never rounding what is not nothing to nothing."""
    return share(part).removesuffix(" %")


def _right(table: Table, first: int) -> Table:
    table.columns[0].no_wrap = True
    for column in table.columns[first:]:
        column.justify = "right"
    return table


def _goal(one: Figures) -> str:
    if one.goal_s == one.most_goal_s:
        return _time(one.goal_s)
    return f"{_time(one.goal_s)} to {_time(one.most_goal_s)}"


def _brief(value_s: float | None) -> str:
    """Return a time to three digits: percentiles are within 5 % of what they name."""
    return "-" if value_s is None else _time(float(f"{value_s:.3g}"))


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else show(value_s, "time")


def _count(value: float) -> str:
    return f"{value:.0f}" if value < 1e4 else f"{value:,.0f}".replace(",", " ")
