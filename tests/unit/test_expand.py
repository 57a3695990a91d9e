"""How sources on many sites make instances of what follows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.errors import Mistake, SpecError
from headwater.model.pipeline import Objective, Operator, Pipeline, Stream
from headwater.model.sites import Site, Sites
from headwater.plan.cut import cut
from headwater.plan.expand import Expanded, Instance, Replication, expand, spread

SITES = Sites(
    (
        Site("pi-1", "leaf", tags=("edge",)),
        Site("pi-2", "leaf", tags=("edge", "wet")),
        Site("pi-3", "leaf", tags=("dry",)),
        Site("relay", slots=0, tags=("edge", "mast")),
        Site("dc", "root", slots=9),
    ),
    (),
)
EDGE = Replication(each="tag:edge")
ONCE = Replication(once=True)


def source(name: str, rate: float = 100.0) -> Operator:
    return Operator(name, is_source=True, rate_rps=rate, size_bytes=30e3)


def reader(name: str, *inputs: str | Stream, is_sink: bool = False) -> Operator:
    streams = (replace(one, target=name) if isinstance(one, Stream) else Stream(one, name) for one in inputs)
    return Operator(name, tuple(streams), is_sink=is_sink)


FIRE = Pipeline(
    "fire",
    (source("reports"), reader("hot", Stream("reports", "", 0.5, 0.1)), reader("alerts", "hot", is_sink=True)),
)


def reads(expanded: Expanded) -> dict[str, str]:
    return {
        operator.name: " ".join(stream.source for stream in operator.inputs) for operator in expanded.pipeline.operators
    }


def mistakes(pipeline: Pipeline, **definitions: Replication) -> tuple[Mistake, ...]:
    with pytest.raises(SpecError) as caught:
        expand(pipeline, definitions, SITES)
    return caught.value.mistakes


def test_a_source_on_every_edge_site_takes_what_follows_with_it_until_a_once() -> None:
    expanded = expand(FIRE, {"reports": EDGE, "alerts": ONCE}, SITES)
    assert reads(expanded) == {
        "reports@pi-1": "",
        "reports@pi-2": "",
        "hot@pi-1": "reports@pi-1",
        "hot@pi-2": "reports@pi-2",
        "alerts": "hot@pi-1 hot@pi-2",
    }
    assert expanded.instances["hot@pi-2"] == Instance("hot@pi-2", "hot", "pi-2")
    assert expanded.instances["alerts"] == Instance("alerts", "alerts", None)
    assert expanded.by_operator["reports"] == ("reports@pi-1", "reports@pi-2")


def test_sources_are_pinned_with_their_whole_rate_and_what_follows_is_free() -> None:
    operators = expand(FIRE, {"reports": EDGE}, SITES).pipeline.by_name
    assert (operators["reports@pi-2"].at, operators["reports@pi-2"].rate_rps) == (("pi-2",), 100.0)
    assert operators["hot@pi-2"].at is None
    assert operators["hot@pi-2"].inputs == (Stream("reports@pi-2", "hot@pi-2", 0.5, 0.1),)
    assert operators["alerts@pi-1"].is_sink, "nothing takes them in, so the sink is replicated too"


def test_without_each_nothing_changes_even_where_names_hold_the_sign() -> None:
    odd = Pipeline("odd", (source("a@b"), reader("end", "a@b", is_sink=True)))
    assert expand(odd, {"end": ONCE}, SITES) == Expanded(
        odd, {"a@b": Instance("a@b", "a@b", None), "end": Instance("end", "end", None)}
    )


def test_each_may_name_one_site() -> None:
    expanded = expand(FIRE, {"reports": Replication(each="dc")}, SITES)
    assert list(expanded.instances) == ["reports@dc", "hot@dc", "alerts@dc"]


def test_two_streams_of_the_same_replicas_are_paired() -> None:
    made = Pipeline("pair", (source("a"), source("b"), reader("both", "a", "b", is_sink=True)))
    expanded = expand(made, {"a": EDGE, "b": EDGE}, SITES)
    assert reads(expanded)["both@pi-1"] == "a@pi-1 b@pi-1"
    assert reads(expanded)["both@pi-2"] == "a@pi-2 b@pi-2"


def test_every_instance_reads_a_stream_that_is_not_replicated() -> None:
    made = Pipeline("rules", (source("a"), source("limits", 1.0), reader("check", "a", "limits", is_sink=True)))
    expanded = expand(made, {"a": EDGE}, SITES)
    assert reads(expanded)["check@pi-2"] == "a@pi-2 limits"
    assert expanded.by_operator["limits"] == ("limits",)


def test_what_a_once_gives_can_go_back_to_every_instance() -> None:
    made = Pipeline("back", (source("a"), reader("mean", "a"), reader("far", "a", "mean", is_sink=True)))
    expanded = expand(made, {"a": EDGE, "mean": ONCE}, SITES)
    assert reads(expanded)["mean"] == "a@pi-1 a@pi-2"
    assert reads(expanded)["far@pi-1"] == "a@pi-1 mean"


def test_different_replicas_meet_in_a_once_and_nowhere_else() -> None:
    made = Pipeline("mix", (source("a"), source("b"), reader("both", "a", "b", is_sink=True)))
    dry = Replication(each="tag:dry")
    assert reads(expand(made, {"a": EDGE, "b": dry, "both": ONCE}, SITES))["both"] == "a@pi-1 a@pi-2 b@pi-3"
    (mistake,) = mistakes(made, a=EDGE, b=dry)
    assert mistake == Mistake(
        "HW1501",
        "operator 'both' reads instances that do not match: 'a' for 'pi-1', 'pi-2', and 'b' for 'pi-3'. Write "
        "'once: true' for 'both', so that it takes all of them in, or give their sources the same 'each'.",
    )


def test_company_holds_within_a_replica_and_for_all_where_one_side_has_none() -> None:
    made = Pipeline(
        "company",
        (
            source("a"),
            replace(reader("near", "a"), together=("a",), apart=("end",)),
            replace(reader("end", "near", is_sink=True), apart=("a",)),
        ),
    )
    operators = expand(made, {"a": EDGE, "end": ONCE}, SITES).pipeline.by_name
    assert (operators["near@pi-1"].together, operators["near@pi-1"].apart) == (("a@pi-1",), ("end",))
    assert operators["end"].apart == ("a@pi-1", "a@pi-2")


def test_company_over_different_replicas_is_a_mistake() -> None:
    made = Pipeline("far", (replace(source("a"), apart=("b",)), source("b")))
    (mistake,) = mistakes(made, a=EDGE, b=Replication(each="pi-3"))
    assert mistake.code == "HW1505"
    assert "'a' has those for 'pi-1', 'pi-2', 'b' those for 'pi-3'" in mistake.text


def test_between_takes_the_only_instance_or_one_that_is_named() -> None:
    ends = {"reports": Replication(each="pi-3"), "alerts": ONCE}
    made = replace(FIRE, objective=Objective(weight_rt=2.0, between=("reports", "alerts")))
    assert expand(made, ends, SITES).pipeline.objective == Objective(2.0, between=("reports@pi-3", "alerts"))
    (mistake,) = mistakes(made, reports=EDGE, alerts=ONCE)
    assert mistake.code == "HW1506"
    assert "'reports', which has 2 instances: 'reports@pi-1', 'reports@pi-2'. Name one of them" in mistake.text
    named = replace(FIRE, objective=Objective(between=("reports@pi-2", "alerts")))
    found = expand(named, {"reports": EDGE, "alerts": ONCE}, SITES).pipeline.objective.between
    assert found == ("reports@pi-2", "alerts")
    wrong = replace(FIRE, objective=Objective(between=("reports@pi-9", "alerts")))
    assert [one.code for one in mistakes(wrong, reports=EDGE, alerts=ONCE)] == ["HW1507"]


@pytest.mark.parametrize(
    ("each", "text"),
    [
        ("tag:egde", "no site has that tag; sites with slots have the tags 'edge', 'wet', 'dry'. Did you mean 'edge'?"),
        ("tag:mast", "no site with that tag has slots; sites with slots have the tags 'edge', 'wet', 'dry'."),
        ("pi_1", "that site does not exist; sites with slots are 'pi-1', 'pi-2', 'pi-3', 'dc'. Did you mean 'pi-1'?"),
        ("relay", "that site has no slots; sites with slots are 'pi-1', 'pi-2', 'pi-3', 'dc'."),
    ],
)
def test_an_each_that_no_site_answers_to_says_what_there_is(each: str, text: str) -> None:
    (mistake,) = mistakes(FIRE, reports=Replication(each=each))
    assert mistake == Mistake("HW1503", f"source 'reports' stands on each '{each}', but {text}")


def test_an_each_has_no_meaning_on_a_reader_nor_beside_once_or_at() -> None:
    assert [one.code for one in mistakes(FIRE, hot=EDGE)] == ["HW1502"]
    assert "and 'once' exclude each other" in mistakes(FIRE, reports=replace(EDGE, once=True))[0].text
    pinned = Pipeline("pinned", (replace(source("reports"), at=("dc",)),))
    assert "and so does 'at'" in mistakes(pinned, reports=EDGE)[0].text


def test_all_mistakes_are_told_at_once() -> None:
    made = Pipeline("many", (source("a@b"), source("c"), reader("end", "a@b", "c", is_sink=True)))
    found = mistakes(made, **{"c": Replication(each="nowhere"), "end": EDGE, "ned": ONCE})
    assert sorted(one.code for one in found) == ["HW1502", "HW1503", "HW1504", "HW1507"]
    assert "operator 'ned', which does not exist. Did you mean 'end'?" in found[0].text


def test_a_placement_may_name_operators_or_instances_and_the_instance_wins() -> None:
    expanded = expand(FIRE, {"reports": EDGE, "alerts": ONCE}, SITES)
    placement = {"reports@pi-1": "pi-1", "reports@pi-2": "pi-2", "hot": "dc", "hot@pi-2": "pi-2", "alerts": "dc"}
    assert spread(placement, expanded) == {
        "reports@pi-1": "pi-1",
        "reports@pi-2": "pi-2",
        "hot@pi-1": "dc",
        "hot@pi-2": "pi-2",
        "alerts": "dc",
    }


def test_a_placement_with_unknown_and_missing_names_is_told_of_both() -> None:
    expanded = expand(FIRE, {"reports": EDGE, "alerts": ONCE}, SITES)
    with pytest.raises(SpecError) as caught:
        spread({"reports": "pi-1", "hot@pi-1": "dc", "alert": "dc"}, expanded)
    assert [str(mistake) for mistake in caught.value.mistakes] == [
        "HW1507 the placement names operator 'alert', which does not exist. Did you mean 'alerts'?",
        "HW1508 the placement says no site for 'hot@pi-2', 'alerts'. Add a line for each, or for the operator.",
    ]


def test_instances_are_cut_like_any_operator() -> None:
    expanded = expand(FIRE, {"reports": EDGE, "alerts": ONCE}, SITES)
    placement = {"reports@pi-1": "pi-1", "reports@pi-2": "pi-2", "hot@pi-1": "pi-1", "hot@pi-2": "dc", "alerts": "dc"}
    found = cut(expanded.pipeline, placement)
    assert [fragment.operators for fragment in found.fragments] == [
        ("reports@pi-1", "hot@pi-1"),
        ("reports@pi-2",),
        ("hot@pi-2", "alerts"),
    ]
    assert {(channel.source, channel.target, channel.broker) for channel in found.channels} == {
        ("hot@pi-1", "alerts", "dc"),
        ("reports@pi-2", "hot@pi-2", "dc"),
    }
