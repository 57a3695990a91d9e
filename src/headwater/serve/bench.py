"""How is an experiment made of trials?

An experiment brings a testbed up, measures its links, and then tries its cases in rounds, each round in an order of
its own, so that what changes on the machine meanwhile meets all cases alike. Each trial is kept as JSON as soon as
it is over. A trial on ground that was off is marked, not left out.

    HW1320   a scale, number or time that an experiment cannot have, or examples that are not there
"""

from __future__ import annotations

import json
import os
import platform
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

from headwater.bind.jars import Jars
from headwater.errors import BindError, Mistake, SpecError
from headwater.model.project import Project
from headwater.model.sites import Sites
from headwater.model.units import Kind, show
from headwater.serve import disk
from headwater.serve.bench_report import Report, Table, shown, write_report
from headwater.serve.output import Output
from headwater.serve.progress import Teller, note
from headwater.serve.reading import fetched_jars, made_archives
from headwater.serve.trial import Outcome, Times, Trial, run_trial
from headwater.testbed.bed import Bed
from headwater.testbed.calibrate import Measured, calibrate
from headwater.testbed.ground import way_in
from headwater.testbed.private import become

__all__ = [
    "Balance",
    "Books",
    "Case",
    "Keep",
    "Ledger",
    "Options",
    "Stage",
    "begin",
    "check",
    "finish",
    "ground_table",
    "in_rounds",
    "marked",
    "marks",
    "only",
    "scaled",
    "stage",
    "step_name",
    "thinned",
    "wan_bytes",
]

RESULT = "result.json"
FAR_S = 0.005  # one way; a link from here on is one of the wide-area network
LATE_SHARE, BEHIND_S = 0.02, 1.0  # more late packets, or a feed that is further behind, mark a trial
DONE = 0
STEP = " at "  # in the name of a step, between case and factor


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for."""

    examples: str  # the folder with the projects
    scale: float  # of the rates of the paper
    repeat: int
    times: Times
    seed: int
    out: str  # folder


@dataclass(frozen=True, slots=True)
class Case:
    """One of the things that an experiment compares."""

    name: str
    trial: Trial


Books = Mapping[str, Mapping[str, int]]  # by topic: owed, came, lost, doubled
Keep = Callable[[Outcome], Mapping[str, Any]]  # what is kept of an outcome besides what all trials have
Ledger = Callable[[Outcome], Books]  # of a whole trial: what was fed, and what came of it


@dataclass(frozen=True, slots=True)
class Balance:
    """What became of the records of all trials."""

    owed: int
    lost: int
    doubled: int


@dataclass(frozen=True, slots=True)
class _Tried:
    """A trial that is over."""

    number: int  # of its round
    trial: Trial
    outcomes: tuple[Outcome, ...]
    books: Books


def check(options: Options, *needed: str) -> None:
    """Refuse what cannot be, before anything is started.

    Raises:
        SpecError: HW1320.
    """
    wrong = []
    if not options.scale > 0:
        wrong.append(f"--scale is {options.scale:g}; rates need more than 0 of those of the paper")
    if options.repeat < 1:
        wrong.append(f"--repeat is {options.repeat}; at least one round is needed")
    if not options.times.watched_s > 0 or options.times.warm_s < 0:
        wrong.append("--for and --warm are times: the first above 0, the second not below")
    missing = [name for name in needed if not os.path.exists(os.path.join(options.examples, name))]
    if missing:
        wrong.append(
            f"there is no '{os.path.join(options.examples, missing[0])}'; run this in Headwater's folder, or name its "
            "examples with --examples"
        )
    if wrong:
        raise SpecError(*(Mistake("HW1320", text) for text in wrong))
    if os.path.isdir(options.out):
        disk.check_writable(os.path.join(options.out, RESULT))


def begin(options: Options, *needed: str) -> None:
    """Refuse what cannot be; a user who is not root goes on in namespaces of their own.

    Raises:
        SpecError: HW1320.
        BindError: HW4901, this machine cannot carry a testbed.
    """
    check(options, *needed)
    way = way_in()
    if way:
        made_archives(fetched_jars())  # there is no way to the internet in there
        become(way)


def step_name(case: str, factor: float) -> str:
    """Return how one step of a case is called.

    >>> step_name("fog", 0.5)
    'fog at 0.5'
    """
    return f"{case}{STEP}{factor:g}"


def in_rounds(options: Options) -> str:
    """Return in how many rounds an experiment goes, in words."""
    return f"{options.repeat} rounds" if options.repeat > 1 else "1 round"


def scaled(project: Project, scale: float) -> Project:
    """Return a project whose sources give so many times their rate."""
    operators = tuple(
        replace(one, rate_rps=one.rate_rps * scale) if one.is_source else one for one in project.pipeline.operators
    )
    return replace(project, pipeline=replace(project.pipeline, operators=operators))


def only(project: Project, *sinks: str) -> Project:
    """Return a project with nothing in it but these sinks and what leads to them."""
    wanted: set[str] = set()
    names = list(sinks)
    while names:
        name = names.pop()
        wanted.add(name)
        names += [stream.source for stream in project.pipeline.by_name[name].inputs if stream.source not in wanted]
    operators = tuple(one for one in project.pipeline.operators if one.name in wanted)
    definitions = tuple(one for one in project.definitions if one.name in wanted)
    return replace(project, pipeline=replace(project.pipeline, operators=operators), definitions=definitions)


def thinned(sites: Sites, scale: float) -> Sites:
    """Return sites whose wide-area links have so many times their bandwidth.

    With rates scaled alike, every one of these links is as full as it would be at the paper's rates.
    """
    links = tuple(
        replace(link, bandwidth_bps=link.bandwidth_bps * scale) if link.latency_s >= FAR_S else link
        for link in sites.links
    )
    return Sites(sites.sites, links)


class Stage:
    """A testbed that is up and measured, on which cases are tried."""

    def __init__(self, name: str, bed: Bed, jars: Jars, archives: Mapping[str, Path], options: Options) -> None:
        """Take what trials need; `stage` makes it."""
        self._name = name
        self._jars = jars
        self._archives = archives
        self._options = options
        self.bed = bed
        self.ground: tuple[Measured, ...] = ()
        self.begun_s = time.time()
        self.kept: list[dict[str, Any]] = []  # of trials, as JSON has them
        self._tried: list[_Tried] = []

    def measure(self, say: Callable[[str], None]) -> None:
        """Measure delay and bandwidth of every link, one by one."""
        self.ground = calibrate(self.bed, with_rate=True, say=say)

    def rounds(self, path: str, cases: Sequence[Case], keep: Keep, ledger: Ledger) -> dict[str, list[Outcome]]:
        """Try every case in every round; return the outcomes by case, in the order of rounds.

        Cases of one round with the same placement and feed are tried once, and share what came out. The steps of a
        trial are cases of their own: `step_name`.

        Raises:
            BindError: a trial failed twice.
        """
        found: dict[str, list[Outcome]] = {}
        turns = [(number, case) for number in range(self._options.repeat) for case in self._shuffled(cases, number)]
        with Teller(self._name) as teller:
            for done, (number, case) in enumerate(turns):
                one = self._alike(number, case.trial)
                is_shared = one is not None
                if one is None:
                    what = f"round {number + 1}, {case.name}"
                    note(f"{self._name}: {what} ({done + 1} of {len(turns)})")
                    outcomes = self._try(number, case, path, partial(_say, teller, what, done / len(turns)))
                    one = _Tried(number, case.trial, outcomes, ledger(outcomes[0]))
                    self._tried.append(one)
                for outcome in one.outcomes:
                    name = step_name(case.name, outcome.factor) if len(one.outcomes) > 1 else case.name
                    found.setdefault(name, []).append(outcome)
                    self._keep(name, number, outcome, {"shares_trial": is_shared, "ledger": one.books, **keep(outcome)})
        places = [case.name for case in cases]
        return dict(sorted(found.items(), key=lambda item: places.index(item[0].partition(STEP)[0])))

    def balance(self) -> Balance:
        """Return what became of the records of all trials; one that cases share counts once."""
        books = [book for one in self._tried for book in one.books.values()]
        return Balance(*(sum(book[name] for book in books) for name in ("owed", "lost", "doubled")))

    def _shuffled(self, cases: Sequence[Case], number: int) -> list[Case]:
        order = list(cases)
        random.Random(f"{self._options.seed}/{number}").shuffle(order)
        return order

    def _alike(self, number: int, trial: Trial) -> _Tried | None:
        """Return a trial of this round that this one would only repeat."""
        same = (one for one in self._tried if one.number == number and _is_alike(one.trial, trial))
        return next(same, None)

    def _try(self, number: int, case: Case, path: str, say: Callable[[str], None]) -> tuple[Outcome, ...]:
        """Run a trial, and once more if brokers or runners do not start."""
        trial = replace(case.trial, seed=self._options.seed + number)
        try:
            return run_trial(trial, path, self.bed, self._jars, self._archives, say)
        except BindError as error:
            note(f"{error}; tried again")
        return run_trial(trial, path, self.bed, self._jars, self._archives, say)

    def _keep(self, name: str, number: int, outcome: Outcome, more: Mapping[str, Any]) -> None:
        self.kept.append(
            {
                "case": name,
                "round": number,
                "marks": marks(outcome, self.ground),
                "placement": dict(outcome.placement),
                "predicted_rt_s": outcome.rt_s,
                "start_s": round(outcome.start_s, 3),
                "drain_s": round(outcome.drain_s, 3),
                "watched_s": (outcome.end_ms - outcome.begin_ms) / 1000,
                "wan_bytes": wan_bytes(outcome, self.bed.sites),
                "links": [{"from": a, "to": b, "bytes": size} for (a, b), size in outcome.link_bytes.items()],
                "late_share": round(outcome.late_share, 4),
                "cores": {site: round(used, 4) for site, used in outcome.cores.items()},
                "fed": [asdict(one) for one in outcome.fed],
                "delays": [asdict(one) for one in outcome.ground],
                "warnings": list(outcome.warnings),
                **more,
            }
        )
        folder = Path(self._options.out)
        folder.mkdir(parents=True, exist_ok=True)
        disk.write_text(str(folder / RESULT), json.dumps(self.result(), indent=1))

    def result(self) -> dict[str, Any]:
        """Return everything so far, as JSON has it."""
        options, status = self._options, self.bed.status()
        return {
            "experiment": self._name,
            "scale": options.scale,
            "repeat": options.repeat,
            "warm_s": options.times.warm_s,
            "watched_s": options.times.watched_s,
            "seed": options.seed,
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.begun_s)),
            "seconds": round(time.time() - self.begun_s, 1),
            "machine": {
                "cores": len(os.sched_getaffinity(0)),
                "memory_bytes": psutil.virtual_memory().total,
                "system": f"{platform.system()} {platform.release()}",
                "python": platform.python_version(),
            },
            "testbed": {"tier": status.tier, "because": status.because},
            "ground": [asdict(one) for one in self.ground],
            "trials": self.kept,
        }


@contextmanager
def stage(name: str, sites: Sites, options: Options) -> Iterator[Stage]:
    """Bring the testbed of an experiment up, measure it, and remove it afterwards.

    Raises:
        BindError: HW4901, this machine cannot carry a testbed; what else a testbed can raise.
    """
    jars = fetched_jars()
    archives = made_archives(jars)
    bed = Bed(f"{name}{os.getpid()}", sites)
    before = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with Teller("testbed") as teller:
            bed.up(lambda text: teller.say(text, None))
            made = Stage(name, bed, jars, archives, options)
            note(f"{name}: measuring {len(sites.links)} links")
            made.measure(lambda text: teller.say(text, None))
        yield made
    finally:
        bed.down()
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does: what was started is ended first."""
    del number, frame
    raise KeyboardInterrupt


def finish(report: Report, made: Stage, options: Options, output: Output, verdicts: Mapping[str, Any]) -> int:
    """Write result and report, show them, and return the exit code."""
    folder = Path(options.out)
    result = {**made.result(), "verdicts": dict(verdicts), "sentences": list(report.sentences)}
    folder.mkdir(parents=True, exist_ok=True)
    disk.write_text(str(folder / RESULT), json.dumps(result, indent=1))
    page = write_report(report, folder)
    summary = {key: value for key, value in result.items() if key not in {"trials", "ground"}}
    output.answer({**summary, "report": str(page), "result": str(folder / RESULT)}, *shown(report))
    note(f"report written to {page}, all figures to {folder / RESULT}")
    return DONE


def wan_bytes(outcome: Outcome, sites: Sites) -> int:
    """Return what the links of the wide-area network carried in the watched stretch, both ways together."""
    far = {frozenset((link.a, link.b)) for link in sites.links if link.latency_s >= FAR_S}
    return sum(size for way, size in outcome.link_bytes.items() if frozenset(way) in far)


def marks(outcome: Outcome, ground: Sequence[Measured]) -> list[str]:
    """Return what was wrong with the ground of a trial; nothing, if it was as it should be."""
    found = [f"{_told(one)} before this trial" for one in outcome.ground if one.is_off]
    found += [f"{_told(one)} before the experiment" for one in ground if one.is_off]
    if outcome.late_share > LATE_SHARE:
        found.append(f"{outcome.late_share:.1%} of the packets of a link came out more than 5 ms too late")
    late = [one for one in outcome.fed if one.behind_s > BEHIND_S]
    found += [f"the feed of site '{one.site}' was {show(one.behind_s, 'time')} behind" for one in late]
    return found


def ground_table(made: Stage) -> Table:
    """Return what was measured of the links before the experiment, and which trials are marked."""
    rows = tuple(
        (
            f"{one.origin} to {one.target}",
            one.what,
            show(one.asked, _kind(one)),
            "nothing came" if one.found is None else show(float(f"{one.found:.4g}"), _kind(one)),
            "off" if one.is_off else "",
        )
        for one in made.ground
    )
    note = (
        "Delays may be 2 ms and 5 % too long, rates 5 % off; more than 2 % of packets 5 ms late, or a feed 1 s behind, "
    )
    note += f"mark a trial. {marked(made.kept)}"
    return Table("The ground", ("link", "what", "asked", "measured", ""), rows, note)


def marked(trials: Sequence[Mapping[str, Any]]) -> str:
    """Return which trials are marked and why; what holds for all of them is said once.

    >>> marked([{"case": "td", "round": 0, "marks": ["slow", "late"]}, {"case": "td", "round": 1, "marks": ["slow"]}])
    'All trials: slow. Marked: td in round 1 (late).'
    """
    common = [mark for mark in trials[0]["marks"] if all(mark in one["marks"] for one in trials)] if trials else []
    own = []
    for one in trials:
        found = [mark for mark in one["marks"] if mark not in common]
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            own.append(f"{one['case']} in round {one['round'] + 1} ({found[0]}{more})")
    said = []
    if common:
        more = f", and {len(common) - 1} more of this kind" if len(common) > 1 else ""
        said.append(f"All trials: {common[0]}{more}.")
    if own:
        said.append(f"Marked: {'; '.join(own)}.")
    return " ".join(said) or "No trial is marked."


def _told(one: Measured) -> str:
    found = "nothing" if one.found is None else show(float(f"{one.found:.4g}"), _kind(one))
    return f"{one.what} from '{one.origin}' to '{one.target}' was {found}, not {show(one.asked, _kind(one))},"


def _kind(one: Measured) -> Kind:
    return "time" if one.what == "delay" else "bandwidth"


def _say(teller: Teller, what: str, share: float, text: str) -> None:
    teller.say(f"{what}: {text}", share)


def _is_alike(one: Trial, other: Trial) -> bool:
    return (one.prepared.placement, one.sources, one.steps) == (other.prepared.placement, other.sources, other.steps)
