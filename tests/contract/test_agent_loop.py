"""Do agents carry out what the controller orders, whatever dies in between?"""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import replace

import pytest

from headwater.bind.certificates import issue, make_ca
from headwater.errors import BindError
from headwater.plan.jobs import Job, Topic
from headwater.run.coordinator import Coordinator
from headwater.serve.agent import instance
from headwater.serve.desk import Desk
from headwater.serve.line import Away, Line, read_token
from tests.contract.looped import Child, Living, SharedWorld, ThreadedEngine, flow, living
from tests.contract.served import Later, RawAgent, job, served, until

CARS, ALARMS = Topic("a", "cars"), Topic("c", "alarms")
FIRST, SECOND = Topic("b", "hw.city.first"), Topic("c", "hw.city.second")


def chain() -> dict[str, Job]:
    """Three jobs, a site each, one after the other."""
    return {
        "clean": job("clean", "a", CARS, FIRST),
        "count": job("count", "b", FIRST, SECOND),
        "alarm": job("alarm", "c", SECOND, ALARMS),
    }


@pytest.fixture
def plane(tmp_path):
    with served(tmp_path / "controller") as found:
        yield found


def reached(desk: Desk) -> set[str]:
    return {one.site for one in desk.sites() if one.is_reached}


def ids(world: SharedWorld, topic: Topic) -> list[str]:
    return sorted(row.id for row in world.log(topic).rows)


def queries(agents: dict[str, Living]) -> dict[str, str]:
    return {name: one.query for living in agents.values() for name, one in living.engine.states().items()}


def test_a_composition_over_three_agents_is_deployed_moved_and_removed_and_loses_nothing(plane, tmp_path):
    with living(plane, "abc", tmp_path) as (world, agents):
        until(lambda: reached(plane.desk) == {"a", "b", "c"})
        wanted = chain()
        coordinator = Coordinator(plane.desk, lambda: wanted)
        assert coordinator.step().failures == ()
        assert coordinator.plan().changes.is_empty
        world.feed(CARS, [f"x#{number}" for number in range(50)])
        flow(world, agents)
        assert len(ids(world, ALARMS)) == 50

        before = queries(agents)
        wanted["count"] = replace(wanted["count"], site="c")
        world.feed(CARS, [f"y#{number}" for number in range(50)])
        outcome = coordinator.step()
        assert outcome.is_whole, [done.error for done in outcome.failures]
        assert coordinator.plan().changes.is_empty
        assert queries(agents)["clean"] == before["clean"]  # what is not concerned is not touched
        flow(world, agents)
        assert ids(world, ALARMS) == sorted([*(f"x#{n}" for n in range(50)), *(f"y#{n}" for n in range(50))])
        assert agents["c"].engine.counts("count") == {"x": 50, "y": 50}  # its state went along
        assert list((plane.folder / "spool").iterdir()) == []

        wanted.clear()
        assert coordinator.step().is_whole
        assert coordinator.plan().observed.held == ()
        assert queries(agents) == {}
        assert world.faults == []


def test_an_agent_killed_in_the_middle_of_an_order_fails_it_at_once_and_its_successor_finishes(plane, tmp_path):
    wanted = {"slow": job("slow", "a", CARS, Topic("a", "out")), "quick": job("quick", "a", CARS, Topic("a", "out"))}
    coordinator = Coordinator(plane.desk, lambda: wanted)
    child = Child(plane, "a", tmp_path / "a", slow="slow")
    try:
        until(lambda: reached(plane.desk) == {"a"})
        step = Later(coordinator.step)
        child.wait_for("ensure slow")
        child.kill()
        assert {one.job.name for one in plane.desk.latest().held} >= {"slow"}  # nobody may start it elsewhere
        child = Child(plane, "a", tmp_path / "a")
        outcome = step.result()
        failed = {done.step.job: done.error for done in outcome.failures}
        assert failed["slow"].startswith("HW4933"), failed
        until(lambda: reached(plane.desk) == {"a"})
        coordinator.step()
        assert coordinator.plan().changes.is_empty
        held = {one.job.name: one for one in plane.desk.observe().held}
        assert {name: (one.epoch, one.is_run, one.state) for name, one in held.items()} == {
            "slow": (1, True, "running"),
            "quick": (1, True, "running"),
        }
    finally:
        child.kill()


def test_agents_do_without_the_controller_and_say_hello_to_the_next_one(plane, tmp_path):
    with living(plane, "abc", tmp_path) as (world, agents):
        until(lambda: reached(plane.desk) == {"a", "b", "c"})
        wanted = chain()
        assert Coordinator(plane.desk, lambda: wanted).step().is_whole
        before = queries(agents)
        plane.stop()
        assert queries(agents) == before
        agents["b"].engine.kill()  # and nobody is there to say so
        until(lambda: "count" in queries(agents))
        plane.start()
        assert plane.known_at_first.reached == frozenset()
        assert {one.job.name for one in plane.known_at_first.held} == set(wanted)  # known before anybody says hello
        begun_s = time.monotonic()
        until(lambda: reached(plane.desk) == {"a", "b", "c"})
        print(f"\nall agents are back {time.monotonic() - begun_s:.2f} s after the controller")  # noqa: T201 - a figure
        after = Coordinator(plane.desk, lambda: wanted)
        assert after.plan().changes.is_empty
        assert {**queries(agents), "count": ""} == {**before, "count": ""}  # nothing was started again
        wanted["count"] = replace(wanted["count"], site="a")
        assert after.step().is_whole  # and it can go on
        assert world.faults == []
        for one in agents.values():
            assert sum("cannot be reached" in text for text in one.said) <= 2, one.said  # told once, not at each try


def test_a_controller_that_dies_in_the_middle_of_an_order_finds_it_again(plane, tmp_path):
    with living(plane, "a", tmp_path) as (_, agents):
        until(lambda: reached(plane.desk) == {"a"})
        wanted = {"slow": job("slow", "a", CARS, Topic("a", "out"))}
        gates = agents["a"].engine.gates
        gates.close("remove slow")  # what comes before it is written down
        step = Later(Coordinator(plane.desk, lambda: wanted).step)
        assert gates.reached["remove slow"].wait(10.0)
        plane.stop()
        assert step.result().failures[0].error.startswith("HW4933")
        plane.start()
        until(lambda: reached(plane.desk) == {"a"})
        again = Coordinator(plane.desk, lambda: wanted)
        assert again.plan().changes.is_empty  # it is being started, and not ordered once more
        gates.open("remove slow")
        until(lambda: queries(agents))
        assert [one.state for one in plane.desk.observe().held] == ["running"]


def test_a_site_whose_agent_was_killed_is_refused_at_once_and_the_others_go_on(tmp_path):
    with served(tmp_path / "controller", silent_s=2.5) as plane, living(plane, "ac", tmp_path):
        child = Child(plane, "b", tmp_path / "b")
        try:
            until(lambda: reached(plane.desk) == {"a", "b", "c"})
            wanted = chain()
            coordinator = Coordinator(plane.desk, lambda: wanted)
            assert coordinator.step().is_whole
            child.kill()
            until(lambda: reached(plane.desk) == {"a", "c"})
            call = Later(lambda: plane.desk.halt("b", "count", 1, True))
            with pytest.raises(BindError, match="HW4932 site 'b' does not answer"):
                call.result()
            assert call.took_s < 0.2
            wanted["count"] = replace(wanted["count"], site="a")
            wanted["more"] = job("more", "c", ALARMS, Topic("c", "more"))
            outcome = coordinator.step()
            assert {done.step.job for done in outcome.failures} == {"count"}
            assert {one.job.name: one.site for one in plane.desk.observe().held} == {
                "clean": "a", "count": "b", "alarm": "c", "more": "c",
            }  # fmt: skip
            child = Child(plane, "b", tmp_path / "b")
            until(lambda: "b" in reached(plane.desk))
            assert coordinator.step().is_whole
            owner = coordinator.plan().observed.owner("count")
            assert owner is not None
            assert owner.site == "a"
        finally:
            child.kill()


def test_of_two_agents_of_a_site_the_second_waits_until_the_first_is_gone(tmp_path):
    with served(tmp_path / "controller", silent_s=2.5) as plane, living(plane, "a", tmp_path) as (world, agents):
        until(lambda: reached(plane.desk) == {"a"})
        second = Living(plane, "a", ThreadedEngine("a", world), tmp_path / "other")
        try:
            until(lambda: any("HW4937" in text for text in second.said))
            plane.desk.drop("a", "x", 1)  # the first is not disturbed
            assert not any("HW4936" in text for text in agents["a"].said)
            agents["a"].stop()
            until(lambda: any("works again" in text for text in second.said))
            plane.desk.drop("a", "x", 1)
            agents["a"].start()
        finally:
            second.stop()


@pytest.mark.parametrize("is_asking", [True, False])
def test_an_order_that_is_being_carried_out_is_finished_and_answered_before_the_agent_stops(plane, tmp_path, is_asking):
    with living(plane, "a", tmp_path) as (_, agents):
        until(lambda: reached(plane.desk) == {"a"})
        gates = agents["a"].engine.gates
        gates.close("warm count")
        call = Later(lambda: plane.desk.warm("a", job("count", "a", CARS, Topic("a", "out"))))
        assert gates.reached["warm count"].wait(10.0)
        if not is_asking:  # for other orders any more
            agents["a"].stop_event.set()
            until(lambda: not any(one.name == "talk" for one in threading.enumerate()))
        agents["a"].stop()
        call.result()


def test_two_agents_cannot_share_a_state_folder(tmp_path):
    with instance(tmp_path) as first, pytest.raises(BindError, match="HW4937"), instance(tmp_path):
        pass
    with instance(tmp_path) as again:
        assert again == first


def test_lost_answers_of_the_controller_neither_lose_nor_double_an_order(plane, tmp_path):
    with living(plane, "a", tmp_path) as (_, agents):
        until(lambda: reached(plane.desk) == {"a"})
        wanted = {name: job(name, "a", CARS, Topic("a", "out")) for name in ("one", "two")}
        plane.guard.lost += ["/orders", "/answers", "/report", "/orders"]
        for number, name in enumerate(wanted):
            plane.desk.run("a", wanted[name], 1, {}, None)
            assert plane.desk.halt("a", name, 1, False) == {}
            assert len(queries(agents)) == 0, number
        until(lambda: plane.guard.lost == [])
        assert {one.job.name for one in plane.desk.observe().held} == set(wanted)


def test_an_order_that_comes_again_is_not_done_again(plane, tmp_path):
    with living(plane, "a", tmp_path) as (_, agents):
        until(lambda: reached(plane.desk) == {"a"})
        gates = agents["a"].engine.gates
        gates.close("warm count")
        plane.guard.is_forgetful = True
        call = Later(lambda: plane.desk.warm("a", job("count", "a", CARS, Topic("a", "out"))))
        assert gates.reached["warm count"].wait(10.0)
        plane.desk.drop("a", "x", 1)  # both come until they are answered
        plane.desk.observe()
        plane.guard.is_forgetful = False
        gates.open("warm count")
        call.result()
        assert gates.passed == ["warm count"]


def test_a_slow_order_holds_up_nobody(plane, tmp_path):
    with living(plane, "a", tmp_path) as (_, agents):
        until(lambda: reached(plane.desk) == {"a"})
        gates = agents["a"].engine.gates
        slow = job("slow", "a", CARS, Topic("a", "out"))
        gates.close("warm slow")
        calls = [Later(lambda: plane.desk.warm("a", slow)) for _ in range(40)]  # more than are done at once
        assert gates.reached["warm slow"].wait(10.0)
        look = Later(plane.desk.observe)
        assert look.result().reached == {"a"}
        assert look.took_s < 2.0
        gates.open("warm slow")
        for one in calls:
            one.result()


def test_a_checkpoint_of_50_megabytes_moves(plane, tmp_path):
    with living(plane, "ab", tmp_path) as (world, agents):
        until(lambda: reached(plane.desk) == {"a", "b"})
        wanted = {"count": job("count", "a", CARS, Topic("a", "out"))}
        coordinator = Coordinator(plane.desk, lambda: wanted)
        assert coordinator.step().is_whole
        world.feed(CARS, [f"x#{number}" for number in range(20)])
        flow(world, agents)
        agents["a"].engine.padding_bytes = 50_000_000
        wanted["count"] = replace(wanted["count"], site="b")
        begun_s = time.monotonic()
        assert coordinator.step().is_whole
        print(f"\n50 MB went from one agent to another in {time.monotonic() - begun_s:.2f} s")  # noqa: T201 - a figure
        flow(world, agents)
        assert agents["b"].engine.counts("count") == {"x": 20}
        assert len(ids(world, Topic("a", "out"))) == 20
        assert world.faults == []


def test_how_long_an_order_takes_to_be_done_and_answered(plane, tmp_path):
    with living(plane, "ab", tmp_path) as (_, agents):
        until(lambda: reached(plane.desk) == set(agents))
        figures = {}
        for what, act in (("drop", lambda: plane.desk.drop("a", "x", 1)), ("observe", plane.desk.observe)):
            took_s = []
            for _ in range(200):
                begun_s = time.monotonic()
                act()
                took_s.append(time.monotonic() - begun_s)
            figures[what] = f"p50 {sorted(took_s)[100] * 1e3:.2f} ms, p95 {sorted(took_s)[190] * 1e3:.2f} ms"
        print(f"\n{figures}")  # noqa: T201 - a figure to look at, too dependent on the machine to be a condition


def test_an_agent_stops_at_once_and_its_jobs_go_on(plane, tmp_path):
    with living(plane, "a", tmp_path) as (_, agents):
        until(lambda: reached(plane.desk) == {"a"})
        plane.desk.run("a", job("count", "a", CARS, Topic("a", "out")), 1, {}, None)
        before = queries(agents)
        begun_s = time.monotonic()
        agents["a"].stop()
        assert time.monotonic() - begun_s < 1.5  # a poll would wait longer
        assert queries(agents) == before
        with pytest.raises(BindError, match=r"HW4932 site 'a' does not answer .* its agent was stopped"):
            plane.desk.drop("a", "x", 1)  # it said goodbye
        agents["a"].start()
        until(lambda: "a" in reached(plane.desk))
        plane.desk.drop("a", "x", 1)
        assert queries(agents) == before


def test_troubles_are_told_once_and_logs_are_given(plane, tmp_path):
    with living(plane, "a", tmp_path) as (world, agents):
        until(lambda: reached(plane.desk) == {"a"})
        assert plane.desk.logs("a", "count", 7) == "7 of count"
        assert [one.hello.address for one in plane.desk.sites() if one.hello] == ["http://a/"]
        engine = agents["a"].engine
        plane.desk.run("a", job("count", "a", CARS, Topic("a", "out")), 1, {}, None)
        engine.trouble = "HW4501 the runner does not start"
        engine.kill()
        before = len(engine.ensured)
        until(lambda: len(engine.ensured) >= before + 3)
        assert [text for text in agents["a"].said if "HW4501" in text] == [
            "job 'count': HW4501 the runner does not start"
        ]
        engine.trouble = ""
        until(lambda: queries(agents))
        assert world.faults == []


def test_uploads_are_fetched_once_and_checked(plane, tmp_path):
    RawAgent(plane, "a").hello("1" * 32)
    content = b"def count(rows): return rows\n" * 100_000
    digest = hashlib.sha256(content).hexdigest()
    (plane.folder / "uploads" / digest).write_bytes(content)
    line = Line(plane.url, "a", lambda: "a", tmp_path / "uploads")
    calls = [Later(lambda: line.fetch_upload(digest)) for _ in range(5)]
    for one in calls:
        assert one.result().read_bytes() == content
    (plane.folder / "uploads" / digest).unlink()
    assert line.fetch_upload(digest).read_bytes() == content  # it is here
    wrong = "ab" * 32
    (plane.folder / "uploads" / wrong).write_bytes(b"something else")
    with pytest.raises(BindError, match=f"HW4918 what came for upload '{wrong}'"):
        line.fetch_upload(wrong)
    with pytest.raises(BindError, match="HW1830"):
        line.fetch_upload("cd" * 32)
    with pytest.raises(BindError, match="HW4918"):
        line.fetch_upload("../x")
    assert [one.name for one in (tmp_path / "uploads").iterdir()] == [digest]
    line.close()


def test_a_token_comes_from_a_file_or_the_environment(tmp_path):
    file = tmp_path / "token"
    file.write_text("hw_afile\n")
    assert read_token(file, {}) == "hw_afile"
    assert read_token(None, {"HEADWATER_TOKEN_FILE": str(file), "HEADWATER_TOKEN": "hw_avalue"}) == "hw_afile"
    assert read_token(None, {"HEADWATER_TOKEN": " hw_avalue "}) == "hw_avalue"
    for wrong in ({}, {"HEADWATER_TOKEN": ""}, {"HEADWATER_TOKEN_FILE": str(tmp_path / "none")}):
        with pytest.raises(BindError, match="HW4917"):
            read_token(None, wrong)
    file.write_text("two\nlines of secret")
    with pytest.raises(BindError, match="HW4917") as caught:
        read_token(file, {})
    assert "secret" not in str(caught.value)


def test_nobody_there_is_told_apart_from_a_refusal(tmp_path):
    line = Line("http://127.0.0.1:9", "a", lambda: "hw_asecret", tmp_path)
    with pytest.raises(Away, match="HW4916") as caught:
        line.post("/hello", {})
    assert "secret" not in str(caught.value)
    line.close()


def test_a_controller_with_a_certificate_of_another_authority_is_not_spoken_with(tmp_path):
    own, other = make_ca(tmp_path / "own"), make_ca(tmp_path / "other")
    certificate = issue(tmp_path / "own", "controller", ["127.0.0.1"])
    tls = {"ssl_certfile": str(certificate.certificate), "ssl_keyfile": str(certificate.key)}
    with served(tmp_path / "controller", tls=tls) as plane:
        secure = plane.url.replace("http:", "https:")
        good = Line(secure, "a", lambda: "a", tmp_path, own.certificate)
        assert good.post("/hello", {"session": "1" * 32, "broker": "a:1"}) == {"session": "1" * 32}
        for wrong in (
            Line(secure, "a", lambda: "a", tmp_path, other.certificate),
            Line(secure, "a", lambda: "a", tmp_path),
        ):
            with pytest.raises(Away, match=r"HW4916 .*certificate"):
                wrong.post("/hello", {"session": "2" * 32, "broker": "a:1"})
            wrong.close()
        good.close()
    with pytest.raises(BindError, match="HW4916"):
        Line(secure, "a", lambda: "a", tmp_path, tmp_path / "none")
