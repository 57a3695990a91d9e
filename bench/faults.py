"""Is anything lost, doubled or out of order when runners and brokers are killed?

    python -m bench.faults [--times 5] [--out out/faults.json]

One run of the pipeline of tests/data/lanes over three sites (all lanes: built-in, Python, windowed, micro-batch) at
200 records a second; every runner and every broker is killed so many times with SIGKILL, and the whole run is stopped
and started again so many times. At the end every record is counted at the sinks.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.plane import plane
from tests.story.test_run_story import Load

PROJECT = Path(__file__).parent.parent / "tests" / "data" / "lanes"
SITES = ("pi", "hub", "dc")


def main() -> None:
    """Kill, count, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=5, help="kills of each runner and broker, and planned restarts")
    parser.add_argument("--out", default="out/faults.json", help="where the JSON goes")
    options = parser.parse_args()
    found: dict[str, Any] = {"kills": [], "stops": []}
    with tempfile.TemporaryDirectory(prefix="headwater-faults-") as folder:
        count = _kills(Path(folder, "state"), options.times, found)
        count = _stops(Path(folder, "state"), options.times, count, found)
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(found, indent=1), encoding="utf-8")
    for what in ("after_kills", "after_stops"):
        print(what, json.dumps(found[what]))


def _kills(state: Path, times: int, found: dict[str, Any]) -> int:
    chance = random.Random(0)
    with plane(PROJECT, PROJECT / "sites.yaml", state, "--placement", str(PROJECT / "three.yaml")) as run:
        run.ready()
        load = Load(run)
        for turn in range(times):
            for site in SITES:
                for which in ("runner", "broker"):
                    begun_s = time.monotonic()
                    run.kill(site, which)
                    took_s = round(time.monotonic() - begun_s, 1)
                    found["kills"].append({"turn": turn, "site": site, "which": which, "back_after_s": took_s})
                    print(f"killed the {which} of {site}: back after {took_s} s", flush=True)
                    for _ in range(chance.randint(1, 4)):
                        run.latest()
        count = load.stop()
        found["after_kills"] = _counted(run, count)
        run.end()
    return count


def _stops(state: Path, times: int, count: int, found: dict[str, Any]) -> int:
    for turn in range(times):
        with plane(PROJECT, PROJECT / "sites.yaml", state) as run:
            begun_s = time.monotonic()
            run.ready()
            ready_s = round(time.monotonic() - begun_s, 1)
            load = Load(run, count)
            for _ in range(8):
                run.latest()
            count = load.stop()  # the brokers end too; what was fed last is still on its way
            if turn < times - 1:
                run.end()
                found["stops"].append({"turn": turn, "ready_after_s": ready_s})
                print(f"stopped and started: ready after {ready_s} s", flush=True)
                continue
            found["after_stops"] = _counted(run, count)
            run.end()
    return count


def _counted(run: Any, count: int) -> dict[str, int | bool]:
    rows = [json.loads(one.value() or b"")["id"] for one in run.settle("dc", "rows", count, 300.0)]
    updates = [json.loads(one.value() or b"") for one in run.settle("dc", "updates", count, 300.0)]
    told = Counter((one["minute"], one["key"], one["records"]) for one in updates)
    return {
        "fed": count,
        "rows": len(rows),
        "lost": count - len(set(rows)),
        "doubled": len(rows) - len(set(rows)),
        "in_order": rows == sorted(rows),
        "updates": len(updates),
        "updates_doubled": len(updates) - len(told),
        "updates_lost": count - len(told),
    }


if __name__ == "__main__":
    main()
