"""Who brings the world to what is wanted?

A `Coordinator` looks at what all sites hold, compares it with what is wanted, and does what is missing: observe,
diff, order, apply. `plan` ends before the last; `step` is all of it. One computation serves both, so what a plan
shows is what is done. It keeps nothing between two steps: whatever died meanwhile, the next step begins with
what is there.

    HW2201   a plan was made from another world than there is now
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from headwater.errors import PlanError
from headwater.plan.diff import Changes, Pauses, diff
from headwater.plan.jobs import Job, Observed, fingerprint
from headwater.plan.steps import Step, order
from headwater.ports import Sites
from headwater.run.apply import Done, Outcome, apply

__all__ = ["Coordinator", "Plan", "make_plan"]


@dataclass(frozen=True)
class Plan:
    """What has to be done, and what that was concluded from."""

    changes: Changes
    steps: tuple[Step, ...]
    observed: Observed
    basis: str  # fingerprint of what it was made from


def make_plan(
    wanted: Mapping[str, Job],
    observed: Observed,
    forced: Collection[str] = (),
    pauses: Pauses = Pauses(),  # noqa: B008 - frozen
) -> Plan:
    """Return the plan from what is observed to what is wanted."""
    changes = diff(wanted, observed, forced, pauses)
    return Plan(changes, order(changes, observed), observed, fingerprint(wanted, observed))


class Coordinator:
    """The loop, one step at a time."""

    def __init__(
        self,
        sites: Sites,
        wanted: Callable[[], Mapping[str, Job]],
        forced: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Take the sites, and where to ask for what is wanted."""
        self._sites = sites
        self._wanted = wanted
        self._forced = forced

    def plan(self, wanted: Mapping[str, Job] | None = None) -> Plan:
        """Return what would be done now, for what is wanted or for something else."""
        return make_plan(self._wanted() if wanted is None else wanted, self._sites.observe(), self._forced())

    def check(self, basis: str, wanted: Mapping[str, Job]) -> Plan:
        """Return the plan again, if it is still the one that was shown.

        Raises:
            PlanError: HW2201, the world or what is wanted has changed since.
        """
        found = self.plan(wanted)
        if found.basis != basis:
            raise PlanError(
                "HW2201 this plan is stale: jobs were changed or moved, or a site came or went, after it was made. "
                "Plan again, look at it, and apply that one."
            )
        return found

    def step(self, say: Callable[[Done], None] = lambda _: None) -> Outcome:
        """Do all that is missing, as far as it can be done now."""
        plan = self.plan()
        return apply(plan.steps, plan.observed, self._sites, say) if plan.steps else Outcome()
