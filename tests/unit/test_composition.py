"""What a composition says, which mistakes are found in it and where, and that it comes back from its own form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SpecError
from headwater.model.files import read_sites
from headwater.plan.composition import (
    Surroundings,
    composition_text,
    feeds_itself,
    job_form,
    read_composition,
    read_job,
)
from headwater.plan.jobs import LONERS, Job, Topic

CODE, OTHER = "ab" * 32, "cd" * 32
UPLOADS = {"test-1.zip": CODE, CODE: CODE, OTHER: OTHER}
AROUND = Surroundings(
    ("edge-1", "edge-2", "cloud"), UPLOADS.get, {"http://172.16.39.7:8081/": "edge-2"}, {"127.0.0.1:9092": "cloud"}
)
FORM = {
    "job_name": "A",
    "spe_address": "http://edge-1:8081/",
    "source_broker": "tcp://edge-1:1883",
    "sink_broker": "tcp://cloud:1883",
    "source_topic": "T-1",
    "sink_topic": "T-C-filter",
    "entry_class": "package.jobs:example",
    "job_path": "test-1.zip",
}
LISTING = b"""\
----
jobs:
- job_name: A
  spe_address: http://edge-1:8081/
  source_broker: tcp://edge-1:1883
  sink_broker: tcp://cloud:1883
  source_topic: T-1
  sink_topic: T-C-filter
  entry_class: package.jobs:example
  job_path: test-1.zip

- job_name: B
  spe_address: http://edge-2:8081/
  source_broker: tcp://edge-2:1883
  sink_broker: tcp://cloud:1883
  source_topic: T-2
  sink_topic: T-C-filter
  entry_class: package.jobs:example
  job_path: test-1.zip

- job_name: C
  spe_address: http://cloud:8081/
  source_broker: tcp://cloud:1883
  sink_broker: tcp://10.0.0.7:9092
  source_topic: T-C-filter
  sink_topic: T-D-merger
  entry_class: package.jobs:example
  job_path: test-1.zip
"""


def text(*forms: dict[str, Any]) -> bytes:
    lines = ["jobs:"]
    for form in forms:
        lines += (f"{'- ' if number == 0 else '  '}{key}: {value}" for number, (key, value) in enumerate(form.items()))
    return "\n".join(lines).encode()


def mistakes(content: bytes, around: Surroundings = AROUND) -> list[tuple[str, int | None, str]]:
    with pytest.raises(SpecError) as caught:
        read_composition(content, "city.yaml", "city", around)
    assert all(one.file == "city.yaml" for one in caught.value.mistakes)
    return [(one.code, one.line, one.text) for one in caught.value.mistakes]


def test_the_papers_listing_gives_its_jobs_in_order_with_their_lines() -> None:
    found = read_composition(LISTING, "city.yaml", "city", AROUND)
    assert list(found.jobs) == ["A", "B", "C"]
    assert found.jobs["A"] == Job(
        "A", "city", "edge-1", (Topic("edge-1", "T-1"),), Topic("cloud", "T-C-filter"), CODE, "package.jobs:example"
    )
    assert found.jobs["A"].sink == found.jobs["B"].sink == found.jobs["C"].sources[0]
    assert found.jobs["C"].sink == Topic("10.0.0.7:9092", "T-D-merger")
    assert found.lines == {"A": 3, "B": 12, "C": 21}


def test_a_composition_comes_back_from_its_own_text() -> None:
    found = read_composition(LISTING, "city.yaml", "city", AROUND)
    again = read_composition(composition_text(found.jobs.values()).encode(), "again.yaml", "city", AROUND)
    assert again.jobs == found.jobs


@pytest.mark.parametrize("address", ["edge-2", "http://edge-2/", "http://edge-2:8081/", "https://edge-2"])
def test_a_place_is_a_sites_name_with_or_without_an_address_around_it(address: str) -> None:
    assert read_job({**FORM, "spe_address": address}, AROUND).site == "edge-2"


@pytest.mark.parametrize("address", ["http://172.16.39.7:8081/", "http://172.16.39.7:8081", "172.16.39.7:8081"])
def test_a_place_is_also_what_an_agent_said_that_it_goes_by(address: str) -> None:
    assert read_job({**FORM, "spe_address": address}, AROUND).site == "edge-2"


@pytest.mark.parametrize(
    ("given_", "broker"),
    [
        ("edge-2", "edge-2"),
        ("tcp://edge-2", "edge-2"),
        ("tcp://edge-2:1883", "edge-2"),
        ("tcp://127.0.0.1:9092", "cloud"),
        ("tcp://127.0.0.1:9093", "127.0.0.1:9093"),
        ("tcp://kafka.example.org:9092/", "kafka.example.org:9092"),
        ("tcp://[::1]:9092", "[::1]:9092"),
    ],
)
def test_a_broker_is_a_sites_or_one_of_the_users(given_: str, broker: str) -> None:
    job = read_job({**FORM, "source_broker": given_}, AROUND)
    assert job.sources == (Topic(broker, "T-1"),)
    form = job_form(job)
    assert form is not None
    assert read_job(form, AROUND) == job


def test_a_single_job_belongs_to_no_composition() -> None:
    assert read_job(FORM, AROUND).composition == LONERS


def test_code_is_known_by_its_name_or_its_hash() -> None:
    assert read_job({**FORM, "job_path": f"sha256:{OTHER}"}, AROUND).code == OTHER
    with pytest.raises(SpecError, match=r"HW1535 job 'A': 'job_path' is 'sha256:ef.*Upload it first"):
        read_job({**FORM, "job_path": "sha256:" + "ef" * 32}, AROUND)


@pytest.mark.parametrize(
    ("key", "value", "code", "said"),
    [
        ("job_name", "../etc/passwd", "HW1530", "cannot be called so: allowed are"),
        ("job_name", "jobs", "HW1530", "stands for the jobs that belong to no composition"),
        ("job_name", "x" * 121, "HW1530", "1 to 120"),
        ("spe_address", "edge-3", "HW1532", "Did you mean 'edge-"),
        ("spe_address", "http://mars:1/", "HW1532", "Known: 'cloud', 'edge-1', 'edge-2'"),
        ("source_broker", "tcp://edge-3", "HW1533", "wanted is a site"),
        ("source_broker", "tcp://host:99999", "HW1533", "wanted is a site"),
        ("sink_broker", "tcp://a b:1", "HW1533", "wanted is a site"),
        ("sink_broker", "tcp://user@host:9092", "HW1533", "wanted is a site"),
        ("source_topic", "hw.city.hot", "HW1534", "begin with 'hw.' are Headwater's own"),
        ("source_topic", "a/b", "HW1534", "Kafka allows"),
        ("sink_topic", "x" * 250, "HW1534", "Kafka allows"),
        ("sink_topic", "..", "HW1534", "Kafka allows"),
        ("sink_topic", "__consumer_offsets", "HW1534", "Kafka's own"),
        ("entry_class", "package.ExampleJob", "HW1536", "'module:function'"),
        ("entry_class", "os:system('x')", "HW1536", "'module:function'"),
        ("job_path", "/usr/src/app/jars/test-1.jar", "HW1535", "Upload it first"),
        ("job_path", "x" * 500, "HW1535", "found text of 500 characters"),
        ("job_path", ["x"], "HW1535", "found a list of 1 entry"),
        ("job_path", "", "HW1535", "must be text"),
        ("source_topic", True, "HW1534", "found true"),
    ],
)
def test_each_wrong_value_is_told_with_what_to_do(key: str, value: object, code: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_job({**FORM, key: value}, AROUND)
    assert [one.code for one in caught.value.mistakes] == [code]
    assert said in caught.value.mistakes[0].text


def test_whole_numbers_are_taken_as_text() -> None:
    assert read_job({**FORM, "job_name": 7, "source_topic": 8}, AROUND).name == "7"


def test_all_mistakes_of_a_composition_come_at_once_with_their_lines() -> None:
    wrong = {**FORM, "spe_address": "mars", "sink_topic": "hw.x", "colour": "red"}
    missing = {key: value for key, value in FORM.items() if key != "entry_class"} | {"job_name": "B"}
    found = mistakes(text(wrong, missing, {"job_name": "C"}) + b"\n- 7\n")
    assert [(code, line) for code, line, _ in found[:3]] == [("HW1532", 3), ("HW1534", 7), ("HW1003", 10)]
    assert ("HW1012", 11) in [(code, line) for code, line, _ in found]
    assert len([one for one in found if one[0] == "HW1012"]) == 1 + 7
    assert found[-1][:2] == ("HW1538", 19)


def test_two_jobs_of_one_name_are_told_with_both_lines() -> None:
    found = mistakes(text(FORM, {**FORM, "source_topic": "T-9"}))
    assert [(code, line) for code, line, _ in found] == [("HW1531", 10)]
    assert "on line 2" in found[0][2]


def test_jobs_that_feed_themselves_are_refused() -> None:
    assert mistakes(text({**FORM, "sink_broker": "edge-1", "sink_topic": "T-1"}))[0][:2] == ("HW1537", 2)
    back = {**FORM, "job_name": "B", "source_broker": "cloud", "source_topic": "T-C-filter", "sink_broker": "edge-1"}
    code, line, said = mistakes(text(FORM, {**back, "sink_topic": "T-1"}))[0]
    assert (code, line) == ("HW1537", 2)
    assert "'A', 'B' feed one another" in said


def test_a_circle_through_jobs_of_others_is_found_too() -> None:
    other = Job("X", "other", "cloud", (Topic("cloud", "T-C-filter"),), Topic("edge-1", "T-1"), CODE, "a:b")
    around = Surroundings(AROUND.sites, AROUND.upload, others={"X": other})
    assert mistakes(text(FORM), around)[0][0] == "HW1537"
    with pytest.raises(SpecError, match="HW1537"):
        read_job(FORM, around)


def test_a_circle_that_was_there_before_is_not_blamed_on_this_composition() -> None:
    other = Job("X", "other", "cloud", (Topic("cloud", "T"),), Topic("cloud", "T"), CODE, "a:b")
    around = Surroundings(AROUND.sites, AROUND.upload, others={"X": other})
    assert read_job(FORM, around).name == "A"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "HW1002"),
        (b"jobs: []", "HW1538"),
        (b"jobs:", "HW1012"),
        (b"- 1", "HW1538"),
        (b"jobs: 7", "HW1005"),
        (b"jobs: [[", "HW1001"),
        (b"operators: {}", "HW1012"),
        (b"\xff\xfe", "HW1001"),
        (b"jobs: &a [*a, *a]", "HW1001"),
    ],
)
def test_what_is_no_composition_is_refused(content: bytes, code: str) -> None:
    assert mistakes(content)[0][0] == code


def test_a_composition_has_a_name_that_a_folder_can_have() -> None:
    for name in ("../x", "jobs", "", "a/b", "x" * 121):
        with pytest.raises(SpecError, match="HW1530"):
            read_composition(LISTING, "city.yaml", name, AROUND)


def test_a_fragment_of_a_pipeline_has_no_such_form() -> None:
    assert job_form(Job("p.f", "p", "cloud", (), None, CODE, "a,b", "{}")) is None


names = st.sampled_from("abcdef")


@given(st.dictionaries(names, st.tuples(names, names), max_size=6))
def test_a_circle_is_found_just_when_records_could_come_back(wiring: dict[str, tuple[str, str]]) -> None:
    jobs = [
        Job(name, "c", "s", (Topic("s", read),), Topic("s", written), CODE, "a:b")
        for name, (read, written) in wiring.items()
    ]
    flows = {(read, written) for read, written in wiring.values()}
    reached = set(flows)
    for _ in range(6):
        reached |= {(a, d) for a, b in reached for c, d in flows if b == c}
    circle = feeds_itself(jobs)
    assert bool(circle) == any(a == b for a, b in reached)
    by_name = {job.name: job for job in jobs}
    for writer, reader in zip(circle, (*circle[1:], *circle[:1]), strict=True):
        assert by_name[writer].sink in by_name[reader].sources


@pytest.mark.parametrize(("file", "names"), [("listing-1.1.yaml", "A B C D"), ("listing-1.2.yaml", "A C C2 D")])
def test_the_example_of_paper_002_is_right(file: str, names: str) -> None:
    folder = Path(__file__).parents[2] / "examples" / "composition"
    sites = [one.name for one in read_sites((folder / "sites.yaml").read_bytes(), "sites.yaml").sites]
    around = Surroundings(sites, {"jobs.py": "a" * 64}.get)
    found = read_composition((folder / file).read_bytes(), file, "paper", around)
    assert sorted(found.jobs) == names.split()
    code = (folder / "jobs.py").read_text("utf-8")
    assert all(f"def {one.entry.partition(':')[2]}(" in code for one in found.jobs.values())
