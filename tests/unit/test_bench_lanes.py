"""Are the figures of the data plane's benchmark what they say?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import page
from bench.lanes_ages import REFERENCES, Ages, compared, figures, percentile
from bench.lanes_load import GROUPS, HEAD, RECORD_BYTES, record
from bench.lanes_tables import LAYOUTS, TITLES
from bench.tables import table

MS = 1_000_000
PLAIN = REFERENCES[-1]
MEASURED: dict[str, Any] = {
    **figures([1.0, 2.0, 3.0, 40.0], 0),
    "sent_rps": 200.0,
    "doubles": 0,
    "cores": 0.3,
    "memory_bytes": 500 * 2**20,
    "machine_cores": 1.2,
}


def lane_row(lane: str, **more: Any) -> dict[str, Any]:
    return {"case": "stateless", "lane": lane, "rate_rps": 200.0, "rate": "200/s", **MEASURED, **more}


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 50.0), (0.9, 90.0), (0.99, 99.0), (1.0, 100.0)])
def test_a_percentile_is_the_value_that_so_many_are_not_above(share, value):
    assert percentile([float(number) for number in range(1, 101)], share) == value


def test_each_record_without_groups_has_the_age_of_its_own_first_result():
    ages = Ages()
    for at_ms in (0, 10, 20):
        ages.born(at_ms * MS)
    ages.seen(1, 15 * MS)
    ages.seen(0, 17 * MS)
    ages.seen(1, 99 * MS)
    assert ages.between(0, 100 * MS, 50 * MS) == ([17.0, 5.0, 30.0], 1)
    assert (ages.count, ages.seen_count, ages.doubles) == (3, 2, 1)


def test_a_result_of_a_group_tells_of_all_its_records_up_to_the_newest():
    ages = Ages(groups=2)
    for at_ms in range(5):
        ages.born(at_ms * MS)
    ages.seen(4, 10 * MS)
    ages.seen(1, 11 * MS)
    ages.seen(2, 12 * MS)
    assert ages.between(0, 100 * MS, 20 * MS) == ([10.0, 10.0, 8.0, 17.0, 6.0], 1)
    assert ages.doubles == 1


def test_only_records_born_in_the_window_count():
    ages = Ages()
    for at_ms in (0, 10, 20):
        ages.seen(ages.born(at_ms * MS), (at_ms + 1) * MS)
    assert ages.between(10 * MS, 20 * MS, 50 * MS) == ([1.0], 0)


def test_figures_are_percentiles_in_ms():
    found = figures([4.0, 1.0, 3.0, 2.0], 0)
    assert (found["p50_ms"], found["p99_ms"], found["max_ms"], found["records"]) == (2.0, 4.0, 4.0, 4)
    assert not found["falls_behind"]


@pytest.mark.parametrize(("ages_ms", "unseen"), [([1.0, 2.0, 3.0], 1), ([100.0, 500.0, 900.0], 0)])
def test_a_lane_falls_behind_when_results_are_missing_or_come_later_and_later(ages_ms, unseen):
    assert figures(ages_ms, unseen)["falls_behind"]


def test_ratios_are_those_to_plain_micro_batches_at_the_same_query_and_rate():
    rows = compared(
        [
            lane_row("headwater real-time"),
            lane_row(PLAIN, p50_ms=80.0, p99_ms=160.0),
            lane_row("headwater real-time", rate_rps=50.0),
            {"case": "stateless", "lane": "spark real-time", "rate_rps": 200.0, "left_out": "refused"},
        ]
    )
    assert (rows[0]["times_p50"], rows[0]["times_p99"]) == (40.0, 4.0)
    assert all("times_p50" not in row for row in rows[2:])


def test_with_groups_the_reference_has_one_partition():
    ones = [lane_row(PLAIN, p50_ms=9_000.0), lane_row(REFERENCES[0], p50_ms=100.0), lane_row("headwater real-time")]
    assert [row["times_p50"] for row in compared(ones)] == [100 / 9_000, 1.0, 50.0]


def test_nothing_is_compared_with_a_lane_that_falls_behind():
    rows = compared([lane_row(PLAIN, falls_behind=True), lane_row("headwater real-time")])
    assert not any("times_p50" in row for row in rows)


def test_a_record_begins_with_its_group_and_is_json_of_one_size():
    for number in (0, 17, 123_456):
        value = record(number, 1_800_000_000_000_000_000)
        assert len(value) == RECORD_BYTES
        assert json.loads(value)["id"] == number
        assert value[:HEAD] == f'{{"group":"g{number % GROUPS:03d}"'.encode()


def sections() -> dict[str, list[dict[str, Any]]]:
    spread = {"median": 9.0, "least": 8.0, "most": 10.0}
    sites = {**MEASURED, "case": "sites", "rate": "200/s", "brokers_bytes": 2**20, "lanes": ["real-time"]}
    rows = compared([lane_row("headwater real-time", unseen=3, falls_behind=True), lane_row(PLAIN)])
    left_out = {"case": "python", "lane": "spark real-time", "rate_rps": 50.0, "rate": "50/s", "left_out": "refused"}
    return {
        "lanes": [*rows, left_out],
        "boundary": [lane_row("headwater real-time")],
        "flink": compared([lane_row("flink tuned")], ("flink tuned",)),
        "chain": [sites],
        "ten": [sites],
        "start": [{"case": "three sites", "ready_s": spread, "first_s": spread}],
        "memory": [{**sites, "runner_bytes": 600 * 2**20, "broker_bytes": 200 * 2**20}],
    }


def test_every_section_has_a_title_and_a_table():
    assert set(LAYOUTS) == set(TITLES) == set(sections())
    for name, rows in sections().items():
        shown = table(TITLES[name], LAYOUTS[name], rows)
        assert shown.row_count == len(rows)
        assert all(len(LAYOUTS[name].row(row)) == len(LAYOUTS[name].heads) for row in rows)


def test_what_has_no_result_yet_is_shown_as_older_than_it_is_said_to_be():
    cells = LAYOUTS["lanes"].row(sections()["lanes"][0])
    assert ">2.0" in cells
    assert cells[-1] == "falls behind; 3 of 4 without a result"


def test_the_page_holds_the_figures_of_a_run_as_json_has_them():
    machine = {"cores": 2, "system": "Linux", "load_at_start": 0.5, "python": "3.11", "packages": {"pyspark": "4.3.0"}}
    report = {"benchmark": "lanes", "machine": machine, "sources": "abc", "sources_changed": False, "seconds": 60.0}
    text = page.markdown(json.loads(json.dumps(report | {"sections": sections()})))
    assert all(f"### {title}" in text for title in TITLES.values())
    assert "- python, spark real-time, 50/s: refused" in text
