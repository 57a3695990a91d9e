"""Do testbeds leave each other and the machine alone, also when their maker is killed?"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from headwater.errors import BindError
from headwater.testbed import network
from headwater.testbed.bed import Bed, leftovers, remove
from tests.contract.beds import SITES, beds, echo_s, reaches, start, until

NAME = f"u{os.getpid()}"
PLACES = ("/run/netns", "/etc/netns", "/run/headwater")
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    yield from beds(NAME)


def test_two_beds_live_side_by_side(bed: Bed) -> None:
    other = Bed(f"{NAME}-2", SITES)
    other.up()
    try:
        for one in (bed, other):
            assert reaches(one, "cloud", one.box("north").address, "north")
            assert reaches(one, None, one.box("north").manage, "north")
        assert bed.box("north").manage != other.box("north").manage
        other.cut("cloud", "north")
        assert echo_s(bed, "cloud", "north", 3.0) is not None
    finally:
        other.down()
    assert reaches(bed, None, bed.box("north").manage, "north")
    assert echo_s(bed, "cloud", "north", 3.0) is not None


def seen() -> set[str]:
    """Everything of this file's beds on this machine, found by other means than the testbed's own."""
    shown = network.run_program(["ip", "-o", "link"])
    devices = re.findall(r"^\d+: ([^:@]+)", shown, re.MULTILINE)
    ours = tuple(network.shared_names(f"{NAME}{suffix}") for suffix in ("", "-2", "-3", "-4", "-5"))
    words = {str(one.info["cmdline"]) for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"]}
    files = [path for place in PLACES for path in Path(place).rglob("*")]
    groups = [path for tree in Path("/sys/fs/cgroup").glob("*/headwater") for path in tree.rglob("*")]
    found = {name for name in devices if name.startswith(ours)} | {one for one in words if "link_process" in one}
    return {one for one in found | set(map(str, files + groups)) if NAME in one or one.startswith(ours)}


def _is_known(bed: str, pid: int) -> bool:
    return f"process {pid}" in leftovers(bed)[bed]


def _has_begun(pid: int, program: str) -> bool:
    """Return whether a process of a site has come in, and is what it was started for."""
    return bool(psutil.Process(pid).name() == program)


def test_a_bed_that_comes_and_goes_leaves_nothing(bed: Bed) -> None:
    before = seen()
    other = Bed(f"{NAME}-3", SITES)
    for _ in range(3):
        other.up()
        assert seen() != before
        stray = subprocess.Popen(["setsid", "ip", "netns", "exec", other.layout.namespace("south"), "sleep", "1000"])
        inner = start(other, "north", "sleep", "1000")
        until(partial(_is_known, other.name, stray.pid))
        until(partial(_has_begun, inner.pid, "sleep"))
        assert other.down()
        assert (stray.wait(5), inner.wait(5)) == (-signal.SIGKILL, -signal.SIGKILL)
        inner.communicate()
        assert seen() == before
    assert other.down() == ()


UP = """
import sys
from headwater.testbed.bed import Bed
from tests.contract.beds import SITES
Bed(sys.argv[1], SITES).up(lambda text: print(text, flush=True))
print('complete', flush=True)
input()
"""


@pytest.mark.parametrize("stage", ["namespaces", "links", "routes", "groups", "complete"])
def test_what_is_left_by_one_who_was_killed_in_the_middle_is_removed(bed: Bed, stage: str) -> None:
    before = seen()
    name = f"{NAME}-4"
    words = [sys.executable, "-c", UP, name]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if stage in line:
                break
        time.sleep(0.03)  # into the middle of what it said it would do
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert leftovers(name)
    if stage in {"namespaces", "links"}:  # the others may have been done meanwhile
        with pytest.raises(BindError, match="HW4902"):
            Bed.found(name)
    assert remove(name)
    assert seen() == before


def test_an_up_that_fails_takes_itself_back(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    before = seen()
    monkeypatch.setattr(network, "congestion_control", lambda: "nonsense")
    with pytest.raises(BindError, match=r"HW4903 .*congestion"):
        Bed(f"{NAME}-5", SITES).up()
    assert seen() == before
