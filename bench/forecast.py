"""How good are the forecasts of arrival rates, and how fast?

    python -m bench.forecast [--traces DIR] [--out out/forecast.json]

On each measured trace (CSV files with a column `value`): errors one and five steps ahead of the last value, of our
model alone, of our combination, and of statsmodels' ARIMA(3, 1, 1), all on the second half. Ours learn as they go and
have never seen the trace; statsmodels is fitted to the first half and then only filters. Then the time of one step for
many applications. Prints tables and writes JSON. Without traces only the times are measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import measure
from headwater.control.forecast import Floats, Settings, ahead, begin, observe

__all__ = ["main"]

OUT = "out/forecast.json"
TRACES = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "traces"
STEPS = 5
SHOWN = (1, STEPS)
COUNTS = (60, 400, 1000, 4000)
WITHIN = 1.959964  # deviations that hold 95 % of a normal distribution
Paths = tuple[Floats, Floats]  # means and deviations of the next steps: step, then origin; the origin is known


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what there is; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.forecast", description="Measure forecasts of rates.")
    parser.add_argument("--traces", metavar="DIR", type=Path, default=TRACES, help="CSV files timestamp,value")
    parser.add_argument("--out", metavar="FILE.json", type=Path, default=Path(OUT), help=f"figures (default {OUT})")
    asked = parser.parse_args(arguments)
    files = sorted(asked.traces.glob("*.csv"))
    if not files:
        print(f"No traces in {asked.traces}: errors are left out, name a folder with --traces.", file=sys.stderr)
    report: dict[str, Any] = {"machine": measure.machine(), "sources": measure.sources()}
    report["errors"] = [row for file in files for row in _errors(file)]
    report["times"] = [_times(count) for count in COUNTS]
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(report, indent=1), encoding="utf-8")
    console = Console(width=None if sys.stdout.isatty() else 140)
    if report["errors"]:
        console.print(_shown_errors(report["errors"]))
    console.print(_shown_times(report["times"]))
    console.print(f"The figures are in {asked.out}.", highlight=False)
    return 0


def _errors(file: Path) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8", newline="") as lines:
        rates = np.array([float(row["value"]) for row in csv.DictReader(lines)])
    half = len(rates) // 2
    found = []
    for name, forecast in METHODS.items():
        begun_s = time.process_time()
        mean, deviation = forecast(rates, half)
        row: dict[str, Any] = {"trace": file.stem, "readings": len(rates), "method": name}
        row["cpu_s"] = round(time.process_time() - begun_s, 3)
        for step in SHOWN:
            # Origin i is the reading half - 1 + i; every method is judged on the same readings.
            origins = len(rates) - half - STEPS + 1
            coming = rates[half - 1 + step :][:origins]
            errors = coming - mean[step - 1, :origins]
            row[f"mae_{step}"] = float(np.mean(np.abs(errors)))
            row[f"rmse_{step}"] = float(np.sqrt(np.mean(errors**2)))
            row[f"coverage_{step}"] = float(np.mean(np.abs(errors) <= WITHIN * deviation[step - 1, :origins]))
        found.append(row)
    return found


def _naive(rates: Floats, half: int) -> Paths:
    """Repeat the last value; the deviation is that of all changes before, as of a random walk."""
    last = rates[half - 1 : -1]
    squares = np.cumsum(np.diff(rates) ** 2) / np.arange(1, len(rates))
    spread = np.sqrt(np.arange(1, STEPS + 1)[:, None] * squares[half - 2 : len(rates) - 2])
    return np.tile(last, (STEPS, 1)), spread


def _ours(settings: Settings) -> Callable[[Floats, int], Paths]:
    def forecast(rates: Floats, half: int) -> Paths:
        history, known = begin(1, settings), np.ones(1, bool)
        found = []
        for i, rate in enumerate(rates[:-1]):
            history = observe(history, np.array([rate]), known)
            if i >= half - 1:
                found.append(ahead(history, STEPS))
        return (
            np.concatenate([each.mean_rps for each in found], axis=1),
            np.concatenate([each.deviation_rps for each in found], axis=1),
        )

    return forecast


def _statsmodels(rates: Floats, half: int) -> Paths:
    """Fit to the first half, then filter on: coefficients stay, states follow the readings."""
    from statsmodels.tsa.arima.model import ARIMA  # noqa: PLC0415 - takes a second to load

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # starting values that are not stationary: the fit begins at zeros then
        fit = ARIMA(rates[:half], order=(3, 1, 1)).fit()
        whole = fit.append(rates[half:])
    # The filter's state after each reading, taken through the model's own matrices step by step.
    space, filtered = whole.model.ssm, whole.filter_results
    design, transition = space["design"], space["transition"]
    noise = space["selection"] @ space["state_cov"] @ space["selection"].T
    state = filtered.filtered_state[:, half - 1 : -1]
    spread = filtered.filtered_state_cov[:, :, -1]  # settled long before the second half
    mean, deviation = [], []
    for _ in range(STEPS):
        state = transition @ state
        spread = transition @ spread @ transition.T + noise
        mean.append((design @ state)[0])
        deviation.append(np.full(state.shape[1], np.sqrt((design @ spread @ design.T)[0, 0])))
    return np.array(mean), np.array(deviation)


METHODS: dict[str, Callable[[Floats, int], Paths]] = {
    "last value": _naive,
    "model": _ours(Settings(is_combined=False)),
    "combination": _ours(Settings()),
    "statsmodels": _statsmodels,
}


def _times(count: int, rounds: int = 200) -> dict[str, Any]:
    """Return the processor time of one reading and its forecast; the median, for others use the machine, too."""
    rates = np.random.default_rng(count).poisson(100.0, (rounds, count)).astype(float)
    history, known = begin(count), np.ones(count, bool)
    observed_s, foretold_s = [], []
    for row in rates:
        begun_s = time.process_time()
        history = observe(history, row, known)
        between_s = time.process_time()
        ahead(history, STEPS)
        observed_s.append(between_s - begun_s)
        foretold_s.append(time.process_time() - between_s)
    both_s = [one + other for one, other in zip(observed_s, foretold_s, strict=True)]
    return {
        "applications": count,
        "observe_s": median(observed_s),
        "ahead_s": median(foretold_s),
        "both_s": median(both_s),
        "least_s": min(both_s),
    }


def _shown_errors(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title="Errors on the second half of each trace", title_justify="left", header_style="bold")
    heads = ["trace", "method"]
    heads += [f"{what} {step}" for step in SHOWN for what in ("MAE", "RMSE", "inside 95 %")]
    for head in (*heads, "cpu s"):
        shown.add_column(head, justify="left" if head in ("trace", "method") else "right", no_wrap=True)
    before = None
    for row in rows:
        if before not in (None, row["trace"]):
            shown.add_section()
        before = row["trace"]
        cells = [row["trace"], row["method"]]
        for step in SHOWN:
            cells += [f"{row[f'mae_{step}']:.4g}", f"{row[f'rmse_{step}']:.4g}", f"{row[f'coverage_{step}']:.1%}"]
        shown.add_row(*cells, f"{row['cpu_s']:.2f}")
    return shown


def _shown_times(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table(title=f"One reading and {STEPS} steps ahead", title_justify="left", header_style="bold")
    for head in ("applications", "observe ms", "ahead ms", "both ms", "least ms"):
        shown.add_column(head, justify="right")
    for row in rows:
        times = (row[key] for key in ("observe_s", "ahead_s", "both_s", "least_s"))
        shown.add_row(str(row["applications"]), *(f"{1e3 * each:.3f}" for each in times))
    return shown


if __name__ == "__main__":
    sys.exit(main())
