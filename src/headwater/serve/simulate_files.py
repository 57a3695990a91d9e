"""Which files does a simulation leave? JSON for programs, CSV for spreadsheets, a picture for people."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence

import numpy as np

from headwater.serve import disk
from headwater.serve.bench_report import Panel, Picture, draw
from headwater.serve.simulate_wire import result_object
from headwater.sim.arrays import Floats
from headwater.sim.result import Series, Simulated

__all__ = ["picture", "write"]

MOST_LINES = 7  # of one plot
OPERATOR_COLUMNS = ("arrivals_rps", "throughput_rps", "queue_mean", "queue_max", "wait_s")
MACHINE_COLUMNS = ("utilisation", "overload", "overload_max")


def write(result: Simulated, folder: str) -> None:
    """Write result.json, operators.csv, machines.csv and simulation.png into a folder that is there."""
    text = json.dumps(result_object(result), indent=1, allow_nan=False)
    disk.write_text(os.path.join(folder, "result.json"), text + "\n")
    series = result.series
    if series is None:
        return
    operators = _table("operator", series.operators, series, OPERATOR_COLUMNS)
    disk.write_text(os.path.join(folder, "operators.csv"), operators)
    disk.write_text(os.path.join(folder, "machines.csv"), _table("machine", series.machines, series, MACHINE_COLUMNS))
    draw(picture(result, series), os.path.join(folder, "simulation.png"))


def picture(result: Simulated, series: Series) -> Picture:
    """Return what happened when: load, queues and waiting of operators, utilisation and overload of machines."""
    busiest = _greatest(series.queue_max if series.queue_max.any() else series.arrivals_rps)
    fullest = _greatest(series.overload_max)
    times = series.times_s
    panels = (
        Panel("arrivals", "lines", "records/s", _lines(times, series.operators, series.arrivals_rps, busiest), "s"),
        Panel("throughput", "lines", "records/s", _lines(times, series.operators, series.throughput_rps, busiest), "s"),
        Panel("queue", "lines", "records", _lines(times, series.operators, series.queue_max, busiest), "s"),
        Panel("waiting", "lines", "s", _lines(times, series.operators, series.wait_s, busiest), "s"),
        Panel("utilisation", "lines", "of capacity", _lines(times, series.machines, series.utilisation, fullest), "s"),
        Panel("demand", "lines", "of capacity", _lines(times, series.machines, series.overload, fullest), "s"),
    )
    return Picture("simulation", f"{result.scenario}, seed {result.seed}", panels)


def _greatest(values: Floats) -> list[int]:
    most = values.max(axis=0, initial=0.0)
    return sorted(np.argsort(-most, kind="stable")[:MOST_LINES].tolist())


def _lines(
    times: Floats, names: Sequence[str], values: Floats, chosen: Sequence[int]
) -> Mapping[str, list[tuple[float, float, float]]]:
    return {names[i]: [(float(t), float(v), 0.0) for t, v in zip(times, values[:, i], strict=True)] for i in chosen}


def _table(kind: str, names: Sequence[str], series: Series, columns: Sequence[str]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["time_s", kind, *columns])
    values = [getattr(series, column) for column in columns]
    for row, at_s in enumerate(series.times_s):
        for number, name in enumerate(names):
            rows.writerow([repr(float(at_s)), name, *(repr(float(one[row, number])) for one in values)])
    return text.getvalue()
