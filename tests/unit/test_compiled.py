"""Where compiled kernels are kept, and that nothing stale is loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.bind import compiled

PACKAGE = Path(compiled.__file__).parent.parent


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package that the module takes for its own."""
    copy = tmp_path / "headwater"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(compiled, "__file__", str(copy / "bind" / "compiled.py"))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return copy


def test_another_text_of_any_kernel_means_another_folder(package: Path) -> None:
    before = compiled.cache_folder()
    assert compiled.cache_folder() == before
    kernels = [
        path for path in sorted(package.rglob("*.py")) if "@njit" in path.read_text() and "bind" not in path.parts
    ]
    assert len(kernels) >= 5
    seen = {before}
    for path in kernels:
        path.write_text(path.read_text() + "\n# changed\n")
        seen.add(compiled.cache_folder())
    assert len(seen) == len(kernels) + 1


def test_a_text_without_kernels_plays_no_part(package: Path) -> None:
    before = compiled.cache_folder()
    result = package / "place" / "result.py"
    result.write_text(result.read_text() + "\n# changed\n")
    assert compiled.cache_folder() == before


def test_the_folder_is_made_and_given_to_numba(package: Path) -> None:
    del package
    compiled.use_cache()
    folder = compiled.cache_folder()
    assert folder.is_dir()
    assert os.environ.pop("NUMBA_CACHE_DIR") == str(folder)
    assert not compiled.is_compiled()
    (folder / compiled.DONE).touch()
    assert compiled.is_compiled()


def test_a_folder_that_the_user_has_chosen_stays(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del package
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/somewhere/else")
    compiled.use_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == "/somewhere/else"


def test_a_cache_that_cannot_be_made_is_no_failure(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del package
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "file"))
    compiled.use_cache()
    assert "NUMBA_CACHE_DIR" not in os.environ
    assert not compiled.is_compiled()


def test_a_command_works_where_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    environment = {**os.environ, "HEADWATER_CACHE": str(tmp_path / "file")}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-m", "headwater.serve.main", "doctor", "--json"],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_kernels_are_announced_once_and_noted(package: Path) -> None:
    del package
    compiled.use_cache()
    said: list[str] = []
    compiled.compile_all(said.append)  # this process has imported them long ago: nothing is compiled again
    compiled.compile_all(said.append)
    os.environ.pop("NUMBA_CACHE_DIR", None)
    assert len(said) == 1
    assert "compiling" in said[0]
