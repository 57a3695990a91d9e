"""Do a detached broker and runner outlive whoever started them, and serve the next one as if nothing had happened?"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from headwater.bind.adopted import started_at
from headwater.bind.jars import Jars
from headwater.bind.kafka import KafkaBroker
from headwater.bind.process import RunnerProcess, RunnerSpec
from headwater.bind.topics import client_settings, tail
from headwater.errors import BindError
from tests.contract.fetched import fetched

pytestmark = pytest.mark.kafka

READY_S = 120.0  # on a machine that does many things at once

# Starts a detached broker and waits to be killed.
STARTER = """
import sys
from pathlib import Path
from headwater.bind.jars import ensure
from headwater.bind.kafka import KafkaBroker
from headwater.bind.process import RunnerProcess, RunnerSpec

broker = KafkaBroker("pi", Path(sys.argv[1]), ensure(), is_detached=True)
broker.start()
broker.wait_ready(120.0)
print(broker.pid, broker.address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def jars() -> Jars:
    return fetched()


@pytest.fixture
def left(jars: Jars, tmp_path: Path) -> Iterator[tuple[int, str]]:
    """The number and the address of a broker in the folder of the test, whose starter was killed."""
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid, address = starter.stdout.readline().split()
        starter.kill()
    yield int(pid), address
    broker = KafkaBroker("pi", tmp_path, jars, is_detached=True)
    broker.kill()
    assert not broker.adopt()


def detached(folder: Path, jars: Jars, **more: object) -> KafkaBroker:
    return KafkaBroker("pi", folder, jars, is_detached=True, **more)  # type: ignore[arg-type]


def produce(address: str, value: str) -> None:
    producer = Producer(client_settings(address))
    producer.produce("topic", value)
    assert producer.flush(30) == 0


def values(address: str) -> list[bytes | None]:
    return [message.value() for message in tail(address, "topic", 0)]


def test_a_broker_outlives_its_starter_and_is_adopted_with_all_verbs(
    left: tuple[int, str], jars: Jars, tmp_path: Path
) -> None:
    pid, address = left
    produce(address, "before")
    broker = detached(tmp_path, jars)
    assert broker.address == address, "told before it is adopted, and though its port is in use"
    assert not broker.is_alive
    assert broker.adopt()
    assert broker.adopt()
    assert (broker.is_alive, broker.pid, broker.address) == (True, pid, address)
    broker.start()
    broker.wait_ready(READY_S)
    assert broker.pid == pid
    assert (broker.memory_bytes or 0) > 50e6
    assert (broker.cpu_s or 0) > 0
    produce(address, "after")
    assert values(address) == [b"before", b"after"]
    broker.stop()
    assert not broker.is_alive
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert not broker.adopt()
    broker.start()
    broker.wait_ready(READY_S)
    assert broker.pid != pid
    assert broker.address == address
    assert values(address) == [b"before", b"after"]
    died = broker.pid
    assert died is not None
    os.kill(died, signal.SIGKILL)
    end_s = time.monotonic() + READY_S
    while broker.is_alive:
        assert time.monotonic() < end_s
    broker.start()
    broker.wait_ready(READY_S)
    assert broker.address == address


def test_a_start_takes_over_what_runs_even_if_its_number_was_not_written_down(
    left: tuple[int, str], jars: Jars, tmp_path: Path
) -> None:
    pid, address = left
    (tmp_path / "pid").unlink()
    broker = detached(tmp_path, jars)
    broker.start()
    assert (broker.pid, broker.address) == (pid, address)
    second = detached(tmp_path, jars)
    second.start()
    assert second.pid == pid
    (tmp_path / "pid").write_text(f"{os.getpid()} 1 {started_at(os.getpid())}\n")
    third = detached(tmp_path, jars)
    assert third.adopt()
    assert third.pid == pid


def test_a_broker_with_other_settings_is_not_adopted_but_started_again_at_its_port(
    left: tuple[int, str], jars: Jars, tmp_path: Path
) -> None:
    pid, address = left
    produce(address, "before")
    broker = detached(tmp_path, jars, retention_s=3600.0)
    assert not broker.adopt()
    assert psutil.pid_exists(pid)
    broker.start()
    broker.wait_ready(READY_S)
    assert broker.pid != pid
    assert broker.address == address
    assert values(address) == [b"before"]


def test_a_broker_waits_for_its_port_and_takes_no_other(jars: Jars, tmp_path: Path) -> None:
    broker = detached(tmp_path, jars)
    address = broker.address
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))):
        for one in (broker, detached(tmp_path, jars)):
            with pytest.raises(BindError, match=rf"HW4203 port {port} of 127\.0\.0\.1, which the broker of site 'pi'"):
                one.start()
            assert not one.is_alive
            assert one.address == address
    broker.start()
    try:
        broker.wait_ready(READY_S)
        assert broker.address == address
    finally:
        broker.kill()


def test_a_port_that_the_user_named_is_kept_and_another_one_is_taken_up(
    left: tuple[int, str], jars: Jars, tmp_path: Path
) -> None:
    pid, address = left
    port = int(address.rpartition(":")[2])
    same = detached(tmp_path, jars, port=port)
    assert same.address == address
    assert same.adopt()
    assert same.pid == pid
    with socket.create_server(("127.0.0.1", 0)) as free:
        other_port = free.getsockname()[1]
    other = detached(tmp_path, jars, port=other_port)
    assert not other.adopt()
    other.start()
    other.wait_ready(READY_S)
    assert other.address == f"127.0.0.1:{other_port}"
    assert not same.is_alive


# Starts a runner without rights, and waits to be killed.
RUNNER_STARTER = """
import sys
from pathlib import Path
from headwater.bind.jars import ensure
from headwater.bind.privilege import DEFAULT
from headwater.bind.process import RunnerProcess, RunnerSpec

jars = ensure()
spec = RunnerSpec("pi", Path(sys.argv[1]), "", None, jars.spark, {"pi": "127.0.0.1:1"}, 4, 10.0,
                  is_detached=True, user=DEFAULT)
runner = RunnerProcess(spec)
runner.start()
runner.wait_ready(180.0)
print(runner.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.spark
def test_a_runner_with_spark_runs_without_rights_outlives_its_starter_and_is_adopted(
    jars: Jars, tmp_path: Path
) -> None:
    spec = RunnerSpec("pi", tmp_path, "", None, jars.spark, {"pi": "127.0.0.1:1"}, 4, 10.0, is_detached=True)
    runner = RunnerProcess(spec)
    try:
        command = [sys.executable, "-c", RUNNER_STARTER, str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as starter:
            assert starter.stdout is not None
            pid = int(starter.stdout.readline())
            starter.kill()
        os.killpg(pid, signal.SIGSTOP)  # as a duty cycle leaves it that is killed together with its agent
        assert runner.adopt(), runner.last_lines()
        assert runner.pid == pid
        assert runner.ask({"do": "status"})["parts"] == []
        first = psutil.Process(pid)
        programs = [first, *first.children(recursive=True)]
        assert "java" in [one.name() for one in programs]
        if os.geteuid() == 0:
            for one in programs:
                status = Path(f"/proc/{one.pid}/status").read_text()
                assert "CapEff:\t0000000000000000" in status
                assert "NoNewPrivs:\t1" in status
        runner.end()
        assert not runner.is_alive
        assert not [one for one in programs if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    finally:
        runner.kill()
