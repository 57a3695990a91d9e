"""Who wakes the coordinator, and how do others learn what came of it?

One thread takes one step after the other: at once when something is wanted otherwise, and every few seconds
anyway, which repairs whatever has changed by itself. What is begun is brought to its end before something else is
done to the same jobs, unless that cannot be (`plan.aims`). Whoever changed something may wait here until the jobs are
as wanted, or until it is known that they are not. Outcomes go into the history.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from headwater.bind.store import Store
from headwater.plan.aims import aims, open_circles
from headwater.plan.jobs import Held, Job, Observed, circle
from headwater.run.coordinator import Coordinator

__all__ = ["Failure", "Loop", "Said", "is_as_wanted"]

EVERY_S = 3.0
LOOK_S = 0.1  # between two looks at what sites said last: they say it when they like, and ring no bell
MOST_WAITING = 32  # callers; more are answered at once, so that some threads are left for everybody else
MOST_OPEN = 200  # changes whose end is still looked for
LONGEST_OUTCOME = 500  # characters
PATIENCE_S = 60.0  # that something else waits for what is begun and fails, or hangs on a site that does not answer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that could not be done, or a job that does not run."""

    job: str  # '' : of a topic, or of all
    site: str
    act: str  # '' : nobody acted; the job itself fails
    text: str


class Said(Protocol):
    """Who knows what sites hold."""

    def latest(self) -> Observed:
        """Return it, without asking them."""

    def observe(self) -> Observed:
        """Ask them, and return it."""


def is_as_wanted(job: Job | None, owner: Held | None) -> bool:
    """Return whether a job is held as it is wanted, and runs if it should; None: it is not wanted, or not held."""
    if job is None:
        return owner is None or owner.is_resting
    if not job.is_run:
        return owner is None or not owner.is_run
    is_there = owner is not None and owner.is_run and owner.site == job.site and owner.job.is_same(job)
    return is_there and owner is not None and owner.state == "running"


class Loop:
    """The coordinator's thread."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: Store,
        sites: Said,
        every_s: float = EVERY_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Take what it drives; `start` lets it begin."""
        self._coordinator, self._store, self._sites = coordinator, store, sites
        self._every_s, self._patience_s = every_s, patience_s
        self._turned = threading.Condition()
        self._is_woken = True
        self._is_ending = False
        self._asked = 0  # how often it was woken
        self._answered = 0  # which of these the last step that has ended knew of
        self._failures: tuple[Failure, ...] = ()
        self._open: dict[int, frozenset[str] | None] = {}  # changes under way, and the jobs they are about; None: all
        self._told: dict[int, str] = {}
        self._left_s: dict[str, float] = {}  # circles that were not where the last step led, and since when
        self._room = threading.Semaphore(MOST_WAITING)
        self._thread = threading.Thread(target=self._go, name="coordinator", daemon=True)

    def start(self) -> None:
        """Begin; changes that an earlier controller did not see the end of are looked after as well."""
        self._open = {one.id: None for one in self._store.history(MOST_OPEN) if one.outcome is None}
        self._thread.start()

    def close(self) -> None:
        """End after the step that is under way."""
        with self._turned:
            self._is_ending = True
            self._turned.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def wake(self) -> None:
        """Take a step at once, or one more after that which is under way."""
        with self._turned:
            self._asked += 1
            self._is_woken = True
            self._turned.notify_all()

    def watch(self, number: int, names: Collection[str]) -> None:
        """Look for the end of a change; earlier ones about the same jobs are thereby over."""
        with self._turned:
            over = [one for one, about in self._open.items() if about is not None and not about.isdisjoint(names)]
            for one in over:
                del self._open[one]
                self._told.pop(one, None)
            self._open[number] = frozenset(names)
        self._store.conclude(dict.fromkeys(over, "overtaken by a later change"))

    def failures(self, names: Collection[str] | None = None) -> tuple[Failure, ...]:
        """Return what the last step could not do, and which jobs fail; of some jobs, or of all."""
        found = (*self._failures, *self._failing(self._sites.latest().owners()))
        return tuple(one for one in found if names is None or not one.job or one.job in names)

    def wait(self, names: Collection[str], wait_s: float) -> tuple[bool, tuple[Failure, ...]]:
        """Wait until jobs are as wanted, or until a step that knew of all changes has failed them.

        Returns:
            Whether they are as wanted, and what failed.
        """
        end_s = time.monotonic() + wait_s
        has_room = wait_s > 0 and self._room.acquire(blocking=False)
        try:
            with self._turned:
                asked = self._asked
            while True:
                is_behind = self._is_behind(names)
                with self._turned:
                    is_known = self._answered >= asked and not is_behind
                is_done, failures = self._state(names)
                is_done = is_done and not is_behind
                left_s = end_s - time.monotonic() if has_room and not self._is_ending else 0.0
                if (is_known and (is_done or failures)) or left_s <= 0:
                    return is_done, failures if is_known else ()
                with self._turned:
                    self._turned.wait(min(left_s, LOOK_S))
        finally:
            if has_room:
                self._room.release()

    def _state(self, names: Collection[str]) -> tuple[bool, tuple[Failure, ...]]:
        wanted, owners = self._store.wanted(), self._sites.latest().owners()
        left = [name for name in names if not is_as_wanted(wanted.get(name), owners.get(name))]
        found = (*self._failures, *self._failing(owners))
        return not left, tuple(one for one in found if one.job in left or (left and not one.job))

    def _failing(self, owners: Mapping[str, Held]) -> list[Failure]:
        wanted = self._store.wanted()
        return [
            Failure(name, one.site, "", one.text or "it has failed")
            for name, one in sorted(owners.items())
            if one.state == "failed" and one.is_run and name in wanted
        ]

    def _go(self) -> None:
        while True:
            with self._turned:
                self._turned.wait_for(lambda: self._is_woken or self._is_ending, self._every_s)
                if self._is_ending:
                    return
                self._is_woken = False
                asked = self._asked
            has_more, is_final = self._turn()
            with self._turned:
                self._answered = asked if is_final else self._answered
                self._is_woken |= has_more
                self._turned.notify_all()

    def _turn(self) -> tuple[bool, bool]:
        """Take a step; return whether another one should follow at once, and whether this one is the last word."""
        try:
            outcome = self._coordinator.step()
            self._failures = tuple(
                Failure(one.step.job, one.step.site, one.step.act, one.error) for one in outcome.failures
            )
            for one in self._failures:
                _log.warning("%s of job '%s' at site '%s' failed: %s", one.act, one.job, one.site, one.text)
            self._conclude()
            has_released = self._release()
        except Exception as error:  # noqa: BLE001 - whatever it is, the next step must come
            _log.exception("a step of the coordinator failed")
            self._failures = (Failure("", "", "", str(error) or type(error).__name__),)
            return False, True
        return has_released or (bool(outcome.done) and outcome.is_whole), not has_released

    def _is_behind(self, names: Collection[str]) -> bool:
        """Return whether steps for some jobs still lead to what was wanted of them before."""
        begun = self._store.begun()
        if not begun:
            return False
        wanted = self._store.wanted()
        circles = {circle(wanted[name]) for name in names if name in wanted}
        return not circles.isdisjoint(begun) or any(name in jobs for jobs in begun.values() for name in names)

    def is_stuck(self, name: str) -> bool:
        """Return whether a circle has not come where its steps lead for so long that nobody should wait for it."""
        return time.monotonic() - self._left_s.get(name, math.inf) >= self._patience_s

    def _release(self) -> bool:
        """Let circles go on whose former steps are through, or stuck; return whether there were any."""
        begun = self._store.begun()
        observed = self._sites.observe() if begun else self._sites.latest()
        aimed, now_s = aims(self._store.wanted(), begun), time.monotonic()
        left = open_circles(aimed, observed, self._store.forced())
        self._left_s = {one: self._left_s.get(one, now_s) for one in left}
        over = [one for one in begun if one not in left or self.is_stuck(one)]
        if over:
            self._store.release(over)
        return bool(over)

    def _conclude(self) -> None:
        """Write down which changes are done, and which jobs have arrived where they were forced to."""
        observed, wanted = self._sites.latest(), self._store.wanted()
        owners = observed.owners()
        arrived = [name for name in self._store.forced() if _has_arrived(wanted.get(name), owners.get(name), observed)]
        self._store.unforce(arrived)
        with self._turned:
            under_way = dict(self._open)
        outcomes = {number: self._outcome(names, wanted, owners) for number, names in under_way.items()}
        news = {number: text for number, text in outcomes.items() if text and self._told.get(number) != text}
        self._store.conclude(news)
        with self._turned:
            self._told.update(news)
            for number in [one for one, text in outcomes.items() if text == "done"]:
                self._open.pop(number, None)
                self._told.pop(number, None)

    def _outcome(self, names: frozenset[str] | None, wanted: Mapping[str, Job], owners: Mapping[str, Held]) -> str:
        about = {*wanted, *owners} if names is None else names
        if all(is_as_wanted(wanted.get(name), owners.get(name)) for name in about):
            return "done"
        found = [one for one in (*self._failures, *self._failing(owners)) if not one.job or one.job in about]
        return f"not done yet: {found[0].text}"[:LONGEST_OUTCOME] if found else ""


def _has_arrived(job: Job | None, owner: Held | None, observed: Observed) -> bool:
    return job is None or (owner is not None and owner.site == job.site and owner.site in observed.reached)
