"""Is everything that cannot run refused, where it stands and with what to write instead?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.desk import OFFSET, Desk, session, table

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
    ("code", "wanted", "line", "words"),
    [
        (table("spark.readStream.table('tickz')"), "HW1610", 3, ("'tickz'", "Did you mean 'ticks'?")),
        (table("spark.sql('SELECT * FROM STREAM tickz')"), "HW1610", 3, ("'tickz'", "Did you mean 'ticks'?")),
        (table("spark.read.table('ticks')"), "HW1612", 3, ("as a batch", "spark.readStream.table('ticks')")),
        (table("spark.table('ticks')"), "HW1612", 3, ("as a batch",)),
        (table("spark.sql('SELECT * FROM ticks')"), "HW1612", 3, ("as a batch", "FROM STREAM ticks")),
        (table("spark.range(3)"), "HW1613", 1, ("no stream", "spark.readStream")),
        ("@dp.table\ndef it():\n    spark.readStream.table('ticks')\n", "HW1613", 1, ("gives nothing", "return")),
        (table("17"), "HW1613", 1, ("'int'",)),
        (table("spark.readStream.table('it')"), "HW1611", 3, ("reads itself",)),
        (
            table("spark.readStream.table('b')", "a") + table("spark.readStream.table('a')", "b"),
            "HW1611", 7, ("cycle", "'a'", "'b'"),
        ),
        ("@dp.materialized_view\ndef it():\n    return 1\n", "HW1606", 1, ("materialized view 'it'", "@dp.table")),
        ("dp.create_sink('out', 'kafka')\n", "HW1609", 1, ("sink 'out'", "append_flow")),
        ("dp.create_streaming_table('it')\n", "HW1609", 1, ("table 'it'",)),
        (
            "dp.create_sink('out', 'kafka')\n@dp.append_flow(target='outt')\ndef f():\n"
            "    return spark.readStream.table('ticks')\n"
            "@dp.append_flow(target='out')\ndef g():\n    return spark.readStream.table('ticks')\n",
            "HW1608", 2, ("'outt'", "Did you mean 'out'?"),
        ),
        (table("spark.readStream.table('ticks')") * 2, "HW1607", 5, ("'it'", "trial.py")),
        (
            "dp.create_sink('out', 'console')\n@dp.append_flow(target='out')\ndef f():\n"
            "    return spark.readStream.table('it')\n" + table("spark.readStream.table('out')"),
            "HW1612", 7, ("'out'", "is a sink"),
        ),
        (
            "dp.create_sink('out', 'console')\n@dp.append_flow(target='out')\ndef f():\n"
            "    return spark.readStream.format('rate').load()\n",
            "HW1615", 1, ("sink 'out'", "'rate'", "@dp.temporary_view"),
        ),
        (
            table("spark.readStream.table('ticks').union(spark.readStream.format('rate').load())"),
            "HW1615", 1, ("'rate' from outside", "'ticks'"),
        ),
        (
            table("spark.readStream.table('ticks').groupBy('value').count().groupBy('count').agg(F.sum('value'))"),
            "HW1616", 1, ("'it'", "a table of its own"),
        ),
        (table("spark.readStream.table('ticks').orderBy('value')"), "HW1616", 1, ("'it'",)),
        (table("spark.readStream.table('ticks').selectExpr('value', 'value')"), "HW1614", 1, ("two columns 'value'",)),
        (
            "@dp.table(schema='value string')\ndef it():\n    return spark.readStream.table('ticks').select('value')\n",
            "HW1614", 1, ("bigint", "string"),
        ),
        (table("spark.readStream.table('ticks').select('nope')"), "HW1604", 3, ("'it'", "nope", "trial.py")),
        (table("spark.readStream.format('no-such').load()"), "HW1620", 3, ("no-such",)),
        (table("spark.sql('SELCT 1')"), "HW1604", 3, ("PARSE_SYNTAX_ERROR",)),
        ("1 / 0\n", "HW1604", 1, ("ZeroDivisionError", "trial.py")),
        ("import sys\nsys.exit(3)\n", "HW1604", 2, ("SystemExit: 3",)),
        ("def (:\n", "HW1604", 1, ("SyntaxError",)),
        ("spark.conf.set('a', 'b')\n", "HW1605", 1, ("RuntimeConfig.set", "pipeline spec")),
        (
            "@dp.table\ndef it():\n    spark.readStream.table('ticks').createOrReplaceTempView('x')\n"
            "    return spark.readStream.table('x')\n",
            "HW1605", 3, ("createOrReplaceTempView",),
        ),
        ("x = spark.readStream.table('ticks')\n", "HW1610", 1, ("'ticks'", "inside the function")),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_with_file_and_line(
    desk: Desk, code: str, wanted: str, line: int, words: tuple[str, ...]
) -> None:
    mistake = desk.mistake(code)
    assert (mistake.code, mistake.file, mistake.line) == (wanted, str(desk.folder / "trial.py"), OFFSET + line)
    for word in words:
        assert word in mistake.text


def test_auto_cdc_is_refused(desk: Desk) -> None:
    pytest.importorskip("grpc")
    code = """\
from pyspark.sql.connect.functions import col
dp.create_streaming_table("it")
dp.create_auto_cdc_flow(target="it", source="ticks", keys=["value"], sequence_by="timestamp")
"""
    mistake = desk.mistakes(code)[0]
    assert (mistake.code, mistake.line) == ("HW1606", OFFSET + 3)


def test_all_mistakes_of_a_project_are_told_at_once(desk: Desk) -> None:
    mistakes = desk.mistakes(
        table("spark.read.table('ticks')", "a")
        + table("spark.readStream.table('nope')", "b")
        + table("spark.readStream.table('a')", "c")  # says nothing new
        + table("spark.range(3)", "d")
        + table("1 / 0", "e")
    )
    assert [each.code for each in mistakes] == ["HW1612", "HW1610", "HW1613", "HW1604"]


def test_a_failure_is_told_with_the_users_own_lines_and_no_others(desk: Desk) -> None:
    code = "from helpers import half\n\n" + table("spark.readStream.table('ticks').where(half(0))")
    mistake = desk.mistake(code, {"helpers.py": "def half(x):\n    return 1 / x\n"})
    assert (mistake.code, mistake.file, mistake.line) == ("HW1604", str(desk.folder / "helpers.py"), 2)
    frames = re.findall(r"(\w+\.py):(\d+) in (\w+)", mistake.text)
    assert frames == [("trial.py", str(OFFSET + 5), "it"), ("helpers.py", "2", "half")]


def test_mistakes_in_settings_and_code_are_told_together(desk: Desk) -> None:
    code = table("spark.readStream.table('ticks')").replace(
        "@dp.table", '@dp.table(table_properties={"headwater.need": "high"})'
    )
    mistakes = desk.mistakes(
        code + table("spark.readStream.table('tick')", "other"), {"headwater.yml": "operators: {itt: {}}\n"}
    )
    assert [(each.code, each.line) for each in mistakes] == [
        ("HW1610", OFFSET + 7),
        ("HW1004", 1),
        ("HW1003", OFFSET + 1),
    ]


def test_flows_into_one_target_must_have_the_same_columns(desk: Desk) -> None:
    code = """
dp.create_streaming_table("it")

@dp.append_flow(target="it")
def one():
    return spark.readStream.table("ticks").select("value")

@dp.append_flow(target="it")
def two():
    return spark.readStream.table("ticks").selectExpr("string(value) AS value")
"""
    mistake = desk.mistake(code)
    assert (mistake.code, mistake.line) == ("HW1614", OFFSET + 8)
    assert "'one'" in mistake.text
    assert "'two'" in mistake.text
    assert "bigint" in mistake.text
    assert "string" in mistake.text


def test_a_table_is_not_source_and_sink_at_once(desk: Desk) -> None:
    mistake = desk.mistake(table("spark.readStream.format('rate').load()"))
    assert (mistake.code, mistake.line) == ("HW1615", OFFSET + 1)
    assert "'it'" in mistake.text


def test_a_project_of_views_alone_writes_nothing(desk: Desk) -> None:
    mistake = desk.mistake("")
    assert (mistake.code, mistake.line) == ("HW1618", 5)
    assert "'ticks', 'ticks2'" in mistake.text
