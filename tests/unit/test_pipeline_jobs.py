"""Which jobs a cut pipeline is, and that moving a fragment changes nothing but its place."""

from __future__ import annotations

import json
from dataclasses import replace

from headwater.model.project import Project
from headwater.plan.deploy import Part
from headwater.plan.jobs import JOB_NAME, Job, Topic, job_from, job_object
from headwater.plan.pipeline_jobs import job_name, part_of, pipeline_jobs
from tests.unit.test_deploy import SOURCE, parts, project
from tests.unit.test_lanes import one, sink

CODE = "ab" * 32
WHOLE = project(
    SOURCE, one("warm", "taxis"), one("busy", "warm", "aggregate"), sink("out", "busy", options=(("topic", "alerts"),))
)


def jobs(whole: Project = WHOLE, name: str = "city", **sites: str) -> dict[str, Job]:
    return pipeline_jobs(whole, parts(whole, **sites).values(), CODE, name)


def test_each_fragment_is_a_job_named_after_both_with_its_operators_and_code() -> None:
    found = jobs(pi_1="taxis warm")
    assert list(found) == ["city.warm", "city.out"]
    assert found["city.warm"].entry == "taxis,warm"
    assert {(job.composition, job.code, job.is_run) for job in found.values()} == {("city", CODE, True)}
    assert [job.site for job in found.values()] == ["pi-1", "dc"]
    assert [job.is_stateful for job in found.values()] == [False, True]


def test_a_channel_joins_two_jobs_at_the_broker_that_holds_it() -> None:
    found = jobs(pi_1="taxis warm")
    assert found["city.warm"].sink == Topic("dc", "hw.city.warm")
    assert found["city.out"].sources == (Topic("dc", "hw.city.warm"),)


def test_a_source_counts_as_a_topic_of_its_site_that_no_user_can_name() -> None:
    assert jobs(pi_1="taxis warm")["city.warm"].sources == (Topic("pi-1", "@taxis"),)


def test_a_stream_that_is_read_twice_is_one_topic() -> None:
    whole = project(SOURCE, one("a", "taxis"), one("b", "taxis"), sink("out", "a b"))
    assert jobs(whole, pi_1="taxis")["city.out"].sources == (Topic("dc", "hw.city.taxis"),)


def test_a_kafka_sink_with_a_topic_is_known_and_others_are_not() -> None:
    assert jobs(pi_1="taxis warm")["city.out"].sink == Topic("dc", "alerts")
    console = project(SOURCE, sink("out", "taxis", "console", options=(("topic", "alerts"),)))
    assert jobs(console)["city.out"].sink is None
    nowhere = project(SOURCE, sink("out", "taxis", options=(("path", "alerts"),)))
    assert jobs(nowhere)["city.out"].sink is None


def test_moving_a_fragment_changes_its_site_and_never_its_part() -> None:
    here, there = jobs(pi_1="taxis warm", pi_2="busy out"), jobs(pi_1="taxis warm", dc="busy out")
    before, after = here["city.out"], there["city.out"]
    assert (before.site, after.site) == ("pi-2", "dc")
    alone = replace(part_of(before), inputs=())
    assert alone.site == alone.broker == "pi-2"
    moved = [json.loads(job.part) for job in (before, after)]
    for one_part in moved:
        one_part.pop("inputs")  # the writer pushes to where its reader stands: that is another wiring
    assert moved[0] == moved[1]


def test_a_source_fragment_that_moves_has_the_same_part() -> None:
    one_site, other = jobs(WHOLE, pi_1="taxis warm busy out"), jobs(WHOLE, pi_2="taxis warm busy out")
    assert one_site["city.out"].part == other["city.out"].part


def test_rates_and_reasons_are_no_difference() -> None:
    part = parts(WHOLE, pi_1="taxis warm")["warm"]
    told = replace(part, in_rps=part.in_rps * 3, because="somebody said so")
    assert pipeline_jobs(WHOLE, [part], CODE, "city") == pipeline_jobs(WHOLE, [told], CODE, "city")


def test_a_part_comes_back_with_its_site() -> None:
    for part in parts(WHOLE, pi_1="taxis warm").values():
        job = pipeline_jobs(WHOLE, [part], CODE, "city")[f"city.{part.id}"]
        assert part_of(job) == replace(part, in_rps=0.0, because="")
        assert part_of(job_from(json.loads(json.dumps(job_object(job))))) == part_of(job)


def test_long_names_are_cut_and_stay_apart() -> None:
    names = {job_name("p" * 100, "f" * 100 + end) for end in "ab"}
    assert len(names) == 2
    assert all(len(name) == 120 and JOB_NAME.fullmatch(name) for name in names)


def test_every_field_of_a_part_is_kept() -> None:
    part = parts(WHOLE, pi_1="taxis warm")["warm"]
    kept = json.loads(pipeline_jobs(WHOLE, [part], CODE, "city")["city.warm"].part)
    assert set(kept) == set(Part.__dataclass_fields__)
