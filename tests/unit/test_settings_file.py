"""headwater.yml and table properties become settings, and settings with a graph become a pipeline."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.errors import SpecError
from headwater.model.pipeline import Objective, Stream
from headwater.model.project import Goals
from headwater.model.settings_file import (
    Defined,
    Extras,
    Settings,
    read_properties,
    read_settings,
    settle,
    unknown_places,
)
from headwater.model.sites import Site, Sites

TEXT = """\
pipeline: fire
operators:
  reports: {each: "tag:edge", rate: 100/s, size: 30 kB}
  hot:
    needs: medium
    lane: real-time
    on_error: quarantine
    streams: [{from: reports, size_factor: 0.1}]
  alerts: {once: true, emit: final}
goals: {p99: 500 ms, class: gold}
delivery: at-least-once
objective: {weights: {rt: 2}, between: [reports, alerts]}
"""
NAMES = ("reports", "hot", "alerts")
GRAPH = (
    Defined("reports", (), "fire.py", 3),
    Defined("hot", ("reports",), "fire.py", 9),
    Defined("alerts", ("hot",), "fire.py", 15),
)


def told(make: Callable[[], object]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        make()
    return [str(mistake) for mistake in caught.value.mistakes]


def settled_mistakes(text: str) -> list[str]:
    return told(lambda: settle(read_settings(text.encode(), "h.yml", NAMES), GRAPH, "x"))


def test_a_file_and_a_graph_become_a_pipeline_with_its_extras() -> None:
    settings = read_settings(TEXT.encode(), "headwater.yml", NAMES)
    settled = settle(settings, GRAPH, "other")
    reports, hot, alerts = settled.pipeline.operators
    assert settled.pipeline.name == "fire"
    assert (reports.is_source, reports.rate_rps, reports.size_bytes) == (True, 100.0, 30_000.0)
    assert hot.inputs == (Stream("reports", "hot", size_factor=0.1),)
    assert hot.needs == 2
    assert alerts.is_sink
    assert settled.pipeline.objective == Objective(weight_rt=2.0, between=("reports", "alerts"))
    assert settled.extras == {
        "reports": Extras(each="tag:edge"),
        "hot": Extras(lane="real-time", on_error="quarantine"),
        "alerts": Extras(once=True, emit="final"),
    }
    assert (settings.goals, settings.delivery) == (Goals(0.5, "gold"), "at-least-once")
    assert settled.notes == ()


def test_without_a_file_rates_are_assumed_and_that_is_noted() -> None:
    settled = settle(Settings(), GRAPH, "fire")
    source = settled.pipeline.by_name["reports"]
    assert (source.rate_rps, source.size_bytes) == (100.0, 1000.0)
    assert settled.pipeline.name == "fire"
    (note,) = settled.notes
    assert "'reports'" in note
    assert "100/s" in note
    assert "1 kB" in note
    assert "headwater.yml" in note


def test_a_rate_that_is_declared_is_not_assumed() -> None:
    settled = settle(read_settings(b"operators: {reports: {rate: 7/s}}", "h.yml", NAMES), GRAPH, "fire")
    assert settled.pipeline.by_name["reports"].rate_rps == 7.0
    assert "size" in settled.notes[0]
    assert "rate" not in settled.notes[0]


@pytest.mark.parametrize("text", ["", "  \n", "# nothing yet\n", "---\n", "{}\n"])
def test_a_file_that_says_nothing_is_allowed(text: str) -> None:
    assert read_settings(text.encode(), "h.yml", NAMES).operators == {}


def test_properties_of_a_table_say_the_same_as_the_file() -> None:
    properties = {
        "headwater.needs": "medium",
        "headwater.work": "2 ms",
        "headwater.at": "tag:hub, dc-1",
        "headwater.with": "[reports]",
        "headwater.rate_factor": "0.5",
        "headwater.lane": "micro-batch",
        "headwater.streams": "[{from: reports, rate_factor: 0.25}]",
        "delta.logRetention": "1 day",
    }
    body = read_properties(properties, "hot", "fire.py", 9)
    settled = settle(Settings(), (GRAPH[0], GRAPH[1]._replace(properties=body), GRAPH[2]), "fire")
    hot = settled.pipeline.by_name["hot"]
    assert (hot.needs, hot.work_s, hot.rate_factor) == (2, 0.002, 0.5)
    assert (hot.at, hot.together) == (("tag:hub", "dc-1"), ("reports",))
    assert hot.inputs == (Stream("reports", "hot", rate_factor=0.25),)
    assert settled.extras["hot"] == Extras(lane="micro-batch")


def test_truth_in_a_property_is_a_word() -> None:
    body = read_properties({"headwater.once": "TRUE"}, "alerts", "fire.py", 15)
    assert settle(Settings(), (*GRAPH[:2], GRAPH[2]._replace(properties=body)), "x").extras["alerts"].once


def test_file_and_properties_may_agree_and_must_not_contradict() -> None:
    def graph(**properties: str) -> tuple[Defined, ...]:
        body = read_properties({f"headwater.{key}": value for key, value in properties.items()}, "hot", "fire.py", 9)
        return (GRAPH[0], GRAPH[1]._replace(properties=body), GRAPH[2])

    settings = read_settings(b"operators:\n  hot: {work: 2 ms, needs: high}\n", "h.yml", NAMES)
    assert settle(settings, graph(work="0.002 s"), "x").pipeline.by_name["hot"].work_s == 0.002
    (mistake,) = told(lambda: settle(settings, graph(needs="low"), "x"))
    assert mistake == (
        "HW1011 h.yml:2: operator 'hot': 'needs' is declared here, and otherwise in the table's properties "
        "(fire.py:9). Remove one of the two."
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("- a\n", "HW1005 h.yml:1: the file must hold a mapping; found a list of 1 entry."),
        (
            "operator: {}\n",
            "HW1003 h.yml:1: the file has the unknown key 'operator'; allowed: pipeline, operators, goals, "
            "delivery, objective. Did you mean 'operators'?",
        ),
        (
            "operators:\n  hott: {}\n",
            "HW1004 h.yml:2: operator 'hott' is not defined by the project. Did you mean 'hot'?",
        ),
        ("operators:\n  hot: 3\n", "HW1005 h.yml:2: operator 'hot' must be a mapping; found the number 3."),
        (
            "operators:\n  hot: {inputs: [reports]}\n",
            "HW1003 h.yml:2: operator 'hot': 'inputs' is decided by the project's code. Remove it here.",
        ),
        (
            "operators:\n  hot: {source: true}\n",
            "HW1003 h.yml:2: operator 'hot': 'source' is decided by the project's code. Remove it here.",
        ),
        (
            "operators:\n  hot: {sink: true}\n",
            "HW1003 h.yml:2: operator 'hot': 'sink' is decided by the project's code. Remove it here.",
        ),
        (
            "operators:\n  hot:\n    lane: realtime\n",
            "HW1007 h.yml:3: operator 'hot': 'lane' must be one of real-time, micro-batch; found text "
            "'realtime'. Did you mean 'real-time'?",
        ),
        (
            "operators:\n  hot: {emit: all}\n",
            "HW1007 h.yml:2: operator 'hot': 'emit' must be one of updates, final; found text 'all'.",
        ),
        (
            "operators:\n  hot: {on_error: skip}\n",
            "HW1007 h.yml:2: operator 'hot': 'on_error' must be one of stop, quarantine; found text 'skip'.",
        ),
        (
            "operators:\n  hot: {once: yes please}\n",
            "HW1005 h.yml:2: operator 'hot': 'once' must be true or false; found text 'yes please'.",
        ),
        (
            "operators:\n  reports: {each: 'tag:'}\n",
            "HW1013 h.yml:2: operator 'reports': 'each' names no tag. Write 'tag:NAME'.",
        ),
        (
            "operators:\n  reports: {rate: 3 kB}\n",
            "HW1006 h.yml:2: operator 'reports': 'rate' is wrong: '3 kB' is a size; a rate is wanted, such as '100/s'.",
        ),
        (
            "operators:\n  hot: {at: []}\n",
            "HW1007 h.yml:2: operator 'hot': 'at' is an empty list, so that no site is allowed. Name a site "
            "or remove it.",
        ),
        (
            "operators:\n  hot: {streams: [reports]}\n",
            "HW1005 h.yml:2: stream 1 of operator 'hot' must be a mapping; found text 'reports'. Write "
            "'{from: NAME, rate_factor: 0.5}'.",
        ),
        (
            "operators:\n  hot: {streams: [{rate_factor: 2}]}\n",
            "HW1012 h.yml:2: stream 1 of operator 'hot' has no 'from'. Add one, such as 'from: operator-1'.",
        ),
        (
            "goals: {p99: 1 s, class: glod}\n",
            "HW1007 h.yml:1: 'goals' of the file: 'class' must be one of gold, silver, bronze; found text 'glod'. "
            "Did you mean 'gold'?",
        ),
        (
            "goals: {p99: 0}\n",
            "HW1007 h.yml:1: 'goals' of the file: 'p99' must be from 1 ms to 1000000 s; found '0'.",
        ),
        (
            "goals: {p95: 1 s}\n",
            "HW1003 h.yml:1: 'goals' of the file has the unknown key 'p95'; allowed: p99, class. Did you mean 'p99'?",
        ),
        (
            "delivery: exactly once\n",
            "HW1007 h.yml:1: the file: 'delivery' must be one of exactly-once, at-least-once; found text "
            "'exactly once'. Did you mean 'exactly-once'?",
        ),
        (
            "objective: {weight: 3}\n",
            "HW1003 h.yml:1: the objective has the unknown key 'weight'; allowed: weights, rt, rf, bw, "
            "between. Did you mean 'weights'?",
        ),
        (
            "operators: {hot: {}, hot: {}}\n",
            "HW1008 h.yml:1: the key 'hot' stands here and on line 1. Remove one of the two.",
        ),
        ("operators: [\n", "HW1001"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_line(text: str, wanted: str) -> None:
    (mistake,) = told(lambda: read_settings(text.encode(), "h.yml", NAMES))
    assert mistake == wanted or (wanted == "HW1001" and mistake.startswith(wanted))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "operators:\n  hot: {rate: 3}\n",
            "HW1011 h.yml:2: operator 'hot': 'rate' is for sources, and this operator reads 'reports'. "
            "Remove it, or write 'rate_factor'.",
        ),
        (
            "operators:\n  reports: {rate_factor: 3}\n",
            "HW1011 h.yml:2: operator 'reports': 'rate_factor' is for operators that read others, and this "
            "one is a source. Remove it, or write 'rate' and 'size'.",
        ),
        (
            "operators:\n  reports: {streams: [{from: hot}]}\n",
            "HW1011 h.yml:2: operator 'reports': 'streams' is for operators that read others, and this one "
            "is a source. Remove it, or write 'rate' and 'size'.",
        ),
        (
            "operators:\n  hot: {each: 'tag:edge'}\n",
            "HW1011 h.yml:2: operator 'hot': 'each' is for sources, and this operator reads 'reports'. "
            "Remove it: what follows a source that stands on several sites stands there too.",
        ),
        (
            "operators:\n  reports: {each: 'tag:edge', at: [a]}\n",
            "HW1011 h.yml:2: operator 'reports': 'each' says where the operator stands, and so does 'at'. "
            "Remove one of the two.",
        ),
        (
            "operators:\n  reports: {once: true}\n",
            "HW1011 h.yml:2: operator 'reports': 'once' is for operators that read others, and this one is a"
            " source. Remove it, or 'each'.",
        ),
        (
            "operators:\n  hot: {streams: [{from: alerts}]}\n",
            "HW1004 h.yml:2: operator 'hot': 'streams' names 'alerts', which it does not read; it reads 'reports'.",
        ),
        (
            "operators:\n  hot: {streams: [{from: reports}, {from: reports}]}\n",
            "HW1008 h.yml:2: operator 'hot': 'streams' names 'reports' twice. Remove one.",
        ),
        (
            "operators:\n  hot: {with: [nope]}\n",
            "HW1004 h.yml:2: operator 'hot': 'with' names the operator 'nope', which does not exist.",
        ),
        (
            "operators:\n  hot: {with: [alerts], apart: [alerts]}\n",
            "HW1011 h.yml:2: operator 'hot' must stand apart from 'alerts', but 'with' puts both on one site"
            " ('alerts', 'hot'). Remove one of the two demands.",
        ),
        (
            "objective: {between: [reports, hot]}\n",
            "HW1011 h.yml:1: the objective: 'between' must name a source and then a sink; 'hot' is no sink.",
        ),
    ],
)
def test_a_setting_that_does_not_fit_the_graph_is_told_with_its_line(text: str, wanted: str) -> None:
    assert settled_mistakes(text) == [wanted]


def test_a_property_that_does_not_fit_the_graph_is_told_where_the_table_is() -> None:
    body = read_properties({"headwater.with": "nope", "headwater.rate": "3/s"}, "hot", "fire.py", 9)
    mistakes = told(lambda: settle(Settings(), (GRAPH[0], GRAPH[1]._replace(properties=body), GRAPH[2]), "x"))
    assert [mistake.partition(": ")[0] for mistake in mistakes] == ["HW1011 fire.py:9", "HW1004 fire.py:9"]


def test_mistakes_in_properties_are_told_where_the_table_is() -> None:
    properties = {"headwater.need": "low", "headwater.at": "[a", "headwater.once": "perhaps", "headwater.inputs": "x"}
    mistakes = told(lambda: read_properties(properties, "hot", "fire.py", 9))
    assert [mistake.partition(": ")[0] for mistake in mistakes] == [
        "HW1001 fire.py:9", "HW1003 fire.py:9", "HW1003 fire.py:9", "HW1005 fire.py:9",
    ]  # fmt: skip
    assert any("Did you mean 'needs'?" in mistake for mistake in mistakes)


def test_all_mistakes_of_a_file_are_told_at_once() -> None:
    text = "operators:\n  reports: {once: true, rate_factor: 2}\n  hot: {rate: 3, with: [hot]}\n"
    assert [mistake.partition(" ")[0] for mistake in settled_mistakes(text)] == ["HW1011"] * 4


def test_places_that_the_sites_lack_are_named() -> None:
    sites = Sites((Site("pi-1", "leaf", tags=("edge",)), Site("dc-1", "root")), ())
    settings = read_settings(b"operators: {hot: {at: [pi-2]}, alerts: {at: ['tag:edge', dc-1]}}", "h.yml", NAMES)
    pipeline = settle(settings, GRAPH, "x").pipeline
    assert [str(each) for each in unknown_places(pipeline, {"reports": "tag:egde"}, sites)] == [
        "HW1004 operator 'reports': 'each' names the tag 'egde', which no site has. Did you mean 'edge'?",
        "HW1004 operator 'hot': 'at' names the site 'pi-2', which does not exist. Did you mean 'pi-1'?",
    ]
    assert unknown_places(pipeline, {}, Sites((Site("pi-2"), Site("dc-1"), Site("x", tags=("edge",))), ())) == ()
