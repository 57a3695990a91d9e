"""What do the user's files say, and is it right?

Makes the model from the text of a pipeline, sites, placement or workload file, or names every mistake in it with
file and line. Takes bytes and opens nothing. `model.text` reads YAML and JSON; the tables that say what
a file may hold are in `model.sites_file`, `model.pipeline_file` and `model.workload_file`; `model.write`
goes the other way.

    HW1000  more mistakes than are shown
    HW1001  not readable as YAML or JSON
    HW1002  empty file
    HW1003  unknown key
    HW1004  reference to an operator, site or tag that does not exist
    HW1005  value of the wrong type
    HW1006  wrong quantity or unit
    HW1007  value out of range, or not one of the allowed words
    HW1008  duplicate key or link
    HW1009  cycle of operators
    HW1010  site that no link reaches
    HW1011  demands that contradict each other
    HW1012  something that must be there is missing
    HW1013  name that is not allowed
    HW1014  file too large or too deep
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from headwater.model.fields import Body, read_name
from headwater.model.pipeline import Pipeline
from headwater.model.pipeline_file import make_pipeline
from headwater.model.report import Report, describe, quote
from headwater.model.sites import Sites
from headwater.model.sites_file import make_sites
from headwater.model.text import parse
from headwater.model.tree import line_of
from headwater.model.workload import Workload
from headwater.model.workload_file import Fetch, make_workload, no_files
from headwater.model.write import write_pipeline, write_placement, write_sites

__all__ = [
    "read_pipeline",
    "read_placement",
    "read_sites",
    "read_workload",
    "write_pipeline",
    "write_placement",
    "write_sites",
]

Model = TypeVar("Model")


def read_sites(text: bytes, file: str) -> Sites:
    """Return the sites and links of a sites file.

    Args:
        text: what the file holds, YAML or JSON.
        file: its name, for messages; one that ends in .json must hold JSON.

    Raises:
        SpecError: every mistake in it.
    """
    return _read(text, file, make_sites)


def read_pipeline(text: bytes, file: str, sites: Sites | None = None) -> Pipeline:
    """Return the pipeline of a pipeline file.

    Args:
        text: what the file holds, YAML or JSON.
        file: its name, for messages and for a pipeline that has none; one that ends in .json must hold JSON.
        sites: if given, every site and tag in 'at' must be found there.

    Raises:
        SpecError: every mistake in it.
    """
    return _read(text, file, lambda report, root: make_pipeline(report, root, sites))


def read_placement(
    text: bytes, file: str, pipeline: Pipeline, sites: Sites, also: Collection[str] = ()
) -> dict[str, str]:
    """Return the site of each operator that a placement file names; not every operator needs to be there.

    What `headwater place --json` prints is a placement file too. `also` holds other names that may be placed.

    Raises:
        SpecError: every mistake in it.
    """
    return _read(text, file, lambda report, root: _make_placement(report, root, pipeline, sites, also))


def read_workload(text: bytes, file: str, fetch: Fetch = no_files) -> Workload:
    """Return the workload of a workload file.

    Args:
        text: what the file holds, YAML or JSON.
        file: its name, for messages; one that ends in .json must hold JSON.
        fetch: gives the content of a file that a trace names, as it is named there, or raises SpecError.

    Raises:
        SpecError: every mistake in it.
    """
    return _read(text, file, lambda report, root: make_workload(report, root, fetch))


def _read(text: bytes, file: str, make: Callable[[Report, Body], Model]) -> Model:
    """Return what `make` makes of the values of a file; JSON with mistakes is read again, for their lines."""
    report = Report(file)
    tree = parse(text, report)
    if not tree.has_lines:
        model = make(report, tree.root) if isinstance(tree.root, dict) else None
        if model is not None and not report:
            return model
        report = Report(file)
        tree = parse(text, report, with_lines=True)
    if not isinstance(tree.root, dict):
        raise report.stop(
            "HW1005", f"the file must hold a mapping; found {describe(tree.root)}.", line_of(tree.root) or 1
        )
    model = make(report, tree.root)
    if report:
        raise report.error()
    return model


def _make_placement(
    report: Report, root: Body, pipeline: Pipeline, sites: Sites, also: Collection[str]
) -> dict[str, str]:
    known = {*pipeline.by_name, *also}
    printed = root.get("placement")
    given = printed if isinstance(printed, dict) and "method" in root else root
    placement = {}
    for operator, value in given.items():
        line = line_of(given, operator)
        if operator not in known:
            report.add(
                "HW1004",
                f"{quote(operator, 40)} is placed but is no operator of pipeline "
                f"{quote(pipeline.name)}.{report.tip(operator, known)}",
                line,
            )
        site = read_name(report, value, line, f"the placement of {quote(operator, 40)}")
        if site is not None and site not in sites.by_name:
            report.add(
                "HW1004",
                f"operator {quote(operator, 40)} is placed on {quote(site)}, which is no site."
                f"{report.tip(site, sites.by_name)}",
                line,
            )
        elif site is not None:
            placement[operator] = site
    return placement
