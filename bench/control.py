"""How well are latency goals held, and at what cost? Paper 003 in the simulator.

    python -m bench.control [--only burst,traces,errors,overhead,queues] [--sizes 60,400,1000,4000] [--out out/control]

Four machines with eight cores, three classes with weights 6, 3 and 1 and goals of 300, 500 and 800 ms. Prints tables,
writes control.json and pictures. `bench.control_live` is the same on real Spark, `bench.forecast` looks at forecasts
alone.

    burst     the lowest class triples its load for 30 s (figures 1, 3, 4 and 5 of the paper), every policy
    traces    the same with loads that follow measured traces, straight from sample to sample and in steps
    errors    errors of 0 to 50 % put into forecasts (figure 6)
    overhead  what allocation, a whole step and writing a limit take (figure 7)
    queues    the queueing model against the simulator
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.control_world import BEFORE_S, BURST_S, CLASSES, WARM_S, Run, World, played, world
from headwater.bind import cgroup, compiled
from headwater.control import mpc
from headwater.control.allocate import by_delay, by_weight, classes
from headwater.control.bellman import bellman, value
from headwater.control.decision import applications
from headwater.control.policies import POLICIES, Predictive
from headwater.control.queueing import mean_wait, wait_percentile
from headwater.control.readings import COLUMNS, Readings
from headwater.model.scenario import Machine, Scenario, Simulated
from headwater.model.workload import Sinusoid

TRAFFIC = {"low": 100.0, "middle": 400.0, "high": 1600.0}
FULL = 0.9  # of the machines in high traffic, before the burst
SIZES = (60, 400, 1000, 4000)
TRACE_S = 5  # seconds that a sample of a trace becomes; they were taken every 5 to 30 minutes
# What lies between two samples nobody measured. A ramp is the easiest that it can be, for forecasts above all, and a
# step is the hardest.
SHAPES = ("ramps", "steps")
ERRORS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
PAPER = {
    "p99 of the first class, high traffic": "260 % better than the default",
    "share of the lowest class in the burst": "55 % by default, 21 % with the controller",
    "50 % of prediction error": "p99 5.5 % worse, violations 3.9 %",
    "allocation for 4 000 applications": "below 8 ms",
}
TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"


def main() -> None:
    """Measure, print tables, write JSON and pictures."""
    sections = {"burst": burst, "traces": traces, "errors": errors, "overhead": overhead, "queues": queues}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(sections), help="sections, with commas between")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of applications")
    parser.add_argument("--policies", default=",".join(POLICIES), help="policies that bursts are played with")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder of CSV files with measured loads")
    parser.add_argument("--out", type=Path, default=Path("out/control"), help="folder for JSON and pictures")
    options = parser.parse_args()
    options.sizes = tuple(int(one) for one in options.sizes.split(","))
    options.policies = options.policies.split(",")
    compiled.use_cache()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "control.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {"paper": PAPER}
    for name in options.only.split(","):
        print(f"\n== {name}", flush=True)
        found[name] = sections[name](options)
        file.write_text(json.dumps(found, indent=1), encoding="utf-8")
    from bench.control_pictures import draw  # noqa: PLC0415 - matplotlib

    draw(found, options.out)


def burst(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Play every policy in high traffic, and the engine's own way and ours in low and middle."""
    rows = []
    for count in options.sizes:
        for traffic, rate_rps in TRAFFIC.items():
            # 60 applications are the paper's figure 1: 100 records a second fill the machines.
            full_rate = 100.0 if count == 60 else TRAFFIC["high"]
            if count == 60 and traffic != "low":
                continue
            is_full = rate_rps == full_rate
            the = world(count, rate_rps, FULL, full_rate_rps=full_rate)
            _head(f"{count} applications, {rate_rps:g} records/s each, machines {the.full:.0%} full before the burst")
            for policy in options.policies if is_full else ("equal", "predictive"):
                run = played(the, POLICIES[policy])
                rows.append({"count": count, "traffic": traffic, "policy": policy, **_row(run)})
                _print(rows[-1])
    return rows


def traces(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Play loads that follow measured traces, each application another stretch of one of them."""
    rows = []
    for shape in SHAPES:
        loads = _traces(options.traces, shape)
        if not loads:
            print(f"left out: there are no traces in '{options.traces}'")
            return []
        for count in (one for one in options.sizes if one <= 1000):
            full_rate = 100.0 if count == 60 else TRAFFIC["high"]
            the = world(count, full_rate, 0.75, traces=loads, full_rate_rps=full_rate)
            _head(f"{count} applications that follow {len(loads)} traces in {shape}, machines {the.full:.0%} full")
            for policy in options.policies:
                run = played(the, POLICIES[policy])
                rows.append({"count": count, "shape": shape, "policy": policy, **_row(run)})
                _print(rows[-1])
    return rows


def errors(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Put errors into forecasts: by chance up or down for each application and second, and all one way."""
    rows = _disturbed("steady", world(max(options.sizes), TRAFFIC["high"], FULL))
    for shape in SHAPES:
        loads = _traces(options.traces, shape)
        if loads:
            count = min(1000, max(options.sizes))
            rows += _disturbed(f"traces in {shape}", world(count, TRAFFIC["high"], 0.75, traces=loads))
    return rows


def _disturbed(load: str, the: World) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    kinds: list[tuple[str, float]] = [("chance", one) for one in ERRORS] + [("low", 0.5), ("high", 0.5)]
    print(f"\n{len(the.quality)} applications, {load}, predictive; in the burst, against no error:")
    print(
        f"{'error':12} {'p99 first':>10} {'worse':>7} {'weighted':>8} {'late':>7} {'more':>7} {'weighted':>8} "
        f"{'above':>5} records/s"
    )
    for kind, error in kinds:
        seeds = itertools.count(7)  # each machine errs by itself
        run = played(the, lambda kind=kind, error=error, seeds=seeds: Predictive(
            disturb=_disturb(kind, error, next(seeds))))  # fmt: skip
        row = _row(run)
        base = rows[0]["burst"] if rows else row["burst"]
        worse = [row["burst"][k]["p99_s"] / base[k]["p99_s"] - 1.0 for k in range(3)]
        more = [row["burst"][k]["violations"] - base[k]["violations"] for k in range(3)]
        rows.append(
            {"load": load, "kind": kind, "error": error, "p99_worse": worse, "violations_more": more, **row}
        )  # fmt: skip
        first = row["burst"][0]
        print(
            f"{kind:7} {error:4.0%} {first['p99_s'] * 1e3:8.1f}ms {worse[0]:+7.1%} {_weighted(worse):+8.1%} "
            f"{first['violations']:7.2%} {more[0]:+7.2%} {_weighted(more):+8.2%} "
            f"{row['above'][0]:5} {row['throughput_rps']:9.0f}",
            flush=True,
        )
    return rows


def _weighted(values: Sequence[float]) -> float:
    weights = [one.weight for one in CLASSES]
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def _disturb(kind: str, error: float, seed: int = 7) -> Callable[[Any], Any]:
    rng = np.random.default_rng(seed)

    def disturb(mean: Any) -> Any:
        if kind != "chance":
            return mean * (1.0 + error if kind == "high" else 1.0 - error)
        return mean * (1.0 + error * rng.choice((-1.0, 1.0), mean.shape[1]))

    return disturb


def overhead(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time allocation against dynamic programming on the same grid, a whole step, and writing a limit."""
    rows, quota_ms = [], _quota_ms()
    print(f"{'n':>6} {'by weight':>10} {'by delay':>9} {'dynamic p.':>10} {'ratio':>8} {'same value':>10} {'step':>8}")
    for count in sorted({400, 1000, 4000, *options.sizes}):
        rng = np.random.default_rng(count)
        weights = rng.choice([6.0, 3.0, 1.0], count)
        quanta = 8 * count
        asked = rng.integers(1, 20, count)
        grouped = classes(weights)
        demand = asked.astype(np.float64)
        ours_ms = _timed(lambda demand=demand, quanta=quanta, grouped=grouped: by_weight(demand, quanta, grouped), 300)
        rate, work = demand * 10.0, np.full(count, 1e-3)
        delay_ms = _timed(
            lambda rate=rate, work=work, weights=weights: by_delay(rate, work, weights, float(rate.sum()) * 1.2e-3), 20
        )  # fmt: skip
        begun_s = time.process_time()
        best = bellman(asked, quanta, weights)
        theirs_ms = (time.process_time() - begun_s) * 1e3
        mine = value(by_weight(demand, float(quanta), grouped), demand, weights)
        is_same = math.isclose(value(best, asked, weights), mine, rel_tol=1e-12)  # but for rounding
        step_ms = _step_ms(count)
        rows.append(
            {"count": count, "by_weight_ms": ours_ms, "by_delay_ms": delay_ms, "bellman_ms": theirs_ms,
             "is_same_value": is_same, "step_ms": step_ms, "quota_ms": quota_ms}
        )  # fmt: skip
        print(
            f"{count:6} {ours_ms:8.4f}ms {delay_ms:7.2f}ms {theirs_ms:8.1f}ms {theirs_ms / ours_ms:7.0f}x "
            f"{'yes' if is_same else 'no':>10} {step_ms:6.2f}ms",
            flush=True,
        )
    print("medians of processor time; dynamic programming on 8 quanta for each application")
    if quota_ms is not None:
        print(f"a limit is written into the kernel in {quota_ms:.4f} ms")
    return rows


def _quota_ms() -> float | None:
    """Return the processor milliseconds of changing a limit that holds already; None: no control groups here."""
    hierarchy = cgroup.find()
    if hierarchy is None:
        return None
    group = cgroup.Group(hierarchy, "headwater-bench-quota")
    group.make()
    try:
        cores = itertools.cycle((0.2, 0.21))
        return _timed(lambda: group.set_cores(next(cores)), 300)
    finally:
        group.dissolve()


def _timed(act: Callable[[], Any], times: int) -> float:
    """Return the median of processor milliseconds."""
    took = []
    for _ in range(times):
        begun_s = time.process_time_ns()
        act()
        took.append(time.process_time_ns() - begun_s)
    return float(np.median(took)) / 1e6


def _step_ms(count: int) -> float:
    """Return the processor milliseconds of one step of the controller."""
    rng = np.random.default_rng(count)
    names = tuple(f"a{i}" for i in range(count))
    apps = applications(names, tuple(CLASSES[i % 3] for i in range(count)), 1e-5)
    state, settings, took = mpc.begin(apps), mpc.Settings(), []
    for second in range(60):
        rate = rng.poisson(1600.0, count).astype(np.float64)
        columns = {key: np.zeros(count) for key in COLUMNS}
        columns |= {"arrivals_rps": rate, "throughput_rps": rate, "used": rate * 1e-6,
                    "queue": rng.poisson(5.0, count).astype(np.float64), "share": np.full(count, np.inf)}  # fmt: skip
        readings = Readings(names, 1.0, columns)
        begun_s = time.process_time_ns()
        state, _ = mpc.step(state, float(second), readings, apps, 1600.0 * 1e-6 * count / 0.9, settings)
        took.append(time.process_time_ns() - begun_s)
    return float(np.median(took[10:])) / 1e6


def queues(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare the queueing model with the simulator: waits at several loads, with and without chance in the work."""
    from headwater.sim.result import percentile  # noqa: PLC0415 - compiles
    from headwater.sim.simulation import Simulation  # noqa: PLC0415

    del options
    rows = []
    print(f"{'work':12} {'load':>5} {'mean':>8} {'simulated':>9} {'error':>7} {'p99':>8} {'simulated':>9} {'error':>7}")
    for is_exponential in (True, False):
        for load in (0.3, 0.5, 0.7, 0.8, 0.9):
            made = tuple(
                Simulated(f"q{i}", Sinusoid(load), work_s=1.0, is_poisson=True, is_exponential=is_exponential,
                          on=("m",), share=1.0)
                for i in range(400)
            )  # fmt: skip
            simulation = Simulation(Scenario("queues", 1600.0, (Machine("m", 1e3, 1e6),), made, (), 0.04, 1))
            simulation.advance(400.0)
            plant = simulation.plant
            plant.settle()
            before = (plant.detail.delays.copy(), plant.counts.spent.copy(), plant.counts.done.copy())
            simulation.advance(1600.0)
            plant.settle()
            histogram = (plant.detail.delays - before[0]).sum(axis=0)
            done = float((plant.counts.done - before[2]).sum())
            mean_s = float((plant.counts.spent - before[1]).sum()) / done
            p99_s = float(percentile(histogram, 0.99))
            rate, one, cs2 = np.array([load]), np.array([1.0]), 1.0 if is_exponential else 0.0
            wait = float(mean_wait(rate, one, 0.5 * (1.0 + cs2))[0])
            late = float(wait_percentile(rate, one, 0.99, 1.0, cs2)[0])
            # Even work flows in the simulator: a record is counted when half of it is done.
            own_s = 1.0 if is_exponential else 0.5
            wait, late = wait + own_s, late + own_s
            kind = "exponential" if is_exponential else "even"
            rows.append({"work": kind, "load": load, "mean_s": wait, "simulated_mean_s": mean_s, "p99_s": late,
                         "simulated_p99_s": p99_s})  # fmt: skip
            print(
                f"{kind:12} {load:5.1f} {wait:8.3f} {mean_s:9.3f} {wait / mean_s - 1:+7.1%} {late:8.2f} {p99_s:9.2f} "
                f"{late / p99_s - 1:+7.1%}",
                flush=True,
            )
    return rows


def _traces(folder: Path, shape: str = SHAPES[0]) -> list[list[float]]:
    """Return measured loads with a mean of 1, one value a second: straight between samples, or each sample held."""
    loads = []
    for file in sorted(folder.glob("*.csv")) if folder.is_dir() else ():
        with file.open(encoding="utf-8") as opened:
            values = np.array([float(row["value"]) for row in csv.DictReader(opened)])
        if values.mean() > 0.0:
            straight = np.interp(np.arange(TRACE_S * len(values)) / TRACE_S, np.arange(len(values)), values)
            fine = straight if shape == "ramps" else np.repeat(values, TRACE_S)
            loads.append((fine / fine.mean()).tolist())
    return loads


def _row(run: Run) -> dict[str, Any]:
    row: dict[str, Any] = {
        phase: [
            {"p50_s": one.p50_s, "p99_s": one.p99_s, "violations": one.violations, "done": one.done, "used": one.used,
             "waiting": one.waiting, "overdue": one.overdue}
            for one in found
        ]
        for phase, found in run.phases.items()
    }  # fmt: skip
    used = [one.used for one in run.phases["burst"]]
    row["share_of_lowest"] = used[-1] / sum(used)
    row["throughput_rps"] = sum(one.done for one in run.phases["burst"]) / BURST_S
    row["above"] = run.above["burst"]
    row["control_s"] = run.control_s
    row["shares"] = run.shares
    row["burst_s"] = (WARM_S + BEFORE_S, WARM_S + BEFORE_S + BURST_S)
    return row


def _head(text: str) -> None:
    print(f"\n{text}; in the burst:")
    print(f"(waiting: records at its end; above: applications of {CLASSES[0].name} of which more than "
          f"{CLASSES[0].tolerated:.0%} is late)")  # fmt: skip
    print(f"{'policy':11} " + " ".join(f"{f'p99 {one.name}':>12} {'late':>7} {'waiting':>8}" for one in CLASSES)
          + f" {'above':>5} {'lowest':>7} {'records/s':>11}", flush=True)  # fmt: skip


def _print(row: dict[str, Any]) -> None:
    cells = " ".join(
        f"{math.nan if one['p99_s'] is None else one['p99_s'] * 1e3:10.1f}ms {one['violations']:7.2%} "
        f"{one['waiting']:8.0f}"
        for one in row["burst"]
    )
    print(
        f"{row['policy']:11} {cells} {row['above'][0]:5} {row['share_of_lowest']:7.1%} {row['throughput_rps']:11.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
