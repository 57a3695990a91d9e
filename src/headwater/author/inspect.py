"""What does a project say? Answered by a process of its own, or from what it answered before.

The project's code is the user's: it may print, crash or hang, so it runs elsewhere (`author.inspect_main`). The
answer is kept under a fingerprint of the project's files, so that the second time no Spark starts.

    HW4301  Spark does not start
    HW4302  the process that reads the project ended without an answer
    HW4303  it took too long
    HW4304  pyspark is not there
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwater.author.files import Files, find
from headwater.errors import BindError, Mistake, SpecError
from headwater.model.keep import from_json, to_json
from headwater.model.project import Project

__all__ = ["inspect"]

JARS = "HEADWATER_SPARK_JARS"  # variable of the environment that `inspect_main` reads
LAST_LINES = 12  # of what a crashed process said
# What Java and Spark print at every start, before any log level holds.
NOISE = (
    "WARNING: Using incubator modules",
    "WARNING: package sun.security",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "To adjust logging level use",
)
UNWANTED = frozenset(("SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS"))  # variables that would make it another session


def inspect(path: str, jars: Sequence[str] = (), cache: str | None = None, seconds: float = 300.0) -> Project:
    """Return the project at a path: a folder with spark-pipeline.yml, that file, or a single .py file.

    Args:
        path: as the user named it.
        jars: what Spark needs on its classpath, such as Kafka's connector.
        cache: a folder in which answers are kept; None: none are.
        seconds: how long it may take.

    Raises:
        SpecError: every mistake of the project.
        BindError: HW4301 to HW4304, there was no answer.
    """
    files = find(path)
    kept = None if cache is None else Path(cache, f"{_key(files, path, jars)}.json")
    if kept is not None:
        with contextlib.suppress(OSError, ValueError):
            return from_json(kept.read_text(encoding="utf-8"))
    project = _asked(path, jars, seconds)
    if kept is not None:
        with contextlib.suppress(OSError):  # keeping is a favour, not a duty
            _keep(kept, to_json(project))
    return project


def _key(files: Files, path: str, jars: Sequence[str]) -> str:
    """Return a name for all that the answer depends on; where the project lies and what it is called are part of it."""
    names = sorted(os.path.basename(jar) for jar in jars)
    text = "\n".join((files.fingerprint, files.folder, path, *files.libraries, *names))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _keep(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _asked(path: str, jars: Sequence[str], seconds: float) -> Project:
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        out = Path(folder, "answer.json")
        said, code = _run(path, out, jars, seconds)
        try:
            answer = json.loads(out.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            last = "".join(f"\n    {line}" for line in said) or " It said nothing."
            raise BindError(
                f"HW4302 the process that reads project '{path}' ended with code {code} and no answer. Its last "
                f"lines:{last}"
            ) from None
    if "mistakes" in answer:
        raise SpecError(*(Mistake(**each) for each in answer["mistakes"]))
    if "refused" in answer:
        last = "".join(f"\n    {line}" for line in said)
        raise BindError(f"{answer['refused']}{last}")
    return from_json(json.dumps(answer["project"]))


def _run(path: str, out: Path, jars: Sequence[str], seconds: float) -> tuple[list[str], int]:
    """Let another process read the project; return its last lines and its exit code."""
    environment = {key: value for key, value in os.environ.items() if key not in UNWANTED}
    environment |= {"PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}
    if jars:
        environment[JARS] = os.pathsep.join(jars)
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater.author.inspect_main", path, "--out", str(out)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,  # so that Spark's Java and Python processes end with it
    )
    late = threading.Event()

    def end() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdout is not None, "it is a pipe"
        said = _relayed(process.stdout)
        code = process.wait()
    except BaseException:
        _end(process)
        process.wait()
        raise
    finally:
        timer.cancel()
        if process.stdout is not None:
            process.stdout.close()
    if late.is_set():
        last = "".join(f"\n    {line}" for line in said)
        raise BindError(
            f"HW4303 project '{path}' was not read within {seconds:g} s. Does its code wait for something? Its last "
            f"lines:{last or ' none.'}"
        )
    return said, code


def _relayed(lines: Iterable[str]) -> list[str]:
    """Pass on to standard error what the project prints, and return the last lines."""
    last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
    for line in lines:
        if not line.startswith(NOISE):
            last.append(line.rstrip("\n"))
            if sys.stderr is not None:
                sys.stderr.write(line)
    return list(last)


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
