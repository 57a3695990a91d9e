"""What a runner is told of each fragment."""

from __future__ import annotations

import itertools
import json
from dataclasses import fields, replace
from typing import Any

import pytest

from headwater.errors import SpecError
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.project import Definition, Project, Trait
from headwater.model.sites import Site, Sites
from headwater.plan.cut import cut
from headwater.plan.deploy import Input, Part, Step, deploy, part_from, part_object
from headwater.plan.expand import Expanded, Replication, expand
from tests.unit.test_lanes import one, sink

SITES = Sites((Site("pi-1", slots=9, tags=("edge",)), Site("pi-2", slots=9, tags=("edge",)), Site("dc", slots=9)), ())
SOURCE = one("taxis")


def project(*definitions: Definition, name: str = "city", rate_rps: float = 100.0, **more: Any) -> Project:
    operators = tuple(
        Operator(
            each.name,
            tuple(Stream(read, each.name) for read in each.reads),
            is_source=not each.reads,
            rate_rps=0.0 if each.reads else rate_rps,
        )
        for each in definitions
    )
    return Project("/p", Pipeline(name, operators), definitions, "f", **more)


def expanded(whole: Project) -> Expanded:
    return expand(whole.pipeline, {each.name: Replication(each.each, each.once) for each in whole.definitions}, SITES)


def parts(whole: Project, **sites: str) -> dict[str, Part]:
    """The parts by their id; `pi-1="a b"` places a and b there (as a mapping where names are no identifiers)."""
    instances = expanded(whole)
    placement = {name: "dc" for name in instances.instances}
    placement |= {name: site.replace("_", "-") for site, names in sites.items() for name in names.split()}
    return {part.id: part for part in deploy(whole, instances, placement)[1]}


def schema(*types: object) -> str:
    return json.dumps({"type": "struct", "fields": [{"name": f"c{i}", "type": kind} for i, kind in enumerate(types)]})


def test_a_part_comes_back_from_json_as_it_was() -> None:
    whole = project(SOURCE, one("warm", "taxis", on_error="quarantine"), sink("out", "warm taxis"))
    for part in parts(whole, pi_1="taxis warm").values():
        assert part_from(json.loads(json.dumps(part_object(part)))) == part


def test_json_has_every_field_of_a_part() -> None:
    part = next(iter(parts(project(SOURCE, sink("out", "taxis"))).values()))
    assert set(part_object(part)) == {field.name for field in fields(Part)}


def test_one_fragment_reads_its_source_itself_and_writes_to_the_users_sink() -> None:
    assert parts(project(SOURCE, one("warm", "taxis"), sink("out", "warm")), pi_1="taxis warm out") == {
        "out": Part(
            id="out",
            site="pi-1",
            steps=(Step("taxis", "taxis", ()), Step("warm", "warm", ("taxis",)), Step("out", "out", ("warm",))),
            inputs=(),
            output="sink",
            topic=None,
            broker="pi-1",
            quarantine="hw.city.out.quarantine",
            lane="real-time",
            mode="update",
            is_stateful=False,
            fans_out=False,
            because="built-in functions at 100 records/s",
            on_error="stop",
            delivery="exactly-once",
            in_rps=100.0,
        )
    }


def test_a_stream_that_crosses_is_a_channel_on_the_readers_broker() -> None:
    found = parts(project(SOURCE, one("warm", "taxis"), sink("out", "warm")), pi_1="taxis warm")
    writer, reader = found["warm"], found["out"]
    assert (writer.output, writer.topic, writer.broker, writer.site) == ("channel", "hw.city.warm", "dc", "pi-1")
    assert reader.inputs == (Input("warm", "warm", "hw.city.warm", "dc"),)
    assert (reader.output, reader.topic, reader.broker) == ("sink", None, "dc")


def test_a_stream_with_readers_on_two_sites_is_written_once_at_home_and_read_once_by_each() -> None:
    whole = project(SOURCE, one("a", "taxis"), one("b", "taxis a"), sink("out", "a b"), sink("out2", "taxis"))
    found = parts(whole, pi_1="taxis", pi_2="out2")
    assert (found["taxis"].broker, found["taxis"].topic) == ("pi-1", "hw.city.taxis")
    wanted = Input("taxis", "taxis", "hw.city.taxis", "pi-1")
    assert found["out2"].inputs == (wanted,)
    assert found["taxis"].inputs == ()
    for part in found.values():
        assert len({each.operator for each in part.inputs}) == len(part.inputs)


def test_what_nobody_reads_is_a_table() -> None:
    found = parts(project(SOURCE, one("kept", "taxis", kind="table")))["kept"]
    assert (found.output, found.topic, found.lane, found.mode) == ("table", None, "micro-batch", "append")


def test_instances_are_parts_of_their_own_and_once_reads_all_of_them() -> None:
    whole = project(one("taxis", each="tag:edge"), one("warm", "taxis"), sink("out", "warm", once=True))
    found = parts(whole, pi_1="taxis@pi-1 warm@pi-1", pi_2="taxis@pi-2 warm@pi-2")
    assert len(found) == 3
    out = found["out"]
    assert out.steps == (Step("out", "out", ("warm@pi-1", "warm@pi-2")),)
    assert {(each.operator, each.of, each.broker) for each in out.inputs} == {
        ("warm@pi-1", "warm", "dc"),
        ("warm@pi-2", "warm", "dc"),
    }
    assert len({each.topic for each in out.inputs}) == 2
    assert out.in_rps == 200.0
    writers = [part for part in found.values() if part.site != "dc"]
    assert {part.operators for part in writers} == {("taxis@pi-1", "warm@pi-1"), ("taxis@pi-2", "warm@pi-2")}
    assert {part.topic for part in writers} == {each.topic for each in out.inputs}


def test_the_rate_of_a_part_decides_its_lane() -> None:
    whole = project(SOURCE, one("slow", "taxis", "python"), sink("out", "slow"), rate_rps=3000.0)
    assert parts(whole, pi_1="taxis slow")["slow"].lane == "micro-batch"
    assert parts(whole, pi_1="taxis slow")["out"].lane == "real-time"


def test_the_rate_of_a_part_is_that_of_its_busiest_operator() -> None:
    whole = project(SOURCE, one("trams"), one("both", "taxis trams"), sink("out", "both"))
    assert [part.in_rps for part in parts(whole).values()] == [200.0]


def test_one_operator_with_quarantine_makes_it_that_of_its_part_and_of_no_other() -> None:
    whole = project(SOURCE, one("warm", "taxis", on_error="quarantine"), one("hot", "warm"), sink("out", "hot"))
    found = parts(whole, pi_1="taxis warm hot")
    assert {part.id: part.on_error for part in found.values()} == {"hot": "quarantine", "out": "stop"}


@pytest.mark.parametrize(("trait", "fans_out"), [("generate", True), ("static-join", True), ("python", False)])
def test_a_part_knows_whether_one_record_may_become_several_rows(trait: Trait, fans_out: bool) -> None:
    found = parts(project(SOURCE, one("warm", "taxis", trait), sink("out", "warm")), pi_1="taxis warm")
    assert (found["warm"].fans_out, found["out"].fans_out) == (fans_out, False)


def test_delivery_is_that_of_the_project() -> None:
    assert parts(project(SOURCE, sink("out", "taxis"), delivery="at-least-once"))["out"].delivery == "at-least-once"


def test_a_stateful_operator_that_state_reads_is_written_to_a_topic_even_at_home() -> None:
    kinds: tuple[Trait, ...] = ("aggregate", "watermark")
    found = parts(project(SOURCE, one("d", "taxis", "deduplicate"), one("n", "d", *kinds), sink("out", "n")))
    assert {part.id: part.operators for part in found.values()} == {"d": ("taxis", "d"), "out": ("n", "out")}
    assert (found["d"].topic, found["d"].broker, found["d"].is_stateful) == ("hw.city.d", "dc", True)


@pytest.mark.parametrize("name", ["hot", "Hot", "hot.quarantine", "hot_quarantine", "x" * 200, "hot quarantine"])
@pytest.mark.parametrize("pipeline", ["city", "city.hot", "city_hot", "p" * 200])
def test_kafka_takes_all_topics_of_a_project_beside_each_other(name: str, pipeline: str) -> None:
    """It refuses names over 249 characters, other signs, and two names that differ only in '.' and '_'."""
    other = f"{name}_quarantine"
    ending = replace(sink("out", "x"), reads=(other,))
    whole = project(SOURCE, one("hot", "taxis"), one(f"{name}2", "hot"), one(other, "hot"), ending, name=pipeline)
    instances = expanded(whole)
    found = deploy(whole, instances, dict.fromkeys(instances.instances, "pi-1") | {"out": "dc"})[1]
    topics = [topic for part in found for topic in (part.topic, part.quarantine) if topic is not None]
    for topic in topics:
        assert len(topic) <= 249
        assert all(sign.isascii() and (sign.isalnum() or sign in "._-") for sign in topic)
    for a, b in itertools.combinations(topics, 2):
        assert a.replace(".", "_") != b.replace(".", "_")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("variant", "variant"),
        ("interval", "interval"),
        ("char(3)", "char(3)"),
        ({"type": "map", "keyType": "integer", "valueType": "string"}, "map with keys that are no text"),
        ({"type": "array", "elementType": "variant"}, "variant"),
        ({"type": "map", "keyType": "string", "valueType": "interval"}, "interval"),
        ({"type": "struct", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "variant"}]}, "variant"),
    ],
)
def test_a_type_that_no_channel_holds_is_told_before_anything_starts(kind: object, told: str) -> None:
    warm = replace(one("warm", "taxis"), schema_json=schema("long", kind))
    whole = project(SOURCE, warm, sink("out", "warm"))
    with pytest.raises(SpecError) as caught:
        parts(whole, pi_1="taxis warm")
    assert len(caught.value.mistakes) == 1
    assert str(caught.value).startswith(
        f"HW1522 fire.py:7: operator 'warm' writes its rows to a topic, and its column 'c1' holds the type {told}, "
    )
    assert len(parts(whole)) == 1, "what does not travel may have any type"


def test_types_that_a_channel_holds_are_not_refused() -> None:
    intervals = ("interval day to second", "interval year to month")
    kinds = ("byte", "decimal(38,10)", "timestamp_ntz", "binary", "void", *intervals)
    nested = {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": "integer"}}
    warm = replace(one("warm", "taxis"), schema_json=schema(*kinds, nested))
    assert len(parts(project(SOURCE, warm, sink("out", "warm")), pi_1="taxis warm")) == 2


def test_the_cut_that_is_given_is_that_of_the_parts() -> None:
    whole = project(SOURCE, one("warm", "taxis"), sink("out", "warm"))
    placement = {"taxis": "pi-1", "warm": "pi-1", "out": "dc"}
    found, made = deploy(whole, expanded(whole), placement)
    assert found == cut(whole.pipeline, placement)
    assert [part.id for part in made] == [fragment.id for fragment in found.fragments]
