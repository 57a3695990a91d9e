"""What is to be decided, and on what scale is it judged?

A `Problem` is a pipeline, the sites, and what follows from both before any placement is chosen: the
flow, the routes, where each operator may go by its own rules, and the bounds that scale F.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from headwater.cost.flow import Flow, flow
from headwater.cost.score import Bounds
from headwater.cost.worst import worst_routes
from headwater.errors import Mistake, SpecError
from headwater.model.pipeline import Operator, Pipeline
from headwater.model.routes import Routes
from headwater.model.sites import Site, Sites

__all__ = ["Problem"]

TAG = "tag:"
Rule = tuple[str, ...] | str  # entries of `at`, or a kind of site, or 'any'


@dataclass(frozen=True)
class Problem:
    """A pipeline to be placed on sites."""

    pipeline: Pipeline
    sites: Sites

    @cached_property
    def flow(self) -> Flow:
        """Rates and sizes along the pipeline."""
        return flow(self.pipeline)

    @cached_property
    def routes(self) -> Routes:
        """Ways between the sites."""
        return Routes(self.sites)

    @cached_property
    def hosts(self) -> tuple[Site, ...]:
        """Sites with slots, in the order of the routes' vertices."""
        by_name = self.sites.by_name
        return tuple(site for site in (by_name[name] for name in self.routes.names) if site.slots > 0)

    @cached_property
    def host_number(self) -> Mapping[str, int]:
        """Places in `hosts` by site name."""
        return MappingProxyType({site.name: i for i, site in enumerate(self.hosts)})

    @cached_property
    def host_vertices(self) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Vertices of the hosts."""
        vertex = self.routes.vertex
        return np.array([vertex[site.name] for site in self.hosts], np.int32)

    @staticmethod
    def rule(operator: Operator) -> Rule:
        """Return what the operator's own rules ask of a site: its `at`, or the kind of site it belongs on.

        A source without `at` goes to a leaf (also when nobody reads it), a sink to a root.
        """
        if operator.at is not None:
            return operator.at
        if operator.is_source:
            return "leaf"
        return "root" if operator.is_sink else "any"

    def allowed(self, operator: Operator) -> tuple[int, ...]:
        """Return the numbers of the hosts that the operator's own rules allow, ascending."""
        rule = self.rule(operator)
        known = self._known_rules.get(rule)
        if known is None:
            known = self._known_rules[rule] = tuple(self._matching(rule))
        return known

    def allowed_set(self, operator: Operator) -> frozenset[int]:
        """Return the same as a set."""
        rule = self.rule(operator)
        known = self._known_sets.get(rule)
        if known is None:
            known = self._known_sets[rule] = frozenset(self.allowed(operator))
        return known

    def _matching(self, rule: Rule) -> Iterable[int]:
        if rule == "any":
            return range(len(self.hosts))
        if isinstance(rule, str):
            return (i for i, site in enumerate(self.hosts) if site.kind == rule)
        tags = {entry.removeprefix(TAG) for entry in rule if entry.startswith(TAG)}
        named = {self.host_number[entry] for entry in rule if entry in self.host_number}
        if tags:
            named |= {i for i, site in enumerate(self.hosts) if not tags.isdisjoint(site.tags)}
        return sorted(named)

    @cached_property
    def _known_sets(self) -> dict[Rule, frozenset[int]]:
        return {}

    @cached_property
    def _known_rules(self) -> dict[Rule, tuple[int, ...]]:
        return {}

    @cached_property
    def bounds(self) -> Bounds:
        """What scales the terms of F, as the pipeline's objective overrides it."""
        pipeline, wanted = self.pipeline, self.pipeline.objective
        speeds = [site.speed for site in self.hosts]
        least_level = min((site.level for site in self.hosts), default=1)
        slowest = min(speeds, default=1.0)
        worst = worst_routes(self.routes, self.host_vertices, self.flow.size_bytes)
        quickest: dict[Rule, float] = {}

        def at_best(operator: Operator) -> float:
            rule = self.rule(operator)
            if rule not in quickest:
                quickest[rule] = max((speeds[i] for i in self.allowed(operator)), default=max(speeds, default=1.0))
            return operator.work_s / quickest[rule]

        streams = range(len(pipeline.streams))
        rt_min = self.longest([at_best(operator) for operator in pipeline.operators], [0.0] * len(streams))
        rt_max = self.longest([operator.work_s / slowest for operator in pipeline.operators], worst.delay_s)
        rf_max = sum(max(0, operator.needs - least_level) for operator in pipeline.operators)
        bw_max = sum(self.flow.load_bps(i) for i in streams) * worst.most_links

        def pick(override: float | None, computed: float) -> float:
            return computed if override is None else override

        low, high = pick(wanted.rt_min_s, rt_min), pick(wanted.rt_max_s, rt_max)
        if high < low:
            text = (
                f"objective.rt: the largest response time, {high:g} s, is below the smallest, {low:g} s, so that "
                "slower placements would be better; raise 'max', lower 'min' or leave both out"
            )
            raise SpecError(Mistake("HW1405", text))
        return Bounds(low, high, pick(wanted.rf_max, float(rf_max)), pick(wanted.bw_max_bps, bw_max))

    def longest(self, processing_s: list[float], delay_s: list[float] | tuple[float, ...]) -> float:
        """Return the longest path that counts; processing by operator, delay by stream, in file order."""
        return self.longest_path(processing_s, delay_s)[0]

    def longest_path(
        self, processing_s: list[float], delay_s: list[float] | tuple[float, ...]
    ) -> tuple[float, tuple[str, ...]]:
        """Return the length of the longest path that counts, and its operators; the first among equals."""
        pipeline = self.pipeline
        number = {operator.name: i for i, operator in enumerate(pipeline.operators)}
        between = pipeline.objective.between
        head: dict[str, float] = {}
        before: dict[str, str | None] = {}
        stream_number = pipeline.first_stream
        best, last = 0.0, None
        for name in pipeline.order:
            operator = pipeline.operators[number[name]]
            longest, came = None, None
            if operator.is_source and (between is None or name == between[0]):
                longest = 0.0
            for i, stream in enumerate(operator.inputs, stream_number[name]):
                if stream.source in head and (longest is None or head[stream.source] + delay_s[i] > longest):
                    longest, came = head[stream.source] + delay_s[i], stream.source
            if longest is None:
                continue
            head[name], before[name] = longest + processing_s[number[name]], came
            if operator.is_sink and (between is None or name == between[1]) and (last is None or head[name] > best):
                best, last = head[name], name
        path: list[str] = []
        while last is not None:
            path.append(last)
            last = before[last]
        return best, tuple(reversed(path))
