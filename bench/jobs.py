"""What is measured in a process of its own?

Each job takes what it needs from a mapping and gives a mapping that JSON can hold. A problem that a method
makes no sense for is an answer, `left_out` with the reason, and no failure.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import cases, speed
from headwater.cost.problem import Problem
from headwater.errors import SpecError
from headwater.model.files import write_pipeline, write_sites
from headwater.place import METHODS, Infeasible, Limits, Prepared, Result, place

__all__ = ["run"]

MOST_ROUND = 4_000_000  # switch and swap steps of one round; above this sd and ts never see a whole one
MOST_EVOLVED = 2_000  # operators above which ga ends long before its 1 000 generations
MOST_TRIED = 2e7  # placements that exhaustive tries
MOST_PROOF = 1_000_000_000  # streams times pairs of hosts; above this one node of a proof takes seconds
SAME = 1e-9  # two values of F closer than this, relatively, are one


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Do one job."""
    try:
        return JOBS[job["kind"]](job)
    except cases.Absent as error:
        return {"left_out": str(error)}


def _place(job: Mapping[str, Any]) -> dict[str, Any]:
    """Place one problem by one method; making and preparing the problem are timed apart."""
    start = time.perf_counter()
    problem = cases.problem(job["case"])
    made = time.perf_counter()
    held = peak_bytes()
    reason = unfit(problem, job["method"])
    if reason:
        return {"left_out": reason}
    ready = Prepared(problem)
    if not job["is_whole"]:
        ready.bound(Limits())  # shared by all methods, so not part of the time of any
    prepared = time.perf_counter()
    busy = time.process_time()
    try:
        result = place(problem, job["method"], job["seed"], fence(job["fence_s"]), ready)
    except SpecError as error:
        return {"left_out": error.mistakes[0].text.split(";")[0]}
    end = time.perf_counter()
    busy = time.process_time() - busy
    if isinstance(result, Infeasible):
        return {"left_out": f"infeasible: {result.conflict[0]}"}
    return {
        **described(result),
        "operators": len(problem.pipeline.operators),
        "sites": len(problem.sites.sites),
        "make_s": made - start,
        "prepare_s": prepared - made,
        "seconds": end - (made if job["is_whole"] else prepared),
        "search_cpu_s": busy,
        "held_bytes": held,
        "peak_bytes": peak_bytes(),
        "counts": METHODS[job["method"]].is_search,
    }


def _seeds(job: Mapping[str, Any]) -> dict[str, Any]:
    """Prove the optimum, then count the seeds with which annealing reaches it."""
    problem = cases.problem(job["case"])
    ready = Prepared(problem)
    best = place(problem, "exact", 0, fence(job["fence_s"]), ready)
    assert isinstance(best, Result), "the fire job is feasible"
    found, seconds = [], []
    for seed in range(job["seeds"]):
        start = time.perf_counter()
        result = place(problem, "anneal", seed, fence(job["fence_s"]), ready)
        seconds.append(time.perf_counter() - start)
        assert isinstance(result, Result), "the fire job is feasible"
        found.append(result.f)
    reached = sum(f <= best.f + SAME * max(best.f, SAME) for f in found)
    return {"optimum": best.f, "proved": best.proved, "reached": reached, "found": found, "seconds": seconds}


def _files(job: Mapping[str, Any]) -> dict[str, Any]:
    """Write a problem as a pipeline file and a sites file."""
    problem = cases.problem(job["case"])
    pipeline, sites = Path(job["pipeline"]), Path(job["sites"])
    pipeline.write_text(write_pipeline(problem.pipeline), "utf-8")
    sites.write_text(write_sites(problem.sites), "utf-8")
    return {"pipeline_bytes": pipeline.stat().st_size, "sites_bytes": sites.stat().st_size}


def _speed(job: Mapping[str, Any]) -> dict[str, Any]:
    return speed.measure(cases.problem(job["case"]), job["rounds"])


def _nothing(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return at once: the kernels are compiled by now."""
    del job
    return {}


JOBS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "place": _place,
    "seeds": _seeds,
    "files": _files,
    "speed": _speed,
    "compile": _nothing,
}


def unfit(problem: Problem, method: str) -> str:
    """Return why a method makes no sense on a problem of this size; empty where it does."""
    operators, streams, hosts = len(problem.pipeline.operators), len(problem.pipeline.streams), len(problem.hosts)
    steps = operators * hosts + operators * operators // 2
    pairs = streams * hosts**2
    if method == "exhaustive":
        digits = sum(math.log10(max(1, len(problem.allowed(operator)))) for operator in problem.pipeline.operators)
        return f"about 1e{digits:.0f} placements" if digits > math.log10(MOST_TRIED) else ""
    if method in ("sd", "ts") and steps > MOST_ROUND:
        return f"one round has {steps / 1e6:.0f} million steps"
    if method == "ga" and operators > MOST_EVOLVED:
        return f"{operators} operators: its budget ends in the first generations"
    if method == "exact" and pairs > MOST_PROOF:
        return f"one node of a proof looks at {pairs:.0e} pairs; it would be anneal alone"
    return ""


def described(result: Result) -> dict[str, Any]:
    """Return what counts of a result."""
    return {
        "f": result.f,
        "rt_s": result.score.rt_s,
        "rf": result.score.rf,
        "bw_bps": result.score.bw_bps,
        "lower_bound": result.lower_bound,
        "gap": result.gap,
        "proved": result.proved,
        "cut_short": result.cut_short,
        "evaluations": result.evaluations,
        "because": list(result.because),
    }


def fence(seconds: float) -> Limits:
    """Return limits that end in so many seconds."""
    end = time.perf_counter() + seconds
    return Limits(lambda: end - time.perf_counter())


def peak_bytes() -> int:
    """Return the most memory this process has held; what its parent held before it started does not count."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
