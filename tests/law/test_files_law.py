"""Laws of files: writing loses nothing, reading never fails in an unforeseen way."""

from __future__ import annotations

import contextlib
import json
import math

import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.errors import SpecError
from headwater.model.files import (
    read_pipeline,
    read_placement,
    read_sites,
    write_pipeline,
    write_placement,
    write_sites,
)
from headwater.model.pipeline import Objective, Operator, Pipeline, Stream
from headwater.model.report import Report
from headwater.model.sites import KINDS, Link, Site, Sites
from headwater.model.text import parse
from headwater.model.units import Kind, show
from headwater.model.units import parse as parse_quantity

TRICKY = [
    "no",
    "1",
    "1.5",
    "true",
    "null",
    "~",
    "<<",
    "a: b",
    "#x",
    "{",
    "- a",
    "é",
    "'",
    '"',
    "\\",
    "1e5",
    "a b",
    "*x",
]
LETTERS = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029\ufeff\ufffe\uffff")
NAMES = st.sampled_from(TRICKY) | st.text(LETTERS, min_size=1, max_size=20).filter(lambda name: name == name.strip())
SITE_NAMES = NAMES.filter(lambda name: not name.startswith("tag:"))
AMOUNTS = st.floats(0.0, allow_nan=False, allow_infinity=False).map(abs)
ABOVE_ZERO = st.floats(0.0, exclude_min=True, allow_nan=False, allow_infinity=False)
KINDS_OF_QUANTITY: tuple[Kind, ...] = ("time", "size", "bandwidth", "rate", "cores", "number")


@st.composite
def some_sites(draw: st.DrawFn) -> Sites:
    names = draw(st.lists(SITE_NAMES, min_size=1, max_size=6, unique=True))
    sites = tuple(
        Site(
            name,
            draw(st.sampled_from(KINDS)),
            draw(st.integers(1, 3)),
            draw(st.integers(0, 10**9)),
            draw(ABOVE_ZERO),
            draw(st.none() | ABOVE_ZERO),
            draw(st.none() | AMOUNTS),
            draw(AMOUNTS),
            tuple(draw(st.lists(NAMES, max_size=2))),
        )
        for name in names
    )
    pairs = [(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, len(names))]
    turned = [(b, a) if draw(st.booleans()) else (a, b) for a, b in pairs]
    links = tuple(Link(a, b, draw(AMOUNTS), draw(ABOVE_ZERO)) for a, b in turned)
    return Sites(sites, links)


@st.composite
def some_pipelines(draw: st.DrawFn) -> Pipeline:
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    read: set[str] = set()
    drafts: list[Operator] = []
    for i, name in enumerate(names):
        is_source = i == 0 or draw(st.booleans())
        sources = [] if is_source else draw(st.lists(st.sampled_from(names[:i]), min_size=1, max_size=3))
        read |= set(sources)
        factors = (1.0, 1.0) if is_source else (draw(AMOUNTS), draw(AMOUNTS))
        others = [other for other in names if other != name]
        company = draw(st.lists(st.sampled_from(others), max_size=2)) if others else []
        drafts.append(
            Operator(
                name,
                tuple(Stream(source, name, draw(AMOUNTS), draw(st.just(1.0) | AMOUNTS)) for source in sources),
                is_source,
                draw(AMOUNTS) if is_source else 0.0,
                draw(AMOUNTS) if is_source else 0.0,
                *factors,
                draw(st.integers(1, 3)),
                draw(AMOUNTS),
                draw(AMOUNTS),
                draw(st.none() | st.lists(NAMES.filter(lambda one: one != "tag:"), min_size=1, max_size=2).map(tuple)),
                tuple(company) if i % 2 else (),
                () if i % 2 or any(draft.together for draft in drafts) else tuple(company),
            )
        )
    if any(draft.together for draft in drafts):  # 'with' and 'apart' at once could contradict each other
        drafts = [_replaced(draft, apart=()) for draft in drafts]
    operators = tuple(_replaced(draft, is_sink=draft.name not in read) for draft in drafts)
    least, most = sorted((draw(AMOUNTS), draw(AMOUNTS)))
    optional = st.none() | AMOUNTS
    ends = (
        draw(st.sampled_from([one.name for one in operators if one.is_source])),
        draw(st.sampled_from([one.name for one in operators if one.is_sink])),
    )
    objective = Objective(
        draw(AMOUNTS),
        draw(AMOUNTS),
        draw(AMOUNTS),
        least,
        most,
        draw(optional),
        draw(optional),
        draw(st.none() | st.just(ends)),
    )
    return Pipeline(draw(NAMES), operators, draw(st.just(Objective()) | st.just(objective)))


def _replaced(operator: Operator, **changes: object) -> Operator:
    values = {name: getattr(operator, name) for name in Operator.__slots__} | changes
    return Operator(**values)


@given(AMOUNTS, st.sampled_from(KINDS_OF_QUANTITY))
def test_an_exact_text_of_a_quantity_reads_back_as_the_same_number(value: float, kind: Kind) -> None:
    assert parse_quantity(show(value, kind, exact=True), kind) == value


@given(st.floats(1e-9, 1e18), st.sampled_from(KINDS_OF_QUANTITY))
def test_a_shown_quantity_is_right_to_four_digits(value: float, kind: Kind) -> None:
    assert math.isclose(parse_quantity(show(value, kind), kind), value, rel_tol=6e-4)


@given(some_sites())
def test_sites_that_were_written_read_back_equal(sites: Sites) -> None:
    assert read_sites(write_sites(sites).encode(), "s.yaml") == sites


@given(some_pipelines())
def test_a_pipeline_that_was_written_reads_back_equal(pipeline: Pipeline) -> None:
    assert read_pipeline(write_pipeline(pipeline).encode(), "p.yaml") == pipeline


@given(some_pipelines(), some_sites(), st.data())
def test_a_placement_that_was_written_reads_back_equal(pipeline: Pipeline, sites: Sites, data: st.DataObject) -> None:
    site_names = st.sampled_from([site.name for site in sites.sites])
    placement = {operator.name: data.draw(site_names) for operator in pipeline.operators}
    assert read_placement(write_placement(placement).encode(), "p.yaml", pipeline, sites) == placement


@given(some_sites())
def test_another_yaml_reader_understands_what_was_written_and_json_says_the_same(sites: Sites) -> None:
    plain = yaml.safe_load(write_sites(sites))
    assert read_sites(json.dumps(plain).encode(), "s.json") == sites


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.sampled_from([None, 1]))
def test_json_has_the_same_values_with_and_without_lines(value: object, indent: int | None) -> None:
    assume(value is not None)
    text = json.dumps(value, indent=indent).encode()
    assert parse(text, Report("x.json")).root == value
    assert parse(text, Report("x.json"), with_lines=True).root == value


WORDS = st.text("abc :#-{}[]'\"\n,&*!|>%@`é", max_size=12)


@given(
    st.dictionaries(
        WORDS,
        st.recursive(
            WORDS | st.integers() | st.booleans() | st.none(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
        ),
        min_size=1,
    ),
    st.sampled_from([None, True, False]),
)
def test_yaml_of_another_writer_is_understood(value: dict[str, object], flow: bool | None) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    assert parse(text.encode(), Report("x.yaml")).root == value


PIECES = st.sampled_from(
    [
        *("sites:", "operators:", "links:", "objective:", "inputs:", "between:", "at:", "with:", "apart:", "weights:"),
        *("source: true", "rate: 1/s", "size: 1 kB", "latency: 1 ms", "bandwidth: 1", "a:", "b:", "a", "b", "<<:"),
        *(
            "&x",
            "*x",
            "{",
            "}",
            "[",
            "]",
            ",",
            "-",
            "\n",
            "\n  ",
            "\n    ",
            " ",
            "|",
            "!t",
            "'",
            '"',
            "---",
            "\t",
            "%",
            "?",
        ),
    ]
)
VALID = write_sites(Sites((Site("a"), Site("b")), (Link("a", "b", 1.0, 1.0),))).encode()
BYTES = (
    st.binary(max_size=200)
    | st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.lists(PIECES, max_size=40).map(lambda pieces: " ".join(pieces).encode())
    | VALUES.map(lambda value: json.dumps({"sites": value, "operators": value, "links": value}).encode())
    | st.tuples(st.integers(0, len(VALID)), st.integers(0, 20), st.binary(max_size=5)).map(
        lambda cut: VALID[: cut[0]] + cut[2] + VALID[cut[0] + cut[1] :]
    )
)
EMPTY = Pipeline("p", (Operator("a"),))


@given(BYTES, st.sampled_from(["x.yaml", "x.json"]))
def test_whatever_the_bytes_only_mistakes_of_the_user_are_told(text: bytes, file: str) -> None:
    sites = Sites((Site("a"),), ())
    for read in (
        lambda: read_sites(text, file),
        lambda: read_pipeline(text, file, sites),
        lambda: read_placement(text, file, EMPTY, sites),
    ):
        with contextlib.suppress(SpecError):
            read()


@given(BYTES)
def test_a_mistake_is_short_printable_and_points_into_the_file(text: bytes) -> None:
    try:
        read_sites(text, "x.yaml")
    except SpecError as error:
        for mistake in error.mistakes:
            assert len(mistake.text) < 600
            assert "\n" not in mistake.text
            mistake.text.encode("utf-8")
            assert mistake.line is None or 1 <= mistake.line <= len(text.decode("utf-8", "replace").splitlines()) + 1
