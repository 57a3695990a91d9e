"""What does a workload file say? Makes a `Workload` of its values and reports what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from headwater.errors import Mistake, SpecError
from headwater.model import fields
from headwater.model.fields import Body, Field, Spot, read_fields, read_file, read_named
from headwater.model.report import Report, describe
from headwater.model.trace_file import read_loads
from headwater.model.tree import line_of
from headwater.model.workload import Forecast, Kind, Signal, Sinusoid, Trace, Workload

__all__ = ["Fetch", "file_loads", "make_workload", "no_files", "signed"]

MOST_MACHINES = 10_000_000
MOST_TIME_UNITS = 10_000_000
SINUSOID_KEYS = ("baseline", "amplitude", "period", "phase")

Fetch = Callable[[str], bytes]  # the content of a file that the workload names; raises SpecError


def no_files(name: str) -> bytes:
    """Refuse to read any file; for workloads that hold all they say."""
    raise SpecError(Mistake("HW1023", "files are not read here; write the loads as a list.", name))


def signed(spot: Spot, key: str) -> float | None:
    """Read a number of either sign."""
    value = spot.body[key]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        spot.add("HW1005", key, f"must be a number; found {describe(value)}.")
        return None
    if not math.isfinite(value):
        spot.add("HW1007", key, f"must be a finite number; found {describe(value)}.")
        return None
    return float(value)


def _as_it_is(spot: Spot, key: str) -> object:
    return spot.body[key]


FILE = {
    "capacity": Field("capacity", fields.quantity("number", above_zero=True)),
    "machines": Field("machines", _as_it_is),
    "operators": Field("operators", fields.mapping),
    "overload": Field("overload", fields.section({"price": Field("price", fields.quantity("number"), "0.01")})),
    "horizon": Field("horizon", fields.whole(1, MOST_TIME_UNITS)),
}
MACHINES = {
    "capacity": Field("capacity", fields.quantity("number", above_zero=True), "500"),
    "count": Field("count", fields.whole(1, MOST_MACHINES)),
    "price": Field("price", fields.quantity("number", above_zero=True)),
}
RECORDED = {
    "trace": Field("trace", _as_it_is),
    "column": Field("column", fields.name),
}
OPERATOR = {
    "baseline": Field("baseline", fields.quantity("number")),
    "amplitude": Field("amplitude", fields.quantity("number")),
    "period": Field("period", fields.quantity("number", above_zero=True)),
    "phase": Field("phase", signed),
    **RECORDED,
    "forecast": Field("forecast", fields.mapping),
}
FORECAST = {
    **RECORDED,
    "season": Field("season", fields.whole(2, MOST_TIME_UNITS)),
    "horizon": Field("horizon", fields.whole(1, MOST_TIME_UNITS)),
    "margin": Field("margin", fields.quantity("number")),
}


def make_workload(report: Report, root: Body, fetch: Fetch = no_files) -> Workload:
    """Return the workload of a file; what is reported as wrong is left out."""
    spot = Spot(report, root, "the file")
    found = read_file(spot, FILE, "operators", "sites")
    if found is None:
        return Workload({}, (Kind(1.0, 1),))
    given: Body = found["operators"]
    operators: dict[str, Signal] = {}
    for name in given:
        signal = _signal(read_named(report, given, name, "operator"), fetch)
        if signal is not None:
            operators[name] = signal
    kinds = _kinds(spot, found, len(given))
    return Workload(operators, kinds, found.get("overload", {}).get("price"), found.get("horizon"))


def _kinds(spot: Spot, found: dict[str, Any], operators: int) -> tuple[Kind, ...]:
    """Return the machines: a number of equal ones, or a list of kinds; without a number, one for each operator."""
    report, root, _ = spot
    given = found.get("machines", operators)
    if isinstance(given, list):
        if "capacity" in found:
            spot.add("HW1011", "capacity", "does not go with a list of 'machines', which says it for each kind.")
        if not given:
            spot.add("HW1007", "machines", "is an empty list, so that nothing can run. Add a kind of machine.")
        return tuple(_listed_kinds(report, given, operators)) or (Kind(1.0, 1),)
    if "capacity" not in found and root.get("capacity") is None:
        report.add("HW1012", "the file has no 'capacity'. Add one, such as 'capacity: 500'.", line_of(root))
    count = operators if "machines" not in found else fields.whole(1, MOST_MACHINES)(spot, "machines")
    return (Kind(found.get("capacity", 1.0), count or 1),)


def _listed_kinds(report: Report, given: list[object], operators: int) -> list[Kind]:
    kinds = []
    for i, body in enumerate(given):
        what = f"entry {i + 1} of 'machines'"
        if not isinstance(body, dict):
            report.add(
                "HW1005",
                f"{what} must be a mapping such as {{capacity: 500, count: 20, price: 0.4}}; found {describe(body)}.",
                line_of(given, i),
            )
            continue
        read = read_fields(Spot(report, body, what), MACHINES)
        if "capacity" in read:
            kinds.append(Kind(read["capacity"], read.get("count", operators), read.get("price", 1.0)))
    return kinds


def _signal(spot: Spot, fetch: Fetch) -> Signal | None:
    """Return an operator's load; None after what is wrong with it was reported."""
    body = spot.body
    found = read_fields(spot, OPERATOR)
    ways = [key for key in ("baseline", "trace", "forecast") if body.get(key) is not None]
    if not ways:
        spot.report.add(
            "HW1012",
            f"{spot.what} has no load. Add 'baseline' with 'amplitude', 'period' and 'phase', a 'trace', or a "
            "'forecast'.",
            line_of(body),
        )
        return None
    for key in ways[1:]:
        spot.add("HW1011", key, f"does not go with '{ways[0]}'. Keep one of them.")
    if ways[0] == "baseline":
        return _sinusoid(spot, found)
    for key in SINUSOID_KEYS:
        if key in found and key not in ways:
            spot.add("HW1011", key, f"is for a sinusoid and does not go with '{ways[0]}'. Remove it.")
    if ways[0] == "trace":
        loads = _loads(spot, found, fetch)
        return None if loads is None else Trace(loads)
    if "column" in found:
        spot.add("HW1011", "column", "belongs into 'forecast', beside its 'trace'.")
    return _forecast(Spot(spot.report, found["forecast"], f"'forecast' of {spot.what}"), fetch)


def _sinusoid(spot: Spot, found: dict[str, Any]) -> Sinusoid | None:
    body = spot.body
    if "column" in found:
        spot.add("HW1011", "column", "is for a 'trace' from a file. Remove it.")
    if any(body.get(key) is not None and key not in found for key in SINUSOID_KEYS):
        return None  # reported already
    baseline, amplitude = found["baseline"], found.get("amplitude", 0.0)
    if amplitude > baseline:
        spot.add(
            "HW1007",
            "amplitude",
            f"is {amplitude:g}, above the baseline of {baseline:g}: the load would fall below 0. "
            "Lower it, or raise the baseline.",
        )
        return None
    if amplitude and "period" not in found:
        spot.report.add(
            "HW1012", f"{spot.what} has an amplitude and no 'period'. Add one, such as 'period: 40'.", line_of(body)
        )
        return None
    return Sinusoid(baseline, amplitude, found.get("period", 1.0), found.get("phase", 0.0))


def _forecast(spot: Spot, fetch: Fetch) -> Forecast | None:
    found = read_fields(spot, FORECAST)
    if spot.body.get("trace") is None:
        spot.report.add(
            "HW1012", f"{spot.what} has no 'trace' of measured loads. Add a list or a CSV file.", line_of(spot.body)
        )
        return None
    loads = _loads(spot, found, fetch)
    if loads is None:
        return None
    season = found.get("season")
    if season is not None and season > len(loads):
        spot.add("HW1007", "season", f"is {season} time units, and only {len(loads)} were measured. Shorten it.")
        return None
    return Forecast(loads, season, found.get("horizon"), found.get("margin", 0.0))


def file_loads(spot: Spot, file: str, column: str | None, fetch: Fetch) -> tuple[float, ...] | None:
    """Return the loads of a CSV file that a key 'trace' names; what is wrong with it is told there."""
    try:
        return read_loads(fetch(file), file, column)
    except SpecError as error:
        for mistake in error.mistakes:
            place = "" if mistake.line is None else f" line {mistake.line}:"
            spot.add(mistake.code, "trace", f"cannot be read from '{mistake.file or file}':{place} {mistake.text}")
        return None


def _loads(spot: Spot, found: dict[str, Any], fetch: Fetch) -> tuple[float, ...] | None:
    """Return the loads of a list or of a file's column."""
    given = spot.body["trace"]
    if isinstance(given, str):
        return file_loads(spot, given, found.get("column"), fetch)
    if not isinstance(given, list):
        spot.add("HW1005", "trace", f"must be a list of loads or the name of a CSV file; found {describe(given)}.")
        return None
    if "column" in found:
        spot.add("HW1011", "column", "is for a 'trace' from a file. Remove it.")
    if not given:
        spot.add("HW1007", "trace", "is empty; it needs a load for at least one time unit.")
        return None
    for i, load in enumerate(given):
        if isinstance(load, bool) or not isinstance(load, (int, float)) or not 0.0 <= load < math.inf:
            spot.report.add(
                "HW1007",
                f"{spot.what}: entry {i + 1} of 'trace' must be a load of 0 or more; found {describe(load)}.",
                line_of(given, i),
            )
            return None
    return tuple(float(load) for load in given)
