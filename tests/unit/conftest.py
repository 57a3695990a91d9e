"""What several examples share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.bind.cgroup import Hierarchy, find
from headwater.bind.code import Code
from headwater.bind.engine import Ground, SparkEngine
from headwater.bind.jars import Jars
from tests.pretended import CODE, Leave, Pretended


@pytest.fixture
def second(tmp_path: Path) -> Hierarchy:
    """A folder that looks like control groups of version 2."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    found = find(tmp_path)
    assert found is not None
    return found


@pytest.fixture
def leave(tmp_path: Path) -> Iterator[Leave]:
    """Leave a runner as an earlier agent would; nothing of it outlives the test."""
    left: list[Pretended] = []

    def one(composition: str) -> Pretended:
        left.append(Pretended(tmp_path, composition))
        return left[-1]

    yield one
    for each in left:
        each.end()


@pytest.fixture
def said() -> list[str]:
    """What the engine said."""
    return []


@pytest.fixture
def engine(tmp_path: Path, said: list[str]) -> SparkEngine:
    """The engine of the next agent."""

    def fetch(digest: str) -> Path:
        assert digest == CODE, "nobody may ask for another one"
        file = tmp_path / "main.py"
        file.write_text("def run(): ...")
        return file

    ground = Ground("a", tmp_path, Jars((), tmp_path), lambda: "a:1", Code(tmp_path / "code", fetch))
    return SparkEngine(ground, said.append)
