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

__all__ = ["Seated", "advance", "first_records", "positions", "sources_of", "take_seats"]

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


def positions(checkpoint: Path) -> dict[str, str]:
    """Return where each source goes on, of a query that is between two batches; what has not begun is left out."""
    keys = _note(checkpoint).get("sources", [])
    batch = _newest(checkpoint / "commits")
    if batch is not None:
        lines = (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()[2:]
        return {key: line for key, line in zip(keys, lines, strict=True) if line != "-"}
    found = {}
    for number, key in enumerate(keys):
        file = checkpoint / "sources" / str(number) / "0"
        if file.exists():
            found[key] = file.read_bytes().removeprefix(INITIAL).decode()
    return found


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
    begun_ms: int = 0,
) -> Seated:
    """Let the next start of a query read these sources, each from where it should.

    Args:
        checkpoint: Of the query, which does not run.
        keys: Its sources from now on, in Spark's order.
        seat: Where sources go on that it takes over from others; counts once, also over restarts.
        first: Where a source begins that nobody has read before; None: as its options say.
        begun_ms: What to keep as the beginning of a query that has none.

    Raises:
        BindError: HW4520.
    """
    _finish(checkpoint)
    note = _note(checkpoint)
    mark = _digest(sorted(seat.items())) if seat else note.get("seat", "")
    is_new_seat = bool(seat) and mark != note.get("seat")
    if list(keys) != note.get("sources") or is_new_seat:
        before: list[str] = note.get("sources", [])
        at = positions(checkpoint)
        left = {**note.get("left", {}), **{key: place for key, place in at.items() if key not in keys}}
        known = {**{key: place for key, place in left.items() if key in keys}, **at}
        known |= seat if is_new_seat else {}
        later = {
            "sources": list(keys),
            "seat": mark,
            "number": int(note.get("number", -1)) + 1,
            "begun_ms": note.get("begun_ms", begun_ms),
            "left": {key: place for key, place in left.items() if key not in keys},
        }
        batch = _newest(checkpoint / "commits")
        change: dict[str, Any] = {"note": later}
        if batch is None and _newest(checkpoint / "offsets") is None:
            change["begin"] = {number: known.get(key) for number, key in enumerate(keys) if key in known or before}
        elif before or is_new_seat:  # else: a checkpoint from before there were notes
            if batch is None or batch != _newest(checkpoint / "offsets"):
                raise BindError(
                    "HW4520 it is to read other topics, but what it had in hand is not finished: halt it with its "
                    "topics drained first, then start it again."
                )
            places = [known.get(key) or first(key) or "-" for key in keys]
            change["batch"], change["text"] = batch, "\n".join([*_head(checkpoint, batch), *places])
        _write(checkpoint / BEGUN, json.dumps(change))
        _finish(checkpoint)
        note = later
    generation = f"{_digest(list(keys))[:8]}.{note.get('number', 0)}"
    return Seated(generation, int(note.get("begun_ms", 0)))


def advance(checkpoint: Path, reached: Mapping[tuple[str, int], int], has_more: bool) -> bool:
    """Let a query without state go on after the last records whose rows are written; return whether that was possible.

    Args:
        checkpoint: Of the query, which does not run.
        reached: By topic and partition: the last record with a row in the output.
        has_more: Whether such a record may have more rows to give.
    """
    batch, keys = _newest(checkpoint / "commits"), _note(checkpoint).get("sources", [])
    if batch is None or batch != _newest(checkpoint / "offsets") or not all("/" in key for key in keys):
        return False
    at = positions(checkpoint)
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


def _newest(folder: Path) -> int | None:
    return max((int(one.name) for one in folder.glob("[0-9]*") if one.name.isdigit()), default=None)


def _write(file: Path, text: str) -> None:
    _write_bytes(file, text.encode())


def _write_bytes(file: Path, data: bytes) -> None:
    passing = file.with_name(f".{file.name}.new")
    passing.write_bytes(data)
    passing.replace(file)
