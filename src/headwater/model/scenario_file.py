"""What does a scenario file say? Makes a `Scenario` of its text and names every mistake with file and line.

Sites, pipeline, placement and traces may be files of their own; `fetch` gives their content. Events are looked at
in the order of time, so that nothing happens to what is not there yet, or not there any more.

    HW1030  event before the beginning or after the end
    HW1031  schedule while no machine runs
    HW1032  trace with more than a value for a step
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from headwater.errors import Mistake, SpecError
from headwater.model import fields
from headwater.model.fields import Body, Field, Known, Spot, read_fields, read_named
from headwater.model.files import read_pipeline, read_placement, read_sites
from headwater.model.pipeline import Pipeline
from headwater.model.report import Report, describe, quote
from headwater.model.scenario import LANE_HOP_S, Machine, Scenario, Simulated
from headwater.model.scenario_events import Stage, read_events
from headwater.model.scenario_machines import read_machine
from headwater.model.scenario_operators import LOAD, read_load, read_operator
from headwater.model.sites import Sites
from headwater.model.text import parse
from headwater.model.tree import line_of
from headwater.model.workload import Sinusoid
from headwater.model.workload_file import Fetch

__all__ = ["read_scenario"]

MOST_STEPS = 2_000_000_000
T = TypeVar("T")


def _as_it_is(spot: Spot, key: str) -> object:
    return spot.body[key]


FILE = {
    "scenario": Field("name", fields.name),
    "duration": Field("duration_s", fields.quantity("time", above_zero=True), "1000 s"),
    "step": Field("step_s", fields.quantity("time", above_zero=True)),
    "seed": Field("seed", fields.whole(0, 2**32 - 1)),
    "knows": Field("knows", fields.one_of({word: word for word in ("measured", "declared")})),
    "machines": Field("machines", fields.mapping),
    "operators": Field("operators", fields.mapping),
    "events": Field("events", fields.entries),
    "sites": Field("sites", fields.name),
    "pipeline": Field("pipeline", fields.name),
    "placement": Field("placement", _as_it_is),
    "loads": Field("loads", fields.mapping),
    "lanes": Field("lanes", fields.mapping),
}


def read_scenario(
    text: bytes, file: str, fetch: Fetch, pack_methods: Collection[str], place_methods: Collection[str]
) -> Scenario:
    """Return the scenario of a scenario file.

    Args:
        text: What the file holds, YAML or JSON.
        file: Its name, for messages.
        fetch: Gives the content of a file that it names, or raises SpecError.
        pack_methods: What a schedule of operators on machines may name.
        place_methods: What a schedule of a pipeline on sites may name.

    Raises:
        SpecError: Every mistake in it and in the files that it names.
    """
    report = Report(file)
    root = parse(text, report, with_lines=True).root
    if not isinstance(root, dict):
        raise report.stop("HW1005", f"the file must hold a mapping; found {describe(root)}.", line_of(root) or 1)
    others: list[Mistake] = []
    scenario = _Reader(report, root, fetch, others).scenario(pack_methods, place_methods)
    if report or others:
        raise SpecError(*(report.error().mistakes if report else ()), *others)
    return scenario


class _Reader:
    """Reads one file; mistakes of others that it names go to `others`."""

    def __init__(self, report: Report, root: Body, fetch: Fetch, others: list[Mistake]) -> None:
        self.report, self.root, self.fetch, self.others = report, root, fetch, others
        self.spot = Spot(report, root, "the file")

    def scenario(self, pack_methods: Collection[str], place_methods: Collection[str]) -> Scenario:
        found = read_fields(self.spot, FILE)
        duration_s, step_s = found.get("duration_s", 1.0), found.get("step_s", 1.0)
        if duration_s / step_s > MOST_STEPS:
            self.spot.add("HW1007", "step", f"makes more than {MOST_STEPS} steps. Lengthen it.")
        if duration_s < step_s:
            self.spot.add("HW1007", "step", "is longer than the duration. Shorten it.")
        sites = self._other(found, "sites", read_sites)
        pipeline = self._other(found, "pipeline", lambda text, name: read_pipeline(text, name, sites))
        machines = self._machines(found, sites)
        operators = self._own_operators(found, step_s)
        if pipeline is not None:
            operators = self._pipeline_operators(found, pipeline, sites, step_s)
        stage = Stage(
            self.report, self.fetch, duration_s, step_s, sites, place_methods if pipeline is not None else pack_methods,
            {one.name: one for one in operators}, {one.name: one for one in machines}, pipeline is not None,
        )  # fmt: skip
        events = read_events(stage, found.get("events", []))
        everybody = (*operators, *stage.later)
        self._check_streams(everybody)
        _check_on(self.report, found, everybody, stage)
        name = found.get("name") or self.report.file.replace("\\", "/").rpartition("/")[2].rpartition(".")[0]
        return Scenario(
            name or "scenario", duration_s, tuple(machines), tuple(operators), events, step_s, found.get("seed", 0),
            sites, pipeline, found.get("knows", "measured"),
        )  # fmt: skip

    def _other(self, found: dict[str, Any], key: str, read: Callable[[bytes, str], T]) -> T | None:
        """Return what another file says; None where none is named or it is wrong."""
        if key not in found:
            return None
        try:
            return read(self.fetch(found[key]), found[key])
        except SpecError as error:
            self.others.extend(error.mistakes)
            return None

    def _machines(self, found: dict[str, Any], sites: Sites | None) -> list[Machine]:
        if "sites" in found:
            if "machines" in found:
                self.spot.add("HW1011", "machines", "does not go with 'sites', which are the machines. Keep one.")
            hosts = [site for site in (sites.sites if sites is not None else ()) if site.slots > 0]
            return [
                Machine(one.name, float(one.slots) if one.cores is None else one.cores, one.speed, one.price)
                for one in hosts
            ]
        given: Body = found.get("machines", {})
        return [read_machine(read_named(self.report, given, name, "machine"), name) for name in given]

    def _own_operators(self, found: dict[str, Any], step_s: float) -> list[Simulated]:
        given: Body = found.get("operators", {})
        if "pipeline" in found and "operators" in found:
            self.spot.add("HW1011", "operators", "does not go with 'pipeline', which has them. Keep one.")
        if not self.root.get("pipeline") and not given and not _adds_operators(self.root.get("events")):
            self.report.add("HW1012", "the file has no operators. Add some under 'operators'.", line_of(self.root))
        return [
            read_operator(read_named(self.report, given, name, "operator"), name, self.fetch, step_s) for name in given
        ]

    def _pipeline_operators(
        self, found: dict[str, Any], pipeline: Pipeline, sites: Sites | None, step_s: float
    ) -> list[Simulated]:
        """Return the operators of a pipeline file, with their loads, lanes and sites as the scenario has them."""
        if sites is None:
            if "sites" not in found:
                self.spot.add("HW1012", "pipeline", "needs 'sites' to run on. Name a sites file.")
            return []
        on = self._placement(found, pipeline, sites)
        loads, lanes = found.get("loads", {}), found.get("lanes", {})
        for key, given in (("loads", loads), ("lanes", lanes)):
            for name in given:
                if name not in pipeline.by_name:
                    self.report.add(
                        "HW1004",
                        f"'{key}' names the operator {quote(name)}, which does not exist."
                        f"{self.report.tip(name, pipeline.by_name)}",
                        line_of(given, name),
                    )
        made = []
        for one in pipeline.operators:
            load: Any = Sinusoid(one.rate_rps) if one.is_source else None
            more: dict[str, Any] = {}
            if one.name in loads:
                spot = read_named(self.report, loads, one.name, "load")
                read = read_fields(spot, LOAD)
                load = read_load(spot, read, self.fetch, step_s) or load
                more = {"is_poisson": read.get("is_poisson", False)}
            lane = "real-time"
            if one.name in lanes:
                lane = fields.one_of({word: word for word in LANE_HOP_S})(
                    Spot(self.report, lanes, "'lanes'"), one.name
                ) or lane  # fmt: skip
            site = on.get(one.name)
            made.append(
                Simulated(
                    one.name,
                    load,
                    one.inputs,
                    one.work_s,
                    one.rate_factor,
                    one.size_bytes,
                    one.size_factor,
                    lane=lane,
                    on=() if site is None else (site,),
                    **more,
                )
            )
        return made

    def _placement(self, found: dict[str, Any], pipeline: Pipeline, sites: Sites) -> dict[str, str]:
        given = found.get("placement")
        if isinstance(given, str):
            return self._other(found, "placement", lambda text, name: read_placement(text, name, pipeline, sites)) or {}
        if given is not None and not isinstance(given, dict):
            self.spot.add("HW1005", "placement", f"must be a file's name or a mapping; found {describe(given)}.")
            return {}
        placed: dict[str, str] = {}
        for name, site in (given or {}).items():
            line = line_of(given, name)
            if name not in pipeline.by_name or str(site) not in sites.by_name:
                text = f"'placement' puts {quote(name)} on {quote(str(site))}; one of them does not exist."
                self.report.add("HW1004", text, line)
            else:
                placed[name] = str(site)
        return placed

    def _check_streams(self, operators: Collection[Simulated]) -> None:
        """Report streams from nowhere and circles."""
        from_whom = {one.name: [stream.source for stream in one.inputs] for one in operators}
        given = self.root.get("operators")
        for name, sources in from_whom.items():
            for source in sources:
                if source not in from_whom:
                    line = line_of(given, name) if isinstance(given, dict) and name in given else None
                    self.report.add(
                        "HW1004",
                        f"operator {quote(name)} reads {quote(source)}, which does not exist."
                        f"{self.report.tip(source, from_whom)}",
                        line,
                    )
        left = {name: {one for one in sources if one in from_whom} for name, sources in from_whom.items()}
        while ready := [name for name, sources in left.items() if not sources]:
            for name in ready:
                del left[name]
            for waiting in left.values():
                waiting.difference_update(ready)
        if left:
            line = line_of(given, next(iter(left))) if isinstance(given, dict) else None
            names = ", ".join(quote(name) for name in list(left)[:10])
            self.report.add("HW1009", f"operators read each other in a circle: {names}. Break it.", line)


def _adds_operators(events: object) -> bool:
    return isinstance(events, list) and any(isinstance(one, dict) and one.get("do") == "new-operator" for one in events)


def _check_on(report: Report, found: dict[str, Any], operators: Collection[Simulated], stage: Stage) -> None:
    """Report machines in 'on' that there never are."""
    known = Known("machine", stage.all_machines)
    given = found.get("operators", {})
    for one in operators:
        for name in one.on:
            if name not in known.names:
                body = given.get(one.name) if isinstance(given, dict) else None
                report.add(
                    "HW1004",
                    f"operator {quote(one.name)}: 'on' names the machine {quote(name)}, which does not exist."
                    f"{report.tip(name, known.names)}",
                    line_of(body, "on") if isinstance(body, dict) else None,
                )
