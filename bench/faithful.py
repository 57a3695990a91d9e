"""How close does the simulator come to the data plane?

    python -m bench.faithful [--rates 50,200,1000] [--seconds 30] [--out out/faithful.json]

The project of examples/readings on an emulated network, with real Spark and Kafka, at each rate: how many alerts come
out a second, and how old they are. Then the same pipeline, sites, placement and rates in the simulator. Prints both
side by side and writes JSON. Needs root for the emulated links.
"""

from __future__ import annotations

import argparse
import json
import math
import runpy
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from headwater.bind import compiled
from headwater.bind.headers import CREATED, headers_of
from tests.plane import Plane, plane

EXAMPLE = Path(__file__).parent.parent / "examples" / "readings"
PLACEMENT = "{readings: pi, parsed: hub, hot: hub, alerts: dc}"
WARM_S = 10.0  # at each rate, before it counts


def main() -> None:
    """Measure, simulate, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rates", default="50,200,1000", help="records a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="at each rate")
    parser.add_argument("--out", default="out/faithful.json", help="where the JSON goes")
    options = parser.parse_args()
    rates = [float(one) for one in options.rates.split(",")]
    with tempfile.TemporaryDirectory(prefix="headwater-faithful-") as name:
        folder = Path(name)
        _export(folder)
        simulated = {rate: _simulated(folder, rate, options.seconds) for rate in rates}
        (folder / "placement.yaml").write_text(PLACEMENT, "utf-8")
        words = ("--emulate", "--placement", str(folder / "placement.yaml"))
        with plane(EXAMPLE, EXAMPLE / "sites.yaml", folder / "state", *words) as run:
            run.ready()
            measured = {rate: _measured(run, rate, options.seconds) for rate in rates}
            run.end()
    found = [{"rate_rps": rate, "measured": measured[rate], "simulated": simulated[rate]} for rate in rates]
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(f"{'rate':>6} {'what':14} {'measured':>10} {'simulated':>10} {'error':>8}")
    for one in found:
        for what, unit, factor in (("throughput_rps", "/s", 1.0), ("p50_s", "ms", 1e3), ("p99_s", "ms", 1e3)):
            real, made = one["measured"][what] * factor, one["simulated"][what] * factor
            label = f"{what.rpartition('_')[0]} {unit}"
            print(f"{one['rate_rps']:6g} {label:14} {real:10.4g} {made:10.4g} {(made - real) / real:+8.1%}")


def _export(folder: Path) -> None:
    command = [sys.executable, "-m", "headwater.serve.main", "inspect", str(EXAMPLE), "--json"]
    subprocess.run([*command, "--out", str(folder / "readings.yaml")], check=True, stdout=subprocess.DEVNULL)


def _simulated(folder: Path, rate_rps: float, seconds: float) -> dict[str, Any]:
    compiled.use_cache()
    from headwater.serve.simulate import load_scenario  # noqa: PLC0415 - after the cache is chosen
    from headwater.serve.simulate_wire import result_object  # noqa: PLC0415
    from headwater.sim.simulation import simulate  # noqa: PLC0415

    lines = [
        "scenario: readings",
        f"duration: {WARM_S + seconds} s",
        "step: 1 ms",
        f"sites: {EXAMPLE / 'sites.yaml'}",
        "pipeline: readings.yaml",
        f"placement: {PLACEMENT}",
        f"loads: {{readings: {{rate: {rate_rps}/s}}}}",
    ]
    (folder / "scenario.yaml").write_text("\n".join(lines) + "\n", "utf-8")
    totals: dict[str, Any] = result_object(simulate(load_scenario(str(folder / "scenario.yaml"))))["totals"]
    return {what: totals[what] for what in ("throughput_rps", "p50_s", "p99_s")}


def _measured(run: Plane, rate_rps: float, seconds: float) -> dict[str, Any]:
    records = runpy.run_path(str(EXAMPLE / "records.py"))["records"]
    run.feed("pi", islice(records("pi", 0), int(WARM_S * rate_rps)), rate_rps)
    begun_ms = int(time.time() * 1000)
    run.feed("pi", islice(records("pi", 0), int(seconds * rate_rps)), rate_rps)
    run.latest()
    run.latest()
    ages_s = []
    for one in run.read("dc", "alerts"):
        created_ms = int(headers_of(one)[CREATED])
        if begun_ms <= created_ms < begun_ms + seconds * 1000:
            ages_s.append((one.timestamp()[1] - created_ms) / 1000)
    ages_s.sort()
    print(f"{rate_rps:g}/s: {len(ages_s)} alerts", flush=True)
    return {
        "throughput_rps": len(ages_s) / seconds,
        "p50_s": ages_s[len(ages_s) // 2],
        "p99_s": ages_s[min(len(ages_s) - 1, math.ceil(0.99 * len(ages_s)))],
    }


if __name__ == "__main__":
    main()
