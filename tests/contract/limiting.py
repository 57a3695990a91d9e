"""What the tests of limits share: processes that run in sessions of their own, agents that may be killed, measurements.

What is measured may be less because the whole machine is busy, so a measurement has three tries.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.bind import cgroup
from headwater.bind.cgroup import Group, Hierarchy
from headwater.bind.limiter import Limiter
from tests.contract.beds import tries, until

NAME = f"test-{os.getpid()}"
PYTHON = (sys.executable, "-I", "-S", "-c")
BURN = "print(flush=True)\nwhile True: pass"
AGENT = """
import os, sys
from headwater.bind import cgroup
from headwater.bind.limiter import Limit, Limiter
for file in sys.argv[3:]:
    with open(file, "w") as opened:
        opened.write(str(os.getpid()))
limiter = Limiter(sys.argv[1], cgroup.find() if sys.argv[2] == "groups" else None, lambda text: None)
print(flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""
START_S = 60.0  # for a program to start that may run behind all others
FIRST = 20.0  # the weight of what goes before what else runs here, which must not decide what is measured
Start = Callable[..., subprocess.Popen[str]]


def starts() -> Iterator[Start]:
    """Yield what starts Python in a session of its own; all of them end with the test."""
    made: list[subprocess.Popen[str]] = []

    def begin(code: str, *words: str, plain: bool = True) -> subprocess.Popen[str]:
        command = [*(PYTHON if plain else (sys.executable, "-c")), code, *words]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        made.append(process)
        with contextlib.suppress(PermissionError):  # these tests may run behind all others; what is measured must not
            os.sched_setscheduler(process.pid, os.SCHED_OTHER, os.sched_param(0))
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield begin
    for process in made:
        process.kill()
    for process in made:
        process.communicate()


def place() -> Hierarchy | None:
    """Return the control groups below which a limiter of this process makes its own."""
    found = cgroup.find()
    return cgroup.own(found) if found is not None and found.version == 1 else found


def shares(limiter: Limiter, during_s: float = 1.5) -> dict[str, float]:
    """Return how many cores each runner uses; those in control groups go before what else runs here."""
    found = place()
    if found is not None and Group(found, "headwater").is_there:
        Group(found, "headwater").set_weight(FIRST)
    before, begun_s = limiter.usage(), time.monotonic()
    time.sleep(during_s)  # the stretch that is measured
    after, passed_s = limiter.usage(), time.monotonic() - begun_s
    return {name: (one.used_s - before[name].used_s) / passed_s for name, one in after.items()}


def uses(limiter: Limiter, cores: float, tolerance: float) -> None:
    found = []
    for _ in tries():
        found.append(shares(limiter)["one"])
        assert found[-1] <= (1 + tolerance) * cores  # a busy machine gives less, never more
        if found[-1] >= (1 - tolerance) * cores:
            return
    pytest.fail(f"{found} cores, asked {cores}")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def burnt_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)


def ask(agent: subprocess.Popen[str], text: str) -> str:
    """Let another process evaluate something of its limiter."""
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(f"{text}\n")
    agent.stdin.flush()
    return agent.stdout.readline().strip()


def hold(agent: subprocess.Popen[str], pid: int) -> None:
    ask(agent, f"limiter.take('one', {pid})")
    ask(agent, "limiter.set({'one': Limit(0.2, 2.0, 300_000_000)})")


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    assert process.wait(10) == -signal.SIGKILL


def goes_on(pid: int) -> None:
    """Wait until a process that burns has used more than any limit of this file would let it in that time."""
    before_s = burnt_s(pid)
    until(lambda: burnt_s(pid) - before_s > 0.6, 4.0)
