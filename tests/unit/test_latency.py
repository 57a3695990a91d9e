"""How old are records: what share of them is not above which age, and what if nobody says, or nobody answers?"""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from headwater.bind import latency
from headwater.bind.headers import CREATED, FROM
from headwater.bind.latency import LatencyReader, percentile

AGES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300).map(sorted)
SHARES = st.sampled_from(["0.001", "0.01", "0.05", "0.29", "0.5", "0.57", "0.9", "0.95", "0.99", "0.999", "1"])


@given(AGES, SHARES)
def test_it_is_the_smallest_value_that_the_share_of_the_values_is_not_above(ages: list[float], text: str) -> None:
    share, found = Fraction(text), percentile(ages, float(text))
    assert found in ages
    assert sum(age <= found for age in ages) >= share * len(ages)
    below = [age for age in ages if age < found]
    assert not below or sum(age <= below[-1] for age in ages) < share * len(ages)


@pytest.mark.parametrize(
    ("count", "share", "wanted"),
    [
        (1, 0.5, 1),
        (1, 0.99, 1),
        (2, 0.5, 1),
        (3, 0.5, 2),
        (10, 0.0, 1),
        (10, 1.0, 10),
        (100, 0.29, 29),
        (100, 0.57, 57),
        (100, 0.99, 99),
        (101, 0.99, 100),
        (1000, 0.999, 999),
    ],
)
def test_of_the_numbers_from_one_it_is_the_number_itself(count: int, share: float, wanted: int) -> None:
    assert percentile([float(number) for number in range(1, count + 1)], share) == wanted


NOW_MS = 1_700_000_000_000
OURS = {CREATED: str(NOW_MS - 500).encode(), FROM: f"T-1/0/17/0/{NOW_MS - 200}".encode()}
NOBODY = "127.0.0.1:1"


class Message:
    """A record that was written just now."""

    def __init__(self, headers: dict[str, Any]) -> None:
        self._headers = list(headers.items())

    def error(self) -> None:
        return None

    def headers(self) -> list[tuple[str, Any]]:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, NOW_MS

    def value(self) -> bytes:
        return b"{}"


class Consumer:
    """A client of a broker that holds what a test puts into it."""

    topics: dict[str, list[Message]]
    troubles: dict[str, int]  # by topic: code of the error that comes for it
    asked: list[str]

    def __init__(self, settings: object) -> None:
        del settings

    def get_watermark_offsets(self, of: TopicPartition, timeout: float) -> tuple[int, int]:
        del timeout
        self.asked.append(of.topic)
        if of.topic in self.troubles:
            raise KafkaException(KafkaError(self.troubles[of.topic]))
        return 0, len(self.topics[of.topic])

    def assign(self, parts: list[TopicPartition]) -> None:
        self._next = parts[0]

    def consume(self, count: int, timeout: float) -> list[Message]:
        del timeout
        return self.topics[self._next.topic][self._next.offset :][:count]

    def unassign(self) -> None:
        del self._next


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> type[Consumer]:
    Consumer.topics, Consumer.troubles, Consumer.asked = {name: [] for name in "abcd"}, {}, []
    monkeypatch.setattr(latency, "Consumer", Consumer)
    return Consumer


@pytest.mark.parametrize(
    "foreign",
    [
        {},
        {CREATED: OURS[CREATED]},
        {FROM: OURS[FROM]},
        {**OURS, CREATED: b"abc"},
        {**OURS, CREATED: b""},
        {**OURS, CREATED: b"\xff"},
        {**OURS, CREATED: b"9" * 400},
        {**OURS, CREATED: b"9" * 5_000},
        {**OURS, CREATED: None},
        {**OURS, FROM: b"abc"},
        {**OURS, FROM: b"T-1/0/17/0/soon"},
        {**OURS, FROM: b"\xff/0/17/0/5"},
    ],
)
def test_a_record_that_others_wrote_has_no_age_and_the_rest_have(
    broker: type[Consumer], foreign: dict[str, Any]
) -> None:
    reader = LatencyReader(NOBODY)
    reader.look(["a"])  # from here on
    broker.topics["a"] += [Message(OURS), Message(foreign), Message(OURS)]
    assert reader.look(["a"]) == {"a": 3}
    assert reader.fresh("a") == [0.5, 0.5]
    found = reader.recent("a")
    assert found is not None
    assert (found.samples, found.p99_s, found.hop_p99_s) == (2, 0.5, 0.2)


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        (KafkaError._TRANSPORT, "ab"),
        (KafkaError._TIMED_OUT, "ab"),
        (KafkaError._ALL_BROKERS_DOWN, "ab"),
        (KafkaError._UNKNOWN_PARTITION, "abcd"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "abcd"),
    ],
)
def test_a_look_ends_when_the_broker_is_away_and_goes_on_when_a_topic_is(
    broker: type[Consumer], code: int, asked: str
) -> None:
    reader = LatencyReader(NOBODY)
    reader.look(list("abcd"))
    broker.asked, broker.troubles = [], {"b": code}
    for topic in "acd":
        broker.topics[topic].append(Message(OURS))
    found = reader.look(list("abcd"))
    assert "".join(broker.asked) == asked
    assert set(found) == set(asked) - {"b"}
    assert {topic for topic in "abcd" if reader.fresh(topic)} == set(asked) - {"b"}


def test_where_nobody_answers_it_is_waited_once_however_many_topics_there_are() -> None:
    reader = LatencyReader(NOBODY)
    begun_s = time.monotonic()
    assert reader.look([f"T-{number}" for number in range(20)]) == {}
    assert time.monotonic() - begun_s < 10 * latency.PATIENCE_S
    reader.close()
