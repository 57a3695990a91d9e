"""Who reads whom, and what do they give?

Calls the function of every flow, writers before readers, with a stand-in for each stream that it reads: an
empty stream of the same columns. So the plan of an operator holds its own part and nothing of what comes
before it. `build` calls the same functions with real streams in their place.

    HW1610  a dataset is read that does not exist
    HW1611  a cycle
    HW1612  a dataset of the project is read as a batch, or a sink is read
    HW1613  a flow that gives no stream
    HW1614  columns that do not fit together
    HW1615  one operator reads from outside and does something else as well
    HW1616  Spark refuses the operator
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from headwater.author.failures import failure, line_in, missing_table, said, tip
from headwater.author.load import Loaded
from headwater.author.names import parts, view_of
from headwater.author.registry import Flow, Output
from headwater.author.surroundings import OnRead, running
from headwater.author.traits import Held, held
from headwater.errors import BrokenInvariant, Mistake
from headwater.model.project import Emit
from headwater.model.report import listed, quote

__all__ = ["Graph", "Node", "build", "explore"]

MODES: Mapping[Emit, str] = {"updates": "Update", "final": "Append"}  # Spark's names of them
NULLABLE = "spark.sql.streaming.fileSource.schema.forceNullable"


@dataclass(frozen=True, slots=True)
class Node:
    """One operator as Spark sees it."""

    output: Output
    reads: tuple[str, ...]
    schema: StructType
    held: Held
    refused: Mapping[Emit, str]  # why Spark does not run it in this way; missing: it does


@dataclass(frozen=True, slots=True)
class Graph:
    """The operators of a project that could be understood, in the order of their definition."""

    nodes: tuple[Node, ...]
    mistakes: tuple[Mistake, ...]


def build(loaded: Loaded, target: str, inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Return the rows of one operator, made of the streams given for what it reads.

    Args:
        loaded: the project.
        target: the operator.
        inputs: a stream for each operator that it reads; views of these names are replaced in the session.
    """
    for name, frame in inputs.items():
        frame.createOrReplaceTempView(view_of(name))

    def on_read(dataset: str, is_stream: bool) -> str:
        del is_stream
        if dataset not in inputs:
            raise BrokenInvariant(f"HW9016 operator '{target}' reads '{dataset}', for which no stream was given")
        return view_of(dataset)

    frames = []
    for flow in loaded.flows_of(target):
        with running(loaded.files, loaded.modules, (loaded.names, on_read)):
            frames.append(flow.func())
    return _union(frames)


def explore(loaded: Loaded, spark: SparkSession) -> Graph:
    """Return the graph of a project, with every mistake that shows by calling its flows."""
    with tempfile.TemporaryDirectory(prefix="headwater-") as empty:
        walk = _Walk(loaded, spark, empty)
        try:
            for output in loaded.outputs:
                walk.visit(output.name)
        finally:
            for name in walk.stood_in:
                spark.catalog.dropTempView(".".join(parts(name)))
    nodes = [walk.done[output.name] for output in loaded.outputs]
    return Graph(tuple(node for node in nodes if node is not None), tuple(walk.mistakes))


class _NotYet(BaseException):  # no library may catch it as an error
    """A dataset is read before there is anything to stand for it."""

    def __init__(self, dataset: str) -> None:
        super().__init__(dataset)
        self.dataset = dataset


class _Wrong(BaseException):
    """A read that cannot be allowed."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class _Walk:
    """What is known so far."""

    def __init__(self, loaded: Loaded, spark: SparkSession, empty: str) -> None:
        self.loaded = loaded
        self.spark = spark
        self.empty = empty  # a folder
        self.done: dict[str, Node | None] = {}  # None: something is wrong with it, and was told
        self.frames: dict[str, DataFrame] = {}  # by flow
        self.stood_in: list[str] = []
        self.mistakes: list[Mistake] = []

    def visit(self, name: str) -> None:
        """Understand one dataset, after all that it reads."""
        stack = [name]
        while stack:
            top = stack[-1]
            if top not in self.done:
                try:
                    self.done[top] = self._node(top)
                except _NotYet as read:
                    if read.dataset in stack:
                        self._cycle(stack[stack.index(read.dataset) :], read)
                        self.done[top] = None
                    elif read.dataset in self.done:  # it is wrong, and that was told
                        self.done[top] = None
                    else:
                        stack.append(read.dataset)
                        continue
            stack.pop()

    def _node(self, name: str) -> Node | None:
        output = self.loaded.by_name[name]
        flows = self.loaded.flows_of(name)
        results = [self._result(flow) for flow in flows]  # all of them, so that the mistakes of all are told
        frames = [frame for frame in results if frame is not None]
        if not frames or len(frames) < len(results) or not self._fit(output, flows, frames):
            return None
        frame = _union(frames)
        views = {view_of(each)[1:-1].replace("``", "`"): each for each in self.stood_in}
        found = held(frame, views)
        node = Node(output, tuple(views[view] for view in found.reads), frame.schema, found, self._refused(frame))
        wrong = list(_wrong_node(node))
        self.mistakes.extend(wrong)
        if output.kind != "sink":
            self._stand_in(name, frame)
        return None if wrong else node

    def _result(self, flow: Flow) -> DataFrame | None:
        if flow.name in self.frames:
            return self.frames[flow.name]
        what = f"flow {quote(flow.name)}"
        place = flow.file, flow.line
        try:
            with running(self.loaded.files, self.loaded.modules, (self.loaded.names, self._on_read(flow))):
                frame: object = flow.func()
        except _NotYet as read:
            if read.dataset in self.done:  # wrong: nothing more to say about who reads it
                self.done.setdefault(flow.target, None)
                return None
            raise
        except _Wrong as wrong:
            place = line_in(wrong, self.loaded.files) or place
            self._add(Mistake(wrong.code, f"{what} {wrong.text}", *place))
            return None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises
            missing = missing_table(error)
            known = None if missing is None else self.loaded.names.find(missing)
            if known is not None and known not in self.done:
                raise _NotYet(known).with_traceback(error.__traceback__) from None
            if missing is not None:
                place = line_in(error, self.loaded.files) or place
                readable = [each.name for each in self.loaded.outputs if each.kind != "sink"]
                text = (
                    f"{what} reads {quote(missing)}, which is neither a dataset of the project nor a table that Spark "
                    f"knows.{tip(missing, readable)}"
                )
                self._add(Mistake("HW1610", text, *place))
            else:
                self._add(failure(error, what, self.loaded.files, flow.line, flow.file))
            return None
        because = _no_stream(frame)
        if because is not None:
            self._add(Mistake("HW1613", f"{what} {because}", *place))
            return None
        assert isinstance(frame, DataFrame), "else there was a reason"
        self.frames[flow.name] = frame
        return frame

    def _on_read(self, flow: Flow) -> OnRead:
        def on_read(dataset: str, is_stream: bool) -> str:
            kind = self.loaded.by_name[dataset].kind
            if kind == "sink":
                raise _Wrong("HW1612", f"reads {quote(dataset)}, which is a sink. Read what is written to it instead.")
            if not is_stream:
                raise _Wrong(
                    "HW1612",
                    f"reads {quote(dataset)} as a batch, and datasets of a project are streams here. Write "
                    f"spark.readStream.table({dataset!r}), in SQL FROM STREAM {dataset}; for a table that does not "
                    "move, write a plain function that returns its DataFrame and call it.",
                )
            if self.done.get(dataset) is None or dataset == flow.target:
                raise _NotYet(dataset)
            return view_of(dataset)

        return on_read

    def _add(self, mistake: Mistake) -> None:
        if mistake not in self.mistakes:  # a flow may be called more than once
            self.mistakes.append(mistake)

    def _cycle(self, names: list[str], read: _NotYet) -> None:
        flow = self.loaded.flows_of(names[-1])[0]
        file, line = line_in(read, self.loaded.files) or (flow.file, flow.line)
        way = " <- ".join(quote(each, 40) for each in (*names, names[0]))
        text = (
            f"{quote(names[0])} reads itself. Remove that read."
            if len(names) == 1
            else f"the datasets form a cycle: {way}. Remove one of these reads."
        )
        self._add(Mistake("HW1611", text, file, line))

    def _fit(self, output: Output, flows: Sequence[Flow], frames: Sequence[DataFrame]) -> bool:
        """Return whether the columns of an output's flows fit together, and note why not."""
        before = len(self.mistakes)
        for flow, frame in zip(flows, frames, strict=True):
            seen: set[str] = set()
            double = [each for each in frame.columns if each.lower() in seen or seen.add(each.lower())]  # type: ignore[func-returns-value]
            if double:
                text = f"flow {quote(flow.name)} gives two columns {quote(double[0])}. Drop or rename one of them."
                self._add(Mistake("HW1614", text, flow.file, flow.line))
            difference = _difference(frames[0].schema, frame.schema)
            if difference is not None:
                text = (
                    f"flow {quote(flow.name)} into {quote(output.name)} gives {difference[1]}, but flow "
                    f"{quote(flows[0].name)} gives {difference[0]}. Flows into one target must have the same columns."
                )
                self._add(Mistake("HW1614", text, flow.file, flow.line))
        if output.schema is not None and before == len(self.mistakes):
            declared = output.schema
            schema = DataType.fromDDL(declared) if isinstance(declared, str) else declared
            assert isinstance(schema, StructType), "the columns of a table"
            difference = _difference(schema, frames[0].schema)
            if difference is not None:
                text = (
                    f"flow {quote(flows[0].name)} gives {difference[1]}, but the schema of table "
                    f"{quote(output.name)} has {difference[0]}. Change one of the two."
                )
                self._add(Mistake("HW1614", text, flows[0].file, flows[0].line))
        return before == len(self.mistakes)

    def _refused(self, frame: DataFrame) -> Mapping[Emit, str]:
        """Return why Spark would not run a plan as one query, for each way of emitting that it refuses."""
        jvm: Any = self.spark._jvm
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        refused: dict[Emit, str] = {}
        for emit, mode in MODES.items():
            try:
                checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), getattr(modes, mode)())
            except PySparkException as error:
                refused[emit] = said(error)
        return refused

    def _stand_in(self, name: str, frame: DataFrame) -> None:
        before = self.spark.conf.get(NULLABLE)
        try:
            self.spark.conf.set(NULLABLE, "false")
            empty = self.spark.readStream.schema(frame.schema).format("parquet").load(self.empty)
        except PySparkException:  # a type that no file holds
            empty = frame
        finally:
            self.spark.conf.set(NULLABLE, before or "true")
        empty.createOrReplaceTempView(view_of(name))
        self.stood_in.append(name)


def _wrong_node(node: Node) -> Iterator[Mistake]:
    output = node.output
    place = output.file, output.line
    outside = " and ".join(quote(each) for each in node.held.sources)
    split = "Put the reading into a function of its own, marked @dp.temporary_view, and read that as a stream."
    if node.held.sources and node.reads:
        yield Mistake(
            "HW1615",
            f"{output.kind} {quote(output.name)} reads {outside} from outside and {listed(node.reads)} of the project. "
            f"{split}",
            *place,
        )
    elif output.kind == "sink" and not node.reads:
        yield Mistake("HW1615", f"sink {quote(output.name)} reads {outside} from outside by itself. {split}", *place)
    if len(node.refused) == len(MODES):
        yield Mistake(
            "HW1616",
            f"Spark does not run operator {quote(output.name)} as one query: {node.refused['final']} If it groups, "
            "joins or deduplicates more than once, make each of these a table of its own that the next one reads.",
            *place,
        )


def _no_stream(frame: object) -> str | None:
    """Return why a value is not what a flow must give."""
    if frame is None:
        return "gives nothing. Its function must return a DataFrame; is 'return' missing?"
    if not isinstance(frame, DataFrame):
        return f"gives a value of type {quote(type(frame).__name__)}. Its function must return a DataFrame."
    if not frame.isStreaming:
        return (
            "gives a DataFrame that is no stream. Read with spark.readStream; for a table that does not move, write a "
            "plain function that returns its DataFrame and call it."
        )
    return None


def _difference(wanted: StructType, found: StructType) -> tuple[str, str] | None:
    """Return the first column in which two schemas differ, as each of them has it; order does not count."""
    ours = {field.name.lower(): field for field in wanted.fields}
    theirs = {field.name.lower(): field for field in found.fields}
    for name in dict.fromkeys((*ours, *theirs)):
        if name not in theirs:
            return f"column {quote(ours[name].name)}", "none of that name"
        if name not in ours:
            return f"no column {quote(theirs[name].name)}", "one"
        one, other = ours[name].dataType.simpleString(), theirs[name].dataType.simpleString()
        if one != other:
            return f"column {quote(name)} as {one}", f"it as {other}"
    return None


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)
