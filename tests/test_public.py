"""Are the public names exactly those that are said to be, and does each code mean one thing?"""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "headwater"
CODE = re.compile(r"HW([1-9])\d{3}")


def module_names() -> list[str]:
    names = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def path_of(name: str) -> Path:
    path = ROOT.parent.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.mark.parametrize("name", module_names())
def test_all_lists_names_that_exist_each_once_in_order(name: str) -> None:
    module = importlib.import_module(name)
    listed = getattr(module, "__all__", None)
    if listed is None:
        assert path_of(name).name == "__init__.py", "every module says what is public"
        return
    assert len(listed) == len(set(listed))
    assert list(listed) == sorted(listed, key=isort_style)
    for each in listed:
        assert hasattr(module, each), each


@pytest.mark.parametrize("name", module_names())
def test_every_public_function_and_class_defined_here_is_listed(name: str) -> None:
    path = path_of(name)
    if path.name == "__init__.py":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    }
    commands = {"cli", "cli_run"}  # there the commands are reached through `app`
    if path.stem not in commands:
        assert defined <= set(importlib.import_module(name).__all__)


def isort_style(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, as ruff sorts `__all__`."""
    if name.isupper() and len(name) > 1:
        return (0, name)
    return (1, name) if name[:1].isupper() else (2, name)


def codes_by_room() -> dict[str, set[str]]:
    found = defaultdict(set)
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                for match in CODE.finditer(node.value):
                    found[match[0]].add(path.relative_to(ROOT).parts[0])
    return dict(found)


def test_an_error_code_belongs_to_one_room() -> None:
    shared = {code: sorted(rooms) for code, rooms in codes_by_room().items() if len(rooms) > 1}
    assert shared == {}


def test_an_error_code_belongs_to_a_known_family() -> None:
    assert {code[2] for code in codes_by_room()} <= {"1", "2", "4", "9"}
