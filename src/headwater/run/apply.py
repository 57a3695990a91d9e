"""How do steps become acts?

`apply` does the steps against the port `Sites`, those that wait for nothing at once. It stops at nothing but
takes nothing back: a step that fails keeps those that wait for it from being done, and the rest goes on. What is
left is found by the next look at the world (`run.coordinator`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from headwater.errors import HeadwaterError
from headwater.plan.jobs import Observed
from headwater.plan.steps import Step
from headwater.ports import Positions, Sites

__all__ = ["Done", "Outcome", "apply"]

MOST_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Done:
    """What came of one step."""

    step: Step
    error: str = ""  # '' : it is done
    is_left: bool = False  # it was not tried, because one that it waits for failed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of all steps."""

    done: tuple[Done, ...] = ()

    @property
    def failures(self) -> tuple[Done, ...]:
        """Return the steps that were tried and failed."""
        return tuple(one for one in self.done if one.error and not one.is_left)

    @property
    def is_whole(self) -> bool:
        """Return whether every step is done."""
        return not any(one.error for one in self.done)


def apply(
    steps: Sequence[Step],
    observed: Observed,
    sites: Sites,
    say: Callable[[Done], None] = lambda _: None,
    at_once: int = MOST_AT_ONCE,
) -> Outcome:
    """Do the steps, each after those that it waits for, and return what came of them, in their order."""
    hands = _Hands(observed, sites)
    found: dict[int, Done] = {}
    waiting = dict(enumerate(steps))
    with ThreadPoolExecutor(max_workers=max(1, at_once), thread_name_prefix="step") as pool:
        running: dict[Future[str], int] = {}
        while waiting or running:
            for number, step in list(waiting.items()):
                if any(one in found and found[one].error for one in step.after):
                    del waiting[number]
                    found[number] = Done(step, "a step before it failed", is_left=True)
                    say(found[number])
                elif len(running) < at_once and all(one in found for one in step.after):
                    del waiting[number]
                    running[pool.submit(hands.do, step)] = number
            if not running:
                continue
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number = running.pop(future)
                found[number] = Done(steps[number], future.result())
                say(found[number])
    return Outcome(tuple(found[number] for number in range(len(steps))))


class _Hands:
    """Does single steps, and remembers where drained jobs ended."""

    def __init__(self, observed: Observed, sites: Sites) -> None:
        self._owners = observed.owners()
        self._sites = sites
        self._ended: dict[str, Positions] = {
            name: dict(one.positions) for name, one in self._owners.items() if one.is_drained
        }

    def do(self, step: Step) -> str:
        """Do a step; return why it failed, or nothing."""
        try:
            self._do(step)
        except HeadwaterError as error:
            return str(error)
        return ""

    def _do(self, step: Step) -> None:
        if step.act == "warm":
            assert step.wanted is not None
            self._sites.warm(step.site, step.wanted)
        elif step.act == "clear":
            assert step.topic is not None
            self._sites.clear(step.topic)
        elif step.act == "halt":
            positions = self._sites.halt(step.site, step.job, step.epoch, step.is_drain)
            if step.is_drain:
                self._ended[step.job] = positions
        elif step.act == "rest":
            self._sites.rest(step.site, step.job, step.epoch)
        elif step.act == "drop":
            self._sites.drop(step.site, step.job, step.epoch)
        else:
            assert step.wanted is not None
            take_from = None if step.take_from is None else (step.take_from, self._owners[step.job].epoch)
            self._sites.run(step.site, step.wanted, step.epoch, self._seat(step), take_from)

    def _seat(self, step: Step) -> Positions:
        """Return where a job begins in the sources that it takes over."""
        seat: dict[str, str] = {}
        for name, topic in step.goes_on_from:
            places = self._ended.get(name, {})
            if topic.key in places:
                seat[topic.key] = places[topic.key]
            else:  # it may be a source that only the engine knows, by a name of its own
                known = {one.key for one in self._owners[name].job.sources}
                seat |= {key: place for key, place in places.items() if key not in known}
        return seat
