"""How do held goals look to a person?"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headwater.model.report import listed
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
            f" simulated in {_time(wall_s)}, seed {simulated.seed}, {_decisions(held)}",
        ),
        _classes(held),
        *_applications(held),
        *_gave_way(held),
    )


def _decisions(held: Held) -> str:
    count = "1 decision" if held.steps == 1 else f"{held.steps} decisions"
    return f"{count}, every {_time(held.every_s)}"


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
                *(
                    cell
                    for one in held.classes
                    for cell in (_late(held, one), _percent(one.violations), _percent(one.worst))
                ),
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
            f": {_time(simulated.seconds)} with each of {len(rows)} policies, seed {simulated.seed}"
            if len(rows) > 1
            else f": {_time(simulated.seconds)}, seed {simulated.seed}",
        ),
        Text(f"goals: {goals}; worst: of any {_time(first.window_s)}"),
        _right(table, 1),
    )


def _classes(held: Held) -> RenderableType:
    rows = (
        (one.name, f"{kept(held, one.name)} of {one.applications}", _goal(one), *_figures(held, one))
        for one in held.classes
    )
    return _right(
        simple_table(("class", "keep it", "goal", "p50", "p99", "late", _worst(held), "used", "waiting"), rows), 3
    )


def _applications(held: Held) -> list[RenderableType]:
    worst = sorted(held.applications, key=lambda one: (keeps(one), -(one.p99_s or 0.0) / one.goal_s))
    rows = ((plain(one.name), one.quality, _goal(one), *_figures(held, one)) for one in worst[:MOST_ROWS])
    heads = ("application", "class", "goal", "p50", "p99", "late", _worst(held), "used", "waiting")
    more = len(worst) - MOST_ROWS
    rest = [Text(f"and {more} more that do better by their goals (--json names all)")] if more > 0 else []
    return [_right(simple_table(heads, rows), 3), *rest]


def _figures(held: Held, one: Figures) -> tuple[str | Text, ...]:
    return (
        _brief(held, one.p50_s), _late(held, one), share(one.violations), share(one.worst), share(one.used),
        _count(one.waiting),
    )  # fmt: skip


def _late(held: Held, one: Figures) -> Text:
    return Text(_brief(held, one.p99_s), style="" if keeps(one) else "yellow")


def _worst(held: Held) -> str:
    """Return the heading of the worst window, as long as it is: at least one interval."""
    return f"worst {_time(held.window_s)}"


def _gave_way(held: Held) -> list[RenderableType]:
    """Return which goals gave way, and what else a reader of the tables would ask."""
    idle = [plain(one.name) for one in held.applications if one.waiting >= 1.0 and one.done <= 0.0]
    more: list[RenderableType] = [
        Text(f"nothing of {listed(idle)} was processed: is it on a machine that runs?", style="yellow")
    ] if idle else []  # fmt: skip
    dropped = sum(one.dropped for one in held.applications)
    if dropped >= 1.0:
        text = f"{_count(dropped)} records were dropped, because queues were full or operators gone: they are in no"
        more.append(Text(f"{text} column", style="yellow"))
    ways = held.gave_way
    if not ways:
        missed = sum(not keeps(one) for one in held.applications)
        is_told = f"{missed} of {len(held.applications)} goals were missed, and {held.policy} told of none before"
        return [*more, Text(is_told if missed else "no goal gave way")]
    return [*more, *_ways(ways)]


def _ways(ways: Sequence[GaveWay]) -> list[RenderableType]:
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


def _brief(held: Held, value_s: float | None) -> str:
    """Return a time to three digits: percentiles are within 5 % of what they name, and a step hides what is in it."""
    if value_s is None:
        return "-"
    return f"< {_time(held.step_s)}" if value_s < held.step_s else _time(float(f"{value_s:.3g}"))


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else show(value_s, "time")


def _count(value: float) -> str:
    return f"{value:.0f}" if value < 1e4 else f"{value:,.0f}".replace(",", " ")
