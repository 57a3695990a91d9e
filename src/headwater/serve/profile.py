"""What do a project's operators cost and give, for people and programs?

Measures each operator alone on real records (`serve.profiling`), shows what was declared beside what was found, and
writes a profile that `headwater run --profile` uses in place of what was declared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from headwater.model.pipeline import Operator
from headwater.model.profile import OperatorProfile, Profile, profiled, read_profile, write_profile
from headwater.model.project import Project
from headwater.model.units import show
from headwater.serve import disk
from headwater.serve.load import shown_name
from headwater.serve.output import Output
from headwater.serve.plain import plain
from headwater.serve.profiling import Wanted, measured
from headwater.serve.progress import Teller, note
from headwater.serve.reading import fetched_jars, read
from headwater.serve.render import share, simple_table

__all__ = ["FILE", "profile", "profile_object", "profile_view", "with_profile"]

# In the project's folder. No ending by which files count as part of the project: a profile must not change what
# it is a profile of.
FILE = "headwater.profile"
DONE = 0  # exit code
NONE = "-"


def profile(project: str, wanted: Wanted, out: str | None, output: Output) -> int:
    """Measure a project, write its profile and show it.

    Args:
        project: A folder with spark-pipeline.yml, that file, or a single .py file.
        wanted: What to measure, and how.
        out: The file to write; None: `FILE` in the project's folder.
        output: Where the answer goes.

    Raises:
        SpecError: HW1801 to HW1807, and those of the project.
        BindError: HW4701 to HW4703, and those of files and Spark.
    """
    wanted.check()
    folder = project if os.path.isdir(project) else os.path.dirname(project)
    target = out if out is not None else os.path.join(folder, FILE)
    if out is not None or os.path.exists(project):  # else the project's absence is what there is to tell
        disk.check_writable(target)
    jars = fetched_jars()
    found = read(project, jars)
    with Teller("measuring") as teller:
        result = measured(project, found, jars, wanted, teller.say)
    disk.write_text(target, write_profile(result))
    note(f"profile written to {target}; use it with --profile {target}")
    output.answer(profile_object(result, target), *profile_view(result, found))
    return DONE


def with_profile(project: Project, file: str | None) -> Project:
    """Return a project with what a profile file says in place of what was declared; None: as it is.

    Raises:
        SpecError: every mistake in the file.
    """
    if file is None:
        return project
    return profiled(project, read_profile(disk.read(file), shown_name(file), project.pipeline))


def profile_object(result: Profile, file: str) -> dict[str, Any]:
    """Return a profile as JSON, in base units; null: not measured."""
    return {
        "pipeline": result.pipeline,
        "fingerprint": result.fingerprint,
        "file": str(Path(file)),
        "repeat": result.repeat,
        "operators": [
            {
                "name": each.name,
                "work_s": each.work_s,
                "work_spread_s": each.spread_s,
                "work_spread": _relative(each),
                "rate_factor": each.rate_factor,
                "size_factor": each.size_factor,
                "state_bytes": each.state_bytes,
                "rate_rps": each.rate_rps,
                "size_bytes": each.size_bytes,
                "records": each.records,
            }
            for each in result.operators
        ],
        "notes": list(result.notes),
    }


def profile_view(result: Profile, project: Project) -> Iterator[RenderableType]:
    """Yield a profile beside what was declared, as things that rich can print."""
    runs = f"{result.repeat} timed runs each" if result.repeat != 1 else "1 timed run each"
    yield Text.assemble((plain(result.pipeline), "bold"), f": {len(result.operators)} operators, {runs}")
    yield simple_table(
        ("operator", "work for a record", "declared", "rate", "declared", "size", "declared", "state"),
        (_row(each, project.pipeline.by_name[each.name]) for each in result.operators),
    )
    yield Text("work is processor time at speed 1; rate and size are factors, of a source what it gives")
    for each in result.notes:
        yield Padding(Text(f"- {plain(each)}"), (0, 0, 0, 2), expand=False)


def _row(found: OperatorProfile, declared: Operator) -> tuple[str | Text, ...]:
    work = NONE if found.work_s is None else show(found.work_s, "time")
    if found.work_s is not None and found.spread_s is not None:
        relative = _relative(found)
        is_told = relative is not None and relative < 1.0
        work = f"{_short(found.work_s)} ± {share(relative or 0.0)}"
        work = work if is_told else f"below {_short(found.work_s + found.spread_s)}"
    if declared.is_source:
        rate = NONE if found.rate_rps is None else f"{found.rate_rps:.4g}/s"
        size = NONE if found.size_bytes is None else show(found.size_bytes, "size")
        said = show(declared.rate_rps, "rate"), show(declared.size_bytes, "size")
    else:
        rate = NONE if found.rate_factor is None else f"x {found.rate_factor:.3g}"
        size = NONE if found.size_factor is None else f"x {found.size_factor:.3g}"
        said = f"x {declared.rate_factor:.3g}", f"x {declared.size_factor:.3g}"
    state = NONE if found.state_bytes is None else show(found.state_bytes, "size")
    name = Text(plain(found.name), style="bold")
    return name, work, show(declared.work_s, "time"), rate, said[0], size, said[1], state


def _relative(found: OperatorProfile) -> float | None:
    """Return the spread relative to the work, or None where there is nothing to relate it to."""
    return found.spread_s / found.work_s if found.work_s and found.spread_s is not None else None


def _short(seconds: float) -> str:
    """Return a time to three digits: no more of it is known."""
    return show(float(f"{seconds:.3g}"), "time")
