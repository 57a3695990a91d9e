"""Does Spark say of a project what `author` says that it says?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.model.keep import from_json, to_json
from tests.contract.desk import JARS, OFFSET, Desk, session, table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets of the gateway to Java
    pytest.mark.filterwarnings("ignore::DeprecationWarning:pyspark"),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    yield from session()


@pytest.fixture
def desk(spark: Any, tmp_path: Path) -> Desk:
    return Desk(spark, tmp_path)


@pytest.mark.parametrize(
    ("body", "traits"),
    [
        ("spark.readStream.table('ticks').where('value > 3')", ()),
        ("spark.readStream.table('ticks').select(F.udf(lambda x: x + 1, 'long')('value'))", ("python",)),
        ("spark.readStream.table('ticks').select(F.udf(lambda x: x, 'long', useArrow=True)('value'))", ("arrow",)),
        ("spark.readStream.table('ticks').mapInPandas(lambda frames: frames, 'value long')", ("arrow",)),
        ("spark.readStream.table('ticks').mapInArrow(lambda batches: batches, 'value long')", ("arrow",)),
        ("spark.readStream.table('ticks').groupBy('value').count()", ("aggregate",)),
        ("spark.readStream.table('ticks').withWatermark('timestamp', '1 second')", ("watermark",)),
        (
            "spark.readStream.table('ticks').withWatermark('timestamp', '1 second')"
            ".groupBy(F.window('timestamp', '2 seconds')).count()",
            ("aggregate", "watermark"),
        ),
        ("spark.readStream.table('ticks').dropDuplicates(['value'])", ("deduplicate",)),
        ("spark.readStream.table('ticks').distinct()", ("deduplicate",)),
        (
            "spark.readStream.table('ticks').withWatermark('timestamp', '1 second')"
            ".dropDuplicatesWithinWatermark(['value'])",
            ("deduplicate", "watermark"),
        ),
        (
            "spark.readStream.table('ticks').join(spark.readStream.table('ticks2').drop('timestamp'),"
            " F.expr('value = value2'))",
            ("stream-join",),
        ),
        ("spark.readStream.table('ticks').join(spark.range(3), F.expr('value = id'))", ("static-join",)),
        ("spark.readStream.table('ticks').select(F.explode(F.array('value', 'value')))", ("generate",)),
        ("spark.sql('SELECT value, count(*) AS n FROM STREAM ticks GROUP BY value')", ("aggregate",)),
        (
            "spark.readStream.table('ticks').groupBy('value').applyInPandasWithState("
            "lambda key, rows, state: rows, 'value long', 'seen long', 'append', 'NoTimeout')",
            ("arrow", "custom-state"),
        ),
    ],
)  # fmt: skip
def test_the_plan_of_an_operator_gives_its_traits(desk: Desk, body: str, traits: tuple[str, ...]) -> None:
    assert sorted(desk.one(table(body)).traits) == sorted(traits)


def test_transform_with_state_is_state_of_ones_own(desk: Desk) -> None:
    code = """
from pyspark.sql.streaming import StatefulProcessor

class Counter(StatefulProcessor):
    def init(self, handle):
        pass
    def handleInputRows(self, key, rows, timerValues):
        yield from ()
    def close(self):
        pass

@dp.table
def it():
    return spark.readStream.table("ticks").groupBy("value").transformWithStateInPandas(
        Counter(), "value long", "Update", "None")
"""
    assert desk.one(code).traits == {"custom-state", "arrow"}


def test_traits_are_of_the_operators_own_part_of_the_plan(desk: Desk) -> None:
    project = desk.read(
        table("spark.readStream.table('ticks').groupBy('value').count()", "counts")
        + table("spark.readStream.table('counts').where('count > 1')")
    )
    assert project.by_name["counts"].traits == {"aggregate"}
    assert project.by_name["it"].traits == frozenset()


def test_a_project_becomes_a_graph_with_schemas_formats_and_places(desk: Desk) -> None:
    project = desk.read(
        table("spark.readStream.table('TICKS').select('value')")
        + "dp.create_sink('out', 'kafka', {'topic': 'out'})\n\n"
        + "@dp.append_flow(target='out')\ndef send():\n"
        + "    return spark.readStream.table('it').selectExpr('string(value) AS value')\n"
    )
    assert [each.name for each in project.definitions] == ["ticks", "it", "out"]
    ticks, it, out = project.definitions
    assert (ticks.kind, it.kind, out.kind) == ("view", "table", "sink")
    assert (ticks.reads, it.reads, out.reads) == ((), ("ticks",), ("it",))
    assert (ticks.format, it.format, out.format) == ("rate", None, "kafka")
    assert out.options == (("topic", "out"),)
    assert '"name":"value"' in it.schema_json
    assert (it.file, it.line) == (str(desk.folder / "trial.py"), OFFSET + 1)
    assert out.line == OFFSET + 7
    assert project.pipeline.name == "trial"
    assert project.pipeline.order == ("ticks", "it", "out")
    assert [each.is_source for each in project.pipeline.operators] == [True, False, False]
    assert [each.is_sink for each in project.pipeline.operators] == [False, False, True]
    assert project.pipeline.by_name["ticks"].rate_rps == 100.0
    assert any("'ticks'" in note and "assumed" in note for note in project.notes)
    assert any("'ticks2'" in note and "left out" in note for note in project.notes)


def test_a_table_that_nobody_reads_is_written_as_parquet(desk: Desk) -> None:
    assert desk.one(table("spark.readStream.table('ticks')")).format == "parquet"


def test_a_kept_project_is_the_same_project(desk: Desk) -> None:
    project = desk.read(table("spark.readStream.table('ticks').groupBy('value').count()"))
    assert from_json(to_json(project)) == project


def test_reading_leaves_the_session_as_it_was(desk: Desk) -> None:
    before = dict(desk.spark.conf.getAll)
    desk.read(table("spark.readStream.table('ticks')"))
    assert dict(desk.spark.conf.getAll) == before
    assert desk.spark.catalog.listTables() == []


def test_several_flows_into_one_target_are_a_union(desk: Desk) -> None:
    code = """
dp.create_streaming_table("it")

@dp.append_flow(target="it")
def one():
    return spark.readStream.table("ticks").select("value", "timestamp")

@dp.append_flow(target="IT")
def two():
    return spark.readStream.table("ticks2").select("timestamp", F.col("value2").alias("value"))
"""
    definition = desk.one(code)
    assert definition.reads == ("ticks", "ticks2")
    assert definition.line == OFFSET + 4


@pytest.mark.parametrize("name", ["silver.hot", "SILVER.HOT", "spark_catalog.silver.hot", "`silver`.`hot`"])
@pytest.mark.parametrize("form", ["spark.readStream.table({!r})", "spark.sql('SELECT * FROM STREAM({}) AS h')"])
def test_a_name_may_have_several_parts_and_any_case(desk: Desk, name: str, form: str) -> None:
    read = form.format(name) if "!r" in form else form.replace("{}", name)
    code = "@dp.table(name='silver.hot')\ndef hot():\n    return spark.readStream.table('ticks')\n\n" + table(read)
    assert desk.one(code).reads == ("silver.hot",)


def test_sql_may_name_datasets_anywhere_and_have_names_of_its_own(desk: Desk) -> None:
    read = """spark.sql(\"\"\"WITH ticks2 AS (SELECT value AS v FROM STREAM ticks)
        SELECT * FROM ticks2 JOIN range(3) AS r ON r.id = v\"\"\")"""
    assert desk.one(table(read)).reads == ("ticks",)


def test_sql_may_take_frames_and_parameters(desk: Desk) -> None:
    read = "spark.sql('SELECT * FROM {t} WHERE value > :least', {'least': 3}, t=spark.readStream.table('ticks'))"
    assert desk.one(table(read)).reads == ("ticks",)


def test_libraries_import_their_siblings_and_two_projects_may_have_siblings_of_one_name(desk: Desk) -> None:
    import sys

    code = "from helpers import least\n\n" + table("spark.readStream.table('ticks').select(F.lit(least))")
    first = desk.one(code, files={"helpers.py": "least = 3\n"})
    second = desk.one(code, files={"helpers.py": "least = 'x'\n"})
    assert '"integer"' in first.schema_json
    assert '"string"' in second.schema_json
    assert "helpers" not in sys.modules
    assert not (desk.folder / "__pycache__").exists()


def test_libraries_run_in_the_projects_folder_with_its_configuration(desk: Desk) -> None:
    spec = """\
name: trial
storage: file:///unused
configuration: {trial.least: "7", headwater.broker: "elsewhere:1"}
libraries: [{glob: {include: "trial.py"}}, {glob: {include: "more/**"}}]
"""
    more = """\
from pyspark import pipelines as dp
assert open("least.txt").read() == "7"

@dp.table
def more():
    broker, site = spark.conf.get("headwater.broker"), spark.conf.get("headwater.site")
    assert broker == "broker.invalid:9092" and site
    return spark.readStream.table("ticks").where("value > " + spark.conf.get("trial.least"))
"""
    project = desk.read("", {"spark-pipeline.yml": spec, "more/deep/more.py": more, "least.txt": "7"})
    assert project.by_name["more"].file == str(desk.folder / "more" / "deep" / "more.py")
    assert project.configuration["trial.least"] == "7"


def test_settings_come_from_the_file_and_from_table_properties(desk: Desk) -> None:
    code = """
@dp.table(table_properties={"headwater.needs": "high", "headwater.lane": "micro-batch", "other": "x"})
def it():
    return spark.readStream.table("ticks")
"""
    settings = """\
pipeline: trial-2
operators:
  ticks: {each: "tag:edge", rate: 7/s, size: 2 kB}
  it: {once: true, work: 2 ms, on_error: quarantine}
goals: {p99: 500 ms, class: gold}
delivery: at-least-once
"""
    project = desk.read(code, {"headwater.yml": settings})
    it = project.by_name["it"]
    assert (it.once, it.lane, it.on_error, project.by_name["ticks"].each) == (
        True,
        "micro-batch",
        "quarantine",
        "tag:edge",
    )
    assert (project.pipeline.by_name["it"].needs, project.pipeline.by_name["it"].work_s) == (3, 0.002)
    assert project.pipeline.by_name["ticks"].rate_rps == 7.0
    assert (project.name, project.delivery, project.goals.p99_s, project.goals.quality) == (
        "trial-2", "at-least-once", 0.5, "gold",
    )  # fmt: skip
    assert not any("assumed" in note for note in project.notes)


def test_the_fingerprint_follows_every_file_and_not_the_place(desk: Desk, tmp_path: Path) -> None:
    from headwater.author.files import find

    path = desk.write(table("spark.readStream.table('ticks')"))
    first = find(path).fingerprint
    assert find(path).fingerprint == first
    moved = tmp_path.parent / f"{tmp_path.name}-moved"
    tmp_path.rename(moved)
    assert find(str(moved)).fingerprint == first
    (moved / "schema.json").write_text("{}")
    assert find(str(moved)).fingerprint != first


def test_what_spark_runs_in_one_way_only_is_emitted_in_that_way(desk: Desk) -> None:
    chain = (
        "spark.readStream.table('ticks').withWatermark('timestamp', '1 second')"
        ".groupBy(F.window('timestamp', '1 second'), 'value').count()"
        ".groupBy(F.window(F.window_time('window'), '5 seconds')).count()"
    )
    project = desk.read(table(chain))
    assert project.by_name["it"].emit == "final"
    assert any("'it'" in note and "final" in note for note in project.notes)
    count = table("spark.readStream.table('ticks').groupBy('value').count()")
    assert desk.one(count).emit == "updates"
    mistake = desk.mistake(count, {"headwater.yml": "operators: {it: {emit: final}}\n"})
    assert (mistake.code, mistake.line) == ("HW1616", OFFSET + 1)
    assert "emit: updates" in mistake.text


def test_build_gives_the_rows_of_an_operator_from_any_streams(desk: Desk) -> None:
    from headwater.author.graph import build
    from headwater.author.load import load

    code = table("spark.readStream.table('ticks').select(F.udf(lambda x: x + 1, 'long')('value').alias('v'))")
    loaded = load(desk.write(code), desk.spark)
    assert [flow.name for flow in loaded.flows_of("it")] == ["it"]
    given = build(loaded, "ticks", {}).where("value = 3")
    frame = build(loaded, "it", {"ticks": given})
    assert frame.isStreaming
    assert frame.columns == ["v"]


def test_blocked_methods_are_those_that_spark_blocks() -> None:
    pytest.importorskip("grpc")
    from pyspark.pipelines.block_session_mutations import BLOCKED_METHODS

    from headwater.author.surroundings import BLOCKED

    assert [(name, reason) for _, name, reason in BLOCKED] == [
        (each["method"], each["error_sub_class"]) for each in BLOCKED_METHODS
    ]


@pytest.mark.skipif(not any("sql-kafka" in jar for jar in JARS), reason="HEADWATER_SPARK_JARS names no Kafka connector")
def test_a_kafka_source_needs_no_broker_to_be_read(desk: Desk) -> None:
    code = """
@dp.temporary_view
def reports():
    return (spark.readStream.format("kafka").option("kafka.bootstrap.servers", spark.conf.get("headwater.broker"))
            .option("subscribe", "reports").load())
""" + table("spark.readStream.table('reports').selectExpr('string(value) AS value')")
    project = desk.read(code)
    assert project.by_name["reports"].format == "kafka"
    assert project.by_name["it"].reads == ("reports",)
