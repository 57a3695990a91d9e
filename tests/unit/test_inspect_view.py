"""A project is shown whole: as text, as JSON and as a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from headwater.errors import SpecError
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.project import Definition, Goals, Project
from headwater.model.sites import Site, Sites
from headwater.serve.draw_project import draw_project
from headwater.serve.inspect import asked_lanes, inspected_object, inspected_view

SEEN = {"type": "array", "elementType": {"type": "struct", "fields": [{"name": "at", "type": "long"}]}}
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "sensor", "type": "string", "nullable": True, "metadata": {}},
            {"name": "seen", "type": SEEN, "nullable": True, "metadata": {}},
        ],
    }
)
PROJECT = Project(
    "/somewhere/fire",
    Pipeline(
        "fire",
        (
            Operator("reports", is_source=True, rate_rps=100.0, size_bytes=1000.0),
            Operator("hot", (Stream("reports", "hot"),)),
            Operator("counts", (Stream("hot", "counts"),)),
            Operator("alerts", (Stream("counts", "alerts"), Stream("hot", "alerts")), is_sink=True),
        ),
    ),
    (
        Definition("reports", "view", (), SCHEMA, "fire.py", 3, format="kafka", each="tag:edge"),
        Definition("hot", "view", ("reports",), SCHEMA, "fire.py", 9, frozenset(("python",)), lane="real-time"),
        Definition("counts", "table", ("hot",), SCHEMA, "fire.py", 15, frozenset(("aggregate", "watermark"))),
        Definition(
            "alerts", "sink", ("counts", "hot"), SCHEMA, "fire.py", 21, format="kafka", once=True,
            options=(("kafka.bootstrap.servers", "broker.invalid:9092"), ("topic", "alerts")),
        ),
    ),
    "0" * 64,
    goals=Goals(0.5, "gold"),
    notes=("source 'reports': a rate of 100/s is assumed.",),
)  # fmt: skip
SITES = Sites((Site("pi-1", tags=("edge",)), Site("pi-2", tags=("edge",)), Site("dc-1")), ())


def shown(sites: Sites | None = None) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"), markup=False)  # noqa: SIM115 - closed below
    with console.file:
        for each in inspected_view(PROJECT, asked_lanes(PROJECT), sites):
            console.print(each)
    return console.export_text()


@pytest.mark.parametrize(
    "words",
    [
        "fire: 4 operators, exactly-once, p99 within 500 ms, class gold",
        "fire.py:21",
        "aggregate, watermark",
        "reads kafka, 100/s of 1 kB, once on each of tag:edge",
        "writes kafka (kafka.bootstrap.servers of its site's broker, topic alerts)",
        "sensor string, seen array<struct<at long>>",
        "- source 'reports': a rate of 100/s is assumed.",
        "real-time  hot: asked for",
    ],
)
def test_the_readable_form_tells(words: str) -> None:
    assert words in shown()


def test_with_sites_it_tells_where_a_source_stands() -> None:
    assert "once on each of tag:edge (pi-1, pi-2)" in shown(SITES)


def test_the_json_form_holds_everything() -> None:
    answer: dict[str, Any] = json.loads(json.dumps(inspected_object(PROJECT, asked_lanes(PROJECT), SITES)))
    assert (answer["pipeline"], answer["goals"]) == ("fire", {"p99_s": 0.5, "class": "gold"})
    reports, hot, counts, alerts = answer["operators"]
    assert (reports["source"], reports["rate_rps"], reports["sites"]) == (True, 100.0, ["pi-1", "pi-2"])
    assert (hot["lane"], hot["lane_because"], hot["lane_asked"]) == ("real-time", "asked for", "real-time")
    assert (counts["stateful"], counts["traits"], counts["lane"]) == (True, ["aggregate", "watermark"], None)
    assert (alerts["sink"], alerts["options"]["topic"], alerts["line"]) == (True, "alerts", 21)
    assert alerts["schema"]["fields"][0]["name"] == "sensor"


def test_a_picture_names_every_operator_and_is_always_the_same(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        draw_project(PROJECT, asked_lanes(PROJECT), tmp_path / name)
    text = (tmp_path / "one.svg").read_text()
    assert (tmp_path / "two.svg").read_text() == text
    for word in ("reports", "hot", "counts", "alerts", "python", "aggregate", "real-time", "keeps state"):
        assert f">{word}<" in text
    assert "micro-batch" not in text  # only what is shown is explained
    draw_project(PROJECT, asked_lanes(PROJECT), tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="HW1201"):
        draw_project(PROJECT, asked_lanes(PROJECT), tmp_path / "one.gif")
