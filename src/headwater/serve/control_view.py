"""How do plans, jobs and sites look to a person?

Takes what the controller said (`serve.told`) and gives things that rich can print; prints nothing itself.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headwater.model.units import show
from headwater.serve.plain import plain
from headwater.serve.told import Change, Failure, JobSeen, Object, PlanSeen, SiteSeen

__all__ = [
    "SIGNS",
    "changed_line",
    "failures_view",
    "history_view",
    "job_view",
    "jobs_table",
    "plan_view",
    "progress_view",
    "sites_table",
    "status_view",
    "summary_of",
    "tokens_view",
]

SIGNS: Mapping[str, tuple[str, str]] = {  # sign and style of each bucket, in the order in which they are shown
    "start": ("+", "green"),
    "move": ("→", "cyan"),
    "rewire": ("~", "yellow"),
    "update": ("*", "magenta"),
    "stop": ("-", "red"),
    "keep": ("=", "dim"),
}
STATES = {"running": "green", "failed": "bold red", "waiting": "yellow", "starting": "yellow", "stopped": "dim"}
MOST_KEPT = 12  # jobs that nothing happens to, by name
MOST_CHANGES = 200  # lines of a plan
MOST_FAILURES = 12
DONE, FAILED, GOING = "✓", "✗", "·"


def plan_view(title: str, plan: PlanSeen, hint: str = "") -> RenderableType:
    """Return a plan: what happens to each job, why, and how long its records wait."""
    if plan.is_empty:
        count = len(plan.changes)
        jobs = "there are no jobs" if not count else f"{_counted(count, 'job is', 'jobs are')} as wanted"
        return Group(_line((plain(title), "bold")), _line(("nothing to do", "bold green"), f": {jobs}"))
    parts: list[RenderableType] = [_line((plain(title), "bold")), ""]
    if plan.to_do:
        parts.append(Padding(_changes(plan), (0, 0, 0, 2), expand=False))
    kept = [one.job for one in plan.changes if one.bucket == "keep"]
    if kept:
        shown = ", ".join(map(plain, kept[:MOST_KEPT]))
        more = f" and {len(kept) - MOST_KEPT} more" if len(kept) > MOST_KEPT else ""
        parts.append(Padding(Text(f"= keep    {shown}{more}", style="dim"), (0, 0, 0, 2), expand=False))
    parts += ["", summary_of(plan)]
    if hint:
        parts.append(_line((plain(hint), "dim")))
    return Group(*parts)


def summary_of(plan: PlanSeen) -> Text:
    """Return a plan in one line.

    >>> from headwater.serve.told import plan_of
    >>> move = {"bucket": "move", "job": "D", "site": "cloud", "from_site": "edge", "because": "", "pause_s": 0.9}
    >>> str(summary_of(plan_of({"changes": [move, {"bucket": "keep", "job": "A"}]})))
    '1 to move, 1 keep; the longest pause is about 0.9 s'
    """
    line, is_first = Text(), True
    for bucket, (_, style) in SIGNS.items():
        count = sum(one.bucket == bucket for one in plan.changes)
        if count:
            line.append("" if is_first else ", ")
            line.append(str(count), style=f"bold {style}" if bucket != "keep" else style)
            line.append(f" {bucket}" if bucket == "keep" else f" to {bucket}")
            is_first = False
    leftovers = sum(one.get("act") == "drop" for one in plan.steps)
    if not plan.to_do and plan.steps:
        line.append(f"; {_counted(leftovers, 'copy', 'copies')} from before to clear away")
    if plan.longest_pause_s:
        line.append(f"; the longest pause is about {_time(plan.longest_pause_s)}")
    elif plan.to_do:
        line.append("; no record waits")
    return line


def changed_line(change: Change, took_s: float) -> str:
    """Return one change that is done, as a line."""
    return plain(
        f"{SIGNS.get(change.bucket, ('?', ''))[0]} {change.job}: {change.bucket} {_where(change)}, {took_s:.1f} s"
    )


def progress_view(
    changes: Sequence[Change],
    done_s: Mapping[str, float],
    states: Mapping[str, str],
    failed: Iterable[Failure],
    at_s: float,
    is_lost: bool = False,
) -> RenderableType:
    """Return how far a plan is: a line for each change, those that are done with the time they took."""
    wrong = {one.job for one in failed}
    table = _bare()
    left = sorted(changes, key=lambda one: (one.job in done_s, list(SIGNS).index(one.bucket)))
    for change in left[:MOST_KEPT]:
        if change.job in done_s:
            mark, told = Text(DONE, style="green"), f"{done_s[change.job]:.1f} s"
        else:
            is_wrong = change.job in wrong
            mark = Text(FAILED if is_wrong else GOING, style="red" if is_wrong else "yellow")
            told = states.get(change.job, "") or "…"
        sign, style = SIGNS[change.bucket]
        table.add_row(mark, Text(sign, style=style), plain(change.job), change.bucket, plain(_where(change)), told)
    more = [] if len(left) <= MOST_KEPT else [_line((f"  and {len(left) - MOST_KEPT} more", "dim"))]
    lost = "   the controller does not answer" if is_lost else ""
    head = _line((f"{len(done_s)} of {len(changes)} done", "bold"), (f"   {at_s:.0f} s", "dim"), (lost, "red"))
    return Group(head, Padding(table, (0, 0, 0, 2), expand=False), *more)


def failures_view(failures: Sequence[Failure], jobs: Sequence[JobSeen] = ()) -> RenderableType:
    """Return what failed and what to do about it."""
    parts: list[RenderableType] = []
    told = {job.name for job in jobs}
    failures = [one for one in failures if one.act or one.job not in told]  # a job that fails is told as such
    for one in failures[:MOST_FAILURES]:
        what = f"job '{one.job}'" if one.job else "a step"
        act = f" ({one.act})" if one.act else ""
        where = f" at site '{one.site}'" if one.site else ""
        parts.append(_line(("✗ ", "bold red"), (plain(f"{what}{where}{act}"), "bold"), f": {plain(one.text)}"))
    for job in jobs:
        parts.append(
            _line(
                ("✗ ", "bold red"),
                (plain(f"job '{job.name}' at site '{job.site}' is {job.state}"), "bold"),
                f": {plain(job.text)}" if job.text else "",
            )
        )
        parts.append(_line((plain(f"  look: headwater logs {job.name}"), "dim")))
    if len(failures) > MOST_FAILURES:
        parts.append(_line(f"and {len(failures) - MOST_FAILURES} more (--json names all)"))
    return Group(*parts)


def status_view(sites: Sequence[SiteSeen], jobs: Sequence[JobSeen], failures: Sequence[Failure]) -> RenderableType:
    """Return how everything is."""
    silent = {one.name for one in sites if not one.is_reached}
    running = sum(one.state == "running" and one.site not in silent for one in jobs)
    reached = len(sites) - len(silent)
    head = _line(
        (_counted(len(sites), "site", "sites"), "bold"),
        ("", "") if reached == len(sites) else (f", {len(sites) - reached} silent", "bold red"),
        "; ",
        (_counted(len(jobs), "job", "jobs"), "bold"),
        "" if not jobs else (", all running" if running == len(jobs) else f", {running} running"),
    )
    parts: list[RenderableType] = [head]
    if sites:
        parts.append(sites_table(sites))
    if jobs:
        parts.append(jobs_table(jobs, silent))
    told = [*failures]
    failed = [one for one in jobs if one.state == "failed"]
    if told or failed:
        parts.append(failures_view(told, failed))
    return Group(*parts)


def sites_table(sites: Sequence[SiteSeen]) -> Table:
    """Return the sites, a row each."""
    table = _table("site", "state", "broker", "memory", "jobs", right=("memory", "jobs"))
    for one in sites:
        silent = "silent" if one.seen_s is None else f"silent for {_age(one.seen_s)}"
        state = Text("reached", style="green") if one.is_reached else Text(silent, style="bold red")
        memory = "-" if one.memory_bytes is None else show(one.memory_bytes, "size")
        jobs = "-" if one.jobs is None else str(one.jobs)
        table.add_row(Text(plain(one.name)), state, Text(plain(one.broker or "-")), memory, jobs)
    return table


def jobs_table(jobs: Sequence[JobSeen], silent: Collection[str] = ()) -> Table:
    """Return the jobs, a row each; columns that nobody tells anything in are left out.

    Args:
        jobs: In the order of the rows.
        silent: Sites that do not answer: what they said last is told as such.
    """
    known = [key for key in ("in_rps", "out_rps", "lag", "p50_s") if any(key in one.numbers for one in jobs)]
    heads = {"in_rps": "in/s", "out_rps": "out/s", "lag": "lag", "p50_s": "p50"}
    table = _table("job", "of", "site", "state", *(heads[key] for key in known), right=tuple(heads.values()))
    above = None
    for one in jobs:
        of, above = "" if one.composition == above else one.composition, one.composition
        site = f"{one.site} → {one.wanted_site}" if one.wanted_site not in (None, one.site) else one.site
        state = "leaving" if one.is_leaving else one.state
        if one.site in silent:
            state = f"was {state}"
        numbers = [_figure(key, one.numbers.get(key)) for key in known]
        table.add_row(
            Text(plain(one.name)),
            Text(plain(of), style="dim"),
            Text(plain(site or "-")),
            Text(plain(state), style=STATES.get(state, "")),
            *numbers,
        )
    return table


def job_view(job: JobSeen) -> RenderableType:
    """Return all that is known of one job."""
    rows = [
        ("state", job.state),
        ("site", job.site if job.wanted_site in (None, job.site) else f"{job.site}, wanted on {job.wanted_site}"),
        ("of", job.composition),
        ("reads", ", ".join(job.sources)),
        ("writes", job.sink),
        ("runs", job.entry),
        ("epoch", "" if job.epoch is None else str(job.epoch)),
        ("rates", ", ".join(f"{name} {_figure(key, job.numbers[key])}" for key, name in _RATES if key in job.numbers)),
        ("trouble", job.text),
    ]
    table = _bare()
    for name, value in rows:
        if value:
            table.add_row(Text(name, style="dim"), Text(plain(value), style=STATES.get(value, "")))
    return Group(_line((plain(job.name), "bold")), Padding(table, (0, 0, 0, 2), expand=False))


def history_view(entries: Sequence[Object]) -> RenderableType:
    """Return who changed what, and what came of it; the latest first."""
    if not entries:
        return _line("nothing has been changed yet")
    table = _table("when", "token", "what", "outcome")
    for one in entries:
        outcome = str(one.get("outcome") or "under way")
        style = "green" if outcome == "done" else "yellow" if outcome.startswith(("not done", "under way")) else "dim"
        table.add_row(
            _moment(one.get("at_s")),
            Text(plain(str(one.get("who") or ""))),
            Text(plain(str(one.get("what") or ""))),
            Text(plain(outcome), style=style),
        )
    return table


def tokens_view(entries: Sequence[Object]) -> RenderableType:
    """Return the tokens there are; none is shown itself."""
    if not entries:
        return _line("there are no tokens")
    table = _table("id", "kind", "site", "made", "state")
    for one in entries:
        revoked = one.get("revoked_at_s")
        table.add_row(
            Text(plain(str(one.get("id", "")))),
            Text(plain(str(one.get("kind", "")))),
            Text(plain(str(one.get("site") or "-"))),
            _moment(one.get("created_at_s")),
            Text("live", style="green") if revoked is None else Text(f"revoked {_moment(revoked)}", style="dim"),
        )
    return table


_RATES = (("in_rps", "in"), ("out_rps", "out"), ("lag", "lag"), ("p50_s", "p50"), ("p99_s", "p99"))


def _changes(plan: PlanSeen) -> RenderableType:
    table = _bare()
    order = list(SIGNS)
    shown = sorted(plan.to_do, key=lambda one: (order.index(one.bucket) if one.bucket in order else 9, one.job))
    for one in shown[:MOST_CHANGES]:
        sign, style = SIGNS.get(one.bucket, ("?", ""))
        pause = f"about {_time(one.pause_s)}" if one.pause_s else ""
        table.add_row(
            Text(f"{sign} {one.bucket}", style=style),
            Text(plain(one.job), style="bold"),
            Text(plain(_where(one))),
            Text(pause, style="yellow" if one.pause_s else ""),
            Text(plain(one.because), style="dim"),
        )
    if len(shown) <= MOST_CHANGES:
        return table
    return Group(table, _line(f"and {len(shown) - MOST_CHANGES} more (--json names all)"))


def _where(change: Change) -> str:
    if change.from_site and change.from_site != change.site:
        return f"{change.from_site} → {change.site}"
    return f"at {change.site}" if change.site else ""


def _figure(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    if key.endswith("_s"):
        return _time(value)
    return f"{value:.0f}" if key == "lag" or value >= 10 or value == 0 else f"{value:.2g}"


def _moment(at: object) -> str:
    if isinstance(at, int | float):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return plain(str(at or "-"))


def _age(seconds: float) -> str:
    return show(round(seconds), "time")


def _time(value_s: float) -> str:
    if value_s >= 60:
        return _age(value_s)
    return f"{value_s:.2g} s" if value_s >= 0.1 else show(float(f"{value_s:.2g}"), "time")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*parts)


def _bare() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    return table


def _table(*heads: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=box.SIMPLE, header_style="dim", pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right" if head in right else "left", overflow="fold")
    return table
