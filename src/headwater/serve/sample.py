"""Which real records are there to measure with?

A sample is a generator (`records.py`, or the folder of an example that has one), a .jsonl file or a .parquet file.
Its records are laid down as Parquet with the columns that Spark's Kafka source gives; which of them a source gets
is decided by the topics that it reads (`for_topics`).

    HW1801  which sample belongs to which source cannot be told, or one has none
    HW1802  a sample that is not there, or of no known kind, or not readable
    HW1803  a sample without the columns of records
    HW1804  a sample without records, or with none for a source
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import Mistake, SpecError
from headwater.model.report import Report, listed, quote
from headwater.serve import disk
from headwater.serve.feed import sent_records

__all__ = ["Taking", "chosen", "for_topics", "laid"]

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # of records that do not say when they were made
MOST_BYTES = 64_000_000  # of a source's records; what comes after is left out
NO_CLOSING = "HW1704"  # a generator without closing records
FIELDS = ("key", "value", "topic")  # of a record

Row = tuple[bytes | None, bytes | None, str | None]  # key, value, topic


@dataclass(frozen=True, slots=True)
class Taking:
    """How records are taken from a generator."""

    site: str | None = None  # whose records; None: of the site that the project's configuration names
    seed: int = 0
    count: int = 1_000


def chosen(given: Sequence[str], sources: Sequence[str]) -> Mapping[str, str]:
    """Return the sample of each source, of texts 'FILE' (for all of them) and 'OPERATOR=FILE'.

    >>> chosen(["all.jsonl", "trees=trees.parquet"], ["trees", "roads"])
    {'trees': 'trees.parquet', 'roads': 'all.jsonl'}

    Raises:
        SpecError: HW1801, for anything that leaves it open.
    """
    for_all, own = [], {}
    for text in given:
        name, is_named, file = text.partition("=")
        if is_named and name in sources:
            own[name] = file
        elif is_named and not os.path.exists(text):
            tip = Report("").tip(name, sources)
            raise _wrong("HW1801", f"--sample {text}: {quote(name)} is no source; sources: {listed(sources)}.{tip}")
        else:
            for_all.append(text)
    if len(for_all) > 1:
        raise _wrong("HW1801", f"--sample is given for all sources {len(for_all)} times: {listed(for_all)}. Give one.")
    without = [name for name in sources if name not in own]
    if without and not for_all:
        raise _wrong(
            "HW1801", f"there is no sample for {listed(without)}. Add --sample {without[0]}=FILE, or --sample FILE."
        )
    return {name: own.get(name) or for_all[0] for name in sources}


def laid(path: str, target: Path, taking: Taking, rate_rps: float) -> int:
    """Write the records of a sample to a Parquet file, and return how many there are.

    Args:
        path: The sample, as the user named it.
        target: The file to write.
        taking: How to take them from a generator.
        rate_rps: How far apart they were made, where they do not say.

    Raises:
        SpecError: HW1802 to HW1804, and those of generators.
    """
    table = _table(path, taking, rate_rps)
    if not len(table):
        raise _wrong("HW1804", "the sample holds no records. Give one that does.", path)
    pq.write_table(table, target)
    return len(table)


def for_topics(file: Path, options: Mapping[str, str], target: Path) -> tuple[int, tuple[str, ...]]:
    """Write those records of a laid sample that are for the topics of a Kafka source.

    Args:
        file: The sample as `laid` wrote it; records without a topic are for any.
        options: Of the source; their keys in small letters.
        target: The file to write.

    Returns:
        How many they are, and the topics that the sample has.
    """
    table = pq.read_table(file)
    topics = table.column("topic").to_pylist()
    named = [each.strip() for each in options.get("subscribe", "").split(",") if each.strip()]
    named = named or list(json.loads(options.get("assign", "{}")))
    pattern = re.compile(options.get("subscribepattern", ".*" if not named else r"(?!)"))
    wanted: list[int] = []
    size = 0
    for i, topic in enumerate(topics):
        if topic is None or topic in named or pattern.fullmatch(topic):
            size += len(table.column("value")[i].as_py() or b"")
            if size > MOST_BYTES and wanted:
                break
            wanted.append(i)
    found = table.take(pa.array(wanted, pa.int64()))
    renamed = pa.array([topics[i] or (named[0] if named else "sample") for i in wanted], pa.string())
    found = found.set_column(COLUMNS.get_field_index("topic"), "topic", renamed)
    pq.write_table(found, target)
    return len(found), tuple(sorted({topic for topic in topics if topic is not None}))


def _table(path: str, taking: Taking, rate_rps: float) -> Any:
    if os.path.isdir(path) or path.endswith(".py"):
        return _made(_generated(path, taking), rate_rps)
    if path.endswith((".jsonl", ".ndjson")):
        return _made(_lines(path), rate_rps)
    if path.endswith(".parquet"):
        return _columns(path, rate_rps)
    if not os.path.exists(path):
        raise _wrong("HW1802", f"there is no such sample; paths start at '{os.getcwd()}'.", path)
    kinds = "a records.py, a folder with one, a .jsonl file or a .parquet file"
    raise _wrong("HW1802", f"a sample is {kinds}; this is none of them.", path)


def _generated(path: str, taking: Taking) -> list[Row]:
    def take(should_close: bool) -> list[Row]:
        records = sent_records(path, taking.site or "sample", taking.seed, taking.count, should_close)
        return [(key, value, topic) for topic, key, value in records]

    try:
        return take(True)  # what closes windows is part of what comes out
    except SpecError as error:
        if error.mistakes[0].code != NO_CLOSING:
            raise
        return take(False)


def _lines(path: str) -> Iterator[Row]:
    """Yield the records of a file of lines: objects with 'value', or any other lines as they are."""
    lines = [(number, line) for number, line in enumerate(disk.read(path).splitlines(), start=1) if line.strip()]
    is_records = bool(lines) and _record(lines[0][1]) is not None
    for number, line in lines:
        if not is_records:
            yield None, line, None
            continue
        record = _record(line)
        if record is None:
            raise _wrong(
                "HW1803",
                "the first line is a record with 'value', and this one is none. Records have 'value', and may have "
                "'key' and 'topic'; found "
                f"{quote(line.decode('utf-8', 'replace'), 60)}.",
                path,
                number,
            )
        topic = record.get("topic")
        yield _bytes(record.get("key")), _bytes(record["value"]), None if topic is None else str(topic)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "value" in found and found.keys() <= set(FIELDS) else None


def _bytes(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _columns(path: str, rate_rps: float) -> Any:
    if not os.path.exists(path):
        raise _wrong("HW1802", f"there is no such sample; paths start at '{os.getcwd()}'.", path)
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise _wrong("HW1802", f"this is not readable as Parquet: {str(error).splitlines()[0]}", path) from None
    found = {field.name: field.type for field in table.schema}
    wrong = [name for name in ("key", "value") if name in found and not _is_text(found[name])]
    if "value" not in found or wrong:
        what = f"'{wrong[0]}' is {found[wrong[0]]}" if wrong else "there is no 'value'"
        raise _wrong(
            "HW1803",
            f"a sample has the columns 'value' and perhaps 'key' and 'topic', of bytes or text; {what}. It has "
            f"{listed(list(found))}. Write it from a Kafka source, or rename its columns.",
            path,
        )
    values = [table.column(name).to_pylist() if name in found else [None] * len(table) for name in FIELDS]
    made = _made(((_raw(key), _raw(value), topic) for key, value, topic in zip(*values, strict=True)), rate_rps)
    if "timestamp" in found and pa.types.is_timestamp(found["timestamp"]):
        place = COLUMNS.get_field_index("timestamp")
        return made.set_column(place, "timestamp", table.column("timestamp").cast(COLUMNS.field(place).type))
    return made


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _is_text(kind: Any) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
    return any(check(kind) for check in checks)


def _made(rows: Iterator[Row] | list[Row], rate_rps: float) -> Any:
    """Return records as Kafka's source would give them, evenly apart in time."""
    step = timedelta(seconds=1 / rate_rps) if rate_rps > 0 else timedelta()
    keys, values, topics = [], [], []
    for key, value, topic in rows:
        keys.append(key)
        values.append(value)
        topics.append(topic)
    count = len(values)
    times = [BEGIN + i * step for i in range(count)]
    columns = (keys, values, topics, [0] * count, list(range(count)), times, [0] * count)
    return pa.table(
        {field.name: pa.array(column, field.type) for field, column in zip(COLUMNS, columns, strict=True)}, COLUMNS
    )


def _wrong(code: str, text: str, file: str | None = None, line: int | None = None) -> SpecError:
    return SpecError(Mistake(code, text, file, line))
