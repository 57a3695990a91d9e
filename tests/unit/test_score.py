"""What a placement costs, on examples small enough to check by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import instances
from headwater.cost.problem import Problem
from headwater.cost.score import Congestion, evaluate, link_loads
from headwater.model.files import read_pipeline, read_sites
from headwater.model.pipeline import Objective, Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites
from headwater.place import METHODS, Prepared, Result, place
from tests.strategies import Thrown, any_placement

FIRE = Path(__file__).parent.parent.parent / "examples" / "fire"

SITES = Sites(
    (Site("edge", "leaf", 1, 2, 1.0, cores=0.5), Site("hub", slots=0), Site("dc", "root", 3, 2, 4.0, cores=8.0)),
    (Link("edge", "hub", 0.010, 1e6), Link("hub", "dc", 0.040, 10e6)),
)
PIPELINE = Pipeline(
    "two steps",
    (
        Operator("cam", is_source=True, rate_rps=10.0, size_bytes=20_000.0, work_s=0.004),
        Operator("see", (Stream("cam", "see"),), needs=2, work_s=0.080, size_factor=0.01),
        Operator("end", (Stream("see", "end"),), is_sink=True, work_s=0.004),
    ),
)
PROBLEM = Problem(PIPELINE, SITES)
AT_EDGE = {"cam": "edge", "see": "edge", "end": "dc"}
AT_DC = {"cam": "edge", "see": "dc", "end": "dc"}


def test_rt_is_processing_plus_latency_plus_the_time_to_send() -> None:
    size = 200.0  # see makes 200 of 20 000 bytes
    sent = 0.010 + 8 * size / 1e6 + 0.040 + 8 * size / 10e6
    assert evaluate(PROBLEM, AT_EDGE).rt_s == pytest.approx(0.004 + 0.080 + sent + 0.004 / 4)


def test_rf_counts_the_missing_levels() -> None:
    assert evaluate(PROBLEM, AT_EDGE).rf == 1  # medium on a low machine
    assert evaluate(PROBLEM, AT_DC).rf == 0


def test_bw_is_what_a_link_cannot_carry_in_one_direction() -> None:
    score = evaluate(PROBLEM, AT_DC)
    load = 8 * 10 * 20_000  # 1.6 Mbit/s over 1 Mbit/s
    assert score.bw_bps == pytest.approx(load - 1e6)
    assert score.congested == (Congestion(("edge", "hub"), "hub", load - 1e6),)
    assert link_loads(PROBLEM, AT_DC) == {("edge", "hub"): load, ("hub", "dc"): load}


def test_a_link_is_full_duplex() -> None:
    """0.8 Mbit/s there and 0.8 Mbit/s back fit on a link of 1 Mbit/s; both there do not."""
    sites = Sites((Site("a", "leaf", slots=4), Site("b", "root", slots=4)), (Link("a", "b", 0.001, 1e6),))
    made = [Operator(name, is_source=True, rate_rps=100.0, size_bytes=1000.0, at=("a", "b")) for name in ("u", "v")]
    ends = [Operator(f"{name}-end", (Stream(name, f"{name}-end"),), is_sink=True, at=("a", "b")) for name in ("u", "v")]
    problem = Problem(Pipeline("duplex", (*made, *ends)), sites)
    across = evaluate(problem, {"u": "a", "u-end": "b", "v": "b", "v-end": "a"})
    assert across.bw_bps == 0
    both = evaluate(problem, {"u": "a", "u-end": "b", "v": "a", "v-end": "b"})
    assert both.bw_bps == pytest.approx(0.6e6)
    assert both.congested[0].toward == "b"


def test_the_bounds_are_those_of_the_contract() -> None:
    bounds = PROBLEM.bounds
    assert bounds.rt_min_s == pytest.approx(0.004 + 0.080 / 4 + 0.004 / 4)  # a source may only be at the edge
    worst = [0.050 + 8 * size * (1 / 1e6 + 1 / 10e6) for size in (20_000, 200)]
    assert bounds.rt_max_s == pytest.approx(0.004 + 0.080 + 0.004 + sum(worst))
    assert bounds.rf_max == 1
    assert bounds.bw_max_bps == pytest.approx(2 * 8 * 10 * (20_000 + 200))  # two links at most


def test_f_weighs_the_three_terms() -> None:
    score, bounds = evaluate(PROBLEM, AT_EDGE), PROBLEM.bounds
    assert score.rt_s is not None
    rt = (score.rt_s - bounds.rt_min_s) / (bounds.rt_max_s - bounds.rt_min_s)
    assert score.f == pytest.approx(rt + 1 / 1 + 0)
    heavy = replace(PIPELINE, objective=Objective(weight_rt=2.0, weight_rf=0.5))
    assert evaluate(Problem(heavy, SITES), AT_EDGE).f == pytest.approx(2 * rt + 0.5)


def test_a_term_without_a_scale_is_nothing() -> None:
    flat = replace(PIPELINE, objective=Objective(rf_max=0.0, bw_max_bps=0.0, rt_min_s=1.0, rt_max_s=1.0))
    assert evaluate(Problem(flat, SITES), AT_DC).f == 0.0


def test_only_paths_between_two_ends_count_when_asked() -> None:
    late = Operator("late", is_source=True, rate_rps=1.0, size_bytes=1.0, work_s=9.0)
    end = Operator("end", (Stream("see", "end"), Stream("late", "end")), is_sink=True, work_s=0.004)
    sites = replace(SITES, sites=(replace(SITES.sites[0], slots=3), *SITES.sites[1:]))
    operators = (*PIPELINE.operators[:2], late, end)
    placement = AT_EDGE | {"late": "edge"}
    whole = evaluate(Problem(Pipeline("p", operators), sites), placement)
    assert whole.critical_path == ("late", "end")
    some = evaluate(Problem(Pipeline("p", operators, Objective(between=("cam", "end"))), sites), placement)
    assert some.critical_path == ("cam", "see", "end")
    assert some.rt_s == evaluate(PROBLEM, AT_EDGE).rt_s


def test_load_is_in_cores_and_names_the_sites_above_theirs() -> None:
    score = evaluate(PROBLEM, AT_EDGE)
    assert score.load_cores == pytest.approx({"edge": 10 * 0.004 + 10 * 0.080, "dc": 10 * 0.004 / 4})
    assert score.overloaded == ("edge",)


@pytest.mark.parametrize(
    ("placement", "piece"),
    [
        ({"cam": "edge", "see": "edge"}, "'end' has no site"),
        (AT_EDGE | {"see": "nowhere"}, "'nowhere', which is no site"),
        (AT_EDGE | {"see": "hub"}, "'hub', which has no slots"),
        (AT_EDGE | {"cam": "dc"}, "is a source and needs a leaf"),
        (AT_EDGE | {"end": "edge", "see": "dc"}, "is a sink and needs a root"),
        (AT_EDGE | {"ghost": "dc"}, "'ghost' is placed but is no operator"),
    ],
)
def test_a_placement_that_breaks_a_rule_has_reasons_and_no_f(placement: dict[str, str], piece: str) -> None:
    score = evaluate(PROBLEM, placement)
    assert not score.valid
    assert score.f is None
    assert any(piece in reason for reason in score.reasons)


def test_slots_company_and_at_are_rules_too() -> None:
    cam, see, end = PIPELINE.operators
    tight = replace(SITES, sites=(replace(SITES.sites[0], slots=1), *SITES.sites[1:]))
    assert "1 slots and 2 operators" in evaluate(Problem(PIPELINE, tight), AT_EDGE).reasons[0]
    apart = Problem(Pipeline("p", (cam, replace(see, apart=("cam",)), end)), SITES)
    assert "must be apart from 'cam'" in evaluate(apart, AT_EDGE).reasons[0]
    together = Problem(Pipeline("p", (cam, replace(see, together=("cam",)), end)), SITES)
    assert "must be with 'cam'" in evaluate(together, AT_DC).reasons[0]
    pinned = Problem(Pipeline("p", (cam, replace(see, at=("dc", "tag:gpu")), end)), SITES)
    assert "allows only 'dc', 'tag:gpu'" in evaluate(pinned, AT_EDGE).reasons[0]


def fire_from_files() -> Problem:
    sites = read_sites((FIRE / "flat.yaml").read_bytes(), "flat.yaml")
    return Problem(read_pipeline((FIRE / "fire.yaml").read_bytes(), "fire.yaml", sites), sites)


def test_the_fire_example_is_the_fire_job_of_the_benchmark() -> None:
    read, made = fire_from_files(), instances.fire(1)
    assert read.bounds == made.bounds
    for seed in range(30):
        placement = any_placement(Thrown(seed), made)
        one, two = evaluate(read, placement), evaluate(made, placement)
        assert one.valid == two.valid
        assert one.f == (None if two.f is None else pytest.approx(two.f, rel=1e-12))


def test_the_figures_of_the_fire_example() -> None:
    problem = fire_from_files()
    prepared = Prepared(problem)
    found = {}
    for name, method in METHODS.items():
        if name != "exhaustive":
            answer = place(problem, name, 0, prepared=prepared)
            assert isinstance(answer, Result)
            found[name] = (answer, method.is_search)
    best, _ = found["exact"]
    assert best.proved
    assert best.f == pytest.approx(0.08649630048732532, rel=1e-9)
    assert best.score.rt_s == pytest.approx(0.11193, rel=1e-9)
    assert found["td"][0].f == pytest.approx(0.48578031300456975, rel=1e-9)
    assert found["hlf"][0].f == pytest.approx(1.146516679295018, rel=1e-9)
    searched = min(answer.score.rt_s or 9 for answer, is_search in found.values() if is_search)
    built = max(answer.score.rt_s or 0 for answer, is_search in found.values() if not is_search)
    assert searched <= 0.65 * built  # the paper: almost half
