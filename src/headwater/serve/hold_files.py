"""Which files do held goals leave? JSON for programs, CSV for spreadsheets, a picture for people."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from typing import TYPE_CHECKING

import numpy as np

from headwater.model.units import show
from headwater.serve import disk
from headwater.serve.hold_wire import held_object
from headwater.serve.plain import plain
from headwater.sim.held import Figures, Held

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLUMNS", "draw", "write"]

COLUMNS = ("used", "share", "demand", "p99_s", "violations", "queue")
COLOURS = {"gold": "#d4a017", "silver": "#6c8ebf", "bronze": "#a0522d"}
OTHER = "#5f6c7b"
GRID, DIM = "#d9dee4", "#5f6c7b"
MOST_EVENTS = 12  # lines in a picture
SIZE = (9.0, 8.2)  # inches
WORDS, LINE = 0.17, 0.06  # of the picture's width and of a part's height: room for words about what gives way
MOST_ASKED = 250.0  # percent of the machines that are drawn
LONGEST_NAME = 60  # characters of a scenario's name


def write(held: Held, folder: str) -> None:
    """Write result.json, control.csv and control.png into a folder that is there."""
    text = json.dumps(held_object(held), indent=1, allow_nan=False)
    disk.write_text(os.path.join(folder, "result.json"), text + "\n")
    disk.write_text(os.path.join(folder, "control.csv"), _table(held))
    draw(held, os.path.join(folder, "control.png"))


def _table(held: Held) -> str:
    """Return a row for each interval and class; what is not known or has no limit is empty."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["time_s", "class", *COLUMNS])
    values = [getattr(held.course, column) for column in COLUMNS]
    for row, at_s in enumerate(held.course.times_s.tolist()):
        for k, one in enumerate(held.classes):
            cells = [float(column[row, k]) for column in values]
            rows.writerow([repr(at_s), one.name, *(repr(cell) if math.isfinite(cell) else "" for cell in cells)])
    return text.getvalue()


def draw(held: Held, path: str) -> None:
    """Draw latency, use of the machines and what waits over time, by class, into a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - a second to load
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    late, used, queue = figure.subplots(3, 1, sharex=True, height_ratios=(1.35, 1.0, 1.0))
    _draw_late(late, held)
    _draw_used(used, held)
    _draw_queue(queue, held)
    end_s = held.simulated.seconds
    for place in (late, used, queue):
        _draw_times(place, held)
        place.grid(visible=True, axis="y", color=GRID, linewidth=0.6)
        place.set_axisbelow(True)
        place.set_xlim(0.0, end_s)
        for side in ("top", "right"):
            place.spines[side].set_visible(False)
    queue.set_xlabel("s")
    handles, labels = late.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    name = held.simulated.scenario
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    title = f"{name} with {held.policy}, seed {held.simulated.seed}"
    figure.suptitle(plain(title), fontweight="bold")
    with disk.replacing(path) as passing:
        figure.savefig(passing, format="png", dpi=130)


def _draw_late(place: Axes, held: Held) -> None:
    times, found = held.course.times_s, np.maximum(held.course.p99_s, held.step_s) * 1e3
    for k, one in enumerate(held.classes):
        place.plot(times, found[:, k], color=_colour(one), linewidth=1.8, label=_named(one))
        for goal_s in {one.goal_s, one.most_goal_s}:
            place.axhline(goal_s * 1e3, color=_colour(one), linewidth=1.1, linestyle=(0, (5, 3)))
    free_s = {one.name: 0.0 for one in held.classes}  # from when on there is room for words about each class
    rows = {one.name: row for row, one in enumerate(held.classes)}
    for way in held.gave_way:
        if way.begin_s >= free_s[way.quality]:
            free_s[way.quality] = way.begin_s + WORDS * held.simulated.seconds
            place.text(
                way.begin_s, 0.99 - LINE * rows[way.quality], f" {plain(way.quality)} gives way", fontsize=8,
                transform=place.get_xaxis_transform(), color=COLOURS.get(way.quality, OTHER), va="top", clip_on=True,
                bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0.0, "pad": 0.5},
            )  # fmt: skip
    place.set_yscale("log")
    place.yaxis.set_major_formatter(lambda value, _: show(value / 1e3, "time"))
    place.set_title("99th percentile of latency, goals dashed", loc="left", fontsize=10)


def _draw_used(place: Axes, held: Held) -> None:
    course = held.course
    every_s = course.times_s[0] if len(course.times_s) else 0.0
    highest = 110.0
    times = np.concatenate(([0.0], course.times_s))
    bands = np.vstack((course.used[:1], course.used)).T  # of the interval that ends at each time
    place.stackplot(
        times, bands * 100.0, step="pre", colors=[_colour(one) for one in held.classes], alpha=0.85, linewidth=0
    )
    if every_s > 0.0:
        asked = course.demand.sum(axis=1) * 100.0
        place.step(course.times_s, asked, where="post", color="black", linewidth=1.3)
        highest = max(highest, min(MOST_ASKED, 1.05 * float(asked.max())))
    place.axhline(100.0, color="black", linewidth=0.8)
    place.set_ylim(0.0, highest)
    place.yaxis.set_major_formatter(lambda value, _: f"{value:g} %")
    place.set_title("used of the machines; line: what goals ask for", loc="left", fontsize=10)


def _draw_queue(place: Axes, held: Held) -> None:
    course = held.course
    for k, one in enumerate(held.classes):
        place.plot(course.times_s, course.queue[:, k], color=_colour(one), linewidth=1.8)
    place.set_yscale("symlog", linthresh=10.0)
    place.set_ylim(0.0, max(10.0, 1.6 * float(course.queue.max(initial=0.0))))
    place.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace(",", " "))
    place.set_title("records that wait (even steps up to 10, powers of ten above)", loc="left", fontsize=10)


def _draw_times(place: Axes, held: Held) -> None:
    """Mark when something happened, and when goals gave way."""
    moments = sorted({one.at_s for one in held.simulated.moments})
    for at_s in moments[:MOST_EVENTS]:
        place.axvline(at_s, color=DIM, linewidth=0.9, linestyle=(0, (1, 2)))
    for one in held.gave_way:
        colour = COLOURS.get(one.quality, OTHER)
        place.axvspan(one.begin_s, one.end_s, color=colour, alpha=0.10, linewidth=0, zorder=0)


def _colour(one: Figures) -> str:
    return COLOURS.get(one.quality, OTHER)


def _named(one: Figures) -> str:
    goal = show(one.goal_s, "time")
    return f"{one.name} (goal {goal})" if one.goal_s == one.most_goal_s else (
        f"{one.name} (goals {goal} to {show(one.most_goal_s, 'time')})"
    )  # fmt: skip
