"""How does the model look as a file?

Writes the YAML that `model.files` reads, without loss: reading what was written gives an equal model.
Values that are the default are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from headwater.model.pipeline import LEVEL_NAMES, Objective, Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites
from headwater.model.units import Kind, show

__all__ = ["write_pipeline", "write_placement", "write_sites"]

# Text that every YAML reader takes for text without quotes, in and out of brackets.
_PLAIN = re.compile(r"(?:tag:)?[A-Za-z_](?:[A-Za-z0-9_./-]*[A-Za-z0-9_])?")
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\"})


def write_sites(sites: Sites) -> str:
    """Return a sites file."""
    lines = ["sites:"]
    lines += (f"  {_text(site.name)}: {_flow(_site(site))}" for site in sites.sites)
    if sites.links:
        lines.append("links:")
        lines += (f"  - {_flow(_link(link))}" for link in sites.links)
    return "\n".join(lines) + "\n"


def write_pipeline(pipeline: Pipeline) -> str:
    """Return a pipeline file."""
    lines = [f"pipeline: {_text(pipeline.name)}", "operators:"]
    lines += (f"  {_text(operator.name)}: {_flow(_operator(operator))}" for operator in pipeline.operators)
    objective = list(_objective(pipeline.objective))
    if objective:
        lines.append(f"objective: {_flow(objective)}")
    return "\n".join(lines) + "\n"


def write_placement(placement: Mapping[str, str]) -> str:
    """Return a placement file."""
    if not placement:
        return "{}\n"
    return "".join(f"{_text(operator)}: {_text(site)}\n" for operator, site in placement.items())


Pair = tuple[str, str]


def _site(site: Site) -> Iterator[Pair]:
    default = Site("")
    yield "kind", site.kind
    yield "class", LEVEL_NAMES[site.level]
    yield "slots", str(site.slots)
    if site.speed != default.speed:
        yield "speed", _quantity(site.speed, "number")
    if site.cores is not None:
        yield "cores", _quantity(site.cores, "cores")
    if site.memory_bytes is not None:
        yield "memory", _quantity(site.memory_bytes, "size")
    if site.price != default.price:
        yield "price", _quantity(site.price, "number")
    if site.tags:
        yield "tags", _names(site.tags)


def _link(link: Link) -> Iterator[Pair]:
    yield "between", _names((link.a, link.b))
    yield "latency", _quantity(link.latency_s, "time")
    yield "bandwidth", _quantity(link.bandwidth_bps, "bandwidth")


def _operator(operator: Operator) -> Iterator[Pair]:
    if operator.is_source:
        yield "source", "true"
        yield "rate", _quantity(operator.rate_rps, "rate")
        yield "size", _quantity(operator.size_bytes, "size")
    else:
        yield "inputs", f"[{', '.join(map(_stream, operator.inputs))}]"
        yield from _factors(operator)
    if LEVEL_NAMES[operator.needs] != "low":
        yield "needs", LEVEL_NAMES[operator.needs]
    if operator.work_s:
        yield "work", _quantity(operator.work_s, "time")
    if operator.state_bytes:
        yield "state", _quantity(operator.state_bytes, "size")
    if operator.at is not None:
        yield "at", _names(operator.at)
    if operator.together:
        yield "with", _names(operator.together)
    if operator.apart:
        yield "apart", _names(operator.apart)
    if operator.is_sink:
        yield "sink", "true"


def _stream(stream: Stream) -> str:
    factors = list(_factors(stream))
    return _flow([("from", _text(stream.source)), *factors]) if factors else _text(stream.source)


def _factors(of: Operator | Stream) -> Iterator[Pair]:
    if of.rate_factor != 1.0:
        yield "rate_factor", _quantity(of.rate_factor, "number")
    if of.size_factor != 1.0:
        yield "size_factor", _quantity(of.size_factor, "number")


def _objective(objective: Objective) -> Iterator[Pair]:
    weights = {"rt": objective.weight_rt, "rf": objective.weight_rf, "bw": objective.weight_bw}
    if set(weights.values()) != {1.0}:
        yield "weights", _flow((key, _quantity(weight, "number")) for key, weight in weights.items())
    bounds: tuple[tuple[str, Kind, dict[str, float | None]], ...] = (
        ("rt", "time", {"min": objective.rt_min_s, "max": objective.rt_max_s}),
        ("rf", "number", {"max": objective.rf_max}),
        ("bw", "bandwidth", {"max": objective.bw_max_bps}),
    )
    for term, kind, values in bounds:
        given = [(key, _quantity(value, kind)) for key, value in values.items() if value is not None]
        if given:
            yield term, _flow(given)
    if objective.between is not None:
        yield "between", _names(objective.between)


def _flow(pairs: Iterable[Pair]) -> str:
    return f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}"


def _names(names: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, names))}]"


def _quantity(value: float, kind: Kind) -> str:
    return show(value, kind, exact=True)


def _text(text: str) -> str:
    """Return a name, in quotes where a YAML reader could take it for something else."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return f'"{text.translate(_ESCAPES)}"'
