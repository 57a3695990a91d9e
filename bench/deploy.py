"""How long does it take to deploy, modify and delete chains of jobs? (paper 002, figure 6).

    python -m bench.deploy [--sizes 1,10,25,50,100] [--repeat 3] [--out out/deploy.json]

Chains of trivial jobs over six sites on this machine, each job at a random one; a runner is up at each, as the engines
of the paper were. For each size: deploy the chain, until
all jobs run; then, of the longest, modify so many jobs at once (each to run another function of its code); then delete
it. And how large the store is with a thousand jobs. Prints a table, writes JSON and a picture.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from headwater.bind.store import Change, Store
from headwater.plan.jobs import Job, Topic
from tests.control import Control, control, job, sites_text

SITES = ("s1", "s2", "s3", "s4", "s5", "s6")
PAPER_BYTES = 754_000  # of paper 002's store with 1 000 jobs
PATIENCE_S = 600


def main() -> None:
    """Measure, print a table, write JSON and a picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="1,10,25,50,100", help="lengths of chains")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each")
    parser.add_argument("--out", default="out/deploy.json", help="where the JSON goes; the picture lies beside it")
    options = parser.parse_args()
    sizes = [int(one) for one in options.sizes.split(",")]
    found: dict[str, Any] = {"store_bytes": _store_bytes(), "deploy": {}, "modify": {}, "delete": {}}
    with (
        tempfile.TemporaryDirectory(prefix="headwater-deploy-") as folder,
        control(Path(folder), sites_text(SITES)) as plane,
    ):
        plane.upload()
        _measure(plane, sizes[:1], -1, sizes, {"deploy": {}, "modify": {}, "delete": {}})  # starts every runner
        for turn in range(options.repeat):
            _measure(plane, sizes, turn, sizes, found)
            Path(options.out).parent.mkdir(parents=True, exist_ok=True)
            Path(options.out).write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(f"{'jobs':>5} {'deploy':>9} {'modify':>9} {'delete':>9}   mean seconds of {options.repeat}")
    for size in sizes:
        means = [statistics.mean(found[what].get(str(size), [float("nan")])) for what in ("deploy", "modify", "delete")]
        print(f"{size:5} " + " ".join(f"{one:9.2f}" for one in means))
    print(f"store with 1 000 jobs: {found['store_bytes']} bytes; paper 002: {PAPER_BYTES}")
    _draw(found, sizes, Path(options.out).with_suffix(".png"))


def _measure(plane: Control, sizes: list[int], turn: int, all_sizes: list[int], found: dict[str, Any]) -> None:
    chance = random.Random(turn)
    for size in sizes:
        homes = [chance.choice(SITES) for _ in range(size)]
        if turn < 0:
            homes = list(SITES)
        name = f"chain{turn + 1}x{size}"
        took_s = _until_done(plane, _chain(name, homes, set()))
        _add(found, "deploy", size, took_s)
        if size == max(all_sizes):
            modified: set[int] = set()
            for count in all_sizes:
                modified ^= set(chance.sample(range(size), count))
                took_s = _until_done(plane, _chain(name, homes, modified))
                _add(found, "modify", count, took_s)
            found.setdefault("controller_s", []).append(_controller_back(plane))
        begun_s = time.monotonic()
        plane.call("DELETE", "/compositions/chain", wait_s=PATIENCE_S)
        _add(found, "delete", size, time.monotonic() - begun_s)


def _controller_back(plane: Control) -> float:
    """Kill the controller; return after how long the next one knows that all jobs run as before."""
    before = {name: one["told"].get("query") for name, one in plane.jobs().items()}
    plane.kill("controller")
    begun_s = time.monotonic()
    plane.until(lambda: _queries(plane) == before, "all jobs are adopted", PATIENCE_S)
    took_s = round(time.monotonic() - begun_s, 2)
    print(f"controller killed with {len(before)} jobs: all adopted, none restarted, after {took_s} s", flush=True)
    return took_s


def _queries(plane: Control) -> dict[str, str | None]:
    return {name: one["told"].get("query") for name, one in plane.jobs().items() if one["state"] == "running"}


def _add(found: dict[str, Any], what: str, size: int, took_s: float) -> None:
    found[what].setdefault(str(size), []).append(round(took_s, 3))
    print(f"{what} {size}: {took_s:.1f} s", flush=True)


def _until_done(plane: Control, jobs: list[dict[str, str]]) -> float:
    begun_s = time.monotonic()
    done = plane.compose("chain", jobs, wait_s=PATIENCE_S)
    assert done["is_done"], done["failures"]
    return time.monotonic() - begun_s


def _chain(name: str, homes: list[str], modified: set[int]) -> list[dict[str, str]]:
    """Return a chain of jobs; those that are modified run another entry of the same code."""
    return [
        job(
            f"{name}-{number}",
            site,
            (site, f"{name}-{number}"),
            (homes[min(number + 1, len(homes) - 1)], f"{name}-{number + 1}"),
            "jobs:other" if number in modified else "jobs:passing",
        )
        for number, site in enumerate(homes)
    ]


def _store_bytes() -> int:
    """Return how large the store is with a thousand jobs."""
    with tempfile.TemporaryDirectory(prefix="headwater-store-") as folder:
        file = Path(folder, "store.db")
        store = Store(file)
        code = "0123456789abcdef" * 4
        jobs = {
            f"job-{number}": Job(
                f"job-{number}",
                "large",
                SITES[number % 6],
                (Topic(SITES[number % 6], f"topic-{number}"),),
                Topic(SITES[(number + 1) % 6], f"topic-{number + 1}"),
                code,
                "jobs:passing",
            )
            for number in range(1000)
        }
        store.change(Change("bench", "1 000 jobs", time.time(), put=jobs))
        store.close()
        with sqlite3.connect(file) as base:
            base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return sum(one.stat().st_size for one in Path(folder).iterdir())


def _draw(found: dict[str, Any], sizes: list[int], file: Path) -> None:
    import matplotlib  # noqa: PLC0415 - only when there is something to draw

    matplotlib.use("svg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for what in ("deploy", "modify", "delete"):
        means = [statistics.mean(found[what].get(str(size), [float("nan")])) for size in sizes]
        axes.plot(sizes, means, marker="o", label=what)
    axes.set_xlabel("jobs")
    axes.set_ylabel("seconds")
    axes.set_title("Chains of trivial jobs over six sites on one machine of two cores")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
