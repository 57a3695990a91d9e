"""How does a simulation look to a person? Tables at the end, and a table that is renewed while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from headwater.model.units import show
from headwater.serve.plain import plain
from headwater.serve.render import share, simple_table
from headwater.sim.arrays import Floats
from headwater.sim.result import Moment, Simulated

__all__ = ["Screen", "compared", "shown", "spark"]

MOST_ROWS = 20
MOST_MOMENTS = 12
LEVELS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 24


def shown(result: Simulated, wall_s: float) -> RenderableType:
    """Return what came of a scenario."""
    totals = result.totals
    parts: list[RenderableType] = [
        Text.assemble(
            (plain(result.scenario), "bold"),
            f": {_time(result.seconds)} simulated in {_time(wall_s)}, seed {result.seed} "
            f"({_count(result.operator_steps)} operator-steps)",
        ),
        *_moments(result.moments),
        *_machines(result),
        *_operators(result),
        Text.assemble(
            ("throughput ", "dim"), f"{totals.throughput_rps:.4g}/s", ("   latency p50 ", "dim"), _time(totals.p50_s),
            (" p99 ", "dim"), _time(totals.p99_s), ("   dropped ", "dim"), _count(totals.dropped),
            ("   waiting ", "dim"), _count(totals.waiting), ("   cost ", "dim"), f"{totals.cost:.4g}",
        ),
    ]  # fmt: skip
    return Group(*parts)


def compared(title: str, rows: Sequence[tuple[str, Simulated, float]]) -> RenderableType:
    """Return methods side by side."""
    heads = ("method", "machines", "full", "overloaded", "longest queue", "p50", "p99", "dropped", "moved", "cost")
    table = simple_table(
        heads,
        (
            (
                method,
                str(result.totals.machines_used),
                share(result.totals.utilisation),
                _time(result.totals.overloaded_s),
                _count(result.totals.queue_max),
                _time(result.totals.p50_s),
                _time(result.totals.p99_s),
                _count(result.totals.dropped),
                str(sum(one.moved for one in result.moments)),
                f"{result.totals.cost:.4g}",
            )
            for method, result, _ in rows
        ),
    )
    for column in table.columns[1:]:
        column.justify = "right"
    return Group(Text(plain(title), style="bold"), table)


def spark(values: Floats, width: int = SPARK_WIDTH) -> str:
    """Return a small plot of one line: the last values, from 0 to their greatest.

    >>> spark(np.array([0.0, 1.0, 2.0, 3.0]))
    '▁▃▆█'
    """
    last = values[-width:]
    most = float(last.max(initial=0.0))
    if most <= 0.0:
        return LEVELS[0] * len(last)
    return "".join(LEVELS[min(len(LEVELS) - 1, int(value / most * len(LEVELS)))] for value in last)


class Screen:
    """Shows a run while it goes on; nothing where the answer is JSON or there is no terminal."""

    def __init__(self, as_json: bool) -> None:
        """Choose the form."""
        console = Console(markup=False, highlight=False, emoji=False)
        self._live = None if as_json or not console.is_terminal else Live(console=console, transient=True)

    def __enter__(self) -> Screen:
        """Begin to show."""
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the table away."""
        if self._live is not None:
            self._live.stop()

    def show(self, result: Simulated) -> None:
        """Show how it is."""
        if self._live is not None:
            self._live.update(_present(result))


def _present(result: Simulated) -> RenderableType:
    series = result.series
    rows = []
    for number, one in list(enumerate(result.operators))[:MOST_ROWS]:
        came = series.arrivals_rps[:, number] if series is not None else np.zeros(0)
        queue = series.queue_max[:, number] if series is not None else np.zeros(0)
        rate = f"{came[-1]:.4g}/s" if len(came) else "-"
        rows.append((plain(one.name), rate, spark(came), _count(one.waiting), spark(queue), _time(one.p99_s)))
    machines = []
    for number, machine in list(enumerate(result.machines))[:MOST_ROWS]:
        full = series.utilisation[:, number] if series is not None else np.zeros(0)
        machines.append((plain(machine.name), share(float(full[-1])) if len(full) else "-", spark(full)))
    return Group(
        Text(f"{_time(result.seconds)}   {_last(result.moments)}", style="bold"),
        simple_table(("operator", "arrivals", "", "waiting", "", "p99"), rows),
        simple_table(("machine", "utilisation", ""), machines),
    )


def _last(moments: Sequence[Moment]) -> str:
    return plain(moments[-1].text) if moments else ""


def _moments(moments: Sequence[Moment]) -> list[RenderableType]:
    if not moments:
        return []
    rows = []
    for one in moments[:MOST_MOMENTS]:
        moved = f", {one.moved} moved" if one.placement is not None else ""
        because = f" ({one.because})" if one.because else ""
        rows.append((_time(one.at_s), plain(f"{one.text}{moved}{because}")))
    if len(moments) > MOST_MOMENTS:
        rows.append(("", f"and {len(moments) - MOST_MOMENTS} more (--json names all)"))
    return [simple_table(("at", "what happened"), rows)]


def _machines(result: Simulated) -> list[RenderableType]:
    used = sorted((one for one in result.machines if one.used_s > 0.0), key=lambda one: -one.overloaded_s)
    rows = [
        (plain(one.name), _time(one.used_s), share(one.utilisation), f"{one.overload_max:.3g}",
         _time(one.overloaded_s), f"{one.cost:.4g}")
        for one in sorted(used[:MOST_ROWS], key=lambda one: one.name)
    ]  # fmt: skip
    table = simple_table(("machine", "used", "utilisation", "demand max", "overloaded", "cost"), rows)
    more = [Text(f"and {len(used) - MOST_ROWS} more machines (--json names all)")] if len(used) > MOST_ROWS else []
    return [table, *more]


def _operators(result: Simulated) -> list[RenderableType]:
    chosen = sorted(result.operators, key=lambda one: -one.queue_max)[:MOST_ROWS]
    rows = [
        (plain(one.name), f"{one.throughput_rps:.4g}/s", _count(one.queue_mean), _count(one.queue_max),
         _count(one.waiting), _time(one.p50_s), _time(one.p99_s), _count(one.dropped))
        for one in sorted(chosen, key=lambda one: one.name)
    ]  # fmt: skip
    heads = ("operator", "throughput", "queue", "most", "at the end", "p50", "p99", "dropped")
    more = len(result.operators) - MOST_ROWS
    rest = [Text(f"and {more} more operators with shorter queues (--json names all)")] if more > 0 else []
    return [simple_table(heads, rows), *rest]


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else show(value_s, "time")


def _count(value: float) -> str:
    return f"{value:.4g}" if value < 1e4 else f"{value:,.0f}".replace(",", " ")
