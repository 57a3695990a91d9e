"""What do the files that the user named say?

Reads pipeline, sites and placement together, so that the mistakes of all of them come at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from headwater.errors import Mistake, SpecError
from headwater.model.files import read_pipeline, read_placement, read_sites, read_workload
from headwater.model.pipeline import Pipeline
from headwater.model.sites import Sites
from headwater.model.workload import Workload
from headwater.serve import disk

__all__ = ["Loaded", "load", "load_sites", "load_workload", "shown_name"]

T = TypeVar("T")


class Loaded(NamedTuple):
    """What the files say."""

    pipeline: Pipeline
    sites: Sites
    placement: Mapping[str, str] | None = None  # None: no placement was named


def load(pipeline: str, sites: str, placement: str | None = None) -> Loaded:
    """Return what the three files say; '-' may stand for one of them.

    Raises:
        SpecError: with the mistakes of all files.
    """
    paths = [path for path in (pipeline, sites, placement) if path is not None]
    if paths.count(disk.STANDARD_INPUT) > 1:
        raise SpecError(Mistake("HW1305", "only one file can come from standard input; '-' was given twice or more"))
    mistakes: list[Mistake] = []

    def tried(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except SpecError as error:
            mistakes.extend(error.mistakes)
            return None

    content = {path: tried(lambda path=path: disk.read(path)) for path in paths}  # type: ignore[misc]
    found_sites = _parsed(content[sites], lambda text: tried(lambda: read_sites(text, shown_name(sites))))
    found_pipeline = _parsed(
        content[pipeline], lambda text: tried(lambda: read_pipeline(text, shown_name(pipeline), found_sites))
    )
    found_placement: dict[str, str] | None = None
    if placement is not None and found_sites is not None and found_pipeline is not None:
        found_placement = _parsed(
            content[placement],
            lambda text: tried(lambda: read_placement(text, shown_name(placement), found_pipeline, found_sites)),
        )
    if mistakes:
        raise SpecError(*mistakes)
    assert found_sites is not None, "no mistakes, so all was read"
    assert found_pipeline is not None, "no mistakes, so all was read"
    return Loaded(found_pipeline, found_sites, found_placement)


def load_sites(path: str) -> Sites:
    """Return what a sites file says.

    Raises:
        SpecError: every mistake in it.
    """
    return read_sites(disk.read(path), shown_name(path))


def load_workload(path: str) -> Workload:
    """Return what a workload file says; traces that it names are looked for beside it.

    Raises:
        SpecError: every mistake in it.
    """
    folder = "" if path == disk.STANDARD_INPUT else os.path.dirname(path)
    return read_workload(disk.read(path), shown_name(path), lambda name: disk.read(os.path.join(folder, name)))


def shown_name(path: str) -> str:
    """Return how messages name a file."""
    return "standard input" if path == disk.STANDARD_INPUT else path


def _parsed(text: bytes | None, parse: Callable[[bytes], T | None]) -> T | None:
    return None if text is None else parse(text)
