"""How does a command come to know what a project costs?

Lays the samples down and lets a process of its own measure (`serve.profile_main`): the project's code is the
user's, and what is measured is that process and all below it. Its progress is passed on; what the project prints is
not, for it may print at each of millions of records, but its last lines are told when there is no answer.

    HW1807  a number that makes no sense
    HW4703  the process that measures ended without an answer
    HW9018  our bug in that process
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.author.nowhere import BROKER, PLACEHOLDERS, SITE
from headwater.bind.jars import Jars
from headwater.errors import BindError, BrokenInvariant, Mistake, SpecError
from headwater.model.keep import to_json
from headwater.model.profile import OperatorProfile, Profile
from headwater.model.project import Project
from headwater.serve.sample import Taking, chosen, laid

__all__ = ["Wanted", "measured"]

MARK = "\x1eheadwater-profile "  # begins a line of progress, as `serve.profile_main` writes it
LAST_LINES = 12  # of what a process said that gave no answer
# What Java and Spark print at every start, before any log level holds.
NOISE = re.compile(
    r"WARNING: (Using incubator modules|package sun\.security)|Warning: Ignoring non-Spark config property|"
    r"Using Spark's default log4j profile|Setting default log level to|To adjust logging level use|"
    r"\S+ \S+ WARN (NativeCodeLoader|SparkConf|Utils|SparkContext): "
)
UNWANTED = frozenset(("SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS"))  # variables that would make it another session

Say = Callable[[str, float | None], None]  # what is done now, and how much of all is done


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured, and how."""

    samples: Sequence[str] = ()  # 'FILE' or 'OPERATOR=FILE'
    seconds: float | None = None  # listen to the sources themselves for so long; instead of samples
    repeat: int = 3  # timed runs of each operator
    taking: Taking = field(default_factory=Taking)  # from generators
    broker: str | None = None  # that the sources read; None: as the project's configuration says
    speed: float = 1.0  # of this machine, against the reference machine
    least_s: float = 1.0  # of processor time that an operator adds to a run, at least, if it can be had

    def check(self) -> None:
        """Refuse what makes no sense.

        Raises:
            SpecError: HW1801 or HW1807.
        """
        wrong = []
        if bool(self.samples) == (self.seconds is not None):
            what = "both are given" if self.samples else "neither is given"
            wrong.append(Mistake("HW1801", f"a profile is measured with --sample or with --seconds; {what}."))
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            wrong.append(Mistake("HW1807", f"--seconds is {self.seconds:g}; it must be above 0."))
        if self.repeat < 1:
            wrong.append(Mistake("HW1807", f"--repeat is {self.repeat}; at least 1 run is needed."))
        if self.taking.count < 1:
            wrong.append(Mistake("HW1807", f"--count is {self.taking.count}; at least 1 record is needed."))
        if not 0 < self.speed < float("inf"):
            wrong.append(Mistake("HW1807", f"--speed is {self.speed:g}; it must be above 0."))
        if wrong:
            raise SpecError(*wrong)


def measured(path: str, project: Project, jars: Jars, wanted: Wanted, say: Say) -> Profile:
    """Return what the operators of a project cost and give.

    Args:
        path: The project, as the user named it.
        project: What was read of it.
        jars: For Spark.
        wanted: What to measure.
        say: Gets progress: what is done now, and how much of all of it is done.

    Raises:
        SpecError: HW1801 to HW1807: a sample, a number or an operator is wrong.
        BindError: HW4701 to HW4703: there was no answer.
    """
    wanted.check()
    sources = [one.name for one in project.definitions if not one.reads]
    with tempfile.TemporaryDirectory(prefix="headwater-profile-") as folder:
        place = {key: project.configuration.get(key, nowhere) for key, nowhere in PLACEHOLDERS.items()}
        place |= {} if wanted.broker is None else {BROKER: wanted.broker}
        place |= {} if wanted.taking.site is None else {SITE: wanted.taking.site}
        spec: dict[str, Any] = {
            "path": path,
            "project": str(Path(folder, "project.json")),
            "folder": folder,
            "jars": [str(one) for one in jars.spark],
            "samples": _samples(project, sources, wanted, Path(folder), place[SITE], say) if wanted.samples else {},
            "seconds": wanted.seconds,
            "repeat": wanted.repeat,
            "least_s": wanted.least_s,
            "speed": wanted.speed,
            "place": place,
            "out": str(Path(folder, "answer.json")),
        }
        Path(spec["project"]).write_text(to_json(project), "utf-8")
        answer = _asked(spec, path, say)
    operators = tuple(OperatorProfile(**each) for each in answer["operators"])
    by_name = {each.name: each for each in operators}
    ordered = tuple(by_name[one.name] for one in project.definitions)
    return Profile(project.name, ordered, project.fingerprint, wanted.repeat, tuple(answer["notes"]))


def _samples(
    project: Project, sources: Sequence[str], wanted: Wanted, folder: Path, site: str, say: Say
) -> dict[str, str]:
    """Lay the sample of each source down, each file once, and return where."""
    found: dict[str, str] = {}
    files: dict[str, str] = {}
    for name, sample in chosen(wanted.samples, sources).items():
        if sample not in files:
            say(f"reading {sample}", None)
            target = folder / f"sample-{len(files)}.parquet"
            taking = Taking(site, wanted.taking.seed, wanted.taking.count)
            laid(sample, target, taking, project.pipeline.by_name[name].rate_rps)
            files[sample] = str(target)
        found[name] = files[sample]
    return found


def _asked(spec: Mapping[str, Any], path: str, say: Say) -> dict[str, Any]:
    file = Path(spec["folder"], "spec.json")
    file.write_text(json.dumps(spec), "utf-8")
    said, code = _run(file, say)
    try:
        answer: dict[str, Any] = json.loads(Path(spec["out"]).read_text("utf-8"))
    except (OSError, ValueError):
        last = "".join(f"\n    {line}" for line in said) or " It said nothing."
        raise BindError(
            f"HW4703 the process that measures project '{path}' ended with code {code} and no answer. Its last "
            f"lines:{last}"
        ) from None
    if "mistakes" in answer:
        raise SpecError(*(Mistake(**each) for each in answer["mistakes"]))
    if "refused" in answer:
        raise BindError(answer["refused"])
    if "broken" in answer:
        raise BrokenInvariant(f"HW9018 measuring project '{path}' went wrong:\n{answer['broken']}")
    return answer


def _run(spec: Path, say: Say) -> tuple[list[str], int]:
    """Let another process measure; return its last lines and its exit code."""
    environment = {key: value for key, value in os.environ.items() if key not in UNWANTED}
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater.serve.profile_main", str(spec)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment | {"PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"},
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # so that Spark's Java and Python processes end with it
    )
    last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
    try:
        assert process.stdout is not None, "it is a pipe"
        with process.stdout as lines:
            for line in lines:
                if line.startswith(MARK):
                    say(*json.loads(line.removeprefix(MARK)))
                elif not NOISE.match(line):
                    last.append(line.rstrip("\n"))
        code = process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return list(last), code
