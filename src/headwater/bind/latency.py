"""How old are records when they arrive?

Reads samples from the ends of topics: the headers of a record say when its first ancestor was born and
when its own input was written, its timestamp says when it was written itself. How large records are is
told, too. Few records are read, and fewer of large ones, so that looking costs little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from headwater.bind.headers import CREATED, FROM, headers_of, parse_from
from headwater.bind.topics import client_settings, is_away

__all__ = ["Latency", "LatencyReader", "percentile"]

MOST_RECORDS = 50  # of one topic and look
WEIGHED = 20  # records at the end of a topic that tell how large its records are
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
        self._fresh: dict[str, int] = {}  # samples of the last look

    def look(self, topics: list[str]) -> Mapping[str, int]:
        """Read what is new at the ends of topics; return where each ends, as far as the broker answers."""
        ends: dict[str, int] = {}
        self._fresh = {}
        for topic in topics:
            try:
                _, ends[topic] = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
                self._sample(topic, ends[topic])
            except KafkaException as error:
                if is_away(error):  # the next look tells; each of the others would be waited for in vain
                    break
        return ends

    def weigh(self, topics: list[str]) -> None:
        """Read the last records of topics, for how large they are: `record_bytes` tells."""
        for topic in topics:
            try:
                low, end = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
                self._read(topic, max(low, end - min(WEIGHED, self._most(topic))), end)
            except KafkaException as error:
                if is_away(error):
                    break

    def record_bytes(self, topic: str) -> float | None:
        """Return how large the records of a topic are that were read last, in the mean; None: none was."""
        return self._mean_bytes.get(topic)

    def recent(self, topic: str) -> Latency | None:
        """Return the ages of the latest samples."""
        return _latency(list(self._samples.get(topic, ()))[-RECENT:])

    def fresh(self, topic: str) -> list[float]:
        """Return the ages that the last look found."""
        count = self._fresh.get(topic, 0)
        return [age for age, _ in list(self._samples.get(topic, ()))[-count:]] if count else []

    def overall(self, topic: str) -> Latency | None:
        """Return the ages of all samples that are kept."""
        return _latency(list(self._samples.get(topic, ())))

    def close(self) -> None:
        """Let the client go."""
        self._consumer.close()

    def _sample(self, topic: str, end: int) -> None:
        begin = max(self._next.setdefault(topic, end), end - self._most(topic))
        self._next[topic] = end
        kept = self._samples.setdefault(topic, deque(maxlen=KEPT))
        for message in self._read(topic, begin, end):
            ages = _ages(headers_of(message), message.timestamp()[1])
            if ages is not None:
                kept.append(ages)
                self._fresh[topic] = self._fresh.get(topic, 0) + 1

    def _most(self, topic: str) -> int:
        """Return how many records of a topic may be read at once."""
        return max(1, min(MOST_RECORDS, int(MOST_BYTES / self._mean_bytes.get(topic, 1_000.0))))

    def _read(self, topic: str, begin: int, end: int) -> list[Message]:
        """Return records of a topic, and note how large they are."""
        if begin >= end:
            return []
        self._consumer.assign([TopicPartition(topic, 0, begin)])
        found = [one for one in self._consumer.consume(end - begin, timeout=PATIENCE_S) if not one.error()]
        self._consumer.unassign()
        if found:
            sizes = [len(one.value() or b"") for one in found]
            self._mean_bytes[topic] = max(100.0, sum(sizes) / len(sizes))
        return found


def _ages(headers: Mapping[str, bytes], written_ms: int) -> tuple[float, float] | None:
    """Return the age of a record, and that of the writer's own input; None where its headers tell none."""
    try:
        born, arrived = int(headers[CREATED]), parse_from(headers[FROM]).arrived_ms
        return (written_ms - born) / 1000, (written_ms - arrived) / 1000
    except (KeyError, ValueError, OverflowError):  # others may write to the topic too, and whatever they like
        return None


def _latency(samples: list[tuple[float, float]]) -> Latency | None:
    if not samples:
        return None
    ages, hops = (sorted(values) for values in zip(*samples, strict=True))
    return Latency(
        percentile(ages, 0.5), percentile(ages, 0.99), percentile(hops, 0.5), percentile(hops, 0.99), len(samples)
    )
