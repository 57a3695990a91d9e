"""When a program of another process has ended, and whom a signal reaches."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.bind.adopted import UNKNOWN_CODE, Adopted, find_leader, started_at
from headwater.bind.java import Child

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
LONG_S = 60.0


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP, start_new_session=True) as started:
        yield started
        started.kill()


def adopted(program: subprocess.Popen[bytes]) -> Adopted:
    began = started_at(program.pid)
    assert began is not None
    return Adopted(program.pid, began)


def test_a_program_runs_until_it_is_ended(program: subprocess.Popen[bytes]) -> None:
    one = adopted(program)
    assert (one.pid, one.exit_code) == (program.pid, None)
    assert not one.wait(0.0)
    assert not one.wait(0.05)
    one.signal(signal.SIGTERM)
    assert one.wait(LONG_S)
    assert one.exit_code == UNKNOWN_CODE
    one.signal(signal.SIGKILL)


def test_a_dead_one_that_nobody_has_buried_has_ended(program: subprocess.Popen[bytes]) -> None:
    one = adopted(program)
    program.kill()
    assert one.wait(LONG_S)
    assert program.returncode is None, "it is not buried yet"
    assert one.exit_code == UNKNOWN_CODE
    assert started_at(program.pid) is None


def test_waiting_ends_when_the_program_does(program: subprocess.Popen[bytes]) -> None:
    one = adopted(program)
    threading.Timer(0.2, program.kill).start()
    begin_s = time.monotonic()
    assert one.wait(LONG_S)
    assert time.monotonic() - begin_s < LONG_S / 2


def test_another_process_that_has_the_number_by_now_is_not_taken_for_it(program: subprocess.Popen[bytes]) -> None:
    began = started_at(program.pid)
    assert began is not None
    former = Adopted(program.pid, began - 0.01)
    assert former.exit_code == UNKNOWN_CODE
    assert former.wait(LONG_S)
    former.signal(signal.SIGKILL)
    assert not adopted(program).wait(0.2), "the signal was not for this one"


def test_there_is_no_start_of_what_is_not_there() -> None:
    assert started_at(2**22 + 1) is None
    assert Adopted(2**22 + 1, 1.0).wait(LONG_S)


def test_only_the_first_process_of_a_session_is_found(program: subprocess.Popen[bytes]) -> None:
    mark = "a mark of this test"
    found = []
    for is_first in (False, True):
        command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)", mark]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=is_first) as one:
            assert one.stdout is not None
            one.stdout.readline()  # for a moment after its start, a process has no command line
            leader = find_leader(lambda command: mark in command)
            one.kill()
        found.append(leader is not None and leader.pid == one.pid)
        assert is_first or leader is None
    assert found == [False, True]


STARTER = """
import sys
from pathlib import Path
from headwater.bind.java import Child

with open(sys.argv[2], "wb") as output:
    child = Child([sys.executable, "-c", "import time; time.sleep(600)"], Path(sys.argv[2]).parent, output,
                  is_bound=sys.argv[1] == "bound")
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("mode", ["bound", "unbound"])
def test_a_bound_child_ends_with_its_starter_and_an_unbound_one_goes_on(tmp_path: Path, mode: str) -> None:
    command = [sys.executable, "-c", STARTER, mode, str(tmp_path / "output")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        began = started_at(pid)
        assert began is not None
        starter.kill()
    left = Adopted(pid, began)
    try:
        assert left.wait(LONG_S if mode == "bound" else 0.5) == (mode == "bound")
    finally:
        left.signal(signal.SIGKILL)
        assert left.wait(LONG_S)


def test_an_unbound_child_is_buried_by_us_while_we_live(tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as output:
        child = Child([sys.executable, "-c", "raise SystemExit(7)"], tmp_path, output, is_bound=False)
    assert child.wait(LONG_S)
    assert child.exit_code == 7
