"""What does a scenario file say of its operators? Reads their loads, streams and instances."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

from headwater.model import fields
from headwater.model.fields import Field, Spot, read_fields
from headwater.model.pipeline import Stream
from headwater.model.quality import LEAST_GOAL_S, MOST_GOAL_S, QUALITIES
from headwater.model.report import describe
from headwater.model.scenario import LANE_HOP_S, Samples, Simulated
from headwater.model.tree import line_of
from headwater.model.workload import Sinusoid
from headwater.model.workload_file import Fetch, file_loads, signed

__all__ = ["LOAD", "OPERATOR", "keyed_weights", "read_load", "read_operator"]

MOST_INSTANCES = 100_000
MOST_KEYS = 10_000_000
KEYS = 1_000  # that records are told apart by, unless 'keys' says otherwise


def _as_it_is(spot: Spot, key: str) -> object:
    return spot.body[key]


def _machines(spot: Spot, key: str) -> tuple[str, ...] | None:
    """Read a machine's name, or a list of them."""
    if isinstance(spot.body[key], list):
        return fields.names(spot, key)
    one = fields.name(spot, key)
    return None if one is None else (one,)


LOAD = {
    "rate": Field("rate", fields.quantity("rate")),
    "baseline": Field("baseline", fields.quantity("rate")),
    "amplitude": Field("amplitude", fields.quantity("rate")),
    "period": Field("period", fields.quantity("time", above_zero=True)),
    "phase": Field("phase", signed),
    "trace": Field("trace", _as_it_is),
    "column": Field("column", fields.name),
    "every": Field("every", fields.quantity("time", above_zero=True)),
    "arrivals": Field("is_poisson", fields.one_of({"even": False, "poisson": True})),
}
OPERATOR = {
    **LOAD,
    "inputs": Field("inputs", fields.entries),
    "work": Field("work_s", fields.quantity("time")),
    "rate_factor": Field("rate_factor", fields.quantity("number")),
    "size": Field("size_bytes", fields.quantity("size")),
    "size_factor": Field("size_factor", fields.quantity("number")),
    "instances": Field("instances", fields.whole(1, MOST_INSTANCES)),
    "routing": Field("routing", fields.one_of({word: word for word in ("random", "keyed", "custom")})),
    "skew": Field("skew", fields.quantity("number")),
    "keys": Field("keys", fields.whole(1, MOST_KEYS)),
    "weights": Field("weights", fields.entries),
    "queue": Field("queue", fields.quantity("number")),
    "service": Field("is_exponential", fields.one_of({"even": False, "exponential": True})),
    "lane": Field("lane", fields.one_of({lane: lane for lane in LANE_HOP_S})),
    "hop": Field("hop_s", fields.quantity("time")),
    "on": Field("on", _machines),
    "share": Field("share", fields.quantity("cores")),
    "class": Field("quality", fields.one_of({name: name for name in QUALITIES})),
    "p99": Field("goal_s", fields.quantity("time", least=LEAST_GOAL_S, most=MOST_GOAL_S)),
}
STREAM = {
    "from": Field("source", fields.name, "operator-1"),
    "rate_factor": Field("rate_factor", fields.quantity("number")),
    "size_factor": Field("size_factor", fields.quantity("number")),
}
PLAIN = (
    "work_s",
    "rate_factor",
    "size_bytes",
    "size_factor",
    "queue",
    "is_poisson",
    "is_exponential",
    "lane",
    "hop_s",
    "on",
    "share",
    "quality",
    "goal_s",
)


def read_operator(
    spot: Spot, name: str, fetch: Fetch, step_s: float, also: Mapping[str, Field] | None = None
) -> Simulated:
    """Return an operator; what is reported as wrong is left out. `also` holds keys that are read elsewhere."""
    found = read_fields(spot, OPERATOR | dict(also or {}))
    load = read_load(spot, found, fetch, step_s)
    inputs = tuple(_streams(spot, found.get("inputs", []), name))
    if load is None and not inputs and not spot.report:
        spot.report.add(
            "HW1012",
            f"{spot.what} has no load and reads nothing. Add a 'rate', a 'baseline', a 'trace' or 'inputs'.",
            line_of(spot.body),
        )
    return Simulated(
        name, load, inputs, weights=_weights(spot, found), **{key: found[key] for key in PLAIN if key in found}
    )


def read_load(spot: Spot, found: Mapping[str, Any], fetch: Fetch, step_s: float) -> Sinusoid | Samples | None:
    """Return what comes from outside; None where nothing does, or after what is wrong was reported."""
    ways = [key for key in ("rate", "baseline", "trace") if spot.body.get(key) is not None]
    for key in ways[1:]:
        spot.add("HW1011", key, f"does not go with '{ways[0]}'. Keep one of them.")
    way = ways[0] if ways else ""
    for key, of in {"amplitude": "baseline", "period": "baseline", "phase": "baseline", "column": "trace",
                    "every": "trace"}.items():  # fmt: skip
        if key in found and way != of:
            spot.add("HW1011", key, f"goes with '{of}' only. Remove it, or add '{of}'.")
    if way == "rate" and "rate" in found:
        return Sinusoid(found["rate"])
    if way == "baseline" and "baseline" in found:
        baseline, amplitude = found["baseline"], found.get("amplitude", 0.0)
        if amplitude > baseline:
            spot.add("HW1007", "amplitude", f"is {amplitude:g}/s, above the baseline of {baseline:g}/s: lower it.")
        if amplitude and "period" not in found:
            spot.report.add(
                "HW1012", f"{spot.what} has an amplitude and no 'period'. Add one, such as 'period: 40 s'.",
                line_of(spot.body),
            )  # fmt: skip
        return Sinusoid(baseline, min(amplitude, baseline), found.get("period", 1.0), found.get("phase", 0.0))
    if way == "trace":
        every_s = found.get("every", 1.0)
        if every_s < step_s * (1.0 - 1e-9):
            spot.add(
                "HW1032", "trace", f"has a value every {every_s:g} s, between the steps of {step_s:g} s. Make 'step' "
                "as short, or thin the trace out.",
            )  # fmt: skip
        rates = _trace(spot, found, fetch)
        return None if rates is None else Samples(rates, every_s)
    return None


def _trace(spot: Spot, found: Mapping[str, Any], fetch: Fetch) -> tuple[float, ...] | None:
    given = spot.body["trace"]
    if isinstance(given, str):
        return file_loads(spot, given, found.get("column"), fetch)
    if not isinstance(given, list) or not given:
        spot.add("HW1005", "trace", f"must be a list of rates or the name of a CSV file; found {describe(given)}.")
        return None
    for i, rate in enumerate(given):
        if rate is None:
            line = line_of(given, i)
            spot.report.add("HW1021", f"{spot.what}: 'trace' has a gap at entry {i + 1}; fill it.", line)
            return None
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0.0 <= rate < math.inf:
            spot.report.add(
                "HW1022",
                f"{spot.what}: entry {i + 1} of 'trace' must be a rate of 0 or more; found {describe(rate)}.",
                line_of(given, i),
            )
            return None
    return tuple(float(rate) for rate in given)


def _streams(spot: Spot, given: list[object], target: str) -> list[Stream]:
    streams = []
    for i, entry in enumerate(given):
        found: dict[str, Any]
        if isinstance(entry, dict):
            found = read_fields(Spot(spot.report, entry, f"input {i + 1} of {spot.what}"), STREAM)
        else:
            found = {"source": fields.read_name(spot.report, entry, line_of(given, i), f"{spot.what}: 'inputs'")}
        if found.get("source") is not None:
            streams.append(Stream(target=target, **found))
    return streams


def _weights(spot: Spot, found: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the part of the records that each instance gets, by how they are routed."""
    count: int = found.get("instances", 1)
    routing: str = found.get("routing", "random")
    for key, of in {"skew": "keyed", "keys": "keyed", "weights": "custom"}.items():
        if key in found and routing != of:
            spot.add("HW1011", key, f"goes with 'routing: {of}' only. Remove it, or change the routing.")
    if routing == "keyed":
        return keyed_weights(count, found.get("keys", KEYS), found.get("skew", 0.0))
    if routing == "custom":
        return _custom(spot, found.get("weights"), count)
    return (1.0 / count,) * count


def keyed_weights(instances: int, keys: int, skew: float) -> tuple[float, ...]:
    """Return the part of the records of each instance when the k-th key has a part of 1 / k ** skew.

    Keys go to instances by a hash of their number, as they do in a broker.
    """
    weights: list[float] = [0.0] * instances
    for key in range(1, keys + 1):
        weights[zlib.crc32(b"%d" % key) % instances] += float(key**-skew)
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)


def _custom(spot: Spot, given: list[object] | None, count: int) -> tuple[float, ...]:
    if given is None:
        spot.report.add(
            "HW1012", f"{spot.what} has custom routing and no 'weights'. Add them, such as 'weights: [3, 1]'.",
            line_of(spot.body, "routing"),
        )  # fmt: skip
        return (1.0 / count,) * count
    numbers = [
        float(one) for one in given if isinstance(one, (int, float)) and not isinstance(one, bool) and 0 <= one < 1e300
    ]
    if len(numbers) != len(given) or len(given) != count or not sum(numbers):
        spot.add("HW1007", "weights", f"must be {count} numbers of 0 or more, not all 0, one for each instance.")
        return (1.0 / count,) * count
    return tuple(one / math.fsum(numbers) for one in numbers)
