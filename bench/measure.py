"""How is one thing measured, and on what machine?

Runs a job of `bench.child` in a process of its own and gives back what it says. Knows nothing of placement
and loads nothing of it: the process that starts the others stays small.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

__all__ = ["ROOT", "Run", "Spread", "listed", "machine", "run", "sources", "spread"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("headwater", "numpy", "numba", "scipy")
PATIENCE_S = 600.0  # beyond its fence, before a job is ended from outside

Answer = dict[str, Any]
Run = Callable[[str, Mapping[str, Any]], Answer]  # a title for the user and a job; gives what came of it
Spread = dict[str, float]


def run(job: Mapping[str, Any]) -> Answer:
    """Do one job in a process of its own; a failure is an answer too."""
    limit_s = float(job.get("fence_s", 0.0)) * max(1, int(job.get("seeds", 1))) + PATIENCE_S
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.child"],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"left_out": f"ended from outside after {limit_s:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["nothing said"]
        return {"left_out": f"failed with exit code {done.returncode}: {lines[-1]}", "failed": True}
    answer: Answer = json.loads(done.stdout)
    return answer


def machine() -> dict[str, Any]:
    """Return what of this machine matters for the figures."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "load_at_start": round(os.getloadavg()[0], 2),
    }


def sources() -> str:
    """Return a digest of what is measured: figures with the same digest are of the same code."""
    digest = hashlib.sha256()
    for file in sorted((ROOT / "src").rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def spread(values: Sequence[float]) -> Spread:
    """Return the median, the least and the most.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'least': 1.0, 'most': 3.0}
    """
    return {"median": median(values), "least": min(values), "most": max(values)}


def listed(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas."""
    return tuple(name for name in text.split(",") if name)
