"""How long do records wait while a job moves, and is any lost?

    python -m bench.moves [--times 10] [--rate 200] [--out out/moves.json]

One control plane of three sites on this machine. A job without state and one that counts in windows move to and fro
between two warm sites under load, so many times each. A pause is the longest gap between two rows of the output
around a move; at 200 records a second it is 5 ms otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from headwater.bind.topics import tail
from tests.control import Control, Feed, control, job, sites_text

KINDS = {"stateless": "jobs:passing", "windowed": "jobs:counting"}
CALM_S = 4.0  # between two moves
OTHERS = {"records lost, paper 002's successor": 14, "mean_s": 9.48}


def main() -> None:
    """Move, count, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=10, help="moves of each kind of job")
    parser.add_argument("--rate", type=float, default=200.0, help="records a second")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of jobs")
    parser.add_argument("--out", default="out/moves.json", help="where the JSON goes")
    options = parser.parse_args()
    found: dict[str, Any] = {"rate_rps": options.rate}
    with (
        tempfile.TemporaryDirectory(prefix="headwater-moves-") as folder,
        control(Path(folder), sites_text(("s1", "s2", "s3"))) as plane,
    ):
        plane.upload()
        for kind in options.only.split(","):
            found[kind] = _moved(plane, kind, options.times, options.rate)
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(f"{'job':10} {'moves':>5} {'p50':>7} {'least':>7} {'most':>7} {'records':>8} {'lost':>5} {'doubled':>7}")
    for kind in options.only.split(","):
        one = found[kind]
        pauses = one["pauses_s"]
        figures = f"{statistics.median(pauses):7.2f} {min(pauses):7.2f} {max(pauses):7.2f}"
        print(f"{kind:10} {len(pauses):5} {figures} {one['fed']:8} {one['lost']:5} {one['doubled']:7}")
    print(f"pauses in s; the successor of paper 002: mean {OTHERS['mean_s']} s, 14 of 2 767 messages lost, 12 doubled")


def _moved(plane: Control, kind: str, times: int, rate_rps: float) -> dict[str, Any]:
    taken, given = f"{kind}-in", f"{kind}-out"
    plane.ensure_topics("s3", taken)
    plane.compose(kind, [job(kind, "s1", ("s3", taken), ("s3", given), KINDS[kind])], wait_s=200)
    for site in ("s2", "s1"):  # both places have run it once: warm
        plane.call("POST", f"/jobs/{kind}/move", {"site": site}, wait_s=200)
    feed = Feed(plane.brokers["s3"], taken, rate_rps)
    plane.until(lambda: len(plane.read("s3", given)) > rate_rps * 5, "rows come out")
    pauses, took = [], []
    for number in range(times):
        time.sleep(CALM_S)  # the pace of the moves
        begun_s, clock_s = time.monotonic(), time.time()
        done = plane.call("POST", f"/jobs/{kind}/move", {"site": ("s2", "s1")[number % 2]}, wait_s=200)
        assert done["is_done"], done
        took.append(round(time.monotonic() - begun_s, 3))
        time.sleep(CALM_S)
        rows = tail(plane.brokers["s3"], given, int((clock_s - 1.0) * 1000))
        stamps_ms = [one.timestamp()[1] for one in rows]
        pauses.append(max(later - one for one, later in itertools.pairwise(stamps_ms)) / 1000)
        print(f"{kind} to {('s2', 's1')[number % 2]}: {pauses[-1]:.2f} s", flush=True)
    count = feed.stop()
    lost, doubled = _plain(plane, given, count) if kind == "stateless" else _counted(plane, given, count)
    plane.call("DELETE", f"/compositions/{kind}", wait_s=60)
    return {"pauses_s": pauses, "took_s": took, "fed": count, "lost": lost, "doubled": doubled}


def _plain(plane: Control, topic: str, count: int) -> tuple[int, int]:
    plane.until(lambda: len(plane.read("s3", topic)) >= count, "all came out")
    numbers = [int(one) for one in plane.read("s3", topic)]
    return count - len(set(numbers)), len(numbers) - len(set(numbers))


def _counted(plane: Control, topic: str, count: int) -> tuple[int, int]:
    """Return how many records the last rows miss, and how many updates were told twice."""
    plane.until(lambda: len(plane.read("s3", topic)) >= count, "all is counted")
    rows = [json.loads(one) for one in plane.read("s3", topic)]
    last: dict[tuple[str, int], int] = {}
    for row in rows:
        last[row["minute"], row["digit"]] = max(row["records"], last.get((row["minute"], row["digit"]), 0))
    told = {(row["minute"], row["digit"], row["records"]) for row in rows}
    return count - sum(last.values()), len(rows) - len(told)


if __name__ == "__main__":
    main()
