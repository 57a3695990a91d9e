"""Random problems: sites, pipelines and placements, from a hypothesis draw or from a plain seed.

The makers ask a `Dice` for every decision, so that the same code serves hypothesis (which shrinks) and
loops over seeds (whose count is exact). Values come from small sets, so that ties are frequent: routes
of equal latency, latencies that differ by less than a nanosecond, equal loads.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hypothesis import strategies as st

from headwater.cost.problem import Problem
from headwater.model.pipeline import Objective, Operator, Pipeline, Stream
from headwater.model.sites import KINDS, Link, Site, Sites

__all__ = [
    "Dice",
    "Drawn",
    "Size",
    "Thrown",
    "any_placement",
    "placements",
    "problem",
    "problems",
    "rule_following",
    "seeded_problem",
    "shuffled",
    "small_problem",
]

T = TypeVar("T")

LATENCIES_S = (0.001, 0.002, 0.003, 0.001, 0.002, 0.0010000003, 0.0, 0.0000004)  # the sixth rounds to 1 ms
BANDWIDTHS_BPS = (1e6, 1e5, 1e7, 1e8, 1e9)
SPEEDS = (1.0, 2.0, 4.0, 0.5, 3.0)
RATES_RPS = (100.0, 10.0, 1.0, 33.3, 0.0)
SIZES_BYTES = (1000.0, 30e3, 500e3, 77.0, 0.0)
FACTORS = (1.0, 0.5, 0.01, 2.0, 1 / 3, 0.0)
WORKS_S = (0.001, 0.02, 0.08, 0.0, 0.0005)
WEIGHTS = (1.0, 0.0, 2.5, 0.1)
TAGS = ("gpu", "cold", "edge-a")
LETTERS = "abcdefghijklmnop"


class Dice(ABC):
    """Where decisions come from."""

    @abstractmethod
    def whole(self, low: int, high: int) -> int:
        """Return a number from low to high, both possible."""

    def pick(self, values: Sequence[T]) -> T:
        """Return one of the values."""
        return values[self.whole(0, len(values) - 1)]

    def chance(self, percent: int) -> bool:
        """Return True in that share of cases."""
        return self.whole(0, 99) >= 100 - percent

    def shuffle(self, values: Sequence[T]) -> list[T]:
        """Return the values in any order."""
        rest, order = list(values), []
        while rest:
            order.append(rest.pop(self.whole(0, len(rest) - 1)))
        return order


class Thrown(Dice):
    """Decisions from a seed."""

    def __init__(self, seed: int) -> None:
        """Start from a seed."""
        self.random = random.Random(seed)

    def whole(self, low: int, high: int) -> int:
        """Return a number from low to high, both possible."""
        return self.random.randint(low, high)


class Drawn(Dice):
    """Decisions from hypothesis."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        """Use the draw function of a composite strategy, or that of `st.data()`."""
        self.draw = draw

    def whole(self, low: int, high: int) -> int:
        """Return a number from low to high, both possible."""
        return self.draw(st.integers(low, high))


@dataclass(frozen=True)
class Size:
    """How large and how tangled a random problem may be."""

    sites: int = 6
    operators: int = 6
    fewest: int = 2  # sites and operators
    more_links: int = 4  # beyond a tree
    slots: tuple[int, ...] = (2, 1, 3, 0)
    rules: int = 25  # percent of operators with `at`, `with` or `apart` each
    overrides: bool = True  # of the objective's bounds
    latencies_s: tuple[float, ...] = LATENCIES_S
    fits: bool = False  # make sure that a leaf and a root with slots exist


def names(dice: Dice, count: int, prefix: str) -> list[str]:
    """Return names whose alphabetical order is not the order of creation."""
    letters = dice.shuffle(LETTERS[: max(count, 4)])[:count]
    return [f"{prefix}{letter}" if dice.chance(70) else f"{letter}{prefix}" for letter in letters]


def make_sites(dice: Dice, size: Size, *, is_tree: bool) -> Sites:
    """Return a random tree or connected graph."""
    count = dice.whole(size.fewest, size.sites)
    called = names(dice, count, "s")
    sites = [
        Site(
            name,
            dice.pick(KINDS),
            dice.whole(1, 3),
            dice.pick(size.slots),
            dice.pick(SPEEDS),
            dice.pick((None, 0.5, 4.0)),
            tags=tuple(tag for tag in TAGS if dice.chance(25)),
        )
        for name in called
    ]
    if size.fits:
        sites[0] = replace(sites[0], kind="leaf", slots=max(size.slots))
        sites[1] = replace(sites[1], kind="root", slots=max(size.slots))
    pairs = [(called[dice.whole(0, i - 1)], called[i]) for i in range(1, count)]
    if not is_tree:
        for _ in range(dice.whole(1, size.more_links)):
            a, b = dice.pick(called), dice.pick(called)
            if a != b and (a, b) not in pairs and (b, a) not in pairs:
                pairs.append((a, b))
    turned = [(b, a) if dice.chance(50) else (a, b) for a, b in pairs]
    links = [Link(a, b, dice.pick(size.latencies_s), dice.pick(BANDWIDTHS_BPS)) for a, b in turned]
    return Sites(tuple(dice.shuffle(sites)), tuple(dice.shuffle(links)))


def make_pipeline(dice: Dice, size: Size, sites: Sites) -> Pipeline:
    """Return a random pipeline: diamonds, fan-out, several sources and sinks, streams twice over, rules."""
    count = dice.whole(size.fewest, size.operators)
    called = names(dice, count, "op-")
    drafts: list[Operator] = []
    for i, name in enumerate(called):
        is_source = i == 0 or dice.chance(15)
        inputs: list[Stream] = []
        for _ in range(0 if is_source else dice.pick((1, 2, 1, 3))):
            writer = called[i - 1] if not inputs and dice.chance(50) else dice.pick(called[:i])
            inputs.append(Stream(writer, name, _factor(dice), _factor(dice)))
        drafts.append(
            Operator(
                name,
                tuple(inputs),
                is_source,
                dice.pick(RATES_RPS) if is_source else 0.0,
                dice.pick(SIZES_BYTES) if is_source else 0.0,
                1.0 if is_source else _factor(dice),
                1.0 if is_source else _factor(dice),
                dice.pick((1, 2, 3)),
                dice.pick(WORKS_S),
            )
        )
    read = {stream.source for draft in drafts for stream in draft.inputs}
    operators = [replace(draft, is_sink=draft.name not in read) for draft in drafts]
    operators = [_ruled(dice, operator, called, sites, size) for operator in operators]
    return Pipeline("random", tuple(dice.shuffle(operators)), _objective(dice, operators, size))


def _factor(dice: Dice) -> float:
    return dice.pick(FACTORS) if dice.chance(40) else 1.0


def _ruled(dice: Dice, operator: Operator, called: Sequence[str], sites: Sites, size: Size) -> Operator:
    if dice.chance(size.rules):
        tags = sorted({tag for site in sites.sites for tag in site.tags})
        entries = [f"tag:{tag}" for tag in tags] + [site.name for site in sites.sites]
        at = tuple(dict.fromkeys(dice.pick(entries) for _ in range(dice.whole(1, 3))))
        operator = replace(operator, at=at)
    others = [name for name in called if name != operator.name]
    if dice.chance(size.rules // 2):
        operator = replace(operator, together=(dice.pick(others),))
    if dice.chance(size.rules // 2):
        apart = tuple(dict.fromkeys(dice.pick(others) for _ in range(dice.whole(1, 2))))
        operator = replace(operator, apart=tuple(name for name in apart if name not in operator.together))
    return operator


def _objective(dice: Dice, operators: Sequence[Operator], size: Size) -> Objective:
    objective = Objective()
    if dice.chance(30):
        objective = replace(
            objective,
            weight_rt=dice.pick(WEIGHTS),
            weight_rf=dice.pick(WEIGHTS),
            weight_bw=dice.pick(WEIGHTS),
        )
    if size.overrides and dice.chance(20):
        objective = replace(
            objective,
            rt_min_s=dice.pick((None, 0.0)),
            rt_max_s=dice.pick((None, 1.0, 10.0)),
            rf_max=dice.pick((None, 0.0, 5.0, 2.5)),
            bw_max_bps=dice.pick((None, 0.0, 1e7)),
        )
    if dice.chance(20):
        first = dice.pick([operator.name for operator in operators if operator.is_source])
        last = dice.pick([operator.name for operator in operators if operator.is_sink])
        objective = replace(objective, between=(first, last))
    return objective


def problem(dice: Dice, size: Size, *, is_tree: bool | None = None) -> Problem:
    """Return a random problem; it may have no valid placement."""
    sites = make_sites(dice, size, is_tree=dice.chance(40) if is_tree is None else is_tree)
    return Problem(make_pipeline(dice, size, sites), sites)


def rule_following(dice: Dice, problem: Problem) -> dict[str, str]:
    """Return a placement that keeps each operator's own rules where it can; slots and company are left to chance."""
    placement: dict[str, str] = {}
    filled: dict[str, int] = {}
    for operator in problem.pipeline.operators:
        hosts = [problem.hosts[i] for i in problem.allowed(operator)] or list(problem.sites.sites)
        roomy = [site for site in hosts if filled.get(site.name, 0) < site.slots] or hosts
        friends = [placement[other] for other in operator.together if other in placement]
        friends += [placement[one.name] for one in problem.pipeline.operators if operator.name in one.together
                    and one.name in placement]  # fmt: skip
        site = friends[0] if friends else dice.pick([site.name for site in roomy])
        placement[operator.name] = site
        filled[site] = filled.get(site, 0) + 1
    return placement


def any_placement(dice: Dice, problem: Problem) -> dict[str, str]:
    """Return a placement, valid or not: now and then an operator is missing, unknown or nowhere."""
    placement = rule_following(dice, problem)
    sites = [site.name for site in problem.sites.sites]
    for name in list(placement):
        if dice.chance(15):
            placement[name] = dice.pick(sites)
    spoiled = dice.whole(0, 29)
    if spoiled == 29:
        del placement[dice.pick(list(placement))]
    elif spoiled == 28:
        placement["nobody"] = dice.pick(sites)
    elif spoiled == 27:
        placement[dice.pick(list(placement))] = "nowhere"
    return placement


def shuffled(dice: Dice, problem: Problem) -> Problem:
    """Return the same problem written in another order: sites, links, ends of links, operators, inputs."""
    sites, pipeline = problem.sites, problem.pipeline
    links = [link if dice.chance(50) else replace(link, a=link.b, b=link.a) for link in dice.shuffle(sites.links)]
    operators = [
        replace(operator, inputs=tuple(dice.shuffle(operator.inputs))) for operator in dice.shuffle(pipeline.operators)
    ]
    return Problem(
        Pipeline(pipeline.name, tuple(operators), pipeline.objective),
        Sites(tuple(dice.shuffle(sites.sites)), tuple(links)),
    )


def seeded_problem(seed: int, size: Size, *, is_tree: bool | None = None) -> Problem:
    """Return a random problem from a seed."""
    return problem(Thrown(seed), size, is_tree=is_tree)


SMALL = Size(sites=6, operators=6, fewest=4, slots=(2, 3, 1, 2, 0), rules=16, fits=True)


def small_problem(seed: int) -> Problem:
    """Return a problem whose placements can all be tried, trees and graphs in turn."""
    return seeded_problem(seed, SMALL, is_tree=seed % 2 == 0)


@st.composite
def problems(draw: st.DrawFn, size: Size | None = None, is_tree: bool | None = None) -> Problem:
    """Random problems, for hypothesis."""
    return problem(Drawn(draw), size or Size(), is_tree=is_tree)


@st.composite
def placements(draw: st.DrawFn, problem: Problem) -> dict[str, str]:
    """Placements of a problem, valid and not, for hypothesis."""
    return any_placement(Drawn(draw), problem)


def merging(dice: Dice, size: Size, sites: Sites) -> Pipeline:
    """Return a random pipeline in which most operators have one reader: trees into few sinks, some diamonds."""
    called = names(dice, dice.whole(size.fewest, size.operators), "op-")
    inputs: dict[str, list[Stream]] = {name: [] for name in called}
    read: set[str] = set()
    for i, name in enumerate(called):
        is_read = i > 0 and not dice.chance(10)
        for _ in range(dice.pick((1, 1, 1, 2, 3)) if is_read else 0):
            reader = dice.pick(called[:i])
            inputs[reader].append(Stream(name, reader, _factor(dice), _factor(dice)))
            read.add(name)
    operators = [
        Operator(
            name,
            tuple(inputs[name]),
            not inputs[name],
            dice.pick(RATES_RPS) if not inputs[name] else 0.0,
            dice.pick(SIZES_BYTES) if not inputs[name] else 0.0,
            _factor(dice) if inputs[name] else 1.0,
            is_sink=name not in read,
        )
        for name in called
    ]
    operators = (
        [_ruled(dice, operator, called, sites, size) for operator in operators] if len(called) > 1 else operators
    )
    return Pipeline("random", tuple(dice.shuffle(operators)))
