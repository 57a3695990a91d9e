"""A project that was kept is the project that was."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.keep import from_json, to_json
from headwater.model.project import (
    DELIVERIES,
    EMITS,
    LANES,
    ON_ERRORS,
    STATEFUL,
    Definition,
    Goals,
    Project,
)
from tests.strategies import problems

TEXTS = st.text(max_size=12)


@st.composite
def projects(draw: st.DrawFn) -> Project:
    pipeline = draw(problems()).pipeline
    definitions = tuple(
        Definition(
            operator.name,
            draw(st.sampled_from(("view", "table", "sink"))),
            tuple(stream.source for stream in operator.inputs),
            draw(TEXTS),
            draw(TEXTS),
            draw(st.integers(1, 999)),
            draw(st.frozensets(st.sampled_from((*sorted(STATEFUL), "python", "watermark")))),
            draw(st.none() | TEXTS),
            draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple)),
            draw(st.none() | TEXTS),
            draw(st.booleans()),
            draw(st.none() | st.sampled_from(LANES)),
            draw(st.none() | st.sampled_from(EMITS)),
            draw(st.sampled_from(ON_ERRORS)),
        )
        for operator in pipeline.operators
    )
    return Project(
        draw(TEXTS),
        pipeline,
        definitions,
        draw(TEXTS),
        draw(st.dictionaries(TEXTS, TEXTS, max_size=3)),
        draw(st.sampled_from(DELIVERIES)),
        Goals(draw(st.none() | st.floats(0, allow_infinity=False)), draw(st.none() | TEXTS)),
        tuple(draw(st.lists(TEXTS, max_size=2))),
    )


@given(projects())
def test_a_kept_project_is_the_same(project: Project) -> None:
    text = to_json(project)
    assert from_json(text) == project
    assert to_json(from_json(text)) == text


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"form": 1}', '{"form": 0}', "null"])
def test_what_is_no_kept_project_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(text)


@given(projects(), st.data())
def test_a_project_that_lost_a_part_is_refused(project: Project, data: st.DataObject) -> None:
    kept = json.loads(to_json(project))
    del kept[data.draw(st.sampled_from(sorted(kept)))]
    with pytest.raises(ValueError, match="holds no"):
        from_json(json.dumps(kept))
