"""Does the desk let in only whom it should, and take only what it can give again?"""

from __future__ import annotations

import pytest

from headwater.plan.jobs import held_object
from tests.contract.served import HELD, ONE, RawAgent, code, present, served


@pytest.fixture
def plane(tmp_path):
    with served(tmp_path) as found:
        yield found


def test_only_the_agent_of_a_site_is_let_in(plane):
    for token in ("b", "operator", "nobody"):
        for call in ("hello", "report", "orders", "answer"):
            stranger = RawAgent(plane, "a", token=token)
            stranger.session = ONE
            made = {"hello": (ONE,), "answer": (1,)}.get(call, ())
            assert code(getattr(stranger, call)(*made)) == (403, "HW4935")
        assert code(stranger.http.put(f"/checkpoints/{ONE}", content=b"")) == (403, "HW4935")
        assert code(stranger.http.get(f"/checkpoints/{ONE}")) == (403, "HW4935")
        assert code(stranger.http.get(f"/uploads/{ONE * 2}")) == (403, "HW4935")
    assert plane.desk.sites() == ()


@pytest.mark.parametrize(
    "change",
    [
        {"session": "x"},
        {"session": None},
        {"broker": 1},
        {"held": [{}]},
        {"held": [held_object(HELD) | {"site": "b"}]},
        {"held": [held_object(HELD) | {"epoch": -1}]},
        {"held": [held_object(HELD) | {"state": "odd"}]},
        {"held": [held_object(HELD) | {"job": held_object(HELD)["job"] | {"name": "../up"}}]},
        {"held": [held_object(HELD) | {"positions": {"cars": 1}}]},
        {"held": [1]},
    ],
)
def test_a_hello_in_another_form_is_refused_in_our_words(plane, change):
    agent = RawAgent(plane, "a")
    assert code(agent.hello(**{"session": ONE, **change})) == (422, "HW1820")
    assert plane.desk.sites() == ()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"told": NaN}', b'{"a": 1e999}', b'{"a": "\\ud800"}']
)
def test_bodies_that_are_no_reports_are_refused(plane, body):
    agent = present(plane)
    for call in ("/report", "/answers", "/hello"):
        found = agent.http.post(call, content=body, headers={"Content-Type": "application/json"})
        assert found.status_code in {400, 422}, found.text
        assert found.json()["error"]["code"] == "HW1820"


@pytest.mark.parametrize("told", [b"NaN", b"-Infinity", b'"\\ud800"', b'{"\\udc00": 1}'])
def test_what_could_not_be_shown_again_is_not_taken(plane, told):
    agent = present(plane)
    body = b'{"session": "%s", "number": 5, "held": [], "told": {"x": %s}}' % (ONE.encode(), told)
    found = agent.http.post("/report", content=body, headers={"Content-Type": "application/json"})
    assert code(found) == (422, "HW1820")


def test_what_a_later_version_says_besides_is_left_unread(plane):
    agent = RawAgent(plane, "a")
    held = held_object(HELD) | {"is_blue": True, "job": held_object(HELD)["job"] | {"colour": "blue"}}
    assert agent.hello(ONE, [held], weather="fine").status_code == 200
    assert plane.desk.latest().held == (HELD,)


def test_half_a_character_is_no_text(plane):
    agent = RawAgent(plane, "a")
    body = b'{"session": "%s", "broker": "a:1", "version": "\\ud800"}' % ONE.encode()
    found = agent.http.post("/hello", content=body, headers={"Content-Type": "application/json"})
    assert code(found) == (422, "HW1820")


def test_queries_in_another_form_are_refused(plane):
    agent = present(plane)
    for query in ({"wait_s": "nan"}, {"wait_s": "inf"}, {"wait_s": "-1"}, {"wait_s": "1e9"}, {"after": "-1"}):
        found = agent.http.get("/orders", params={"session": ONE, **query})
        assert code(found) == (422, "HW1820")


def test_uploads_are_given_by_hash_and_nothing_else_is(plane):
    agent = present(plane)
    digest = "0a" * 32
    (plane.folder / "uploads" / digest).write_bytes(b"code" * 1_000_000)
    assert agent.http.get(f"/uploads/{digest}").content == b"code" * 1_000_000
    assert code(agent.http.get(f"/uploads/{'0b' * 32}")) == (404, "HW1830")
    (plane.folder / "secret").write_text("s")
    for name in ("..%2fsecret", "%2e%2e%2fsecret", "x" * 64):
        assert agent.http.get(f"/uploads/{name}").status_code in {404, 422}
