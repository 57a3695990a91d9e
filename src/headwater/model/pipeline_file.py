"""What does a pipeline file say? Makes a `Pipeline` of its values and reports what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headwater.model import fields, units
from headwater.model.fields import Body, Field, Known, Spot, read_fields, read_file, read_named, read_pair
from headwater.model.graph import check_company, check_cycles
from headwater.model.pipeline import LEVELS, Objective, Operator, Pipeline, Stream
from headwater.model.report import Report, quote
from headwater.model.sites import Sites
from headwater.model.sites_file import TAG
from headwater.model.tree import line_of

__all__ = ["Places", "check_at", "make_pipeline"]

_factor = fields.quantity("number")

FILE = {
    "pipeline": Field("name", fields.name),
    "operators": Field("operators", fields.mapping),
    "objective": Field("objective", fields.mapping),
}
OPERATOR = {
    "source": Field("is_source", fields.truth),
    "sink": Field("is_sink", fields.truth),
    "rate": Field("rate_rps", fields.quantity("rate")),
    "size": Field("size_bytes", fields.quantity("size")),
    "inputs": Field("inputs", fields.entries),
    "rate_factor": Field("rate_factor", _factor),
    "size_factor": Field("size_factor", _factor),
    "needs": Field("needs", fields.one_of(LEVELS)),
    "work": Field("work_s", fields.quantity("time")),
    "state": Field("state_bytes", fields.quantity("size")),
    "at": Field("at", fields.names),
    "with": Field("together", fields.names),
    "apart": Field("apart", fields.names),
}
SOURCE_KEYS = {"rate": "100/s", "size": "30 kB"}  # what a source must have, with examples, and others must not
READER_KEYS = ("inputs", "rate_factor", "size_factor")  # what a source must not have
STREAM = {
    "from": Field("source", fields.name, "operator-1"),
    "rate_factor": Field("rate_factor", _factor),
    "size_factor": Field("size_factor", _factor),
}
SECTIONS = {
    "weights": {
        "rt": Field("weight_rt", _factor),
        "rf": Field("weight_rf", _factor),
        "bw": Field("weight_bw", _factor),
    },
    "rt": {
        "min": Field("rt_min_s", fields.quantity("time")),
        "max": Field("rt_max_s", fields.quantity("time")),
    },
    "rf": {"max": Field("rf_max", _factor)},
    "bw": {"max": Field("bw_max_bps", fields.quantity("bandwidth"))},
}
OBJECTIVE = {key: Field(key, fields.section(table)) for key, table in SECTIONS.items()} | {
    "between": Field("between", fields.entries)
}


def make_pipeline(report: Report, root: Body, sites: Sites | None) -> Pipeline:
    """Return the pipeline of a file; what is reported as wrong is left out."""
    found = read_file(Spot(report, root, "the file"), FILE, "operators", "sites")
    if found is None:
        return Pipeline("", ())
    given: Body = found["operators"]
    places = None if sites is None else Places(sites)
    drafts: dict[str, dict[str, Any]] = {}
    for name in given:
        spot = read_named(report, given, name, "operator")
        draft = drafts[name] = read_fields(spot, OPERATOR)
        if given[name] is None or spot.body is given[name]:
            _check_kind(spot, draft, line_of(given, name))
        draft["inputs"] = tuple(_streams(spot, draft.get("inputs", []), name, given))
        _check_company_names(spot, draft, name, given)
        if "at" in draft:
            check_at(spot, "at", draft["at"], places)
    operators = _operators(report, given, drafts)
    objective = _objective(Spot(report, found.get("objective", {}), "the objective"), operators)
    return Pipeline(found.get("name") or _stem(report.file), tuple(operators.values()), objective)


def _stem(file: str) -> str:
    """Return the name of a file without folder and ending, for a pipeline that has no name of its own."""
    base = file.replace("\\", "/").rpartition("/")[2]
    return (base.rpartition(".")[0] or base).strip() or "pipeline"


def _check_kind(spot: Spot, draft: dict[str, Any], line: int | None) -> None:
    """Report the keys that a source, or an operator that reads, lacks or must not have."""
    report, body, what = spot
    if draft.get("is_source"):
        for key, example in SOURCE_KEYS.items():
            if body.get(key) is None:
                report.add(
                    "HW1012", f"{what} is a source and has no '{key}'. Add one, such as '{key}: {example}'.", line
                )
        for key in READER_KEYS:
            if spot.has(key):
                spot.add("HW1011", key, "does not go with 'source: true': a source reads nothing. Remove one of them.")
    elif spot.has("inputs"):
        for key in SOURCE_KEYS:
            if spot.has(key):
                spot.add(
                    "HW1011",
                    key,
                    f"is for sources; elsewhere it follows from the inputs. Remove it, or write '{key}_factor'.",
                )
    elif "is_source" in draft or body.get("source") is None:  # else 'source' is wrong, and was reported
        report.add("HW1012", f"{what} is neither a source nor reads anything; add inputs or source: true.", line)


def _streams(spot: Spot, given: list[object], target: str, known: Body) -> Iterator[Stream]:
    report = spot.report
    for i, entry in enumerate(given):
        line = line_of(given, i)
        found: dict[str, Any]
        if isinstance(entry, dict):
            found = read_fields(Spot(report, entry, f"input {i + 1} of {spot.what}"), STREAM)
            line = line_of(entry, "from")
        else:
            found = {"source": fields.read_name(report, entry, line, f"{spot.what}: 'inputs'")}
        source = found.get("source")
        if source is None:
            continue
        if source not in known:
            report.add(
                "HW1004", f"{spot.what} reads {quote(source)}, which does not exist.{report.tip(source, known)}", line
            )
        else:
            yield Stream(target=target, **found)


def _check_company_names(spot: Spot, draft: dict[str, Any], name: str, known: Body) -> None:
    for key, attribute in (("with", "together"), ("apart", "apart")):
        if attribute in draft:
            spot.are_known(key, draft[attribute], Known("operator", known))
            if name in draft[attribute]:
                spot.report.add(
                    "HW1011", f"{spot.what} names itself in '{key}'. Remove it there.", spot.line_in(key, name)
                )


class Places:
    """What an entry of 'at' may name."""

    def __init__(self, sites: Sites) -> None:
        """Take the names of sites and of their tags."""
        self.sites = Known("site", sites.by_name)
        self.tags = Known("tag", {tag for site in sites.sites for tag in site.tags})


def check_at(spot: Spot, key: str, at: tuple[str, ...], places: Places | None) -> None:
    """Report the entries of a list of sites and tags that name nothing; None: only their form is looked at."""
    if not spot.has(key):
        spot.add("HW1007", key, "is an empty list, so that no site is allowed. Name a site or remove it.")
    for entry in at:
        is_tag, name = entry.startswith(TAG), entry.removeprefix(TAG)
        if not name:
            spot.report.add(
                "HW1013", f"{spot.what}: '{TAG}' in '{key}' names no tag. Write '{TAG}NAME'.", spot.line_in(key, entry)
            )
        elif places is not None:
            known = places.tags if is_tag else places.sites
            if name not in known.names:
                spot.report.add(
                    "HW1004",
                    f"{spot.what}: '{key}' names the {known.kind} {quote(name)}, which "
                    f"{'no site has' if is_tag else 'does not exist'}."
                    f"{spot.report.tip(name, known.names)}",
                    spot.line_in(key, entry),
                )


def _operators(report: Report, given: Body, drafts: dict[str, dict[str, Any]]) -> dict[str, Operator]:
    """Return the operators, after a look at what they are to each other."""

    def line(name: str) -> int | None:
        return line_of(given, name)

    readers: dict[str, str] = {}
    for name, draft in drafts.items():
        for stream in draft["inputs"]:
            readers.setdefault(stream.source, name)
    for name, draft in drafts.items():
        if draft.get("is_sink") and name in readers:
            report.add(
                "HW1011",
                f"operator {quote(name)} is a sink, but operator {quote(readers[name])} reads it. "
                "Remove 'sink: true' or that input.",
                line_of(given[name], "sink"),
            )
        draft["is_sink"] = name not in readers
    check_cycles(report, {name: [one.source for one in draft["inputs"]] for name, draft in drafts.items()}, line)
    together, apart = (
        [(name, other) for name, draft in drafts.items() for other in draft.get(attribute, ()) if other != name]
        for attribute in ("together", "apart")
    )
    check_company(report, together, apart, line)
    return {name: Operator(name, **draft) for name, draft in drafts.items()}


def _objective(spot: Spot, operators: dict[str, Operator]) -> Objective:
    found = read_fields(spot, OBJECTIVE)
    values: dict[str, Any] = {}
    for section in SECTIONS:
        values |= found.get(section, {})
    least, most = values.get("rt_min_s"), values.get("rt_max_s")
    if least is not None and most is not None and least > most:
        spot.add(
            "HW1011",
            "rt",
            f"has a 'min' of {units.show(least, 'time')} above its 'max' of {units.show(most, 'time')}. Swap them.",
        )
    ends = read_pair(spot, "between", Known("operator", operators)) if "between" in found else None
    if ends is not None:
        first, last = (operators[name] for name in ends)
        values["between"] = (first.name, last.name)
        for operator, is_right, kind in ((first, first.is_source, "source"), (last, last.is_sink, "sink")):
            if not is_right:
                spot.report.add(
                    "HW1011",
                    f"{spot.what}: 'between' must name a source and then a sink; {quote(operator.name)} is no {kind}.",
                    spot.line_in("between", operator.name),
                )
    return Objective(**values)
