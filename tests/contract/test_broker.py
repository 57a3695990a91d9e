"""Does a broker keep its promises: ready when it says so, nothing lost, nothing left behind?"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError, Message, Producer

from headwater.bind.jars import Jars
from headwater.bind.kafka import BOOTSTRAP, ExternalBroker, KafkaBroker
from headwater.bind.topics import client_settings, end_offsets, ensure_topics, remove_topics, tail
from headwater.errors import BindError
from tests.contract.fetched import fetched

pytestmark = pytest.mark.kafka

READY_S = 120.0  # on a machine that does many things at once
DEAD = "127.0.0.1:1"
Make = Callable[..., KafkaBroker]


@pytest.fixture(scope="module")
def jars() -> Jars:
    return fetched()


@pytest.fixture(scope="module")
def shared(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker("hub", tmp_path_factory.mktemp("hub"), jars)
    yield broker
    broker.kill()


@pytest.fixture
def broker(shared: KafkaBroker) -> KafkaBroker:
    """The broker of most tests, ready; a test may stop or kill it."""
    shared.start()
    shared.wait_ready(READY_S)
    return shared


@pytest.fixture
def make(jars: Jars) -> Iterator[Make]:
    """Make a broker that is killed when the test ends, however it does."""
    made: list[KafkaBroker] = []

    def one(folder: Path, **options: Any) -> KafkaBroker:
        made.append(KafkaBroker(folder.name, folder, jars, **options))
        return made[-1]

    yield one
    for each in made:
        each.kill()


def produce(address: str, topic: str, values: list[str], partition: int = 0, timestamp: int = 0) -> None:
    """Write records one after the other and wait until the broker has them all; no timestamp: now."""
    failed: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(client_settings(address) | {"linger.ms": 0, "message.max.bytes": 10_000_000})
    for value in values:
        producer.produce(topic, value, partition=partition, timestamp=timestamp, on_delivery=note)
    assert producer.flush(30) == 0
    assert failed == []


def values(address: str, topic: str, since_timestamp_ms: int = 0) -> list[str]:
    return [(message.value() or b"").decode() for message in tail(address, topic, since_timestamp_ms)]


def numbers(count: int, first: int = 0) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def test_what_is_written_is_read_in_order(broker: KafkaBroker) -> None:
    assert broker.is_alive
    assert psutil.pid_exists(broker.pid)
    ensure_topics(broker.address, ["order"])
    produce(broker.address, "order", numbers(500))
    assert values(broker.address, "order") == numbers(500)
    assert end_offsets(broker.address, ["order"]) == {("order", 0): 500}


def test_a_folder_may_be_prepared_with_what_kafka_wrote_for_another(make: Make, tmp_path: Path) -> None:
    first = make(tmp_path / "first")
    first.start()
    first.kill()
    other = make(tmp_path / "other", bootstrap=tmp_path / "first" / "data" / BOOTSTRAP)
    other.start()
    other.wait_ready(READY_S)
    ensure_topics(other.address, ["fresh"])
    produce(other.address, "fresh", numbers(20))
    other.kill()
    other.start()
    other.wait_ready(READY_S)
    assert values(other.address, "fresh") == numbers(20)


def test_a_topic_may_be_fed_before_anyone_asked_for_it(broker: KafkaBroker) -> None:
    produce(broker.address, "early", ["first"])
    assert ensure_topics(broker.address, ["early"], partitions=1) == {"early": 1}
    assert values(broker.address, "early") == ["first"]


def test_large_records_and_records_of_a_clock_that_is_ahead_are_taken(broker: KafkaBroker) -> None:
    produce(broker.address, "large", ["x" * 5_000_000])
    produce(broker.address, "large", ["soon"], timestamp=int((time.time() + 30 * 86400) * 1000))
    assert [len(value) for value in values(broker.address, "large")] == [5_000_000, 4]


def test_memory_and_processor_time_are_told_while_it_runs(broker: KafkaBroker) -> None:
    assert 50e6 < (broker.memory_bytes or 0) < 600e6
    assert (broker.cpu_s or 0) > 0
    broker.stop()
    assert not broker.is_alive
    assert (broker.pid, broker.memory_bytes, broker.cpu_s) == (None, None, None)


def test_stop_and_start_keep_records_and_port(broker: KafkaBroker) -> None:
    ensure_topics(broker.address, ["kept"])
    produce(broker.address, "kept", numbers(300))
    before, pid = broker.address, broker.pid
    broker.stop()
    broker.stop()
    assert not psutil.pid_exists(pid)
    broker.start()
    broker.start()
    broker.wait_ready(READY_S)
    assert broker.address == before
    assert broker.pid != pid
    assert values(broker.address, "kept") == numbers(300)


def test_a_kill_loses_nothing_that_was_acknowledged_and_the_next_start_goes_on(broker: KafkaBroker) -> None:
    ensure_topics(broker.address, ["killed"])
    for turn in range(2):
        produce(broker.address, "killed", numbers(1000, 1000 * turn))
        before = broker.address
        broker.kill()
        assert not broker.is_alive
        broker.start()
        broker.wait_ready(READY_S)
        assert broker.address == before
    end_s = time.monotonic() + READY_S
    while values(broker.address, "killed") != numbers(2000):  # a broker that came back shows the end a moment later
        assert time.monotonic() < end_s, "records are lost"


def test_two_brokers_at_once_know_nothing_of_each_other_and_other_ports_do_no_harm(
    broker: KafkaBroker, make: Make, tmp_path: Path
) -> None:
    second = make(tmp_path / "dö, ck")  # any name of a folder will do
    starting = threading.Thread(target=second.start)
    starting.start()
    starting.join()  # the broker must not end with the thread that started it
    second.wait_ready(READY_S)
    assert second.address != broker.address
    produce(second.address, "mine", numbers(10))
    with pytest.raises(BindError, match="HW4206"):
        end_offsets(broker.address, ["mine"])
    second.stop()
    taken = [socket.create_server(("127.0.0.1", port)) for port in ports(tmp_path / "dö, ck")]
    try:
        before = second.address
        second.start()
        second.wait_ready(READY_S)
        assert second.address != before
        assert values(second.address, "mine") == numbers(10)
    finally:
        for each in taken:
            each.close()


def ports(folder: Path) -> list[int]:
    """The ports that a broker in this folder would listen on."""
    lines = (folder / "broker.properties").read_text().splitlines()
    listeners = next(line for line in lines if line.startswith("listeners="))
    return [int(each.rpartition(":")[2]) for each in listeners.split(",")]


def test_a_port_that_was_asked_for_and_is_in_use_is_told(make: Make, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        broker = make(tmp_path, port=port)
        with pytest.raises(BindError, match=rf"HW4203 port {port} of 127\.0\.0\.1.*name another port"):
            broker.start()
        assert not broker.is_alive


def test_a_host_that_is_another_machine_is_told(make: Make, tmp_path: Path) -> None:
    with pytest.raises(BindError, match=r"HW4203.*no address of this machine"):
        make(tmp_path, host="192.0.2.1").start()


def test_a_free_port_is_remembered_unless_it_is_taken(make: Make, tmp_path: Path) -> None:
    address = make(tmp_path).address
    assert make(tmp_path).address == address
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        assert make(tmp_path).address != address


def test_a_second_broker_in_a_folder_is_refused_and_the_first_lives_on(broker: KafkaBroker, jars: Jars) -> None:
    pid = broker.pid
    folder = Path(next(each for each in psutil.Process(pid).cmdline() if "headwater.broker" in each).partition("=")[2])
    with pytest.raises(BindError, match=rf"HW4204 a broker already runs.*process {pid}, started by process"):
        KafkaBroker("hub", folder, jars).start()
    assert broker.pid == pid


def test_a_broker_that_cannot_run_says_why(make: Make, tmp_path: Path) -> None:
    broker = make(tmp_path)
    with pytest.raises(BindError, match=r"HW4201.*call start\(\) first"):
        broker.wait_ready(1)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text("version=1\ncluster.id=other\nnode.id=7\n")
    broker.start()
    with pytest.raises(BindError, match=r"HW4201.*ended with exit code 1") as caught:
        broker.wait_ready(READY_S)
    assert "node" in str(caught.value).partition("It said last:")[2]
    assert not broker.is_alive


def test_a_folder_that_cannot_be_written_is_told(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BindError, match="HW4201"):
        make(tmp_path / "file" / "site").start()


RUN_ONE = """
import sys
from pathlib import Path
from headwater.bind.jars import ensure
from headwater.bind.kafka import KafkaBroker
broker = KafkaBroker("pi", Path(sys.argv[1]), ensure())
broker.start()
print(broker.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_broker_ends_with_the_process_that_started_it_even_if_that_is_killed(jars: Jars, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN_ONE, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        try:
            process = psutil.Process(int(parent.stdout.readline()))
        finally:
            parent.kill()
    ended(process)


def ended(process: psutil.Process) -> None:
    """Wait until it has; kill it if it does not, so that nothing is left behind."""
    try:
        process.wait(20)
    except psutil.TimeoutExpired:
        process.kill()
        raise


ORPHAN = """
import os, subprocess, sys
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
child = subprocess.Popen(sys.argv[2:], cwd=sys.argv[1], start_new_session=True, **quiet)
print(child.pid, os.getpid(), flush=True)
os._exit(0)
"""


def test_a_broker_that_a_crashed_run_left_is_ended_at_the_next_start(make: Make, tmp_path: Path) -> None:
    broker = make(tmp_path)
    broker.start()
    broker.wait_ready(READY_S)
    produce(broker.address, "left", numbers(100))
    command = psutil.Process(broker.pid).cmdline()
    broker.stop()
    orphan = subprocess.run(
        [sys.executable, "-c", ORPHAN, str(tmp_path), *command], capture_output=True, text=True, check=True, timeout=30
    )
    left = psutil.Process(int(orphan.stdout.split()[0]))
    try:
        (tmp_path / "pid").write_text(orphan.stdout)
        broker.start()
        assert not runs(left)
        broker.wait_ready(READY_S)
        assert broker.pid != left.pid
        assert values(broker.address, "left") == numbers(100)
    finally:
        if runs(left):
            left.kill()


def runs(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def test_a_process_that_only_has_the_number_of_a_former_broker_is_left_alone(make: Make, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as innocent:
        (tmp_path / "pid").write_text(f"{innocent.pid} 1\n")
        make(tmp_path).start()
        assert innocent.poll() is None
        innocent.kill()


def test_topics_are_made_once_and_removed_once(broker: KafkaBroker) -> None:
    names = ["twice-a", "twice-b"]
    assert ensure_topics(broker.address, names, 3, {"retention.ms": "3600000"}) == {"twice-a": 3, "twice-b": 3}
    produce(broker.address, "twice-a", ["stays"], partition=2)
    assert ensure_topics(broker.address, names, 1, {"retention.ms": "7200000"}) == {"twice-a": 3, "twice-b": 3}
    assert end_offsets(broker.address, names)["twice-a", 2] == 1
    assert len(end_offsets(broker.address, names)) == 6
    remove_topics(broker.address, names)
    remove_topics(broker.address, names)
    for name in names:
        with pytest.raises(BindError, match=rf"HW4206 the topic '{name}'"):
            end_offsets(broker.address, [name])
    assert ensure_topics(broker.address, []) == {}
    assert end_offsets(broker.address, []) == {}


def test_a_topic_that_the_broker_refuses_is_told_at_once(broker: KafkaBroker) -> None:
    with pytest.raises(BindError, match=r"HW4205.*'no/name'"):
        ensure_topics(broker.address, ["no/name"], timeout_s=60)


def test_tail_reads_from_a_time_to_the_end_as_it_was(broker: KafkaBroker) -> None:
    ensure_topics(broker.address, ["tail"], partitions=2)
    for number in range(10):
        produce(broker.address, "tail", [str(number)], partition=number % 2, timestamp=1000 + number)
    assert sorted(values(broker.address, "tail", 1006)) == ["6", "7", "8", "9"]
    assert sorted(values(broker.address, "tail")) == numbers(10)
    assert values(broker.address, "tail", 2000) == []
    reading = tail(broker.address, "tail", 0)
    first = next(reading)
    produce(broker.address, "tail", ["late"], timestamp=3000)
    assert 1 + sum(1 for _ in reading) == 10
    assert first.timestamp()[1] in (1000, 1001)
    with pytest.raises(BindError, match="HW4206"):
        next(tail(broker.address, "nothing", 0))


def test_tail_asks_again_while_a_broker_is_coming_up(broker: KafkaBroker) -> None:
    topics = [f"soon-{number}" for number in range(20)]
    ensure_topics(broker.address, topics, partitions=3)
    for topic in topics:
        produce(broker.address, topic, numbers(5), partition=1)
    broker.stop()
    broker.start()
    with ThreadPoolExecutor(len(topics)) as pool:  # before it is ready, when it leads no partition or only some
        found = list(pool.map(lambda topic: [one.value() for one in tail(broker.address, topic, 0, READY_S)], topics))
    assert found == [[one.encode() for one in numbers(5)]] * len(topics)


def test_a_broker_of_the_users_is_used_as_it_is(broker: KafkaBroker) -> None:
    external = ExternalBroker("dc", broker.address)
    external.start()
    external.wait_ready(10)
    external.stop()
    external.kill()
    assert external.is_alive
    assert external.pid is None
    assert broker.is_alive


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        (lambda: ExternalBroker("dc", DEAD).wait_ready(0.5), "HW4202"),
        (lambda: ensure_topics(DEAD, ["a"], timeout_s=0.5), "HW4205"),
        (lambda: remove_topics(DEAD, ["a"], timeout_s=0.5), "HW4205"),
        (lambda: end_offsets(DEAD, ["a"], timeout_s=0.5), "HW4207"),
        (lambda: list(tail(DEAD, "a", 0, timeout_s=0.5)), "HW4207"),
    ],
    ids=["wait_ready", "ensure_topics", "remove_topics", "end_offsets", "tail"],
)
def test_an_address_that_does_not_answer_is_told_in_time_and_without_noise(
    ask: Callable[[], object], code: str, capfd: pytest.CaptureFixture[str]
) -> None:
    begin_s = time.monotonic()
    with pytest.raises(BindError, match=rf"{code}.*{DEAD}"):
        ask()
    assert time.monotonic() - begin_s < 10
    assert capfd.readouterr() == ("", "")


def test_a_broker_of_the_users_that_does_not_answer_is_not_alive() -> None:
    assert not ExternalBroker("dc", DEAD).is_alive
