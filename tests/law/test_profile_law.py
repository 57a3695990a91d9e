"""Laws of profiles: writing loses nothing, and applying changes what was measured and nothing else."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.profile import OperatorProfile, Profile, apply, read_profile, write_profile
from tests.strategies import problems

AMOUNTS = st.none() | st.floats(0.0, allow_nan=False, allow_infinity=False).map(abs)
LETTERS = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\u2028\u2029\ufeff\ufffe\uffff")
NAMES = st.text(LETTERS, min_size=1, max_size=20).filter(lambda name: name == name.strip())
KEPT = ("name", "needs", "at", "together", "apart", "is_source", "is_sink")


@st.composite
def profiles(draw: st.DrawFn) -> tuple[Pipeline, Profile]:
    pipeline = draw(problems()).pipeline
    pipeline = replace(pipeline, operators=tuple(draw(st.permutations(pipeline.operators))))
    measured = tuple(
        OperatorProfile(
            operator.name,
            draw(AMOUNTS) if operator.is_source else None,
            draw(AMOUNTS) if operator.is_source else None,
            None if operator.is_source else draw(AMOUNTS),
            None if operator.is_source else draw(AMOUNTS),
            draw(AMOUNTS),
            draw(AMOUNTS),
            draw(AMOUNTS),
            draw(st.none() | st.integers(0, 10**9)),
        )
        for operator in draw(st.lists(st.sampled_from(pipeline.operators), min_size=1, unique_by=lambda one: one.name))
    )
    return pipeline, Profile(
        draw(NAMES),
        measured,
        draw(st.none() | NAMES),
        draw(st.none() | st.integers(1, 99)),
        tuple(draw(st.lists(NAMES, max_size=2))),
    )


@given(profiles())
def test_a_profile_that_was_written_reads_back_equal(made: tuple[Pipeline, Profile]) -> None:
    pipeline, profile = made
    assert read_profile(write_profile(profile).encode(), "p.profile", pipeline) == profile


@given(profiles())
def test_applying_twice_is_applying_once(made: tuple[Pipeline, Profile]) -> None:
    pipeline, profile = made
    once = apply(pipeline, profile)
    assert apply(once, profile) == once


@given(profiles())
def test_what_was_measured_stands_and_what_was_not_stays(made: tuple[Pipeline, Profile]) -> None:
    pipeline, profile = made
    after = apply(pipeline, profile)
    assert [one.name for one in after.operators] == [one.name for one in pipeline.operators]
    for before, now in zip(pipeline.operators, after.operators, strict=True):
        measured = profile.by_name.get(before.name)
        if measured is None:
            assert now == before
            continue
        assert all(getattr(now, name) == getattr(before, name) for name in KEPT)
        for name in ("rate_rps", "size_bytes", "rate_factor", "size_factor", "work_s", "state_bytes"):
            found = getattr(measured, name)
            assert getattr(now, name) == (getattr(before, name) if found is None else found)
        assert [one.source for one in now.inputs] == [one.source for one in before.inputs]


@given(problems())
def test_a_profile_of_nothing_changes_nothing(problem) -> None:
    assert apply(problem.pipeline, Profile("p", ())) == problem.pipeline


@given(st.floats(0.0, 4.0), st.floats(0.0, 4.0))
def test_a_measured_factor_takes_those_of_single_streams_in(rate: float, size: float) -> None:
    source = Operator("a", is_source=True, rate_rps=10.0, size_bytes=10.0)
    reader = Operator("b", (Stream("a", "b", 0.5, 0.25),), rate_factor=2.0, is_sink=True)
    after = apply(Pipeline("p", (source, reader)), Profile("p", (OperatorProfile("b", None, None, rate, size),)))
    assert after.by_name["b"].inputs == (Stream("a", "b"),)
    assert (after.by_name["b"].rate_factor, after.by_name["b"].size_factor) == (rate, size)
