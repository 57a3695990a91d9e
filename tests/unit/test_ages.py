"""How old records are goes on being found, whatever others write into the same topics."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Producer

from headwater.bind import ages
from headwater.bind.ages import Ages
from headwater.bind.headers import CREATED, FROM
from headwater.bind.latency import LatencyReader
from headwater.bind.topics import client_settings

LONG_S = 60.0  # on a machine that does many things at once
NO_TEXT = b"\xff\xfe"
TOPIC, PARTITION, VALUE, HEADERS, END = 1, 3, 4, 10, 0  # what follows each in a call of the client's own library


@pytest.fixture
def address() -> Iterator[str]:
    """The address of a broker that librdkafka itself pretends to be."""
    client = Producer({"test.mock.num.brokers": 1, "log_level": 0, "error_cb": lambda _: None})
    yield ",".join(f"{one.host}:{one.port}" for one in client.list_topics(timeout=LONG_S).brokers.values())
    client.flush(0)  # it pretends for as long as somebody holds it


def written(address: str, topic: str) -> None:
    """Write a record of ours."""
    producer, now_ms = Producer(client_settings(address)), int(time.time() * 1000)
    headers = {CREATED: str(now_ms - 500).encode(), FROM: f"T-1/0/17/0/{now_ms - 200}".encode()}
    producer.produce(topic, b"{}", partition=0, headers=list(headers.items()))
    assert producer.flush(LONG_S) == 0


def written_with(address: str, topic: str, header: bytes) -> None:
    """Write a record with a header whose name may be anything: Python's own client takes nothing but text."""
    found = sorted(Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*"))
    if not found:
        pytest.skip("the client's own library does not lie beside it here")
    library, text = ctypes.CDLL(str(found[0])), ctypes.create_string_buffer(512)
    for one in (library.rd_kafka_conf_new, library.rd_kafka_new, library.rd_kafka_headers_new):
        one.restype = ctypes.c_void_p
    settings = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(settings, b"bootstrap.servers", address.encode(), text, len(text))
    producer = ctypes.c_void_p(library.rd_kafka_new(0, settings, text, len(text)))
    headers = ctypes.c_void_p(library.rd_kafka_headers_new(1))
    library.rd_kafka_header_add(headers, header, ctypes.c_ssize_t(-1), b"1", ctypes.c_ssize_t(-1))
    place = (TOPIC, topic.encode(), PARTITION, ctypes.c_int32(0), VALUE, b"x", ctypes.c_size_t(1))
    assert library.rd_kafka_producev(producer, *place, HEADERS, headers, END) == 0
    assert library.rd_kafka_flush(producer, int(LONG_S * 1000)) == 0
    library.rd_kafka_destroy(producer)


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_a_record_with_a_header_whose_name_is_no_text_hides_no_other(address: str) -> None:
    written(address, "a")
    reader = LatencyReader(address)
    until(lambda: reader.look(["a"]) == {"a": 1})
    written(address, "a")
    written_with(address, "a", NO_TEXT)
    written(address, "a")
    until(lambda: reader.look(["a"]) == {"a": 4})
    found = reader.overall("a")
    assert found is not None
    assert found.samples == 2
    reader.close()


def test_ages_are_found_again_after_whatever_happened_at_a_look(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "EVERY_S", 0.02)
    written(address, "a")
    looks = []

    class Odd(LatencyReader):
        """One that cannot be made at first, and then fails at its first look."""

        def __init__(self, of: str) -> None:
            looks.append("made")
            if len(looks) == 1:
                raise SystemError("nobody thought of this")
            super().__init__(of)

        def look(self, topics: list[str]) -> dict[str, int]:
            looks.append("look")
            if looks.count("look") == 1:
                raise SystemError("nobody thought of this either")
            return dict(super().look(topics))

    monkeypatch.setattr(ages, "LatencyReader", Odd)
    one = Ages(address)
    one.watch(["a"], ["a"])
    until(lambda: one.record_bytes("a"))
    assert looks[:4] == ["made", "made", "look", "look"]
    written(address, "a")
    until(lambda: one.taken("a"))
    one.close()
