"""Where in its sources does a query go on?

Spark keeps in a checkpoint how far a query has read, source by source, in the order in which its plan holds them,
and does not say which source that was. So a query that comes to read other topics would be refused, or would take
one topic's offset for another's. We write down beside it which sources these are (`headwater.json`), and when they
are others at the next start, the place of each is set by hand: kept for sources that stay, taken from whoever read
it before (a `seat`), from where this query left it once, or the first record. That is exact only between two
batches, so the query is drained first. Each such change begins a new generation: what was written before it was
made of other sources, and tells nothing about these.

    HW4520   the sources are others, and the query was not drained before
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from headwater.bind.sources import nodes
from headwater.errors import BindError

__all__ = ["Seated", "advance", "first_records", "newest", "positions", "sources_of", "take_seats"]

Ids = Callable[[str], Mapping[str, str]]  # of a source: the broker's own id of each of its topics
NOTE = "headwater.json"  # which sources the lines of Spark's own files are about
BEGUN = "headwater.begun.json"  # a change of them, written down before it is made
INITIAL = b"\0v1\n"  # what Spark puts before the first offsets of a source


def sources_of(frame: DataFrame, brokers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sources of a query in the order in which Spark numbers them, as 'BROKER/TOPICS'.

    Args:
        frame: What is written, marks and all.
        brokers: Addresses of brokers by name; a name outlives an address.
    """
    names = {address: name for name, address in brokers.items()}
    found: dict[tuple[str, Any], str] = {}
    for node in nodes(frame._jdf.queryExecution().analyzed()):
        kind = str(node.nodeName())
        if not kind.startswith("StreamingRelation"):
            continue
        key = (kind, node.output().apply(0).exprId().id())
        if key in found:
            continue
        found[key] = f"{kind}#{len(found)}"
        if kind == "StreamingRelationV2" and node.extraOptions().get("subscribe"):
            options = node.extraOptions()
            address = str(options.get("kafka.bootstrap.servers"))
            found[key] = f"{names.get(address, address)}/{options.get('subscribe')}"
    return tuple(found.values())


def positions(checkpoint: Path, ids: Ids) -> dict[str, str]:
    """Return the place of each source, of a query that is between two batches; what has not begun is left out."""
    return {key: _place(at, ids(key)) for key, at in _offsets(checkpoint).items()}


@dataclass(frozen=True, slots=True)
class Seated:
    """Which sources a query reads from now on."""

    generation: str  # another one means other sources, or other places in them
    begun_ms: int  # when the first of them began


def take_seats(
    checkpoint: Path,
    keys: Sequence[str],
    seat: Mapping[str, str],
    first: Callable[[str], str | None],
    ids: Ids,
    begun_ms: int = 0,
) -> Seated:
    """Let the next start of a query read these sources, each from where it should.

    Args:
        checkpoint: Of the query, which does not run.
        keys: Its sources from now on, in Spark's order.
        seat: The places of sources that it takes over; each counts once, also over restarts, until it is left.
        first: Offsets with which a source begins that nobody has read before; None: as its options say.
        ids: What tells the topics of a source from others of the same names.
        begun_ms: What to keep as the beginning of a query that has none.

    Raises:
        BindError: HW4520.
    """
    _finish(checkpoint)
    note = _note(checkpoint)
    taken = {key: mark for key, mark in note.get("taken", {}).items() if key in keys}
    new = {key: place for key, place in seat.items() if key in keys and taken.get(key) != _digest(place)}
    if list(keys) != note.get("sources") or new:
        _change(
            checkpoint,
            keys,
            {**taken, **{key: _digest(place) for key, place in new.items()}},
            new,
            first,
            ids,
            begun_ms,
        )
        note = _note(checkpoint)
    return Seated(f"{_digest(list(keys))[:8]}.{note.get('number', 0)}", int(note.get("begun_ms", 0)))


def _change(
    checkpoint: Path,
    keys: Sequence[str],
    taken: Mapping[str, str],
    new: Mapping[str, str],
    first: Callable[[str], str | None],
    ids: Ids,
    begun_ms: int,
) -> None:
    """Give a query other sources, or other places in them."""
    note, offsets = _note(checkpoint), _offsets(checkpoint)
    before: list[str] = note.get("sources", [])
    left = {**note.get("left", {}), **{key: _place(at, ids(key)) for key, at in offsets.items() if key not in keys}}
    for key in keys:
        if key in new or (key not in before and key in left):
            found = _at(new.get(key) or left[key], ids(key))
            offsets.pop(key, None)
            offsets |= {} if found is None else {key: found}
    change: dict[str, Any] = {
        "note": {
            "sources": list(keys),
            "taken": dict(taken),
            "number": int(note.get("number", -1)) + 1,
            "begun_ms": note.get("begun_ms", begun_ms),
            "left": {key: place for key, place in left.items() if key not in keys},
        }
    }
    batch = newest(checkpoint / "commits")
    if batch is None and newest(checkpoint / "offsets") is None:
        change["begin"] = {number: offsets.get(key) for number, key in enumerate(keys) if key in offsets or before}
    elif before or new:  # else: a checkpoint from before there were notes
        if batch is None or batch != newest(checkpoint / "offsets"):
            raise BindError(
                "HW4520 it is to read other topics, but what it had in hand is not finished: halt it with its "
                "topics drained first, then start it again."
            )
        places = [offsets.get(key) or first(key) or "-" for key in keys]
        change["batch"], change["text"] = batch, "\n".join([*_head(checkpoint, batch), *places])
    _write(checkpoint / BEGUN, json.dumps(change))
    _finish(checkpoint)


def advance(checkpoint: Path, reached: Mapping[tuple[str, int], int], has_more: bool) -> bool:
    """Let a query without state go on after the last records whose rows are written; return whether that was possible.

    Args:
        checkpoint: Of the query, which does not run.
        reached: By topic and partition: the last record with a row in the output.
        has_more: Whether such a record may have more rows to give.
    """
    batch, keys = newest(checkpoint / "commits"), _note(checkpoint).get("sources", [])
    if batch is None or batch != newest(checkpoint / "offsets") or not all("/" in key for key in keys):
        return False
    at = _offsets(checkpoint)
    places = []
    for key in keys:
        place = json.loads(at[key])
        for topic, partitions in place.items():
            for partition, offset in partitions.items():
                last = reached.get((topic, int(partition)))
                partitions[partition] = offset if last is None else max(offset, last if has_more else last + 1)
        places.append(json.dumps(place, separators=(",", ":")))
    _replace_batch(checkpoint, batch, "\n".join([*_head(checkpoint, batch), *places]))
    return True


def first_records(offsets: Mapping[tuple[str, int], int]) -> str:
    """Return offsets of topics' partitions as Spark writes them.

    >>> first_records({("hot", 0): 7})
    '{"hot":{"0":7}}'
    """
    places: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        places.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(places, separators=(",", ":"))


def _place(at: str, ids: Mapping[str, str]) -> str:
    """Return offsets together with the topics that they are of, for whoever goes on there."""
    return json.dumps({"at": at, "ids": dict(ids)}, sort_keys=True)


def _at(place: str, ids: Mapping[str, str]) -> str | None:
    """Return the offsets of a place; None, if its topics are not those of then: emptied and made again, they begin."""
    found = json.loads(place)
    return str(found["at"]) if found["ids"] == dict(ids) else None


def _offsets(checkpoint: Path) -> dict[str, str]:
    """Return the offsets of each source, as Spark has them, of a query that is between two batches."""
    keys = _note(checkpoint).get("sources", [])
    batch = newest(checkpoint / "commits")
    if batch is not None:
        lines = (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()[2:]
        return {key: line for key, line in zip(keys, lines, strict=True) if line != "-"}
    found = {}
    for number, key in enumerate(keys):
        file = checkpoint / "sources" / str(number) / "0"
        if file.exists():
            found[key] = file.read_bytes().removeprefix(INITIAL).decode()
    return found


def _finish(checkpoint: Path) -> None:
    """Carry out a change that was begun."""
    try:
        change = json.loads((checkpoint / BEGUN).read_text("utf-8"))
    except FileNotFoundError:
        return
    if "batch" in change:
        _replace_batch(checkpoint, change["batch"], change["text"])
    for number, place in change.get("begin", {}).items():  # in the file where Spark would keep that itself
        folder = checkpoint / "sources" / str(number)
        (folder / ".0.crc").unlink(missing_ok=True)
        (folder / "0").unlink(missing_ok=True)
        if place is not None:
            folder.mkdir(parents=True, exist_ok=True)
            _write_bytes(folder / "0", INITIAL + place.encode())
    _write(checkpoint / NOTE, json.dumps(change["note"]))
    (checkpoint / BEGUN).unlink()


def _head(checkpoint: Path, batch: int) -> list[str]:
    return (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()[:2]


def _replace_batch(checkpoint: Path, batch: int, text: str) -> None:
    offsets = checkpoint / "offsets"
    (offsets / f".{batch}.crc").unlink(missing_ok=True)
    _write(offsets / str(batch), text)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _note(checkpoint: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((checkpoint / NOTE).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return found


def newest(folder: Path) -> int | None:
    """Return the newest batch that a folder of a checkpoint tells of."""
    return max((int(one.name) for one in folder.glob("[0-9]*") if one.name.isdigit()), default=None)


def _write(file: Path, text: str) -> None:
    _write_bytes(file, text.encode())


def _write_bytes(file: Path, data: bytes) -> None:
    passing = file.with_name(f".{file.name}.new")
    passing.write_bytes(data)
    passing.replace(file)
