"""How a runner is started, asked and ended, with a stand-in that needs no Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headwater.bind.process import RunnerProcess, RunnerSpec
from headwater.errors import BindError

READY_S = 60.0  # on a machine that does many things at once

# Stands where the runner does, in the runner's own folder, which comes first when Python looks for a module. It
# starts what a JVM and its Python workers are to a real one: children that outlive it, in a group of their own,
# and deaf to a polite end.
STAND_IN = """
import json, os, signal, subprocess, sys, threading, time
from pathlib import Path

spec = json.loads(Path(sys.argv[1]).read_text())
folder = Path(spec["folder"])
print("the stand-in runs", flush=True)
if spec["path"] == "ends":
    sys.exit(3)
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
children = [
    subprocess.Popen([sys.executable, "-c", deaf]),
    subprocess.Popen([sys.executable, "-c", deaf], process_group=0),
]
(folder / "pids.new").write_text(json.dumps([os.getpid(), *(each.pid for each in children)]))
(folder / "pids.new").rename(folder / "pids")
if spec["path"] == "silent":
    time.sleep(600)
for name in [name for name in sys.modules if name.partition(".")[0] == "headwater"]:
    del sys.modules[name]
sys.path[:] = [each for each in sys.path if each not in ("", os.getcwd())]
from headwater.bind.talk import Server

ending = threading.Event()

def answer(request):
    if request["do"] == "end":
        (folder / "ended").touch()
        ending.set()
    if request["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if request["do"] == "wait":
        time.sleep(request["seconds"])
    return {"ok": True, "spec": spec}

server = Server(Path(spec["token"]).read_bytes(), answer)
threading.Thread(target=server.serve, daemon=True).start()
(folder / "runner.new").write_text(json.dumps({"port": server.port}))
(folder / "runner.new").rename(folder / "runner.json")
ending.wait()
os._exit(0)
"""
Make = Callable[..., RunnerProcess]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make a runner, of the same folder each time; nothing of it outlives the test."""
    folder = tmp_path / "the site"
    package = folder / "headwater" / "serve"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.touch()
    (package / "runner.py").write_text(STAND_IN)
    made: list[RunnerProcess] = []

    def one(path: str = "works", **more: Any) -> RunnerProcess:
        spec = RunnerSpec("pi-1", folder, path, folder / "p.json", [], {"pi-1": "a:1"}, 4, 10.0, **more)
        made.append(RunnerProcess(spec))
        return made[-1]

    yield one
    for runner in made:
        runner.kill()
    assert not [pid for each in made for pid in alive(pids(each))]


def pids(runner: RunnerProcess) -> list[int]:
    """The runner's first process and its children."""
    file = runner.spec.folder / "pids"
    return [int(pid) for pid in json.loads(file.read_text())] if file.exists() else []


def alive(some: list[int]) -> list[int]:
    found = []
    for pid in some:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
        except psutil.NoSuchProcess:
            continue
    return found


def wait(condition: Callable[[], Any]) -> None:
    end_s = time.monotonic() + READY_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def started(runner: RunnerProcess) -> list[int]:
    (runner.spec.folder / "pids").unlink(missing_ok=True)
    runner.start()
    runner.wait_ready(READY_S)
    assert len(alive(pids(runner))) == 3
    return pids(runner)


def test_a_runner_is_told_what_it_is_for_and_asked(make: Make) -> None:
    runner = make()
    assert (runner.is_alive, runner.is_listening, runner.pid) == (False, False, None)
    first, *_ = started(runner)
    assert (runner.is_alive, runner.is_listening, runner.pid) == (True, True, first)
    told = runner.ask({"do": "x"})["spec"]
    assert (told["site"], told["brokers"], told["threads"]) == ("pi-1", {"pi-1": "a:1"}, 4)
    assert (Path(told["token"]).stat().st_mode & 0o077) == 0


def test_the_token_is_not_on_the_command_line_nor_in_the_environment(make: Make) -> None:
    runner = make()
    first, *_ = started(runner)
    token = (runner.spec.folder / "token").read_text()
    process = psutil.Process(first)
    assert token not in " ".join(process.cmdline())
    assert token not in "".join(process.environ().values())


def test_a_kill_ends_everything_that_the_runner_has_started(make: Make) -> None:
    runner = make()
    all_of_it = started(runner)
    runner.kill()
    assert alive(all_of_it) == []
    assert (runner.is_alive, runner.pid) == (False, None)
    runner.kill()


def test_children_of_a_runner_that_died_are_ended_before_the_next_one_starts(make: Make) -> None:
    runner = make()
    before = started(runner)
    with pytest.raises(BindError, match="HW4503"):
        runner.ask({"do": "die"})
    wait(lambda: not runner.is_alive)
    assert alive(before) == before[1:]
    after = started(runner)
    assert alive(before) == []
    assert runner.ask({"do": "x"})["ok"]
    assert len(alive(after)) == 3


def test_an_end_in_order_lets_the_runner_finish_and_leaves_nothing(make: Make) -> None:
    runner = make()
    all_of_it = started(runner)
    runner.end()
    assert (runner.spec.folder / "ended").exists()
    assert alive(all_of_it) == []


def test_a_runner_that_does_not_end_in_time_is_killed(make: Make) -> None:
    runner = make("silent")
    runner.start()
    wait(lambda: len(pids(runner)) == 3)
    all_of_it = pids(runner)
    os.kill(all_of_it[0], signal.SIGSTOP)
    (runner.spec.folder / "runner.json").write_text('{"port": 1}')
    runner.end(timeout_s=0.2)
    assert alive(all_of_it) == []


def test_what_a_crashed_run_left_in_the_folder_is_ended(make: Make) -> None:
    before = started(make())
    after = started(make())
    assert alive(before) == []
    assert len(alive(after)) == 3


def test_what_a_crashed_run_left_is_ended_also_when_its_first_process_is_gone(make: Make) -> None:
    """A runner ends with the run that started it; its JVM may go on writing for a while."""
    before = started(make())
    os.kill(before[0], signal.SIGKILL)
    wait(lambda: alive(before) == before[1:])
    started(make())
    assert alive(before) == []


@pytest.mark.parametrize("text", ["", "x", "-7", "99999999999999999999"])
def test_a_pid_file_that_makes_no_sense_does_no_harm(make: Make, text: str) -> None:
    runner = make()
    (runner.spec.folder / "runner.pid").write_text(text)
    started(runner)


def test_a_number_that_belongs_to_another_program_now_does_it_no_harm(make: Make) -> None:
    runner = make()
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(command, start_new_session=True, cwd="/") as stranger:
        (runner.spec.folder / "runner.pid").write_text(str(stranger.pid))
        started(runner)
        lives = alive([stranger.pid])
        stranger.kill()
    assert lives == [stranger.pid]


def test_a_runner_that_ends_at_once_is_told_with_its_last_lines(make: Make) -> None:
    runner = make("ends")
    runner.start()
    with pytest.raises(BindError, match=r"HW4509 the runner of site 'pi-1' ended(?s:.*)the stand-in runs"):
        runner.wait_ready(READY_S)


def test_a_runner_that_is_not_ready_in_time_is_told(make: Make) -> None:
    runner = make("silent")
    runner.start()
    with pytest.raises(BindError, match=r"HW4509 the runner of site 'pi-1' is not ready after 0\.3 s"):
        runner.wait_ready(0.3)
    assert not runner.is_listening


def test_after_an_answer_that_came_too_late_the_next_one_is_right(make: Make) -> None:
    runner = make()
    started(runner)
    with pytest.raises(BindError, match="HW4502"):
        runner.ask({"do": "wait", "seconds": 0.5}, 0.1)
    assert runner.ask({"do": "x"})["ok"]


def test_memory_and_processor_time_of_all_processes_are_told(make: Make) -> None:
    runner = make()
    assert runner.usage() == (0, 0.0)
    some = started(runner)
    memory, used_s = runner.usage()
    assert memory > sum(psutil.Process(pid).memory_info().rss for pid in some) * 0.8
    assert used_s > 0


# Starts a runner in a folder and waits to be killed.
STARTER = """
import sys
from pathlib import Path
from headwater.bind.process import RunnerProcess, RunnerSpec

folder = Path(sys.argv[1])
spec = RunnerSpec("pi-1", folder, "works", None, [], {"pi-1": "a:1"}, 4, 10.0, is_detached=sys.argv[2] == "detached")
runner = RunnerProcess(spec)
runner.start()
runner.wait_ready(60.0)
print(runner.pid, flush=True)
sys.stdin.read()
"""


def left_by_a_starter_that_was_killed(runner: RunnerProcess, mode: str) -> list[int]:
    command = [sys.executable, "-c", STARTER, str(runner.spec.folder), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        first = int(starter.stdout.readline())
        starter.kill()
    assert pids(runner)[0] == first
    return pids(runner)


def test_a_detached_runner_outlives_its_starter_and_is_adopted_with_all_verbs(make: Make) -> None:
    runner = make(is_detached=True)
    assert not runner.adopt()
    all_of_it = left_by_a_starter_that_was_killed(runner, "detached")
    assert len(alive(all_of_it)) == 3
    assert runner.adopt()
    assert (runner.is_alive, runner.is_listening, runner.pid) == (True, True, all_of_it[0])
    runner.wait_ready(1.0)
    assert runner.ask({"do": "x"})["ok"]
    memory, _ = runner.usage()
    assert memory > 0
    assert runner.adopt()
    runner.end()
    assert (runner.spec.folder / "ended").exists()
    assert alive(all_of_it) == []
    assert not make(is_detached=True).adopt()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_bound_runner_ends_with_its_starter_and_is_not_adopted(make: Make) -> None:
    runner = make()
    all_of_it = left_by_a_starter_that_was_killed(runner, "bound")
    wait(lambda: not alive(all_of_it[:1]))
    assert not runner.adopt()
    started(runner)
    assert alive(all_of_it) == []


@pytest.mark.parametrize("record", ["", "1 0.0", "{pid}", "{pid} 1.25", None])
def test_a_runner_whose_number_was_not_written_down_is_found_all_the_same(make: Make, record: str | None) -> None:
    """Its starter may be killed after it started it and before it wrote the number down."""
    runner = make(is_detached=True)
    all_of_it = left_by_a_starter_that_was_killed(runner, "detached")
    file = runner.spec.folder / "runner.pid"
    file.unlink()
    if record is not None:
        file.write_text(record.format(pid=all_of_it[0]))
    assert runner.adopt()
    assert runner.pid == all_of_it[0]
    assert file.read_text().split()[0] == str(all_of_it[0])


def test_a_runner_that_does_not_know_the_token_is_not_adopted_and_is_ended_by_the_next_start(make: Make) -> None:
    runner = make(is_detached=True)
    before = left_by_a_starter_that_was_killed(runner, "detached")
    (runner.spec.folder / "token").write_text("b" * 64)
    (runner.spec.folder / "runner.pid").unlink()
    assert not runner.adopt()
    assert len(alive(before)) == 3
    after = started(runner)
    assert alive(before) == []
    assert len(alive(after)) == 3


def test_a_detached_runner_that_was_not_adopted_is_killed_too(make: Make) -> None:
    runner = make(is_detached=True)
    before = left_by_a_starter_that_was_killed(runner, "detached")
    runner.kill()
    assert alive(before) == []


def test_another_program_that_only_names_the_folder_is_neither_adopted_nor_ended(make: Make) -> None:
    runner = make(is_detached=True)
    spec = str(runner.spec.folder / "spec.json")
    command = [sys.executable, "-c", "import time; time.sleep(600)", spec]
    with subprocess.Popen(command, start_new_session=True, cwd="/") as stranger:
        adopted = runner.adopt()
        runner.kill()
        started(runner)
        lives = alive([stranger.pid])
        stranger.kill()
    assert (adopted, lives) == (False, [stranger.pid])


def test_the_tokens_of_this_process_do_not_reach_a_runner(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_TOKEN", "hw_secret")
    monkeypatch.setenv("HEADWATER_TOKEN_FILE", "/a/file")
    runner = make()
    first, *_ = started(runner)
    assert not [name for name in psutil.Process(first).environ() if name.startswith("HEADWATER_TOKEN")]


@pytest.mark.parametrize("name", ["runner.log", "runner.pid", "spec.json", "runner.json", "token"])
def test_a_link_that_somebody_put_into_the_folder_is_not_followed(make: Make, tmp_path: Path, name: str) -> None:
    """The folder of a runner belongs to the user that it runs as, and whoever starts it may be root."""
    runner = make()
    other = tmp_path / "of somebody else"
    for put in (Path.symlink_to, Path.hardlink_to):
        other.write_text("secret")
        (runner.spec.folder / name).unlink(missing_ok=True)
        put(runner.spec.folder / name, other)
        assert "secret" not in runner.last_lines()
        started(runner)
        assert other.read_text() == "secret"
        runner.kill()


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(make: Make) -> None:
    runner = make(is_detached=True)
    for name in ("runner.log", "runner.pid", "runner.json", "token"):
        os.mkfifo(runner.spec.folder / name)
    assert not runner.adopt()
    assert runner.tail(5) is None
    started(runner)
    assert runner.tail(5) == ["the stand-in runs"]


def test_a_folder_in_the_place_of_a_file_is_not_in_the_way(make: Make) -> None:
    runner = make(is_detached=True)
    for name in ("runner.log", "runner.pid", "runner.json", "spec.json", "token"):
        (runner.spec.folder / name / "full").mkdir(parents=True)
    assert not runner.adopt()
    runner.kill()
    started(runner)
    assert runner.ask({"do": "x"})["ok"]
