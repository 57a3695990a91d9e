"""Problems to measure on: the fire job times k, and random layered pipelines on random trees.

Everything is made from a seed, in memory; nothing is read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headwater.cost.problem import Problem
from headwater.model.pipeline import Operator, Pipeline, Stream
from headwater.model.sites import Link, Site, Sites

__all__ = ["fire", "layered_pipeline", "random_graph", "random_tree", "tree_problem"]

RATE = {"tree": (100.0, 30e3), "location": (25.0, 500e3)}
IMAGE_WORK_S = {"tree": 0.020, "location": 0.080}
IMAGE_NEEDS = {"tree": 2, "location": 3}


def fire(times: int = 1) -> Problem:
    """Return the fire job with `times` pairs of edge clouds; times 1 is examples/fire."""
    return Problem(fire_pipeline(times), fire_sites(times))


def fire_pipeline(times: int) -> Pipeline:
    """Return the job: per forest five operators for trees and five for locations, and three for all."""
    operators = []
    temperatures, results = [], []
    for k in range(1, times + 1):
        for what, clouds in (("tree", f"edge-a{k}"), ("location", f"edge-b{k}")):
            suffix = "" if times == 1 else f"-{k}"
            rate, size = RATE[what]

            def name(step: str, what: str = what, suffix: str = suffix) -> str:
                return f"{what}-{step}{suffix}"

            tag = clouds if times > 1 else clouds[:-1]
            operators += [
                Operator(
                    name("source"), is_source=True, rate_rps=rate, size_bytes=size, at=(f"tag:{tag}",), work_s=0.001
                ),
                Operator(name("split"), (Stream(name("source"), name("split")),), work_s=0.002),
                Operator(
                    name("temp"), (Stream(name("split"), name("temp"), 1.0, 0.01),), rate_factor=0.5, work_s=0.001
                ),
                Operator(
                    name("image"),
                    (Stream(name("split"), name("image")),),
                    needs=IMAGE_NEEDS[what],
                    work_s=IMAGE_WORK_S[what],
                    size_factor=0.01,
                ),
                Operator(name("result"), (Stream(name("image"), name("result")),), rate_factor=0.1, work_s=0.001),
            ]
            temperatures.append(name("temp"))
            results.append(name("result"))
    operators += [
        Operator("temp-monitor", tuple(Stream(t, "temp-monitor") for t in temperatures), work_s=0.001, is_sink=True),
        Operator("connect", tuple(Stream(r, "connect") for r in results), work_s=0.001),
        Operator("alert-monitor", (Stream("connect", "alert-monitor"),), work_s=0.001, is_sink=True),
    ]
    return Pipeline("fire", tuple(operators))


def fire_sites(times: int) -> Sites:
    """Return one data centre and `times` pairs of edge clouds behind 80 ms and 100 Mbit/s each."""
    inside = {"latency_s": 0.0003, "bandwidth_bps": 1e9}
    sites = [Site("dc", slots=0)]
    links = []
    for i in range(1, 4):
        sites.append(Site(f"dc-{i}", "root", 2, 3 * times, 2.0, 8.0, 16e9))
    sites.append(Site("dc-high", "root", 3, 3 * times, 4.0, 16.0, 64e9))
    links += [Link(site.name, "dc", **inside) for site in sites[1:]]
    for k in range(1, times + 1):
        for side in "ab":
            cloud = f"edge-{side}" if times == 1 else f"edge-{side}{k}"
            machines = [Site(f"{cloud}-{i}", "leaf", 1, 2, 1.0, 4.0, 4e9, tags=(cloud,)) for i in (1, 2)]
            machines.append(Site(f"{cloud}-high", "leaf", 3, 2, 4.0, 8.0, 16e9, tags=(cloud,)))
            sites += [Site(cloud, slots=0), *machines]
            links += [Link(site.name, cloud, **inside) for site in machines]
            links.append(Link(cloud, "dc", 0.080, 100e6))
    return Sites(tuple(sites), tuple(links))


def layered_pipeline(rng: np.random.Generator, count: int, leaves: list[str], layers: int = 0) -> Pipeline:
    """Return a layered pipeline of `count` operators, a tenth of them sources pinned to leaves."""
    layers = layers or max(3, min(12, round(count**0.5 / 2)))
    sources = max(1, count // 10)
    sinks = max(1, count // 50)
    layer = np.sort(
        np.concatenate(
            (np.zeros(sources, int), rng.integers(1, layers - 1, count - sources - sinks), np.full(sinks, layers - 1))
        )
    )
    operators: list[Operator] = []
    earlier: list[str] = []
    fresh: list[str] = []
    needs = rng.choice([1, 2, 3], count, p=[0.7, 0.2, 0.1])
    work = rng.uniform(0.001, 0.02, count)
    read: set[str] = set()
    homes = rng.permutation(max(sources, len(leaves))) % len(leaves)  # leaves in turn, so that slots suffice
    for i in range(count):
        name = f"op{i:05d}"
        if i and layer[i] != layer[i - 1]:
            earlier, fresh = fresh, []
        if layer[i] == 0:
            operators.append(
                Operator(
                    name,
                    is_source=True,
                    rate_rps=float(rng.uniform(1, 100)),
                    size_bytes=float(rng.uniform(200, 20000)),
                    at=(leaves[int(homes[i])],),
                    work_s=float(work[i]),
                )
            )
        else:
            degree = min(len(earlier), int(rng.integers(1, 4)))
            picked = rng.choice(len(earlier), degree, replace=False)
            inputs = tuple(Stream(earlier[int(p)], name) for p in picked)
            read.update(stream.source for stream in inputs)
            operators.append(
                Operator(
                    name,
                    inputs,
                    needs=int(needs[i]),
                    work_s=float(work[i]),
                    rate_factor=float(rng.uniform(0.2, 1.0)),
                    size_factor=float(rng.uniform(0.2, 1.0)),
                )
            )
        fresh.append(name)
    for i, operator in enumerate(operators):  # what nobody reads is read by somebody of the next layer
        later = [j for j in range(i + 1, count) if layer[j] == layer[i] + 1] if operator.name not in read else []
        if later:
            j = later[int(rng.integers(len(later)))]
            operators[j] = replace(
                operators[j], inputs=(*operators[j].inputs, Stream(operator.name, operators[j].name))
            )
            read.add(operator.name)
    return Pipeline("layered", tuple(replace(op, is_sink=op.name not in read) for op in operators))


def random_tree(rng: np.random.Generator, count: int, slots: int = 2, root_slots: int = 64) -> Sites:
    """Return a tree of `count` sites: a data centre of a few roots, middles that fan out, leaves at the rim.

    Links are 2 ms and 10 Mbit/s at the rim, 8 ms and 100 Mbit/s above, 32 ms and 1 Gbit/s in the core, each
    latency within a half; the roots stand together.
    """
    fan = max(2, min(20, round(count**0.35)))
    roots = max(1, min(count // 5, fan // 2))
    parent = np.zeros(count, int)
    parent[roots:] = (np.arange(roots, count) - roots) // fan
    parent[roots : roots + fan] = 0
    for i in range(roots + fan, count):
        parent[i] = roots + (i - roots - fan) // fan
    depth = np.zeros(count, int)
    for i in range(1, count):
        depth[i] = depth[parent[i]] + 1
    has_child = np.zeros(count, bool)
    has_child[parent[1:]] = True
    deepest = int(depth.max())
    sites, links = [], []
    latency = rng.uniform(0.5, 1.5, count)
    for i in range(count):
        kind = "root" if i < roots else "middle" if has_child[i] else "leaf"
        level = 3 if kind == "root" else (2 if rng.random() < 0.5 else 1) if kind == "middle" else 1
        speed = {1: 1.0, 2: 2.0, 3: 4.0}[level]
        sites.append(Site(f"s{i:06d}", kind, level, root_slots if kind == "root" else slots, speed))
        if 0 < i < roots:
            links.append(Link(f"s{i:06d}", "s000000", 0.0003, 10e9))
        elif i:
            rank = min(deepest - depth[i], 2)
            links.append(
                Link(f"s{i:06d}", f"s{parent[i]:06d}", float(latency[i] * 0.002 * 4**rank), float(10e6 * 10**rank))
            )
    return Sites(tuple(sites), tuple(links))


def random_graph(rng: np.random.Generator, count: int, slots: int = 2) -> Sites:
    """Return a connected graph of `count` sites that is not a tree, coordinates in a square of 2 000 km."""
    at = rng.uniform(0, 2000, (count, 2))
    gap = np.hypot(*(at[:, None, :] - at[None, :, :]).transpose(2, 0, 1))
    pairs: set[tuple[int, int]] = set()
    for i in range(1, count):
        pairs.add((int(np.argmin(gap[i, :i])), i))
    for i in range(count):
        for j in np.argsort(gap[i])[1:4]:
            pairs.add((min(i, int(j)), max(i, int(j))))
    degree = np.bincount(np.array(sorted(pairs)).ravel(), minlength=count)
    centre = int(np.argmin(gap.sum(axis=1)))
    sites = []
    for i in range(count):
        kind = "root" if i == centre else "leaf" if degree[i] <= 3 else "middle"
        level = 3 if kind == "root" else int(rng.integers(1, 4))
        sites.append(Site(f"g{i:04d}", kind, level, 16 if kind == "root" else slots, {1: 1.0, 2: 2.0, 3: 4.0}[level]))
    links = [Link(f"g{i:04d}", f"g{j:04d}", float(gap[i, j] / 200_000), 100e6) for i, j in sorted(pairs)]
    return Sites(tuple(sites), tuple(links))


def tree_problem(operators: int, sites: int, seed: int = 3, **how: int) -> Problem:
    """Return a layered pipeline on a random tree; roots have room for every sink."""
    rng = np.random.default_rng(seed)
    how.setdefault("slots", max(2, -(-3 * operators // (2 * sites))))
    network = random_tree(rng, sites, root_slots=how.pop("root_slots", max(4, operators // 4)), **how)
    leaves = [site.name for site in network.sites if site.kind == "leaf"]
    return Problem(layered_pipeline(rng, operators, leaves), network)
