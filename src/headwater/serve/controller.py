"""What can be asked of the controller, and what does it do about it?

Every change goes the same way: it is worked out what would be wanted, a plan is made of it, and, unless only the
plan was asked for, all of it is written in one transaction with its line in the history; then the loop is woken.
The plan that is answered with and the steps that are taken come from one computation (`run.coordinator`). What
would be wanted is worked out in `serve.wanting`; what is only looked at is in `serve.seen`.

    HW1815  what a part of a pipeline cannot do without the rest of it
    HW1816  there is no such class
    HW1817  there is no such policy
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from headwater.bind.store import Alias, Change, Deployed, Goal, Store
from headwater.bind.uploads import Incoming, Uploads
from headwater.control.policies import POLICIES
from headwater.model.quality import QUALITIES
from headwater.model.report import Report, quote
from headwater.model.units import show
from headwater.plan.aims import aims, open_circles
from headwater.plan.composition import Surroundings, name_trouble, read_composition, read_job
from headwater.plan.jobs import LONERS, Job, Observed, circle
from headwater.ports import Sites
from headwater.run.coordinator import Coordinator, Plan, make_plan
from headwater.serve import pipelines
from headwater.serve.loop import EVERY_S, PATIENCE_S, Failure, Loop
from headwater.serve.sessions import Presence
from headwater.serve.wanting import (
    Next,
    check_name,
    check_taken,
    composition,
    found,
    given_up,
    jobs_of,
    kept,
    replaced,
    running,
    unknown,
    wrong,
)

__all__ = ["Answer", "Call", "Controlled", "Controller"]


class Controlled(Sites, Protocol):
    """The sites, as the controller needs them; `serve.desk.Desk` is one."""

    def latest(self) -> Observed:
        """Return what the sites said last, without asking them."""

    def sites(self) -> tuple[Presence, ...]:
        """Return how every site is known."""

    def brokers(self) -> Mapping[str, str]:
        """Return the address of each site's broker."""

    def logs(self, site: str, name: str, lines: int) -> str:
        """Return the end of a job's log."""

    def revoke(self, site: str) -> None:
        """Send a site's agent away."""


@dataclass(frozen=True, slots=True)
class Call:
    """How a change is asked for."""

    who: str  # id of the token
    is_dry_run: bool = False  # only the plan
    basis: str | None = None  # of the plan that was shown; None: whatever is right now
    wait_s: float = 0.0  # for the jobs to be as wanted
    force: bool = False  # jobs may leave sites that do not answer


@dataclass(frozen=True, slots=True)
class Answer:
    """What comes of a change."""

    plan: Plan
    basis: str  # of this plan, for the next call
    is_done: bool  # the jobs are as wanted
    failures: tuple[Failure, ...] = ()


class Controller:
    """Everything that can be asked; any thread may ask."""

    def __init__(
        self,
        store: Store,
        sites: Controlled,
        uploads: Uploads,
        *,
        every_s: float = EVERY_S,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take memory, hands and the uploads' folder; `start` lets the loop begin."""
        self.store, self.sites, self.uploads = store, sites, uploads
        self._clock = clock
        self._coordinator = Coordinator(sites, self._aims, store.forced)
        self.loop = Loop(self._coordinator, store, sites, every_s, patience_s)
        self._changing = threading.Lock()
        self._placing = threading.Lock()  # a search takes long, and others may change things meanwhile

    def start(self) -> None:
        """Let the loop begin."""
        self.loop.start()

    def close(self) -> None:
        """End the loop after its step; whoever drives the sites should be closed before, so that this is soon."""
        self.loop.close()

    # Jobs.

    def submit_job(self, form: Mapping[str, object], call: Call) -> Answer:
        """Let a single job run."""

        def make(wanted: Mapping[str, Job]) -> Next:
            name = str(form.get("job_name"))
            others = {key: job for key, job in wanted.items() if key != name}
            job = read_job(form, self._surroundings(others))
            check_taken([job], LONERS, wanted)
            return Next(f"job {quote(name)} submitted", frozenset({name}), {name: job})

        return self._change(make, call)

    def remove_job(self, name: str, call: Call) -> Answer:
        """Remove a job."""

        def make(wanted: Mapping[str, Job]) -> Next:
            job = found(wanted, name)
            if job.part:
                of = f"a fragment of pipeline {quote(job.composition)}, which does not work without it"
                wrong("HW1815", f"job {quote(name)} is {of}. Delete the pipeline, or stop the job.")
            return Next(f"job {quote(name)} deleted", frozenset({name}), removed=(name,))

        return self._change(make, call)

    def move_job(self, name: str, site: str, call: Call) -> Answer:
        """Let a job run at another site; of a pipeline, all operators of its fragment."""
        job = found(self.store.wanted(), name)
        self._check_site(site)
        if job.part:
            return self.move_operators(job.composition, job.entry.split(","), site, call)
        what = f"job {quote(name)} moved to {quote(site)}"

        def make(wanted: Mapping[str, Job]) -> Next:
            return Next(what, frozenset({name}), {name: replace(found(wanted, name), site=site)})

        return self._change(make, call)

    def run_job(self, name: str, is_run: bool, call: Call) -> Answer:
        """Stop or start a job."""
        return self._change(lambda wanted: running(f"job {quote(name)}", [found(wanted, name)], is_run), call)

    # Compositions.

    def submit_composition(self, name: str, text: bytes, call: Call) -> Answer:
        """Let the jobs of a composition run, and no others of it; what does not differ is not touched."""

        def make(wanted: Mapping[str, Job]) -> Next:
            others = {key: job for key, job in wanted.items() if job.composition != name}
            read = read_composition(text, name, name, self._surroundings(others))
            if name in self.store.pipelines():
                wrong("HW1810", f"there is a pipeline {quote(name)} already. Call the composition otherwise.")
            check_taken(read.jobs.values(), name, wanted, read.lines)
            before = jobs_of(wanted, name)
            jobs = {key: kept(job, before.get(key)) for key, job in read.jobs.items()}
            return replaced(f"composition {quote(name)} submitted", jobs, before)

        return self._change(make, call)

    def remove_composition(self, name: str, call: Call) -> Answer:
        """Remove a composition with all its jobs."""

        def make(wanted: Mapping[str, Job]) -> Next:
            return replaced(f"composition {quote(name)} deleted", {}, composition(wanted, name))

        return self._change(make, call)

    def run_composition(self, name: str, is_run: bool, call: Call) -> Answer:
        """Stop or start all jobs of a composition."""
        what = f"composition {quote(name)}"
        return self._change(lambda wanted: running(what, composition(wanted, name).values(), is_run), call)

    # Pipelines.

    def submit_pipeline(self, name: str, asked: pipelines.Asked, call: Call) -> Answer:
        """Place, cut and run a pipeline; what does not differ is not touched."""
        trouble = name_trouble(name)
        if trouble is not None:
            wrong("HW1811", f"a pipeline cannot be called {quote(name, 60)}: {trouble}.")
        upload = self.store.upload(asked.upload.removeprefix("sha256:"))
        if upload is None:
            wrong("HW1814", f"the project's files {quote(asked.upload, 80)} were not uploaded. Upload them first.")
        asked = replace(asked, upload=upload)
        known = self._known_sites()
        what = f"pipeline {quote(name)} submitted"
        with self._placing:
            made = pipelines.deploy(name, asked, self.store.pipeline(name), known)
            self.uploads.take([pipelines.runnable(name, made[0])])
            written = self._write(lambda wanted: self._deployed(what, name, made, wanted), call)
        return self._wait(written, call)

    def remove_pipeline(self, name: str, call: Call) -> Answer:
        """Remove a pipeline with all its jobs."""

        def make(wanted: Mapping[str, Job]) -> Next:
            self.pipeline(name)
            gone = replaced(f"pipeline {quote(name)} deleted", {}, jobs_of(wanted, name))
            return replace(gone, pipelines={name: None})

        with self._placing:
            written = self._write(make, call)
        return self._wait(written, call)

    def run_pipeline(self, name: str, is_run: bool, call: Call) -> Answer:
        """Stop or start all jobs of a pipeline."""
        self.pipeline(name)
        return self._change(
            lambda wanted: running(f"pipeline {quote(name)}", jobs_of(wanted, name).values(), is_run), call
        )

    def move_operators(self, name: str, operators: Collection[str], site: str, call: Call) -> Answer:
        """Let operators of a pipeline run at another site; it is cut again."""
        self._check_site(site)
        known = self._known_sites()
        what = f"{', '.join(map(quote, operators))} of pipeline {quote(name)} moved to {quote(site)}"
        with self._placing:
            before = self.pipeline(name)
            names = {*before.placement, *(one.partition("@")[0] for one in before.placement)}
            for one in operators:
                if one not in names:
                    unknown(f"operator of pipeline {quote(name)}", one, names)
            made = pipelines.moved(name, before, operators, site, known)
            written = self._write(lambda wanted: self._deployed(what, name, made, wanted), call)
        return self._wait(written, call)

    def pipeline(self, name: str) -> Deployed:
        """Return a pipeline.

        Raises:
            SpecError: HW1830.
        """
        deployed = self.store.pipeline(name)
        if deployed is None:
            unknown("pipeline", name, self.store.pipelines())
        return deployed

    # What else there is.

    def keep_upload(self, name: str, incoming: Incoming) -> tuple[Alias, bool]:
        """Keep what was uploaded under a name; return it, and whether its content is new."""
        check_name("an upload", name)
        upload = incoming.keep()
        alias = Alias(name, upload.hash, upload.size_bytes, self._clock())
        return alias, self.store.add_upload(alias)

    def note_token(self, became: Literal["made", "revoked"], token_id: str, who: str, site: str | None) -> None:
        """Write down what became of a token; the agent of a revoked one is sent away."""
        of = "an operator" if site is None else f"site {quote(site)}"
        self.store.note(who, f"token {token_id} of {of} {became}", self._clock(), "done")
        if became == "revoked" and site is not None:
            self.sites.revoke(site)

    def set_goal(
        self, name: str, goal: tuple[str | None, float | None] | None, who: str, is_dry_run: bool = False
    ) -> Mapping[str, Goal]:
        """Set the latency goal of a composition or pipeline, and return all goals as they are then.

        Args:
            name: Of the composition or pipeline.
            goal: Class and 99th percentile; None: as its project says.
            who: Id of the token.
            is_dry_run: Only say how the goals would be.

        Raises:
            SpecError: HW1830, there is none of this name; HW1816, there is no such class.
        """
        with self._changing:  # what has a goal must not go meanwhile: the goal would wait for another of its name
            wanted, before = self.store.wanted(), self.store.goals()
            known = {job.composition for job in wanted.values()}
            if name not in known and (goal is not None or name not in before):
                if name in wanted:
                    of = quote(wanted[name].composition)
                    wrong("HW1830", f"{quote(name)} is a job, and goals are of what jobs belong to. Name {of}.")
                unknown("composition or pipeline", name, known)
            if goal is not None and goal[0] is not None and goal[0] not in QUALITIES:
                wrong("HW1816", f"there is no class {quote(goal[0], 60)}. Known are {', '.join(QUALITIES)}.")
            if is_dry_run:
                others = {key: one for key, one in before.items() if key != name}
                return others if goal is None else {**others, name: {"class": goal[0], "p99_s": goal[1]}}
            self.store.set_goal(name, goal)
            what = "none of its own" if goal is None else _goal_text(*goal)
            self.store.note(who, f"latency goal of {quote(name)}: {what}", self._clock(), "done")
            return self.store.goals()

    def set_policy(self, policy: str | None, who: str, is_dry_run: bool = False) -> str | None:
        """Set the policy by which all sites hold latency goals, and return it; None: each as its agent was told.

        Args:
            policy: Its name.
            who: Id of the token.
            is_dry_run: Only say how it would be.

        Raises:
            SpecError: HW1817, there is no such policy.
        """
        if policy is not None and policy not in POLICIES:
            wrong("HW1817", f"there is no policy {quote(policy, 60)}. Known are {', '.join(POLICIES)}.")
        if not is_dry_run:
            self.store.set_policy(policy)
            what = f"latency goals are held by {policy or 'what each agent was told'}"
            self.store.note(who, what, self._clock(), "done")
        return policy

    def logs(self, name: str, lines: int) -> str:
        """Return the end of a job's log, from the site that has the job."""
        owner = self.sites.latest().owner(name)
        if owner is None:
            job = found(self.store.wanted(), name)
            return f"job '{name}' has not run yet; it is wanted at site '{job.site}'.\n"
        return self.sites.logs(owner.site, name, lines)

    def left(self) -> Answer:
        """Return what is left to do for what is wanted."""
        plan = self._coordinator.plan(self.store.wanted())
        return Answer(plan, self._basis(plan), plan.changes.is_empty, self.loop.failures())

    def _change(self, make: Callable[[Mapping[str, Job]], Next], call: Call) -> Answer:
        """Make a change, and wait for it as long as the caller likes."""
        return self._wait(self._write(make, call), call)

    def _write(self, make: Callable[[Mapping[str, Job]], Next], call: Call) -> tuple[Answer, frozenset[str]]:
        """Work out a change, plan it, and write it, unless only the plan is asked for; return the jobs it is about."""
        with self._changing:
            wanted = self.store.wanted()
            asked = make(wanted)
            news = {name: job for name, job in asked.put.items() if wanted.get(name) != job}
            then = {name: job for name, job in wanted.items() if name not in asked.removed} | dict(asked.put)
            plan = self._planned(then, asked, news, call)
            if not call.is_dry_run:
                forced = given_up(asked.scope, then, plan.observed) if call.force else frozenset()
                if news or asked.removed or forced - self.store.forced() or self._differ(asked.pipelines):
                    about = [*news.values(), *(wanted[name] for name in asked.removed)]
                    begun = self._begun({circle(job) for job in about}, call.force)
                    number = self.store.change(
                        Change(call.who, asked.what, self._clock(), news, asked.removed, asked.pipelines, forced, begun)
                    )
                    self.loop.watch(number, {*news, *asked.removed, *forced})
                    self.loop.wake()
            return Answer(plan, self._basis(plan), plan.changes.is_empty), asked.scope

    def _aims(self) -> Mapping[str, Job]:
        return aims(self.store.wanted(), self.store.begun())

    def _begun(self, circles: Set[str], is_forced: bool) -> dict[str, Mapping[str, Job] | None]:
        """Return the circles that steps are under way in, which come to their end first; unless it is forced."""
        if is_forced:
            return dict.fromkeys(one for one in circles if one in self.store.begun())
        aimed, observed = self._aims(), self.sites.latest()
        under_way = open_circles(aimed, observed, self.store.forced())
        new = (one for one in circles & under_way if one not in self.store.begun() and not self.loop.is_stuck(one))
        return {one: {name: job for name, job in aimed.items() if circle(job) == one} for one in new}

    def _wait(self, written: tuple[Answer, frozenset[str]], call: Call) -> Answer:
        answer, scope = written
        if call.is_dry_run:
            return answer
        is_done, failures = self.loop.wait(scope, call.wait_s)
        return replace(answer, is_done=is_done, failures=failures)

    def _planned(self, then: Mapping[str, Job], asked: Next, news: Collection[str], call: Call) -> Plan:
        """Return the plan of a change; checked against the one that was shown, if there was one."""
        if call.basis is not None:
            revision, _, basis = call.basis.partition("-")
            is_current = revision == str(self.store.revision)
            observed = self._coordinator.check(basis if is_current else "", then).observed
        else:
            observed = self.sites.observe() if call.is_dry_run else self.sites.latest()
        forced = given_up(asked.scope, then, observed) if call.force else frozenset()
        return make_plan(then, observed, (self.store.forced() - frozenset(news)) | forced)

    def _basis(self, plan: Plan) -> str:
        """Return what a plan was made from; the revision in it lets it be used only once."""
        return f"{self.store.revision}-{plan.basis}"

    def _differ(self, asked: Mapping[str, Deployed | None]) -> bool:
        return any(self.store.pipeline(name) != one for name, one in asked.items())

    def _deployed(
        self, what: str, name: str, made: tuple[Deployed, Mapping[str, Job]], wanted: Mapping[str, Job]
    ) -> Next:
        deployed, made_jobs = made
        before = jobs_of(wanted, name)
        if before and self.store.pipeline(name) is None:
            wrong("HW1810", f"there is a composition {quote(name)} already. Call the pipeline otherwise.")
        check_taken(made_jobs.values(), name, wanted)
        are_stopped = bool(before) and not any(job.is_run for job in before.values())
        jobs = {
            key: kept(job, before.get(key)) if key in before else replace(job, is_run=not are_stopped)
            for key, job in made_jobs.items()
        }
        return replace(replaced(what, jobs, before), pipelines={name: deployed})

    def _surroundings(self, others: Mapping[str, Job]) -> Surroundings:
        seen = self.sites.sites()
        labels = {one.hello.address: one.site for one in seen if one.hello is not None and one.hello.address}
        brokers = {address: site for site, address in self.sites.brokers().items()}
        return Surroundings(frozenset(one.site for one in seen), self.store.upload, labels, brokers, others)

    def _known_sites(self) -> frozenset[str]:
        return frozenset(one.site for one in self.sites.sites())

    def _check_site(self, site: str) -> None:
        known = self._known_sites()
        if site not in known:
            tip = Report("").tip(site, known)
            wrong("HW1813", f"there is no site {quote(site, 60)} with an agent.{tip}")


def _goal_text(quality: str | None, p99_s: float | None) -> str:
    parts = [] if quality is None else [f"class {quality}"]
    parts += [] if p99_s is None else [f"p99 within {show(p99_s, 'time')}"]
    return ", ".join(parts)
