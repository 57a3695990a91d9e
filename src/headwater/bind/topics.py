"""What is in a broker's topics, and are those there that are needed?

Every function takes a broker's address, ours or the user's, and ends within its time. An `ensure` or a
`remove` that is repeated does nothing more. `bind.kafka` runs brokers.

    HW4205   a topic could not be made or removed
    HW4206   the topic is not there
    HW4207   a topic could not be read
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own types do not list them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headwater.bind import keyring
from headwater.errors import BindError

__all__ = [
    "client_settings",
    "end_offsets",
    "ensure_topics",
    "first_offsets",
    "is_away",
    "reason",
    "remove_topics",
    "tail",
    "topic_ids",
]

PAUSE_S = 0.02  # between two questions about the same thing
# What a broker answers that is starting, stopping or handing over, and what the client says of one that is away.
# Kafka itself calls these retriable; the client's own `retriable` is only about transactions.
_AWAY = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN})
_PASSING = _AWAY | frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)


def client_settings(address: str) -> dict[str, Any]:
    """Return the settings of a client that comes back soon after an outage and prints nothing of its own.

    With user and password, if the keyring of this process has any for the address.

    Raises:
        BindError: HW4209, the keyring cannot be used.
    """
    return {
        **keyring.rdkafka_settings(keyring.find(address)),
        "bootstrap.servers": address,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
        "error_cb": lambda _: None,  # failures come back from the calls; without this they go to stderr too
    }


def reason(error: KafkaException) -> str:
    """Return why Kafka refused, in its own words."""
    first = error.args[0] if error.args else None
    return first.str() if isinstance(first, KafkaError) else str(error)


def ensure_topics(
    address: str,
    names: Iterable[str],
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    timeout_s: float = 10.0,
) -> Mapping[str, int]:
    """Make the topics that are not there, wait until all can be written, and return how many partitions each has.

    A topic that is there keeps its records and its partitions, however many were asked for; it gets the settings.

    Raises:
        BindError: HW4205.
    """
    wanted = sorted(set(names))
    settings = dict(config or {})
    made: set[str] = set()
    with AdminClient(client_settings(address)) as admin:
        why = "no answer"
        for left_s in _rounds(timeout_s):
            try:
                counts = _partitions(admin, wanted, left_s)
                missing = [name for name in wanted if name not in counts]
                if not missing:
                    _set(admin, [name for name in wanted if name not in made], settings, left_s)
                if all(counts.get(name) for name in wanted):
                    return counts
                why = f"{', '.join(map(repr, missing))} not there" if missing else "a partition has no leader"
                for name in missing:
                    _done(
                        admin.create_topics([NewTopic(name, partitions, config=settings)], request_timeout=left_s),
                        left_s,
                        KafkaError.TOPIC_ALREADY_EXISTS,
                    )
                    made.add(name)
            except KafkaException as error:
                why = reason(error)
                if not _may_pass(error):
                    break
    raise BindError(
        f"HW4205 the topics {', '.join(map(repr, wanted))} could not be made at the broker {address} "
        f"within {timeout_s:g} s: {why}; check that the broker runs and lets this client make topics, then try again"
    )


def remove_topics(address: str, names: Iterable[str], timeout_s: float = 10.0) -> None:
    """Remove the topics that are there, with their records, and wait until they are gone.

    Raises:
        BindError: HW4205.
    """
    unwanted = sorted(set(names))
    with AdminClient(client_settings(address)) as admin:
        why = "no answer"
        for left_s in _rounds(timeout_s):
            try:
                there = sorted(_partitions(admin, unwanted, left_s))
                if not there:
                    return
                why = f"{', '.join(map(repr, there))} still there"
                gone = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)
                _done(admin.delete_topics(there, request_timeout=left_s), left_s, *gone)
            except KafkaException as error:
                why = reason(error)
                if not _may_pass(error):
                    break
    raise BindError(
        f"HW4205 the topics {', '.join(map(repr, unwanted))} could not be removed from the broker {address} "
        f"within {timeout_s:g} s: {why}; check that the broker runs and lets this client remove topics, then try again"
    )


def end_offsets(address: str, topics: Iterable[str], timeout_s: float = 10.0) -> Mapping[tuple[str, int], int]:
    """Return the offset that the next record of each partition will get.

    Raises:
        BindError: HW4206 a topic is not there; HW4207 no answer.
    """
    return _offsets(address, topics, timeout_s, is_end=True)


def first_offsets(address: str, topics: Iterable[str], timeout_s: float = 10.0) -> Mapping[tuple[str, int], int]:
    """Return the offset of the first record that each partition still holds, or will get.

    Raises:
        BindError: HW4206 a topic is not there; HW4207 no answer.
    """
    return _offsets(address, topics, timeout_s, is_end=False)


def _offsets(address: str, topics: Iterable[str], timeout_s: float, is_end: bool) -> Mapping[tuple[str, int], int]:
    wanted = sorted(set(topics))
    with AdminClient(client_settings(address)) as admin:
        why = "no answer"
        for left_s in _rounds(timeout_s):
            try:
                counts = _partitions(admin, wanted, left_s)
                for name in wanted:
                    if name not in counts:
                        raise _missing(name, address)
                if not all(counts.values()):
                    why = "a partition has no leader"
                    continue
                spec = OffsetSpec.latest() if is_end else OffsetSpec.earliest()  # type: ignore[no-untyped-call]
                asked = {TopicPartition(name, each): spec for name in wanted for each in range(counts[name])}
                if not asked:
                    return {}
                found = admin.list_offsets(
                    asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=left_s
                )
                return {
                    (place.topic, place.partition): int(future.result(left_s).offset) for place, future in found.items()
                }
            except KafkaException as error:
                why = reason(error)
                if not _may_pass(error):
                    break
    raise _unread(", ".join(map(repr, wanted)), address, timeout_s, why)


def topic_ids(address: str, topics: Iterable[str], timeout_s: float = 10.0) -> Mapping[str, str]:
    """Return the broker's own id of each topic: one that is removed and made again has another.

    Raises:
        BindError: HW4206 a topic is not there; HW4207 no answer.
    """
    wanted = sorted(set(topics))
    with AdminClient(client_settings(address)) as admin:
        why = "no answer"
        for left_s in _rounds(timeout_s):
            try:
                found = admin.describe_topics(TopicCollection(wanted), request_timeout=left_s)
                return {name: str(future.result(left_s + 1).topic_id) for name, future in found.items()}
            except KafkaException as error:
                why = reason(error)
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise _missing(", ".join(wanted), address) from error
                if not _may_pass(error):
                    break
    raise _unread(", ".join(map(repr, wanted)), address, timeout_s, why)


def tail(address: str, topic: str, since_timestamp_ms: int, timeout_s: float = 10.0) -> Iterator[Message]:
    """Yield the records of a topic from the first at or after a time up to the end as it is at the first step.

    In order within a partition. Timestamps are those that the records carry, in ms since 1970.

    Raises:
        BindError: HW4206 the topic is not there; HW4207 no answer for `timeout_s` while records are due.
    """
    settings = {
        **client_settings(address),
        "group.id": "headwater-tail",  # demanded, not used: nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 50,
    }
    with Consumer(settings) as consumer:
        try:
            ends = _assign_tail(consumer, address, topic, since_timestamp_ms, timeout_s)
            while ends:
                message = consumer.poll(timeout_s)
                if message is None:
                    raise _unread(f"'{topic}'", address, timeout_s, f"{len(ends)} partitions are not at their end")
                partition, offset, error = message.partition(), message.offset(), message.error()
                assert partition is not None
                assert offset is not None
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    ends.pop(partition, None)
                elif partition in ends:
                    if offset < ends[partition]:
                        yield message
                    if offset >= ends[partition] - 1:
                        del ends[partition]
        except KafkaException as error:
            raise _unread(f"'{topic}'", address, timeout_s, reason(error)) from error


def _assign_tail(
    consumer: Consumer, address: str, topic: str, since_timestamp_ms: int, timeout_s: float
) -> dict[int, int]:
    """Point the consumer to the first record of each partition; return where each ends, for those with any.

    A broker that has just started leads its partitions a moment later; so long it is asked again.
    """
    why: KafkaException | None = None
    for left_s in _rounds(timeout_s):
        try:
            return _assigned(consumer, address, topic, since_timestamp_ms, left_s)
        except KafkaException as error:
            why = error
            if not _may_pass(error):
                break
    assert why is not None, "it was tried at least once"
    raise why


def _assigned(
    consumer: Consumer, address: str, topic: str, since_timestamp_ms: int, timeout_s: float
) -> dict[int, int]:
    found = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if found.error is not None:
        if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise _missing(topic, address)
        raise KafkaException(found.error)
    asked = [TopicPartition(topic, number, since_timestamp_ms) for number in sorted(found.partitions)]
    starts = consumer.offsets_for_times(asked, timeout=timeout_s)
    ends: dict[int, int] = {}
    for start in starts:
        if start.error is not None:  # what is there for an offset then is none
            raise KafkaException(start.error)
        _, end = consumer.get_watermark_offsets(start, timeout=timeout_s)
        if start.offset != OFFSET_END and start.offset < end:
            ends[start.partition] = end
    consumer.assign([start for start in starts if start.partition in ends])
    return ends


def _partitions(admin: AdminClient, names: list[str], timeout_s: float) -> dict[str, int]:
    """Return how many partitions each topic has that is there; 0 while one of them has no leader."""
    if not names:
        return {}
    counts: dict[str, int] = {}
    for name, future in admin.describe_topics(TopicCollection(names), request_timeout=timeout_s).items():
        try:
            partitions = future.result(timeout_s + 1).partitions
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            continue
        has_leaders = all(each.leader is not None and each.leader.id >= 0 for each in partitions)
        counts[name] = len(partitions) if has_leaders else 0
    return counts


def _set(admin: AdminClient, names: list[str], settings: Mapping[str, str], timeout_s: float) -> None:
    if not names or not settings:
        return
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resources = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries) for name in names]
    _done(admin.incremental_alter_configs(resources, request_timeout=timeout_s), timeout_s)


def _done(futures: Mapping[Any, Any], timeout_s: float, *fine: int) -> None:
    """Wait for answers; errors with these codes are fine."""
    for future in futures.values():
        try:
            future.result(timeout_s + 1)
        except KafkaException as error:
            if error.args[0].code() not in fine:
                raise


def is_away(error: KafkaException) -> bool:
    """Return whether the broker did not answer at all."""
    first = error.args[0]
    return isinstance(first, KafkaError) and first.code() in _AWAY


def _may_pass(error: KafkaException) -> bool:
    """Return whether the same question may be answered a moment later."""
    first = error.args[0]
    return isinstance(first, KafkaError) and (first.retriable() or first.code() in _PASSING)


def _rounds(timeout_s: float) -> Iterator[float]:
    """Yield the seconds that are left, with a short pause before all but the first, until none is."""
    end_s = time.monotonic() + timeout_s
    yield timeout_s
    while (left_s := end_s - time.monotonic()) > PAUSE_S:
        time.sleep(PAUSE_S)
        yield left_s


def _missing(topic: str, address: str) -> BindError:
    return BindError(
        f"HW4206 the topic '{topic}' is not there at the broker {address}; check its name, or make it first: "
        "a topic comes into being when something is written to it"
    )


def _unread(topics: str, address: str, timeout_s: float, why: str) -> BindError:
    return BindError(
        f"HW4207 the topics {topics} could not be read at the broker {address} within {timeout_s:g} s: {why}; "
        "check that the broker runs and can be reached, then try again"
    )
