"""What does one measurement see when it has a process to itself?

`python -m bench.child` reads one job as JSON from standard input and prints what came of it as JSON. A
process of its own makes peak memory its own. Commands are measured here, in a process that has loaded next
to nothing; everything that needs the search is in `bench.jobs`.
"""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["main", "run_command"]


def run_command(arguments: Sequence[str], keep: bool) -> dict[str, Any]:
    """Run a command and return its wall seconds, peak memory and, if it is to be kept, what it printed."""
    start = time.perf_counter()
    done = subprocess.run(arguments, check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = used.ru_maxrss * 1024  # kibibytes on Linux
    if done.returncode:
        return {"left_out": f"exit code {done.returncode}: {done.stderr.strip()[-200:]}"}
    return {
        "seconds": seconds,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_bytes": peak,
        "output": done.stdout if keep else "",
    }


def main() -> None:
    """Do the job on standard input."""
    job: Mapping[str, Any] = json.load(sys.stdin)
    if job["kind"] == "command":
        answer = run_command(job["arguments"], job["keep"])
    else:
        importlib.import_module("headwater.bind.compiled").compile_all(lambda text: print(text, file=sys.stderr))
        answer = importlib.import_module("bench.jobs").run(job)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
