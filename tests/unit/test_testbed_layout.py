"""What a testbed looks like before anything is made: names, addresses, routes, commands, limits, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.bind.box import Box
from headwater.bind.cgroup import Group, Hierarchy, find
from headwater.errors import BindError, SpecError
from headwater.model.routes import Routes
from headwater.model.sites import Link, Site, Sites
from headwater.testbed import network
from headwater.testbed.bed import Bed, quotas
from headwater.testbed.calibrate import is_delay_off, is_rate_off
from headwater.testbed.link_process import LEAST_QUEUE_BYTES, Direction, queue_limit
from headwater.testbed.network import LinkState, lay_out, netem_command, netem_counts, next_hops

MS = 1e-3


def network_of(*links: tuple[str, str, float], more: str = "") -> Sites:
    names = sorted({name for a, b, _ in links for name in (a, b)} | set(more))
    return Sites(tuple(Site(name) for name in names), tuple(Link(a, b, s, 1e7) for a, b, s in links))


CHAIN = network_of(("cloud", "hub", 40 * MS), ("hub", "pi", 10 * MS))


def test_every_site_has_a_namespace_and_addresses_of_its_own() -> None:
    layout = lay_out("city", CHAIN, 7)
    assert [layout.namespace(site) for site in layout.sites] == ["hw-city-0", "hw-city-1", "hw-city-2"]
    assert [layout.address(site) for site in layout.sites] == ["10.78.0.1", "10.78.0.2", "10.78.0.3"]
    assert [layout.manage(site) for site in layout.sites] == ["10.79.7.2", "10.79.7.3", "10.79.7.4"]
    assert layout.gateway == "10.79.7.1"
    assert layout.group("pi") == "headwater/city/2"


def test_names_and_addresses_fit_the_largest_bed() -> None:
    names = [f"site {number}" for number in range(network.MOST_SITES)]
    sites = Sites(tuple(map(Site, names)), tuple(Link(names[0], name, MS, 1e6) for name in names[1:]))
    layout = lay_out("a" * 20, sites, 255)
    for one in (layout.namespace, layout.address, layout.manage, layout.port):
        assert len({one(name) for name in names}) == len(names)
    assert max(len(layout.port(name)) for name in names) <= 15  # the longest name of a device
    ends = [address for wire in layout.wires for address in wire.addresses]
    assert len(set(ends)) == 2 * len(layout.wires)
    for address in (*ends, *map(layout.address, names), *map(layout.manage, names)):
        assert all(0 <= int(part) <= 255 for part in address.split("."))
        assert 0 < int(address.split(".")[3]) < 255 or address.startswith("10.78.")


def test_a_bed_with_too_many_sites_is_refused() -> None:
    sites = Sites(tuple(Site(str(number)) for number in range(network.MOST_SITES + 1)), ())
    with pytest.raises(SpecError, match=r"HW1903 .*at most 250 sites, and 251"):
        Bed("large", sites)


@pytest.mark.parametrize("name", ["", "A", "../x", "a/b", "a b", "-a", "a" * 21, "ä", "1a", "a\n", "a;b", "a.b"])
def test_a_name_that_could_be_anything_else_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="HW1901"):
        Bed(name, CHAIN)
    with pytest.raises(SpecError, match="HW1901"):
        Bed.found(name)


def test_names_of_sites_never_reach_a_command() -> None:
    evil = "x; rm -rf / \n ../.."
    layout = lay_out("city", network_of((evil, "hub", MS)), 0)
    commands = [*network.root_commands(layout, "netem"), *network.site_commands(layout, "hub", "cubic", "netem")]
    commands += [netem_command(layout.wires[0], LinkState(MS, 1e6)), network.hosts_file(layout, "hub", "box")]
    assert not [command for command in commands if "rm" in command]


def test_packets_go_to_the_next_site_on_the_way() -> None:
    hops = next_hops(CHAIN)
    assert hops["pi"] == {"hub": "hub", "cloud": "hub"}
    assert hops["hub"] == {"pi": "pi", "cloud": "cloud"}


def test_a_detour_with_less_latency_is_taken() -> None:
    hops = next_hops(network_of(("a", "b", 9 * MS), ("a", "c", 2 * MS), ("c", "b", 2 * MS)))
    assert hops["a"]["b"] == hops["b"]["a"] == "c"


def test_a_site_that_no_link_leads_to_has_no_next_hop() -> None:
    assert next_hops(network_of(("a", "b", MS), more="c")) == {"a": {"b": "b"}, "b": {"a": "a"}, "c": {}}


@given(st.data())
def test_next_hops_are_the_first_links_of_the_routes_of_the_model(data: st.DataObject) -> None:
    names = "abcdef"
    pairs = [(a, b) for a in names for b in names if a < b]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    sites = network_of(*((a, b, data.draw(st.integers(1, 3)) * MS) for a, b in chosen), more=names)
    routes, hops = Routes(sites), next_hops(sites)
    for a in names:
        for b in names:
            codes = routes.between(routes.vertex[a], routes.vertex[b])
            first = routes.names[routes.towards[codes[0]]] if codes else None
            assert hops[a].get(b) == first


@given(st.data())
def test_packets_that_follow_the_next_hops_arrive(data: st.DataObject) -> None:
    names = "abcdef"
    pairs = [(a, b) for a in names for b in names if a < b]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1))
    hops = next_hops(network_of(*((a, b, data.draw(st.integers(0, 2)) * MS) for a, b in chosen)))
    for origin, targets in hops.items():
        for target in targets:
            at, links = origin, 0
            while at != target:
                at, links = hops[at][target], links + 1
                assert links < len(names)


def test_a_site_reaches_neighbours_directly_and_others_over_them() -> None:
    commands = network.site_commands(lay_out("city", CHAIN, 3), "pi", "cubic", "tun")
    assert "addr add 10.78.0.3/32 dev lo" in commands
    assert "link set dev l1 txqueuelen 2000 up" in commands
    assert "route replace 10.78.0.2/32 dev l1 src 10.78.0.3 congctl cubic" in commands
    assert "route replace 10.78.0.1/32 via 10.78.0.2 dev l1 onlink src 10.78.0.3 congctl cubic" in commands
    assert "route add 10.79.3.1/32 dev manage src 10.79.3.4" in commands
    plain = network.site_commands(lay_out("city", CHAIN, 3), "pi", None, "tun")
    assert not [command for command in plain if "congctl" in command]


def test_the_management_network_joins_no_two_sites() -> None:
    layout = lay_out("city", CHAIN, 3)
    commands = network.root_commands(layout, "tun")
    isolated = [command for command in commands if command.endswith("isolated on")]
    assert isolated == [f"link set dev {layout.port(site)} type bridge_slave isolated on" for site in layout.sites]
    assert not [command for command in commands if "l0" in command]


def test_two_beds_share_no_name() -> None:
    first, second = lay_out("a", CHAIN, 0), lay_out("a-1", CHAIN, 1)
    assert not {*network.root_commands(first, "tun")} & {*network.root_commands(second, "tun")}
    assert not network.namespace_pattern("a").fullmatch(second.namespace("pi"))


def test_the_hosts_file_names_every_site_that_can_be_a_host() -> None:
    sites = network_of(("cloud", "pi 1", MS), ("cloud", "pi-2", MS), ("cloud", "bad\n1.2.3.4 evil", MS))
    layout = lay_out("city", sites, 0)
    lines = network.hosts_file(layout, "pi-2", "box").splitlines()
    assert lines == ["127.0.0.1 localhost", "10.78.0.4 box", "10.78.0.2 cloud", "10.78.0.4 pi-2"]
    assert "10.78.0.4 cloud" not in network.hosts_file(layout, "pi-2", "cloud").splitlines()


def test_netem_is_told_delay_rate_loss_and_a_queue_that_holds_what_is_under_way() -> None:
    wire = lay_out("city", CHAIN, 0).wires[0]
    state = LinkState(0.04, 100e6, loss=0.015)
    assert netem_command(wire, state) == (
        "qdisc replace dev l0 root netem limit 1000 delay 40000us rate 100000000bit loss 1.500000%"
    )
    assert netem_command(wire, replace(state, is_cut=True)).endswith("loss 100.000000%")
    assert "link add name l0 netns hw-city-0 type veth peer name l0 netns hw-city-1" in network.root_commands(
        lay_out("city", CHAIN, 0), "netem"
    )


def test_what_netem_has_done_is_read() -> None:
    shown = [{"kind": "netem", "bytes": 12, "packets": 3, "drops": 2, "backlog": 9, "qlen": 1}]
    assert netem_counts(json.dumps(shown)) == {
        "packets": 3, "bytes": 12, "dropped": 2, "backlog_bytes": 9, "late": None,
        "greatest_lateness_s": None,
    }  # fmt: skip


def test_a_packet_comes_out_after_sending_and_latency() -> None:
    way = Direction(0.010, 8e6, seed=1)  # a byte in a microsecond
    way.offer(b"one", 1000, 5.0)
    way.offer(b"two", 1000, 5.0)
    assert way.due_s == pytest.approx(5.011)
    assert way.take(5.0109) is None
    assert way.take(5.0111) == b"one"
    assert way.due_s == pytest.approx(5.012)
    assert way.take(5.030) == b"two"
    stats = way.stats(5.030, fresh=True)
    assert (stats["packets"], stats["bytes"], stats["dropped"]) == (2, 2000, 0)
    assert stats["greatest_lateness_s"] == pytest.approx(0.018)
    assert stats["late"] == 1
    assert way.stats(5.030, fresh=False)["greatest_lateness_s"] == 0


def test_a_machine_that_looks_late_makes_a_link_neither_slower_nor_shorter() -> None:
    way = Direction(0.010, 8e6, seed=1)
    for _ in range(3):
        way.offer(b"", 1000, 0.005, late_s=0.0025)
    dues = []
    while way.due_s is not None:
        dues.append(way.due_s)
        way.take(way.due_s)
    assert dues == pytest.approx([0.015, 0.015, 0.0155])  # sent since 0.0025, under way since 0.005


def test_a_full_queue_drops_the_last() -> None:
    way = Direction(0.0, 8e6, seed=1)
    way.set(0.0, queue_bytes=2500)
    for name in (b"1", b"2", b"3"):
        way.offer(name, 1000, 0.0)
    assert way.dropped == 1
    assert way.stats(0.0, False)["backlog_bytes"] == 2000
    way.offer(b"4", 1000, 0.001)  # one has been sent meanwhile
    assert way.dropped == 1


def test_a_train_of_segments_counts_as_all_of_them() -> None:
    way = Direction(0.0, 8e6, seed=1)
    way.set(0.0, queue_bytes=2500)
    way.offer(b"train", 2000, 0.0, segments=3)
    way.offer(b"another", 2000, 0.0, segments=4)  # does not fit any more
    assert way.dropped == 4
    assert way.take(1.0) == b"train"
    assert way.packets == 3
    way.offer(b"third", 1000, 1.0, segments=2)
    way.set(1.0, is_cut=True)
    assert way.dropped == 6


def test_the_queue_limit_follows_the_link_and_never_becomes_tiny() -> None:
    way = Direction(0.04, 100e6, seed=1)
    assert way.stats(0.0, False)["limit_bytes"] == queue_limit(0.04, 100e6) == 1e6
    way.set(0.0, bandwidth_bps=10e6)
    assert way.stats(0.0, False)["limit_bytes"] == 1e5
    way.set(0.0, latency_s=0.0)
    assert way.stats(0.0, False)["limit_bytes"] == LEAST_QUEUE_BYTES


def test_a_change_of_bandwidth_holds_for_what_waits_and_not_for_what_is_under_way() -> None:
    way = Direction(1.0, 8e3, seed=1)  # 1000 bytes in a second
    for name in (b"1", b"2", b"3"):
        way.offer(name, 1000, 0.0)
    way.set(1.5, bandwidth_bps=8e6)  # the first is under way, half of the second is sent
    assert way.take(1.9) is None
    assert way.take(2.0) == b"1"
    assert way.due_s == pytest.approx(1.5 + 0.0005 + 1.0)
    assert way.take(2.51) == b"2"
    assert way.due_s == pytest.approx(1.5 + 0.0005 + 0.001 + 1.0)


def test_order_is_kept_when_latency_falls() -> None:
    way = Direction(1.0, 8e9, seed=1)
    way.offer(b"1", 100, 0.0)
    way.set(0.1, latency_s=0.01)
    way.offer(b"2", 100, 0.1)
    way.set(0.2, latency_s=0.02)
    assert way.take(0.9) is None
    assert [way.take(1.01), way.take(1.01), way.take(1.01)] == [b"1", b"2", None]


def test_a_cut_drops_what_is_under_way_and_all_that_comes() -> None:
    way = Direction(1.0, 8e6, seed=1)
    way.offer(b"1", 100, 0.0)
    way.set(0.5, is_cut=True)
    way.offer(b"2", 100, 0.6)
    assert (way.due_s, way.dropped) == (None, 2)
    way.set(0.7, is_cut=False)
    way.offer(b"3", 100, 0.7)
    assert way.take(2.0) == b"3"


def test_loss_is_a_matter_of_the_seed() -> None:
    def lost(seed: int) -> list[int]:
        way = Direction(0.0, 8e9, seed)
        way.set(0.0, loss=0.1)
        found = []
        for number in range(5000):
            before = way.dropped
            way.offer(b"", 100, float(number))
            found += [number] if way.dropped > before else []
        return found

    assert lost(1) == lost(1) != lost(2)
    assert 400 < len(lost(1)) < 600


def test_a_setting_that_no_link_has_is_refused() -> None:
    with pytest.raises(ValueError, match="'colour' is none of latency_s"):
        Direction(0.0, 1.0, 1).set(0.0, colour=1)


def test_the_strongest_site_gets_the_machine_and_the_ratios_stay() -> None:
    sites = Sites((Site("big", cores=8, speed=2.0), Site("small", cores=2), Site("any")), ())
    assert quotas(sites, 4.0) == {"big": 4.0, "small": 0.5, "any": None}
    assert quotas(sites, 4.0, scale=10.0)["big"] == 4.0, "there is no more"
    assert quotas(sites, 4.0, scale=0.1) == {"big": 1.6, "small": 0.2, "any": None}
    assert quotas(Sites((Site("any"),), ()), 4.0) == {"any": None}


def test_a_measured_link_is_off_beyond_the_slack() -> None:
    assert not is_delay_off(0.0, 0.0019)
    assert is_delay_off(0.02, 0.019)
    assert not is_rate_off(1e6, 0.951e6)
    assert is_rate_off(1e6, 0.949e6)
    assert is_rate_off(1e6, 1.051e6)
    assert is_rate_off(1e6, None)


def test_a_box_is_the_machine_itself_unless_told_otherwise() -> None:
    assert Box() == Box((), "127.0.0.1", "127.0.0.1", False)


def test_version_2_is_found(second: Hierarchy, tmp_path: Path) -> None:
    assert second == Hierarchy(2, tmp_path, tmp_path, tmp_path)
    (tmp_path / "cgroup.controllers").write_text("hugetlb\n")
    assert find(tmp_path) is None


def test_a_group_of_version_2_hands_controllers_down_and_takes_limits(second: Hierarchy, tmp_path: Path) -> None:
    group = Group(second, "headwater/city/0")
    group.make()
    for above in (tmp_path, tmp_path / "headwater", tmp_path / "headwater/city"):
        assert (above / "cgroup.subtree_control").read_text() == "+cpu +memory"
    folder = tmp_path / "headwater/city/0"
    assert not (folder / "cgroup.subtree_control").exists()  # processes and controllers below exclude each other
    group.set_cores(0.25)
    assert (folder / "cpu.max").read_text() == "5000 20000"
    group.set_cores(None)
    assert (folder / "cpu.max").read_text() == "max 100000"
    group.set_memory(1e9)
    assert (folder / "memory.max").read_text() == "1000000000"
    group.set_memory(None)
    assert (folder / "memory.max").read_text() == "max"
    assert group.procs_files == (folder / "cgroup.procs",)
    (folder / "cpu.stat").write_text("usage_usec 2500000\nnr_throttled 3\nthrottled_usec 40000\n")
    assert (group.used_s(), group.throttled_s()) == (2.5, 0.04)
    (folder / "cgroup.procs").write_text("12\n7\n")
    assert group.pids() == (7, 12)


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    for name in ("cpu", "cpuacct", "memory"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("")
    found = find(tmp_path)
    assert found == Hierarchy(1, tmp_path / "cpu", tmp_path / "cpuacct", tmp_path / "memory")
    group = Group(found, "headwater/city/0")
    group.make()
    assert [file.parent.parent.parent.parent.name for file in group.procs_files] == ["cpu", "cpuacct"]
    group.set_cores(0.5)
    assert (tmp_path / "cpu/headwater/city/0/cpu.cfs_quota_us").read_text() == "10000"
    assert (tmp_path / "cpu/headwater/city/0/cpu.cfs_period_us").read_text() == "20000"
    group.set_memory(5e6)
    assert (tmp_path / "memory/headwater/city/0/memory.limit_in_bytes").read_text() == "5000000"
    assert len(group.procs_files) == 3


@pytest.mark.parametrize("name", ["", "a/", "/a", "a//b", "../a", "a/..", "a b", "a\n", ".", "a/b.slice"])
def test_a_name_that_leads_elsewhere_is_no_group(second: Hierarchy, name: str) -> None:
    with pytest.raises(BindError, match="HW4801"):
        Group(second, name)


def test_limits_that_no_kernel_takes_are_refused(second: Hierarchy) -> None:
    group = Group(second, "headwater/city/0")
    group.make()
    with pytest.raises(BindError, match=r"HW4803 a limit of 0.0001 cores"):
        group.set_cores(0.0001)
    with pytest.raises(BindError, match="HW4803 a limit of 10 bytes"):
        group.set_memory(10)
    without = Group(replace(second, memory=None), "headwater/city/0")
    without.set_memory(None)
    with pytest.raises(BindError, match=r"HW4803 .*no control groups for memory"):
        without.set_memory(1e9)


def test_a_group_that_is_not_there_says_so(second: Hierarchy) -> None:
    with pytest.raises(BindError, match="HW4802 control group 'headwater/x' cannot tell what it used: No such file"):
        Group(second, "headwater/x").used_s()
