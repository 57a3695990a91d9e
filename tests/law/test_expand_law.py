"""Laws of replication: how many instances there are, what they read, and what they carry."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import networkx as nx
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headwater.cost.flow import flow
from headwater.cost.problem import Problem
from headwater.errors import SpecError
from headwater.model.pipeline import Objective, Operator, Pipeline
from headwater.model.sites import Sites
from headwater.plan.cut import cut, rejoin
from headwater.plan.expand import Expanded, Replication, expand, spread
from tests.strategies import Drawn, Size, merging, problem, problems, shuffled

SIZE = Size(sites=6, operators=8, more_links=1, slots=(3, 1, 9, 0), rules=30, fits=True)


@dataclass(frozen=True)
class Declared:
    """A pipeline, its sites and what is declared; `hosts` are the sites that every `each` means."""

    problem: Problem
    definitions: dict[str, Replication]
    hosts: tuple[str, ...]

    @property
    def pipeline(self) -> Pipeline:
        return self.problem.pipeline

    @property
    def sites(self) -> Sites:
        return self.problem.sites

    def expand(self) -> Expanded:
        return expand(self.pipeline, self.definitions, self.sites)

    @property
    def replicated(self) -> set[str]:
        """Operators that a source with `each` reaches without passing a `once`."""
        open_graph: nx.DiGraph[str] = nx.DiGraph()
        open_graph.add_nodes_from(self.pipeline.by_name)
        open_graph.add_edges_from(
            (stream.source, stream.target)
            for stream in self.pipeline.streams
            if not self.definitions[stream.target].once
        )
        starts = {name for name, definition in self.definitions.items() if definition.each is not None}
        return starts.union(*(nx.descendants(open_graph, start) for start in starts))


def entries(sites: Sites) -> dict[str, tuple[str, ...]]:
    """What an `each` may say, and the sites that it means."""
    hosts = [site for site in sites.sites if site.slots > 0]
    named = {site.name: (site.name,) for site in hosts}
    tags = sorted({tag for site in hosts for tag in site.tags})
    return named | {f"tag:{tag}": tuple(site.name for site in hosts if tag in site.tags) for tag in tags}


@st.composite
def declared(draw: st.DrawFn, *, is_mixed: bool = False, only_sinks_once: bool = False) -> Declared:
    """Draw a pipeline in which every `each` says the same, unless it is mixed."""
    dice = Drawn(draw)
    made = problem(dice, SIZE)
    if dice.chance(60):
        made = Problem(merging(dice, SIZE, made.sites), made.sites)
    known = entries(made.sites)
    keys = sorted(known, key=lambda key: (-len(known[key]), key))
    chosen = dice.pick(keys)
    definitions: dict[str, Replication] = {}
    operators: list[Operator] = []
    for operator in made.pipeline.operators:
        if operator.is_source and (only_sinks_once or dice.chance(75)):
            definitions[operator.name] = Replication(each=dice.pick(keys) if is_mixed else chosen)
            operators.append(replace(operator, at=None))
        else:
            is_once = operator.is_sink if only_sinks_once else dice.chance(25)
            definitions[operator.name] = Replication(once=is_once and not operator.is_source)
            operators.append(operator)
    objective = replace(made.pipeline.objective, between=None)
    pipeline = Pipeline(made.pipeline.name, tuple(operators), objective)
    return Declared(Problem(pipeline, made.sites), definitions, known[chosen])


@given(problems(SIZE), st.booleans())
def test_without_each_the_pipeline_comes_back_equal(made: Problem, is_once: bool) -> None:
    definitions = {name: Replication(once=is_once) for name in made.pipeline.by_name}
    expanded = expand(made.pipeline, definitions if is_once else {}, made.sites)
    assert expanded.pipeline == made.pipeline
    assert {(one.name, one.of, one.replica) for one in expanded.instances.values()} == {
        (name, name, None) for name in made.pipeline.by_name
    }


@given(declared())
def test_what_an_each_reaches_has_one_instance_for_every_site_and_the_rest_has_one(made: Declared) -> None:
    expanded, replicated = made.expand(), made.replicated
    event(f"replicated: {len(replicated)}, sites: {len(made.hosts)}")
    for name in made.pipeline.by_name:
        wanted = [f"{name}@{host}" for host in made.hosts] if name in replicated else [name]
        assert list(expanded.by_operator[name]) == wanted
    assert list(expanded.instances) == [operator.name for operator in expanded.pipeline.operators]
    assert all(name == instance.name for name, instance in expanded.instances.items())
    assert len(expanded.pipeline.order) == len(expanded.pipeline.operators), "free of cycles"


@given(declared())
def test_an_instance_is_its_operator_but_for_name_inputs_rules_and_a_sources_place(made: Declared) -> None:
    expanded = made.expand()
    for operator in expanded.pipeline.operators:
        instance = expanded.instances[operator.name]
        written = made.pipeline.by_name[instance.of]
        pinned = (instance.replica,) if written.is_source and instance.replica is not None else written.at
        assert operator.at == pinned
        same = replace(operator, at=written.at, inputs=written.inputs, together=(), apart=(), name=written.name)
        assert same == replace(written, together=(), apart=())


@given(declared())
def test_every_stream_is_there_once_for_every_replica_and_keeps_its_factors(made: Declared) -> None:
    expanded, replicated = made.expand(), made.replicated
    wanted: Counter[tuple[str, str, float, float]] = Counter()
    for stream in made.pipeline.streams:
        count = len(made.hosts) if {stream.source, stream.target} & replicated else 1
        wanted[stream.source, stream.target, stream.rate_factor, stream.size_factor] += count
    found: Counter[tuple[str, str, float, float]] = Counter()
    for stream in expanded.pipeline.streams:
        source, target = expanded.instances[stream.source], expanded.instances[stream.target]
        found[source.of, target.of, stream.rate_factor, stream.size_factor] += 1
        assert None in {source.replica, target.replica} or source.replica == target.replica
    assert found == wanted


@given(declared())
def test_rules_of_company_hold_within_a_replica_and_for_all_where_one_side_has_none(made: Declared) -> None:
    expanded = made.expand()
    instances = expanded.instances.values()
    for attribute in ("together", "apart"):
        wanted = {
            (one.name, other.name)
            for one in instances
            for other in instances
            if other.of in getattr(made.pipeline.by_name[one.of], attribute)
            and (one.replica == other.replica or None in {one.replica, other.replica})
        }
        told = [(one.name, other) for one in expanded.pipeline.operators for other in getattr(one, attribute)]
        assert set(told) == wanted
        assert len(told) == len(wanted)


@given(declared())
def test_sources_write_their_rate_once_for_every_site(made: Declared) -> None:
    expanded = made.expand()
    for source in (operator for operator in made.pipeline.operators if operator.is_source):
        rates = [expanded.pipeline.by_name[name].rate_rps for name in expanded.by_operator[source.name]]
        count = 1 if made.definitions[source.name].each is None else len(made.hosts)
        assert sum(rates) == pytest.approx(source.rate_rps * count)


@given(declared(only_sinks_once=True))
def test_an_instance_carries_what_the_written_pipeline_does_and_a_once_carries_all_of_it(made: Declared) -> None:
    expanded = made.expand()
    before, after = flow(made.pipeline).in_rate_rps, flow(expanded.pipeline).in_rate_rps
    for instance in expanded.instances.values():
        factor = len(made.hosts) if instance.replica is None else 1
        assert after[instance.name] == pytest.approx(factor * before[instance.of])


@given(declared(), st.data())
def test_the_order_in_the_files_does_not_change_what_there_is(made: Declared, data: st.DataObject) -> None:
    other = shuffled(Drawn(data.draw), made.problem)
    one, two = made.expand(), expand(other.pipeline, made.definitions, other.sites)
    assert one.instances == two.instances
    for operator in one.pipeline.operators:
        same = two.pipeline.by_name[operator.name]
        assert Counter(same.inputs) == Counter(operator.inputs)
        assert (set(same.together), set(same.apart)) == (set(operator.together), set(operator.apart))


@given(declared(is_mixed=True))
def test_sources_on_different_sites_meet_in_a_once_or_are_refused(made: Declared) -> None:
    refused: set[str] = set()
    try:
        expanded = made.expand()
    except SpecError as error:
        refused = {mistake.code for mistake in error.mistakes}
    event(f"refused: {sorted(refused)}")
    assert refused <= {"HW1501", "HW1505"}
    for operator in () if refused else expanded.pipeline.operators:
        replica = expanded.instances[operator.name].replica
        read = {expanded.instances[stream.source].replica for stream in operator.inputs}
        assert replica is None or read <= {replica, None}
        assert {*operator.together, *operator.apart} <= expanded.instances.keys()


@given(declared(), st.data())
def test_a_placement_of_operators_or_instances_is_spread_over_all_instances(
    made: Declared, data: st.DataObject
) -> None:
    expanded = made.expand()
    sites = st.sampled_from([site.name for site in made.sites.sites])
    whole = {name: data.draw(sites) for name in made.pipeline.by_name}
    some = data.draw(st.lists(st.sampled_from(sorted(expanded.instances)), unique=True))
    single = {name: data.draw(sites) for name in some}
    found = spread(whole | single, expanded)
    assert found == {name: single.get(name, whole[one.of]) for name, one in expanded.instances.items()}
    assert spread(found, expanded) == found
    assert rejoin(cut(expanded.pipeline, found))[1] == found


@given(declared())
def test_between_means_the_only_instance_or_is_refused(made: Declared) -> None:
    first = next(operator.name for operator in made.pipeline.operators if operator.is_source)
    last = next(operator.name for operator in made.pipeline.operators if operator.is_sink)
    pipeline = replace(made.pipeline, objective=Objective(between=(first, last)))
    counts = [len(made.hosts) if name in made.replicated else 1 for name in (first, last)]
    if max(counts) > 1:
        with pytest.raises(SpecError, match="HW1506"):
            expand(pipeline, made.definitions, made.sites)
    else:
        expanded = expand(pipeline, made.definitions, made.sites)
        assert expanded.pipeline.objective.between == (expanded.by_operator[first][0], expanded.by_operator[last][0])
