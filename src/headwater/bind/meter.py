"""How far has each query come, right now?

A real-time query speaks only at the end of a batch, which may be a minute away. Its Kafka clients count
all the time, in beans of the JVM; a query's consumers are known by a hash of its checkpoint in their name,
its producers by the name we gave them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.bind.session import java_class

__all__ = ["Meter", "Reading", "source_hash"]

_READ = "kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*,topic=*,partition=*"
_SENT = "kafka.producer:type=producer-metrics,client-id=*"
MOST_SOURCES = 64  # of one query


@dataclass(frozen=True, slots=True)
class Reading:
    """What the clients of one query say."""

    taken: int  # records read, counted from the first that the topics still hold
    given: int  # records written since the runner started
    lag: int  # records that wait to be read
    waiting_bytes: int  # written by the query, not yet taken by the broker


def source_hash(path: str) -> int:
    """Return the hash by which Spark names the consumers of a source: that of a Java string.

    >>> source_hash("file:/tmp/checkpoint/sources/0")
    -2090736517
    """
    value = 0
    for unit in _units(path):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _units(path: str) -> list[int]:
    data = path.encode("utf-16-be")
    return [int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2)]


class Meter:
    """Reads the beans of this runner's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        """Take the session whose JVM is read."""
        self._name = java_class(spark, "javax.management.ObjectName")
        self._beans: Any = java_class(spark, "java.lang.management.ManagementFactory").getPlatformMBeanServer()
        self._totals: dict[str, tuple[float, float]] = {}  # per client: what was counted before it began anew; last

    def read(self, queries: Mapping[str, Path]) -> Mapping[str, Reading]:
        """Return the readings of queries, by the name of their producers' clients; values are checkpoints."""
        whose = {
            source_hash(f"file:{checkpoint}/sources/{i}"): name
            for name, checkpoint in queries.items()
            for i in range(MOST_SOURCES)
        }
        given = dict.fromkeys(queries, 0.0)
        waiting = dict.fromkeys(queries, 0.0)
        places: dict[tuple[str, str, str], tuple[float, float]] = {}  # of the client that has come furthest
        for client, bean in self._found(_READ):
            name = whose.get(_hash_in(client))
            if name is not None:
                place = (name, str(bean.getKeyProperty("topic")), str(bean.getKeyProperty("partition")))
                found = (self._value(bean, "records-lead"), self._value(bean, "records-lag"))
                places[place] = max(places.get(place, (0.0, 0.0)), found)
        for client, bean in self._found(_SENT):
            name = client.rpartition(".")[0]
            if name in given:
                given[name] += self._grown(client, self._value(bean, "record-send-total"))
                total = self._value(bean, "buffer-total-bytes")
                waiting[name] += total - self._value(bean, "buffer-available-bytes")
        read = {name: [found for place, found in places.items() if place[0] == name] for name in queries}
        return {
            name: Reading(
                int(sum(lead for lead, _ in read[name])),
                int(given[name]),
                int(sum(lag for _, lag in read[name])),
                int(waiting[name]),
            )
            for name in queries
        }

    def _grown(self, client: str, value: float) -> float:
        before, last = self._totals.get(client, (0.0, 0.0))
        if value < last:  # the client was made anew under the same name
            before += last
        self._totals[client] = (before, value)
        return before + value

    def _found(self, pattern: str) -> list[tuple[str, Any]]:
        names = self._beans.queryNames(self._name(pattern), None)
        return [(str(name.getKeyProperty("client-id")).strip('"'), name) for name in names]

    def _value(self, bean: Any, attribute: str) -> float:
        try:
            value = float(self._beans.getAttribute(bean, attribute))
        except Exception:  # noqa: BLE001  # a bean may be gone between the list and the reading
            return 0.0
        return 0.0 if math.isnan(value) else value


def _hash_in(client: str) -> int:
    match = re.search(r"-(-?\d+)-executor(?:-\d+)?$", client)
    return int(match[1]) if match else 0
