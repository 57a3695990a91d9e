"""What does Spark's plan of an operator hold?

Walks the analyzed plan of a DataFrame through py4j, down to the views that stand for other operators and no
further, and gives what decides where and how the operator can run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.util import PythonEvalType

from headwater.model.project import Trait

__all__ = ["Held", "held"]

# By the name of the plan's node; each counts only on a stream.
_TRAITS: dict[str, tuple[Trait, ...]] = {
    "Aggregate": ("aggregate",),
    "Distinct": ("deduplicate",),
    "Deduplicate": ("deduplicate",),
    "DeduplicateWithinWatermark": ("deduplicate",),
    "FlatMapGroupsWithState": ("custom-state",),
    "FlatMapGroupsInPandasWithState": ("custom-state", "arrow"),
    "TransformWithState": ("custom-state",),
    "TransformWithStateInPySpark": ("custom-state", "arrow"),
    "TransformWithStateInPandas": ("custom-state", "arrow"),
    "FlatMapGroupsInPandas": ("arrow",),
    "FlatMapGroupsInArrow": ("arrow",),
    "FlatMapCoGroupsInPandas": ("arrow",),
    "FlatMapCoGroupsInArrow": ("arrow",),
    "MapInPandas": ("arrow",),
    "MapInArrow": ("arrow",),
    "PythonMapInArrow": ("arrow",),
    "Generate": ("generate",),
    "Expand": ("generate",),  # windows that overlap
    "EventTimeWatermark": ("watermark",),
    "UpdateEventTimeWatermarkColumn": ("watermark",),
}
_ROW_BY_ROW = frozenset((PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_TABLE_UDF))
_FUNCTIONS = frozenset(("PythonUDF", "PythonUDAF", "PythonUDTF"))


class Held(NamedTuple):
    """What an operator's own part of a plan holds."""

    reads: tuple[str, ...]  # views of other operators, in the order of first use
    sources: tuple[str, ...]  # formats of the streams that it reads from outside, likewise
    traits: frozenset[Trait]


def held(frame: DataFrame, views: Collection[str]) -> Held:
    """Return what the plan of a DataFrame holds; `views` are the names at which the walk turns back."""
    reads: dict[str, None] = {}
    sources: dict[str, None] = {}
    traits: set[Trait] = set()
    known = {view.lower(): view for view in views}
    waiting = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        kind = _kind(node)
        if kind == "View" and node.isTempView():
            view = known.get(str(node.desc().identifier().table()).lower())
            if view is not None:
                reads[view] = None
                continue
        if kind.startswith("StreamingRelation"):
            sources[_format(node, kind)] = None
        children = list(_each(node.children()))
        if node.isStreaming():
            traits.update(_TRAITS.get(kind, ()))
            if kind == "Join":
                both = all(child.isStreaming() for child in children)
                traits.add("stream-join" if both else "static-join")
            traits.update(_functions(node))
        waiting.extend(reversed([*children, *_each(node.subqueries())]))
    return Held(tuple(reads), tuple(sources), frozenset(traits))


def _functions(node: Any) -> Iterator[Trait]:
    """Yield how the Python functions of one node are called."""
    waiting = list(_each(node.expressions()))
    while waiting:
        expression = waiting.pop()
        kind = _kind(expression)
        if kind in _FUNCTIONS:
            yield "python" if expression.evalType() in _ROW_BY_ROW else "arrow"
        waiting.extend(_each(expression.children()))


def _format(node: Any, kind: str) -> str:
    name = str(node.dataSource().className() if kind == "StreamingRelation" else node.sourceName())
    return name.rpartition(".")[2].lower() if "." in name else name


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(found: Any) -> Iterator[Any]:
    return (found.apply(i) for i in range(found.size()))
