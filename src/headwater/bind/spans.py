"""What do the topics of a broker hold, for somebody who asks every second?

All partitions are asked at once, and what has not answered by one deadline is not known this time: whoever decides
every second cannot wait for each, however slow the broker is. `bind.topics` is for those who need an answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own types do not list them
    AdminClient,
    OffsetSpec,
)

from headwater.bind.topics import client_settings, is_away

__all__ = ["Spans"]

PATIENCE_S = 0.5  # for all answers together
METADATA_S = 30.0  # as long it is believed how many partitions a topic has
LEAST_S = 0.01  # with less time left, nothing is asked any more


class Spans:
    """The first and the next offsets of topics of one broker; one client that stays."""

    def __init__(self, address: str) -> None:
        """Make a client; it connects when it is first used."""
        self._admin = AdminClient(client_settings(address))
        self._ends = (OffsetSpec.earliest(), OffsetSpec.latest())  # type: ignore[no-untyped-call]
        self._partitions: dict[str, tuple[float, int]] = {}  # by topic: until when it is believed, and how many

    def held(self, topics: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return the first and the next offset of topics, summed over partitions; without those that are not known."""
        end_s = time.monotonic() + PATIENCE_S
        wanted = sorted(set(topics))
        self._count([one for one in wanted if time.monotonic() > self._partitions.get(one, (0.0, 0))[0]], end_s)
        counts = {one: self._partitions[one][1] for one in wanted if one in self._partitions}
        places = [(topic, number) for topic, count in counts.items() for number in range(count)]
        left_s = end_s - time.monotonic()
        if not places or left_s < LEAST_S:
            return {}
        asked = [
            self._admin.list_offsets(
                {TopicPartition(*one): end for one in places},
                isolation_level=IsolationLevel.READ_COMMITTED,  # what those get to see who read in that way
                request_timeout=left_s,
            )
            for end in self._ends
        ]
        first, following = (self._answers(futures, end_s) for futures in asked)
        return {
            topic: (sum(first[topic].values()), sum(following[topic].values()))
            for topic, count in counts.items()
            if len(first.get(topic, ())) == len(following.get(topic, ())) == count > 0
        }

    def _answers(self, futures: Mapping[TopicPartition, Future[Any]], end_s: float) -> dict[str, dict[int, int]]:
        """Return the offsets that came in time, by topic and partition."""
        found: dict[str, dict[int, int]] = {}
        wait(futures.values(), max(0.0, end_s - time.monotonic()))
        for place, future in futures.items():
            answer = self._answer(place.topic, future)
            if answer is not None:
                found.setdefault(place.topic, {})[place.partition] = int(answer.offset)
        return found

    def _count(self, topics: list[str], end_s: float) -> None:
        """Note how many partitions topics have."""
        if not topics:
            return
        futures = self._admin.describe_topics(TopicCollection(topics), request_timeout=PATIENCE_S)
        wait(futures.values(), max(0.0, end_s - time.monotonic()))
        for topic, future in futures.items():
            answer = self._answer(topic, future)
            # Of a partition that nobody leads, nobody tells, and all that is asked beside it would wait.
            if answer is not None and all(one.leader is not None and one.leader.id >= 0 for one in answer.partitions):
                self._partitions[topic] = (time.monotonic() + METADATA_S, len(answer.partitions))

    def _answer(self, topic: str, future: Future[Any]) -> Any:
        """Return what came, or nothing; a topic about which an answer was refused is looked at anew the next time."""
        if not future.done():
            return None
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, KafkaException) and not is_away(error):
            self._partitions.pop(topic, None)
        return None

    def close(self) -> None:
        """Let the client go."""
        self._admin.__exit__(None, None, None)
