"""What is wanted of latency goals: remembered, told to agents, set and shown by commands, written down."""

from __future__ import annotations

import contextlib
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.bind.limiter import Limiter
from headwater.bind.limits import Limit
from headwater.bind.site_governor import SiteGovernor
from headwater.bind.store import Store
from headwater.serve.client import Client
from headwater.serve.goals import status
from headwater.serve.main import main
from headwater.serve.output import Output
from tests.recorded import Recorded, recorded

ROW = {
    "class": "gold", "goal_s": 0.3, "late_s": 0.412, "predicted_s": 0.9, "share": 0.4, "limit": None, "demand": 1.25,
    "rate_rps": 100.0, "queue": 12.0, "because": "heavier classes come first", "memory": "",
}  # fmt: skip
HOLDS = {
    "is_on": True, "how": "control groups version 1", "policy": "predictive", "because": "goals ask for 3 of 2 cores",
    "nonsense": 2, "gives_way": [{"because": "'alerts' gives way"}], "runners": {"alerts": ROW},
}  # fmt: skip
SITES = [
    {"name": "hub", "is_reached": True, "told": {"goals": HOLDS}},
    {"name": "edge", "is_reached": True, "told": {"goals": {"is_on": False, "runners": {}}}},
    {"name": "far", "is_reached": False, "told": {}},
]
UNDECIDED = {"is_on": True, "how": "control groups version 1", "policy": "predictive", "runners": {}}
ESCAPE = "\x1b]0;owned\x07\x1b[2J\r\u202e"
# What an agent may tell: anything that JSON can carry, and most of all something else where something is looked for.
NUMBERS = st.integers() | st.just(10**400) | st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.fixed_dictionaries({}, optional={key: ANYTHING | st.just(value) for key, value in ROW.items()})
TOLD = st.fixed_dictionaries(
    {},
    optional={
        **{key: ANYTHING | st.just(value) for key, value in HOLDS.items()},
        "gives_way": ANYTHING | st.lists(ANYTHING | st.fixed_dictionaries({"because": ANYTHING}), max_size=2),
        "is_on": st.just(True) | ANYTHING,
        "is_reached": ANYTHING,
        "runners": ANYTHING | st.dictionaries(st.text(max_size=9), ROWS | ANYTHING, max_size=3),
        "site": ANYTHING,
    },
)


@pytest.fixture
def controller(tmp_path: Path, monkeypatch) -> Iterator[Recorded]:
    for name in ("CONTROLLER", "TOKEN", "TOKEN_FILE", "CA", "DEBUG"):
        monkeypatch.delenv(f"HEADWATER_{name}", raising=False)
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path / "state"))
    answers: dict[str, Any] = {
        "GET /goals": {"goals": {"alerts": {"class": "gold", "p99_s": None}}},
        "PUT /goals/alerts": {"goals": {}},
        "DELETE /goals/alerts": {"goals": {}},
        "GET /policy": {"policy": None},
        "PUT /policy": lambda asked: asked.object,
        "GET /sites": {"sites": SITES},
    }
    with recorded(tmp_path / "state", answers) as found:
        yield found


def test_status_shows_shares_with_their_reasons_and_what_gives_way(controller: Recorded, capsys) -> None:
    assert main(["control", "status"]) == 0
    shown = capsys.readouterr().out
    for word in ("alerts", "gold", "412 ms", "1.25", "all", "gives way", "2 readings", "does not answer", "holds no"):
        assert word in shown
    assert main(["control", "status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["site"] for one in found["sites"]] == ["hub", "edge", "far"]
    assert found["sites"][0]["runners"]["alerts"]["demand"] == 1.25
    assert controller.of("GET", "/goals")


def shown(told: Any) -> str:
    """What `headwater control status` shows of a site."""

    class Told(Client):
        def __init__(self) -> None:
            self.answers = {
                "/goals": {"goals": {}},
                "/policy": {"policy": None},
                "/sites": {"sites": [{"name": "hub", "is_reached": True, "told": told}]},
            }

        def get(self, path: str, **query: object) -> Any:
            return self.answers[path]

    for is_json in (True, False):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert status(Told(), Output(is_json)) == 0
    return out.getvalue()


def test_a_site_that_has_not_decided_yet_is_shown_as_on() -> None:
    found = shown({"goals": UNDECIDED})
    assert "predictive by control groups version 1; on, and has not decided yet" in found
    assert "Nobody here has a latency goal" not in found


@pytest.mark.parametrize(
    ("count", "said"), [(1, "1 reading was missing or nonsense, and not"), (2, "2 readings were missing or nonsense")]
)
def test_how_much_was_not_believed_is_said(count: int, said: str) -> None:
    assert said in shown({"goals": {**HOLDS, "nonsense": count}})
    assert "nonsense" not in shown({"goals": {**HOLDS, "nonsense": 0}})


def test_an_agent_cannot_speak_of_another_site() -> None:
    found = shown({"goals": {**HOLDS, "site": "cloud", "is_reached": False}})
    assert "site hub" in found
    assert "alerts" in found


@given(ANYTHING | st.fixed_dictionaries({"goals": TOLD | ANYTHING}))
def test_whatever_an_agent_tells_is_shown_and_neither_fails_nor_is_obeyed(told: Any) -> None:
    found = shown(told)
    assert "site hub" in found
    assert all(character == "\n" or character.isprintable() for character in found)


@pytest.mark.parametrize("odd", [None, True, -1, 10**400, "", "odd", [], ["odd"], {}, {"because": 1}, "missing"])
@pytest.mark.parametrize("key", [*HOLDS, *ROW, "alerts"])
def test_what_is_missing_or_of_another_kind_is_shown_as_unknown(key: str, odd: Any) -> None:
    row = {name: odd if name == key else value for name, value in ROW.items() if name != key or odd != "missing"}
    told = {name: odd if name == key else value for name, value in HOLDS.items() if name != key or odd != "missing"}
    if key not in HOLDS:
        told["runners"] = {"alerts": odd if key == "alerts" else row, "reports": ROW}
    found = shown({"goals": told})
    assert "site hub" in found
    assert "reports" in found or key in HOLDS


@pytest.mark.parametrize("where", ["policy", "how", "because", "gives_way", "runner", "class", "why"])
def test_no_text_of_an_agent_reaches_the_terminal_as_it_is(where: str) -> None:
    row = {**ROW, "class": ESCAPE} if where == "class" else {**ROW, "because": ESCAPE} if where == "why" else ROW
    told = {**HOLDS, "runners": {ESCAPE if where == "runner" else "alerts": row}}
    if where in {"policy", "how", "because"}:
        told[where] = ESCAPE
    elif where == "gives_way":
        told["gives_way"] = [{"because": ESCAPE}]
    found = shown({"goals": told})
    assert "\\x1b" in "".join(found.split()), "it is spelled out"
    assert not set(ESCAPE) & {"\x1b", "\x07", "\r", "\u202e"} & set(found)


def test_a_goal_that_was_set_and_that_no_site_holds_yet_is_told(controller: Recorded, capsys) -> None:
    controller.answers["GET /sites"] = {"sites": SITES[1:]}
    assert main(["control", "status"]) == 0
    found = capsys.readouterr().out
    assert "set by 'set-class': alerts. No site holds it yet" in found
    assert "Nobody here" not in found


def test_a_class_is_set_and_taken_away(controller: Recorded, capsys) -> None:
    assert main(["control", "set-class", "alerts", "gold", "--p99", "200 ms"]) == 0
    assert controller.of("PUT")[-1].object == {"class": "gold", "p99_s": 0.2}
    assert "within 200 ms" in capsys.readouterr().out
    assert main(["control", "set-class", "alerts", "none"]) == 0
    assert [one.path for one in controller.of("DELETE")] == ["/goals/alerts"]
    assert main(["control", "set-policy", "default"]) == 0
    assert controller.of("PUT", "/policy")[-1].object == {"policy": None}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("alerts", "golden"),
            "HW1346 there is no class 'golden'. Known are gold, silver, bronze, none. Did you mean 'gold'?",
        ),
        (("alerts", "none", "--p99", "1 s"), "HW1346"),
        (("alerts", "gold", "--p99", "soon"), "--p99"),
        (("alerts", "gold", "--p99", "true"), "--p99"),
        (
            ("alerts", "gold", "--p99", "0.5 ms"),
            "HW1346 --p99 is 500 us; a goal is at least 1 ms and at most 1000000 s, such as '200 ms'.",
        ),
        (("alerts", "gold", "--p99", "1e-300"), "HW1346 --p99 is 1E-291 ns; a goal is at least 1 ms"),
        (("alerts", "gold", "--p99", "0"), "HW1346 --p99 is 0 s; a goal is at least 1 ms"),
        (("alerts", "gold", "--p99", "300 h"), "HW1346 --p99 is 1080000 s; a goal is at least 1 ms and at most"),
        (("other", "gold"), "there is no"),
    ],
)
def test_a_wrong_class_is_told(controller: Recorded, capsys, words: tuple[str, ...], told: str) -> None:
    assert main(["control", "set-class", *words]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert words[0] == "other" or not controller.asked, "nothing is asked of the controller then"


@pytest.mark.parametrize("name", ["../jobs?x#y", "", "a/b", "\udcff", "x" * 121])
@pytest.mark.parametrize("word", ["gold", "none"])
def test_a_name_that_nothing_can_have_is_told_at_once(controller: Recorded, capsys, name: str, word: str) -> None:
    assert main(["control", "set-class", name, word]) == 2
    assert "HW1346 there is no composition or pipeline" in " ".join(capsys.readouterr().err.split())
    assert not controller.asked, "nothing is asked of the controller then"


@pytest.mark.parametrize(
    "words",
    [
        ("set-class", "alerts", "glod"), ("set-class", "../x", "gold"), ("set-class", "alerts", "gold", "--p99", "0"),
        ("set-class", "alerts", "none", "--p99", "1 s"), ("set-policy", "predictve"), ("set-policy", ""),
    ],
)  # fmt: skip
def test_wrong_words_are_told_before_a_controller_is_looked_for(monkeypatch, tmp_path: Path, capsys, words) -> None:
    monkeypatch.setenv("HEADWATER_STATE", str(tmp_path / "nowhere"))
    assert main(["control", *words]) == 2
    assert "HW13" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("status",), ("set-class", "alerts", "gold"), ("set-class", "alerts", "none"), ("set-policy", "equal")]
)
@pytest.mark.parametrize("said", [{}, [], {"ok": True}], ids=str)
def test_whoever_answers_and_is_no_controller_is_told(controller: Recorded, capsys, words, said: Any) -> None:
    controller.answers = dict.fromkeys(controller.answers, lambda _: said)
    assert main(["control", *words]) == 4
    assert "HW4924 what answers at" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["status", "set-class", "set-policy"])
def test_help_shows_how_it_is_done(command: str, capsys) -> None:
    assert main(["control", command, "--help"]) == 0
    found = capsys.readouterr().out
    assert f"headwater control {command}" in found.split("Example", 1)[1]


def test_goals_and_policy_are_remembered(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.set_goal("alerts", ("gold", None))
    store.set_goal("reports", (None, 2.0))
    store.set_policy("weighted")
    store.set_goal("gone", ("gold", None))
    store.set_goal("gone", None)
    store.close()
    again = Store(tmp_path / "store.db")
    assert dict(again.goals()) == {
        "alerts": {"class": "gold", "p99_s": None},
        "reports": {"class": None, "p99_s": 2.0},
    }
    assert again.policy() == "weighted"
    again.set_policy(None)
    assert again.policy() is None
    again.close()


def test_limits_that_hardly_change_are_left_alone() -> None:
    class Written(Limiter):
        """Counts what is written; nothing is really limited."""

        def __init__(self) -> None:
            super().__init__("test", None, lambda _: None)
            self.written: list[dict[str, Limit]] = []

        def set(self, limits: Mapping[str, Limit]) -> None:
            self.written.append(dict(limits))

    limiter = Written()
    governor = SiteGovernor(limiter, 2.0)
    governor.set({"a": 0.5, "b": math.inf}, {"a": 0.5, "b": 1.5})
    governor.set({"a": 0.505, "b": 2.0}, {"a": 0.5, "b": 1.5})
    assert limiter.written == [{"a": Limit(0.5, 0.5), "b": Limit(None, 1.5)}]
    governor.set({"a": 0.6}, {"a": 0.5, "b": 1.5})
    governor.bound({"a": 1 << 30})
    assert limiter.written[1:] == [{"a": Limit(0.6, 0.25)}, {"a": Limit(0.6, 0.25, 1 << 30)}]
    limiter.close()
