"""Does a broker that others can reach let in who knows its password, and nobody else?

The broker listens beyond loopback; as root in a network of this test's own, so that nobody really reaches it.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headwater.bind import keyring
from headwater.bind.box import Box
from headwater.bind.broker_files import is_loopback
from headwater.bind.certificates import issue
from headwater.bind.jars import Jars
from headwater.bind.kafka import Access, KafkaBroker
from headwater.bind.keyring import Credentials, broker_password
from headwater.bind.session import start_session
from headwater.bind.sources import READER
from headwater.bind.topics import client_settings, end_offsets, ensure_topics, tail
from headwater.errors import BindError
from tests.contract.fetched import fetched
from tests.contract.streams import MARKS, end_java

pytestmark = MARKS

READY_S = 120.0  # on a machine that does many things at once
REFUSED_S = 3.0
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
OWN = "198.51.100.7"  # of a range that is nobody's
PASSWORD = broker_password(b"a secret of this test", "hub")


@pytest.fixture(scope="module")
def jars() -> Jars:
    return fetched()


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """An address of this machine that is not on loopback."""
    if os.geteuid() != 0:
        found = [one.address for each in psutil.net_if_addrs().values() for one in each if one.family == socket.AF_INET]
        yield next(one for one in found if not is_loopback(one))
        return
    # A thread's network is that of the programs and threads that it starts from now on.
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
    assert libc.unshare(NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
    try:
        for words in ("link set lo up", f"address add {OWN}/32 dev lo"):
            subprocess.run(["ip", *words.split()], check=True)
        yield OWN
    finally:
        assert libc.setns(before, NEW_NETWORK) == 0
        os.close(before)


@pytest.fixture(scope="module")
def access(host: str, tmp_path_factory: pytest.TempPathFactory) -> Access:
    one = issue(tmp_path_factory.mktemp("certificates"), "hub", [host])
    return Access(keyring.USER, PASSWORD, one.certificate, one.key, one.ca)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def broker(host: str, access: Access, folder: Path, jars: Jars) -> Iterator[KafkaBroker]:
    broker = KafkaBroker("hub", folder, jars, host=host, access=access)
    try:
        broker.start()
        broker.wait_ready(READY_S)
        yield broker
    finally:
        broker.kill()


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Path]:
    """The keyring of this process, with nothing in it."""
    keyring.use(tmp_path / "keyring.json")
    yield tmp_path / "keyring.json"
    keyring.use(None)


def known(broker: KafkaBroker) -> Credentials:
    assert broker.credentials is not None
    return broker.credentials


def test_who_knows_the_password_writes_and_reads(broker: KafkaBroker, ring: Path) -> None:
    keyring.write(ring, {broker.address: known(broker)})
    ensure_topics(broker.address, ["open"])
    producer = Producer(client_settings(broker.address))
    for number in range(100):
        producer.produce("open", str(number))
    assert producer.flush(30) == 0
    assert [message.value() for message in tail(broker.address, "open", 0)] == [str(n).encode() for n in range(100)]
    assert end_offsets(broker.address, ["open"]) == {("open", 0): 100}


def test_transactions_which_a_broker_talks_to_itself_for_work(broker: KafkaBroker, ring: Path) -> None:
    keyring.write(ring, {broker.address: known(broker)})
    ensure_topics(broker.address, ["whole"])
    producer = Producer(client_settings(broker.address) | {"transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("whole", "one")
    producer.commit_transaction(60)
    end_s = time.monotonic() + READY_S
    while end_offsets(broker.address, ["whole"])["whole", 0] < 2:  # the record, and the mark of its commit
        assert time.monotonic() < end_s


WRONG = {
    "no password": lambda good: None,
    "a wrong password": lambda good: replace(good, password=broker_password(b"a secret of this test", "edge")),
    "a wrong user": lambda good: replace(good, user="admin"),
}


@pytest.mark.parametrize("what", WRONG)
def test_nobody_else_is_let_in(broker: KafkaBroker, ring: Path, what: str) -> None:
    found = WRONG[what](known(broker))
    keyring.write(ring, {} if found is None else {broker.address: found})
    with pytest.raises(BindError, match="HW4205") as caught:
        ensure_topics(broker.address, ["secret"], timeout_s=REFUSED_S)
    assert PASSWORD not in str(caught.value)
    producer = Producer(client_settings(broker.address) | {"message.timeout.ms": 3000})
    refused: list[object] = []
    producer.produce("open", "forged", on_delivery=lambda error, _: refused.append(error))
    producer.flush(30)
    assert len(refused) == 1
    assert refused[0] is not None
    keyring.write(ring, {broker.address: known(broker)})
    assert b"forged" not in [message.value() for message in tail(broker.address, "open", 0)]
    with pytest.raises(BindError, match="HW4206"):
        end_offsets(broker.address, ["secret"])


def test_a_wrong_password_is_refused_as_such(broker: KafkaBroker) -> None:
    """And not for some other reason that would keep everybody out."""
    said: list[KafkaError] = []
    settings = client_settings(broker.address) | keyring.rdkafka_settings(replace(known(broker), password="wrong"))
    with AdminClient(settings | {"error_cb": said.append}) as admin:
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=REFUSED_S)
        admin.poll(REFUSED_S)  # it says then why
    assert KafkaError._AUTHENTICATION in [one.code() for one in said]


def test_a_broker_that_another_authority_vouches_for_is_not_believed(
    broker: KafkaBroker, ring: Path, host: str, tmp_path: Path
) -> None:
    other = issue(tmp_path / "other", "hub", [host])
    keyring.write(ring, {broker.address: replace(known(broker), ca=str(other.ca))})
    with pytest.raises(BindError, match="HW4207"):
        end_offsets(broker.address, ["open"], timeout_s=REFUSED_S)


def test_secrets_are_for_the_owner_alone_and_in_no_log_nor_command_line(
    broker: KafkaBroker, folder: Path, access: Access
) -> None:
    holders = [file for file in folder.rglob("*") if file.is_file() and PASSWORD.encode() in file.read_bytes()]
    assert [file.name for file in holders] == ["broker.properties"]
    key = access.key.read_bytes().splitlines()[1]
    holders += [file for file in folder.rglob("*") if file.is_file() and key in file.read_bytes()]
    assert [file.name for file in holders] == ["broker.properties", "keystore.pem"]
    assert [file.stat().st_mode & 0o777 for file in holders] == [0o600, 0o600]
    process = psutil.Process(broker.pid)
    assert PASSWORD not in " ".join([*process.cmdline(), *process.environ().values()])


def test_the_controller_is_on_loopback(broker: KafkaBroker) -> None:
    listening = {one.laddr.ip for one in psutil.Process(broker.pid).net_connections("tcp") if one.status == "LISTEN"}
    hosts = {one.removeprefix("::ffff:") for one in listening}
    assert hosts == {broker.address.rpartition(":")[0], "127.0.0.1"}


def test_a_broker_that_others_could_reach_is_refused_without_a_password(host: str, jars: Jars, tmp_path: Path) -> None:
    broker = KafkaBroker("hub", tmp_path, jars, host=host)
    with pytest.raises(BindError, match=rf"HW4208 the broker of site 'hub'.*{host}.*127\.0\.0\.1"):
        broker.start()
    assert not broker.is_alive
    assert not (tmp_path / "broker.properties").exists()


def test_on_loopback_and_in_a_testbed_no_password_is_asked_for(jars: Jars, access: Access, tmp_path: Path) -> None:
    apart = Box(address="198.51.100.9", manage="198.51.100.10", is_apart=True)
    for broker in (
        KafkaBroker("a", tmp_path / "a", jars, access=access),
        KafkaBroker("b", tmp_path / "b", jars, box=apart, access=access),
    ):
        assert broker.credentials is None


def test_spark_reads_and_writes_through_the_options_of_the_keyring(
    broker: KafkaBroker, ring: Path, jars: Jars, tmp_path: Path
) -> None:
    keyring.write(ring, {broker.address: known(broker)})
    ensure_topics(broker.address, ["in", "out"])
    producer = Producer(client_settings(broker.address))
    for number in range(50):
        producer.produce("in", str(number))
    assert producer.flush(30) == 0
    end_java()
    spark = start_session("test", tmp_path / "spark", jars.spark, 4, {}, flags=["-XX:TieredStopAtLevel=1"])
    try:
        reach = keyring.spark_options(broker.address) | {"kafka.bootstrap.servers": broker.address}
        records = spark.readStream.format("kafka").options(**READER).options(**reach).option("subscribe", "in").load()
        writer = records.select("value").writeStream.format("kafka").options(**reach).option("topic", "out")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(int(READY_S))
        found = [int(message.value() or b"-1") for message in tail(broker.address, "out", 0)]
        assert sorted(found) == list(range(50))
    finally:
        spark.stop()
        end_java()
