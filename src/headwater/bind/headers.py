"""What do the headers of a record say?

| header | holds |
|---|---|
| `hw-created` | when the first record behind it was born, in ms since 1970 |
| `hw-origin` | where: `site/topic/partition/offset` |
| `hw-from` | the record of the writer's own input that it was made of: `topic/partition/offset/index/arrived` |
| `hw-by` | the fragment that wrote it: several may write one topic |
| `hw-schema` | which schema the row has |

They are text, so that any tool shows them. This module knows no Spark: whoever watches the topics reads
them too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

__all__ = ["BY", "CREATED", "FROM", "ORIGIN", "SCHEMA", "From", "headers_of", "parse_from"]

CREATED, ORIGIN, FROM, BY, SCHEMA = "hw-created", "hw-origin", "hw-from", "hw-by", "hw-schema"


@dataclass(frozen=True, slots=True)
class From:
    """Which record of a fragment's input a row was made of."""

    topic: str
    partition: int
    offset: int
    index: int  # which of that record's rows
    arrived_ms: int  # when the record was written


def headers_of(message: Message) -> dict[str, bytes]:
    """Return the headers of a record, by name; of several with one name the last.

    A record that has one whose name is no text has none: the client cannot tell them, and it is not one of ours.
    """
    try:
        found: Any = message.headers() or ()
    except (SystemError, UnicodeError):  # the client's own reading of the name fails, in either way
        return {}
    return {key: value for key, value in found if isinstance(value, bytes)}


def parse_from(header: bytes) -> From:
    """Return what the header `hw-from` says.

    >>> parse_from(b"hw.fire.hot/0/17/0/1700000000000").offset
    17
    """
    topic, partition, offset, index, arrived = header.decode().rsplit("/", 4)
    return From(topic, int(partition), int(offset), int(index), int(arrived))
