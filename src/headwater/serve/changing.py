"""How does a command change what is wanted?

Asks the controller for the plan, shows it, asks the user, and lets exactly that plan be done: whoever changed
something in between makes it stale, and it is refused. Then it watches until the jobs are as wanted. The
controller needs nobody to watch: a command that is ended meanwhile ends nothing.

    HW1331   nobody can be asked, and --yes was not given
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field

import typer
from rich.console import Console, RenderableType
from rich.live import Live

from headwater.errors import BindError, Mistake, SpecError
from headwater.serve.client import Client
from headwater.serve.control_view import changed_line, failures_view, jobs_table, plan_view, progress_view
from headwater.serve.output import Output
from headwater.serve.progress import note
from headwater.serve.told import Change, Failure, JobSeen, Object, PlanSeen, failures_of, jobs_of, plan_of, sites_of

__all__ = ["Consent", "Request", "apply", "apply_at_once", "plan"]

DONE, FAILED = 0, 4
AWAY = ("HW4920", "HW4925")  # nobody answers, an answer broke off
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0  # between two looks


@dataclass(frozen=True, slots=True)
class Request:
    """A change that the controller can plan and do."""

    title: str
    method: str
    path: str
    content: bytes | Object | None = None
    force: bool = False  # jobs may leave sites that do not answer
    of: str = ""  # the composition or pipeline that it is about

    def send(self, client: Client, **query: object) -> object:
        """Ask for it."""
        more = {"force": True} if self.force else {}
        return client.call(self.method, self.path, {**more, **query}, self.content)


@dataclass(frozen=True, slots=True)
class Consent:
    """Whether to ask, and how long to watch."""

    is_given: bool
    wait_s: float

    def check(self, output: Output) -> None:
        """Refuse at once where nobody could be asked.

        Raises:
            SpecError: HW1331.
        """
        if not self.is_given and (output.as_json or not _is_terminal()):
            why = "--json leaves nobody to ask" if output.as_json else "this is no terminal, so nobody can be asked"
            raise SpecError(Mistake("HW1331", f"{why}; look with 'headwater plan', and give --yes to apply"))


def plan(request: Request, client: Client, output: Output, hint: str = "") -> int:
    """Show what a change would do."""
    answer = request.send(client, dry_run=True)
    found = plan_of(answer)
    output.answer({"plan": found.object}, plan_view(request.title, found, "" if found.is_empty else hint))
    return DONE


def apply(request: Request, client: Client, output: Output, consent: Consent) -> int:
    """Show what a change would do, ask, do it, and watch until it is done.

    Raises:
        PlanError: HW2201, something changed between the plan and the answer.
    """
    found = plan_of(request.send(client, dry_run=True))
    if not output.as_json:
        output.answer({}, plan_view(request.title, found))
    if not consent.is_given and not found.is_empty:
        typer.confirm("\nDo this?", abort=True, err=True)
    own = _own(request, client, found)
    begun_s = time.monotonic()
    answer = request.send(client, basis=found.basis or None)
    watch = _Watch(client, found, begun_s, consent.wait_s, own)
    try:
        with _shown(output, watch):
            watch.until_done(failures_of(answer))
    except KeyboardInterrupt:
        note("not watched any more; the controller goes on. 'headwater status' shows how far it is.")
        raise
    return _told(output, watch, time.monotonic() - begun_s)


def apply_at_once(request: Request, names: Collection[str], client: Client, output: Output, wait_s: float) -> int:
    """Do a change that only some jobs take part in, without asking, and watch until they are as wanted."""
    begun_s = time.monotonic()
    answer = request.send(client)
    # An answer tells all that is to be done by then; what others asked for is not waited for.
    changes = tuple(one for one in plan_of(answer).changes if one.job in names)
    asked = PlanSeen("", changes, (), {"changes": [asdict(one) for one in changes]})
    if asked.is_empty and not output.as_json:
        output.answer({}, plan_view(request.title, asked))
    watch = _Watch(client, asked, begun_s, wait_s, asked.jobs)
    with _shown(output, watch):
        watch.until_done(failures_of(answer))
    return _told(output, watch, time.monotonic() - begun_s)


def _own(request: Request, client: Client, found: PlanSeen) -> frozenset[str]:
    """Return the jobs to watch: not those that were to change anyhow, unless they are of what was asked for."""
    pending = plan_of(client.get("/plan"))
    of = {one.name: one.composition for one in jobs_of(client.get("/jobs"))}
    others = {one.job for one in found.to_do if one in pending.to_do and of.get(one.job, request.of) != request.of}
    return found.jobs - others


@dataclass
class _Watch:
    """What is left of a plan that is being done."""

    client: Client
    plan: PlanSeen
    begun_s: float
    wait_s: float
    own: frozenset[str]  # jobs that are waited for
    done_s: dict[str, float] = field(default_factory=dict)  # by job: when it was as wanted
    left: PlanSeen | None = None
    jobs: dict[str, JobSeen] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    live: Live | None = None
    is_quiet: bool = True
    is_lost: bool = False  # whether the controller does not answer

    @property
    def changes(self) -> list[Change]:
        """Return the changes that are waited for."""
        return [one for one in self.plan.to_do if one.job in self.own]

    def until_done(self, failures: tuple[Failure, ...]) -> None:
        """Look again and again until nothing is left, a job has failed for good or time is up."""
        self.failures, pause_s = failures, FIRST_PAUSE_S
        while True:
            self._look_if_there()
            if self.is_over or time.monotonic() - self.begun_s >= self.wait_s:
                return
            time.sleep(min(pause_s, max(0.0, self.begun_s + self.wait_s - time.monotonic())))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    @property
    def is_done(self) -> bool:
        """Return whether every job is as wanted and settled."""
        # What is left on a site that does not answer is cleared away when it is back: nobody waits for that.
        is_clear = self.left is not None and not {one.job for one in self.left.to_do} & self.own
        return is_clear and all(one.job in self.done_s for one in self.changes) and not self.failed

    @property
    def is_over(self) -> bool:
        """Return whether watching on would tell nothing more."""
        failed = {one.name for one in self.failed}
        left = set() if self.left is None else {one.job for one in self.left.to_do} & self.own
        waiting = {one.job for one in self.changes} - set(self.done_s) - failed
        return self.left is not None and not left and not waiting and (bool(failed) or self.is_done)

    @property
    def failed(self) -> list[JobSeen]:
        """Return the jobs of the plan that will not run as they are."""
        return [one for one in self.own_jobs if one.state == "failed"]

    @property
    def own_jobs(self) -> list[JobSeen]:
        """Return the jobs that the plan is about, as they are."""
        return [one for name, one in self.jobs.items() if name in self.own]

    def states(self) -> Mapping[str, str]:
        """Return a word on each job that is not done."""
        steps = {str(one.get("job")): one for one in reversed(() if self.left is None else self.left.steps)}
        return {
            one.job: f"{step.get('act')} at {step.get('site')}"
            if (step := steps.get(one.job))
            else self._state(one.job)
            for one in self.changes
        }

    def _state(self, name: str) -> str:
        return self.jobs[name].state if name in self.jobs else ""

    def _look_if_there(self) -> None:
        """Look; a controller that is away for a while is waited for, since it goes on when it is back."""
        try:
            self._look()
            self.is_lost = False
        except BindError as error:
            if not str(error).startswith(AWAY):
                raise
            if not self.is_lost and self.live is None and not self.is_quiet:
                note(f"{error} It is waited for.")
            self.is_lost = True

    def _look(self) -> None:
        answer = self.client.get("/plan")
        self.left = plan_of(answer)
        self.jobs = {one.name: one for one in jobs_of(self.client.get("/jobs"))}
        told = failures_of(answer)
        self.failures = tuple(one for one in told or self.failures if not one.job or one.job in self.own)
        left = {one.job for one in self.left.to_do}
        for change in self.changes:
            state = self._state(change.job)
            is_there = state in {"", "stopped"} if change.bucket == "stop" else state == "running"
            if change.job not in self.done_s and change.job not in left and is_there:
                self.done_s[change.job] = time.monotonic() - self.begun_s
                if self.live is None and not self.is_quiet:
                    note(changed_line(change, self.done_s[change.job]))
        if self.live is not None:
            self.live.update(self.view())

    def view(self) -> RenderableType:
        """Return how far it is, to be shown."""
        at_s = time.monotonic() - self.begun_s
        return progress_view(self.changes, self.done_s, self.states(), self.failures, at_s, self.is_lost)


@contextmanager
def _shown(output: Output, watch: _Watch) -> Iterator[None]:
    """Show progress: a list that is renewed on a terminal, else a line for each change that is done."""
    watch.is_quiet = output.as_json
    is_live = not output.as_json and sys.stderr is not None and sys.stderr.isatty() and bool(watch.plan.to_do)
    if is_live:
        console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        watch.live = Live(console=console, refresh_per_second=4, transient=True)
    with watch.live or nullcontext():
        yield


def _told(output: Output, watch: _Watch, took_s: float) -> int:
    """Say how it ended."""
    jobs = sorted(watch.own_jobs, key=lambda one: (one.composition, one.name))
    is_done = watch.is_done
    failed = {one.name for one in watch.failed}
    failures = () if is_done else tuple(one for one in watch.failures if one.act or one.job not in failed)
    value = {
        "plan": watch.plan.object,
        "is_done": is_done,
        "failures": [{"job": one.job, "site": one.site, "act": one.act, "text": one.text} for one in failures]
        + [{"job": one.name, "site": one.site, "act": "", "text": one.text or one.state} for one in watch.failed],
        "jobs": [dict(one.object) for one in jobs],
        "seconds": round(took_s, 3),
    }
    if is_done:
        table = [jobs_table(jobs)] if jobs else []
        text = "" if watch.plan.is_empty else f"done in {took_s:.1f} s"
        output.answer(value, *table, *([text] if text else []))
        return DONE
    output.refusal(
        value, *([jobs_table(jobs)] if jobs else []), failures_view(failures, watch.failed), _left(watch, took_s)
    )
    return FAILED


def _left(watch: _Watch, took_s: float) -> str:
    """Say what is not done, and what to do."""
    waiting = sorted({one.job for one in watch.changes} - set(watch.done_s))
    named = ", ".join(f"'{one}'" for one in waiting[:6]) + (f" and {len(waiting) - 6} more" if len(waiting) > 6 else "")
    if watch.is_lost:
        return f"HW4926 not done after {took_s:.0f} s: the controller does not answer. What runs goes on without it."
    silent = [one.name for one in sites_of(watch.client.get("/sites")) if not one.is_reached]
    meant = {step.get("site") for step in (() if watch.left is None else watch.left.steps)}
    agents = "".join(
        f" Site '{one}' does not answer: start its agent ('headwater agent --site {one}'), or give --force to leave it."
        for one in silent
        if one in meant
    )
    if watch.failed and watch.is_over:
        return f"HW4926 {len(watch.failed)} of {len(watch.changes)} jobs failed; the others are as wanted."
    return (
        f"HW4926 not done after {took_s:.0f} s: {named or 'something'} is not as wanted.{agents} "
        "The controller goes on trying; 'headwater status' shows how far it is."
    )


def _is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
