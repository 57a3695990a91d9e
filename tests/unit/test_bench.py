"""Do the figures of experiments say what happened? Outcomes are made by hand, so that every answer is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.errors import SpecError
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.project import Project
from headwater.model.sites import Link, Site, Sites
from headwater.serve.bench import Options, check, marks, only, thinned, wan_bytes
from headwater.serve.bench_cut import caught_up_s
from headwater.serve.bench_figures import Estimate, estimate, median, paired, percent_lower
from headwater.serve.bench_fire import ALERTS, TEMPERATURES, fire_streams, ledger
from headwater.serve.bench_report import Panel, Picture, Report, Table, markdown, write_report
from headwater.serve.bench_traffic import differential, processed_share, traffic_ledger
from headwater.serve.feed import sent_records
from headwater.serve.trial import Arrival, Fed, Outcome, Times
from headwater.testbed.calibrate import Measured

EXAMPLES = Path(__file__).parents[2] / "examples"
RIGHT = Measured("edge", "dc", "delay", 0.08, 0.0805, False)
OFF = Measured("edge", "dc", "delay", 0.08, 0.134, True)
OUTCOME = Outcome(
    placement={"a": "edge", "b": "dc"},
    rt_s=0.1,
    factor=1.0,
    start_s=20.0,
    drain_s=0.5,
    begin_ms=10_000,
    end_ms=20_000,
    fed=(),
    arrivals={},
    link_bytes={("edge", "dc"): 1000, ("dc", "edge"): 50, ("dc", "rack"): 7},
    late_share=0.001,
    cores={"edge": 0.1},
    ground=(RIGHT,),
    warnings=(),
)


def arrival(created_ms: int, late_ms: int, key: str = "", value: bytes = b"{}", origin: str = "s/t/0/0") -> Arrival:
    return Arrival(origin, key, value, created_ms, created_ms + late_ms)


def options(**changes: object) -> Options:
    return replace(Options(str(EXAMPLES), 0.1, 1, Times(5.0, 10.0), 0, "out/x"), **changes)  # type: ignore[arg-type]


def test_an_estimate_of_one_run_has_no_interval_and_of_none_no_value() -> None:
    assert estimate([3.0]) == Estimate(3.0, None, 1)
    assert math.isnan(estimate([]).mean)
    assert estimate([1.0, math.nan, 3.0]).runs == 2
    assert math.isnan(median([]))


def test_pairs_take_out_what_a_round_shares() -> None:
    slow_rounds = [100.0, 200.0, 300.0]
    assert paired([value + 1 for value in slow_rounds], slow_rounds) == Estimate(1.0, 0.0, 3)
    assert estimate(slow_rounds).half_width == pytest.approx(248.4, rel=0.01)  # t(0.975, 2) = 4.303


def test_percent_lower_is_negative_for_what_is_higher() -> None:
    assert percent_lower(150.0, 100.0) == pytest.approx(-50.0)


def test_only_far_links_are_wide_area_and_both_ways_count() -> None:
    links = (Link("edge", "dc", 0.08, 1e8), Link("dc", "rack", 0.0003, 1e9))
    sites = Sites((Site("edge"), Site("dc"), Site("rack")), links)
    assert wan_bytes(OUTCOME, sites) == 1050


def test_only_far_links_are_thinned_with_the_rates() -> None:
    links = (Link("edge", "dc", 0.08, 1e8), Link("dc", "rack", 0.0003, 1e9))
    found = thinned(Sites((Site("edge"), Site("dc"), Site("rack")), links), 0.2)
    assert [link.bandwidth_bps for link in found.links] == [2e7, 1e9]


def test_only_what_leads_to_a_sink_stays_of_a_project() -> None:
    def operator(name: str, *reads: str, is_sink: bool = False) -> Operator:
        return Operator(name, inputs=tuple(Stream(one, name) for one in reads), is_source=not reads, is_sink=is_sink)

    operators = (
        operator("source"),
        operator("clean", "source"),
        operator("other", "clean"),
        operator("kept", "clean", is_sink=True),
        operator("dropped", "other", is_sink=True),
    )
    project = Project("/x", Pipeline("p", operators), (), "f")
    assert [one.name for one in only(project, "kept").pipeline.operators] == ["source", "clean", "kept"]


def test_a_trial_on_good_ground_has_no_mark() -> None:
    assert marks(OUTCOME, (RIGHT,)) == []


@pytest.mark.parametrize(
    ("outcome", "ground", "words"),
    [
        (replace(OUTCOME, ground=(OFF,)), (), "before this trial"),
        (OUTCOME, (OFF,), "was 134 ms, not 80 ms, before the experiment"),
        (replace(OUTCOME, late_share=0.03), (), "3.0% of the packets"),
        (replace(OUTCOME, fed=(Fed("edge", "g", {}, 0, 0, 10, 4.0),)), (), "feed of site 'edge' was 4 s behind"),
        (replace(OUTCOME, ground=(replace(OFF, found=None),)), (), "was nothing"),
    ],
)
def test_ground_that_was_off_marks_a_trial(outcome: Outcome, ground: tuple[Measured, ...], words: str) -> None:
    found = marks(outcome, ground)
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"scale": 0.0}, "--scale is 0"),
        ({"repeat": 0}, "--repeat is 0"),
        ({"times": Times(5.0, 0.0)}, "--for and --warm"),
        ({"examples": "/nowhere"}, "run this in Headwater's folder"),
    ],
)
def test_what_an_experiment_cannot_have_is_refused_first(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        check(options(**wrong), "fire/flat.yaml")
    assert caught.value.mistakes[0].code == "HW1320"


def fire_outcome(trees: int = 40) -> Outcome:
    """Return what comes of some tree reports when all goes right."""
    fed = Fed("edge-a-1", str(EXAMPLES / "fire"), {"tree_side": "16"}, 3, 5, trees, 0.0)
    arrivals: dict[str, list[Arrival]] = {ALERTS: [], TEMPERATURES: []}
    for number, (_, key, image) in enumerate(
        sent_records(fed.generator, fed.site, fed.seed, trees, settings=fed.settings, start=fed.start)
    ):
        report = json.loads(key or b"")
        pixels = image.split(b"\n", 3)[3]
        is_fire = sum(pixels[at] >= 160 for at in range(0, len(pixels), 3)) > 0.05 * len(pixels) / 3
        one = arrival(10_000 + number, 100 + number, report["camera"], key or b"")
        arrivals[TEMPERATURES] += [one] if report["celsius"] >= 25 else []
        arrivals[ALERTS] += [one] if is_fire else []
    return replace(OUTCOME, fed=(fed,), arrivals={topic: tuple(rows) for topic, rows in arrivals.items()})


def test_the_ledger_of_fire_balances_when_all_has_come() -> None:
    books = ledger(fire_outcome())
    for book in books.values():
        assert book["owed"] == book["came"] > 0
        assert (book["lost"], book["doubled"]) == (0, 0)


def test_the_ledger_of_fire_tells_lost_and_doubled_apart() -> None:
    whole = fire_outcome()
    first, *rest = whole.arrivals[TEMPERATURES]
    changed = replace(whole, arrivals={**whole.arrivals, TEMPERATURES: (*rest, rest[-1], rest[-1])})
    assert first not in rest
    book = ledger(changed)[TEMPERATURES]
    assert (book["lost"], book["doubled"]) == (1, 2)


def test_streams_are_told_apart_by_the_camera_and_only_what_was_watched_counts() -> None:
    rows = (
        arrival(10_000, 120, "edge-a-1/tree-3"),
        arrival(9_999, 120, "edge-a-1/tree-3"),
        arrival(19_999, 250, "edge-b-1/location-0"),
        arrival(20_000, 250, "edge-b-1/location-0"),
    )
    streams = fire_streams(replace(OUTCOME, arrivals={ALERTS: rows, TEMPERATURES: ()}))
    assert streams["alerts, trees"] == [0.12]
    assert streams["alerts, locations"] == [0.25]
    assert streams["temperatures, trees"] == []


def test_the_ledger_of_traffic_owes_a_row_for_every_clean_line() -> None:
    fed = Fed("edge-a", str(EXAMPLES / "traffic"), {}, 0, 0, 300, 0.0)
    rows = tuple(arrival(10_000, 5, origin=f"edge-a/taxis/0/{number}") for number in range(284))
    whole = replace(OUTCOME, fed=(fed,), arrivals={"local-statistics": rows})
    book = traffic_ledger(whole)["local-statistics"]
    assert 270 < book["owed"] < 300
    assert book["lost"] == book["owed"] - 284
    twice = replace(whole, arrivals={"local-statistics": (*rows, rows[0])})
    assert traffic_ledger(twice)["local-statistics"]["doubled"] == 1


def test_what_was_processed_late_does_not_count_as_processed_in_time() -> None:
    rows = (arrival(10_000, 5), arrival(19_990, 5), arrival(19_999, 5))
    assert processed_share(replace(OUTCOME, arrivals={"t": rows}), "t") == pytest.approx(2 / 3)
    assert differential(2.0, 3.0) == -50.0


def test_catching_up_ends_with_the_last_record_that_the_outage_made_old() -> None:
    before = [arrival(number * 1000, 100) for number in range(5)]
    late = [arrival(6_000, 20_000), arrival(20_000, 7_500), arrival(27_000, 201)]
    after = [arrival(28_000, 110)]
    assert caught_up_s([*before, *late, *after], cut_ms=5_000, back_ms=26_000) == pytest.approx(1.5)
    assert caught_up_s(before, cut_ms=5_000, back_ms=26_000) == 0.0


def test_a_report_is_a_page_with_its_pictures_beside_it(tmp_path: Path) -> None:
    panels = (
        Panel("boxes", "boxes", "ms", {"a": [1.0, 2.0, 3.0], "b": []}),
        Panel("lines", "lines", "ms", {"a": [(1.0, 2.0, 0.1), (2.0, 3.0, 0.2)], "none": []}, "records/s", is_log=True),
        Panel("bars", "bars", "MB", {"a": (3.0, 0.0), "b": (2.0, 0.5)}),
    )
    table = Table("Figures", ("a", "b"), (("1", "x|y"),), "A note.")
    report = Report("What was found", ("One sentence.",), (table,), (Picture("p", "All kinds", panels),))
    page = write_report(report, tmp_path / "new")
    assert page.read_text("utf-8") == markdown(report)
    assert "| 1 | x\\|y |" in markdown(report)
    assert "![All kinds](p.png)" in markdown(report)
    assert (tmp_path / "new" / "p.png").read_bytes().startswith(b"\x89PNG")
