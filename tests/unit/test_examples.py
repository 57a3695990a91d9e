"""Do the examples' generators give what their pages promise, and does the feed say what is wrong with one?"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import yaml

from headwater.errors import BindError, SpecError
from headwater.model.files import read_sites
from headwater.model.project import Definition, Project
from headwater.model.scenario import RateChange
from headwater.model.scenario_file import read_scenario
from headwater.model.settings_file import Defined, read_settings, settle
from headwater.model.sites import Site
from headwater.model.workload import Sinusoid
from headwater.serve import feed as feed_module
from headwater.serve.arguments import Search
from headwater.serve.feed import Record, feed, sent_records
from headwater.serve.output import Output
from headwater.serve.prepare import prepare
from tests.unit import test_lanes as lanes

EXAMPLES = Path(__file__).parents[2] / "examples"
SITES = {"readings": ("pi",), "fire": ("pi", "pi-a", "pi-b"), "traffic": ("edge-a", "edge-b", "edge-c")}
SMALL: dict[str, dict[str, str]] = {"readings": {}, "fire": {"location_side": "40", "tree_side": "20"}, "traffic": {}}
NAMES = tuple(SITES)
Made = list[Record]


def made(name: str, site: str, seed: int = 0, count: int = 200, start: int = 0, **settings: str) -> Made:
    return sent_records(str(EXAMPLES / name), site, seed, count, settings=SMALL[name] | settings, start=start)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_records_and_another_gives_others(name: str) -> None:
    site = SITES[name][0]
    assert made(name, site) == made(name, site)
    assert made(name, site) != made(name, site, seed=1)
    assert len(made(name, site)) == 200


@pytest.mark.parametrize("name", NAMES)
def test_sites_have_records_of_their_own(name: str) -> None:
    for one, other in itertools.combinations(SITES[name], 2):
        keys = [{(topic, key) for topic, key, _ in made(name, site)} for site in (one, other)]
        assert keys[0].isdisjoint(keys[1])


@pytest.mark.parametrize("name", NAMES)
def test_a_generator_can_start_anywhere(name: str) -> None:
    site = SITES[name][-1]
    assert made(name, site, start=50, count=20) == made(name, site, count=70)[50:]


def test_readings_are_json_with_one_in_four_hot() -> None:
    records = made("readings", "pi", count=1000)
    readings = [json.loads(value) for _, _, value in records]
    assert {topic for topic, _, _ in records} == {"readings"}
    assert all(reading.keys() == {"sensor", "celsius", "at"} for reading in readings)
    assert [key for _, key, _ in records] == [reading["sensor"].encode() for reading in readings]
    assert 0.2 < sum(reading["celsius"] > 30 for reading in readings) / 1000 < 0.3
    assert 50 < np.mean([len(value) for _, _, value in records]) < 80


def test_fire_reports_are_images_of_the_declared_size_with_small_keys() -> None:
    records = sent_records(str(EXAMPLES / "fire"), "pi", 0, 10)
    sizes = {topic: {len(value) for each, _, value in records if each == topic} for topic, _, _ in records}
    assert sizes == {"tree-reports": {100 * 100 * 3 + 15}, "location-reports": {408 * 408 * 3 + 15}}
    assert [topic for topic, _, _ in records].count("tree-reports") == 8, "four trees to one location"
    for _, key, value in records:
        assert key is not None
        assert len(key) < 0.01 * 30_000
        assert json.loads(key).keys() == {"camera", "sequence", "celsius"}
        magic, size, depth, pixels = value.split(b"\n", 3)
        width, height = map(int, size.split())
        assert (magic, depth, len(pixels)) == (b"P6", b"255", width * height * 3)


def test_one_fire_report_in_ten_burns_and_one_in_two_is_warm() -> None:
    records = made("fire", "pi-a", count=600)
    reds = []
    for _, _, value in records:
        pixels = np.frombuffer(value.split(b"\n", 3)[3], np.uint8).reshape(-1, 3)
        reds.append(np.mean((pixels[:, 0] >= 160) & (pixels[:, 1] < 96) & (pixels[:, 2] < 96)))
    assert not [share for share in reds if 0 < share <= 0.055], "no image is near the limit"
    assert 0.07 < np.mean(np.array(reds) > 0.05) < 0.13
    celsius = [json.loads(key or b"")["celsius"] for _, key, _ in records]
    assert 0.44 < np.mean(np.array(celsius) >= 25) < 0.56


def test_a_camera_site_named_for_one_kind_has_only_that() -> None:
    assert {topic for topic, _, _ in made("fire", "pi-a")} == {"tree-reports"}
    assert {topic for topic, _, _ in made("fire", "pi-b")} == {"location-reports"}


def fix_times(records: Made) -> list[datetime]:
    lines = [value.decode().split(",") for _, _, value in records]
    return [datetime.fromisoformat(line[2]) for line in lines if len(line) == 7 and line[3] != "north"]


@pytest.mark.parametrize("site", SITES["traffic"])
def test_taxis_are_late_by_less_than_the_pipeline_waits(site: str) -> None:
    times = fix_times(made("traffic", site, count=5000))
    latest = list(itertools.accumulate(times, max))
    behind = max(last - time for last, time in zip(latest, times, strict=True))
    assert timedelta(seconds=10) < behind <= timedelta(seconds=20), "there is disorder, under the 30 s of the pipeline"
    assert times[-1] - times[0] > timedelta(minutes=15)


def test_some_taxi_records_are_there_to_be_cleaned() -> None:
    records = made("traffic", "edge-a", count=3000)
    unreadable = len(records) - len(fix_times(records))
    assert 0.01 < unreadable / 3000 < 0.03
    assert 50 < np.mean([len(value) for _, _, value in records]) < 65


def test_closing_fixes_lie_far_beyond_all_others_and_apart() -> None:
    with_closing = sent_records(str(EXAMPLES / "traffic"), "edge-a", 0, 100, should_close=True)
    times = fix_times(with_closing)
    first, second = times[-2:]
    assert len(with_closing) == 102
    assert first - max(times[:-2]) > timedelta(days=365)
    assert second - first > timedelta(days=1)


def test_a_real_file_is_shared_by_the_edges_and_played_in_order_again_and_again(tmp_path: Path) -> None:
    file = tmp_path / "taxis.csv"
    rows = [f"{n},{n % 30},2009-01-06T00:{59 - n:02}:00,39.9,116.4,{n}.5,90" for n in range(60)]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    shares = [made("traffic", site, count=60, file=str(file)) for site in SITES["traffic"]]
    taxis = [{key for _, key, _ in share} for share in shares]
    assert sum(map(len, taxis)) == 30
    for share in shares:
        times = fix_times(share)
        assert times == sorted(times)
    first_of_all = sent_records(str(EXAMPLES / "traffic"), "here", 0, 60, settings={"file": str(file)})
    assert sorted(value.decode() for _, _, value in first_of_all) == sorted(rows)
    again = made("traffic", "here", count=60, start=60, file=str(file))
    assert fix_times(again) == [each + timedelta(days=1) for each in fix_times(first_of_all)]


@pytest.mark.parametrize(
    "path",
    sorted(path for name in NAMES for path in (EXAMPLES / name).glob("sites*.yaml")),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_sites_files_are_right(path: Path) -> None:
    sites = read_sites(path.read_bytes(), str(path))
    assert len(sites.sites) in {3, 4}


def test_the_testbed_of_ten_is_a_tree_that_gets_weaker_from_the_cloud_to_the_boxes() -> None:
    path = EXAMPLES / "testbed" / "ten.yaml"
    sites = read_sites(path.read_bytes(), str(path))
    assert [site.kind for site in sites.sites] == ["root", *["middle"] * 4, *["leaf"] * 5]
    assert len(sites.links) == len(sites.sites) - 1, "connected, as all sites files are, and without a ring"
    for link in sites.links:
        outer, inner = sites.by_name[link.a], sites.by_name[link.b]
        for mine, next_in in zip(strength(outer), strength(inner), strict=True):
            assert mine < next_in, f"{outer.name} is weaker than {inner.name}"
    bandwidths_bps = [link.bandwidth_bps for link in sites.links]
    assert bandwidths_bps == sorted(bandwidths_bps, reverse=True)
    assert len(set(bandwidths_bps)) == 3


def strength(site: Site) -> tuple[float, float, float]:
    assert site.cores is not None
    assert site.memory_bytes is not None
    return site.speed * site.cores, site.memory_bytes, site.slots


PAPER = EXAMPLES / "traffic" / "paper"
# As jobs.py has them: `headwater inspect` shows it, but needs Spark.
JOBS = (
    lanes.one("taxis"),
    lanes.one("clean", "taxis"),
    lanes.one("forward", "clean"),
    lanes.one("statistics", "clean", "aggregate", "watermark"),
    lanes.one("merged", "forward", "aggregate", "watermark"),
    lanes.sink("local_statistics", "statistics"),
    lanes.sink("global_statistics", "merged"),
)


def paper_project() -> Project:
    """The jobs with what headwater.yml says of them."""
    file = PAPER / "headwater.yml"
    settings = read_settings(file.read_bytes(), str(file), [job.name for job in JOBS])
    settled = settle(settings, [Defined(job.name, job.reads, job.file, job.line) for job in JOBS], "unnamed")
    definitions: tuple[Definition, ...] = tuple(replace(job, **settled.extras[job.name]._asdict()) for job in JOBS)
    return Project(str(PAPER), settled.pipeline, definitions, "f", delivery=settings.delivery)


EDGES = {f"edge-{letter}" for letter in "abc"}
EDGE_JOBS = {"clean", "forward", "statistics", "local_statistics"}


@pytest.mark.parametrize(
    ("sites", "placement", "edges", "in_dc"),
    [
        ("sites.yaml", "fog.yaml", EDGES, set()),
        ("sites.yaml", "cloud.yaml", EDGES, EDGE_JOBS),
        ("one-edge.yaml", "local.yaml", {"edge-a"}, set()),
        ("one-edge.yaml", "remote.yaml", {"edge-a"}, {"statistics", "local_statistics"}),
    ],
    ids=["fog", "cloud", "local", "remote"],
)
def test_placements_of_the_papers_jobs_are_valid_and_stay_in_the_real_time_lane(
    sites: str, placement: str, edges: set[str], in_dc: set[str]
) -> None:
    found = prepare(paper_project(), str(PAPER / sites), str(PAPER / placement), Search(), None)
    wanted = {"merged": "dc", "global_statistics": "dc"} | {f"taxis@{edge}": edge for edge in edges}
    wanted |= {f"{job}@{edge}": "dc" if job in in_dc else edge for job in EDGE_JOBS for edge in edges}
    assert found.placement == wanted
    assert found.score.valid
    assert not found.score.overloaded
    assert not found.score.congested
    assert {(part.lane, part.mode) for part in found.parts} == {("real-time", "update")}


def test_the_papers_edges_are_equally_far_from_the_cloud() -> None:
    links = [
        (link.latency_s, link.bandwidth_bps)
        for name in ("sites.yaml", "one-edge.yaml")
        for link in read_sites((PAPER / name).read_bytes(), name).links
    ]
    assert links == [(0.02, 100e6)] * 4


def test_the_burst_is_more_than_its_machine_has_and_comes_from_the_lowest_class() -> None:
    path = EXAMPLES / "control" / "burst.yaml"
    scenario = read_scenario(path.read_bytes(), str(path), lambda name: name.encode(), (), ())
    asks = {one.name: one.load.baseline * one.work_s for one in scenario.operators if isinstance(one.load, Sinusoid)}
    changes = [event.change for event in scenario.events]
    burst = {one.operator: one.factor for one in changes if isinstance(one, RateChange) and one.factor != 1.0}
    assert [machine.capacity for machine in scenario.machines] == [4.0]
    assert sum(asks.values()) == pytest.approx(2.4)
    assert sum(asks[name] * burst.get(name, 1.0) for name in asks) == pytest.approx(4.8)
    assert {one.quality for one in scenario.operators if one.name in burst} == {"bronze"}
    assert [one.quality for one in scenario.operators] == ["gold", "gold", "silver", "silver", "bronze", "bronze"]


def test_fire_has_the_same_operators_and_numbers_in_both_forms() -> None:
    declared = yaml.safe_load((EXAMPLES / "fire" / "headwater.yml").read_text(encoding="utf-8"))["operators"]
    flat = (EXAMPLES / "fire" / "fire.yaml").read_text(encoding="utf-8")
    for name, operator in yaml.safe_load(flat)["operators"].items():
        wanted = {key: value for key, value in operator.items() if key not in {"source", "sink", "inputs"}}
        # The paper's splitter gives a temperature alone; a channel carries whole rows, so the filter makes it small.
        for stream in operator.get("inputs", []):
            wanted |= {"size_factor": stream["size_factor"]} if isinstance(stream, dict) else {}
        assert declared[name.replace("-", "_")] == wanted, name


BROKEN = {
    "HW1702": ("x = 1\n", "has no function 'records"),
    "HW1703": ("def records(site, seed, start=0):\n    yield 'topic', b'key'\n", "record 0 of site 'pi'"),
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_generator_that_is_none_is_refused_with_the_reason(code: str, tmp_path: Path) -> None:
    text, reason = BROKEN[code]
    (tmp_path / "records.py").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=reason) as caught:
        sent_records(str(tmp_path), "pi", 0, 1)
    assert caught.value.mistakes[0].code == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def records(:\n", "HW1702"),
        ("import no_such_module_anywhere\n", "HW1702"),
        ("def records(site, seed, start=0):\n    raise ValueError('no sensors')\n    yield\n", "HW1703"),
    ],
)
def test_a_generator_that_fails_is_the_users_to_repair(text: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "records.py").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        sent_records(str(tmp_path / "records.py"), "pi", 0, 1)
    assert caught.value.mistakes[0].code == code
    assert not (tmp_path / "__pycache__").exists()


def test_a_missing_generator_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "records.py"):
        with pytest.raises(SpecError) as caught:
            sent_records(str(path), "pi", 0, 1)
        assert caught.value.mistakes[0].code == "HW1701"


def test_what_a_generator_does_not_have_cannot_be_asked_for() -> None:
    with pytest.raises(SpecError, match="without --close") as caught:
        sent_records(str(EXAMPLES / "readings"), "pi", 0, 1, should_close=True)
    assert caught.value.mistakes[0].code == "HW1704"
    with pytest.raises(SpecError, match="it has 'tree_side', 'location_side'") as caught:
        sent_records(str(EXAMPLES / "fire"), "pi", 0, 1, settings={"side": "10"})
    assert caught.value.mistakes[0].code == "HW1704"


def test_all_that_is_wrong_with_a_feed_is_said_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        feed(str(EXAMPLES / "readings"), {}, 0.0, -1.0, -1, 0, False, Output(True), start=-1)
    assert [mistake.code for mistake in caught.value.mistakes] == ["HW1705"] * 5


def test_a_broker_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "ANSWER_S", 0.5)
    with pytest.raises(BindError, match=r"HW4401 the broker 127.0.0.1:1 of site 'pi'"):
        feed(str(EXAMPLES / "readings"), {"pi": "127.0.0.1:1"}, 10.0, None, 1, 0, False, Output(True))
