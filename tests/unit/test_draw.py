"""The picture of a placement: everything is in it, nothing covers anything, and it is always the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cost.score import Bounds, Score
from headwater.errors import SpecError
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites
from headwater.serve.draw import draw
from headwater.serve.layout import arrange
from headwater.serve.scene import LABEL_PT, Box, Line, compose, line_label

BOUNDS = Bounds(rt_min_s=0.01, rt_max_s=1.2, rf_max=3, bw_max_bps=4e8)
CRITICAL = "#c8102e"
TEXT = "{http://www.w3.org/2000/svg}text"


def operator(name: str, *inputs: str, is_sink: bool = False) -> Operator:
    streams = tuple(Stream(source, name) for source in inputs)
    return Operator(name, streams, is_source=not inputs, is_sink=is_sink)


def fire() -> Pipeline:
    parts = []
    for area in ("tree", "location"):
        parts += [
            operator(f"{area}-source"),
            operator(f"{area}-split", f"{area}-source"),
            operator(f"{area}-temp", f"{area}-split"),
            operator(f"{area}-image", f"{area}-split"),
            operator(f"{area}-filter", f"{area}-image"),
        ]
    monitor = operator("temp-monitor", "tree-temp", "location-temp", is_sink=True)
    detect = operator("fire-detect", "tree-filter", "location-filter")
    return Pipeline("fire", (*parts, monitor, detect, operator("alert-monitor", "fire-detect", is_sink=True)))


def flat() -> Sites:
    """One data centre and two edge clouds of several machines."""
    sites = [Site("dc-switch", slots=0), Site("dc-1", "root", 3, 4, 4.0), Site("dc-2", "root", 3, 4, 4.0)]
    links = [Link("dc-switch", "dc-1", 0.0003, 1e9), Link("dc-switch", "dc-2", 0.0003, 1e9)]
    for cloud in "ab":
        sites += [Site(f"edge-{cloud}", slots=0), Site(f"edge-{cloud}-big", "middle", 2, 2, 2.0)]
        links += [
            Link(f"edge-{cloud}", "dc-switch", 0.08, 1e8),
            Link(f"edge-{cloud}-big", f"edge-{cloud}", 0.0003, 1e9),
        ]
        for number in (1, 2, 3):
            sites.append(Site(f"pi-{cloud}{number}", "leaf", 1, 2, cores=1.0))
            links.append(Link(f"pi-{cloud}{number}", f"edge-{cloud}", 0.0003, 1e9))
    return Sites(tuple(sites), tuple(links))


def spread() -> dict[str, str]:
    placement = {"temp-monitor": "dc-1", "fire-detect": "dc-1", "alert-monitor": "dc-1"}
    for area, cloud in (("tree", "a"), ("location", "b")):
        placement |= {f"{area}-source": f"pi-{cloud}1", f"{area}-split": f"pi-{cloud}1", f"{area}-temp": f"pi-{cloud}2"}
        placement |= {f"{area}-image": f"edge-{cloud}-big", f"{area}-filter": f"edge-{cloud}-big"}
    return placement


LOADS = {("edge-a", "dc-switch"): 24e6, ("edge-b", "dc-switch"): 130e6, ("dc-switch", "dc-1"): 154e6}
PATH = ("tree-source", "tree-split", "tree-image", "tree-filter", "fire-detect", "alert-monitor")
GOOD = Score(valid=True, bounds=BOUNDS, f=0.0145, rt_s=0.1142, rf=0, bw_bps=30e6, critical_path=PATH)
CHAIN = Pipeline("chain", (operator("read"), operator("work", "read"), operator("write", "work", is_sink=True)))


def path_of(count: int) -> Sites:
    sites = tuple(Site(f"s{number}", "root" if number == 0 else "middle", 1, 4) for number in range(count))
    return Sites(sites, tuple(Link(f"s{n}", f"s{n + 1}", 0.001, 1e8) for n in range(count - 1)))


def picture(
    path: Path,
    pipeline: Pipeline,
    sites: Sites,
    placement: Mapping[str, str],
    score: Score | None = GOOD,
    loads_bps: Mapping[tuple[str, str], float] | None = None,
    title: str = "a title",
) -> bytes:
    draw(pipeline, sites, placement, score, loads_bps or {}, path, title)
    return path.read_bytes()


def texts(content: bytes) -> list[str]:
    return ["".join(element.itertext()) for element in ElementTree.fromstring(content).iter(TEXT)]


def test_svg_shows_every_site_operator_link_and_figure_as_text(tmp_path: Path) -> None:
    content = picture(tmp_path / "fire.svg", fire(), flat(), spread(), loads_bps=LOADS, title="fire on flat")
    shown = texts(content)
    assert {site.name for site in flat().sites} <= set(shown)
    assert {each.name for each in fire().operators} <= set(shown)
    assert {"fire on flat", "80 ms", "24 of 100 Mbit/s", "130 of 100 Mbit/s", "root \u00b7 3/4 slots"} <= set(shown)
    assert "F = 0.0145     RT = 114.2 ms     BW = 30 Mbit/s     RF = 0" in shown
    assert "critical path" in shown
    assert CRITICAL.encode() in content


def test_png_is_written_by_suffix(tmp_path: Path) -> None:
    content = picture(tmp_path / "fire.PNG", fire(), flat(), spread(), loads_bps=LOADS)
    assert content.startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("name", ["fire.jpg", "fire", "fire.svg.txt"])
def test_other_kinds_of_file_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError) as caught:
        picture(tmp_path / name, fire(), flat(), {})
    assert [mistake.code for mistake in caught.value.mistakes] == ["HW1201"]
    assert not (tmp_path / name).exists()


def test_a_network_without_sites_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        picture(tmp_path / "none.svg", fire(), Sites((), ()), {})
    assert [mistake.code for mistake in caught.value.mistakes] == ["HW1202"]


def test_same_input_gives_the_same_svg_in_every_process(tmp_path: Path) -> None:
    first = picture(tmp_path / "first.svg", fire(), flat(), spread(), loads_bps=LOADS)
    assert first == picture(tmp_path / "second.svg", fire(), flat(), spread(), loads_bps=LOADS)
    program = f"""
import sys; sys.path[:0] = [{str(Path(__file__).parents[2])!r}]
from pathlib import Path
from tests.unit.test_draw import *
picture(Path({str(tmp_path)!r}) / "third.svg", fire(), flat(), spread(), loads_bps=LOADS)
"""
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=120)
    assert first == (tmp_path / "third.svg").read_bytes()


NAMES = [
    "<script>alert(1)</script>",
    "$x_1$",
    r"$\frac{1}",
    "a&amp;b",
    "\u5206\u6790",
    "100%",
    "tab\there",
    "bell\x07",
    "n" * 80,
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_names_are_shown_literally(tmp_path: Path, name: str, suffix: str) -> None:
    pipeline = Pipeline(name, (operator(name), operator("end", name, is_sink=True)))
    sites = Sites((Site(f"{name}!", "leaf"), Site("dc", "root", 3)), (Link(f"{name}!", "dc", 0.08, 1e8),))
    score = Score(valid=False, bounds=BOUNDS, reasons=(name,))
    content = picture(tmp_path / f"x.{suffix}", pipeline, sites, {name: f"{name}!", "end": "dc"}, score, title=name)
    if suffix == "svg" and name.isprintable() and len(name) <= 30:
        assert {name, f"{name}!", f"Not valid: {name}"} <= set(texts(content))


def test_a_placement_that_is_not_valid_has_reasons_and_no_critical_path(tmp_path: Path) -> None:
    reasons = ("operator 'read' has no site", "second", "third", "fourth", "fifth")
    score = Score(valid=False, bounds=BOUNDS, critical_path=("read", "work"), reasons=reasons)
    content = picture(tmp_path / "bad.svg", CHAIN, path_of(3), {"read": "nowhere", "work": "s1", "write": "s2"}, score)
    shown = " ".join(texts(content))
    assert "Not valid: operator 'read' has no site; second; third (and 2 more)" in shown
    assert "Not placed: read." in shown
    assert "critical path" not in shown
    assert CRITICAL.encode() not in content


def test_overloaded_and_overfull_sites_are_marked(tmp_path: Path) -> None:
    score = Score(valid=True, bounds=BOUNDS, load_cores={"pi-a1": 2.5}, overloaded=("pi-a1",))
    shown = texts(picture(tmp_path / "over.svg", fire(), flat(), spread(), score))
    assert "leaf \u00b7 2/2 slots \u00b7 2.5/1 cores" in shown


@pytest.mark.parametrize("count", [1, 2, 40])
def test_an_empty_placement_shows_the_network_alone(tmp_path: Path, count: int) -> None:
    shown = texts(picture(tmp_path / "net.svg", CHAIN, path_of(count), {}, None))
    assert {f"s{number}" for number in range(count)} <= set(shown)
    assert "The network alone: no operator is placed." in shown


def test_a_large_network_alone_is_dots_with_named_roots(tmp_path: Path) -> None:
    shown = texts(picture(tmp_path / "net.svg", CHAIN, path_of(300), {}, None))
    assert "s0" in shown
    assert "s7" not in shown
    assert any(text.startswith("300 sites and 299 links") for text in shown)


def test_of_a_large_network_only_what_carries_something_is_shown(tmp_path: Path) -> None:
    loads = {(f"s{number + 1}", f"s{number}"): 24e6 for number in range(20)}
    placement = {"read": "s20", "work": "s12", "write": "s0"}
    shown = texts(picture(tmp_path / "large.svg", CHAIN, path_of(750), placement, GOOD, loads))
    assert {"s20", "s12", "s0"} <= set(shown)
    assert "s5" not in shown
    assert {"7 sites, 8 ms", "11 sites, 12 ms", "24 of 100 Mbit/s"} <= set(shown)
    assert "747 of 750 sites are hidden: no operator runs there." in shown


def test_a_hundred_operators_fit_on_one_site(tmp_path: Path) -> None:
    steps = [operator("op-0"), *(operator(f"op-{number}", f"op-{number - 1}") for number in range(1, 100))]
    pipeline = Pipeline("many", tuple(steps))
    shown = texts(picture(tmp_path / "many.svg", pipeline, path_of(2), {step.name: "s1" for step in steps}))
    assert {step.name for step in steps} <= set(shown)


def test_settings_of_the_user_neither_matter_nor_change(tmp_path: Path) -> None:
    import matplotlib as mpl

    wanted = picture(tmp_path / "one.svg", CHAIN, path_of(2), {})
    with mpl.rc_context({"text.usetex": True, "font.size": 40, "svg.fonttype": "path", "axes.xmargin": 0.4}):
        assert picture(tmp_path / "two.svg", CHAIN, path_of(2), {}) == wanted
        assert mpl.rcParams["font.size"] == 40
        assert mpl.rcParams["text.usetex"]


def test_matplotlib_waits_until_something_is_drawn() -> None:
    program = "import sys, headwater.serve.draw; assert not {'matplotlib', 'numpy', 'networkx'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def width_of(text: str, size_pt: float, bold: bool) -> float:
    """A rough measure, so that layouts are tested without matplotlib."""
    return len(text) * size_pt * (0.66 if bold else 0.6) / 72


def arranged(pipeline: Pipeline, sites: Sites, placement: Mapping[str, str]) -> tuple[list[Box], tuple[Line, ...]]:
    boxes, lines = compose(pipeline, sites, placement, {}, measure=width_of, remarks={})
    streams = [(stream.source, stream.target) for stream in pipeline.streams]
    layout = arrange(boxes, lines, streams, width_of)
    for box in layout.boxes.values():
        assert layout.left - 1e-9 <= box.left < box.right <= layout.left + layout.width + 1e-9
        assert layout.bottom - 1e-9 <= box.bottom < box.top <= layout.bottom + layout.height + 1e-9
    return list(layout.boxes.values()), layout.lines


def apart(one: tuple[float, float, float, float], two: tuple[float, float, float, float]) -> bool:
    """Tell whether two rectangles, by centre and size, share nothing."""
    return abs(one[0] - two[0]) >= (one[2] + two[2]) / 2 - 1e-9 or abs(one[1] - two[1]) >= (one[3] + two[3]) / 2 - 1e-9


def assert_nothing_overlaps(boxes: list[Box]) -> None:
    assert all(apart((a.x, a.y, a.width, a.height), (b.x, b.y, b.width, b.height)) for a, b in combinations(boxes, 2))
    for box in boxes:
        for chip in box.chips:
            assert abs(chip.x - box.x) <= (box.width - chip.width) / 2 + 1e-9
            assert abs(chip.y - box.y) <= (box.height - chip.height) / 2 + 1e-9
        chips = [(chip.x, chip.y, chip.width, chip.height) for chip in box.chips]
        assert all(apart(one, two) for one, two in combinations(chips, 2))


def test_no_box_chip_or_label_of_the_fire_picture_covers_another() -> None:
    boxes, lines = arranged(fire(), flat(), spread())
    assert_nothing_overlaps(boxes)
    labels = []
    for line in lines:
        assert line.label_at is not None
        labels.append(
            (*line.label_at, max(width_of(row, LABEL_PT, False) for row in line_label(line)), 2 * LABEL_PT / 72)
        )
    solid = [(box.x, box.y, box.width, box.height) for box in boxes]
    assert all(apart(label, box) for label in labels for box in solid)
    assert all(apart(one, two) for one, two in combinations(labels, 2))


def test_rows_follow_the_hops_to_the_nearest_root() -> None:
    tops = {box.site.name: box.top for box in arranged(CHAIN, path_of(6), {})[0]}
    assert all(tops[one] > tops[two] for one, two in pairwise(f"s{number}" for number in range(6)))


@st.composite
def networks(draw_from: st.DrawFn) -> Sites:
    count = draw_from(st.integers(1, 30))
    pairs = {(draw_from(st.integers(0, number - 1)), number) for number in range(1, count)}
    pairs |= draw_from(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20))
    kinds = draw_from(st.lists(st.sampled_from(["leaf", "middle", "root"]), min_size=count, max_size=count))
    sites = tuple(Site(f"site-{number}", kind, 1 + number % 3) for number, kind in enumerate(kinds))
    links = {(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]}
    return Sites(sites, tuple(Link(f"site-{a}", f"site-{b}", 0.001, 1e8) for a, b in sorted(links)))


@settings(deadline=None, max_examples=20)
@given(networks(), st.randoms(use_true_random=False))
def test_on_any_network_boxes_stand_apart_and_lines_join_them(sites: Sites, chance: object) -> None:
    names = [site.name for site in sites.sites]
    placement = {each.name: chance.choice(names) for each in fire().operators}  # type: ignore[attr-defined]
    boxes, lines = arranged(fire(), sites, placement)
    assert_nothing_overlaps(boxes)
    assert {box.site.name for box in boxes} == set(names)
    by_name = {box.site.name: box for box in boxes}
    assert [(line.a, line.b) for line in lines] == [(link.a, link.b) for link in sites.links]
    for line in lines:
        for x, y in (line.points[0], line.points[-1]):
            assert any(
                box.left - 1e-6 <= x <= box.right + 1e-6 and box.bottom - 1e-6 <= y <= box.top + 1e-6
                for box in (by_name[line.a], by_name[line.b])
            )
