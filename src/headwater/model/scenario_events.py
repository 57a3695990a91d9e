"""What does a scenario file say of what happens? Reads its events, and looks at them in the order of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from headwater.model import fields, units
from headwater.model.fields import Field, Known, Spot, read_fields, read_pair
from headwater.model.report import Report, describe, quote
from headwater.model.scenario import (
    Change,
    Event,
    KillMachine,
    KillOperator,
    LinkChange,
    Machine,
    NewMachine,
    NewOperator,
    RateChange,
    Schedule,
    Simulated,
)
from headwater.model.scenario_machines import read_machine
from headwater.model.scenario_operators import read_operator
from headwater.model.sites import Sites
from headwater.model.tree import line_of
from headwater.model.workload_file import Fetch

__all__ = ["Stage", "read_events"]

MOST_EVENTS = 1_000_000
AT = "200 s"


@dataclass
class Stage:
    """Who is there, as events are read in the order of time."""

    report: Report
    fetch: Fetch
    duration_s: float
    step_s: float
    sites: Sites | None
    methods: Collection[str]  # that a schedule may name
    operators: dict[str, Simulated]  # at present
    machines: dict[str, Machine]  # that run at present
    has_pipeline: bool
    later: list[Simulated] = field(default_factory=list)  # operators that came by an event
    all_machines: dict[str, Machine] = field(default_factory=dict)
    all_operators: dict[str, Simulated] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with those that are there at time 0."""
        self.all_machines |= self.machines
        self.all_operators |= self.operators


def _moment(spot: Spot, key: str) -> float | None:
    """Read a time; a negative one is told as what it is."""
    value = spot.body[key]
    text = str(value).strip()
    if text.startswith("-") and not isinstance(value, bool):
        spot.add("HW1030", key, f"is {quote(text, 40)}, before time 0, at which a run begins.")
        return None
    return fields.quantity("time")(spot, key)  # type: ignore[no-any-return]


COMMON = {"at": Field("at_s", _moment, AT), "do": Field("do", fields.name)}


def read_events(stage: Stage, given: list[object]) -> tuple[Event, ...]:
    """Return the events by time; what is reported as wrong is left out."""
    drafts: list[tuple[float, int, Spot]] = []
    for i, body in enumerate(given):
        what = f"event {i + 1}"
        if not isinstance(body, dict):
            stage.report.add("HW1005", f"{what} must be a mapping; found {describe(body)}.", line_of(given, i))
            continue
        spot = Spot(stage.report, body, what)
        kind = body.get("do")
        if kind is None:
            stage.report.add("HW1012", f"{what} has no 'do'. Add one of {', '.join(KINDS)}.", line_of(body))
        elif not isinstance(kind, str) or kind not in KINDS:
            tip = stage.report.tip(kind, KINDS) if isinstance(kind, str) else ""
            spot.add("HW1007", "do", f"must be one of {', '.join(KINDS)}; found {describe(kind)}.{tip}")
        elif body.get("at") is None:
            stage.report.add("HW1012", f"{what} has no 'at'. Add one, such as 'at: {AT}'.", line_of(body))
        else:
            at_s = _moment(spot, "at")
            if at_s is not None and at_s > stage.duration_s:
                spot.add(
                    "HW1030",
                    "at",
                    f"is {units.show(at_s, 'time')}, after the end at {units.show(stage.duration_s, 'time')}. "
                    "Lengthen 'duration', or let it happen earlier.",
                )
            elif at_s is not None:
                drafts.append((at_s, i, spot))
    events: list[tuple[float, int, Change]] = []
    for at_s, i, spot in sorted(drafts, key=lambda draft: draft[:2]):
        for moment_s, change in KINDS[str(spot.body["do"])](stage, spot, at_s):
            events.append((moment_s, i, change))
    events.sort(key=lambda event: event[:2])
    return tuple(Event(at_s, change) for at_s, _, change in events)


def _named(spot: Spot, found: dict[str, Any], key: str, known: Known, gone: Collection[str]) -> str | None:
    """Return the name in a field if it is that of somebody who is there."""
    name: str | None = found.get(key)
    if name is None or name in known.names:
        return name
    if name in gone:
        spot.add("HW1004", key, f"names the {known.kind} {quote(name)}, which is not there at that time.")
    else:
        tip = spot.report.tip(name, known.names)
        spot.add("HW1004", key, f"names the {known.kind} {quote(name)}, which does not exist.{tip}")
    return None


Found = Iterator[tuple[float, Change]]


def _new_machine(stage: Stage, spot: Spot, at_s: float) -> Found:
    name = _own_name(spot, "machine")
    if name is None:
        return
    if stage.has_pipeline and name not in stage.all_machines:
        spot.add("HW1004", "machine", f"names {quote(name)}, which is no site with slots.")
        return
    machine = read_machine(spot, name, COMMON | {"machine": Field("machine", fields.name)})
    if name in stage.machines:
        spot.add("HW1008", "machine", f"names {quote(name)}, and a machine of this name runs already.")
        return
    if name in stage.all_machines:
        if any(key in spot.body for key in ("capacity", "cores", "speed", "price")):
            spot.add("HW1011", "machine", f"names {quote(name)}, which comes back as it was: leave out what it is.")
        machine = stage.all_machines[name]
    stage.machines[name] = stage.all_machines[name] = machine
    yield at_s, NewMachine(machine)


def _new_operator(stage: Stage, spot: Spot, at_s: float) -> Found:
    name = _own_name(spot, "operator")
    if name is None:
        return
    if stage.has_pipeline:
        spot.add("HW1011", "do", "does not go with a 'pipeline', whose operators are all there from the beginning.")
        return
    operator = read_operator(
        spot, name, stage.fetch, stage.step_s, COMMON | {"operator": Field("operator", fields.name)}
    )
    if name in stage.all_operators:
        spot.add("HW1008", "operator", f"names {quote(name)}, and there is or was an operator of this name. Rename it.")
        return
    stage.operators[name] = stage.all_operators[name] = operator
    stage.later.append(operator)
    yield at_s, NewOperator(operator)


def _kill_machine(stage: Stage, spot: Spot, at_s: float) -> Found:
    table = COMMON | {
        "machine": Field("machine", fields.name, "machine-1"),
        "queues": Field("drops", fields.one_of({"keep": False, "drop": True})),
    }
    found = read_fields(spot, table)
    name = _named(spot, found, "machine", Known("machine", stage.machines), stage.all_machines)
    if name is not None:
        del stage.machines[name]
        yield at_s, KillMachine(name, found.get("drops", False))


def _kill_operator(stage: Stage, spot: Spot, at_s: float) -> Found:
    found = read_fields(spot, COMMON | {"operator": Field("operator", fields.name, "operator-1")})
    name = _named(spot, found, "operator", Known("operator", stage.operators), stage.all_operators)
    if name is not None:
        del stage.operators[name]
        yield at_s, KillOperator(name)


def _schedule(stage: Stage, spot: Spot, at_s: float) -> Found:
    table = COMMON | {
        "method": Field("method", fields.one_of({name: name for name in stage.methods})),
        "every": Field("every_s", fields.quantity("time", above_zero=True)),
    }
    found = read_fields(spot, table)
    if not stage.machines:
        spot.report.add(
            "HW1031",
            f"{spot.what} is a schedule at {units.show(at_s, 'time')}, when no machine runs. Add machines first.",
            line_of(spot.body),
        )
        return
    every_s = found.get("every_s")
    count = 1 if every_s is None else 1 + math.floor((stage.duration_s - at_s) / every_s - 1e-9)
    if count > MOST_EVENTS:
        spot.add("HW1007", "every", f"makes {count} schedules; at most {MOST_EVENTS} are allowed.")
        return
    for number in range(count):
        yield at_s + number * (every_s or 0.0), Schedule(found.get("method", "auto"))


def _link(stage: Stage, spot: Spot, at_s: float) -> Found:
    table = COMMON | {
        "between": Field("between", fields.entries, "[site-1, site-2]"),
        "latency": Field("latency_s", fields.quantity("time")),
        "bandwidth": Field("bandwidth_bps", fields.quantity("bandwidth", above_zero=True)),
    }
    found = read_fields(spot, table)
    if stage.sites is None:
        spot.add("HW1011", "do", "changes a link, and there are no 'sites' with links.")
        return
    if "between" not in found:
        return
    ends = read_pair(spot, "between", Known("site", stage.sites.by_name))
    if ends is None:
        return
    if not any({link.a, link.b} == set(ends) for link in stage.sites.links):
        spot.add("HW1004", "between", f"names {quote(ends[0])} and {quote(ends[1])}, which no link joins.")
        return
    if "latency_s" not in found and "bandwidth_bps" not in found:
        spot.report.add("HW1012", f"{spot.what} changes nothing. Add 'latency' or 'bandwidth'.", line_of(spot.body))
        return
    yield at_s, LinkChange((ends[0], ends[1]), found.get("latency_s"), found.get("bandwidth_bps"))


def _rate(stage: Stage, spot: Spot, at_s: float) -> Found:
    table = COMMON | {
        "operator": Field("operator", fields.name, "operator-1"),
        "factor": Field("factor", fields.quantity("number"), "2"),
    }
    found = read_fields(spot, table)
    name = _named(spot, found, "operator", Known("operator", stage.operators), stage.all_operators)
    if name is None or "factor" not in found:
        return
    if stage.operators[name].load is None:
        spot.add("HW1011", "operator", f"names {quote(name)}, to which nothing comes from outside.")
        return
    yield at_s, RateChange(name, found["factor"])


def _own_name(spot: Spot, key: str) -> str | None:
    if spot.body.get(key) is None:
        spot.report.add("HW1012", f"{spot.what} has no '{key}'. Add its name.", line_of(spot.body))
        return None
    return fields.name(spot, key)


KINDS: dict[str, Callable[[Stage, Spot, float], Found]] = {
    "new-machine": _new_machine,
    "new-operator": _new_operator,
    "kill-machine": _kill_machine,
    "kill-operator": _kill_operator,
    "schedule": _schedule,
    "link": _link,
    "rate": _rate,
}
