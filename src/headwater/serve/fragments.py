"""What does a runner make of what it is told to run?

A request names a part of the runner's project, or a job by itself: a function in uploaded code with a topic to read
and one to write. Both become a `Query`. Where brokers listen, what the query wrote before and whose sources it
takes over come with the request, because they change while the runner lives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater.author.entry import Entry, load_entry, traits_of
from headwater.author.graph import build
from headwater.author.load import Loaded, load
from headwater.bind.channel import job_rows
from headwater.bind.query import Ground, Query
from headwater.bind.seat import sources_of
from headwater.bind.sources import FETCH, FETCH_FROM, channel_rows, counted, records_of, union
from headwater.model.keep import from_json
from headwater.model.project import Definition, Project, Trait
from headwater.plan.deploy import FAN_OUT, Part, Step, part_from
from headwater.plan.lanes import choose

__all__ = ["Fragments", "Made"]

Until = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Made:
    """A query, and a way to the rows of each of its operators."""

    query: Query
    until: Until  # the rows of one of its operators, of the records wanted
    own: Callable[[], dict[str, list[str]]] = dict  # by operator: the sources that only Spark knows


class Fragments:
    """Makes the queries of one runner."""

    def __init__(self, site: str, folder: Path, brokers: Mapping[str, str], project: Path | None, path: str) -> None:
        """Take what all queries share.

        Args:
            site: Where the runner stands.
            folder: For checkpoints and tables, unless a request names another.
            brokers: Addresses that are known from the start, by name.
            project: What was read of a project, as JSON; None: there are only jobs by themselves.
            path: Of the user's project.
        """
        self.brokers = dict(brokers)
        self._site = site
        self._folder = folder
        self.project: Project | None = None if project is None else from_json(project.read_text("utf-8"))
        self._path = path
        self._spark: Any = None
        self._loaded: Loaded | None = None
        self._entries: dict[tuple[str, str], Entry] = {}
        self._kinds: dict[tuple[str, str, int], tuple[str, frozenset[Trait]]] = {}

    def use(self, spark: Any) -> None:
        """Take the session, and load the project if there is one."""
        self._spark = spark
        if self.project is not None:
            self._loaded = load(self._path, spark)

    def make(self, request: Mapping[str, Any]) -> Made:
        """Return the query that a request asks for."""
        self.brokers.update(request.get("brokers", {}))
        if request.get("fetch_bytes"):
            self._spark.conf.set(FETCH, str(int(request["fetch_bytes"])))
            self._spark.conf.set(FETCH_FROM, self.brokers[self._site])
        else:  # nobody has a goal any more
            self._spark.conf.unset(FETCH)
        ground = Ground(self._site, Path(request.get("folder", self._folder)), self.brokers)
        made = self._job(request["job"], ground) if "job" in request else self._part(part_from(request["part"]), ground)
        self.tell(made.query, request)
        return made

    def tell(self, query: Query, request: Mapping[str, Any]) -> None:
        """Let a query know what comes with a request and may differ from one start to the next."""
        query.writer = str(request.get("writer", ""))
        query.begun_ms = int(request.get("begun_ms", 0))
        query.seat = dict(request.get("seat", {}))
        formerly = ((str(broker), str(topic)) for broker, topic in request.get("formerly", ()))
        query.formerly = tuple((self.brokers.get(broker, broker), topic) for broker, topic in formerly)

    def _part(self, part: Part, ground: Ground) -> Made:
        assert self.project is not None, "a part belongs to a project"
        assert self._loaded is not None, "which was loaded at the start"
        definition = self.project.by_name[part.steps[-1].of]
        if part.output == "sink":  # its options may name the broker of this site
            options = dict(self._loaded.by_name[definition.name].options).items()
            definition = replace(definition, options=tuple((str(key), str(value)) for key, value in options))
        query = Query(part, ground, definition, lambda wanted: self._rows(part, wanted))
        return Made(query, lambda name, wanted: self._rows(part, wanted, name), lambda: self._own(part))

    def _own(self, part: Part) -> dict[str, list[str]]:
        """Return what each operator of a part that reads no other reads from outside."""
        assert self._loaded is not None
        outer = [step for step in part.steps if not step.reads]
        return {step.name: list(sources_of(build(self._loaded, step.of, {}), self.brokers)) for step in outer}

    def _rows(self, part: Part, wanted: Any, until: str | None = None) -> Any:
        """Return the rows of a part's output, or of another of its operators; each operator's are counted."""
        assert self.project is not None
        assert self._loaded is not None
        frames, of = {}, {}
        for one in part.inputs:
            schema = self.project.by_name[one.of].schema_json
            frames[one.operator] = channel_rows(self._spark, self.brokers[one.broker], one.topic, schema, wanted)
            of[one.operator] = one.of
        for step in part.steps:
            reads = self.project.by_name[step.of].reads
            given = {name: union([frames[one] for one in step.reads if of[one] == name]) for name in reads}
            frames[step.name] = counted(build(self._loaded, step.of, given), step.name)
            of[step.name] = step.of
            if step.name == until:
                break
        return frames[until or part.steps[-1].name]

    def _job(self, job: Mapping[str, Any], ground: Ground) -> Made:
        name = str(job["name"])
        entry = self._entry(str(job["code"]), str(job["entry"]))
        sources = [(self.brokers.get(broker, broker), str(topic)) for broker, topic in job["sources"]]
        broker, topic = job["sink"]
        address = self.brokers.get(broker, broker)

        def rows(wanted: Any) -> Any:
            taken = [job_rows(records_of(self._spark, *source, wanted)) for source in sources]
            return counted(entry.rows(union(taken)), name)

        frame = rows(None)
        schema_json, traits = self._kind(str(job["code"]), str(job["entry"]), len(sources), frame)
        definition = Definition(
            name,
            "sink",
            (),
            schema_json,
            "",
            0,
            traits,
            "kafka",
            (("kafka.bootstrap.servers", address), ("topic", str(topic))),
        )
        emitted = {name: ("updates", "a job by itself")} if "aggregate" in definition.traits else {}
        lane = choose([replace(definition, lane=job.get("lane"))], emitted, float(job.get("rate_rps", 0.0)), True)  # type: ignore[arg-type]
        part = Part(
            name,
            ground.site,
            (Step(name, name, ()),),
            (),
            "sink",
            None,
            str(broker),
            f"hw.{name}.quarantine",
            lane.name,
            lane.mode,
            lane.is_stateful,
            lane.because,
            "stop",
            "exactly-once",
            0.0,
            not FAN_OUT.isdisjoint(definition.traits),
        )
        query = Query(part, ground, definition, lambda wanted: frame if wanted is None else rows(wanted))
        return Made(query, lambda _, wanted: rows(wanted))

    def _kind(self, code: str, entry: str, sources: int, frame: Any) -> tuple[str, frozenset[Trait]]:
        """Return schema and traits of a job's rows; which topics it reads makes no difference to them."""
        key = (code, entry, sources)
        if key not in self._kinds:
            self._kinds[key] = (frame.schema.json(), traits_of(frame))
        return self._kinds[key]

    def _entry(self, code: str, entry: str) -> Entry:
        """Return a function of uploaded code; the same code is loaded once."""
        if (code, entry) not in self._entries:
            self._entries[code, entry] = load_entry(Path(code), entry)
        return self._entries[code, entry]
