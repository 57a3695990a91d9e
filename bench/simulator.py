"""How fast is the simulator? One command: a table for the reader, JSON for programs.

Run it with `python -m bench.simulator`. Everything is measured in processor seconds of one core, each size in a
process of its own. Sinusoids on machines that are 60 % full on average; `--full 0.95` makes queues wait. `--day` also
runs the day: 1 000 operators, 50 machines, 10 failures, 24 schedules, 86 400 steps.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from bench import measure
from headwater.bind import compiled

__all__ = ["day", "main", "shared"]

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
OPERATOR_STEPS = 40_000_000  # of one measurement
FEWEST_STEPS = 20
OUT = "out/simulator.json"


def shared(operators: int, steps: int, full: float, seed: int = 0) -> Any:
    """Return a scenario of sinusoids, twenty to a machine."""
    from headwater.model.scenario import Machine, Scenario, Simulated  # noqa: PLC0415 - after the cache is chosen
    from headwater.model.workload import Sinusoid  # noqa: PLC0415

    rng = Random(seed)
    machines = max(1, operators // 20)
    made = tuple(
        Simulated(
            f"o{i}",
            Sinusoid(rng.uniform(100, 200), rng.uniform(40, 60), 40.0, rng.uniform(0, 2 * math.pi)),
            on=(f"m{i % machines}",),
        )
        for i in range(operators)
    )
    power = 150.0 * operators / machines / full
    return Scenario("shared", float(steps), tuple(Machine(f"m{j}", 1.0, power) for j in range(machines)), made)


def day(operators: int = 1_000, machines: int = 50, failures: int = 10, schedules: int = 24) -> Any:
    """Return a day with operators whose peaks fall on different hours, machines that die for an hour, and schedules."""
    from headwater.model.scenario import (  # noqa: PLC0415
        Event,
        KillMachine,
        Machine,
        NewMachine,
        Scenario,
        Schedule,
        Simulated,
    )  # fmt: skip
    from headwater.model.workload import Sinusoid  # noqa: PLC0415

    rng, end_s = Random(7), 86_400.0
    made = tuple(
        Simulated(
            f"o{i}", Sinusoid(rng.uniform(10, 20), rng.uniform(4, 6), rng.choice((3600.0, 7200.0, 86_400.0)),
                              rng.uniform(0, 2 * math.pi))
        )
        for i in range(operators)
    )  # fmt: skip
    events = [Event(i * end_s / schedules, Schedule("bestfit")) for i in range(schedules)]
    for i in range(failures):
        at_s = (i + 0.5) * end_s / failures
        events += [Event(at_s, KillMachine(f"m{i}")), Event(at_s + 3600.0, NewMachine(Machine(f"m{i}")))]
    power = 15.0 * operators / machines * 1.4
    events = [event for event in events if event.at_s <= end_s]
    return Scenario(
        "day", end_s, tuple(Machine(f"m{j}", 1.0, power, 0.2) for j in range(machines)), made,
        tuple(sorted(events, key=lambda event: event.at_s)),
    )  # fmt: skip


def _measured(operators: int, full: float) -> dict[str, Any]:
    """Run one size in this process."""
    compiled.use_cache()
    from headwater.sim.plant import Plant  # noqa: PLC0415 - compiles

    steps = max(FEWEST_STEPS, OPERATOR_STEPS // operators)
    begun_s = time.process_time()
    plant = Plant(shared(operators, steps, full), 0)
    built_s = time.process_time() - begun_s
    plant.run(1)
    begun_s = time.process_time()
    plant.run(steps)
    cpu_s = time.process_time() - begun_s
    return {
        "operators": operators,
        "steps": steps,
        "full": full,
        "is_detailed": plant.is_detailed,
        "build_cpu_s": built_s,
        "cpu_s": cpu_s,
        "operator_steps_per_s": operators * (steps - 1) / cpu_s,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _day_measured() -> dict[str, Any]:
    compiled.use_cache()
    from headwater.sim.simulation import simulate  # noqa: PLC0415 - compiles

    scenario = day()
    begun_s = time.process_time()
    result = simulate(scenario)
    cpu_s = time.process_time() - begun_s
    totals = result.totals
    return {
        "cpu_s": cpu_s,
        "operator_steps": result.operator_steps,
        "schedules": sum(one.placement is not None for one in result.moments),
        "failures": sum("dies" in one.text for one in result.moments),
        "p99_s": totals.p99_s,
        "queue_max": totals.queue_max,
        "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.simulator", description="Measure the simulator.")
    parser.add_argument("--sizes", metavar="N,...", default=",".join(map(str, SIZES)), help="numbers of operators")
    parser.add_argument("--full", metavar="X", type=float, default=0.6, help="mean load of machines (default 0.6)")
    parser.add_argument("--day", action="store_true", help="also run a day of 1 000 operators")
    parser.add_argument("--out", metavar="FILE.json", default=OUT, help=f"where the figures go (default {OUT})")
    parser.add_argument("--child", metavar="JOB", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.child:
        found = _day_measured() if asked.child == "day" else _measured(int(asked.child), asked.full)
        print(json.dumps(found))
        return 0
    report: dict[str, Any] = {"machine": measure.machine(), "sources": measure.sources(), "sizes": []}
    print(f"{'operators':>10} {'steps':>9} {'CPU s':>7} {'million operator-steps/s':>25} {'memory':>9}")
    for size in measure.listed(asked.sizes):
        found = _child(size, asked.full)
        report["sizes"].append(found)
        print(
            f"{found['operators']:>10} {found['steps']:>9} {found['cpu_s']:>7.2f} "
            f"{found['operator_steps_per_s'] / 1e6:>25.1f} {found['memory_bytes'] / 1e6:>6.0f} MB"
        )
    if asked.day:
        found = report["day"] = _child("day", asked.full)
        print(
            f"a day: {found['operator_steps']} operator-steps, {found['schedules']} schedules, {found['failures']} "
            f"failures in {found['cpu_s']:.1f} CPU s, {found['memory_bytes'] / 1e6:.0f} MB"
        )
    file = Path(asked.out)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(f"The figures are in {asked.out}.")
    return 0


def _child(job: str, full: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.simulator", "--child", job, "--full", str(full)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=measure.ROOT, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
