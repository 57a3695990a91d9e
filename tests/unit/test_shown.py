"""Are answers shown as they are, short enough to read, and safe on a terminal?"""

from __future__ import annotations

import io
import json
import math

import pytest
from rich.console import Console, RenderableType

from headwater.cost.score import Bounds, Score
from headwater.errors import BindError, Mistake, SpecError
from headwater.model.pipeline import Operator, Pipeline
from headwater.model.sites import Link, Site, Sites
from headwater.place.result import Infeasible, Result, Unplaced
from headwater.serve import render, wire
from headwater.serve.plain import plain
from headwater.serve.progress import Teller

BOUNDS = Bounds(0.0, 1.0, 3.0, 4e8)


def shown(thing: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=100, markup=False, highlight=False, force_terminal=False)
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def result(names: int = 1, lower_bound: float = 0.5, cut_short: bool = False) -> tuple[Pipeline, Sites, Result]:
    operators = tuple(Operator(f"o{i}") for i in range(names))
    sites = Sites(tuple(Site(f"s{i}") for i in range(names)), (Link("s0", "s1", 0.1, 1e6),) if names > 1 else ())
    score = Score(True, BOUNDS, 0.5, 0.1, 0, 0.0, load_cores={})
    placement = {f"o{i}": f"s{i}" for i in range(names)}
    return Pipeline("p", operators), sites, Result("auto", placement, score, lower_bound, 12345, cut_short, ("found",))


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain text", "plain text"),
        ("blå °C → ok", "blå °C → ok"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb\x07", "a\\rb\\x07"),
        ("\u202eevil", "\\u202eevil"),
        ("\x9b31m", "\\x9b31m"),
        ("edge\u00a01 edge\u30001", "edge\\xa01 edge\\u30001"),
    ],
)
def test_control_characters_are_spelled_out(text: str, safe: str) -> None:
    assert plain(text) == safe


def test_a_name_is_never_read_as_markup() -> None:
    answer = Infeasible((Unplaced("[red]a[/red]", ("no slots: [b]x\x1b[0m",)),), ("both \x07",))
    text = shown(render.infeasible(answer))
    assert "no site can run '[red]a[/red]'" in text
    assert "[b]x\\x1b[0m" in text
    assert "both \\x07" in text


def test_a_large_placement_is_cut_to_what_can_be_read() -> None:
    pipeline, sites, found = result(500)
    text = shown(render.placed(pipeline, sites, found, (), 1.0))
    assert text.count("\n") < 60
    assert "and 470 more sites" in text
    assert "12 345 candidates" in text


def test_the_verdict_says_proven_or_how_far_at_most() -> None:
    assert "proven optimal" in shown(render.placed(*result(), (), 1.0))
    text = shown(render.placed(*result(lower_bound=0.4, cut_short=True), (), 1.0))
    assert "at most 20 % from the best possible" in text
    assert "cut short" in text


def test_a_refusal_is_a_row_with_its_reason_below() -> None:
    *_, found = result()
    rows = [render.Row("auto", found, 0.1, is_best=True), render.Row("exhaustive", "too large", 0.0)]
    text = shown(render.compared("title", rows))
    assert "exhaustive: too large" in text
    assert text.count(render.MARK) == 1


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_what_is_no_number_becomes_null(number: float) -> None:
    *_, found = result(lower_bound=number)
    text = wire.text(wire.result_object(found, 0.1))
    answer = json.loads(text, parse_constant=pytest.fail)
    assert answer["lower_bound"] is None
    assert text.isascii()


def test_every_error_has_one_form() -> None:
    mistakes = wire.error_object(SpecError(Mistake("HW1004", "wrong", "a.yaml", 3), Mistake("HW1001", "more")))
    assert mistakes["error"]["mistakes"] == [
        {"code": "HW1004", "file": "a.yaml", "line": 3, "text": "wrong"},
        {"code": "HW1001", "file": None, "line": None, "text": "more"},
    ]
    (only,) = wire.error_object(BindError("HW4001 no folder"))["error"]["mistakes"]
    assert (only["code"], only["text"]) == ("HW4001", "no folder")


def test_nothing_is_told_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with Teller("work", patience_s=0.0) as teller:
        for i in range(100):
            teller.say("round", i / 100)
    assert capsys.readouterr() == ("", "")
