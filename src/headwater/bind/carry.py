"""How does each row remember which record it came from?

A user's function selects the columns it likes, so a column of ours would be lost at the first `select`.
`carry` takes the analysed plan of a query and gives the same query with one column more, the mark: when
and where the record was born, and which record of the fragment's own input the row was made of. User
code never sees it. Kafka's topic, partition and offset are at the foot of every plan, so nothing has to
be added to the user's records.

What becomes of the mark:
- a projection, a union, a join with a table hands it on;
- an aggregate hands on the mark of the last record that it took in: the one that made it speak;
- one record that becomes several rows gives each an index, so that no two rows share a mark: the place in
  an exploded list, the key of a group, the branch of a union, or, where none of these exists, a hash of the
  row (equal rows of one record then share a mark);
- what takes whole batches (pandas, Arrow, custom state) loses it: `carry` then says so by giving None.

Catalyst plans are JVM values; this module walks them through py4j and rebuilds only what drops columns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType, _parse_datatype_json_string

from headwater.bind.session import java_class

__all__ = ["MARK", "carry", "mark_of_record"]

MARK = "__headwater"  # the name of the column that holds the mark
_PLACE = "__headwater_place"  # a passing column: which of a record's rows
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
# Nodes that give each row of their child again, whatever columns it has.
_TRANSPARENT = frozenset(
    {
        "Filter",
        "EventTimeWatermark",
        "CollectMetrics",
        "Sample",
        "ResolvedHint",
        "UnresolvedHint",
        "RepartitionByExpression",
        "Repartition",
        "RebalancePartitions",
    }
)
_ALIASES = frozenset({"SubqueryAlias", "View"})


def mark_of_record(created: Column, origin: Column) -> Column:
    """Return the mark of a record as the Kafka source gives it."""
    return F.struct(
        created.alias("created"),  # when the record was born, in ms
        origin.alias("origin"),  # where it was born
        F.col("topic").alias("topic"),  # these three: the record of the fragment's input
        F.col("partition").alias("partition"),
        F.col("offset").alias("offset"),
        F.unix_millis("timestamp").alias("arrived"),  # when it was written there, in ms
        F.lit(0).cast("long").alias("index"),  # which of its rows
    )


def carry(frame: DataFrame, site: str, wanted: Column | None = None) -> DataFrame | None:
    """Return the query with its mark as the last column, or None where some part of it loses the mark.

    Args:
        frame: A streaming query.
        site: The site whose sources it reads; part of a newborn record's origin.
        wanted: Which records of its sources to take at all, told by topic, partition and offset.
    """
    walk = _Walk(frame.sparkSession, site, wanted)
    whole = frame._jdf.queryExecution().analyzed()
    found = walk.carried(whole)
    if found is None:
        return None
    marked = walk.frame(walk.project(whole.output(), found))
    return marked if found.is_unique else _hashed(marked)


def _hashed(marked: DataFrame) -> DataFrame:
    """Return the rows with a hash of each as the index of its mark; the mark is the last column."""
    names = [f"_{i}" for i in range(len(marked.columns) - 1)]  # the user's may be there twice
    numbered = marked.toDF(*names, MARK)
    cells = [
        F.to_json(F.struct(one.name)) if not _is_hashable(one.dataType) else F.col(one.name) for one in numbered.schema
    ]
    index = F.xxhash64(*cells)
    return numbered.withColumn(MARK, F.col(MARK).withField("index", index)).toDF(*marked.columns)


def _is_hashable(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_hashable(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_hashable(field.dataType) for field in kind.fields)
    return not isinstance(kind, (MapType, VariantType))


@dataclass(frozen=True, slots=True)
class _Plan:
    plan: Any  # a logical plan with the mark among its output
    mark: Any  # the attribute
    is_unique: bool = True  # whether no two rows have the same mark


class _Walk:
    def __init__(self, spark: SparkSession, site: str, wanted: Column | None) -> None:
        self._spark = spark
        self._site = site
        self._wanted = wanted

    def carried(self, node: Any) -> _Plan | None:
        """Return the plan with the mark in its output, or None."""
        ready = self._mark_in(node)
        if ready is not None:
            return _Plan(node, ready)
        kind = node.nodeName()
        if kind in _ALIASES:
            return self.carried(self.listed(node.children())[0])
        if kind in _TRANSPARENT:
            return self._through(node)
        step = getattr(self, f"_{kind.lower()}", None)
        return None if step is None else step(node)

    def _withcte(self, node: Any) -> _Plan | None:  # SQL's WITH
        return self.carried(
            self.make("org.apache.spark.sql.catalyst.optimizer.InlineCTE", True, False, False).apply(node)
        )

    def frame(self, plan: Any) -> DataFrame:
        dataset = self._class("org.apache.spark.sql.classic.Dataset").ofRows(self._spark._jsparkSession, plan)
        return DataFrame(dataset, self._spark)

    def make(self, name: str, *arguments: Any) -> Any:
        """Call a JVM constructor."""
        return self._class(name)(*arguments)

    def _class(self, name: str) -> Any:
        return java_class(self._spark, name)

    def listed(self, sequence: Any) -> list[Any]:
        return [sequence.apply(i) for i in range(sequence.size())]

    def sequence(self, items: list[Any]) -> Any:
        return self._class("org.apache.spark.api.python.PythonUtils").toSeq(items)

    def _mark_in(self, node: Any) -> Any | None:
        return next((one for one in self.listed(node.output()) if one.name() == MARK), None)

    def _with_child(self, node: Any, plan: Any) -> Any:
        return node.withNewChildren(self.sequence([plan]))

    def _through(self, node: Any) -> _Plan | None:
        below = self.carried(self.listed(node.children())[0])
        return None if below is None else replace(below, plan=self._with_child(node, below.plan))

    def _deduplicate(self, node: Any) -> _Plan | None:
        # The key columns are given: "all columns" would be looked up again when the query runs, the mark among them.
        return self._keyed("Deduplicate", node.keys(), node)

    def _deduplicatewithinwatermark(self, node: Any) -> _Plan | None:
        return self._keyed("DeduplicateWithinWatermark", node.keys(), node)

    def _distinct(self, node: Any) -> _Plan | None:
        return self._keyed("Deduplicate", node.child().output(), node)

    def _keyed(self, kind: str, keys: Any, node: Any) -> _Plan | None:
        below = self.carried(node.child())
        if below is None:
            return None
        return replace(below, plan=self.make(f"{_LOGICAL}.{kind}", keys, below.plan, self._nothing()))

    def _streamingrelationv2(self, node: Any) -> _Plan | None:
        names = {one.name() for one in self.listed(node.output())}
        if not {"topic", "partition", "offset", "timestamp"} <= names or node.sourceName() != "kafka":
            return None
        origin = F.concat_ws("/", F.lit(self._site), "topic", "partition", "offset")
        records = self.frame(node)
        if self._wanted is not None:
            records = records.where(self._wanted)
        marked = records.withColumn(MARK, mark_of_record(F.unix_millis("timestamp"), origin))
        plan = marked._jdf.queryExecution().analyzed()
        return _Plan(plan, self._mark_in(plan))

    def project(self, columns: Any, below: _Plan) -> Any:
        """Return a projection of the columns, and of the mark."""
        return self.make(f"{_LOGICAL}.Project", self.sequence([*self.listed(columns), below.mark]), below.plan)

    def _project(self, node: Any) -> _Plan | None:
        below = self.carried(node.child())
        return None if below is None else replace(below, plan=self.project(node.projectList(), below))

    def _generate(self, node: Any) -> _Plan | None:
        below = self.carried(node.child())
        if below is None:
            return None
        generator = node.generator()
        kind = generator.getClass().getSimpleName()
        output = self.listed(node.generatorOutput())
        if kind == "Explode":
            place = self._attribute(_PLACE)
            generator, output = self.make(f"{_EXPRESSIONS}.PosExplode", generator.child()), [place, *output]
        elif kind != "PosExplode":
            return _Plan(self._with_child(node, below.plan), below.mark, is_unique=False)
        plan = self.make(
            f"{_LOGICAL}.Generate",
            generator,
            node.unrequiredChildIndex(),
            node.outer(),
            node.qualifier(),
            self.sequence(output),
            below.plan,
        )
        if kind == "PosExplode":
            columns = self._added(plan.output(), self._alias(output[0], _PLACE))
            plan = self.make(f"{_LOGICAL}.Project", columns, plan)
        # A row of a list within a list gets a hash of both places: no number has room for all of them.
        before, at = F.col(f"{MARK}.index"), F.coalesce(F.col(_PLACE), F.lit(-1)) + 1
        found = self._with_index(plan, F.when(before == 0, at).otherwise(F.xxhash64(before, at)))
        return replace(found, is_unique=below.is_unique)

    def _union(self, node: Any) -> _Plan | None:
        parts = []
        is_unique = True
        for number, child in enumerate(self.listed(node.children())):
            below = self.carried(child)
            if below is None:
                return None
            plan = self.project(child.output(), below)
            if number > 0:  # one record may come through several branches
                plan = self._with_index(plan, F.xxhash64(F.col(f"{MARK}.index"), F.lit(number))).plan
            parts.append(plan)
            is_unique = is_unique and below.is_unique
        whole = node.withNewChildren(self.sequence(parts))
        return _Plan(whole, self.listed(whole.output())[-1], is_unique)

    def _join(self, node: Any) -> _Plan | None:
        left, right = self.listed(node.children())
        if left.isStreaming() and right.isStreaming():
            return None
        below = self.carried(left if left.isStreaming() else right)
        if below is None:
            return None
        pair = [below.plan, right] if left.isStreaming() else [left, below.plan]
        # A record may meet several rows of the table.
        return _Plan(node.withNewChildren(self.sequence(pair)), below.mark, is_unique=False)

    def _expand(self, node: Any) -> _Plan | None:  # sliding windows
        below = self.carried(node.child())
        if below is None:
            return None
        copies = self.sequence([self._added(one, below.mark) for one in self.listed(node.projections())])
        output = self._added(node.output(), below.mark)
        return _Plan(self.make(f"{_LOGICAL}.Expand", copies, output, below.plan), below.mark, is_unique=False)

    def _aggregate(self, node: Any) -> _Plan | None:
        below = self.carried(node.child())
        if below is None:
            return None
        last = self.make(f"{_EXPRESSIONS}.aggregate.Last", below.mark, False).toAggregateExpression()
        groups = self.listed(node.groupingExpressions())
        is_hashable = all(_is_hashable(_parse_datatype_json_string(one.dataType().json())) for one in groups)
        if not groups or not is_hashable:
            mark = self._alias(last, MARK)
            columns = self._added(node.aggregateExpressions(), mark)
            plan = self.make(f"{_LOGICAL}.Aggregate", node.groupingExpressions(), columns, below.plan, node.hint())
            return _Plan(plan, mark.toAttribute(), is_hashable)
        group = self.make(f"{_EXPRESSIONS}.XxHash64", node.groupingExpressions(), 0)
        columns = [*self.listed(node.aggregateExpressions()), self._alias(last, MARK), self._alias(group, _PLACE)]
        plan = self.make(
            f"{_LOGICAL}.Aggregate", node.groupingExpressions(), self.sequence(columns), below.plan, node.hint()
        )
        return self._with_index(plan, F.col(_PLACE))

    def _with_index(self, plan: Any, index: Column) -> _Plan:
        """Give the mark of each row an index, and drop the column that it was made of."""
        marked = self.frame(plan).withColumn(MARK, F.col(MARK).withField("index", index.cast("long"))).drop(_PLACE)
        analyzed = marked._jdf.queryExecution().analyzed()
        return _Plan(analyzed, self._mark_in(analyzed))

    def _added(self, sequence: Any, item: Any) -> Any:
        return self.sequence([*self.listed(sequence), item])

    def _alias(self, expression: Any, name: str) -> Any:
        return self.make(
            f"{_EXPRESSIONS}.Alias",
            expression,
            name,
            self._new_id(),
            self.sequence([]),
            self._nothing(),
            self.sequence([]),
        )

    def _attribute(self, name: str) -> Any:
        types = "org.apache.spark.sql.types"
        return self.make(
            f"{_EXPRESSIONS}.AttributeReference",
            name,
            self._class(f"{types}.DataTypes").IntegerType,
            True,
            self._class(f"{types}.Metadata").empty(),
            self._new_id(),
            self.sequence([]),
        )

    def _new_id(self) -> Any:
        return self._class(f"{_EXPRESSIONS}.NamedExpression").newExprId()

    def _nothing(self) -> Any:
        return self._class("scala.Option").empty()
