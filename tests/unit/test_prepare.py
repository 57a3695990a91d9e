"""Before anything starts: where will it run, and may it go on there?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.errors import PlanError, SpecError
from headwater.serve.arguments import Search
from headwater.serve.prepare import Prepared, kept_placement, prepare
from tests.unit.test_deploy import SOURCE, project
from tests.unit.test_lanes import one, sink

WHOLE = project(SOURCE, one("warm", "taxis"), sink("out", "warm"))
SITES = """\
sites:
  pi: {kind: leaf, slots: SLOTS}
  dc: {kind: root, slots: SLOTS}
links:
  - {between: [pi, dc], latency: 10 ms, bandwidth: 100 Mbit/s}
"""


def prepared(
    folder: Path, slots: int = 2, placement: str | None = None, kept: Mapping[str, str] | None = None
) -> Prepared:
    sites, given = folder / "sites.yaml", folder / "placement.yaml"
    sites.write_text(SITES.replace("SLOTS", str(slots)))
    if placement is not None:
        given.write_text(placement)
    return prepare(WHOLE, str(sites), None if placement is None else str(given), Search(), kept)


def test_without_a_placement_one_is_found_and_the_parts_follow_from_it(tmp_path: Path) -> None:
    found = prepared(tmp_path)
    assert found.score.valid
    assert found.because == "found by auto"
    assert {operator for part in found.parts for operator in part.operators} == {"taxis", "warm", "out"}
    assert all(found.placement[operator] == part.site for part in found.parts for operator in part.operators)


def test_a_second_run_stays_where_the_first_was(tmp_path: Path) -> None:
    kept = {"taxis": "pi", "warm": "dc", "out": "dc"}
    found = prepared(tmp_path, kept=kept)
    assert (found.placement, found.because) == (kept, "kept from the run before")


def test_another_placement_than_that_of_the_state_folder_is_refused_with_what_would_move(tmp_path: Path) -> None:
    kept = {"taxis": "pi", "warm": "dc", "out": "dc"}
    with pytest.raises(SpecError, match=r"HW1310 .* moves 'warm' from dc to pi, .* --state"):
        prepared(tmp_path, placement="taxis: pi\nwarm: pi\nout: dc\n", kept=kept)


def test_a_state_folder_whose_sites_are_gone_is_placed_anew_and_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="HW1310"):
        prepared(tmp_path, kept={"taxis": "gone", "warm": "dc", "out": "dc"})


def test_when_nothing_fits_it_is_said_why(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"HW2101 no valid placement exists: .*slots"):
        prepared(tmp_path, slots=1)


def test_a_placement_of_the_user_that_does_not_fit_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"HW2102 this placement is not valid: .*'?dc'?"):
        prepared(tmp_path, placement="taxis: dc\nwarm: dc\nout: dc\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (json.dumps({"pipeline": "other", "placement": {}}), "belongs to pipeline 'other', and this one is 'city'"),
        ('{"pipeline": "ci', "cannot be read: .* Begin anew with another --state"),
    ],
)
def test_a_state_folder_of_another_pipeline_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "deployment.json"
    assert kept_placement(file, WHOLE) is None
    file.write_text(text)
    with pytest.raises(SpecError, match=f"HW1311 .*{said}"):
        kept_placement(file, WHOLE)
