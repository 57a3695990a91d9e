"""How long does the controller take to tell how everything is?

    python -m bench.status [--jobs 10,100,1000] [--out out/status.json]

One controller with its server, over simulated sites: what is measured is the controller alone, from the request to the
whole answer. Prints a table, for each job as well: the time of one that grows faster than the jobs would show there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from tests.contract.controlled import composition, form, running

TIMES = 15


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", default="10,100,1000", help="numbers of jobs, with commas between")
    parser.add_argument("--out", type=Path, default=Path("out/status.json"))
    options = parser.parse_args()
    rows = []
    print(f"{'jobs':>6} {'median':>9} {'best':>9} {'each':>8}")
    for count in map(int, options.jobs.split(",")):
        took = _took_s(count)
        median_s, best_s = statistics.median(took), min(took)
        rows.append({"jobs": count, "median_s": median_s, "best_s": best_s})
        print(f"{count:6} {median_s * 1e3:7.1f}ms {best_s * 1e3:7.1f}ms {best_s / count * 1e6:6.0f}us")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"rows": rows}, indent=1), encoding="utf-8")


def _took_s(count: int) -> list[float]:
    """Return how long each of some answers took."""
    with tempfile.TemporaryDirectory(prefix="headwater-status-") as folder, running(Path(folder)) as it:
        many = [form(f"J{number}", source_topic=f"T-{number}", sink_topic=f"U-{number}") for number in range(count)]
        it.call("PUT", "/compositions/many", 200, content=composition(*many), params={"wait_s": 120})
        took = []
        for _ in range(TIMES):
            begun_s = time.perf_counter()
            assert len(it.call("GET", "/status", 200)["jobs"]) == count
            took.append(time.perf_counter() - begun_s)
        return took


if __name__ == "__main__":
    main()
