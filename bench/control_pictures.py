"""What do the figures of `bench.control` look like?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from bench.control_world import CLASSES

__all__ = ["draw"]

COLOURS = {"gold": "#b8860b", "silver": "#7a8793", "bronze": "#a0522d"}


def draw(found: dict[str, Any], folder: Path) -> None:
    """Draw what was measured."""
    if found.get("burst"):
        _burst(found["burst"], folder / "burst.png")
    if found.get("errors"):
        _errors(found["errors"], folder / "errors.png")


def _burst(rows: list[dict[str, Any]], file: Path) -> None:
    count = max(row["count"] for row in rows)
    rows = [row for row in rows if row["count"] == count and row["traffic"] == "high"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    for k, one in enumerate(CLASSES):
        at = [i + (k - 1) * 0.27 for i in range(len(rows))]
        left.bar(at, [row["burst"][k]["p99_s"] for row in rows], 0.25, color=COLOURS[one.name], label=one.name)
        left.axhline(one.goal_s, color=COLOURS[one.name], linestyle="--", linewidth=1)
    left.set_yscale("log")
    left.set_xticks(range(len(rows)), [row["policy"] for row in rows], rotation=20)
    left.set_ylabel("p99 of latency in the burst, s")
    left.set_title(f"{count} applications, high traffic (dashed: goals)", fontsize=10)
    left.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    shown = {row["policy"]: row for row in rows if row["policy"] in {"equal", "predictive"}}
    for (policy, row), style in zip(shown.items(), ("--", "-"), strict=False):
        for k, one in enumerate(CLASSES):
            right.plot([second[k] for second in row["shares"]], style, color=COLOURS[one.name],
                       label=f"{one.name}, {policy}")  # fmt: skip
    if shown:
        right.axvspan(*next(iter(shown.values()))["burst_s"], color="#dddddd", zorder=0)
        right.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    right.set_xlabel("seconds (grey: the burst of bronze)")
    right.set_ylabel("part of the machines used")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _errors(rows: list[dict[str, Any]], file: Path) -> None:
    rows = [row for row in rows if row["kind"] == "chance" and row["load"] == "steady"]
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for k, one in enumerate(CLASSES):
        axes.plot([row["error"] * 100 for row in rows], [row["p99_worse"][k] * 100 for row in rows], "o-",
                  color=COLOURS[one.name], label=one.name)  # fmt: skip
    axes.axhline(5.5, color="#555555", linestyle="--", linewidth=1, label="paper 003, 50 % error")
    axes.set_xlabel("error put into forecasts, %")
    axes.set_ylabel("p99 of latency worse by, %")
    axes.legend(fontsize=8)
    figure.savefig(file, dpi=110)
    plt.close(figure)
