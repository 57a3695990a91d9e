"""Is anything lost or doubled, and is the wanted state reached, whatever is killed while things change?

    python -m bench.kills [--times 50] [--seed 0] [--out out/kills.json]

One control plane of four sites on this machine, a chain of three jobs under load (without state, windowed, without
state). Again and again a job is moved, or the chain is rewired and back, and at a random moment within that a random
process is killed with SIGKILL: the controller, an agent, a runner, a broker. After each, the observed state must
become the wanted one; at the end every record is counted.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.control import Control, Feed, control, job, sites_text

SITES = ("s1", "s2", "s3", "s4")
KINDS = ("controller", "agent", "runner", "broker")
WITHIN_S = 6.0  # of the change, the kill comes
SETTLED_S = 240.0


def main() -> None:
    """Kill, count, print and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=50, help="kills")
    parser.add_argument("--rate", type=float, default=50.0, help="records a second")
    parser.add_argument("--seed", type=int, default=0, help="of what is killed, and when")
    parser.add_argument("--out", default="out/kills.json", help="where the JSON goes")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="headwater-kills-") as folder,
        control(Path(folder), sites_text(SITES)) as plane,
    ):
        found = _killed(plane, options.times, options.rate, random.Random(options.seed))
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(found, indent=1), encoding="utf-8")
    for kind in KINDS:
        back_s = [one["settled_s"] for one in found["kills"] if one["kind"] == kind]
        if back_s:
            print(f"{kind:10} killed {len(back_s):3} times, as wanted after {min(back_s):.1f} to {max(back_s):.1f} s")
    print(f"{found['fed']} records: {found['lost']} lost, {found['doubled']} doubled, in order: {found['in_order']}")


def _chain(homes: dict[str, str], turn: int) -> list[dict[str, str]]:
    """Return the chain; at odd turns it has a job more in its middle, which rests at even ones."""
    is_long = turn % 2 == 1
    middle = ("s2", "extra") if is_long else ("s3", "between")
    jobs = [
        job("first", homes["first"], ("s1", "in"), middle),
        job("last", homes["last"], ("s3", "between"), ("s4", "out")),
        job("counts", homes["counts"], ("s3", "between"), ("s4", "counted"), "jobs:counting"),
    ]
    return [*jobs, job("more", "s2", ("s2", "extra"), ("s3", "between"))] if is_long else jobs


def _killed(plane: Control, times: int, rate_rps: float, chance: random.Random) -> dict[str, Any]:
    plane.upload()
    plane.ensure_topics("s1", "in")
    homes = {"first": "s1", "last": "s3", "counts": "s4"}
    turn = 0
    plane.compose("chain", _chain(homes, turn), wait_s=200)
    plane.until(lambda: _is_as_wanted(plane, _chain(homes, 0)), "it runs")
    feed = Feed(plane.brokers["s1"], "in", rate_rps)
    kills = []
    for number in range(times):
        kind = KINDS[number % len(KINDS)]
        if chance.random() < 0.3:
            turn += 1
        else:
            name = chance.choice(sorted(homes))
            homes[name] = chance.choice([site for site in SITES if site != homes[name]])
        wanted = _chain(homes, turn)
        plane.compose("chain", wanted)
        time.sleep(chance.uniform(0.0, WITHIN_S))  # the moment of the kill
        victims = [one for one in sorted(plane.pids()) if one.split()[0] == kind]
        victim = chance.choice(victims)
        plane.kill(victim)
        begun_s = time.monotonic()
        plane.until(partial(_is_as_wanted, plane, wanted), f"as wanted after {victim}", SETTLED_S)
        settled_s = round(time.monotonic() - begun_s, 1)
        kills.append({"kind": kind, "victim": victim, "settled_s": settled_s})
        print(f"{number + 1}: killed {victim}; as wanted after {settled_s} s", flush=True)
    count = feed.stop()
    plane.until(lambda: len(plane.read("s4", "out")) >= count, "all came out", SETTLED_S)
    numbers = [int(one) for one in plane.read("s4", "out")]
    last: dict[tuple[str, int], int] = {}
    for row in map(json.loads, plane.read("s4", "counted")):
        key = (row["minute"], row["digit"])
        last[key] = max(row["records"], last.get(key, 0))
    return {
        "kills": kills,
        "fed": count,
        "lost": count - len(set(numbers)),
        "doubled": len(numbers) - len(set(numbers)),
        "in_order": numbers == sorted(numbers),
        "counted": sum(last.values()),
    }


def _is_as_wanted(plane: Control, jobs: list[dict[str, str]]) -> bool:
    found = plane.jobs()
    wanted = {one["job_name"]: one["spe_address"].removeprefix("http://").rstrip("/") for one in jobs}
    return found.keys() == wanted.keys() and all(
        found[name]["site"] == site and found[name]["state"] == "running" and found[name]["is_done"]
        for name, site in wanted.items()
    )


if __name__ == "__main__":
    main()
