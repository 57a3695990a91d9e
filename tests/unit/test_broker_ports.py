"""Ports of brokers that are started at once, by one process or by several."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.bind.broker_ports import choose_ports, release_ports, remembered_ports
from headwater.errors import BindError

HOST = "127.0.0.1"
linux = pytest.mark.skipif(sys.platform != "linux", reason="names of sockets are files here")
CHOOSE = """
import sys
from pathlib import Path
from headwater.bind.broker_ports import choose_ports
print(*choose_ports(Path(sys.argv[1]), "other", "127.0.0.1"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[list[Path]]:
    """Folders of which nothing stays reserved."""
    found = [tmp_path / name for name in "abc"]
    for one in found:
        one.mkdir()
    yield found
    for one in found:
        release_ports(one)


def wish(folder: Path, ports: tuple[int, int]) -> None:
    """Let a folder remember ports, as if its broker had been there before."""
    (folder / "ports.json").write_text(json.dumps({"client": ports[0], "controller": ports[1]}))


@linux
def test_brokers_that_are_started_at_once_choose_no_port_twice(folders: list[Path]) -> None:
    first = choose_ports(folders[0], "a", HOST)
    wish(folders[1], first)
    second = choose_ports(folders[1], "b", HOST)
    assert len({*first, *second}) == 4, "neither listens yet, and yet the ports of the first are taken"
    assert choose_ports(folders[0], "a", HOST) == first, "its own are not taken for it"
    release_ports(folders[0])
    wish(folders[2], first)
    assert choose_ports(folders[2], "c", HOST) == first, "whoever will not listen keeps nobody from it"


@linux
def test_ports_that_another_process_has_chosen_are_taken_until_it_ends(folders: list[Path]) -> None:
    words = [sys.executable, "-c", CHOOSE, str(folders[0])]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        client, controller = map(int, other.stdout.readline().split())
        wish(folders[1], (client, controller))
        assert not {client, controller} & {*choose_ports(folders[1], "b", HOST)}
        with pytest.raises(BindError, match=f"HW4203 port {client} "):
            choose_ports(folders[1], "b", HOST, client)
        other.kill()
        other.wait()
    release_ports(folders[1])
    wish(folders[1], (client, controller))
    assert choose_ports(folders[1], "b", HOST) == (client, controller)


def test_ports_are_remembered(folders: list[Path]) -> None:
    ports = choose_ports(folders[0], "a", HOST)
    release_ports(folders[0])
    assert remembered_ports(folders[0]) == ports == choose_ports(folders[0], "a", HOST)
