"""What do a project's sources get to read while it is measured?

Finds what each source loads from outside, and lays down the rows that stand in for it: records of a sample, or what
really came in while the sources were listened to.

    HW1804  a source without records
    HW1806  a source that a sample cannot stand in for
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwater.author.graph import build
from headwater.author.load import Loaded
from headwater.bind.measure import Bench, Rows
from headwater.bind.outside import Relation, intercepted, listen
from headwater.errors import Mistake, SpecError
from headwater.model.project import Definition
from headwater.model.report import listed, quote
from headwater.serve.sample import for_topics

__all__ = ["Inflow", "Say", "live", "sampled"]

Say = Callable[[str, float | None], None]  # what is done now, and how much of all is done


class Inflow(NamedTuple):
    """What stands in for one stream that a source loads."""

    rows: Rows
    rate_rps: float | None = None  # rows a second; None: not known


def sampled(
    loaded: Loaded, sources: Sequence[Definition], samples: Mapping[str, str], bench: Bench
) -> Mapping[str, Sequence[Inflow]]:
    """Return the records of samples, for each stream that each source loads.

    Args:
        loaded: The project.
        sources: Its sources.
        samples: The files that `serve.sample.laid` wrote, by source.
        bench: Where it is laid down.

    Raises:
        SpecError: HW1804 and HW1806.
    """
    return {
        one.name: [Inflow(_taken(one, each, samples[one.name], bench)) for each in _relations(loaded, one, False)]
        for one in sources
    }


def live(
    loaded: Loaded, sources: Sequence[Definition], seconds: float, bench: Bench, say: Say
) -> Mapping[str, Sequence[Inflow]]:
    """Return what comes in from outside within some seconds, for each stream that each source loads.

    Raises:
        SpecError: HW1804 and HW1806.
        BindError: HW4701, nothing answers.
    """
    pairs = [(one, each) for one in sources for each in _relations(loaded, one, True)]

    def wait() -> None:
        begun_s = time.monotonic()
        while (passed_s := time.monotonic() - begun_s) < seconds:
            say(f"listening, {passed_s:.0f} of {seconds:g} s", None)
            time.sleep(min(1.0, seconds - passed_s))

    heard = listen({str(i): each.frame for i, (_, each) in enumerate(pairs)}, bench.folder("live"), wait)
    found: dict[str, list[Inflow]] = {}
    for i, (one, each) in enumerate(pairs):
        rows = bench.read(heard[str(i)].folder, each.frame.schema.json())
        if not rows.count:
            raise _empty(one, f"nothing came in within {seconds:g} s. Feed it, or listen longer.")
        found.setdefault(one.name, []).append(Inflow(rows, heard[str(i)].rate_rps))
    return found


def _relations(loaded: Loaded, one: Definition, is_live: bool) -> list[Relation]:
    """Return what a source loads from outside."""
    found: list[Relation] = []

    def note(relation: Relation) -> Any:
        found.append(relation)
        return relation.frame

    with intercepted(note):
        build(loaded, one.name, {})
    strange = next((each.format for each in found if each.format != "kafka"), None)
    if found and (is_live or strange is None):
        return found
    what = f"reads {strange or one.format or 'a stream'}, and a sample stands in for Kafka only. Use --seconds"
    if not found:
        what = "loads its stream in a way that cannot be replaced. Write spark.readStream.format(..).load()"
    raise SpecError(Mistake("HW1806", f"source {quote(one.name)} {what}.", one.file, one.line))


def _taken(one: Definition, relation: Relation, sample: str, bench: Bench) -> Rows:
    folder = bench.folder("sample")
    count, topics = for_topics(Path(sample), relation.options, folder / "records.parquet")
    if not count:
        wanted = relation.options.get("subscribe") or relation.options.get("subscribepattern", "")
        raise _empty(one, f"the sample has no record of topic {quote(wanted)}; it has {listed(topics)}.")
    return bench.read(folder, relation.frame.schema.json())


def _empty(one: Definition, text: str) -> SpecError:
    return SpecError(Mistake("HW1804", f"source {quote(one.name)}: {text}", one.file, one.line))
