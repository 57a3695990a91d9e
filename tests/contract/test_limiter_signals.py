"""Are runners kept to their cores where control groups may not be written, and does nobody stay stopped?

Whoever limits and the program that stops and continues may be killed at any moment, one of them or both.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.bind import cgroup, duty_process
from headwater.bind.duty_process import Keeper, begun
from headwater.bind.limiter import Limit, Limiter
from headwater.bind.site_governor import SiteGovernor
from tests.contract.beds import until
from tests.contract.limiting import (
    AGENT,
    BURN,
    FIRST,
    NAME,
    PYTHON,
    START_S,
    Start,
    ask,
    goes_on,
    hold,
    kill,
    starts,
    state,
    uses,
)


@pytest.fixture
def start() -> Iterator[Start]:
    yield from starts()


@pytest.fixture
def said() -> list[str]:
    return []


def keeper(owner: int) -> int:
    """Return the program by which a process stops and continues runners."""
    found: list[int] = []

    def is_found() -> bool:
        children = Path(f"/proc/{owner}/task/{owner}/children").read_text().split()
        found[:] = [int(pid) for pid in children if "duty_process" in Path(f"/proc/{pid}/cmdline").read_text()]
        return len(found) == 1

    until(is_found)
    return found[0]


def caught(program: int, *pids: int) -> None:
    """Halt the program that stops and continues at a moment at which processes are stopped."""

    def is_caught() -> bool:
        os.kill(program, signal.SIGSTOP)
        until(lambda: state(program) == "T")
        if all(state(pid) == "T" for pid in pids):
            return True
        os.kill(program, signal.SIGCONT)
        return False

    until(is_caught, START_S)


@pytest.fixture
def by_signals(start: Start, said: list[str]) -> Iterator[Limiter]:
    limiter = Limiter(NAME, None, said.append)
    yield limiter
    limiter.close()


def test_without_control_groups_a_runner_is_kept_to_its_cores(
    by_signals: Limiter, start: Start, said: list[str]
) -> None:
    how = "duty cycle: control groups may not be written here"
    assert by_signals.how == (f"nice and {how}" if by_signals.weighs else how)
    assert len(said) == 1
    assert by_signals.how in said[0]
    assert ("weights are not kept" in said[0]) == (not by_signals.weighs)
    burner = start(BURN)
    by_signals.take("one", burner.pid)
    for cores in (0.2, 0.5):
        by_signals.set({"one": Limit(cores, FIRST)})
        until(lambda: state(burner.pid) == "T", START_S)
        uses(by_signals, cores, 0.15)
    assert by_signals.limits() == {"one": Limit(0.5, FIRST)}
    assert by_signals.usage()["one"].throttled_s > 1.0
    by_signals.close()
    assert state(burner.pid) != "T"
    goes_on(burner.pid)


def test_nobody_stays_stopped_when_who_limits_is_killed(start: Start) -> None:
    burner = start(BURN)
    for _ in range(3):
        agent = start(AGENT, NAME, "none", plain=False)
        hold(agent, burner.pid)
        until(lambda: state(burner.pid) == "T", START_S)
        kill(agent)
        goes_on(burner.pid)


def test_nobody_stays_stopped_when_the_program_that_stops_is_killed(
    by_signals: Limiter, start: Start, said: list[str]
) -> None:
    burner = start(BURN)
    by_signals.take("one", burner.pid)
    by_signals.set({"one": Limit(0.1, FIRST)})
    until(lambda: state(burner.pid) == "T", START_S)
    stopped_s = by_signals.usage()["one"].throttled_s
    os.kill(keeper(os.getpid()), signal.SIGKILL)
    until(lambda: len(said) == 2)
    until(lambda: state(burner.pid) == "R")
    until(lambda: state(burner.pid) == "T", START_S)
    uses(by_signals, 0.1, 0.15)  # by a new one
    assert by_signals.usage()["one"].throttled_s > stopped_s
    by_signals.drop("one")
    until(lambda: state(burner.pid) == "R")
    assert by_signals.limits() == {}


def limited(limiter: Limiter, pid: int) -> int:
    """Limit a process by signals, halt the program when that is stopped, and return it."""
    limiter.take("one", pid)
    limiter.set({"one": Limit(0.1, FIRST)})
    program = keeper(os.getpid())
    caught(program, pid)
    return program


def test_who_is_dropped_goes_on_although_the_program_is_killed_before_it_knows(
    by_signals: Limiter, start: Start
) -> None:
    burner = start(BURN)
    program = limited(by_signals, burner.pid)
    by_signals.drop("one")
    os.kill(program, signal.SIGKILL)
    until(lambda: state(burner.pid) == "R")


def test_everybody_goes_on_at_the_end_although_the_program_was_killed(by_signals: Limiter, start: Start) -> None:
    burner = start(BURN)
    os.kill(limited(by_signals, burner.pid), signal.SIGKILL)
    by_signals.close()
    assert state(burner.pid) == "R"


@pytest.mark.parametrize("has_groups", [True, False])
def test_who_was_left_stopped_goes_on_when_it_is_taken_over(has_groups: bool, start: Start, said: list[str]) -> None:
    hierarchy = cgroup.find()
    if has_groups and hierarchy is None:
        pytest.skip("this machine has no control groups that may be written; it takes root")
    burner = start(BURN)
    agent = start(AGENT, NAME, "none", plain=False)
    hold(agent, burner.pid)
    program = keeper(agent.pid)
    caught(program, burner.pid)
    kill(agent)
    os.kill(program, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{program}").exists() or state(program) == "Z")
    assert state(burner.pid) == "T"
    limiter = Limiter(NAME, hierarchy if has_groups else None, said.append)
    limiter.take("one", burner.pid)
    until(lambda: state(burner.pid) == "R")
    limiter.end()
    limiter.close()


def test_a_program_that_is_ended_again_and_again_is_given_up_and_that_is_said_once(
    by_signals: Limiter, start: Start, said: list[str]
) -> None:
    burner = start(BURN)
    by_signals.take("one", burner.pid)
    by_signals.set({"one": Limit(0.1, FIRST)})
    for count in range(5):
        os.kill(keeper(os.getpid()), signal.SIGKILL)
        until(lambda count=count: len(said) == 2 + count)  # type: ignore[misc]
    assert ["starts again" in text for text in said] == [False, *[True] * 4, False]
    assert "5 times and is not started again" in said[-1]
    by_signals.set({"one": Limit(0.2, FIRST)})
    assert len(said) == 6
    assert state(burner.pid) == "R"


def test_nice_values_that_an_agent_left_are_replaced_and_taken_back(by_signals: Limiter, start: Start) -> None:
    def nice(pid: int) -> int:
        return os.getpriority(os.PRIO_PROCESS, pid)

    agent, held, free = start(AGENT, NAME, "signals", plain=False), start(BURN), start(BURN)
    for name, runner in (("held", held), ("free", free)):
        ask(agent, f"limiter.take('{name}', {runner.pid})")
        ask(agent, f"limiter.set({{'{name}': Limit(None, 0.1)}})")
    assert [nice(held.pid), nice(free.pid)] == [10, 10]
    kill(agent)
    by_signals.take("held", held.pid)
    by_signals.set({"held": Limit(None, 1.0)})
    assert [nice(held.pid), nice(free.pid)] == [0, 10]
    by_signals.sweep({"free": free.pid})
    assert [nice(held.pid), nice(free.pid)] == [0, 0]


def test_weights_become_nice_values_of_every_thread(by_signals: Limiter, start: Start) -> None:
    code = "import threading\nthreading.Thread(target=input).start()\nprint(flush=True)"
    both = [start(code), start(code)]
    for name, runner in zip("ab", both, strict=True):
        by_signals.take(name, runner.pid)
    by_signals.set({"a": Limit(None, 1.0), "b": Limit(None, 1.25**-4)})

    def nice(pid: int) -> set[int]:
        return {os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir(f"/proc/{pid}/task")}

    assert [nice(runner.pid) for runner in both] == [{0}, {4}]
    assert len(os.listdir(f"/proc/{both[0].pid}/task")) == 2


# Runs Python without the right to lower nice values below 20 - LOWEST, whoever starts it.
WITHOUT_RIGHT = """
import ctypes, os, resource, sys
resource.setrlimit(resource.RLIMIT_NICE, (LOWEST, LOWEST))
PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
"""


def nice_values_by_weight(start: Start, lowest: int) -> tuple[str, list[list[int]]]:
    """What an agent without rights says of itself, and the nice values of two runners, first and as weights change."""
    without = WITHOUT_RIGHT.replace("LOWEST", str(lowest))
    agent = start(without, AGENT, NAME, "signals", plain=False)
    both = {name: start(without, BURN, plain=False) for name in ("gold", "bronze")}

    def nice() -> list[int]:
        return [os.getpriority(os.PRIO_PROCESS, one.pid) for one in both.values()]

    found = [nice()]
    for name, runner in both.items():
        ask(agent, f"limiter.take('{name}', {runner.pid})")
    for gold, bronze in ((0.27, 1.73), (1.7, 0.3)):  # it has little to do for a second, and then much
        ask(agent, f"limiter.set({{'gold': Limit(None, {gold}), 'bronze': Limit(None, {bronze})}})")
        found.append(nice())
    for name in both:
        ask(agent, f"limiter.drop('{name}')")
    found.append(nice())
    governor = "__import__('headwater.bind.site_governor', fromlist=['here']).SiteGovernor(limiter, 2.0)"
    return ask(agent, f"({governor}.weighs, limiter.is_nice, limiter.how.partition(':')[0])"), found


def test_who_may_not_lower_nice_values_leaves_them_alone_and_says_so_once(start: Start) -> None:
    said, found = nice_values_by_weight(start, 0)
    assert said == "(False, False, 'duty cycle')"
    assert found == [found[0]] * 4, "each would end at the highest value for good"
    agent = start(WITHOUT_RIGHT.replace("LOWEST", "0"), AGENT, NAME, "signals", plain=False)
    telling = "(lambda said: (Limiter('other', None, said.append), *said))([])[1:]"
    told = ask(agent, telling)
    assert told.count("weights are not kept: only root may lower a nice value") == 1


def test_who_may_lower_nice_values_to_the_usual_one_keeps_weights_behind_all_others(start: Start) -> None:
    raising = "import resource; resource.setrlimit(resource.RLIMIT_NICE, (20, 20))"
    if subprocess.run([*PYTHON, raising], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("the right to lower nice values may not be given here")
    said, found = nice_values_by_weight(start, 20)
    assert said == "(True, True, 'nice and duty cycle')"
    assert found[1:] == [[8, 0], [0, 8], [0, 0]]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lower nice values")
def test_root_keeps_weights_by_nice_values(by_signals: Limiter, said: list[str]) -> None:
    assert by_signals.weighs
    assert by_signals.is_nice
    assert SiteGovernor(by_signals, 2.0).weighs
    assert "weights" not in said[0]


def test_a_session_is_not_stopped_once_its_number_is_another_process(start: Start) -> None:
    burner = start(BURN)
    at = begun(burner.pid)
    assert at is not None

    def is_stopped_by(keeper: Keeper) -> bool:
        end_s = time.monotonic() + 1.0
        while time.monotonic() < end_s and state(burner.pid) != "T":
            time.sleep(max(0.0, keeper.look(time.monotonic()) - time.monotonic()))
        was_stopped = state(burner.pid) == "T"
        keeper.go_on(time.monotonic())
        return was_stopped

    assert not is_stopped_by(Keeper(burner.pid, at - 1, 0.02, time.monotonic())), "an earlier one had the number"
    assert not is_stopped_by(Keeper(burner.pid, None, 0.02, time.monotonic())), "it was gone when it was taken"
    assert is_stopped_by(Keeper(burner.pid, at, 0.02, time.monotonic()))


def test_a_session_whose_leader_is_gone_is_not_stopped(by_signals: Limiter, start: Start) -> None:
    leader = start("import os\nchild = os.fork()\nchild and print(child, flush=True)\nwhile not child: pass\ninput()")
    # What `start` read was the number of the child; it is the other one of the session.
    (child,) = set(duty_process.members(leader.pid)) - {leader.pid}
    by_signals.take("one", leader.pid)
    by_signals.set({"one": Limit(0.1, FIRST)})
    until(lambda: state(child) == "T", START_S)
    kill(leader)
    try:
        goes_on(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_no_signal_breaks_off_letting_all_go_on(start: Start) -> None:
    burners = [start(BURN) for _ in range(3)]
    words = [sys.executable, "-I", "-S", str(duty_process.__file__), str(os.getpid())]
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as program:
        assert program.stdin is not None
        wanted = {str(one.pid): [one.pid, begun(one.pid), 0.05] for one in burners}
        program.stdin.write(json.dumps({"keep": wanted}).encode("ascii") + b"\n")
        program.stdin.flush()
        caught(program.pid, *(one.pid for one in burners))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # all of them are there when it goes on
            program.send_signal(number)
        program.send_signal(signal.SIGCONT)
        assert program.wait(10) == 1
    assert [state(one.pid) for one in burners] == ["R"] * 3
