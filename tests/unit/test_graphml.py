"""A network map in GraphML becomes connected sites, with a note on everything that was assumed."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import SpecError
from headwater.model.graphml import MAX_BYTES, MAX_SITES, Equipment, ImportOptions, link_speed_bps, read_graphml
from headwater.model.sites import Sites

MAPS = Path(__file__).parents[2].parent / "shared" / "data" / "topologies"
NAMES = ["Aarnet", "Abilene", "BtEurope", "Cogentco", "Dfn", "Geant2012", "GtsCe", "Kdl", "Tinet", "UsCarrier"]
KEYS = """
  <key attr.name="label" attr.type="string" for="node" id="n0"/>
  <key attr.name="Latitude" attr.type="double" for="node" id="n1"/>
  <key attr.name="Longitude" attr.type="double" for="node" id="n2"/>
  <key attr.name="LinkLabel" attr.type="string" for="edge" id="e0"/>
  <key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="e1"/>
"""


def node(name: str, label: str = "", place: tuple[float, float] | None = None) -> str:
    data = f'<data key="n0">{label}</data>'
    if place is not None:
        data += f'<data key="n1">{place[0]}</data><data key="n2">{place[1]}</data>'
    return f'<node id="{name}">{data}</node>\n'


def edge(start: str, end: str, label: str = "", ident: str = "") -> str:
    data = f'<data key="e0">{label}</data>' if label else ""
    return f'<edge source="{start}" target="{end}"{ident}>{data}</edge>\n'


def graphml(*parts: str, default: str = "undirected", header: str = "", graph: str = "") -> bytes:
    space = ' xmlns="http://graphml.graphdrawing.org/xmlns"'
    body = f'<graph edgedefault="{default}">{"".join(parts)}</graph>{graph}'
    return f"{header}<graphml{space}>{KEYS}{body}</graphml>".encode()


def read(text: bytes, **options: object) -> tuple[Sites, tuple[str, ...]]:
    return read_graphml(text, "map.graphml", ImportOptions(**options))  # type: ignore[arg-type]


def path_of(count: int) -> bytes:
    edges = [edge(str(number), str(number + 1)) for number in range(count - 1)]
    return graphml(*(node(str(number), f"s{number}") for number in range(count)), *edges)


def codes(text: bytes, **options: object) -> list[tuple[str, int | None]]:
    with pytest.raises(SpecError) as caught:
        read(text, **options)
    assert all(mistake.file in {"map.graphml", None} for mistake in caught.value.mistakes)
    return [(mistake.code, mistake.line) for mistake in caught.value.mistakes]


def assert_sound(sites: Sites) -> None:
    """What `Sites` promises: own names, known ends, one link per pair, sane numbers, one connected part."""
    names = [site.name for site in sites.sites]
    assert len(set(names)) == len(names)
    assert all(name and not any(char.isspace() or not char.isprintable() for char in name) for name in names)
    pairs = {frozenset((link.a, link.b)) for link in sites.links}
    assert len(pairs) == len(sites.links)
    assert all(len(pair) == 2 and pair <= set(names) for pair in pairs)
    assert all(0 < link.latency_s < 1 and 0 < link.bandwidth_bps < math.inf for link in sites.links)
    reached, waiting = {names[0]}, [names[0]]
    while waiting:
        here = waiting.pop()
        found = {other for pair in pairs if here in pair for other in pair} - reached
        reached |= found
        waiting += found
    assert reached == set(names)
    assert any(site.kind == "root" for site in sites.sites)


@pytest.mark.parametrize("name", NAMES)
def test_every_topology_of_the_zoo_becomes_connected_sites(name: str) -> None:
    file = MAPS / f"{name}.graphml"
    if not file.exists():
        pytest.skip(f"{file} is absent: the shared data is not part of the repository")
    sites, notes = read_graphml(file.read_bytes(), file.name, ImportOptions())
    assert_sound(sites)
    assert any(site.kind == "leaf" for site in sites.sites)
    assert (sites, notes) == read_graphml(file.read_bytes(), file.name, ImportOptions())


def test_abilene_has_its_known_cities_and_carriers() -> None:
    file = MAPS / "Abilene.graphml"
    if not file.exists():
        pytest.skip(f"{file} is absent: the shared data is not part of the repository")
    sites, _ = read_graphml(file.read_bytes(), file.name, ImportOptions())
    assert (len(sites.sites), len(sites.links)) == (11, 14)
    assert sites.by_name["Kansas-City"].kind == "root"
    assert {link.bandwidth_bps for link in sites.links} == {192 * 51.84e6}


def test_names_are_labels_without_blanks_and_told_apart() -> None:
    labels = ["New York", "A", "A", "A-2", "", "  tab\t&#9;x ", "None", "tag:gpu", "zero\u200bwidth", "A"]
    nodes = [node(f"id {number}", label) for number, label in enumerate(labels)]
    edges = [edge("id 0", f"id {number}") for number in range(1, len(labels))]
    sites, notes = read(graphml(*nodes, *edges))
    wanted = ["New-York", "A", "A-3", "A-2", "id-4", "tab-x", "id-6", "tag-gpu", "zerowidth", "A-4"]
    assert [site.name for site in sites.sites] == wanted
    assert "2 nodes without a label: named by id" in notes
    assert "2 repeated labels: told apart by '-2', '-3' and so on" in notes


def test_latency_is_the_great_circle_at_the_speed_of_fibre() -> None:
    text = graphml(node("a", "a", (0, 0)), node("b", "b", (0, 90)), edge("a", "b"))
    quarter_km = 6371.0088 * math.pi / 2
    assert read(text)[0].links[0].latency_s == pytest.approx(quarter_km / 200_000)
    stretched, _ = read(text, route_factor=1.5, speed_km_s=100_000.0)
    assert stretched.links[0].latency_s == pytest.approx(3 * quarter_km / 200_000)


def test_latency_falls_back_to_the_minimum_and_the_default() -> None:
    near = node("a", "a", (50, 8)) + node("b", "b", (50, 8))
    nowhere = node("c", "c") + node("d", "d", (math.nan, 999))
    sites, notes = read(graphml(near, nowhere, edge("a", "b"), edge("b", "c"), edge("b", "d")))
    assert [link.latency_s for link in sites.links] == [0.0001, 0.005, 0.005]
    assert "2 nodes without coordinates: default latency of 5 ms used" in notes


def test_zero_latency_links_still_count_as_links() -> None:
    nodes = [node(name, name, (0, place)) for name, place in (("a", 0), ("b", 0), ("c", 10))]
    sites, _ = read(graphml(*nodes, edge("a", "b"), edge("b", "c")), min_latency_s=0.0)
    assert sites.links[0].latency_s == 0
    assert [site.kind for site in sites.sites] == ["root", "middle", "leaf"]  # 'a' and 'b' tie: by name


@pytest.mark.parametrize(
    ("data", "bps"),
    [
        ({"LinkSpeedRaw": 155e6, "LinkLabel": "10 Gbps"}, 155e6),
        ({"LinkSpeed": "2.5", "LinkSpeedUnits": "G"}, 2.5e9),
        ({"LinkSpeed": "155", "LinkSpeedUnits": "M", "LinkSpeedRaw": "?"}, 155e6),
        ({"LinkSpeed": "10", "LinkLabel": "STM-1"}, 155.52e6),
        ({"LinkSpeedRaw": 0.0, "LinkType": "OC-3"}, 155.52e6),
        ({"LinkLabel": "OC-12"}, 622.08e6),
        ({"LinkType": "OC48"}, 2488.32e6),
        ({"LinkLabel": "OC-192c"}, 9953.28e6),
        ({"LinkLabel": "OC-768"}, 39813.12e6),
        ({"LinkLabel": "STM-4"}, 622.08e6),
        ({"LinkLabel": "stm 16"}, 2488.32e6),
        ({"LinkLabel": "STM64"}, 9953.28e6),
        ({"LinkLabel": "E1"}, 2.048e6),
        ({"LinkLabel": "E3 leased"}, 34.368e6),
        ({"LinkLabel": "2xT1"}, 3.088e6),
        ({"LinkLabel": "T3"}, 44.736e6),
        ({"LinkNote": "DS-3"}, 44.736e6),
        ({"LinkLabel": "DS3"}, 44.736e6),
        ({"LinkLabel": "10 Gbps"}, 1e10),
        ({"LinkLabel": "< 10Gbps"}, 1e10),
        ({"LinkLabel": "100Mbps"}, 1e8),
        ({"LinkLabel": "34 Mbit/s"}, 34e6),
        ({"LinkLabel": "64 kbps"}, 64e3),
        ({"LinkLabel": "12 MB/s"}, 96e6),
        ({"LinkLabel": "2 x 10G"}, 2e10),
        ({"LinkLabel": "GigE"}, 1e9),
        ({"LinkLabel": "10GigE"}, 1e10),
        ({"LinkLabel": "10 Gigabit Ethernet"}, 1e10),
        ({"LinkLabel": "10GE"}, 1e10),
        ({"LinkType": "FastEthernet"}, 1e8),
        ({"LinkLabel": "Fast Ethernet"}, 1e8),
        ({"LinkLabel": "Lit Fibre", "LinkType": "Fibre", "LinkNote": "Lit "}, None),
        ({"LinkLabel": "GTS CE own Network, 10 km"}, None),
        ({"LinkSpeedRaw": math.inf}, None),
        ({}, None),
    ],
)
def test_link_speed_comes_from_what_the_edge_states(data: dict[str, object], bps: float | None) -> None:
    assert link_speed_bps(data) == (None if bps is None else pytest.approx(bps))


def test_parallel_edges_merge_and_loops_vanish() -> None:
    same = ' id="same"'
    edges = [edge("a", "b", "1 Gbps", same), edge("b", "a", "2 Gbps", same), edge("a", "b"), edge("a", "a", "1 Gbps")]
    sites, notes = read(graphml(node("a", "a"), node("b", "b"), *edges), default_bandwidth_bps=5e8)
    assert [(link.a, link.b, link.bandwidth_bps) for link in sites.links] == [("a", "b", 3.5e9)]
    assert "2 parallel edges merged: bandwidths summed, least latency kept" in notes
    assert "1 loop from a node to itself dropped" in notes
    assert "1 edge without a known speed: default of 500 Mbit/s used" in notes


def test_two_directions_of_a_directed_map_are_one_link() -> None:
    nodes = node("a", "a") + node("b", "b")
    edges = edge("a", "b", "1 Gbps") + edge("b", "a", "100 Mbps") + edge("a", "b", "1 Gbps")
    sites, _ = read(graphml(nodes, edges, default="directed"))
    assert [(link.a, link.b, link.bandwidth_bps) for link in sites.links] == [("a", "b", 1e8)]


def test_only_the_largest_part_is_kept() -> None:
    text = graphml(*(node(name, name) for name in "abcde"), edge("a", "b"), edge("c", "d"), edge("d", "e"))
    sites, notes = read(text)
    assert [site.name for site in sites.sites] == ["c", "d", "e"]
    assert "2 parts that no link joins: kept the largest, left out 2 sites" in notes
    assert codes(text, require_connected=True) == [("HW1107", None)]


def test_center_and_ends_become_root_and_leaves_with_their_equipment() -> None:
    sites, notes = read(path_of(5), leaf=Equipment(2, 7, 1.5))
    assert [site.kind for site in sites.sites] == ["leaf", "middle", "root", "middle", "leaf"]
    assert [(site.level, site.slots, site.speed) for site in sites.sites[:3]] == [
        (2, 7, 1.5),
        (2, 4, 2.0),
        (3, 64, 4.0),
    ]
    assert "root: 's2', the site with least total latency to all others" in notes
    assert "2 leaves: the sites with one link" in notes


def test_a_ring_still_has_a_leaf() -> None:
    ring = [edge(str(number), str((number + 1) % 4)) for number in range(4)]
    sites, notes = read(graphml(*(node(str(number), f"s{number}") for number in range(4)), *ring))
    assert [site.kind for site in sites.sites] == ["root", "middle", "leaf", "middle"]
    assert "leaf: 's2', as no site beside the roots has one link only" in notes


def test_roots_and_leaves_may_be_named_or_counted() -> None:
    named, _ = read(path_of(4), roots=("s0", "s3"), leaves=("s1",))
    assert [site.kind for site in named.sites] == ["root", "leaf", "middle", "root"]
    counted, _ = read(path_of(4), roots=("s0",), leaves=2)
    assert [site.kind for site in counted.sites] == ["root", "middle", "leaf", "leaf"]


def test_one_node_is_a_network() -> None:
    sites, notes = read(graphml(node("a", "a")))
    assert [site.kind for site in sites.sites] == ["root"]
    assert "no leaf: every site is a root" in notes


def test_other_writings_of_graphml_are_read() -> None:
    plain = b'<graphml><graph><node id="a"/><node id="b"/><edge source="a" target="b"/></graph></graphml>'
    assert [site.name for site in read(plain)[0].sites] == ["a", "b"]
    wide = graphml(node("a", "Z\u00fcrich"), header='<?xml version="1.0" encoding="utf-16"?>').decode().encode("utf-16")
    assert read(wide)[0].sites[0].name == "Z\u00fcrich"
    assert "2 graphs in the file: only the first was read" in read(graphml(node("a", "a"), graph="<graph/>"))[1]


BOMB = '<!DOCTYPE graphml [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>\n'
OUTSIDE = '<?xml version="1.0"?>\n<!DOCTYPE graphml [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n'
ILL_JOINED = b"""<graphml><graph>
<node/>
<node id="a"/><node id="a"/>
<edge source="b" target="a"/><edge source="a"/></graph></graphml>"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b"", [("HW1101", 1)]),
        (b"sites:\n  a: {}\n", [("HW1101", 1)]),
        (b"<graphml>\n<graph>\n</graphml>", [("HW1101", 3)]),
        (b"\xff\xfe\x00", [("HW1101", 1)]),
        (b'<?xml version="1.0" encoding="martian"?><graphml/>', [("HW1101", None)]),
        (graphml(node("a", "&b;"), header=BOMB), [("HW1102", 1)]),
        (graphml(node("a", "&x;"), header=OUTSIDE), [("HW1102", 2)]),
        ((OUTSIDE.replace('"1.0"', '"1.0" encoding="utf-16"') + "<graphml/>").encode("utf-16"), [("HW1102", 2)]),
        (b"<!DOCTYPE graphml><graphml/>", [("HW1102", 1)]),
        (b" " * (MAX_BYTES + 1), [("HW1103", None)]),
        (b"<graphml>" + b"<x>" * 200_000, [("HW1103", 1)]),
        (b"<svg/>", [("HW1104", 1)]),
        (graphml('<node id="a"><data key="nowhere">1</data></node>'), [("HW1104", None)]),
        (graphml('<node id="a"><data key="n1">north</data></node>'), [("HW1104", None)]),
        (graphml(node("a"), "<hyperedge/>"), [("HW1104", None)]),
        (graphml(), [("HW1105", None)]),
        (b"<graphml/>", [("HW1105", None)]),
        (ILL_JOINED, [("HW1106", 2), ("HW1106", 3), ("HW1106", 4), ("HW1106", 4)]),
    ],
    ids=lambda value: None if isinstance(value, bytes) else value[0][0],
)
def test_wrong_files_are_refused_with_code_and_line(text: bytes, wanted: list[tuple[str, int | None]]) -> None:
    assert codes(text) == wanted


def test_too_many_nodes_are_refused() -> None:
    assert codes(graphml(*(f'<node id="{number}"/>' for number in range(MAX_SITES + 1))))[0][0] == "HW1103"


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"speed_km_s": 0.0, "route_factor": math.nan, "min_latency_s": -1.0}, ["HW1108"] * 3),
        ({"leaf": Equipment(4, 1, 1.0), "root": Equipment(1, -1, 1.0), "middle": Equipment(1, 1, 0.0)}, ["HW1108"] * 3),
        ({"leaves": "some", "roots": "all"}, ["HW1108"] * 2),
        ({"leaves": 0, "roots": ()}, ["HW1108"] * 2),
        ({"leaves": -1}, ["HW1108"]),
        ({"leaves": 9}, ["HW1109"]),
        ({"roots": ("s9", "nowhere")}, ["HW1109"] * 2),
        ({"leaves": ("s1",), "roots": ("s1",)}, ["HW1109"]),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], wanted: list[str]) -> None:
    assert [code for code, _ in codes(path_of(3), **options)] == wanted


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30), st.lists(st.text(max_size=4), max_size=10)
)
def test_any_graph_with_any_labels_becomes_sound_sites(pairs: list[tuple[int, int]], labels: list[str]) -> None:
    allowed = ["".join(char for char in label if char.isprintable() and char not in "<&") for label in labels]
    nodes = [node(f"n{number}", label, (number, 2 * number)) for number, label in enumerate(allowed + [""] * 10)][:10]
    sites, _ = read(graphml(*nodes, *(edge(f"n{start}", f"n{end}") for start, end in pairs)))
    assert_sound(sites)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(noise: bytes) -> None:
    sample = graphml(node("a", "a"), node("b", "b"), edge("a", "b"))
    for text in (noise, sample[: len(noise)] + noise + sample[2 * len(noise) :], sample[:-40] + noise):
        with contextlib.suppress(SpecError):
            assert_sound(read(text)[0])
