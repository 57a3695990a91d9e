"""What do a project's operators cost? Asked by another process.

`python -m headwater.serve.profile_main SPEC` starts a Spark of its own, measures (`serve.measuring`) and writes what
came of it to the file that SPEC names. Lines of progress go to standard output, behind a mark. `serve.profiling`
asks.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.author.load import load
from headwater.bind.measure import Bench
from headwater.bind.session import start_session
from headwater.errors import BindError, SpecError
from headwater.model.keep import from_json
from headwater.serve.measuring import Measuring

__all__ = ["main"]

MARK = "\x1eheadwater-profile "  # begins a line of progress, as `serve.profiling` reads it
HEAP_MB = 1_024
FLAGS = ("-XX:-UseDynamicNumberOfCompilerThreads",)  # their time is told apart as long as they live


def main(arguments: list[str]) -> int:
    """Measure one project and write the answer to a file."""
    spec = json.loads(Path(arguments[0]).read_text("utf-8"))
    answer: dict[str, Any]
    try:
        answer = _measured(spec)
    except SpecError as error:
        answer = {"mistakes": [asdict(each) for each in error.mistakes]}
    except BindError as error:
        answer = {"refused": str(error)}
    except Exception:  # noqa: BLE001 - told as our bug, with where it was
        answer = {"broken": traceback.format_exc()}
    Path(spec["out"]).write_text(json.dumps(answer), "utf-8")
    sys.stdout.flush()
    os._exit(0)  # threads of py4j would hold the process


def _measured(spec: Mapping[str, Any]) -> dict[str, Any]:
    project = from_json(Path(spec["project"]).read_text("utf-8"))
    folder = Path(spec["folder"])
    _say("starting Spark", None)
    spark = start_session(
        f"headwater profile {project.name}",
        folder / "spark",
        [Path(one) for one in spec["jars"]],
        1,
        {**project.configuration, **spec["place"]},
        HEAP_MB,
        FLAGS,
    )
    try:
        measuring = Measuring(project, load(spec["path"], spark), Bench(spark, folder / "bench"), spec, _say)
        return {"operators": [asdict(one) for one in measuring.all()], "notes": measuring.notes}
    finally:
        spark.stop()


def _say(text: str, share: float | None) -> None:
    sys.stdout.write(f"{MARK}{json.dumps([text, share])}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
