"""Are exactly the pinned jars used, and is a failed fetch told so that it can be mended?

What fetches is outside, so a script stands in for Java where the fetch itself is not the point.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.bind import jars
from headwater.bind.java import find_java, java
from headwater.errors import BindError

WANTED, PINNED = jars.WANTED, jars.PINNED
GOOD = {"spark/a-1.jar": "jar a", "kafka/b-2.jar": "jar b", "kafka/c-3.jar": "jar c"}


def write_java(home: Path, does: str, version: str = "17.0.1") -> None:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n{does}\n'
    )
    program.chmod(0o755)


def fetching(**changed: str) -> str:
    """A script that brings these jars, as Ivy would, in its folder."""
    texts = GOOD | {name.replace("__", "/").replace("_", "-") + ".jar": text for name, text in changed.items()}
    bring = (f"printf '%s' '{text}' > 'lib/{name}'" for name, text in texts.items() if text)
    return "\n".join(('echo x >> "$RUNS"', "mkdir -p lib/spark lib/kafka", *bring))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three small jars are wanted; Java is a script that brings them and notes each run in 'runs'."""
    pinned = tmp_path / "jars.sha256"
    pinned.write_text("".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in GOOD.items()))
    monkeypatch.setattr(jars, "PINNED", pinned)
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    write_java(tmp_path / "jdk", fetching())
    return tmp_path


def runs(world: Path) -> int:
    return len((world / "runs").read_text().splitlines()) if (world / "runs").exists() else 0


def test_jars_are_fetched_once_and_then_found(world: Path) -> None:
    said: list[str] = []
    found = jars.ensure(said.append)
    folder = jars.jars_folder()
    assert found == jars.Jars((folder / "spark" / "a-1.jar",), folder / "kafka")
    assert sorted(path.name for path in found.kafka.iterdir()) == ["b-2.jar", "c-3.jar"]
    assert said[0].startswith("fetching the jars")
    assert jars.ensure() == found
    assert runs(world) == 1
    assert jars.verify() == ()
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "complete").unlink(),
        lambda folder: (folder / "complete").write_text("nonsense"),
        lambda folder: (folder / "kafka" / "b-2.jar").unlink(),
        lambda folder: (folder / "kafka" / "b-2.jar").write_text("half"),
        lambda folder: (folder / "kafka" / "stranger-1.jar").write_text("it would be on the class path"),
    ],
    ids=["no mark", "broken mark", "a jar lost", "a jar cut short", "a jar too many"],
)
def test_a_set_that_is_not_exactly_the_pinned_one_is_fetched_again(world: Path, spoil) -> None:
    jars.ensure()
    spoil(jars.jars_folder())
    assert not jars.is_complete()
    jars.ensure()
    assert runs(world) == 2
    assert jars.verify() == ()


def test_other_digests_than_those_of_the_fetch_mean_another_fetch(world: Path) -> None:
    jars.ensure()
    jars.PINNED.write_text(jars.PINNED.read_text().replace("b-2", "b-3"))
    assert not jars.is_complete()


def test_verify_finds_a_jar_that_was_changed_without_changing_its_size(world: Path) -> None:
    assert "not been fetched" in jars.verify()[0]
    jars.ensure()
    (jars.jars_folder() / "spark" / "a-1.jar").write_text("jar x")
    assert jars.is_complete()
    (fault,) = jars.verify()
    assert fault.startswith("'spark/a-1.jar' has sha256")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"kafka__b_2": "another b"}, "'kafka/b-2.jar' has sha256"),
        ({"kafka__b_2": ""}, "'kafka/b-2.jar' is missing"),
        ({"kafka__d_4": "jar d"}, "'kafka/d-4.jar' is not wanted"),
    ],
)
def test_a_wrong_download_is_refused_and_not_kept(world: Path, changed: dict[str, str], told: str) -> None:
    write_java(world / "jdk", fetching(**changed))
    with pytest.raises(BindError, match="HW4105") as caught:
        jars.ensure()
    assert told in str(caught.value)
    assert not jars.jars_folder().exists()
    write_java(world / "jdk", fetching())
    jars.ensure()
    assert jars.verify() == ()


def test_a_fetch_without_a_network_says_what_to_check(world: Path) -> None:
    write_java(world / "jdk", "echo '  Server access error at url x (java.net.UnknownHostException: x)'; exit 1")
    with pytest.raises(BindError, match=r"HW4104.*UnknownHostException.*Check the network.*proxy.*copy the folder"):
        jars.ensure()
    assert not jars.is_complete()
    log = jars.jars_folder().with_name(f"{jars.jars_folder().name}.part") / "ivy.log"
    assert "Server access error" in log.read_text()


def test_a_fetch_that_says_nothing_for_long_is_ended(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(world / "gate")
    monkeypatch.setattr(jars, "LONGEST_SILENCE_S", 0.2)
    write_java(world / "jdk", f"read line < '{world / 'gate'}'")
    with pytest.raises(BindError, match=r"HW4104.*nothing came for"):
        jars.ensure()


def test_a_cache_folder_that_cannot_be_made_is_told(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (world / "file").write_text("")
    monkeypatch.setenv("HEADWATER_CACHE", str(world / "file"))
    with pytest.raises(BindError, match=r"HW4106.*HEADWATER_CACHE"):
        jars.ensure()


@pytest.fixture
def processes(world: Path) -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start_ensure(world: Path, processes: list[subprocess.Popen[str]]) -> subprocess.Popen[str]:
    code = (
        f"from pathlib import Path; from headwater.bind import jars; jars.PINNED = Path({str(jars.PINNED)!r}); "
        "jars.ensure(lambda text: print(text, flush=True)); print('ready')"
    )
    processes.append(subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True))
    return processes[-1]


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def hold_until_told(world: Path) -> Path:
    """Make the next fetch wait, after noting its start in a pipe, for a line in another."""
    for name in ("begun", "gate"):
        os.mkfifo(world / name)
    wait = f"if [ -p '{world / 'gate'}' ]; then echo > '{world / 'begun'}'; read line < '{world / 'gate'}'; fi\n"
    write_java(world / "jdk", wait + fetching())
    return world / "gate"


def test_two_processes_at_once_fetch_once(world: Path, processes: list[subprocess.Popen[str]]) -> None:
    gate = hold_until_told(world)
    first = start_ensure(world, processes)
    (world / "begun").read_text()
    second = start_ensure(world, processes)
    assert says(second).startswith("another process is fetching")
    gate.write_text("go\n")
    assert first.wait(30) == second.wait(30) == 0
    assert says(second) == "ready"
    assert runs(world) == 1
    assert jars.verify() == ()


def test_a_fetcher_that_is_killed_leaves_nothing_that_spoils_the_next(
    world: Path, processes: list[subprocess.Popen[str]]
) -> None:
    gate = hold_until_told(world)
    first = start_ensure(world, processes)
    (world / "begun").read_text()
    first.kill()
    first.wait(30)
    second = start_ensure(world, processes)
    assert says(second).startswith("another process is fetching")  # what the killed one had started still writes
    with gate.open("w") as opened:
        gate.unlink()
        opened.write("go\n")
    assert second.wait(30) == 0
    assert runs(world) == 2
    assert jars.is_complete()
    assert jars.verify() == ()


def test_java_that_is_missing_silent_or_too_old_is_told_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(BindError, match=r"HW4101 no Java was found in JAVA_HOME or on the PATH.*apt install"):
        java()
    for version, told in (("11.0.2", "HW4102.*version 11, 17 or newer"), ("?", "HW4101.*does not tell its version")):
        home = tmp_path / version.replace("?", "silent")
        write_java(home, "", version)
        monkeypatch.setenv("JAVA_HOME", str(home))
        with pytest.raises(BindError, match=told):
            java()
    write_java(tmp_path / "new", "", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert java() == tmp_path / "new" / "bin" / "java"
    assert find_java({"JAVA_HOME": str(tmp_path / "new")}) == (java(), 21)


def test_every_jar_that_is_named_is_pinned_and_nothing_is_pinned_twice() -> None:
    pinned = [line.split()[1] for line in PINNED.read_text().splitlines()]
    named = {
        f"{each.attrib['conf'].partition('->')[0]}/{each.attrib['name']}-{each.attrib['rev']}.jar"
        for each in ET.parse(WANTED).iter("dependency")
    }
    assert named <= set(pinned)
    assert len(pinned) == len(set(pinned))
    assert {name for name in pinned if name.startswith("spark/")} <= named  # Spark has all that these depend on


@pytest.mark.kafka
def test_the_real_jars_are_what_was_tested() -> None:
    try:
        found = jars.ensure()
    except BindError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    assert jars.verify() == ()
    assert len(found.spark) == 5
    assert list(found.kafka.glob("kafka_2.13-*.jar"))
