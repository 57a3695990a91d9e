"""Laws of cutting: every operator in one fragment, a channel for every crossing stream, and the way back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import networkx as nx
from hypothesis import event, given
from hypothesis import strategies as st

from headwater.cost.problem import Problem
from headwater.model.pipeline import Operator, Pipeline
from headwater.plan.cut import Cut, Fragment, cut, rejoin, safe, topic_name
from tests.strategies import Drawn, Size, merging, problem, shuffled

TANGLED = Size(sites=4, operators=10, fewest=1, more_links=1, rules=0)
NASTY = (
    "a", "A", "a@b", "a_b", "a.b", "a-b", "a b", "A@b", ".", "..", "-", "_", "x", "-x", "ä", "ß", "İ", "a/b", "a\\b",
    "hot", "hot@pi-1", "hot_pi-1", "Hot", "\ud800", "k" * 200, "k" * 201, "K" * 200, "hot_pi-1-4735c1d6", "hot\n",
)  # fmt: skip
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

short = st.sampled_from(("a", "b", "a_b", "b_a", "a.b", "a-b", "a_b_a"))
names = st.one_of(
    st.sampled_from(NASTY),
    st.text("aA@_.-", min_size=1, max_size=3),
    short,
    st.text(min_size=1, max_size=6),
    st.text("a.", min_size=240, max_size=260),
    st.sampled_from(NASTY).map(safe),
    st.text("aA@_.-", min_size=1, max_size=3).map(safe),
)


@dataclass(frozen=True)
class Placed:
    """A pipeline with a site for every operator, and what is asked of the cut."""

    problem: Problem
    placement: Mapping[str, str]
    ends: frozenset[str]
    alone: frozenset[str]

    @property
    def pipeline(self) -> Pipeline:
        return self.problem.pipeline

    @property
    def streams(self) -> set[tuple[str, str]]:
        return {(stream.source, stream.target) for stream in self.pipeline.streams}

    def cut(self) -> Cut:
        return cut(self.pipeline, self.placement, self.ends, self.alone)


@st.composite
def placed(draw: st.DrawFn) -> Placed:
    dice = Drawn(draw)
    made = problem(dice, TANGLED)
    if dice.chance(60):
        made = Problem(merging(dice, TANGLED, made.sites), made.sites)
    operators = [operator.name for operator in made.pipeline.operators]
    if dice.chance(30):
        new = draw(st.lists(names, min_size=len(operators), max_size=len(operators), unique=True))
        made = Problem(renamed(made.pipeline, dict(zip(operators, new, strict=True))), made.sites)
        operators = new
    sites = [site.name for site in made.sites.sites][: dice.pick((2, 1, 4))]
    placement = {name: dice.pick(sites) for name in operators}
    ends = frozenset(name for name in operators if dice.chance(10))
    alone = frozenset(name for name in operators if dice.chance(10))
    return Placed(made, placement, ends, alone)


def renamed(pipeline: Pipeline, new: Mapping[str, str]) -> Pipeline:
    def turned(operator: Operator) -> Operator:
        inputs = (replace(one, source=new[one.source], target=new[one.target]) for one in operator.inputs)
        return replace(operator, name=new[operator.name], inputs=tuple(inputs))

    return Pipeline(pipeline.name, tuple(map(turned, pipeline.operators)))


def fragment_of(found: Cut, operator: str) -> Fragment:
    return found.by_id[found.fragment_of[operator]]


@given(placed())
def test_every_operator_lies_in_one_fragment_on_its_own_site(made: Placed) -> None:
    found = made.cut()
    event(f"fragments: {len(found.fragments)} of {len(made.pipeline.operators)} operators")
    counted = Counter(name for fragment in found.fragments for name in fragment.operators)
    assert counted == Counter(list(made.pipeline.by_name))
    for fragment in found.fragments:
        assert {made.placement[name] for name in fragment.operators} == {fragment.site}
    assert set(found.fragment_of) == set(made.pipeline.by_name)


@given(placed())
def test_a_channel_stands_for_every_crossing_stream_and_for_no_other(made: Placed) -> None:
    found = made.cut()
    told = [(channel.source, channel.target) for channel in found.channels]
    crossing = {(a, b) for a, b in made.streams if found.fragment_of[a] != found.fragment_of[b]}
    assert len(told) == len(set(told))
    assert set(told) == crossing
    for channel in found.channels:
        assert (channel.writer, channel.reader) == (
            found.fragment_of[channel.source],
            found.fragment_of[channel.target],
        )
    for fragment in found.fragments:
        assert found.inputs(fragment.id) == tuple(one for one in found.channels if one.reader == fragment.id)


@given(placed())
def test_rejoining_gives_back_the_pipeline(made: Placed) -> None:
    streams, placement = rejoin(made.cut())
    assert streams == made.streams
    assert placement == made.placement


@given(placed())
def test_a_fragment_is_a_tree_into_its_one_output(made: Placed) -> None:
    for fragment in made.cut().fragments:
        assert set(fragment.inner) == {(a, b) for a, b in made.streams if {a, b} <= set(fragment.operators)}
        assert sorted(a for a, _ in fragment.inner) == sorted(set(fragment.operators) - {fragment.output})
        place = {name: i for i, name in enumerate(fragment.operators)}
        assert all(place[a] < place[b] for a, b in fragment.inner)
        assert fragment.operators[-1] == fragment.output
        leaves = {a for a, b in made.streams if a in place and b not in place}
        assert leaves <= {fragment.output}
        assert fragment.because


@given(placed())
def test_operators_are_cut_apart_only_where_a_rule_asks_for_it(made: Placed) -> None:
    """The fewest fragments: whoever may join its only reader does."""
    found = made.cut()
    for name in made.pipeline.by_name:
        readers = {b for a, b in made.streams if a == name}
        may_join = (
            len(readers) == 1
            and {made.placement[reader] for reader in readers} == {made.placement[name]}
            and name not in made.ends
            and made.alone.isdisjoint({name} | readers)
        )
        assert may_join == (fragment_of(found, name).output != name)
        assert (found.topic_of(name) is not None) == (bool(readers) and not may_join)
    for name in made.alone & made.pipeline.by_name.keys():
        assert fragment_of(found, name).operators == (name,)


@given(placed())
def test_fragments_read_one_another_without_a_cycle_and_stand_after_what_they_read(made: Placed) -> None:
    found = made.cut()
    graph = nx.DiGraph([(channel.writer, channel.reader) for channel in found.channels])
    assert nx.is_directed_acyclic_graph(graph)
    place = {fragment.id: i for i, fragment in enumerate(found.fragments)}
    assert all(place[channel.writer] < place[channel.reader] for channel in found.channels)


@given(placed())
def test_an_operator_has_one_topic_on_one_broker_and_no_two_operators_share_it(made: Placed) -> None:
    found = made.cut()
    by_topic: dict[str, set[tuple[str, str]]] = {}
    for channel in found.channels:
        by_topic.setdefault(unified(channel.topic), set()).add((channel.source, channel.broker))
        assert channel.topic == found.topic_of(channel.source)
        sites = {found.by_id[one.reader].site for one in found.channels if one.source == channel.source}
        writer = found.by_id[channel.writer].site
        assert channel.broker == (sites.pop() if len(sites) == 1 else writer)
        assert channel.because
    assert all(len(writers) == 1 for writers in by_topic.values())
    assert len(by_topic) == len({channel.source for channel in found.channels})
    assert len({fragment.id.casefold() for fragment in found.fragments}) == len(found.fragments)


@given(placed(), st.data())
def test_the_order_in_the_file_does_not_matter(made: Placed, data: st.DataObject) -> None:
    dice = Drawn(data.draw)
    other = shuffled(dice, made.problem).pipeline
    placement = dict(dice.shuffle(list(made.placement.items())))
    one, two = made.cut(), cut(other, placement, made.ends, made.alone)
    assert one == two
    assert repr(one) == repr(two), "reasons too"


@given(placed(), st.data())
def test_a_fragment_keeps_its_id_and_topic_when_others_move(made: Placed, data: st.DataObject) -> None:
    sites = sorted(set(made.placement.values()))
    moved = {name: data.draw(st.sampled_from(sites)) for name in made.placement}
    one, two = made.cut(), cut(made.pipeline, moved)
    ids = {fragment.output: fragment.id for fragment in one.fragments}
    for fragment in two.fragments:
        assert fragment.id == ids.get(fragment.output, fragment.id)
    for name in made.pipeline.by_name:
        topics = {one.topic_of(name), two.topic_of(name)} - {None}
        assert len(topics) <= 1


def unified(topic: str) -> str:
    """As Kafka compares topics: '.' and '_' are one."""
    return topic.replace(".", "_")


@given(st.lists(names, unique=True, min_size=10, max_size=40))
def test_two_names_never_give_one_id_even_where_case_is_ignored(made: list[str]) -> None:
    ids = [safe(name) for name in made]
    assert len({unified(one).casefold() for one in ids}) == len(made)
    assert all(SAFE.fullmatch(one) and len(one) <= 120 for one in ids)


@given(st.lists(st.tuples(short, short) | st.tuples(names, names), unique=True, min_size=10, max_size=40))
def test_two_operators_of_any_pipelines_never_share_a_topic(made: list[tuple[str, str]]) -> None:
    topics = [topic_name(pipeline, operator) for pipeline, operator in made]
    assert len({unified(one).casefold() for one in topics}) == len(made)
    assert all(SAFE.fullmatch(one) and len(one) <= 249 for one in topics)
