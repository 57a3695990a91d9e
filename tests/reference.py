"""The contract (model.md, sections 2 to 4) computed again, as plainly as it can be written.

Written from the contract alone: dictionaries, loops and every simple path by brute force. It shares only
the data classes with the package, so a mistake in `headwater.cost`, `headwater.model.routes` or
`headwater.place` cannot hide here. Slow by design; for small problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

from headwater.model.pipeline import Operator, Pipeline
from headwater.model.sites import Link, Sites

__all__ = ["Reference", "Verdict"]

Way = tuple[str, ...]  # site names from one end to the other


@dataclass(frozen=True)
class Verdict:
    """What the contract says of one placement."""

    valid: bool
    f: float | None = None
    rt_s: float | None = None
    rf: int | None = None
    bw_bps: float | None = None
    over_bps: Mapping[tuple[str, str], float] | None = None  # (from, to) -> load above bandwidth, where there is any
    load_cores: Mapping[str, float] | None = None


class Reference:
    """A pipeline on sites, judged by the letter of the contract."""

    def __init__(self, pipeline: Pipeline, sites: Sites) -> None:
        """Keep both; everything is computed when asked for."""
        self.pipeline = pipeline
        self.sites = sites
        self.site = {site.name: site for site in sites.sites}
        self.operator = {operator.name: operator for operator in pipeline.operators}
        self.hosts = [site.name for site in sites.sites if site.slots > 0]
        self._ways: dict[tuple[str, str], Way | None] = {}

    # flow

    @cached_property
    def flow(self) -> dict[str, tuple[float, float, float, float]]:
        """In-rate, in-size, out-rate, out-size of every operator."""
        known: dict[str, tuple[float, float, float, float]] = {}

        def of(name: str) -> tuple[float, float, float, float]:
            if name not in known:
                operator = self.operator[name]
                if operator.is_source:
                    known[name] = (0.0, 0.0, operator.rate_rps, operator.size_bytes)
                else:
                    rates, volumes = [], []
                    for stream in operator.inputs:
                        _, _, rate, size = of(stream.source)
                        rates.append(rate * stream.rate_factor)
                        volumes.append(rate * stream.rate_factor * (size * stream.size_factor))
                    in_rate = sum(rates)
                    in_size = sum(volumes) / in_rate if in_rate > 0 else 0.0
                    known[name] = (
                        in_rate,
                        in_size,
                        operator.rate_factor * in_rate,
                        operator.size_factor * in_size,
                    )
            return known[name]

        for operator in self.pipeline.operators:
            of(operator.name)
        return known

    @cached_property
    def streams(self) -> list[tuple[str, str, float, float]]:
        """(writer, reader, rate, size) of every stream."""
        found = []
        for operator in self.pipeline.operators:
            for stream in operator.inputs:
                _, _, rate, size = self.flow[stream.source]
                found.append((stream.source, operator.name, rate * stream.rate_factor, size * stream.size_factor))
        return found

    # routes

    @cached_property
    def link(self) -> dict[tuple[str, str], Link]:
        """The link between two neighbours, found by either direction."""
        found = {}
        for link in self.sites.links:
            found[link.a, link.b] = found[link.b, link.a] = link
        return found

    def simple_ways(self, a: str, b: str) -> Iterator[Way]:
        """Yield every way from a to b that meets no site twice."""
        near: dict[str, list[str]] = {name: [] for name in self.site}
        for one, two in self.link:
            near[one].append(two)
        stack: list[Way] = [(a,)]
        while stack:
            way = stack.pop()
            if way[-1] == b:
                yield way
                continue
            stack += [(*way, name) for name in near[way[-1]] if name not in way]

    def route(self, a: str, b: str) -> Way | None:
        """Return the route from a to b as the sites on it; None where there is none."""
        low, high = min(a, b), max(a, b)
        if (low, high) not in self._ways:

            def worth(way: Way) -> tuple[int, int, Way]:
                nanoseconds = sum(round(self.link[pair].latency_s * 1e9) for pair in pairwise(way))
                return nanoseconds, len(way) - 1, way  # the way is read from the alphabetically smaller end

            self._ways[low, high] = min(self.simple_ways(low, high), key=worth, default=None)
        way = self._ways[low, high]
        return way if way is None or a == low else way[::-1]

    def delay(self, way: Way, size: float) -> float:
        """Return the seconds that a record of a size needs on a route."""
        total = 0.0
        for pair in pairwise(way):
            total += self.link[pair].latency_s + 8 * size / self.link[pair].bandwidth_bps
        return total

    # paths of the pipeline

    @cached_property
    def paths(self) -> list[tuple[list[str], list[int]]]:
        """Every path from a source to a sink that counts: its operators, and the numbers of its streams."""
        between = self.pipeline.objective.between
        found = []
        stack: list[tuple[list[str], list[int]]] = [
            ([operator.name], [])
            for operator in self.pipeline.operators
            if operator.is_source and (between is None or between[0] == operator.name)
        ]
        while stack:
            names, streams = stack.pop()
            if self.operator[names[-1]].is_sink and (between is None or between[1] == names[-1]):
                found.append((names, streams))
            for number, (writer, reader, _, _) in enumerate(self.streams):
                if writer == names[-1]:
                    stack.append(([*names, reader], [*streams, number]))
        return found

    def longest(self, processing: Mapping[str, float], delays: list[float]) -> float:
        """Return the longest path, processing plus delays; 0 where no path counts."""
        return max(
            (
                sum(processing[name] for name in names) + sum(delays[i] for i in numbers)
                for names, numbers in self.paths
            ),
            default=0.0,
        )

    # bounds and F

    def allowed(self, operator: Operator) -> list[str]:
        """Return the sites with slots that the operator's own rules allow."""
        if operator.at is not None:
            return [
                name
                for name in self.hosts
                if name in operator.at or any(f"tag:{tag}" in operator.at for tag in self.site[name].tags)
            ]
        if operator.is_source:
            return [name for name in self.hosts if self.site[name].kind == "leaf"]
        if operator.is_sink:
            return [name for name in self.hosts if self.site[name].kind == "root"]
        return list(self.hosts)

    @cached_property
    def bounds(self) -> tuple[float, float, float, float]:
        """RTmin, RTmax, RFmax, BWmax, as the objective overrides them; every operator must have an allowed site."""
        wanted = self.pipeline.objective
        best, worst = {}, {}
        slowest = min(self.site[name].speed for name in self.hosts)
        for operator in self.pipeline.operators:
            fastest = max(self.site[name].speed for name in self.allowed(operator))
            best[operator.name] = operator.work_s / fastest
            worst[operator.name] = operator.work_s / slowest
        ways = [way for a in self.hosts for b in self.hosts if a < b and (way := self.route(a, b)) is not None]
        delays = [max((self.delay(way, size) for way in ways), default=0.0) for _, _, _, size in self.streams]
        rt_min = self.longest(best, [0.0] * len(self.streams))
        rt_max = self.longest(worst, delays)
        least = min(self.site[name].level for name in self.hosts)
        rf_max = sum(max(0, operator.needs - least) for operator in self.pipeline.operators)
        most_links = max((len(way) - 1 for way in ways), default=0)
        bw_max = sum(8 * rate * size for _, _, rate, size in self.streams) * most_links
        return (
            rt_min if wanted.rt_min_s is None else wanted.rt_min_s,
            rt_max if wanted.rt_max_s is None else wanted.rt_max_s,
            float(rf_max) if wanted.rf_max is None else wanted.rf_max,
            bw_max if wanted.bw_max_bps is None else wanted.bw_max_bps,
        )

    @property
    def has_bounds(self) -> bool:
        """Whether every operator has an allowed site; the contract is silent on the bounds of others."""
        return all(self.allowed(operator) for operator in self.pipeline.operators)

    def is_valid(self, placement: Mapping[str, str]) -> bool:
        """Return whether a placement keeps every rule."""
        if set(placement) != set(self.operator):
            return False
        for operator in self.pipeline.operators:
            here = placement[operator.name]
            if here not in self.allowed(operator):
                return False
            if any(placement[other] != here for other in operator.together):
                return False
            if any(placement[other] == here for other in operator.apart):
                return False
        taken = list(placement.values())
        if any(taken.count(name) > self.site[name].slots for name in taken):
            return False
        return all(self.route(placement[writer], placement[reader]) for writer, reader, _, _ in self.streams)

    def score(self, placement: Mapping[str, str]) -> Verdict:
        """Return what a placement costs."""
        if not self.is_valid(placement):
            return Verdict(False)
        processing, load = {}, dict.fromkeys(placement.values(), 0.0)
        rf = 0
        for name, operator in self.operator.items():
            site = self.site[placement[name]]
            processing[name] = operator.work_s / site.speed
            rate = operator.rate_rps if operator.is_source else self.flow[name][0]
            load[site.name] += rate * operator.work_s / site.speed
            rf += max(0, operator.needs - site.level)
        delays, carried = [], dict.fromkeys(self.link, 0.0)
        for writer, reader, rate, size in self.streams:
            way = self.route(placement[writer], placement[reader])
            assert way is not None, "the placement is valid"
            delays.append(self.delay(way, size))
            for pair in pairwise(way):
                carried[pair] += 8 * rate * size
        rt = self.longest(processing, delays)
        over = {
            pair: load_bps - self.link[pair].bandwidth_bps
            for pair, load_bps in carried.items()
            if load_bps > self.link[pair].bandwidth_bps
        }
        bw = sum(over.values())
        return Verdict(True, self.f(rt, rf, bw), rt, rf, bw, over, load)

    def f(self, rt: float, rf: float, bw: float) -> float:
        """Return F of its three parts."""
        rt_min, rt_max, rf_max, bw_max = self.bounds
        weights = self.pipeline.objective
        f = 0.0
        if rt_max - rt_min != 0:
            f += weights.weight_rt * (rt - rt_min) / (rt_max - rt_min)
        if rf_max != 0:
            f += weights.weight_rf * rf / rf_max
        if bw_max != 0:
            f += weights.weight_bw * bw / bw_max
        return f

    # every placement

    def choices(self) -> int:
        """Return how many placements the operators' own rules leave."""
        count = 1
        for operator in self.pipeline.operators:
            count *= len(self.allowed(operator))
        return count

    def valid_placements(self) -> Iterator[dict[str, str]]:
        """Yield every valid placement."""
        names = [operator.name for operator in self.pipeline.operators]
        for sites in product(*(self.allowed(operator) for operator in self.pipeline.operators)):
            placement = dict(zip(names, sites, strict=True))
            if self.is_valid(placement):
                yield placement

    def best(self) -> tuple[float, dict[str, str]] | None:
        """Return the least F of all valid placements and one that has it; None where nothing is valid."""
        found: tuple[float, dict[str, str]] | None = None
        for placement in self.valid_placements():
            f = self.score(placement).f
            assert f is not None, "only valid placements are tried"
            if found is None or f < found[0]:
                found = (f, placement)
        return found
