"""How a placed pipeline becomes fragments and channels."""

from __future__ import annotations

import pytest

from headwater.errors import BrokenInvariant
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.plan.cut import Channel, Cut, Fragment, cut, rejoin, safe, topic_name


def pipeline(**reads: str) -> Pipeline:
    """`d="b c"` is an operator d that reads b and c; one that reads nothing is a source."""
    read = {source for sources in reads.values() for source in sources.split()}
    operators = (
        Operator(
            name, tuple(Stream(one, name) for one in sources.split()), is_source=not sources, is_sink=name not in read
        )
        for name, sources in reads.items()
    )
    return Pipeline("city", tuple(operators))


def placed(**sites: str) -> dict[str, str]:
    """`edge="a b"` places a and b on edge."""
    return {name: site for site, names in sites.items() for name in names.split()}


def fragments(found: Cut) -> dict[str, str]:
    """The operators of each fragment, by its output."""
    return {fragment.output: " ".join(fragment.operators) for fragment in found.fragments}


def channels(found: Cut) -> list[str]:
    return [f"{one.source}>{one.target} by {one.topic} on {one.broker}" for one in found.channels]


CHAIN = pipeline(a="", b="a", c="b")
DIAMOND = pipeline(a="", b="a", c="a", d="b c")


def test_a_chain_on_one_site_is_one_fragment() -> None:
    assert cut(CHAIN, placed(edge="a b c")) == Cut(
        "city", (Fragment("c", "edge", ("a", "b", "c"), "c", (("a", "b"), ("b", "c"))),), ()
    )


def test_a_chain_over_two_sites_is_two_fragments_and_the_writer_pushes() -> None:
    found = cut(CHAIN, placed(edge="a b", dc="c"))
    assert found.fragments == (Fragment("b", "edge", ("a", "b"), "b", (("a", "b"),)), Fragment("c", "dc", ("c",), "c"))
    assert found.channels == (Channel("b", "c", "b", "c", "hw.city.b", "dc"),)
    assert [fragment.because for fragment in found.fragments] == [
        "'c', which reads 'b', stands on 'dc'",
        "nobody reads 'c'",
    ]
    assert found.channels[0].because == "all its readers stand on 'dc', so the writer pushes"


def test_a_stream_that_comes_back_makes_two_fragments_on_one_site() -> None:
    found = cut(CHAIN, placed(edge="a c", dc="b"))
    assert fragments(found) == {"a": "a", "b": "b", "c": "c"}
    assert channels(found) == ["a>b by hw.city.a on dc", "b>c by hw.city.b on edge"]


def test_a_diamond_on_one_site_writes_its_first_stream_once_for_both_branches() -> None:
    found = cut(DIAMOND, placed(edge="a b c d"))
    assert fragments(found) == {"a": "a", "d": "b c d"}
    assert channels(found) == ["a>b by hw.city.a on edge", "a>c by hw.city.a on edge"]
    assert found.fragments[0].because == "'a' is written once for 2 readers: 'b', 'c'"
    assert found.channels[0].because == "all that write or read it stand on 'edge'"


def test_a_diamond_over_two_sites_crosses_once_and_is_read_by_one_fragment() -> None:
    found = cut(DIAMOND, placed(edge="a", dc="b c d"))
    assert fragments(found) == {"a": "a", "d": "b c d"}
    assert channels(found) == ["a>b by hw.city.a on dc", "a>c by hw.city.a on dc"]
    assert {channel.reader for channel in found.channels} == {"d"}


def test_a_diamond_with_a_branch_elsewhere_has_its_readers_pull() -> None:
    found = cut(DIAMOND, placed(edge="a", hub="b", dc="c d"))
    assert fragments(found) == {"a": "a", "b": "b", "d": "c d"}
    assert channels(found) == ["a>b by hw.city.a on edge", "a>c by hw.city.a on edge", "b>d by hw.city.b on dc"]
    assert found.channels[0].because == "its readers stand on 'dc', 'hub', so they pull from the writer's site"


def test_a_stream_read_on_several_sites_is_written_once_to_the_writers_broker() -> None:
    found = cut(pipeline(a="", x="a", y="a", z="a"), placed(edge="a", one="x", two="y", three="z"))
    assert channels(found) == [f"a>{name} by hw.city.a on edge" for name in "xyz"]
    assert len({channel.topic for channel in found.channels}) == 1


def test_two_streams_between_the_same_two_sites_are_two_topics() -> None:
    found = cut(pipeline(a="", b="", c="a b"), placed(edge="a b", dc="c"))
    assert fragments(found) == {"a": "a", "b": "b", "c": "c"}
    assert channels(found) == ["a>c by hw.city.a on dc", "b>c by hw.city.b on dc"]


def test_a_fragment_may_read_several_topics_at_several_of_its_operators() -> None:
    made = pipeline(a="", b="", c="", left="a", right="b c", end="left right")
    found = cut(made, placed(one="a", two="b", dc="c left right end"))
    assert fragments(found) == {"a": "a", "b": "b", "end": "c left right end"}
    assert [(channel.source, channel.target) for channel in found.inputs("end")] == [("a", "left"), ("b", "right")]
    assert found.inputs("a") == ()
    assert found.by_id["end"].inner == (("c", "right"), ("left", "end"), ("right", "end"))


def test_an_operator_that_reads_another_twice_over_joins_it_or_has_one_channel() -> None:
    twice = pipeline(a="", b="a a")
    assert fragments(cut(twice, placed(edge="a b"))) == {"b": "a b"}
    assert channels(cut(twice, placed(edge="a", dc="b"))) == ["a>b by hw.city.a on dc"]


def test_a_lone_operator_is_a_fragment_without_channels() -> None:
    found = cut(pipeline(a="", b=""), placed(edge="a b"))
    assert fragments(found) == {"a": "a", "b": "b"}
    assert found.channels == ()
    assert found.topic_of("a") is None


def test_a_pipeline_of_nothing_is_cut_into_nothing() -> None:
    assert cut(Pipeline("none", ()), {}) == Cut("none", (), ())


def test_an_end_is_written_to_a_topic_though_its_reader_stands_beside_it() -> None:
    found = cut(CHAIN, placed(edge="a b c"), ends={"a"})
    assert fragments(found) == {"a": "a", "c": "b c"}
    assert channels(found) == ["a>b by hw.city.a on edge"]
    assert found.fragments[0].because == "'a' must be written to a topic"
    assert cut(CHAIN, placed(edge="a b c"), ends={"c"}) == cut(CHAIN, placed(edge="a b c")), "a sink ends anyway"


def test_an_operator_that_runs_alone_neither_joins_nor_is_joined() -> None:
    found = cut(CHAIN, placed(edge="a b c"), alone={"b"})
    assert fragments(found) == {"a": "a", "b": "b", "c": "c"}
    assert [fragment.because for fragment in found.fragments[:2]] == ["'b' runs alone"] * 2


def test_a_cut_answers_where_an_operator_went() -> None:
    found = cut(CHAIN, placed(edge="a b", dc="c"))
    assert found.fragment_of == {"a": "b", "b": "b", "c": "c"}
    assert found.by_id["b"].site == "edge"
    assert (found.topic_of("a"), found.topic_of("b"), found.topic_of("c")) == (None, "hw.city.b", None)


def test_rejoining_gives_streams_and_sites_back() -> None:
    sites = placed(edge="a", hub="b", dc="c d")
    streams, placement = rejoin(cut(DIAMOND, sites))
    assert streams == {("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")}
    assert placement == sites


def test_what_is_not_of_this_pipeline_is_left_aside_and_a_missing_site_is_our_fault() -> None:
    assert cut(CHAIN, placed(edge="a b c other")) == cut(CHAIN, placed(edge="a b c"))
    with pytest.raises(BrokenInvariant, match=r"HW9501 .*'b', 'c'"):
        cut(CHAIN, placed(edge="a"))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("hot", "hot"),
        ("hot_2-b", "hot_2-b"),
        ("hot@pi-1", "hot_pi-1-4735c1d6"),
        ("Hot", "Hot-0ec53894"),
        ("..", "x-5ec1f7e7"),
        ("k" * 300, f"{'k' * 111}-17b16d8e"),
    ],
)
def test_a_plain_name_is_kept_and_any_other_is_marked(name: str, wanted: str) -> None:
    assert safe(name) == wanted


def test_a_name_that_looks_marked_is_marked_again() -> None:
    assert safe(safe("hot@pi-1")) != safe("hot@pi-1")


def test_topics_that_kafka_would_take_for_one_another_differ_in_more_than_dots() -> None:
    """Kafka refuses `a_b` where there is `a.b`."""
    pairs = [("a", "b_c"), ("a_b", "c"), ("a.b", "c"), ("a", "b.c"), ("a-b", "c")]
    assert topic_name("a", "b_c") == "hw.a.b_c"
    assert len({topic_name(*pair).replace(".", "_") for pair in pairs}) == len(pairs)
