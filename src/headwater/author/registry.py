"""What does the project's code define?

Spark's decorators hand every dataset, sink and flow to the registry that is active; this one keeps them and
notes what Headwater does not run.

    HW1606  a definition that is not supported
    HW1607  one name for two definitions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pyspark.pipelines.flow import AutoCdcFlow
from pyspark.pipelines.flow import Flow as SparkFlow
from pyspark.pipelines.graph_element_registry import GraphElementRegistry
from pyspark.pipelines.output import MaterializedView, Sink, StreamingTable, Table
from pyspark.pipelines.output import Output as SparkOutput
from pyspark.pipelines.source_code_location import SourceCodeLocation
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headwater.author.names import Names
from headwater.errors import Mistake
from headwater.model.project import Kind
from headwater.model.report import quote

__all__ = ["Flow", "Output", "Registry"]


@dataclass(frozen=True, slots=True)
class Output:
    """A dataset or a sink: an operator to be."""

    name: str
    kind: Kind
    file: str  # as the user named the project, then the library within it
    line: int
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # of a sink
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # of a table
    schema: StructType | str | None = None  # that a table declares
    partition_by: tuple[str, ...] = ()  # columns of a table


@dataclass(frozen=True, slots=True)
class Flow:
    """A function that gives the rows of a target."""

    name: str
    target: str  # as the output spells it, once there is one
    func: Callable[[], DataFrame]
    file: str
    line: int
    spark_conf: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class Registry(GraphElementRegistry):
    """Keeps definitions in the order in which the code makes them."""

    def __init__(self, names: Names, show: Callable[[str], str]) -> None:
        """Begin empty; `show` says how messages name a file."""
        self.outputs: list[Output] = []
        self.flows: list[Flow] = []
        self.mistakes: list[Mistake] = []
        self._names = names
        self._show = show
        self._outputs: dict[tuple[str, ...], Output] = {}
        self._flows: dict[tuple[str, ...], Flow] = {}
        self._refused: set[tuple[str, ...]] = set()
        self._told: set[tuple[str, int]] = set()  # places of second definitions

    def register_output(self, output: SparkOutput) -> None:
        """Take a dataset or a sink."""
        file, line = self._place(output.source_code_location)
        key = self._names.key(output.name)
        if isinstance(output, MaterializedView):
            self._refused.add(key)
            self._refuse(
                f"materialized view {quote(output.name)} is computed in whole batches, and Headwater runs streams. "
                "Make it a table (@dp.table) whose function reads with spark.readStream.",
                output.source_code_location,
            )
            return
        made = Output(output.name, "view", file, line)
        if isinstance(output, Sink):
            made = Output(
                output.name,
                "sink",
                file,
                line,
                output.format,
                {key: str(value) for key, value in output.options.items()},
            )
        elif isinstance(output, Table):
            assert isinstance(output, StreamingTable), "there is no third kind of table"
            made = Output(
                output.name,
                "table",
                file,
                line,
                output.format,
                properties=dict(output.table_properties),
                schema=output.schema,
                partition_by=(*(output.partition_cols or ()), *(output.cluster_by or ())),
            )
        first = self._outputs.setdefault(key, made)
        if first is made:
            self.outputs.append(made)
        else:
            self._twice(f"{made.kind} {quote(made.name)}", first, made)
            self._told.add((file, line))

    def register_flow(self, flow: SparkFlow) -> None:
        """Take a flow; its function is not called yet."""
        if self._names.key(flow.target) in self._refused:
            return
        file, line = self._place(flow.source_code_location)
        made = Flow(flow.name, flow.target, flow.func, file, line, dict(flow.spark_conf))
        first = self._flows.setdefault(self._names.key(flow.name), made)
        if first is made:
            self.flows.append(made)
        elif (file, line) not in self._told:  # the function of a second table
            self._twice(f"flow {quote(made.name)}", first, made)

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        """Refuse a flow of changes."""
        self._refuse(
            f"the flow of changes into {quote(flow.target)} (create_auto_cdc_flow) is not supported. Write an append "
            "flow that gives the changed rows, and merge where they are stored.",
            flow.source_code_location,
        )

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        """Refuse SQL text; files of it are refused before they get here."""
        del sql_text
        self._refuse(
            "SQL that defines datasets is not supported. Write its queries with spark.sql in functions of flows.",
            SourceCodeLocation(str(file_path), 1),
        )

    def _place(self, location: SourceCodeLocation) -> tuple[str, int]:
        return self._show(location.filename), location.line_number or 1

    def _refuse(self, text: str, location: SourceCodeLocation) -> None:
        self.mistakes.append(Mistake("HW1606", text, *self._place(location)))

    def _twice(self, what: str, first: Output | Flow, again: Output | Flow) -> None:
        self.mistakes.append(
            Mistake(
                "HW1607",
                f"{what} is defined here and at {first.file}:{first.line}. Spark's names are the same in any case of "
                "letters. Rename one of the two.",
                again.file,
                again.line,
            )
        )
