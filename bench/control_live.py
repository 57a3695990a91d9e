"""Do latency goals hold on a real site?

    python -m bench.control_live [--rounds 2] [--out out/control-live.json]

Three Spark pipelines of different classes share one site of a real control plane on this machine. Gold and silver come
steadily; bronze, several jobs side by side, comes in a burst. How much work a record is follows from how fast this
machine turns out to be, so that it is nearly full before and has too little in the burst. Every round has one burst
for each way of sharing the machine: nothing limited (what the engine and the kernel do by themselves), weighted fair
shares, and the predictive controller, in turn, in the same run and the same processes. Records are numbered: each is
looked for in the output, and its age is what its own header and its time of writing say.

All of it runs in one control group, as a service or a container does; in none, the kernel would group processes by
session, which is a limit of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.bind import cgroup
from headwater.bind.headers import CREATED, headers_of
from headwater.bind.topics import end_offsets, tail
from headwater.model.quality import QUALITIES
from tests.control import Control, Feed, control, job, sites_text

SITE = "s1"
CODE = """\
from pyspark.sql import functions as F


def _hashed(records, hashes):
    text = F.col("value").cast("string")
    hashed = F.aggregate(F.sequence(F.lit(1), F.lit(hashes)), text, lambda so_far, _: F.sha2(so_far, 256))
    return records.select("key", F.concat_ws(" ", text, hashed).cast("binary").alias("value"))


def few(records):
    return _hashed(records, {few})


def many(records):
    return _hashed(records, {many})


def hashing(records):
    return _hashed(records, {hashes})
"""
FEW, MANY = 300, 1500  # hashes of records by which it is measured what they take
WAYS = {"equal": None, "weighted": "weighted", "predictive": "predictive"}  # name: policy; None: nobody has a goal
GOALS = {"gold": ("gold", 1), "silver": ("silver", 1), "bronze": ("bronze", 4)}  # composition: class and jobs


def main() -> None:
    """Run, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=float, default=100.0, help="records a second of gold and of silver")
    parser.add_argument("--full", type=float, default=0.57, help="part of all cores that records take before the burst")
    parser.add_argument("--hashes", type=int, help="of a record, its work; otherwise as many as fill the machine so")
    parser.add_argument("--factor", type=float, default=3.0, help="of bronze in the burst")
    parser.add_argument("--burst", type=float, default=20.0, help="seconds")
    parser.add_argument("--calm", type=float, default=12.0, help="seconds before and at least as many after a burst")
    parser.add_argument("--kills", type=int, default=3, help="times that the agent is killed at the end")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--out", default="out/control-live.json")
    options = parser.parse_args()
    with (
        together("headwater-bench"),
        tempfile.TemporaryDirectory(prefix="headwater-live-") as folder,
        control(Path(folder), sites_text((SITE, "s2"))) as plane,
    ):
        found = measured(plane, options)
    Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    Path(options.out).write_text(json.dumps(found, indent=1), encoding="utf-8")
    show(found)


@contextlib.contextmanager
def together(name: str) -> Iterator[None]:
    """Run this process and all that it starts in one control group, where there are any."""
    hierarchy = cgroup.find()
    if hierarchy is None:
        yield
        return
    group = cgroup.Group(hierarchy, name)
    group.make()
    group.join([os.getpid()])
    try:
        yield
    finally:
        group.dissolve()


def measured(plane: Control, options: argparse.Namespace) -> dict[str, Any]:
    """Return what came of every burst."""
    if options.hashes is None:
        options.hashes = _hashes(plane, options)
    plane.upload(CODE.format(few=FEW, many=MANY, hashes=options.hashes))
    feeds: dict[str, Feed] = {}
    names = {}
    for name, (_, count) in GOALS.items():
        jobs = [f"{name}-{i}" for i in range(count)]
        names[name] = jobs
        plane.ensure_topics(SITE, *(f"{one}-in" for one in jobs))
        forms = [job(one, SITE, (SITE, f"{one}-in"), (SITE, f"{one}-out"), "jobs:hashing") for one in jobs]
        plane.compose(name, forms, wait_s=240)
        for one in jobs:
            feeds[one] = Feed(plane.brokers[SITE], f"{one}-in", options.rate / count)
    for one in feeds:
        plane.until(lambda one=one: len(plane.read(SITE, f"{one}-out")) > 20, f"rows of {one} come out")
    _set(plane, "predictive")  # from now on, runners that are not limited are so in the same way
    time.sleep(2.0 * options.calm)  # compilers of Java are busy at first
    work_s = {name: _work_s(plane, name, options.calm) for name in GOALS}
    print(f"{options.hashes} hashes; a record takes " + _in_ms(work_s), flush=True)
    bursts = []
    totals = dict.fromkeys(feeds, 0)
    for number in range(options.rounds):
        ways = options.ways.split(",")
        for way in ways[number % len(ways) :] + ways[: number % len(ways)]:
            bursts.append({"round": number, "way": way, **_burst(plane, way, feeds, names, options, totals)})
            print(json.dumps(bursts[-1]), flush=True)
    _set(plane, "predictive")
    plane.until(lambda: bool(_decided(plane, time.time() - 3.0)), "goals are held")
    more = _more(plane, "kills", names, options) if options.kills else {}
    resumed = [_killed(plane) for _ in range(options.kills)]
    for one, feed in more.items():
        totals[one] += feed.stop()
    lost = doubled = fed = 0
    for one, feed in feeds.items():
        count = feed.stop() + totals[one]
        plane.until(lambda one=one, count=count: _ends(plane, one) >= count, f"all of {one} came out", 300)
        values = plane.read(SITE, f"{one}-out")
        numbers = [value.split(b" ")[0] for value in values]
        fed += count
        lost += count - len(set(numbers))
        doubled += len(numbers) - len(set(numbers))
    return {
        "work_s": work_s,
        "bursts": bursts,
        "model": _model(plane),
        "resumed_s": resumed,
        "fed": fed,
        "lost": lost,
        "doubled": doubled,
        "options": vars(options),
    }


def _hashes(plane: Control, options: argparse.Namespace) -> int:
    """Return how many hashes fill the machine as wanted, by what a few and many of them take."""
    plane.upload(CODE.format(few=FEW, many=MANY, hashes=FEW))
    feeds = []
    for name in ("few", "many"):
        plane.ensure_topics(SITE, f"{name}-in")
        plane.compose(name, [job(name, SITE, (SITE, f"{name}-in"), (SITE, f"{name}-out"), f"jobs:{name}")], wait_s=240)
        plane.call("PUT", f"/goals/{name}", {"class": "gold"})
        feeds.append(Feed(plane.brokers[SITE], f"{name}-in", options.rate))
    plane.until(lambda: len({name for one in _decided(plane, 0.0) for name in one["names"]}) == 2, "both are measured")
    time.sleep(2.0 * options.calm)  # compilers of Java are busy at first
    few_s, many_s = (_work_s(plane, name, options.calm) for name in ("few", "many"))
    for name, feed in zip(("few", "many"), feeds, strict=True):
        feed.stop()
        plane.call("DELETE", f"/goals/{name}")
        plane.call("DELETE", f"/compositions/{name}", wait_s=60)
    each_s = (many_s - few_s) / (MANY - FEW)
    wanted_s = options.full * (os.cpu_count() or 1) / (len(GOALS) * options.rate)
    return max(1, round(FEW + (wanted_s - few_s) / each_s))


def _work_s(plane: Control, name: str, for_s: float) -> float:
    """Return the processor time that a record of a runner took lately."""
    used = done = 0.0
    for one in _decided(plane, time.time() - for_s):
        if name in one["names"]:
            i = one["names"].index(name)
            used += one["readings"]["used"][i] or 0.0
            done += one["readings"]["throughput_rps"][i] or 0.0
    return used / done


def _in_ms(work_s: dict[str, float]) -> str:
    return ", ".join(f"{1000 * one:.2f} ms ({name})" for name, one in work_s.items())


def _killed(plane: Control) -> float:
    """Kill the agent, and return how long after its start the next one has decided, set limits and written it down."""
    time.sleep(5.0)
    agent, file = plane.pids()[f"agent {SITE}"], plane.state / "agents" / SITE / "decisions.jsonl"
    os.kill(agent, signal.SIGKILL)
    known, end_s = file.read_text("utf-8").count('"kind":"step"'), time.monotonic() + 60.0
    while file.read_text("utf-8").count('"kind":"step"') <= known:
        assert time.monotonic() < end_s, f"no other agent decides. {plane.told()}"
        time.sleep(0.02)
    decided_s = time.time()
    return decided_s - _began_s(plane.pids()[f"agent {SITE}"])


def _began_s(pid: int) -> float:
    """Return when a process began; the kernel counts from its own start, to a hundredth of a second."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[19])
    up_s = float(Path("/proc/uptime").read_text("ascii").split()[0])
    return time.time() - (up_s - ticks / os.sysconf("SC_CLK_TCK"))


def _decided(plane: Control, since_s: float) -> list[dict[str, Any]]:
    lines = (plane.state / "agents" / SITE / "decisions.jsonl").read_text("utf-8").split("\n")[:-1]
    found, policy = [], ""
    for one in map(json.loads, lines):
        policy = one.get("policy", policy)
        if one["kind"] == "step" and one["now_s"] > since_s:
            found.append({**one, "policy": policy})
    return found


def _model(plane: Control) -> list[dict[str, Any]]:
    """Compare what the model expected of each runner three seconds ahead with what was measured then, by load."""
    steps = [one for one in _decided(plane, 0.0) if one["policy"] == "predictive"]
    found: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for now, then in zip(steps, steps[3:], strict=False):
        if then["now_s"] - now["now_s"] > 4.0:
            continue
        for name, row in now["decided"].items():
            if name not in GOALS or name not in then["names"] or row["predicted_s"] is None:
                continue
            late = then["readings"]["late_s"][then["names"].index(name)]
            used = now["readings"]["used"][now["names"].index(name)] if name in now["names"] else None
            if late is not None and used is not None and used > 0.0 and row["share"]:
                load = min(1.0, used / row["share"])
                found.setdefault((name, math.floor(load * 5) / 5), []).append((row["predicted_s"], late))
    return [
        {"runner": name, "load": load, "seconds": len(pairs), "expected_s": statistics.median(a for a, _ in pairs),
         "measured_s": statistics.median(b for _, b in pairs)}
        for (name, load), pairs in sorted(found.items())
    ]  # fmt: skip


def _ends(plane: Control, one: str) -> int:
    return sum(end_offsets(plane.brokers[SITE], [f"{one}-out"]).values())


def _set(plane: Control, way: str) -> None:
    policy = WAYS[way]
    known = plane.call("GET", "/goals")["goals"]
    for name, (quality, _) in GOALS.items():
        if policy is not None:
            plane.call("PUT", f"/goals/{name}", {"class": quality})
        elif name in known:
            plane.call("DELETE", f"/goals/{name}")
    plane.call("PUT", "/policy", {"policy": policy})


def _more(plane: Control, mark: str, names: dict[str, list[str]], options: argparse.Namespace) -> dict[str, Feed]:
    """Begin to feed what makes a burst of bronze, by job."""
    rate_rps = options.rate / len(names["bronze"]) * (options.factor - 1.0)
    return {
        one: Feed(plane.brokers[SITE], f"{one}-in", rate_rps, make=lambda i, one=one: f"{mark}-{one}-{i}")  # type: ignore[misc]
        for one in names["bronze"]
    }


def _burst(
    plane: Control, way: str, feeds: dict[str, Feed], names: dict[str, list[str]], options: argparse.Namespace,
    totals: dict[str, int],
) -> dict[str, Any]:  # fmt: skip
    _set(plane, way)
    time.sleep(options.calm)
    begun_ms = time.time() * 1000
    more = _more(plane, f"{way}{begun_ms:.0f}", names, options)
    time.sleep(options.burst)
    told = plane.call("GET", "/sites")["sites"]
    ended_ms = time.time() * 1000
    for one, feed in more.items():
        totals[one] += feed.stop()
    # All that was born in the burst has come out, whenever that is.
    end_s = time.monotonic() + 240.0
    found = {}
    for name, jobs in names.items():
        ages = []
        for one in jobs:
            while time.monotonic() < end_s:
                rows = list(tail(plane.brokers[SITE], f"{one}-out", int(begun_ms)))
                born = [int(headers_of(row)[CREATED]) for row in rows]
                if born and max(born) > ended_ms + 500:
                    break
                time.sleep(2.0)  # reading costs processor time that what is measured needs
            ages += [
                (row.timestamp()[1] - at) / 1000
                for row, at in zip(rows, born, strict=True)
                if begun_ms <= at <= ended_ms
            ]
        ages.sort()
        quality, _ = GOALS[name]
        goal_s = QUALITIES[quality].goal_s
        found[name] = {
            "records": len(ages),
            "p50_s": ages[len(ages) // 2],
            "p99_s": ages[min(len(ages) - 1, int(0.99 * len(ages)))],
            "violations": sum(age > goal_s for age in ages) / len(ages),
        }
    goals = next(one["told"].get("goals") for one in told if one["name"] == SITE)
    found["shares"] = {name: row["limit"] for name, row in goals["runners"].items()} if goals["is_on"] else {}
    found["gives_way"] = [one["because"] for one in goals.get("gives_way", ())]
    return found


def show(found: dict[str, Any]) -> None:
    """Print the table."""
    ways = list(dict.fromkeys(one["way"] for one in found["bursts"]))
    print(f"{'way':11} {'gold p50':>9} {'gold p99':>9} {'late':>7} {'silver p99':>10} {'bronze p99':>10}")
    for way in ways:
        rows = [one for one in found["bursts"] if one["way"] == way]

        def middle(name: str, key: str, rows: Any = rows) -> float:
            return statistics.median(row[name][key] for row in rows)

        print(
            f"{way:11} {middle('gold', 'p50_s') * 1000:7.0f}ms {middle('gold', 'p99_s') * 1000:7.0f}ms "
            f"{middle('gold', 'violations') * 100:6.2f}% {middle('silver', 'p99_s') * 1000:8.0f}ms "
            f"{middle('bronze', 'p99_s') * 1000:8.0f}ms"
        )
    print(f"{'runner':8} {'share used':>10} {'seconds':>7} {'p99 expected':>12} {'measured':>9}")
    for row in found["model"]:
        span = f"{row['load']:.0%} on"
        print(f"{row['runner']:8} {span:>10} {row['seconds']:7} {row['expected_s']:10.3f} s {row['measured_s']:7.3f} s")
    again = ", ".join(f"{one:.2f}" for one in found["resumed_s"])
    print(f"an agent that was killed decides again {again} s after its start")
    print(f"{found['fed']} records fed: {found['lost']} lost, {found['doubled']} doubled")


if __name__ == "__main__":
    main()
