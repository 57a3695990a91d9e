"""Which outputs and flows does a project define?

Runs the project's libraries, as `spark-pipelines` would, against our registry on a classic session. The
functions of flows are kept and not called: `author.graph` calls them.

    HW1608  a flow into something that does not exist
    HW1609  an output that nothing is written to
    HW1618  a project that defines nothing
    HW4305  a session of the wrong kind
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.sql import SparkSession

from headwater.author.failures import failure, line_in, missing_table, tip
from headwater.author.files import Files, find
from headwater.author.names import Names
from headwater.author.registry import Flow, Output, Registry
from headwater.author.surroundings import Modules, running
from headwater.errors import BindError, Mistake, SpecError
from headwater.model.report import quote

__all__ = ["Loaded", "load", "load_files"]


@dataclass(frozen=True)
class Loaded:
    """A project whose libraries have run."""

    files: Files
    outputs: tuple[Output, ...]  # in the order of their definition
    flows: tuple[Flow, ...]
    names: Names  # of the outputs
    modules: Modules  # of the project that its libraries import
    mistakes: tuple[Mistake, ...] = ()  # found so far; `load` raises them, `load_files` leaves that to its caller

    @cached_property
    def by_name(self) -> Mapping[str, Output]:
        """Outputs by name."""
        return MappingProxyType({output.name: output for output in self.outputs})

    @cached_property
    def _by_target(self) -> Mapping[str, tuple[Flow, ...]]:
        found: dict[str, list[Flow]] = {}
        for flow in self.flows:
            found.setdefault(flow.target, []).append(flow)
        return {target: tuple(flows) for target, flows in found.items()}

    def flows_of(self, target: str) -> tuple[Flow, ...]:
        """Return the flows into an output, in the order of their definition."""
        return self._by_target.get(target, ())


def load(path: str, spark: SparkSession) -> Loaded:
    """Return what a project defines: a folder with spark-pipeline.yml, that file, or a single .py file.

    Raises:
        SpecError: every mistake found.
        BindError: HW4305, the session is none of this process.
    """
    loaded = load_files(find(path), spark)
    if loaded.mistakes:
        raise SpecError(*loaded.mistakes)
    return loaded


def load_files(files: Files, spark: SparkSession) -> Loaded:
    """Return what a project defines, with the mistakes that were found on the way."""
    if not hasattr(spark, "_jsparkSession"):
        raise BindError(
            "HW4305 a project is read with a session in this process, and this one is a Spark Connect session. "
            "Unset SPARK_REMOTE, or start the session with a 'local' master."
        )
    jvm: Any = spark._jvm
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # what SparkSession.active() gives to the libraries
    no_names = Names(files.catalog, files.database)
    registry = Registry(no_names, files.show)
    modules: Modules = {}
    with running(files, modules), graph_element_registration_context(registry):
        for library in files.libraries:
            registry.mistakes.extend(_run(library, files, spark))
    outputs = tuple(registry.outputs)
    names = Names(files.catalog, files.database, (output.name for output in outputs))
    flows = [replace(flow, target=names.find(flow.target) or flow.target) for flow in registry.flows]
    loaded = Loaded(files, outputs, tuple(flows), names, modules)
    # After a failure half of the definitions are missing, and that is nothing to tell as well.
    failed = any(mistake.code != "HW1607" for mistake in registry.mistakes)
    mistakes = (*registry.mistakes, *([] if failed else _loose_ends(loaded)))
    return replace(loaded, mistakes=mistakes)


def _run(library: str, files: Files, spark: SparkSession) -> Iterator[Mistake]:
    shown = files.show(library)
    spec = importlib.util.spec_from_file_location(_stem(library), library)
    assert spec is not None, "a path that ends in .py has a loader"
    assert spec.loader is not None, "likewise"
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = spark  # as spark-pipelines does
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
        missing = missing_table(error)
        if missing is None:
            yield failure(error, f"library {quote(shown)}", files, 1, library)
            return
        file, line = line_in(error, files) or (shown, 1)
        yield Mistake(
            "HW1610",
            f"{quote(missing)} is read while the file is loaded, when no dataset exists. Read it inside the function "
            "of a flow.",
            file,
            line,
        )


def _stem(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2].removesuffix(".py")


def _loose_ends(loaded: Loaded) -> Iterator[Mistake]:
    if not loaded.outputs:
        yield Mistake(
            "HW1618",
            "the project defines no dataset. Mark a function with @dp.temporary_view or @dp.table "
            "(from pyspark import pipelines as dp).",
            ", ".join(map(loaded.files.show, loaded.files.libraries[:3])),
        )
    for flow in loaded.flows:
        if flow.target not in loaded.by_name:
            yield Mistake(
                "HW1608",
                f"flow {quote(flow.name)} writes to {quote(flow.target)}, which does not exist."
                f"{tip(flow.target, loaded.by_name)} Define it with dp.create_sink or dp.create_streaming_table.",
                flow.file,
                flow.line,
            )
    for output in loaded.outputs:
        if not loaded.flows_of(output.name):
            yield Mistake(
                "HW1609",
                f"nothing is written to {output.kind} {quote(output.name)}. Add a flow into it "
                f"(@dp.append_flow(target={output.name!r})), or remove it.",
                output.file,
                output.line,
            )
