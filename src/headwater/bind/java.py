"""Which Java runs here, and how is a program on it started so that it ends with us, or outlives us?

Spark, Kafka and the fetching of their jars need Java. `Child` also serves for any other program that must
not outlive the process that started it, however that one ends; or that must, and is taken over by the next one
(`bind.adopted`).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from headwater.errors import BindError

__all__ = ["GET_JAVA", "HEAP_MB", "OLDEST_JAVA", "Child", "find_java", "java", "java_major", "release"]

OLDEST_JAVA = 17
HEAP_MB = 512  # of a runner's JVM; Spark refuses less than 450
GET_JAVA = (
    "install a Java 17 or newer runtime (Debian: apt install openjdk-17-jre-headless; "
    "Fedora: dnf install java-17-openjdk-headless; macOS: brew install openjdk@17) or set JAVA_HOME to one"
)

# Runs in the new process before the program itself: asks Linux to kill it when its parent goes, then becomes
# the program. Done there and not in a preexec_fn, which may deadlock when the parent has threads.
_BIND_AND_BECOME = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != parent:
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

# In the environment of this process, and not for programs that run the code of users.
_OURS = {"HEADWATER_TOKEN", "HEADWATER_TOKEN_FILE"}


def java() -> Path:
    """Return the program `java`, new enough; looked for in JAVA_HOME and then on the PATH.

    Raises:
        BindError: HW4101 there is none; HW4102 it is too old.
    """
    return _java(os.environ.get("JAVA_HOME"), os.environ.get("PATH"))


@functools.cache
def _java(home: str | None, path: str | None) -> Path:
    """Look once for each environment."""
    places = {"JAVA_HOME": home, "PATH": path}
    program, major = find_java({name: value for name, value in places.items() if value is not None}, release)
    if program is None or major is None:
        where = "in JAVA_HOME or on the PATH" if program is None else f"at '{program}', which does not tell its version"
        raise BindError(
            f"HW4101 no Java was found {where}; Java {OLDEST_JAVA} or newer runs Spark and Kafka; {GET_JAVA}"
        )
    if major < OLDEST_JAVA:
        raise BindError(
            f"HW4102 the Java at '{program}' is version {major}, {OLDEST_JAVA} or newer is needed; {GET_JAVA}"
        )
    return program


def find_java(
    environment: Mapping[str, str], tells: Callable[[str], str] | None = None
) -> tuple[Path | None, int | None]:
    """Return the program `java` that this environment leads to, and its major version, as far as there are any.

    Args:
        environment: With JAVA_HOME and PATH.
        tells: Gives what a program says of its version; None: it is started and asked.
    """
    home = environment.get("JAVA_HOME")
    at_home = os.path.join(home, "bin", "java") if home else None
    program = at_home if at_home and os.access(at_home, os.X_OK) else shutil.which("java", path=environment.get("PATH"))
    return (Path(program), java_major((tells or _said)(program))) if program else (None, None)


def release(program: str) -> str:
    """Return which Java a program is: the file that comes with it says so, or else it is asked.

    Asking takes a tenth of a second, and several times that on a full machine, where an agent that was killed is waited
    for.
    """
    try:
        found = (Path(program).resolve().parents[1] / "release").read_text("utf-8")
    except (OSError, UnicodeError, IndexError):
        return _said(program)
    return found if java_major(found) is not None else _said(program)


def java_major(said: str) -> int | None:
    """Return the major version in what `java -version` says, or the file `release` of a Java.

    >>> java_major('openjdk version "17.0.15" 2025-04-15'), java_major('java version "1.8.0_392"')
    (17, 8)
    >>> java_major('JAVA_VERSION="21.0.4"')
    21
    """
    match = re.search(r'(?:version |^JAVA_VERSION=)"(\d+)(?:\.(\d+))?', said, re.MULTILINE)
    if match is None:
        return None
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def _said(program: str) -> str:
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return ""
    return done.stderr + done.stdout


class Child:
    """A running program that ends with this process: on Linux even when this process is killed.

    It stands in a session of its own, so that Ctrl-C reaches only this process, which then stops it in order. One
    that is not bound goes on when this process ends, however it does.
    """

    def __init__(self, command: Sequence[str], folder: Path, output: IO[bytes], *, is_bound: bool = True) -> None:
        """Start the command in a folder; what it prints goes to `output`.

        Args:
            command: The program, by its whole path, and its arguments.
            folder: Where it runs.
            output: An open file.
            is_bound: Whether it ends with this process.

        Raises:
            OSError: it cannot be started.
        """
        self._command = list(command)
        self._folder = folder
        self._output = output
        self._is_bound = is_bound
        self._process: subprocess.Popen[bytes] | None = None
        self._refused: OSError | None = None
        self._started = threading.Event()
        self._ended = threading.Event()
        # Linux binds a child to the thread that started it, not to the process: this one lives as long as the child.
        threading.Thread(target=self._run, name=f"child {Path(command[0]).name}", daemon=True).start()
        self._started.wait()
        if self._refused is not None:
            raise self._refused

    def _run(self) -> None:
        bind = [sys.executable, "-I", "-S", "-c", _BIND_AND_BECOME, str(os.getpid())]
        environment = {name: value for name, value in os.environ.items() if name not in _OURS}
        try:
            self._process = subprocess.Popen(
                [*(bind if self._is_bound and sys.platform == "linux" else []), *self._command],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                env=environment | {"LC_ALL": "C.UTF-8"},  # else Java cannot open a file whose name is not ASCII
                start_new_session=True,
            )
        except OSError as error:
            self._refused = error
            self._ended.set()
            self._started.set()
            return
        self._started.set()
        self._process.wait()
        self._ended.set()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """What it ended with (minus the signal's number if by a signal); None while it runs."""
        return self._process.returncode if self._process is not None and self._ended.is_set() else None

    def wait(self, timeout_s: float) -> bool:
        """Return whether it has ended, after waiting for that at most so long."""
        return self._ended.wait(timeout_s)

    def signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self._process is not None and not self._ended.is_set():
            self._process.send_signal(number)
