"""What does headwater.yml add to a project?

A project's code says what its operators compute; this file, or table properties of the same names, says
what Spark does not know: rates, machines, lanes, goals. `read_settings` and `read_properties` check each
by itself; `settle` puts both beside the graph that the code defines and gives the pipeline that placement
takes. The tables are those of the pipeline file, without what the code says already (who reads whom).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from headwater.errors import Mistake, SpecError
from headwater.model import fields
from headwater.model.fields import Body, Field, Spot, read_fields, read_named
from headwater.model.pipeline import Pipeline
from headwater.model.pipeline_file import (
    OBJECTIVE,
    OPERATOR,
    READER_KEYS,
    SOURCE_KEYS,
    STREAM,
    Places,
    check_at,
    make_pipeline,
)
from headwater.model.project import DELIVERIES, EMITS, LANES, ON_ERRORS, Delivery, Emit, Goals, LaneName, OnError
from headwater.model.quality import LEAST_GOAL_S, MOST_GOAL_S, QUALITIES
from headwater.model.report import Report, describe, listed, quote
from headwater.model.sites import Sites
from headwater.model.sites_file import TAG
from headwater.model.text import parse
from headwater.model.tree import Entries, Fields, line_of

__all__ = [
    "ASSUMED",
    "PREFIX",
    "Defined",
    "Extras",
    "Settings",
    "Settled",
    "read_properties",
    "read_settings",
    "settle",
    "unknown_places",
]

PREFIX = "headwater."  # of a table property that is a setting
ASSUMED = MappingProxyType({"rate": "100/s", "size": "1 kB"})  # of a source that nobody declared or measured


def _place(spot: Spot, key: str) -> str | None:
    """Read a site or a tag."""
    value = fields.name(spot, key)
    if value == TAG:
        spot.add("HW1013", key, f"names no tag. Write '{TAG}NAME'.")
        return None
    return value


def _words(words: Iterable[str]) -> fields.Reader:
    return fields.one_of({word: word for word in words})


EXTRAS = {
    "each": Field("each", _place),
    "once": Field("once", fields.truth),
    "lane": Field("lane", _words(LANES)),
    "emit": Field("emit", _words(EMITS)),
    "on_error": Field("on_error", _words(ON_ERRORS)),
}
STREAMS = "streams"
DECIDED = ("source", "sink", "inputs")  # keys of a pipeline file that the project's code decides
SETTING = (
    {key: value for key, value in OPERATOR.items() if key not in DECIDED}
    | {STREAMS: Field(STREAMS, fields.entries)}
    | EXTRAS
)
LISTS = frozenset(("at", "with", "apart"))
GOALS = {
    "p99": Field("p99_s", fields.quantity("time", least=LEAST_GOAL_S, most=MOST_GOAL_S)),
    "class": Field("quality", _words(QUALITIES)),
}
FILE = {
    "pipeline": Field("name", fields.name),
    "operators": Field("operators", fields.mapping),
    "goals": Field("goals", fields.section(GOALS)),
    "delivery": Field("delivery", _words(DELIVERIES)),
    "objective": Field("objective", fields.mapping),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the file says, each part right by itself."""

    file: str = "headwater.yml"  # as the user named it
    name: str | None = None  # of the pipeline
    operators: Mapping[str, Body] = field(default_factory=dict)  # with lines
    lines: Mapping[str, int | None] = field(default_factory=dict)  # of the operators
    objective: Body | None = None  # with lines
    goals: Goals = field(default_factory=Goals)
    delivery: Delivery = "exactly-once"


class Defined(NamedTuple):
    """An operator as the project's code defines it."""

    name: str
    reads: tuple[str, ...]
    file: str
    line: int
    properties: Mapping[str, object] = MappingProxyType({})  # what `read_properties` gave


class Extras(NamedTuple):
    """What is said of an operator that no pipeline file has."""

    each: str | None = None
    once: bool = False
    lane: LaneName | None = None
    emit: Emit | None = None
    on_error: OnError = "stop"


class Settled(NamedTuple):
    """A project's graph with all that is declared of it."""

    pipeline: Pipeline
    extras: Mapping[str, Extras]
    notes: tuple[str, ...]  # what was assumed


def read_settings(text: bytes, file: str, operators: Sequence[str]) -> Settings:
    """Return what a headwater.yml says of the operators that a project has; an empty one says nothing.

    Raises:
        SpecError: every mistake that shows without a look at the graph.
    """
    report = Report(file)
    if not _without_comments(text):
        return Settings(file)
    root = parse(text, report, with_lines=True).root
    if not isinstance(root, dict):
        raise report.stop("HW1005", f"the file must hold a mapping; found {describe(root)}.", line_of(root) or 1)
    found = read_fields(Spot(report, root, "the file"), FILE)
    given: Body = found.get("operators", {})
    bodies = {}
    for name in given:
        spot = read_named(report, given, name, "operator")
        _read_setting(spot)
        bodies[name] = spot.body
        if name not in operators:
            report.add(
                "HW1004",
                f"operator {quote(name)} is not defined by the project.{report.tip(name, operators)}",
                line_of(given, name),
            )
    read_fields(Spot(report, found.get("objective", {}), "the objective"), OBJECTIVE)
    if report:
        raise report.error()
    return Settings(
        file,
        found.get("name"),
        bodies,
        {name: line_of(given, name) for name in bodies},
        found.get("objective"),
        Goals(**found.get("goals", {})),
        found.get("delivery", "exactly-once"),
    )


def read_properties(properties: Mapping[str, str], operator: str, file: str, line: int) -> Body:
    """Return the settings among the properties of a table; `file` and `line` say where it is defined.

    Raises:
        SpecError: every mistake that shows without a look at the graph.
    """
    report = Report(file)
    body = Fields(_Line(line, file))
    for key, text in properties.items():
        if key.startswith(PREFIX):
            short = key.removeprefix(PREFIX)
            body.lines[short] = body.line
            body[short] = _value(report, key, str(text), body.line) if short in SETTING else text
    _read_setting(Spot(report, body, f"operator {quote(operator)} (table properties)"))
    if report:
        raise SpecError(*(replace(mistake, line=line) for mistake in report.error().mistakes))
    return body


def settle(settings: Settings, defined: Sequence[Defined], name: str) -> Settled:
    """Return the pipeline of a graph and its settings; `name` is for one that its file does not name.

    Raises:
        SpecError: every mistake in what the settings mean together, each where it was written.
    """
    report = Report(settings.file)
    operators = Fields(1)
    extras: dict[str, Extras] = {}
    notes: list[str] = []
    for each in defined:
        here = _Line(each.line, each.file)
        body = _merged(report, settings.operators.get(each.name, {}), each, here)
        spot = Spot(report, body, f"operator {quote(each.name)}")
        extras[each.name] = _extras(spot, each)
        notes += _decide(spot, each)
        operators[each.name] = body
        operators.lines[each.name] = settings.lines.get(each.name) or here
    root = Fields(1)
    root["pipeline"] = settings.name or name
    root["operators"] = operators
    if settings.objective is not None:
        root["objective"] = settings.objective
    pipeline = make_pipeline(report, root, None)
    if report:
        raise SpecError(*map(_placed, report.error().mistakes))
    return Settled(pipeline, MappingProxyType(extras), tuple(notes))


def unknown_places(pipeline: Pipeline, each: Mapping[str, str], sites: Sites) -> tuple[Mistake, ...]:
    """Return the sites and tags that 'at' and 'each' of a project name and that are not there."""
    report, places = Report(""), Places(sites)
    for operator in pipeline.operators:
        given = {"at": operator.at or (), "each": (each[operator.name],) if operator.name in each else ()}
        for key, names in given.items():
            if names:
                body: Body = {key: list(names)}
                check_at(Spot(report, body, f"operator {quote(operator.name)}"), key, names, places)
    return tuple(replace(mistake, file=None) for mistake in report.error().mistakes)


class _Line(int):
    """A line that knows its file, for what was not written in the settings file."""

    file: str

    def __new__(cls, line: int, file: str) -> _Line:
        made = super().__new__(cls, line)
        made.file = file
        return made


def _placed(mistake: Mistake) -> Mistake:
    line = mistake.line
    return replace(mistake, file=line.file, line=int(line)) if isinstance(line, _Line) else mistake


def _copied(body: Body, keys: Iterable[str], line: int = 1) -> Fields:
    """Return some fields of a mapping, with their lines."""
    copy = Fields(line_of(body) or line)
    copy.update({key: body[key] for key in keys})
    copy.lines.update(getattr(body, "lines", {}))
    return copy


def _without_comments(text: bytes) -> bytes:
    return b"".join(line for line in text.splitlines() if not line.lstrip().startswith(b"#")).strip(b" \t-\xef\xbb\xbf")


def _read_setting(spot: Spot) -> dict[str, Any]:
    """Return the values of one operator's settings, with every stream looked at."""
    for key in DECIDED:
        if key in spot.body:
            spot.add("HW1003", key, "is decided by the project's code. Remove it here.")
    kept = _copied(spot.body, [key for key in spot.body if key not in DECIDED])
    found = read_fields(Spot(spot.report, kept, spot.what), SETTING)
    for i, entry in enumerate(found.get(STREAMS, ())):
        what = f"stream {i + 1} of {spot.what}"
        if isinstance(entry, dict):
            read_fields(Spot(spot.report, entry, what), STREAM)
        else:
            spot.report.add(
                "HW1005",
                f"{what} must be a mapping; found {describe(entry)}. Write '{{from: NAME, rate_factor: 0.5}}'.",
                line_of(spot.body[STREAMS], i),
            )
    if "at" in found:
        check_at(spot, "at", found["at"], None)
    return found


def _value(report: Report, key: str, text: str, line: int) -> object:
    """Return a property's text as the value that the file would hold."""
    short, text = key.removeprefix(PREFIX), text.strip()
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if text.startswith(("[", "{")):
        try:
            return parse(text.encode(), Report("")).root
        except SpecError:
            report.add(
                "HW1001", f"property {quote(key)} is not readable: {quote(text, 40)}. Look at its brackets.", line
            )
            return None
    if short in LISTS:
        names = Entries(line)
        names.extend(part.strip() for part in text.split(","))
        names.lines.extend([line] * len(names))
        return names
    return text


def _merged(report: Report, written: Body, each: Defined, here: _Line) -> Fields:
    """Return what file and properties say of one operator; a key in both must say the same."""
    body = _copied(written, written, here)
    silent = Report("")
    for key, value in each.properties.items():
        if body.get(key) is None:
            body[key], body.lines[key] = value, here
            continue
        ours = SETTING[key].read(Spot(silent, body, ""), key)
        if ours != SETTING[key].read(Spot(silent, dict(each.properties), ""), key):
            report.add(
                "HW1011",
                f"operator {quote(each.name)}: {quote(key)} is declared here, and otherwise in the table's properties "
                f"({each.file}:{each.line}). Remove one of the two.",
                line_of(body, key),
            )
    return body


def _extras(spot: Spot, each: Defined) -> Extras:
    """Take the settings that no pipeline file has out of a body."""
    kept_spot = Spot(spot.report, _copied(spot.body, [key for key in EXTRAS if key in spot.body]), spot.what)
    for key in kept_spot.body:
        del spot.body[key]
    extras = Extras(**read_fields(kept_spot, EXTRAS))
    if extras.each is not None and each.reads:
        kept_spot.add(
            "HW1011",
            "each",
            f"is for sources, and this operator reads {quote(each.reads[0])}. Remove it: what follows a source "
            "that stands on several sites stands there too.",
        )
    elif extras.each is not None and spot.has("at"):
        kept_spot.add("HW1011", "each", "says where the operator stands, and so does 'at'. Remove one of the two.")
    if extras.once and not each.reads:
        kept_spot.add(
            "HW1011", "once", "is for operators that read others, and this one is a source. Remove it, or 'each'."
        )
    return extras


def _decide(spot: Spot, each: Defined) -> Iterator[str]:
    """Add to a body what the graph says, and yield what had to be assumed."""
    body = spot.body
    assert isinstance(body, Fields), "made by `_merged`"
    body.lines["inputs"] = body.lines["source"] = _Line(each.line, each.file)
    wrong, because = (
        (tuple(SOURCE_KEYS), f"this operator reads {quote(each.reads[0])}. Remove it, or write")
        if each.reads
        else ((*READER_KEYS[1:], STREAMS), "this one is a source. Remove it, or write")
    )
    for key in wrong:
        if spot.has(key):
            other = f"'{key}_factor'" if each.reads else "'rate' and 'size'"
            kind = "sources" if each.reads else "operators that read others"
            spot.add("HW1011", key, f"is for {kind}, and {because} {other}.")
        body.pop(key, None)
    streams = body.pop(STREAMS, None)
    if each.reads:
        body["inputs"] = _inputs(spot, each, streams if isinstance(streams, list) else [])
        return
    body["source"] = True
    missing = [key for key in ASSUMED if body.get(key) is None]
    for key in missing:
        body[key] = ASSUMED[key]
    if missing:
        said = " and ".join(f"a {key} of {ASSUMED[key]}" for key in missing)
        line = ", ".join(f"{key}: {ASSUMED[key]}" for key in missing)
        yield (
            f"source {quote(each.name)}: {said} {'are' if len(missing) > 1 else 'is'} assumed. Declare it in "
            f"headwater.yml, such as 'operators: {{{each.name}: {{{line}}}}}', or let a run measure it."
        )


def _inputs(spot: Spot, each: Defined, streams: list[object]) -> Entries:
    """Return what an operator reads, in the form of a pipeline file."""
    entries = Entries(each.line)
    part: dict[str, Fields] = {}
    for entry in streams:
        if not isinstance(entry, Fields):
            continue
        source = str(entry.get("from"))
        if source not in each.reads:
            spot.report.add(
                "HW1004",
                f"{spot.what}: 'streams' names {quote(source)}, which it does not read; it reads {listed(each.reads)}.",
                line_of(entry, "from"),
            )
        elif source in part:
            spot.report.add(
                "HW1008", f"{spot.what}: 'streams' names {quote(source)} twice. Remove one.", line_of(entry, "from")
            )
        part[source] = entry
    for source in each.reads:
        entries.append(part.get(source, source))
        entries.lines.append(_Line(each.line, each.file))
    return entries
