"""What does each operator of a project cost, and what does it give?

Runs each operator alone, writers before readers: once on the sample to learn what it gives, which the next ones
read, and then several times on enough rows to tell what it costs (`serve.timing`), each time beside a query without
it (`bind.measure`). Each operator gets the settings of the lane in which it would run: a Python function that is
called a record at a time costs more than in batches.

What it costs to read a broker and to write to one is in no operator's work: `work` is what the operator adds.

    HW1804  a source without records
    HW1805  an operator fails on its records
    HW1806  a source that a sample cannot stand in for
    HW4702  Spark fails, and not because of a record
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from headwater.author.graph import build
from headwater.author.load import Loaded
from headwater.bind.failure import failure_of
from headwater.bind.measure import Bench, Rows
from headwater.bind.outside import Relation, intercepted, listen
from headwater.bind.session import lane_settings
from headwater.cost.flow import flow
from headwater.errors import BindError, HeadwaterError, Mistake, SpecError
from headwater.model.profile import OperatorProfile
from headwater.model.project import Definition, Project
from headwater.model.report import listed, quote
from headwater.model.units import show
from headwater.plan.lanes import Lane, choose, emits
from headwater.serve.sample import for_topics
from headwater.serve.timing import Timing, Trial, timed

__all__ = ["Measuring", "Say"]

DIGITS = 4  # of what is measured
PIECES = 10  # records that are given one by one

Say = Callable[[str, float | None], None]
Make = Callable[[Sequence[Any]], Any]  # streams in -> stream out


@dataclass
class Measuring:
    """One project that is being measured."""

    project: Project
    loaded: Loaded
    bench: Bench
    spec: Mapping[str, Any]
    say: Say
    kept: dict[str, Rows] = field(default_factory=dict)  # what each operator gives
    notes: list[str] = field(default_factory=list)

    def all(self) -> Iterator[OperatorProfile]:
        """Measure every operator."""
        order = self.project.pipeline.order
        emitted, rates = emits(self.project), flow(self.project.pipeline).in_rate_rps
        read = {name for one in self.project.definitions for name in one.reads}
        relations = {name: self._relations(name) for name in order if not self.project.by_name[name].reads}
        heard = self._heard(relations) if self.spec["seconds"] is not None else {}
        for i, name in enumerate(order):
            one = self.project.by_name[name]
            lane = choose([one], emitted, rates[name], name not in read)
            self.bench.set(lane_settings(lane.name))
            self.say(name, i / len(order))
            if one.reads:
                found = self._reader(one, lane, i / len(order))
            else:
                found = self._source(one, lane, relations[name], heard.get(name, ()), i / len(order))
            yield _rounded(found)
        if not self.bench.is_avro:
            self.notes.append("some rows have no form in Avro; all sizes of those are of their JSON.")

    def _relations(self, name: str) -> list[Relation]:
        """Return what a source loads from outside."""
        found: list[Relation] = []

        def note(relation: Relation) -> Any:
            found.append(relation)
            return relation.frame

        with intercepted(note):
            build(self.loaded, name, {})
        one = self.project.by_name[name]
        is_live = self.spec["seconds"] is not None
        strange = next((each.format for each in found if each.format != "kafka"), None)
        if found and (is_live or strange is None):
            return found
        what = f"reads {strange or one.format or 'a stream'}, and a sample stands in for Kafka only. Use --seconds"
        if not found:
            what = "loads its stream in a way that cannot be replaced. Write spark.readStream.format(..).load()"
        raise SpecError(Mistake("HW1806", f"source {quote(name)} {what}.", one.file, one.line))

    def _heard(self, relations: Mapping[str, Sequence[Relation]]) -> dict[str, list[tuple[Rows, float | None]]]:
        """Listen to all sources at once."""
        seconds = float(self.spec["seconds"])

        def wait() -> None:
            begun_s = time.monotonic()
            while (passed_s := time.monotonic() - begun_s) < seconds:
                self.say(f"listening, {passed_s:.0f} of {seconds:g} s", None)
                time.sleep(min(1.0, seconds - passed_s))

        frames = {f"{name}/{i}": one.frame for name, found in relations.items() for i, one in enumerate(found)}
        numbers = {key: str(number) for number, key in enumerate(frames)}
        heard = listen({numbers[key]: frame for key, frame in frames.items()}, self.bench.folder("live"), wait)
        result: dict[str, list[tuple[Rows, float | None]]] = {}
        for name, found in relations.items():
            for i, one in enumerate(found):
                each = heard[numbers[f"{name}/{i}"]]
                rows = self.bench.read(each.folder, one.frame.schema.json())
                if not rows.count:
                    raise self._empty(name, f"nothing came in within {seconds:g} s. Feed it, or listen longer.")
                result.setdefault(name, []).append((rows, each.rate_rps))
        return result

    def _source(
        self,
        one: Definition,
        lane: Lane,
        relations: Sequence[Relation],
        heard: Sequence[tuple[Rows, float | None]],
        share: float,
    ) -> OperatorProfile:
        inputs = [rows for rows, _ in heard] or [self._sampled(one.name, each) for each in relations]

        def make(streams: Sequence[Any]) -> Any:
            given = iter(streams)
            with intercepted(lambda _: next(given)):
                return build(self.loaded, one.name, {})

        out, state = self._kept(one, make, inputs, lane)
        came = [rate for _, rate in heard]
        total = sum(each.count for each in inputs)
        rate_rps = None
        if came and None not in came:
            rate_rps = sum(rate for rate in came if rate is not None) * out.count / total
        timing = self._timed(one, make, inputs, lane, share)
        per_row = total / out.count if out.count else 1.0
        return OperatorProfile(
            one.name,
            rate_rps,
            out.mean_bytes if out.count else None,
            work_s=timing.work_s * per_row,
            spread_s=timing.spread_s * per_row,
            state_bytes=state,
            records=timing.rows,
        )

    def _sampled(self, name: str, relation: Relation) -> Rows:
        folder = self.bench.folder("sample")
        count, topics = for_topics(Path(self.spec["samples"][name]), relation.options, folder / "records.parquet")
        if not count:
            wanted = relation.options.get("subscribe") or relation.options.get("subscribepattern", "")
            raise self._empty(name, f"the sample has no record of topic {quote(wanted)}; it has {listed(topics)}.")
        return self.bench.read(folder, relation.frame.schema.json())

    def _empty(self, name: str, text: str) -> SpecError:
        one = self.project.by_name[name]
        return SpecError(Mistake("HW1804", f"source {quote(name)}: {text}", one.file, one.line))

    def _reader(self, one: Definition, lane: Lane, share: float) -> OperatorProfile:
        inputs = [self.kept[name] for name in one.reads]
        if not all(each.count for each in inputs):
            empty = [name for name, each in zip(one.reads, inputs, strict=True) if not each.count]
            self.kept[one.name] = Rows(self.bench.folder("rows"), one.schema_json, 0, 0.0)
            self.notes.append(
                f"operator {quote(one.name)} was not measured: no record of the sample came out of {listed(empty)}. "
                "Use a longer sample."
            )
            return OperatorProfile(one.name)

        def make(streams: Sequence[Any]) -> Any:
            return build(self.loaded, one.name, dict(zip(one.reads, streams, strict=True)))

        out, state = self._kept(one, make, inputs, lane)
        count, size = sum(each.count for each in inputs), sum(each.size_bytes for each in inputs)
        rate_factor = out.count / count
        if "aggregate" in one.traits and lane.mode == "update":
            rate_factor = self._update_factor(one, make, inputs, lane, rate_factor)
        timing = self._timed(one, make, inputs, lane, share)
        return OperatorProfile(
            one.name,
            rate_factor=rate_factor,
            size_factor=out.mean_bytes / (size / count) if out.count else None,
            work_s=timing.work_s,
            spread_s=timing.spread_s,
            state_bytes=state,
            records=timing.rows,
        )

    def _update_factor(
        self, one: Definition, make: Make, inputs: Sequence[Rows], lane: Lane, in_one_batch: float
    ) -> float:
        """Return the rows that an aggregate gives for each record, when it tells every update."""
        if lane.name == "micro-batch":
            self.notes.append(
                f"operator {quote(one.name)} tells each group once a batch: its rate factor is that of one batch of "
                "the whole sample, and higher in shorter ones."
            )
            return in_one_batch
        pieces = [self.bench.pieces(each, PIECES) for each in inputs]
        streams = [self.bench.stream(each, one_by_one=True) for each in pieces]
        with _Blamed(one):
            out, _ = self.bench.keep(make(streams), lane.mode)
        self.notes.append(
            f"operator {quote(one.name)} tells every update: its rate factor is that of {PIECES} records one by one."
        )
        return out.count / sum(each.count for each in pieces)

    def _kept(self, one: Definition, make: Make, inputs: Sequence[Rows], lane: Lane) -> tuple[Rows, int | None]:
        self.bench.fit(max(each.mean_bytes for each in inputs))
        with _Blamed(one):
            out, state = self.bench.keep(make([self.bench.stream(each) for each in inputs]), lane.mode)
        self.kept[one.name] = out
        return out, state if one.is_stateful else None

    def _timed(self, one: Definition, make: Make, inputs: Sequence[Rows], lane: Lane, share: float) -> Timing:
        """Return what an operator costs for a row in."""
        repeat = int(self.spec["repeat"])
        total = sum(each.count for each in inputs)
        mean_bytes = sum(each.size_bytes for each in inputs) / total
        laid: dict[int, list[Rows]] = {}  # of the trial before, by the rows asked for

        def run(count: int, number: int) -> Trial:
            if count not in laid:
                for each in (rows for found in laid.values() for rows in found):
                    self.bench.remove(each)
                laid.clear()
                laid[count] = [self.bench.laid(each, max(1, round(count * each.count / total))) for each in inputs]
            rows = sum(each.count for each in laid[count])
            self.say(f"{one.name}, {f'run {number} of {repeat}' if number else 'warming up'}, {rows} records", share)
            without = self.bench.without([self.bench.stream(each) for each in laid[count]])
            without_s = self.bench.cost_s(without, "append")
            return Trial(
                rows, without_s, self.bench.cost_s(make([self.bench.stream(each) for each in laid[count]]), lane.mode)
            )

        with _Blamed(one):
            found = timed(run, total, mean_bytes, float(self.spec["least_s"]), repeat)
        for each in (rows for found_rows in laid.values() for rows in found_rows):
            self.bench.remove(each)
        speed = float(self.spec["speed"])
        found = Timing(found.work_s * speed, found.spread_s * speed, found.rows)
        if not found.is_told:
            most = show(found.work_s + found.spread_s, "time")
            self.notes.append(
                f"operator {quote(one.name)} costs less than can be told from noise: at most {most} for a record."
            )
        return found


@dataclass(frozen=True, slots=True)
class _Blamed:
    """Lays what goes wrong inside a block to an operator."""

    operator: Definition

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Turn what Spark raised into a mistake."""
        if not isinstance(error, Exception) or isinstance(error, HeadwaterError):
            return
        failure, one = failure_of(error), self.operator
        trace_lines = "".join(f"\n    {line}" for line in failure.trace.splitlines())
        if failure.blame == "outside":
            raise BindError(f"HW4702 Spark failed while operator {quote(one.name)} was measured: {failure.text}")
        text = f"operator {quote(one.name)} fails on a record of the sample: {failure.text}{trace_lines}"
        raise SpecError(Mistake("HW1805", text, one.file, one.line)) from error


def _rounded(found: OperatorProfile) -> OperatorProfile:
    """Return the same to as many digits as can be known."""
    values = {one.name: getattr(found, one.name) for one in fields(found)}
    changes = {name: float(f"{value:.{DIGITS}g}") for name, value in values.items() if isinstance(value, float)}
    return replace(found, **changes)  # type: ignore[arg-type]  # those that are numbers stay numbers
