"""What becomes of a pipeline while a link is cut?

Fire detection over a thin link, which is cut for a while and restored: what was fed meanwhile waits on the small
box's side, and comes when the link is back. Counted are records lost and doubled; measured is how long it takes
until alerts are as young as before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from headwater.errors import Mistake, SpecError
from headwater.serve.bench import Case, Options, Stage, begin, finish, ground_table, in_rounds, stage
from headwater.serve.bench_figures import estimate, in_ms, median
from headwater.serve.bench_fire import ALERTS, TEMPERATURES, ledger
from headwater.serve.bench_offload import BOX, fire_on_thin_link
from headwater.serve.bench_report import Panel, Picture, Report, Table
from headwater.serve.output import Output
from headwater.serve.trial import Arrival, Outcome
from headwater.testbed.bed import Bed

__all__ = ["bench_cut", "caught_up_s"]

LINK = ("hub", "dc")
LATER_S = 5.0  # the link is cut so long after the watched stretch begins: before, one sees how it is without
SLACK = 2.0  # a record is as young as before when it is at most so many times as old as they were


def bench_cut(options: Options, cut_s: float, output: Output) -> int:
    """Run the experiment and return the exit code.

    Raises:
        SpecError: HW1320, and those of the example's files.
        BindError: HW4901, HW4605, and what starting brokers and runners can raise.
    """
    if not 0 < cut_s <= options.times.watched_s - LATER_S:
        raise SpecError(
            Mistake("HW1320", f"--cut is {cut_s:g} s; it takes more than 0 and {LATER_S:g} s less than --for")
        )
    begin(options, "fire/spark-pipeline.yml", "fire/thin.yaml", "fire/fire.profile", "fire/records.py")
    placed = fire_on_thin_link(options)
    with stage("cut", placed.sites, options) as made:
        cutter = _Cutter(made.bed, cut_s)
        case = Case("cut", replace(placed.moved, on_begin=cutter.cut))
        outcomes = made.rounds(os.path.join(options.examples, "fire"), [case], cutter.kept, ledger)["cut"]
        report, verdicts = _report(outcomes, made, options, cut_s)
        return finish(report, made, options, output, verdicts)


class _Cutter:
    """Cuts the link when told to, and remembers when it was back the last time."""

    def __init__(self, bed: Bed, cut_s: float) -> None:
        self._bed = bed
        self._cut_s = cut_s
        self._restored_ms = 0

    def cut(self) -> None:
        time.sleep(LATER_S)
        self._bed.cut(*LINK)
        time.sleep(self._cut_s)
        self._bed.restore(*LINK)
        self._restored_ms = int(time.time() * 1000)

    def kept(self, outcome: Outcome) -> Mapping[str, Any]:
        back_ms = self._restored_ms
        rows = _after_begin(outcome)
        return {
            "latencies_s": [round(one.latency_s, 4) for one in rows],
            "caught_up_s": caught_up_s(rows, outcome.begin_ms + int(LATER_S * 1000), back_ms),
            "restored_ms": back_ms - outcome.begin_ms,
        }


def _after_begin(outcome: Outcome) -> list[Arrival]:
    rows = [one for topic in (ALERTS, TEMPERATURES) for one in outcome.watched(topic)]
    return sorted(rows, key=lambda one: one.written_ms)


def caught_up_s(rows: Sequence[Arrival], cut_ms: int, back_ms: int) -> float:
    """Return how long after a link was back the last record was written that the outage had made old.

    Args:
        rows: What came out, in the order of writing.
        cut_ms: When the link was cut.
        back_ms: When it was back.
    """
    usual_s = median([one.latency_s for one in rows if one.written_ms < cut_ms])
    old = [one.written_ms for one in rows if one.written_ms >= cut_ms and one.latency_s > SLACK * usual_s]
    return max(0.0, (max(old, default=back_ms) - back_ms) / 1000)


def _report(
    outcomes: Sequence[Outcome], made: Stage, options: Options, cut_s: float
) -> tuple[Report, Mapping[str, Any]]:
    balance = made.balance()
    caught = estimate([trial["caught_up_s"] for trial in made.kept])
    first, rows = outcomes[0], _after_begin(outcomes[0])
    usual = estimate(
        [
            median([one.latency_s for one in _after_begin(each) if one.written_ms < each.begin_ms + LATER_S * 1000])
            for each in outcomes
        ]
    )
    sentence = (
        f"The link between '{LINK[0]}' and '{LINK[1]}' was cut for {cut_s:g} s while reports came from '{BOX}': of "
        f"{balance.owed} records that were owed, {balance.lost} were lost and {balance.doubled} came twice; "
        f"{caught.mean:.1f} s after it was back, records were as young as before ({in_ms(usual)})."
    )
    points = [((one.created_ms - first.begin_ms) / 1000, one.latency_s, 0.0) for one in rows]
    table = Table(
        "Rounds",
        ("round", "owed", "lost", "doubled", "caught up after"),
        tuple(
            (
                str(trial["round"] + 1),
                *(str(sum(book[name] for book in trial["ledger"].values())) for name in ("owed", "lost", "doubled")),
                f"{trial['caught_up_s']:.1f} s",
            )
            for trial in made.kept
        ),
        f"Caught up: no record is more than {SLACK:g} times as old as they were before the cut.",
    )
    panel = Panel(
        "age of a record when it is written", "lines", "s", {"fire": sorted(points)}, "s, when the record was born"
    )
    verdicts = {**asdict(balance), "caught_up_s": caught.mean, "cut_s": cut_s}
    title = f"A link cut for {cut_s:g} s, {in_rounds(options)}"
    picture = Picture("cut", f"Fire detection while a link is cut for {cut_s:g} s", (panel,))
    return Report(title, (sentence,), (table, ground_table(made)), (picture,)), verdicts
