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

from headwater.bind.session import java_class, java_strings

__all__ = ["Meter", "Reading", "source_hash"]

_READ = "kafka.consumer:type=consumer-fetch-manager-metrics,client-id=*,topic=*,partition=*"
_SENT = "kafka.producer:type=producer-metrics,client-id=*"
MOST_SOURCES = 64  # of one query
_VALUE = re.compile(r"([\w-]+) = ([^,\]]+)")  # as Java writes lists of attributes


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
    """Reads the beans of this runner's JVM.

    Each word with the JVM costs a fraction of a millisecond, and there are many queries: names come all in one
    text, and so do the values of one client.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Take the session whose JVM is read."""
        self._name = java_class(spark, "javax.management.ObjectName")
        self._beans: Any = java_class(spark, "java.lang.management.ManagementFactory").getPlatformMBeanServer()
        self._places = java_strings(spark, ("records-lead", "records-lag"))
        self._counts = java_strings(spark, ("record-send-total", "buffer-total-bytes", "buffer-available-bytes"))
        self._totals: dict[str, tuple[float, float]] = {}  # per client: what was counted before it began anew; last
        self._known: dict[str, Any] = {}  # by text: the JVM's own name of each bean that was there last time
        self._hashes: dict[Path, frozenset[int]] = {}  # by checkpoint: of its sources

    def read(self, queries: Mapping[str, Path]) -> Mapping[str, Reading]:
        """Return the readings of queries, by the name of their producers' clients; values are checkpoints."""
        self._hashes = {one: self._hashes.get(one) or _hashes(one) for one in queries.values()}
        whose = {number: name for name, checkpoint in queries.items() for number in self._hashes[checkpoint]}
        given = dict.fromkeys(queries, 0.0)
        waiting = dict.fromkeys(queries, 0.0)
        places: dict[tuple[str, str, str], tuple[float, float]] = {}  # of the client that has come furthest
        for bean in self._found(_READ):
            name = whose.get(_hash_in(_key(bean, "client-id")))
            if name is not None:
                place = (name, _key(bean, "topic"), _key(bean, "partition"))
                values = self._values(bean, self._places)
                found = (values.get("records-lead", 0.0), values.get("records-lag", 0.0))
                places[place] = max(places.get(place, (0.0, 0.0)), found)
        for bean in self._found(_SENT):
            client = _key(bean, "client-id")
            name = client.rpartition(".")[0]
            if name in given:
                values = self._values(bean, self._counts)
                given[name] += self._grown(client, values.get("record-send-total", 0.0))
                waiting[name] += _waiting(values)
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

    def waiting_bytes(self, client: str) -> int:
        """Return what one query has written and its broker has not taken yet."""
        beans = (bean for bean in self._found(_SENT) if _key(bean, "client-id").rpartition(".")[0] == client)
        return int(sum(_waiting(self._values(bean, self._counts)) for bean in beans))

    def _grown(self, client: str, value: float) -> float:
        before, last = self._totals.get(client, (0.0, 0.0))
        if value < last:  # the client was made anew under the same name
            before += last
        self._totals[client] = (before, value)
        return before + value

    def _found(self, pattern: str) -> list[str]:
        """Return the beans of a pattern, as texts."""
        text = str(self._beans.queryNames(self._name(pattern), None).toString())
        names = text.strip("[]").split(", ") if len(text) > 2 else []
        kind = pattern.partition(",")[0]
        kept = {name: bean for name, bean in self._known.items() if not name.startswith(kind)}
        self._known = {**kept, **{name: self._known.get(name) for name in names}}
        return names

    def _values(self, bean: str, attributes: Any) -> dict[str, float]:
        """Return the values of a bean that are numbers; none, if it is gone meanwhile."""
        try:
            if self._known.get(bean) is None:
                self._known[bean] = self._name(bean)
            text = str(self._beans.getAttributes(self._known[bean], attributes).toString())
            found = {name: float(value) for name, value in _VALUE.findall(text)}
        except Exception:  # noqa: BLE001  # a bean may be gone between the list and the reading
            return {}
        return {name: value for name, value in found.items() if not math.isnan(value)}


def _hashes(checkpoint: Path) -> frozenset[int]:
    return frozenset(source_hash(f"file:{checkpoint}/sources/{number}") for number in range(MOST_SOURCES))


def _waiting(values: Mapping[str, float]) -> float:
    return values.get("buffer-total-bytes", 0.0) - values.get("buffer-available-bytes", 0.0)


def _key(bean: str, key: str) -> str:
    """Return what a bean's name says of a key.

    >>> _key('kafka.producer:type=producer-metrics,client-id="hw-pi-hot.1"', "client-id")
    'hw-pi-hot.1'
    """
    found = re.search(rf'[:,]{key}=("[^"]*"|[^,]*)', bean)
    return found[1].strip('"') if found else ""


def _hash_in(client: str) -> int:
    match = re.search(r"-(-?\d+)-executor(?:-\d+)?$", client)
    return int(match[1]) if match else 0
