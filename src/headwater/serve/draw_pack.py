"""How does a packing look? The signals on each machine, stacked, with its capacity: figures 6 and 7 of paper 004."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headwater.model.workload import Sinusoid, Workload
from headwater.pack.measure import resolved, sampled, span_of
from headwater.pack.result import Packing
from headwater.serve.plain import plain

__all__ = ["draw"]

MOST_MACHINES = 24  # panels of one picture
BESIDE = 4  # panels in a row at most
MOST_TIMES = 400  # time units of a panel
PANEL = (3.4, 2.4)  # inches
COLOURS = ("#2a6f97", "#e07a5f", "#6a994e", "#9d6b9e", "#bc9a3c", "#5f6c7b", "#c05780", "#4f9d9d")


def draw(workload: Workload, packing: Packing, path: str, title: str) -> None:
    """Draw the machines of a packing into an .svg or .png file, the first of them if they are many."""
    workload = resolved(workload)
    machines = packing.measured.machines[:MOST_MACHINES]
    columns = min(BESIDE, len(machines))
    rows = -(-len(machines) // columns)
    figure = Figure(figsize=(PANEL[0] * columns + 0.4, PANEL[1] * rows + 0.7), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.subplots(rows, columns, squeeze=False)
    times, loads = _sampled(workload)
    top = 1.12 * max(max(machine.peak, machine.capacity) for machine in machines)
    for place, machine in zip(places.flat, machines, strict=False):
        parts = [loads[name] for name in machine.operators]
        colours = [COLOURS[i % len(COLOURS)] for i in range(len(parts))]
        place.stackplot(times, parts, colors=colours, alpha=0.85, linewidth=0)
        base = np.zeros(len(times))
        for name, part in zip(machine.operators[:6], parts, strict=False):
            place.text(times[len(times) // 2], float((base + part / 2)[len(times) // 2]), plain(name), fontsize=7,
                       ha="center", va="center", color="white")  # fmt: skip
            base = base + part
        place.axhline(machine.capacity, color="black", linewidth=1.0, linestyle="--")
        place.set(xlim=(times[0], times[-1]), ylim=(0, top))
        over = ", overloaded" if machine.is_over else ""
        place.set_title(f"machine {machine.number}: peak {machine.peak:.0f}{over}", fontsize=9,
                        color="#b3261e" if machine.is_over else "black")  # fmt: skip
        place.tick_params(labelsize=7)
        for side in ("top", "right"):
            place.spines[side].set_visible(False)
    for place in list(places.flat)[len(machines) :]:
        place.set_visible(False)
    more = "" if len(packing.measured.machines) <= MOST_MACHINES else f" (the first {MOST_MACHINES} shown)"
    figure.suptitle(plain(title) + more, fontweight="bold", fontsize=11)
    figure.supxlabel("time units", fontsize=9)
    figure.supylabel("records per time unit", fontsize=9)
    figure.savefig(path, format="svg" if path.lower().endswith(".svg") else "png", dpi=130)


def _sampled(workload: Workload) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return times, and the load of each operator at them."""
    span = span_of(workload)
    if span.period is not None:
        times = np.linspace(0.0, 2.0 * span.period, 161)
        waves = {
            name: np.array([signal.at(float(time)) for time in times])
            for name, signal in workload.operators.items()
            if isinstance(signal, Sinusoid)
        }
        return times, waves
    count = min(MOST_TIMES, max(2, span.samples))
    return np.arange(count), {name: sampled(signal, count) for name, signal in workload.operators.items()}
