"""What was measured of a pipeline's operators?

A `Profile` holds what `headwater profile` found out by running each operator alone on real records. What was
measured takes the place of what was declared (`apply`, `profiled`); what was not measured stays. Kept as a YAML
file; how it is measured is the business of `bind.measure` and `serve.profile_main`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from headwater.model import fields
from headwater.model.fields import Body, Field, Spot, read_fields, read_file, read_named
from headwater.model.pipeline import Operator, Pipeline
from headwater.model.pipeline_file import OPERATOR
from headwater.model.project import Project
from headwater.model.report import Report, describe, quote
from headwater.model.text import parse
from headwater.model.tree import line_of
from headwater.model.units import Kind
from headwater.model.write import _flow, _quantity, _text

__all__ = ["OperatorProfile", "Profile", "apply", "profiled", "read_profile", "write_profile"]

HEAD = "# Measured by 'headwater profile'; takes the place of what was declared. Work is for a record at speed 1."
MOST_RECORDS = 10**15
# Key in the file, attribute, kind of quantity; in the order in which they are written.
MEASURED: tuple[tuple[str, str, Kind], ...] = (
    ("rate", "rate_rps", "rate"),
    ("size", "size_bytes", "size"),
    ("rate_factor", "rate_factor", "number"),
    ("size_factor", "size_factor", "number"),
    ("work", "work_s", "time"),
    ("spread", "spread_s", "time"),
    ("state", "state_bytes", "size"),
)
OF_SOURCES = ("rate", "size")  # keys that only a source may have
OF_READERS = ("rate_factor", "size_factor")  # keys that a source may not have


def _texts(spot: Spot, key: str) -> tuple[str, ...] | None:
    given = fields.entries(spot, key)
    wrong = next((i for i, each in enumerate(given or ()) if not isinstance(each, str)), None)
    if given is None or wrong is None:
        return None if given is None else tuple(map(str, given))
    text = f"{spot.what}: '{key}' holds texts; found {describe(given[wrong])}."
    spot.report.add("HW1005", text, line_of(given, wrong))
    return None


OPERATOR_PROFILE = {key: OPERATOR[key] for key, _, _ in MEASURED if key in OPERATOR} | {
    "spread": Field("spread_s", fields.quantity("time")),
    "records": Field("records", fields.whole(0, MOST_RECORDS)),
}
FILE = {
    "profile": Field("pipeline", fields.name, "fire"),
    "operators": Field("operators", fields.mapping),
    "fingerprint": Field("fingerprint", fields.name),
    "repeat": Field("repeat", fields.whole(1, MOST_RECORDS)),
    "notes": Field("notes", _texts),
}


@dataclass(frozen=True, slots=True)
class OperatorProfile:
    """What was measured of one operator; None: not measured."""

    name: str
    rate_rps: float | None = None  # of a source: records a second that it gives
    size_bytes: float | None = None  # of a source: bytes of such a record, as Avro
    rate_factor: float | None = None  # of any other: rows out for a row in
    size_factor: float | None = None  # likewise: bytes of a row out for a byte of a row in, both as Avro
    work_s: float | None = None  # processor seconds for an input record (a source: an output record) at speed 1
    spread_s: float | None = None  # how far another measurement may be from `work_s`
    state_bytes: float | None = None  # kept at the end of the sample
    records: int | None = None  # that went through it in one timed run


@dataclass(frozen=True)
class Profile:
    """What was measured of a pipeline."""

    pipeline: str  # its name
    operators: tuple[OperatorProfile, ...]
    fingerprint: str | None = None  # of the project that was measured
    repeat: int | None = None  # timed runs of each operator
    notes: tuple[str, ...] = ()  # what a reader of the figures should know

    @cached_property
    def by_name(self) -> Mapping[str, OperatorProfile]:
        """What was measured, by the name of the operator."""
        return MappingProxyType({each.name: each for each in self.operators})


def apply(pipeline: Pipeline, profile: Profile) -> Pipeline:
    """Return the pipeline with what was measured in place of what was declared.

    A measured factor is that of the whole operator on whole rows, as channels carry them; factors declared for
    its single streams are part of it, and become 1.
    """
    return replace(pipeline, operators=tuple(_applied(each, profile) for each in pipeline.operators))


def profiled(project: Project, profile: Profile) -> Project:
    """Return the project with what was measured in place of what was declared."""
    measured = profile.by_name
    known = {name for name, each in measured.items() if each.rate_rps is not None and each.size_bytes is not None}
    assumed = tuple(f"source {quote(name)}: " for name in known)
    notes = [each for each in project.notes if not (assumed and each.startswith(assumed))]
    if profile.fingerprint is not None and profile.fingerprint != project.fingerprint:
        notes.append(
            "the profile was measured on other files of this project than those that are there; measure again with "
            "'headwater profile' if what they compute has changed."
        )
    return replace(project, pipeline=apply(project.pipeline, profile), notes=tuple(notes))


def read_profile(text: bytes, file: str, pipeline: Pipeline) -> Profile:
    """Return the profile that a file holds, for the pipeline that it is meant for.

    Args:
        text: what the file holds, YAML or JSON.
        file: its name, for messages.
        pipeline: every operator that the file names must be there.

    Raises:
        SpecError: every mistake in it.
    """
    report = Report(file)
    root = parse(text, report, with_lines=True).root
    if not isinstance(root, dict):
        raise report.stop("HW1005", f"the file must hold a mapping; found {describe(root)}.", line_of(root) or 1)
    found = read_file(Spot(report, root, "the file"), FILE, "operators", "sites") or {}
    given: Body = found.pop("operators", {})
    operators = tuple(_operator(read_named(report, given, name, "operator"), name, pipeline, given) for name in given)
    if report:
        raise report.error()
    return Profile(found.pop("pipeline"), operators, **found)


def write_profile(profile: Profile) -> str:
    """Return a profile file; `read_profile` makes the same profile of it."""
    lines = [HEAD, f"profile: {_text(profile.pipeline)}"]
    if profile.fingerprint is not None:
        lines.append(f"fingerprint: {_text(profile.fingerprint)}")
    if profile.repeat is not None:
        lines.append(f"repeat: {profile.repeat}")
    lines.append("operators:")
    lines += (f"  {_text(each.name)}: {_flow(_pairs(each))}" for each in profile.operators)
    if profile.notes:
        lines.append("notes:")
        lines += (f"  - {_text(each)}" for each in profile.notes)
    return "\n".join(lines) + "\n"


def _applied(operator: Operator, profile: Profile) -> Operator:
    found = profile.by_name.get(operator.name)
    if found is None:
        return operator
    names = [attribute for _, attribute, _ in MEASURED if attribute != "spread_s"]
    changes: dict[str, Any] = {name: getattr(found, name) for name in names if getattr(found, name) is not None}
    whole: dict[str, Any] = {name: 1.0 for name in OF_READERS if name in changes}
    return replace(operator, **changes, inputs=tuple(replace(stream, **whole) for stream in operator.inputs))


def _operator(spot: Spot, name: str, pipeline: Pipeline, given: Body) -> OperatorProfile:
    found = read_fields(spot, OPERATOR_PROFILE)
    operator = pipeline.by_name.get(name)
    if operator is None:
        spot.report.add(
            "HW1004",
            f"{spot.what} is not in pipeline {quote(pipeline.name)}.{spot.report.tip(name, pipeline.by_name)} Is the "
            "profile of another pipeline, or older than the project? Measure again with 'headwater profile'.",
            line_of(given, name),
        )
    else:
        for key in OF_READERS if operator.is_source else OF_SOURCES:
            if spot.has(key):
                kind, other = ("operators that read others", "a source")
                is_for, is_one = (kind, other) if operator.is_source else ("sources", "none")
                spot.add("HW1011", key, f"is for {is_for}, and this is {is_one}. Measure again or remove it.")
    return OperatorProfile(name, **found)


def _pairs(operator: OperatorProfile) -> Iterator[tuple[str, str]]:
    for key, attribute, kind in MEASURED:
        value = getattr(operator, attribute)
        if value is not None:
            yield key, _quantity(value, kind)
    if operator.records is not None:
        yield "records", str(operator.records)
