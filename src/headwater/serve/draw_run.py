"""What did a run look like?

Draws two panels over time, from the values that `progress` held: latency from birth of what each fragment
writes, and records written a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.serve import disk
from headwater.serve.plain import plain

__all__ = ["draw_run"]

WIDTH, HEIGHT = 11.0, 4.6  # inches


def draw_run(title: str, history: Sequence[Mapping[str, Any]], path: str) -> None:
    """Write the picture of a run; history holds the events `progress` in order."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - a second to load
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    FigureCanvasSVG(figure) if path.endswith(".svg") else FigureCanvasAgg(figure)
    ages, rates = figure.subplots(1, 2)
    times = [event["at_s"] for event in history]
    names = list(dict.fromkeys(one["id"] for event in history for one in event["fragments"]))
    for number, name in enumerate(names):
        rows = [next((one for one in event["fragments"] if one["id"] == name), None) for event in history]
        site = next(one["site"] for one in rows if one is not None)
        label, colour = plain(f"{name} @ {site}"), f"C{number % 10}"
        p50_ms = [math.nan if one is None or one["p50_s"] is None else max(one["p50_s"] * 1000, 0.5) for one in rows]
        if not all(map(math.isnan, p50_ms)):
            ages.plot(times, p50_ms, color=colour, label=label)
        rates.plot(times, [0 if one is None else one["out_rps"] for one in rows], color=colour, label=label)
    ages.set(title="latency from birth, median", xlabel="seconds", ylabel="ms", yscale="log")
    rates.set(title="records written a second", xlabel="seconds", ylabel="records/s")
    for panel in (ages, rates):
        panel.grid(visible=True, color="#d9dee4", linewidth=0.6)
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    if names:
        rates.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.suptitle(plain(title), fontweight="bold")
    with disk.replacing(path) as passing:
        figure.savefig(passing, format=path.rpartition(".")[2].lower(), dpi=130)
