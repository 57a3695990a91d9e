"""How old are records when they arrive?

Reads samples from the ends of topics: the headers of a record say when its first ancestor was born and
when its own input was written, its timestamp says when it was written itself. Few records are read, and
fewer of large ones, so that looking costs little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headwater.bind.headers import CREATED, FROM, headers_of, parse_from
from headwater.bind.topics import client_settings

__all__ = ["Latency", "LatencyReader", "percentile"]

MOST_RECORDS = 50  # of one topic and look
MOST_BYTES = 250_000  # likewise; one record at least
KEPT = 2_000  # samples of one topic
RECENT = 200  # samples that the latest figures are made of
PATIENCE_S = 0.5


@dataclass(frozen=True, slots=True)
class Latency:
    """Ages of records of one topic."""

    p50_s: float  # since the first ancestor was born
    p99_s: float
    hop_p50_s: float  # since the writer's own input was written
    hop_p99_s: float
    samples: int


def percentile(sorted_values: list[float], share: float) -> float:
    """Return the value that this share of the values is not above.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return sorted_values[max(0, -(-int(len(sorted_values) * share * 1000) // 1000) - 1)]


class LatencyReader:
    """Reads samples of the topics of one broker."""

    def __init__(self, address: str) -> None:
        """Make a client; it connects when it is first used."""
        settings = {
            **client_settings(address),
            "group.id": "headwater-latency",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 10_485_760,
            "queued.max.messages.kbytes": 4_096,
        }
        self._consumer = Consumer(settings)
        self._next: dict[str, int] = {}
        self._mean_bytes: dict[str, float] = {}
        self._samples: dict[str, deque[tuple[float, float]]] = {}

    def look(self, topics: list[str]) -> Mapping[str, int]:
        """Read what is new at the ends of topics; return where each ends."""
        ends: dict[str, int] = {}
        for topic in topics:
            try:
                _, ends[topic] = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
                self._sample(topic, ends[topic])
            except KafkaException:
                continue  # the broker is away; the next look tells
        return ends

    def recent(self, topic: str) -> Latency | None:
        """Return the ages of the latest samples."""
        return _latency(list(self._samples.get(topic, ()))[-RECENT:])

    def overall(self, topic: str) -> Latency | None:
        """Return the ages of all samples that are kept."""
        return _latency(list(self._samples.get(topic, ())))

    def close(self) -> None:
        """Let the client go."""
        self._consumer.close()

    def _sample(self, topic: str, end: int) -> None:
        begin = self._next.setdefault(topic, end)
        most = max(1, min(MOST_RECORDS, int(MOST_BYTES / self._mean_bytes.get(topic, 1_000.0))))
        begin = max(begin, end - most)
        self._next[topic] = end
        if begin >= end:
            return
        self._consumer.assign([TopicPartition(topic, 0, begin)])
        kept = self._samples.setdefault(topic, deque(maxlen=KEPT))
        sizes = []
        for message in self._consumer.consume(end - begin, timeout=PATIENCE_S):
            if message.error():
                continue
            headers = headers_of(message)
            written_ms = message.timestamp()[1]
            sizes.append(len(message.value() or b""))
            if CREATED in headers and FROM in headers:
                born, arrived = int(headers[CREATED]), parse_from(headers[FROM]).arrived_ms
                kept.append(((written_ms - born) / 1000, (written_ms - arrived) / 1000))
        self._consumer.unassign()
        if sizes:
            self._mean_bytes[topic] = max(100.0, sum(sizes) / len(sizes))


def _latency(samples: list[tuple[float, float]]) -> Latency | None:
    if not samples:
        return None
    ages, hops = (sorted(values) for values in zip(*samples, strict=True))
    return Latency(
        percentile(ages, 0.5), percentile(ages, 0.99), percentile(hops, 0.5), percentile(hops, 0.99), len(samples)
    )
