"""Does set-up end in one clear sentence when something is missing? Nothing is installed here."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("sh", "dirname", "cat", "cksum", "grep", "sed", "sleep", "rm", "mkdir")  # what the script itself calls


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A folder with the files that set-up reads, and a `bin` with nothing but the tools of its script."""
    folder = tmp_path / "a house"  # the blank is on purpose
    (folder / "tools").mkdir(parents=True)
    (folder / "bin").mkdir()
    for name in ("pyproject.toml", "requirements-lock.txt", "tools/setup.sh"):
        shutil.copy(ROOT / name, folder / name)
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None, name
        (folder / "bin" / name).symlink_to(found)
    program(folder, "java", "echo 'openjdk version \"17.0.1\" 2021-10-19' >&2")
    program(folder, "python3", f'exec {sys.executable} "$@"')
    return folder


def program(house: Path, name: str, script: str, folder: str = "bin") -> None:
    path = house / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def set_up(house: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "tools/setup.sh"],
        cwd=house,
        env={"PATH": str(house / "bin"), "HOME": str(house), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 4
    assert done.stderr.startswith("setup: ")
    assert done.stderr.count("\n") == 1, "one sentence, no traceback"
    for word in words:
        assert word in done.stderr


def fake_environment(house: Path, pip: str) -> None:
    """A `.venv` that looks suitable; its pip is the given script."""
    program(house, "python", f'if [ "$1" = -m ]; then shift 3; {pip}; else exec {sys.executable} "$@"; fi', ".venv/bin")
    program(house, "pip", f"# {house.resolve()}/.venv/bin/python", ".venv/bin")


def test_no_python_is_one_sentence(house: Path) -> None:
    (house / "bin" / "python3").unlink()
    refused(set_up(house), "Python 3.11 or newer", "apt install python3", "make setup")


def test_a_python_that_is_too_old_or_lacks_venv_is_passed_over(house: Path) -> None:
    program(house, "python3", "exit 1")
    refused(set_up(house), "Python 3.11 or newer")


@pytest.mark.parametrize(
    ("says", "found"),
    [("", "none"), ('openjdk version "11.0.2" 2019-01-15', "11"), ('java version "1.8.0_392"', "8")],
)
def test_no_java_or_an_old_one_is_one_sentence(house: Path, says: str, found: str) -> None:
    program(house, "java", f"echo '{says}' >&2")
    refused(set_up(house), "Java 17 or newer", f"found {found}", "HEADWATER_NO_JAVA=1")


def test_java_is_not_asked_for_when_the_user_says_so(house: Path) -> None:
    (house / "bin" / "java").unlink()
    fake_environment(house, "exit 1")
    done = set_up(house, HEADWATER_NO_JAVA="1")
    assert "Java" in done.stdout
    assert "Java" not in done.stderr


def test_java_home_is_looked_at_first(house: Path) -> None:
    program(house, "java", "echo 'openjdk version \"11.0.2\"' >&2")
    program(house, "java", "echo 'openjdk version \"21.0.2\"' >&2", "jdk/bin")
    fake_environment(house, "exit 1")
    assert "Java" not in set_up(house, JAVA_HOME=str(house / "jdk")).stderr


def test_no_network_is_one_sentence_that_names_the_log(house: Path) -> None:
    (house / "requirements-lock.txt").write_text("headwater-has-no-such-dependency==1.0\n")
    target = house / "target"
    fake_environment(house, f'exec env -i PIP_TARGET="{target}" PIP_INDEX_URL=http://127.0.0.1:9/simple PIP_RETRIES=0'
                     f' {sys.executable} -m pip install "$@"')  # fmt: skip
    (house / "bin" / "env").symlink_to(shutil.which("env") or "/usr/bin/env")
    done = set_up(house)
    refused(done, "could not be downloaded", "Check the network", ".venv/setup.log")
    assert "setup: installing 1 packages" in done.stdout
    assert "headwater-has-no-such-dependency" in (house / ".venv/setup.log").read_text()


def test_a_full_disk_is_not_taken_for_a_missing_network(house: Path) -> None:
    fake_environment(house, "echo 'OSError: [Errno 28] No space left on device' >&2; exit 1")
    refused(set_up(house), "disk is full")


def test_a_set_up_that_is_up_to_date_does_nothing_until_the_lock_changes(house: Path) -> None:
    fake_environment(house, "echo pip >>calls")
    program(house, "headwater", "exit 0", ".venv/bin")
    first = set_up(house)
    assert first.returncode == 0, first.stderr
    assert "ready" in first.stdout
    calls = (house / "calls").read_text()
    again = set_up(house)
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert (house / "calls").read_text() == calls
    with (house / "requirements-lock.txt").open("a") as lock:
        lock.write("# renewed\n")
    assert "installing" in set_up(house).stdout


def test_an_interrupted_set_up_is_taken_up_again(house: Path) -> None:
    fake_environment(house, "exit 1")
    assert set_up(house).returncode == 4
    fake_environment(house, "exit 0")
    program(house, "headwater", "exit 0", ".venv/bin")
    assert set_up(house).returncode == 0


def test_the_lock_holds_what_the_project_asks_for_and_nothing_but_exact_versions() -> None:
    lines = (ROOT / "requirements-lock.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    asked = [re.sub(r"\[[^]]*\]", "", each) for each in asked]  # extras are more packages, pinned beside it
    assert set(asked) <= set(pins)
