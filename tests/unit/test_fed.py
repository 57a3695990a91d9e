"""Into which brokers of a control plane does the outside write?"""

from __future__ import annotations

from typing import Any

from headwater.serve.fed import source_sites


def job(site: str, source: tuple[str, str], sink: tuple[str, str] | None) -> dict[str, Any]:
    told = None if sink is None else {"broker": sink[0], "name": sink[1]}
    return {"wanted": {"site": site, "sources": [{"broker": source[0], "name": source[1]}], "sink": told}}


def test_the_outside_writes_where_jobs_read_what_no_job_writes() -> None:
    first = job("edge-1", ("edge-1", "T-1"), ("hub", "T-2"))
    second = job("hub", ("hub", "T-2"), ("dc", "T-3"))
    assert source_sites([first, second]) == ["edge-1"]
    assert source_sites([second, {"wanted": None}]) == ["hub"]


def test_a_source_that_only_spark_knows_is_where_its_job_runs() -> None:
    assert source_sites([job("pi", ("", "@readings"), None)]) == ["pi"]
    assert source_sites([]) == []
