"""What kind of testbed does a machine carry, for whom, and by what are packets delayed in it?"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from headwater.errors import BindError
from headwater.model.sites import Link, Site, Sites
from headwater.serve import doctor, run
from headwater.serve.arguments import Search
from headwater.serve.live import Screen
from headwater.testbed import network, private
from headwater.testbed.bed import Bed
from headwater.testbed.ground import Ground, choose, way_in
from headwater.testbed.network import lay_out

CHAIN = Sites((Site("pi"), Site("hub"), Site("dc")), (Link("pi", "hub", 0.02, 2e7), Link("hub", "dc", 0.01, 1e8)))
GROUND = Ground(True, False, True, True, True, True, True, 1)


@pytest.mark.parametrize(
    ("ground", "tier"),
    [
        (GROUND, "netem"),
        (replace(GROUND, has_netem=False), "links"),
        (replace(GROUND, has_netem=False, has_tun=False), "links"),
        (replace(GROUND, is_private=True, group_version=None), "user namespaces"),
        (replace(GROUND, is_root=False, has_namespaces=False), "user namespaces"),
        (replace(GROUND, has_namespaces=False), "user namespaces"),
        (replace(GROUND, has_namespaces=False, has_user_namespaces=False), "loopback"),
        (replace(GROUND, is_root=False, has_namespaces=False, has_user_namespaces=False), "loopback"),
    ],
)
def test_the_tier_is_the_best_that_the_ground_carries(ground: Ground, tier: str) -> None:
    assert choose(ground)[0] == ground.tier == tier
    assert ground.is_enough == ground.has_namespaces


def test_packets_are_delayed_by_the_best_that_there_is() -> None:
    assert GROUND.links == "netem"
    assert replace(GROUND, has_netem=False).links == "tun"
    assert replace(GROUND, has_netem=False, has_tun=False).links == "packet"


USER = replace(GROUND, is_root=False, has_namespaces=False, group_version=None)


def test_the_way_in_is_the_own_command_in_namespaces_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "headwater.serve.main", "run", "x y"])
    monkeypatch.setattr("headwater.testbed.ground.probe", lambda: USER)
    monkeypatch.setattr("headwater.testbed.private.program", lambda name: f"/bin/{name}")
    way = way_in()
    assert way[:5] == ("/bin/unshare", "--user", "--map-root-user", "--net", "--mount")
    assert way[-5:] == (sys.executable, "-m", "headwater.serve.main", "run", "x y")
    assert private.join_words(7, ("true",))[-2:] == ("--wd=.", "true")
    monkeypatch.setattr("headwater.testbed.ground.probe", lambda: GROUND)
    assert way_in() == ()


@pytest.mark.parametrize("ground", [replace(USER, has_user_namespaces=False), replace(USER, is_private=True)])
def test_where_there_is_no_way_in_it_is_told_what_is_missing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.testbed.ground.probe", lambda: ground)
    with pytest.raises(BindError, match=r"HW4901 this machine cannot .*user_namespaces.*without --emulate .*loopback"):
        way_in()


def test_a_process_is_in_private_namespaces_only_if_it_is_root_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert private.is_private({private.MARK: "1"})
    assert not private.is_private({})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not private.is_private({private.MARK: "1"})


def test_a_machine_that_cannot_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.testbed.bed.probe", lambda: USER)
    with pytest.raises(BindError, match=r"HW4901 a testbed that stays takes root.*as root.*run --emulate"):
        Bed("city", CHAIN).up()
    monkeypatch.setattr("headwater.testbed.bed.probe", lambda: replace(USER, has_user_namespaces=False))
    with pytest.raises(BindError, match=r"HW4901 .*not root.*Run as root.*loopback"):
        Bed("city", CHAIN).up()


def test_links_by_packets_lie_between_the_sites_and_ask_nobody_who_is_there() -> None:
    layout = lay_out("city", CHAIN, 0)
    commands = network.root_commands(layout, "packet")
    between = layout.between
    assert between not in map(layout.namespace, layout.sites)
    assert network.namespace_pattern("city").fullmatch(between)
    assert f"netns add {between}" in commands
    assert f"link add name l0a netns {between} type veth peer name l0 netns hw-city-0" in commands
    assert f"link add name l0b netns {between} type veth peer name l0 netns hw-city-1" in commands
    ends = [network.site_commands(layout, site, None, "packet") for site in layout.sites[:2]]
    told = [next(line for line in one if line.startswith("link set dev l0 ")) for one in ends]
    assert told[0] == told[1]  # the same hardware address, too
    assert " arp off " in told[0]
    assert not any(" arp off " in line for line in network.site_commands(layout, layout.sites[0], None, "tun"))
    assert not any("l0" in line for line in network.root_commands(layout, "tun"))


def test_only_a_fast_link_gets_trains_of_segments() -> None:
    wire = lay_out("city", CHAIN, 0).wires[0]
    assert network.train_command(wire, 49e6).endswith("gso_max_segs 1")
    assert network.train_command(wire, 50e6).endswith("gso_max_segs 65535")


def test_the_doctor_tells_the_tier_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.testbed.ground.probe", lambda: USER)
    found = next(one for one in doctor.checks({"PATH": ""}) if one.name == "testbed")
    assert (found.found, found.ok, found.needed) == ("user namespaces", True, False)
    assert "not root" in found.how
    monkeypatch.setattr("headwater.testbed.ground.probe", lambda: replace(USER, has_user_namespaces=False))
    found = next(one for one in doctor.checks({"PATH": ""}) if one.name == "testbed")
    assert (found.found, found.ok, found.needed) == ("loopback", False, False)


def test_an_emulated_run_fetches_before_it_goes_where_there_is_no_internet(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []

    def become(words: tuple[str, ...]) -> None:
        done.append(words)
        raise InterruptedError

    monkeypatch.setattr(run, "way_in", lambda: ("in",))
    monkeypatch.setattr(run, "fetched_jars", lambda: done.append("jars"))
    monkeypatch.setattr(run, "made_archives", lambda jars: done.append("archives"))
    monkeypatch.setattr(run, "become", become)
    options = run.Options("p", "s", None, Search(), None, None, {}, is_emulated=True)
    with pytest.raises(InterruptedError):
        run.run(options, Screen(True))
    assert done == ["jars", "archives", ("in",)]
