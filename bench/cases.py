"""Which problems are measured, and what are they called?

A name says everything: `fire-x2`, `tree-200x100` (operators by sites), `graph-Kdl` (a network map beside
the repository), `mesh-20x60-layers6-seed1` (a random graph that is no tree). `problem` makes one from its
name; nothing is kept on disk.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from bench.instances import fire, layered_pipeline, random_graph, tree_problem
from headwater.cost.problem import Problem
from headwater.model.graphml import ImportOptions, read_graphml
from headwater.model.sites import Sites

__all__ = ["Absent", "problem"]

TOPOLOGIES = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "topologies"
GRAPH_OPERATORS = 20
GRAPH_SEED = 7


class Absent(Exception):
    """The data of a problem is not on this machine."""


def problem(name: str) -> Problem:
    """Return the problem of a name.

    Raises:
        Absent: it needs a file that is not here.
        ValueError: no problem has such a name.
    """
    if match := re.fullmatch(r"fire-x(\d+)", name):
        return fire(int(match[1]))
    if match := re.fullmatch(r"tree-(\d+)x(\d+)", name):
        return tree_problem(int(match[1]), int(match[2]))
    if match := re.fullmatch(r"graph-(\w+)", name):
        return _on_map(match[1])
    if match := re.fullmatch(r"mesh-(\d+)x(\d+)-layers(\d+)-seed(\d+)", name):
        operators, sites, layers, seed = map(int, match.groups())
        rng = np.random.default_rng(seed)
        network = random_graph(rng, sites)
        return Problem(layered_pipeline(rng, operators, _leaves(network), layers), network)
    raise ValueError(f"no problem is called '{name}'")


def _on_map(name: str) -> Problem:
    """Return a layered pipeline, its sources pinned to leaves, on a network map with the default machines."""
    file = TOPOLOGIES / f"{name}.graphml"
    if not file.exists():
        raise Absent(f"no file shared/data/topologies/{file.name} beside the repository")
    network, _ = read_graphml(file.read_bytes(), file.name, ImportOptions())
    return Problem(layered_pipeline(np.random.default_rng(GRAPH_SEED), GRAPH_OPERATORS, _leaves(network)), network)


def _leaves(network: Sites) -> list[str]:
    return [site.name for site in network.sites if site.kind == "leaf"]
