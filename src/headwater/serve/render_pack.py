"""How do packings look to a person? Takes values, gives things that rich can print."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from headwater.model.units import show
from headwater.model.workload import Workload
from headwater.pack.result import Packing, Unpackable
from headwater.serve.plain import plain
from headwater.serve.render import MARK, share, simple_table

__all__ = ["compared", "packed", "unpackable"]

MOST_MACHINES = 40  # rows of the table
MOST_NAMES = 12  # operators named in one row


def packed(workload: Workload, packing: Packing, wall_s: float) -> RenderableType:
    """Return a packing, how good it is and why."""
    measured = packing.measured
    title = Text.assemble(
        (f"{len(packing.assignment)} operators on {packing.used} of {workload.machines} machines", "bold"),
        ", packed by ",
        (packing.method, "bold"),
        f" in {show(wall_s, 'time')}",
    )
    rows = [
        (
            str(machine.number),
            _named(machine.operators),
            Text(f"{machine.peak:.1f} of {machine.capacity:g}", style="yellow" if machine.is_over else ""),
            share(machine.utilisation),
            share(machine.overload) if machine.is_over else "-",
        )
        for machine in measured.machines[:MOST_MACHINES]
    ]
    parts: list[RenderableType] = [
        title,
        simple_table(("machine", "operators", "peak", "utilisation", "overload"), rows),
    ]
    if len(measured.machines) > MOST_MACHINES:
        parts.append(Text(f"and {len(measured.machines) - MOST_MACHINES} more machines (--json or --out gives all)"))
    parts.append(
        Text(
            f"used {packing.used}   utilisation {share(packing.utilisation)}   overload {share(packing.overload)}"
            + ("" if workload.is_plain else f"   cost {packing.cost:.6g}")
        )
    )
    parts.append(_quality(workload, packing))
    over = [machine for machine in measured.machines if machine.is_over]
    if over:
        allowed = "" if workload.overload_price is None else ", which has a price here"
        parts.append(Text(f"! {len(over)} machines exceed their capacity at some time{allowed}", style="yellow"))
    parts += [Text("why", style="bold"), *(Text(f"  - {plain(each)}") for each in packing.because)]
    return Group(*parts)


def compared(
    workload: Workload, answers: Sequence[tuple[str, Packing | Unpackable | str, float]], best: Packing | None
) -> RenderableType:
    """Return methods side by side, the best one marked."""
    rows: list[tuple[str | Text, ...]] = []
    notes = []
    for name, found, wall_s in answers:
        if isinstance(found, Packing):
            rows.append(
                (
                    MARK if found is best else "",
                    Text(name, style="bold green" if found is best else ""),
                    str(found.used),
                    f"{found.cost:.6g}",
                    share(found.utilisation),
                    share(found.overload),
                    f"{found.lower_bound:.6g}",
                    show(wall_s, "time") + ("*" if found.cut_short else ""),
                    "yes" if found.proved else "no",
                )
            )
            if found.cut_short:
                notes.append(f"{name}: * cut short by --seconds")
            continue
        rows.append(("", Text(name, style="dim"), "-", "-", "-", "-", "-", "-", "-"))
        notes.append(f"{name}: {found if isinstance(found, str) else found.reasons[0]}")
    heads = ("", "method", "used", "cost", "utilisation", "overload", "bound", "time", "proved")
    title = f"{len(workload.operators)} operators, {workload.machines} machines"
    return Group(Text(title, style="bold"), simple_table(heads, rows), *(Text(plain(each)) for each in notes))


def unpackable(answer: Unpackable) -> RenderableType:
    """Return why there is no packing."""
    head = "no packing exists" if answer.is_proven else "no packing was found"
    return Group(Text(head, style="bold red"), *(Text(f"  - {plain(each)}") for each in answer.reasons))


def _quality(workload: Workload, packing: Packing) -> Text:
    unit = "machines" if workload.is_plain else "cost"
    line = Text(f"lower bound {packing.lower_bound:.6g} {unit}   ")
    if packing.proved:
        line.append("proven: nothing better exists", style="bold green")
    elif not packing.measured.is_allowed:
        line.append("not allowed: it overloads, and overload has no price", style="yellow")
    else:
        line.append(f"at most {share(packing.gap)} from the best possible", style="yellow")
    if packing.cut_short:
        line.append("   cut short by --seconds", style="yellow")
    return line


def _named(names: Sequence[str]) -> str:
    more = "" if len(names) <= MOST_NAMES else f" and {len(names) - MOST_NAMES} more"
    return ", ".join(map(plain, names[:MOST_NAMES])) + more
