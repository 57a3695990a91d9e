"""What did the user write, all of it?

Runs the project's code, looks at the plans of its operators, adds what headwater.yml and table properties
declare, and gives a `Project`. Every mistake of every part is told at once.

    HW1616  Spark refuses what 'emit' asks for
    HW1618  a project that writes nothing
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pyspark.sql import SparkSession

from headwater.author.files import Files, find
from headwater.author.graph import Node, explore
from headwater.author.load import Loaded, load_files
from headwater.author.nowhere import PLACEHOLDERS
from headwater.errors import Mistake, SpecError
from headwater.model.project import Definition, Emit, Project
from headwater.model.report import listed, quote
from headwater.model.settings_file import Defined, Extras, Settings, read_properties, read_settings, settle

__all__ = ["configured", "read_project"]

T = TypeVar("T")

# A plain Python function is called a record at a time, as runners do it, unless it asks for Arrow itself.
LOOKING = MappingProxyType({"spark.sql.execution.pythonUDF.arrow.enabled": "false"})
TABLE_FORMAT = "parquet"  # of a table that nobody reads and that names no other


def read_project(path: str, spark: SparkSession) -> Project:
    """Return the project at a path: a folder with spark-pipeline.yml, that file, or a single .py file.

    Args:
        path: as the user named it.
        spark: a classic session; its settings are given back as they were.

    Raises:
        SpecError: every mistake found.
        BindError: HW4305, the session is of the wrong kind.
    """
    files = find(path)
    mistakes: list[Mistake] = []
    with configured(spark, files.configuration):
        loaded = load_files(files, spark)
        mistakes += loaded.mistakes
        graph = explore(loaded, spark)
        mistakes += graph.mistakes
    names = [output.name for output in loaded.outputs]
    settings = _tried(mistakes, lambda: _settings(files, names)) or Settings()
    nodes, notes = _used(graph.nodes)
    defined = []
    for node in nodes:
        output = node.output
        flow = loaded.flows_of(output.name)[0]
        properties = _tried(mistakes, lambda: read_properties(output.properties, output.name, flow.file, flow.line))  # noqa: B023 - called at once
        defined.append(Defined(output.name, node.reads, flow.file, flow.line, properties or {}))
    if not mistakes and not nodes:
        mistakes.append(
            Mistake(
                "HW1618",
                f"the project writes nothing: {listed(names)} are views that no table and no sink reads. Make the last "
                "one a table (@dp.table), or write it to a sink (dp.create_sink, @dp.append_flow).",
                loaded.outputs[0].file,
                loaded.outputs[0].line,
            )
        )
    mistakes += _both_ends(nodes)
    if mistakes:
        raise SpecError(*mistakes)
    known = {each.name for each in defined}
    settled = settle(_without(settings, known), defined, files.name)
    definitions = []
    for node, each in zip(nodes, defined, strict=True):
        extras = settled.extras[each.name]
        emit = _emit(node, each, extras.emit, mistakes, notes)
        definitions.append(_definition(node, each, extras, emit, nodes))
        notes += _ignored(loaded, node)
    if mistakes:
        raise SpecError(*mistakes)
    return Project(
        files.folder,
        settled.pipeline,
        tuple(definitions),
        files.fingerprint,
        files.configuration,
        settings.delivery,
        settings.goals,
        (*settled.notes, *notes),
    )


@contextlib.contextmanager
def configured(spark: SparkSession, configuration: Mapping[str, str]) -> Iterator[None]:
    """Give a session a project's configuration, and the place of nowhere if it has none of its own, for a while."""
    wanted = {key: value for key, value in PLACEHOLDERS.items() if spark.conf.get(key, None) is None}
    wanted |= {key: value for key, value in (LOOKING | configuration).items() if key not in PLACEHOLDERS}
    # Some settings hold from the session's start or not at all; they decide nothing that is looked at here.
    wanted = {key: value for key, value in wanted.items() if key in PLACEHOLDERS or _may_change(spark, key)}
    before = {key: spark.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value_before in before.items():
            if value_before is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value_before)


def _may_change(spark: SparkSession, key: str) -> bool:
    return spark.conf.isModifiable(key) or not key.startswith("spark.")


def _settings(files: Files, names: Sequence[str]) -> Settings:
    if files.settings is None:
        return Settings(files.show(f"{files.folder}/headwater.yml"))
    return read_settings(Path(files.settings).read_bytes(), files.show(files.settings), names)


def _without(settings: Settings, known: set[str]) -> Settings:
    """Return the settings of the operators that are run."""
    return replace(settings, operators={name: body for name, body in settings.operators.items() if name in known})


def _tried(mistakes: list[Mistake], make: Callable[[], T]) -> T | None:
    try:
        return make()
    except SpecError as error:
        mistakes.extend(error.mistakes)
        return None


def _used(nodes: Sequence[Node]) -> tuple[list[Node], list[str]]:
    """Return the operators whose rows get somewhere, and a note for each view whose rows do not."""
    used = {node.output.name for node in nodes if node.output.kind != "view"}
    by_name = {node.output.name: node for node in nodes}
    waiting = list(used)
    while waiting:
        for name in by_name[waiting.pop()].reads:
            if name not in used:
                used.add(name)
                waiting.append(name)
    notes = [
        f"view {quote(node.output.name)} ({node.output.file}:{node.output.line}) is left out: no table and no sink "
        "reads it, directly or through others."
        for node in nodes
        if node.output.name not in used
    ]
    return [node for node in nodes if node.output.name in used], notes


def _both_ends(nodes: Sequence[Node]) -> Iterator[Mistake]:
    """Yield the tables that read from outside and that nobody reads: a source and a sink are two operators."""
    read = {name for node in nodes for name in node.reads}
    for node in nodes:
        output = node.output
        if not node.reads and output.kind == "table" and output.name not in read:
            yield Mistake(
                "HW1615",
                f"table {quote(output.name)} reads {listed(node.held.sources)} from outside, and nobody reads it. Put "
                "the reading into a function of its own, marked @dp.temporary_view, and let the table read that.",
                output.file,
                output.line,
            )


def _emit(node: Node, each: Defined, asked: Emit | None, mistakes: list[Mistake], notes: list[str]) -> Emit | None:
    """Return what an operator emits: what is asked for, or the only way that Spark allows."""
    if not node.refused:
        return asked
    (refused, because) = next(iter(node.refused.items()))
    other: Emit = "final" if refused == "updates" else "updates"
    if asked == refused:
        help_ = " or declare event time with withWatermark before the grouping" if refused == "final" else ""
        mistakes.append(
            Mistake(
                "HW1616",
                f"operator {quote(each.name)} is to emit {refused}, which Spark refuses: {because} "
                f"Write 'emit: {other}'{help_}.",
                each.file,
                each.line,
            )
        )
    elif asked is None and other == "final":
        notes.append(f"operator {quote(each.name)} emits final rows only, because Spark refuses updates: {because}")
    return other


def _definition(node: Node, each: Defined, extras: Extras, emit: Emit | None, nodes: Sequence[Node]) -> Definition:
    output = node.output
    is_read = any(each.name in other.reads for other in nodes)
    written = output.format or (None if is_read or output.kind != "table" else TABLE_FORMAT)
    return Definition(
        each.name,
        output.kind,
        node.reads,
        node.schema.json(),
        each.file,
        each.line,
        node.held.traits,
        node.held.sources[0] if node.held.sources else written,
        tuple(sorted(output.options.items())),
        extras.each,
        extras.once,
        extras.lane,
        emit,
        extras.on_error,
    )


def _ignored(loaded: Loaded, node: Node) -> Iterator[str]:
    """Yield what the project says of an operator and Headwater does not follow."""
    name = quote(node.output.name)
    if node.output.partition_by:
        yield f"table {name}: partition and cluster columns are not followed."
    for flow in loaded.flows_of(node.output.name):
        if flow.spark_conf:
            yield f"flow {quote(flow.name)}: its spark_conf ({listed(sorted(flow.spark_conf))}) is not followed."
    if len(node.held.sources) > 1:
        yield f"source {name} reads several formats: {listed(node.held.sources)}."
