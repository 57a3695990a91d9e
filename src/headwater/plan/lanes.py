"""How does each fragment run?

A lane is a way of running a query: `real-time` hands on each record within milliseconds, `micro-batch`
takes what has come since the last batch. The choice follows from what the fragment holds and from its
rate, and says why. `emits` decides what an aggregate tells its readers: every update, or the final row of
a closed window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.errors import Mistake, SpecError
from headwater.model.project import Definition, Emit, LaneName, Project, Trait

__all__ = ["PYTHON_MOST_RPS", "Lane", "choose", "emits", "ends", "operator_lanes"]

PYTHON_MOST_RPS = 2_000.0  # Python functions, one record a call, fall behind somewhere above
_BATCH_ONLY: Mapping[Trait, str] = {
    "arrow": "it has pandas or Arrow functions, which take whole batches",
    "stream-join": "it joins two streams",
    "custom-state": "it keeps state of its own making",
}


@dataclass(frozen=True, slots=True)
class Lane:
    """How a fragment runs."""

    name: LaneName
    mode: Literal["append", "update"]  # Spark's output mode
    is_stateful: bool
    because: str


def emits(project: Project) -> Mapping[str, tuple[Emit, str]]:
    """Return what each aggregate tells its readers, and why; raise if what is asked for cannot be."""
    found: dict[str, tuple[Emit, str]] = {}
    mistakes = []
    for definition in project.definitions:
        if "aggregate" not in definition.traits:
            continue
        needs_final = _needs_final(project, definition)
        if definition.emit == "updates" and needs_final:
            text = (
                f"operator '{definition.name}' is to emit updates, but {needs_final}. "
                "Write 'emit: final', or leave it out."
            )
            mistakes.append(Mistake("HW1520", text, definition.file, definition.line))
        wanted: Emit = definition.emit or ("final" if needs_final else "updates")
        if wanted == "final" and "watermark" not in definition.traits and not _has_watermark(project, definition):
            text = (
                f"operator '{definition.name}' gives final rows ({needs_final or 'headwater.yml asks for it'}), "
                "but no column of it has a watermark, so no window ever closes. "
                "Declare one with withWatermark(..) before the aggregate."
            )
            mistakes.append(Mistake("HW1521", text, definition.file, definition.line))
        because = "asked for" if definition.emit else (needs_final or "only stateless operators and sinks read it")
        found[definition.name] = (wanted, because)
    if mistakes:
        raise SpecError(*mistakes)
    return found


def ends(project: Project) -> frozenset[str]:
    """Return the operators whose stream leaves their fragment.

    Spark wants no two stateful ones after each other in a query, and a query tells either updates or final rows.
    """
    emitted = emits(project)
    below_updates: set[str] = set()
    for definition in project.definitions:
        if emitted.get(definition.name, ("",))[0] == "updates":
            below_updates |= _below(project, definition).keys()
    found = set()
    for definition in project.definitions:
        below = _below(project, definition)
        gives_final = "stream-join" in definition.traits or emitted.get(definition.name, ("",))[0] == "final"
        if definition.is_stateful and (
            any(one.is_stateful for one in below.values())
            or (gives_final and not below_updates.isdisjoint(below.keys()))
        ):
            found.add(definition.name)
    return frozenset(found)


def choose(
    operators: Sequence[Definition],
    emitted: Mapping[str, tuple[Emit, str]],
    rate_rps: float,
    is_terminal: bool,
) -> Lane:
    """Return the lane of a fragment.

    Args:
        operators: What it holds; the last one is its output.
        emitted: As `emits` gives it.
        rate_rps: Records a second that the fragment takes in.
        is_terminal: Whether its output leaves the pipeline.
    """
    is_stateful = any(one.is_stateful for one in operators)
    told = {one.name: emitted[one.name][0] for one in operators if one.name in emitted}
    final = next((name for name, emit in told.items() if emit == "final"), None)
    has_updates = "updates" in told.values()
    mode: Literal["append", "update"] = "update" if has_updates and final is None else "append"
    asked = {one.lane: one.name for one in operators if one.lane is not None}
    reason = _why_batch(operators, final, is_terminal)
    if "micro-batch" in asked:
        return Lane("micro-batch", mode, is_stateful, f"asked for by '{asked['micro-batch']}'")
    if reason is not None:
        aside = f"; '{asked['real-time']}' asks for real-time" if "real-time" in asked else ""
        return Lane("micro-batch", mode, is_stateful, reason + aside)
    python = next((one.name for one in operators if "python" in one.traits), None)
    if "real-time" in asked:
        return Lane("real-time", "update", is_stateful, f"asked for by '{asked['real-time']}'")
    if python is not None and rate_rps > PYTHON_MOST_RPS:
        because = f"Python functions of '{python}' cannot keep up with {rate_rps:g} records/s one by one"
        return Lane("micro-batch", mode, is_stateful, because)
    kinds = _kinds(operators)
    return Lane("real-time", "update", is_stateful, f"{kinds} at {rate_rps:g} records/s")


def operator_lanes(project: Project, rates_rps: Mapping[str, float]) -> Mapping[str, tuple[str, str]]:
    """Return the lane that each operator would have in a fragment of its own, and why."""
    emitted = emits(project)
    read = {name for one in project.definitions for name in one.reads}
    found = {}
    for one in project.definitions:
        lane = choose([one], emitted, rates_rps.get(one.name, 0.0), one.name not in read)
        told = f"; emits {emitted[one.name][0]}: {emitted[one.name][1]}" if one.name in emitted else ""
        found[one.name] = (lane.name, lane.because + told)
    return found


def _why_batch(operators: Sequence[Definition], final: str | None, is_terminal: bool) -> str | None:
    last = operators[-1]
    for one in operators:
        for trait, why in _BATCH_ONLY.items():
            if trait in one.traits:
                return f"'{one.name}': {why}"
        if not one.reads and one.format is not None and one.format != "kafka":
            return f"'{one.name}' reads {one.format}; only Kafka sources can be read in real time"
    if final is not None:
        return f"'{final}' gives the final rows of closed windows"
    if is_terminal and last.kind != "sink":
        return f"'{last.name}' is written as a Parquet table"
    if last.kind == "sink" and last.format != "kafka":
        return f"'{last.name}' writes {last.format}; only Kafka sinks can be written in real time"
    return None


def _kinds(operators: Iterable[Definition]) -> str:
    traits = {trait for one in operators for trait in one.traits}
    kinds = ["Python functions"] if "python" in traits else []
    if "aggregate" in traits:
        kinds.append("aggregates")
    if "deduplicate" in traits:
        kinds.append("deduplication")
    return " and ".join(kinds) or "built-in functions"


def _readers(project: Project, name: str) -> list[Definition]:
    return [one for one in project.definitions if name in one.reads]


def _needs_final(project: Project, definition: Definition) -> str | None:
    """Return why the readers of an aggregate must see each group once, or None."""
    seen, waiting = {definition.name}, [definition]
    while waiting:
        one = waiting.pop()
        readers = _readers(project, one.name)
        if not readers and one.kind != "sink":
            return f"'{one.name}' becomes a Parquet table, to which rows can only be added"
        if one.kind == "sink" and one.format not in {"kafka", "console", "noop", "memory", "foreach"}:
            return f"'{one.name}' writes {one.format}, to which rows can only be added"
        for reader in readers:
            if reader.is_stateful:
                return f"'{reader.name}' keeps state and would take each update for a record of its own"
            if reader.name not in seen:
                seen.add(reader.name)
                waiting.append(reader)
    return None


def _has_watermark(project: Project, definition: Definition) -> bool:
    seen, waiting = set(), list(definition.reads)
    while waiting:
        one = project.by_name[waiting.pop()]
        if "watermark" in one.traits:
            return True
        if one.name not in seen:
            seen.add(one.name)
            waiting.extend(one.reads)
    return False


def _below(project: Project, definition: Definition) -> Mapping[str, Definition]:
    """Return all that a stream flows into."""
    found: dict[str, Definition] = {}
    waiting = _readers(project, definition.name)
    while waiting:
        one = waiting.pop()
        if one.name not in found:
            found[one.name] = one
            waiting.extend(_readers(project, one.name))
    return found
