"""Do imports go one way only, and is the core pure?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "headwater"
LONGEST_MODULE = 500

# A room imports only rooms on the lines above its own; those on one line do not know each other.
LAYERS = (
    ("errors",),
    ("model",),
    ("cost",),
    ("place", "pack"),
    ("plan",),
    ("control",),
    ("ports",),
    ("run",),
    ("sim", "author", "bind"),
    ("testbed",),
    ("serve",),
)
LEVEL = {room: number for number, rooms in enumerate(LAYERS) for room in rooms}
PURE = {room for rooms in LAYERS[: LEVEL["control"] + 1] for room in rooms}
OUTSIDE = {
    "asyncio", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib", "pyspark", "random", "requests",
    "secrets", "shutil", "socket", "subprocess", "sys", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
SPARK = {"author", "bind"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide which room is meant"
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names if module == "headwater")


def breaches(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    room = room_of(path)
    for name in imported(tree):
        top, _, rest = name.partition(".")
        if top == "headwater":
            other = rest.partition(".")[0]
            if other in LEVEL and room in LEVEL and other != room and LEVEL[other] >= LEVEL[room]:
                yield f"{room} imports {other}"
        elif room in PURE and top in OUTSIDE:
            yield f"{room} is pure but imports {name}"
        elif top == "pyspark" and room not in SPARK:
            yield f"only {' and '.join(sorted(SPARK))} import pyspark, not {room}"
    if room in PURE:
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in {"open", "print", "input"}
            ):
                yield f"{room} is pure but calls {node.func.id}()"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_rooms_above_it_and_the_core_touches_nothing_outside(path: Path) -> None:
    assert list(breaches(path)) == []


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_belongs_to_a_known_room_and_is_short_enough_to_read(path: Path) -> None:
    assert room_of(path) in LEVEL or path.name == "__init__.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE


def test_errors_import_nothing_of_the_project() -> None:
    tree = ast.parse((ROOT / "errors.py").read_text(encoding="utf-8"))
    assert not [name for name in imported(tree) if name.startswith("headwater")]


def test_the_walk_would_notice_a_breach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    bad = tmp_path / "model" / "bad.py"
    bad.write_text("import time\nfrom headwater.place import auto\nfrom headwater import serve\nopen('x')\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert list(breaches(bad)) == [
        "model is pure but imports time",
        "model imports place",
        "model imports serve",
        "model is pure but calls open()",
    ]
