"""What does a project say, for people and programs?

Reads a declarative pipeline (`author.inspect`) and shows its graph: operators, what each reads, holds and gives,
where it is declared, what comes in and goes out, and what had to be assumed. Writes it as a pipeline file and as
a picture where that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headwater.author.inspect import inspect as read_project
from headwater.author.nowhere import BROKER, PLACEHOLDERS, SITE
from headwater.errors import SpecError
from headwater.model.files import read_sites, write_pipeline
from headwater.model.project import Definition, Project
from headwater.model.settings_file import unknown_places
from headwater.model.sites import Sites
from headwater.model.sites_file import TAG
from headwater.model.units import show
from headwater.serve import disk
from headwater.serve.output import Output
from headwater.serve.plain import plain
from headwater.serve.progress import Teller, note
from headwater.serve.render import simple_table

__all__ = ["ChosenLanes", "asked_lanes", "inspect", "inspected_object", "inspected_view"]

ChosenLanes = Callable[[Project], Mapping[str, tuple[str, str]]]  # operator -> lane, because
Lanes = Mapping[str, tuple[str, str]]

DONE = 0  # exit code
UNDECIDED = "-"
_NOWHERE = {PLACEHOLDERS[BROKER]: "of its site's broker", PLACEHOLDERS[SITE]: "of its site"}
LONGEST_SCHEMA = 400  # characters shown of an operator's columns


def asked_lanes(project: Project) -> Lanes:
    """Return the lane that each operator asks for."""
    return {
        each.name: (UNDECIDED, "chosen when it is placed") if each.lane is None else (each.lane, "asked for")
        for each in project.definitions
    }


def inspect(
    project: str,
    sites: str | None,
    out: str | None,
    picture: str | None,
    output: Output,
    *,
    jars: Sequence[str] = (),
    cache: str | None = None,
    chosen_lanes: ChosenLanes = asked_lanes,
) -> int:
    """Show a project, and write it as a pipeline file and as a picture where they are asked for.

    Args:
        project: a folder with spark-pipeline.yml, that file, or a single .py file.
        sites: a sites file; every site and tag that the project names must be in it.
        out: the pipeline file to write.
        picture: the .svg or .png file to write.
        output: where the answer goes.
        jars: what Spark needs on its classpath.
        cache: a folder in which what was read is kept.
        chosen_lanes: says in which lane each operator runs, and why.
    """
    for path in (out, picture):
        if path is not None:  # before a Spark is started for nothing
            disk.check_writable(path)
    network = None if sites is None else read_sites(disk.read(sites), sites)
    with Teller("reading the project"):
        found = read_project(project, jars, cache)
    if network is not None:
        each = {one.name: one.each for one in found.definitions if one.each is not None}
        unknown = unknown_places(found.pipeline, each, network)
        if unknown:
            raise SpecError(*unknown)
    lanes = chosen_lanes(found)
    if out is not None:
        disk.write_text(out, write_pipeline(found.pipeline))
        note(f"pipeline file written to {out}")
    if picture is not None:
        from headwater.serve.draw_project import draw_project  # noqa: PLC0415 - loads matplotlib, over a second

        with Teller("drawing"), disk.replacing(picture) as part:
            draw_project(found, lanes, part)
        note(f"picture written to {picture}")
    output.answer(inspected_object(found, lanes, network), *inspected_view(found, lanes, network))
    return DONE


def inspected_object(project: Project, lanes: Lanes, sites: Sites | None) -> dict[str, Any]:
    """Return a project as JSON, in base units."""
    return {
        "pipeline": project.name,
        "folder": project.folder,
        "fingerprint": project.fingerprint,
        "delivery": project.delivery,
        "goals": {"p99_s": project.goals.p99_s, "class": project.goals.quality},
        "configuration": dict(project.configuration),
        "operators": [_operator_object(project, each, lanes, sites) for each in project.definitions],
        "notes": list(project.notes),
    }


def _operator_object(project: Project, each: Definition, lanes: Lanes, sites: Sites | None) -> dict[str, Any]:
    operator = project.pipeline.by_name[each.name]
    lane, because = lanes[each.name]
    return {
        "name": each.name,
        "kind": each.kind,
        "source": operator.is_source,
        "sink": operator.is_sink,
        "reads": list(each.reads),
        "traits": sorted(each.traits),
        "stateful": each.is_stateful,
        "format": each.format,
        "options": dict(each.options),
        "schema": json.loads(each.schema_json),
        "lane": None if lane == UNDECIDED else lane,
        "lane_because": because,
        "lane_asked": each.lane,
        "emit": each.emit,
        "on_error": each.on_error,
        "each": each.each,
        "once": each.once,
        **({} if sites is None or each.each is None else {"sites": list(_stands_on(each.each, sites))}),
        **({"rate_rps": operator.rate_rps, "size_bytes": operator.size_bytes} if operator.is_source else {}),
        "file": each.file,
        "line": each.line,
    }


def inspected_view(project: Project, lanes: Lanes, sites: Sites | None) -> Iterator[RenderableType]:
    """Yield a project as things that rich can print."""
    count = len(project.definitions)
    goals = [] if project.goals.p99_s is None else [f"p99 within {show(project.goals.p99_s, 'time')}"]
    goals += [] if project.goals.quality is None else [f"class {project.goals.quality}"]
    facts = [f"{count} operator{'' if count == 1 else 's'}", project.delivery, *goals]
    yield Text.assemble((plain(project.name), "bold"), plain(f": {', '.join(facts)}"))
    yield simple_table(
        ("operator", "kind", "reads", "holds", "lane", "declared at"),
        (
            (
                Text(plain(each.name), style="bold"),
                _kind(project, each),
                ", ".join(each.reads),
                ", ".join(sorted(each.traits)),
                _lane(each, lanes),
                f"{each.file}:{each.line}",
            )
            for each in project.definitions
        ),
    )
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, chosen in lanes.items():
        if chosen[0] != UNDECIDED:
            reasons.setdefault(chosen, []).append(name)
    if reasons:
        yield Text("lanes", style="bold")
        yield _pairs([(lane, f"{', '.join(names)}: {because}") for (lane, because), names in reasons.items()])
        yield ""
    yield Text("in and out", style="bold")
    yield _pairs(_ends(project, sites))
    yield ""
    yield Text("columns", style="bold")
    yield _pairs((each.name, _columns(each.schema_json)) for each in project.definitions)
    if project.notes:
        yield ""
        yield Text("notes", style="bold")
        for each_note in project.notes:
            yield Padding(Text(f"- {plain(each_note)}"), (0, 0, 0, 2), expand=False)


def _kind(project: Project, each: Definition) -> str:
    operator = project.pipeline.by_name[each.name]
    return ", ".join([each.kind, *(["source"] if operator.is_source else [])])


def _lane(each: Definition, lanes: Lanes) -> str:
    extra = [f"emits {each.emit}"] if each.emit is not None else []
    extra += [each.on_error] if each.on_error != "stop" else []
    return ", ".join([lanes[each.name][0], *extra])


def _ends(project: Project, sites: Sites | None) -> Iterator[tuple[str, str]]:
    for each in project.definitions:
        operator = project.pipeline.by_name[each.name]
        if operator.is_source:
            rate, size = show(operator.rate_rps, "rate"), show(operator.size_bytes, "size")
            where = "" if each.each is None else f", once on each of {each.each}"
            if each.each is not None and sites is not None:
                where += f" ({', '.join(_stands_on(each.each, sites))})"
            yield each.name, f"reads {each.format}, {rate} of {size}{where}"
        if operator.is_sink:
            options = ", ".join(f"{key} {_NOWHERE.get(value, value)}" for key, value in each.options)
            yield each.name, f"writes {each.format}{f' ({options})' if options else ''}"


def _stands_on(each: str, sites: Sites) -> tuple[str, ...]:
    """Return the sites that 'each' names."""
    if not each.startswith(TAG):
        return (each,)
    return tuple(site.name for site in sites.sites if each.removeprefix(TAG) in site.tags)


def _pairs(rows: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(Text(plain(name)), Text(plain(text)))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _columns(schema_json: str) -> str:
    """Return the columns of a schema in a few words: 'sensor string, celsius double'."""
    fields = json.loads(schema_json)["fields"]
    text = ", ".join(f"{field['name']} {_type(field['type'])}" for field in fields)
    return text if len(text) <= LONGEST_SCHEMA else f"{text[:LONGEST_SCHEMA]}…"


def _type(given: Any) -> str:
    """Return a type of Spark's JSON form in a few words."""
    if not isinstance(given, dict):
        return str(given)
    match given.get("type"):
        case "struct":
            return "struct<" + ", ".join(f"{one['name']} {_type(one['type'])}" for one in given["fields"]) + ">"
        case "array":
            return f"array<{_type(given['elementType'])}>"
        case "map":
            return f"map<{_type(given['keyType'])}, {_type(given['valueType'])}>"
        case other:
            return str(other)
