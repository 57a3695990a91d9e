"""The files of docs/model.md become the model, and the model becomes files."""

from __future__ import annotations

import json
import time

import pytest
import yaml

from headwater.errors import SpecError
from headwater.model.files import (
    read_pipeline,
    read_placement,
    read_sites,
    write_pipeline,
    write_placement,
    write_sites,
)
from headwater.model.pipeline import Objective, Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites

SITES_TEXT = """\
sites:
  dc-1:   {kind: root, class: high,   slots: 4, speed: 4.0, cores: 8, memory: 16 GB, price: 0.40, tags: [gpu]}
  hub-a:  {kind: middle, slots: 0}            # slots 0: passes data on, runs nothing
  pi-1:   {kind: leaf, class: low,    slots: 2, speed: 1.0, cores: 4, memory: 4 GB}
links:
  - {between: [pi-1, hub-a], latency: 0.3 ms, bandwidth: 1 Gbit/s}
  - {between: [hub-a, dc-1], latency: 80 ms,  bandwidth: 100 Mbit/s}
"""
SITES = Sites(
    (
        Site("dc-1", "root", 3, 4, 4.0, 8.0, 16e9, 0.4, ("gpu",)),
        Site("hub-a", "middle", slots=0),
        Site("pi-1", "leaf", 1, 2, 1.0, 4.0, 4e9),
    ),
    (Link("pi-1", "hub-a", 0.0003, 1e9), Link("hub-a", "dc-1", 0.08, 100e6)),
)
PIPELINE_TEXT = """\
pipeline: fire
operators:
  tree-source: {source: true, rate: 100/s, size: 30 kB, at: [pi-1], work: 1 ms}
  tree-split:  {inputs: [tree-source], work: 2 ms}
  tree-temp:   {inputs: [{from: tree-split, size_factor: 0.01}], rate_factor: 0.5}
  tree-image:  {inputs: [tree-split], needs: medium, work: 20 ms, size_factor: 0.01}
  monitor:     {inputs: [tree-temp, tree-image], sink: true}
"""
PIPELINE = Pipeline(
    "fire",
    (
        Operator("tree-source", is_source=True, rate_rps=100.0, size_bytes=30_000.0, at=("pi-1",), work_s=0.001),
        Operator("tree-split", (Stream("tree-source", "tree-split"),), work_s=0.002),
        Operator("tree-temp", (Stream("tree-split", "tree-temp", size_factor=0.01),), rate_factor=0.5),
        Operator("tree-image", (Stream("tree-split", "tree-image"),), needs=2, work_s=0.02, size_factor=0.01),
        Operator("monitor", (Stream("tree-temp", "monitor"), Stream("tree-image", "monitor")), is_sink=True),
    ),
)


def as_json(text: str) -> bytes:
    return json.dumps(yaml.safe_load(text), indent=1).encode()


def test_a_sites_file_becomes_sites_in_base_units() -> None:
    assert read_sites(SITES_TEXT.encode(), "sites.yaml") == SITES


def test_a_pipeline_file_becomes_a_pipeline_in_base_units() -> None:
    assert read_pipeline(PIPELINE_TEXT.encode(), "fire.yaml", SITES) == PIPELINE


@pytest.mark.parametrize("file", ["x.json", "x.yaml", "x"])
def test_json_says_the_same_under_any_name(file: str) -> None:
    assert read_sites(as_json(SITES_TEXT), file) == SITES
    assert read_pipeline(as_json(PIPELINE_TEXT), file) == PIPELINE


def test_a_byte_order_mark_windows_line_ends_and_block_style_change_nothing() -> None:
    text = yaml.safe_dump(yaml.safe_load(SITES_TEXT), sort_keys=False).replace("\n", "\r\n")
    assert read_sites(b"\xef\xbb\xbf" + text.encode(), "sites.yaml") == SITES


def test_a_site_without_a_body_gets_the_defaults_and_needs_no_link_when_alone() -> None:
    assert read_sites(b"sites:\n  lone:\n", "s.yaml") == Sites((Site("lone"),), ())
    assert read_sites(b"sites: {lone: {cores: null}}", "s.yaml") == Sites((Site("lone"),), ())


def test_words_that_older_yaml_takes_for_something_else_are_names() -> None:
    text = b"""
sites:
  no: {tags: [on, 1:30, 2020-01-01, 007]}
  12:
links: [{between: [no, 12], latency: 0, bandwidth: 1}]
"""
    sites = read_sites(text, "s.yaml")
    assert sites.sites[0] == Site("no", tags=("on", "1:30", "2020-01-01", "007"))
    assert sites.links == (Link("no", "12", 0.0, 1.0),)


def test_anchors_and_merge_keys_save_typing() -> None:
    text = b"""
sites:
  a: &small {kind: leaf, slots: 2, tags: &t [x, y]}
  b: {<<: *small, slots: 3}
  c: {<<: [{speed: 2}, *small], tags: *t}
links: [{between: [a, b], latency: 1 ms, bandwidth: 1 kB/s}, {between: [b, c], latency: 1 ms, bandwidth: 1 kB/s}]
"""
    a, b, c = read_sites(text, "s.yaml").sites
    assert a == Site("a", "leaf", slots=2, tags=("x", "y"))
    assert b == Site("b", "leaf", slots=3, tags=("x", "y"))
    assert c == Site("c", "leaf", slots=2, speed=2.0, tags=("x", "y"))


def test_an_operator_that_nobody_reads_is_a_sink() -> None:
    pipeline = read_pipeline(b"operators: {a: {source: true, rate: 1, size: 1}, b: {inputs: [a]}}", "p.yaml")
    assert [operator.is_sink for operator in pipeline.operators] == [False, True]


def test_two_streams_may_join_the_same_operators() -> None:
    text = b"operators: {a: {source: true, rate: 1, size: 1}, b: {inputs: [a, {from: a, rate_factor: 2}]}}"
    assert read_pipeline(text, "p.yaml").streams == (Stream("a", "b"), Stream("a", "b", 2.0))


@pytest.mark.parametrize(
    ("file", "name"), [("dir/city.yaml", "city"), ("C:\\x\\a.b.json", "a.b"), ("plain", "plain"), ("", "pipeline")]
)
def test_a_pipeline_without_a_name_is_called_like_its_file(file: str, name: str) -> None:
    assert read_pipeline(b'{"operators": {"a": {"source": true, "rate": 1, "size": 1}}}', file).name == name


def test_every_demand_and_the_objective_are_read() -> None:
    text = b"""
operators:
  a: {source: true, rate: 60/min, size: 1 kB, state: 1 MB, at: ['tag:gpu', pi-1]}
  b: {inputs: [a], with: [a], rate_factor: 0}
  c: {inputs: [b], apart: [a, b], needs: high}
objective: {weights: {rt: 2, rf: 0}, rt: {min: 1 ms, max: 2 s}, rf: {max: 3}, bw: {max: 1 Mbit/s}, between: [a, c]}
"""
    pipeline = read_pipeline(text, "p.yaml", SITES)
    a, b, c = pipeline.operators
    assert (a.at, a.state_bytes, a.rate_rps) == (("tag:gpu", "pi-1"), 1e6, 1.0)
    assert (b.together, b.rate_factor) == (("a",), 0.0)
    assert (c.apart, c.needs) == (("a", "b"), 3)
    assert pipeline.objective == Objective(2.0, 0.0, 1.0, 0.001, 2.0, 3.0, 1e6, ("a", "c"))


def test_a_placement_names_a_site_for_some_operators() -> None:
    assert read_placement(b"tree-source: pi-1\n", "p.yaml", PIPELINE, SITES) == {"tree-source": "pi-1"}
    assert read_placement(b"{}", "p.json", PIPELINE, SITES) == {}


def test_what_the_place_command_prints_is_a_placement() -> None:
    printed = {"method": "anneal", "placement": {"monitor": "dc-1"}, "score": {"f": 0.1}, "proved": True}
    assert read_placement(json.dumps(printed).encode(), "out.json", PIPELINE, SITES) == {"monitor": "dc-1"}


def test_operators_may_be_called_method_and_placement() -> None:
    pipeline = Pipeline("p", (Operator("method"), Operator("placement")))
    placement = {"method": "dc-1", "placement": "pi-1"}
    assert read_placement(json.dumps(placement).encode(), "p.json", pipeline, SITES) == placement


def test_sites_are_written_with_units() -> None:
    assert write_sites(SITES) == (
        "sites:\n"
        "  dc-1: {kind: root, class: high, slots: 4, speed: 4, cores: 8, memory: 16 GB, price: 0.4, tags: [gpu]}\n"
        "  hub-a: {kind: middle, class: low, slots: 0}\n"
        "  pi-1: {kind: leaf, class: low, slots: 2, cores: 4, memory: 4 GB}\n"
        "links:\n"
        "  - {between: [pi-1, hub-a], latency: 300 us, bandwidth: 1 Gbit/s}\n"
        "  - {between: [hub-a, dc-1], latency: 80 ms, bandwidth: 100 Mbit/s}\n"
    )


def test_a_pipeline_is_written_with_units() -> None:
    assert write_pipeline(PIPELINE) == (
        "pipeline: fire\n"
        "operators:\n"
        "  tree-source: {source: true, rate: 100/s, size: 30 kB, work: 1 ms, at: [pi-1]}\n"
        "  tree-split: {inputs: [tree-source], work: 2 ms}\n"
        "  tree-temp: {inputs: [{from: tree-split, size_factor: 0.01}], rate_factor: 0.5}\n"
        "  tree-image: {inputs: [tree-split], size_factor: 0.01, needs: medium, work: 20 ms}\n"
        "  monitor: {inputs: [tree-temp, tree-image], sink: true}\n"
    )


def test_a_name_that_looks_like_something_else_is_written_in_quotes() -> None:
    assert write_placement({"no": "1", "<<": "a: b", 'say "x"': "tag:x"}) == (
        '"no": "1"\n"<<": "a: b"\n"say \\"x\\"": tag:x\n'
    )


def test_every_mistake_is_told_by_line_and_only_the_first_fifty_in_full() -> None:
    text = "sites:\n" + "".join(f"  s{i}: {{slot: 1}}\n" for i in range(173))
    with pytest.raises(SpecError) as caught:
        read_sites(text.encode(), "s.yaml")
    assert [mistake.line for mistake in caught.value.mistakes[:50]] == list(range(2, 52))
    assert str(caught.value.mistakes[50]) == "HW1000 s.yaml: and 124 more"  # 123 sites, and that nothing joins them
    assert len(caught.value.mistakes) == 51


def test_several_kinds_of_mistake_are_told_together() -> None:
    text = b"sites:\n  a: {slots: -1, sped: 2}\n  b: {kind: leef}\nlinks:\n  - {between: [a, c], latency: 1 kB}\n"
    with pytest.raises(SpecError) as caught:
        read_sites(text, "s.yaml")
    found = [(mistake.code, mistake.line) for mistake in caught.value.mistakes]
    assert found == [
        ("HW1007", 2),
        ("HW1003", 2),
        ("HW1007", 3),
        ("HW1006", 5),
        ("HW1012", 5),
        ("HW1004", 5),
    ]


def test_ten_thousand_sites_are_read_quickly() -> None:
    count = 10_000
    lines = ["sites:"]
    lines += [f"  s{i}: {{kind: leaf, class: low, slots: 2, speed: 1.5, cores: 4, memory: 4 GB}}" for i in range(count)]
    lines += ["links:"]
    lines += [f"  - {{between: [s{i}, s{i // 2}], latency: {i} us, bandwidth: 1 Gbit/s}}" for i in range(1, count)]
    start = time.process_time()
    sites = read_sites("\n".join(lines).encode(), "s.yaml")
    assert time.process_time() - start < 5.0  # about 0.8 s; the margin is for a slow machine
    assert (len(sites.sites), len(sites.links)) == (count, count - 1)
