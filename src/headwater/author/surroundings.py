"""Under which conditions does the project's own code run?

As under `spark-pipelines`: in the project's folder, with its modules importable, and with everything
refused that would change the session. Beyond that, every read of a dataset by name goes past `Reads`,
which knows what stands for it. All of this holds inside `running` only, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from pyspark.cloudpickle.cloudpickle import _PICKLE_BY_VALUE_MODULES
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.catalog import Catalog
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.conf import RuntimeConfig
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.udf import UDFRegistration

from headwater.author.files import Files
from headwater.author.names import Names

__all__ = ["BLOCKED", "Modules", "OnRead", "running"]

Modules = dict[str, ModuleType]
OnRead = Callable[[str, bool], str]  # a dataset, whether it is read as a stream -> the view that stands for it

# What Spark blocks on a Connect session (pyspark.pipelines.block_session_mutations), for a classic one.
BLOCKED: tuple[tuple[type, str, str], ...] = (
    (RuntimeConfig, "set", "SET_RUNTIME_CONF"),
    (Catalog, "setCurrentCatalog", "SET_CURRENT_CATALOG"),
    (Catalog, "setCurrentDatabase", "SET_CURRENT_DATABASE"),
    (Catalog, "dropTempView", "DROP_TEMP_VIEW"),
    (Catalog, "dropGlobalTempView", "DROP_GLOBAL_TEMP_VIEW"),
    (ClassicDataFrame, "createTempView", "CREATE_TEMP_VIEW"),
    (ClassicDataFrame, "createOrReplaceTempView", "CREATE_OR_REPLACE_TEMP_VIEW"),
    (ClassicDataFrame, "createGlobalTempView", "CREATE_GLOBAL_TEMP_VIEW"),
    (ClassicDataFrame, "createOrReplaceGlobalTempView", "CREATE_OR_REPLACE_GLOBAL_TEMP_VIEW"),
    (UDFRegistration, "register", "REGISTER_UDF"),
    (UDFRegistration, "registerJavaFunction", "REGISTER_JAVA_UDF"),
    (UDFRegistration, "registerJavaUDAF", "REGISTER_JAVA_UDAF"),
)
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")  # of pyspark
_alone = threading.RLock()  # classes of pyspark and the working folder are everybody's


@contextlib.contextmanager
def running(files: Files, modules: Modules, reads: tuple[Names, OnRead] | None = None) -> Iterator[None]:
    """Give the project's code its surroundings.

    Args:
        files: the project.
        modules: of the project that were imported before; those that this block imports are added.
        reads: the datasets that code may read by name, and what is asked at each read; None: none are known yet.
    """
    with _alone, contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(files.folder))
        stack.enter_context(_importing(files, modules))
        stack.enter_context(_patched(_blocked()))
        stack.enter_context(_unlogged())
        if reads is not None:
            stack.enter_context(_patched(_reading(*reads)))
        yield


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Keep pyspark from logging what it raises as well: the mistake is told once."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]  # made by anyone else they are of the wrong class
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


Patch = tuple[type, str, Callable[..., Any]]


@contextlib.contextmanager
def _patched(patches: list[Patch]) -> Iterator[None]:
    before = [(kind, name, getattr(kind, name)) for kind, name, _ in patches]
    try:
        for kind, name, function in patches:
            setattr(kind, name, function)
        yield
    finally:
        for kind, name, function in before:
            setattr(kind, name, function)


def _blocked() -> list[Patch]:
    def patch(kind: type, name: str, reason: str) -> Patch:
        allowed = getattr(kind, name)

        def blocked(*arguments: Any, **named: Any) -> Any:
            if _called_by_spark():  # spark.sql("... {frame}", frame=...) makes views of its own
                return allowed(*arguments, **named)
            raise PySparkException(
                errorClass=f"SESSION_MUTATION_IN_DECLARATIVE_PIPELINE.{reason}",
                messageParameters={"method": f"'{kind.__name__}.{name}'"},
            )

        return kind, name, blocked

    return [patch(*each) for each in BLOCKED]


def _called_by_spark() -> bool:
    caller = sys._getframe(2).f_code.co_filename
    return os.path.basename(os.path.dirname(os.path.dirname(caller))) == "pyspark"


def _reading(names: Names, on_read: OnRead) -> list[Patch]:
    """Return readers that ask at each read of a dataset of the project, and leave all others alone."""
    stream_table, batch_table, session_table = DataStreamReader.table, DataFrameReader.table, SparkSession.table
    session_sql = SparkSession.sql

    def view(name: object, is_stream: bool) -> Any:
        dataset = names.find(name) if isinstance(name, str) else None
        return name if dataset is None else on_read(dataset, is_stream)

    def read_stream(reader: DataStreamReader, tableName: str) -> DataFrame:
        return stream_table(reader, view(tableName, True))

    def read_batch(reader: DataFrameReader, tableName: str) -> DataFrame:
        return batch_table(reader, view(tableName, False))

    def read_table(session: SparkSession, tableName: str) -> DataFrame:
        return session_table(session, view(tableName, False))

    def read_sql(session: SparkSession, sqlQuery: str, *arguments: Any, **named: Any) -> DataFrame:
        return session_sql(session, _rewritten(session, sqlQuery, view), *arguments, **named)

    return [
        (DataStreamReader, "table", read_stream),
        (DataFrameReader, "table", read_batch),
        (SparkSession, "table", read_table),
        (SparkSession, "sql", read_sql),
    ]


def _rewritten(session: SparkSession, text: str, view: Callable[[str, bool], str]) -> str:
    """Return SQL text in which the datasets of the project go by the views that stand for them."""
    try:
        plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except Exception:  # noqa: BLE001 - Spark says it better when it gets the text itself; braces come here too
        return text
    spans = []
    for name, is_stream, start, stop in _relations(plan):
        asked = ".".join("`" + part.replace("`", "``") + "`" for part in name)
        found = view(asked, is_stream)
        if found != asked:
            spans.append((start, stop, name, found))
    for start, stop, name, found in sorted(spans, reverse=True):
        pattern = r"\s*\.\s*".join(f"(?:`{re.escape(part)}`|{re.escape(part)})" for part in name)
        named = re.search(pattern, text[start : stop + 1], re.IGNORECASE)
        assert named is not None, "the parser found it here"
        text = text[: start + named.start()] + found + text[start + named.end() :]
    return text


def _relations(plan: Any) -> Iterator[tuple[tuple[str, ...], bool, int, int]]:
    """Yield the tables that a parsed statement names: name, whether read as a stream, first and last character."""
    waiting, own, seen = [plan], set(), set()
    while waiting:
        each = waiting.pop()
        kind = each.getClass().getSimpleName()
        if kind == "UnresolvedWith":  # its own names are not the project's
            for i in range(each.cteRelations().size()):
                own.add(str(each.cteRelations().apply(i)._1()).lower())
        if kind == "UnresolvedRelation":
            found = each.multipartIdentifier()
            name = tuple(str(found.apply(i)) for i in range(found.size()))
            start, stop = each.origin().startIndex().get(), each.origin().stopIndex().get()
            if not (len(name) == 1 and name[0].lower() in own) and start not in seen:
                seen.add(start)
                yield name, bool(each.isStreaming()), start, stop
        for more in (each.children(), each.innerChildren()):
            waiting.extend(more.apply(i) for i in range(more.size()))


@contextlib.contextmanager
def _importing(files: Files, modules: Modules) -> Iterator[None]:
    """Let the project's modules be imported, and take them away again: another project may have the same names."""
    folders = list(dict.fromkeys([files.folder, *(os.path.dirname(each) for each in files.libraries)]))
    path, before, writes_none = list(sys.path), dict(sys.modules), sys.dont_write_bytecode
    sys.path[:0] = folders
    sys.modules.update(modules)
    sys.dont_write_bytecode = True  # the project's folder stays as it is
    # Spark's Python processes do not have the project's folder: functions travel whole, not by their module's name.
    by_value = _PICKLE_BY_VALUE_MODULES
    own = {name for folder in folders for name in _importable(folder)} - by_value
    by_value |= own
    try:
        yield
    finally:
        by_value -= own
        sys.dont_write_bytecode = writes_none
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if before.get(name) is not module and isinstance(file, str) and files.holds(file):
                modules[name] = module
                del sys.modules[name]
        for name in before.keys() - sys.modules.keys():
            sys.modules[name] = before[name]


def _importable(folder: str) -> Iterator[str]:
    """Yield the names of modules and packages in a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name.removesuffix(".py")
            if name.isidentifier() and (entry.name != name or entry.is_dir()):
                yield name
