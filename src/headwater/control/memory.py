"""How much memory may each runner have, and how many records may it hold?

A site's memory is shared out: first what each runner cannot do without, then the rest by weight. A runner of Java
does not give memory back when it is asked to, it is killed instead; so nobody gets less than its floor, even when the
floors are more than the site has. What is in use swings with the collection of garbage and leaps when records come, so
a floor is made of the highest use of the last minutes, with room for a leap.

The buffer bounds what a runner fetches ahead. A record that waits behind others for longer than the goal allows is
late whatever is done about it, so there is no use in holding more of them than arrive within that time. It becomes
the bounds of what a reader of Kafka fetches (`fetch.max.bytes`, `max.partition.fetch.bytes`) when a query starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["MemoryBound", "MemoryNeed", "bounds", "buffer_bytes", "floor_bytes"]

MB = 2**20  # as Java counts its heap
OVERHEAD_MB = 350  # of a JVM beside its heap, and of the Python processes beside the JVM
SPARE = 1.10  # on what was declared
GROWTH = 1.15  # on what was in use at most
ROOM_MB = 256  # above that, for leaps between two looks
LEAST_BUFFER_BYTES = 64 * 1024
MOST_BUFFER_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What is known of one runner's memory."""

    name: str
    heap_mb: int  # of its JVM
    used_bytes: int  # by all its processes, at most, within the last minutes
    weight: float = 1.0  # by which it gets of what is spare; 0: nothing
    rate_rps: float = 0.0  # that it is expected to take in
    record_bytes: float | None = None  # None: nobody knows
    goal_s: float | None = None  # within which a record is to be through; None: no goal


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """What one runner may have."""

    name: str
    buffer_bytes: int  # of records that it holds
    limit_bytes: int | None  # of all its processes; None: no limit
    because: str


def buffer_bytes(need: MemoryNeed) -> int:
    """Return how many bytes of records a runner may hold without breaking its goal.

    >>> buffer_bytes(MemoryNeed("a", 512, 0, 1.0, 1000.0, 200.0, 2.0))
    400000
    """
    if need.goal_s is None or need.record_bytes is None:
        return MOST_BUFFER_BYTES
    return int(min(max(need.rate_rps * need.goal_s * need.record_bytes, LEAST_BUFFER_BYTES), MOST_BUFFER_BYTES))


def floor_bytes(need: MemoryNeed) -> int:
    """Return below which limit a runner would be killed sooner or later.

    >>> floor_bytes(MemoryNeed("a", 512, 0)) // MB, floor_bytes(MemoryNeed("a", 512, 2000 * MB)) // MB
    (948, 2556)
    """
    return max(round((need.heap_mb + OVERHEAD_MB) * MB * SPARE), round(need.used_bytes * GROWTH) + ROOM_MB * MB)


def bounds(apps: Sequence[MemoryNeed], memory_bytes: float | None) -> tuple[MemoryBound, ...]:
    """Return the bounds of each runner of a site, in the order in which they are given.

    Args:
        apps: All runners of the site.
        memory_bytes: That they may have together; None: it is not limited, and so none of them is.
    """
    if memory_bytes is None:
        return tuple(
            MemoryBound(one.name, buffer_bytes(one), None, f"{_buffer_reason(one)}; the site's memory is not limited")
            for one in apps
        )
    floors = [floor_bytes(one) for one in apps]
    spare = memory_bytes - sum(floors)
    total = sum(one.weight for one in apps)
    found = []
    for one, floor in zip(apps, floors, strict=True):
        more = int(spare * (one.weight / total)) if spare > 0 and total > 0 else 0
        if spare < 0:
            short = (
                f"nothing is spare: all runners need {sum(floors) / MB:.0f} MB at least, and the site has "
                f"{memory_bytes / MB:.0f} MB"
            )
        else:
            short = f"{more / MB:.0f} MB of {spare / MB:.0f} MB spare by its weight of {one.weight:g}"
        because = f"{_buffer_reason(one)}; memory: {_floor_reason(one)}, {short}"
        found.append(MemoryBound(one.name, buffer_bytes(one), floor + more, because))
    return tuple(found)


def _buffer_reason(need: MemoryNeed) -> str:
    held = buffer_bytes(need)
    if need.goal_s is None:
        return f"buffer: {held} bytes, the most, because it has no goal"
    if need.record_bytes is None:
        return f"buffer: {held} bytes, the most, because it is not known how large its records are"
    asked = f"{need.rate_rps:g}/s of {need.record_bytes:g} bytes within {need.goal_s:g} s"
    if held == MOST_BUFFER_BYTES:
        return f"buffer: {held} bytes, the most, for {asked}"
    if held == LEAST_BUFFER_BYTES:
        return f"buffer: {held} bytes, the least, for {asked}"
    return f"buffer: {held} bytes, for {asked}"


def _floor_reason(need: MemoryNeed) -> str:
    floor = floor_bytes(need)
    if floor > round((need.heap_mb + OVERHEAD_MB) * MB * SPARE):
        return f"at least {floor / MB:.0f} MB, because it used up to {need.used_bytes / MB:.0f} MB lately"
    return f"at least {floor / MB:.0f} MB, for a heap of {need.heap_mb} MB and what Java needs beside it"
