"""What does each operator of a project cost, and what does it give?

Runs each operator alone, writers before readers: once on the records of its sources (`serve.listening`) to learn
what it gives, which the next ones read, and then several times on enough rows to tell what it costs
(`serve.timing`), each time beside a query without it (`bind.measure`). Each operator gets the settings of the lane in
which it would run: a Python function that is called a record at a time costs more than in batches.

What it costs to read a broker and to write to one is in no operator's work: `work` is what the operator adds.

    HW1805  an operator fails on its records
    HW4702  Spark fails, and not because of a record
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from headwater.author.graph import build
from headwater.author.load import Loaded
from headwater.bind.failure import failure_of
from headwater.bind.measure import Bench, Rows, busy, others_share
from headwater.bind.outside import intercepted
from headwater.bind.session import lane_settings
from headwater.cost.flow import flow
from headwater.errors import BindError, HeadwaterError, Mistake, SpecError
from headwater.model.profile import OperatorProfile
from headwater.model.project import Definition, Project
from headwater.model.report import listed, quote
from headwater.model.units import show
from headwater.plan.lanes import Lane, choose, emits
from headwater.serve.listening import Inflow, Say, live, sampled
from headwater.serve.timing import Timing, Trial, timed

__all__ = ["Measuring"]

DIGITS = 4  # of what is measured
LEAST_SPREAD = 0.1  # relative; from one start of the JVM to the next, its compiler decides otherwise
CROWDED = 0.2  # more than that, where all processors are busy with other programs
QUIET = 0.2  # share of the processors that others may use without a word about it
PIECES = 10  # records that are given one by one

Make = Callable[[Sequence[Any]], Any]  # streams in -> stream out


@dataclass(frozen=True, slots=True)
class _Alone:
    """An operator by itself, and what it gave."""

    one: Definition
    lane: Lane
    make: Make
    inputs: Sequence[Rows]
    given: OperatorProfile  # all but what it costs
    per_record: float = 1.0  # rows in for a record that work is counted by


@dataclass
class Measuring:
    """One project that is being measured."""

    project: Project
    loaded: Loaded
    bench: Bench
    spec: Mapping[str, Any]  # as `serve.profiling` writes it
    say: Say
    kept: dict[str, Rows] = field(default_factory=dict)  # what each operator gives
    notes: list[str] = field(default_factory=list)
    others: float = 0.0  # share of the processors that other programs had meanwhile, at most

    def all(self) -> Iterator[OperatorProfile]:
        """Measure every operator: first what each gives, so that what fails does so soon, then what it costs."""
        order = self.project.pipeline.order
        emitted, rates = emits(self.project), flow(self.project.pipeline).in_rate_rps
        read = {name for one in self.project.definitions for name in one.reads}
        inflows = self._inflows()
        alone = []
        for i, name in enumerate(order):
            self.say(f"what '{name}' gives", i / len(order) / 4)
            one = self.project.by_name[name]
            lane = choose([one], emitted, rates[name], name not in read)
            self.bench.set(lane_settings(lane.name))
            found = self._reader(one, lane) if one.reads else self._source(one, lane, inflows[name])
            if found is None:
                yield OperatorProfile(name)
            else:
                alone.append(found)
        for i, each in enumerate(alone):
            share = (1 + 3 * i / len(alone)) / 4
            yield _rounded(self._costs(each, lambda text, share=share: self.say(text, share)))  # type: ignore[misc]
        if self.others > QUIET:
            self.notes.append(
                f"other programs used up to {self.others:.0%} of this machine's processors meanwhile, which makes work "
                "seem more than it is. Measure again when it is quiet."
            )
        if not self.bench.is_avro:
            self.notes.append("some rows have no form in Avro; all sizes of those are of their JSON.")

    def _inflows(self) -> Mapping[str, Sequence[Inflow]]:
        sources = [one for one in self.project.definitions if not one.reads]
        if self.spec["seconds"] is None:
            return sampled(self.loaded, sources, self.spec["samples"], self.bench)
        with _Blamed(sources[0], "could not be read"):
            return live(self.loaded, sources, float(self.spec["seconds"]), self.bench, self.say)

    def _source(self, one: Definition, lane: Lane, inflows: Sequence[Inflow]) -> _Alone:
        inputs = [each.rows for each in inflows]

        def make(streams: Sequence[Any]) -> Any:
            given = iter(streams)
            with intercepted(lambda _: next(given)):
                return build(self.loaded, one.name, {})

        out, state = self._gives(one, lane, make, inputs)
        total = sum(each.count for each in inputs)
        rates = [each.rate_rps for each in inflows if each.rate_rps is not None]
        given = OperatorProfile(
            one.name,
            sum(rates) * out.count / total if len(rates) == len(inflows) else None,
            out.mean_bytes if out.count else None,
            state_bytes=state,
        )
        return _Alone(one, lane, make, inputs, given, total / out.count if out.count else 1.0)

    def _reader(self, one: Definition, lane: Lane) -> _Alone | None:
        inputs = [self.kept[name] for name in one.reads]
        if not any(each.count for each in inputs):
            self.kept[one.name] = Rows(self.bench.folder("rows"), one.schema_json, 0, 0.0)
            self.notes.append(
                f"operator {quote(one.name)} was not measured: no record of the sample comes out of "
                f"{listed(one.reads)}. Use a longer sample."
            )
            return None

        def make(streams: Sequence[Any]) -> Any:
            return build(self.loaded, one.name, dict(zip(one.reads, streams, strict=True)))

        out, state = self._gives(one, lane, make, inputs)
        count, size = sum(each.count for each in inputs), sum(each.size_bytes for each in inputs)
        rate_factor = out.count / count
        if "aggregate" in one.traits and lane.mode == "update":
            rate_factor = self._update_factor(one, lane, make, inputs, rate_factor)
        size_factor = out.mean_bytes / (size / count) if out.count else None
        given = OperatorProfile(one.name, rate_factor=rate_factor, size_factor=size_factor, state_bytes=state)
        return _Alone(one, lane, make, inputs, given)

    def _update_factor(
        self, one: Definition, lane: Lane, make: Make, inputs: Sequence[Rows], in_one_batch: float
    ) -> float:
        """Return the rows that an aggregate gives for each record, when it tells every update."""
        if lane.name == "micro-batch":
            self.notes.append(
                f"operator {quote(one.name)} tells each group once a batch: its rate factor is that of one batch of "
                "the whole sample, and higher in shorter ones."
            )
            return in_one_batch
        pieces = [self.bench.pieces(each, PIECES) for each in inputs if each.count]
        streams = [self.bench.stream(each, one_by_one=True) for each in pieces]
        with _Blamed(one):
            out, _ = self.bench.keep(make(streams), lane.mode)
        self.notes.append(
            f"operator {quote(one.name)} tells every update: its rate factor is that of {PIECES} records one by one."
        )
        return out.count / sum(each.count for each in pieces)

    def _gives(self, one: Definition, lane: Lane, make: Make, inputs: Sequence[Rows]) -> tuple[Rows, int | None]:
        """Run an operator on the sample, and keep what it gives for those that read it."""
        self.bench.fit(max(each.mean_bytes for each in inputs))
        with _Blamed(one):
            out, state = self.bench.keep(make([self.bench.stream(each) for each in inputs]), lane.mode)
        self.kept[one.name] = out
        return out, state if one.is_stateful else None

    def _costs(self, alone: _Alone, say: Callable[[str], None]) -> OperatorProfile:
        """Return what an operator gives and costs."""
        one, speed = alone.one, float(self.spec["speed"])
        self.bench.set(lane_settings(alone.lane.name))
        self.bench.fit(max(each.mean_bytes for each in alone.inputs))
        before = busy()
        with _Blamed(one):
            found = self._timed(alone, say)
        others = others_share(before, busy())
        self.others = max(self.others, others)
        spread_s = max(found.spread_s, (LEAST_SPREAD + CROWDED * others) * found.work_s)
        if not found.is_told:
            most = show((found.work_s + spread_s) * speed * alone.per_record, "time")
            self.notes.append(
                f"operator {quote(one.name)} costs less than can be told from noise: at most {most} for a record."
            )
        return replace(
            alone.given,
            work_s=found.work_s * speed * alone.per_record,
            spread_s=spread_s * speed * alone.per_record,
            records=found.rows,
        )

    def _timed(self, alone: _Alone, say: Callable[[str], None]) -> Timing:
        """Return what an operator costs for a row in."""
        bench, repeat = self.bench, int(self.spec["repeat"])
        total = sum(each.count for each in alone.inputs)
        laid: dict[int, list[Rows]] = {}  # by the rows asked for

        def run(count: int, number: int) -> Trial:
            for other in [each for each in laid if each not in {1, count}]:
                self._remove(laid.pop(other))
            if count not in laid:
                parts = [max(1, round(count * each.count / total)) for each in alone.inputs]
                laid[count] = [bench.laid(each, part) for each, part in zip(alone.inputs, parts, strict=True)]
            found = laid[count]
            rows = sum(each.count for each in found)
            say(f"{alone.one.name}, {f'run {number} of {repeat}' if number else 'warming up'}, {rows} records")
            without_s = bench.cost_s(bench.without([bench.stream(each) for each in found]), "append")
            with_s = bench.cost_s(alone.make([bench.stream(each) for each in found]), alone.lane.mode)
            return Trial(rows, without_s, with_s)

        mean_bytes = sum(each.size_bytes for each in alone.inputs) / total
        found = timed(run, total, mean_bytes, float(self.spec["least_s"]), repeat)
        for each in laid.values():
            self._remove(each)
        return found

    def _remove(self, laid: Sequence[Rows]) -> None:
        for each in laid:
            self.bench.remove(each)


@dataclass(frozen=True, slots=True)
class _Blamed:
    """Lays what goes wrong inside a block to an operator."""

    operator: Definition
    what: str = "fails on a record of the sample"

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
        text = f"operator {quote(one.name)} {self.what}: {failure.text}{trace_lines}"
        raise SpecError(Mistake("HW1805", text, one.file, one.line)) from error


def _rounded(found: OperatorProfile) -> OperatorProfile:
    """Return the same to as many digits as can be known."""
    values = {one.name: getattr(found, one.name) for one in fields(found)}
    changes = {name: float(f"{value:.{DIGITS}g}") for name, value in values.items() if isinstance(value, float)}
    return replace(found, **changes)  # type: ignore[arg-type]  # those that are numbers stay numbers
