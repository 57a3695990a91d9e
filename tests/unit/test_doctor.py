from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from headwater.bind.java import find_java, java_major, release
from headwater.serve import doctor
from headwater.serve.main import main


def java(folder: Path, says: str) -> str:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return str(folder)


def check(name: str, environment: dict[str, str]) -> doctor.Check:
    return next(each for each in doctor.checks(environment) if each.name == name)


@pytest.mark.parametrize(
    ("says", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("No Java runtime present", None),
    ],
)
def test_the_major_version_of_java_is_read_in_old_and_new_forms(says: str, major: int | None) -> None:
    assert doctor.java_major(says) == major


def test_java_is_looked_for_in_java_home_and_then_on_the_path(tmp_path: Path) -> None:
    home = java(tmp_path / "jdk", 'openjdk version "21.0.1"')
    old = java(tmp_path / "old", 'java version "1.8.0"')
    found = check("java", {"JAVA_HOME": home, "PATH": f"{old}/bin"})
    assert (found.found, found.ok) == ("21", True)
    found = check("java", {"PATH": f"{old}/bin"})
    assert (found.found, found.ok, found.needed) == ("8", False, False)
    assert "apt install" in found.how


def test_which_java_it_is_is_read_beside_it_and_else_it_is_asked(tmp_path: Path) -> None:
    program = Path(java(tmp_path, 'openjdk version "17.0.1"')) / "bin" / "java"
    assert java_major(release(str(program))) == 17
    (tmp_path / "release").write_text('IMPLEMENTOR="somebody"\nJAVA_VERSION="21.0.4"\n')
    assert java_major(release(str(program))) == 21
    assert find_java({"PATH": str(program.parent)}, release) == (program, 21)
    assert find_java({"PATH": str(program.parent)}) == (program, 17), "doctor asks the program itself"
    for odd in (b"\xff\xfe", b"JAVA_VERSION=odd"):
        (tmp_path / "release").write_bytes(odd)
        assert java_major(release(str(program))) == 17


def test_no_java_is_told_with_how_to_get_it_and_does_not_fail_the_commands_of_today() -> None:
    found = check("java", {"PATH": "/nowhere"})
    assert found.found is None
    assert not found.ok
    assert not found.needed
    assert "JAVA_HOME" in found.how


def test_every_pinned_package_of_the_project_is_checked() -> None:
    names = {each.name for each in doctor.checks({"PATH": ""})}
    assert {"python", "numpy", "numba", "scipy", "networkx", "PyYAML", "rich", "typer", "matplotlib"} <= names
    assert "pytest" not in names


def test_a_missing_package_ends_in_exit_code_4_and_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "scipy":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert main(["doctor", "--json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    missing = [each for each in answer["checks"] if not each["ok"] and each["needed"]]
    assert [each["name"] for each in missing] == ["scipy"]
    assert "make setup" in missing[0]["how"]
    assert main(["doctor"]) == 4
    assert "missing" in capsys.readouterr().out


def test_another_version_than_the_tested_one_is_told_but_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.1")
    found = check("numpy", {"PATH": ""})
    assert found.ok
    assert "not the one that was tested" in found.how


def test_a_whole_installation_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert main(["doctor"]) == 0
    assert "all that the commands need is here" in capsys.readouterr().out
