"""How are the latency goals of one site held?

`Holder.step` is called every second, with nothing but the time: it reads what was measured at the site, lets the policy
decide, sets limits and writes the decision down. Nothing in here needs the controller. What cannot be held is told by
`Decision.gives_way`: the sign that operators should be placed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from headwater.control import mpc
from headwater.control.decision import Applications, Decision, applications
from headwater.control.policies import Predictive
from headwater.control.readings import Readings
from headwater.control.record import begin_entry, made_policy, step_entry
from headwater.model.quality import LOWEST, Quality
from headwater.ports import Governor, Journal, Meter

__all__ = ["Holder", "Roster"]

PATIENCE_STEPS = 10  # for which somebody who is not in the readings any more keeps its share


@dataclass(frozen=True, slots=True)
class Roster:
    """What applications are held to, and how far they may be pressed."""

    qualities: Mapping[str, Quality] = field(default_factory=dict)  # by name; others have the lowest
    least: float = 0.0  # share of everybody
    most: Mapping[str, float] = field(default_factory=dict)  # what an application can use at most

    def of(self, names: tuple[str, ...]) -> Applications:
        """Return columns for some of them."""
        return applications(
            names,
            tuple(self.qualities.get(name, LOWEST) for name in names),
            self.least,
            np.array([self.most.get(name, np.inf) for name in names], np.float64),
        )


class Holder:
    """Holds the goals of one site."""

    def __init__(
        self,
        meter: Meter,
        governor: Governor,
        roster: Callable[[], Roster],
        capacity: Callable[[], float],
        policy: str = "predictive",
        journal: Journal | None = None,
        shares: Mapping[str, float] | None = None,
        settings: mpc.Settings | None = None,
        known: mpc.State | None = None,
        is_there: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Begin.

        Args:
            meter: What is measured.
            governor: What is set.
            roster: What applications are held to, now.
            capacity: How much processor there is for all of them, now.
            policy: By name.
            journal: Takes what is decided.
            shares: That are set already, by an earlier one that was killed.
            settings: Of the predictive policy.
            known: What an earlier one knew, which was predictive, too. Those that it knew of count from the start.
            is_there: Whether an application that is not in the readings is there nevertheless: only then it keeps
                its share.

        Raises:
            KeyError: There is no such policy.
        """
        self.policy = policy
        self._settings = settings or mpc.Settings()
        self._set_before = dict(shares or {})
        self._chosen = made_policy(policy, self._set_before, self._settings)
        self._meter, self._governor, self._journal = meter, governor, journal
        self._roster, self._capacity, self._is_there = roster, capacity, is_there
        self._absent: dict[str, int] = {}  # by application: steps since it was read last
        if isinstance(self._chosen, Predictive) and known is not None:
            self._chosen.state = known
            self._absent = dict.fromkeys(known.names, 0)
        self._apps: tuple[Roster, Applications] | None = None
        self._is_begun = False  # whether the journal knows what came before
        self.nonsense = 0  # entries of the meter that were not believed, so far
        self.steps = 0

    @property
    def known(self) -> mpc.State | None:
        """Return what it knows, for one that comes after it; None where the policy has nothing to hand on."""
        return self._chosen.state if isinstance(self._chosen, Predictive) else None

    def step(self, now_s: float) -> Decision | None:
        """Read, decide, set; return what was decided, or nothing where nobody was read."""
        if not self._is_begun:
            self._is_begun = True
            self._note(begin_entry(now_s, self.policy, self._set_before, self._settings, self._chosen))
        readings = self._meter.read()
        names = self._present(readings)
        if not readings.names:
            self.nonsense += len(names)  # there they are, and nothing is known of any
            return None
        apps = self._applications(names)
        decision = self._chosen.decide(now_s, readings, apps, self._capacity())
        weighs = self._governor.weighs
        limits = decision.limit_of if weighs else decision.alone_of
        shares = decision.share_of
        if readings.names != names:  # of whoever vanished, nobody is there whose limit could be set
            limits = {name: limits[name] for name in readings.names}
            shares = {name: shares[name] for name in readings.names}
        try:
            self._governor.set(limits, shares)
        except Exception:
            self._is_begun = False  # the policy remembers a decision that no entry will tell of
            raise
        self.nonsense += decision.nonsense
        self.steps += 1
        if self._journal is not None and self._is_begun:  # without a beginning, nobody could read it
            self._note(step_entry(readings, apps, decision, weighs))
        return decision

    def _present(self, readings: Readings) -> tuple[str, ...]:
        """Return those who count: who is read, and who was a moment ago."""
        if not self._absent or readings.names != tuple(self._absent) or any(self._absent.values()):
            absent = dict.fromkeys(readings.names, 0)
            for name, steps in self._absent.items():
                if name not in readings.places and steps + 1 <= PATIENCE_STEPS and self._is_there(name):
                    absent[name] = steps + 1
            if absent.keys() == self._absent.keys():  # another order would make much of what is known anew
                absent = {name: absent[name] for name in self._absent}
            self._absent = absent
        return tuple(self._absent)

    def _applications(self, names: tuple[str, ...]) -> Applications:
        roster = self._roster()
        if self._apps is None or self._apps[0] is not roster or self._apps[1].names != names:
            self._apps = (roster, roster.of(names))
        return self._apps[1]

    def _note(self, entry: Mapping[str, object]) -> None:
        if self._journal is not None and self._journal.write(entry):
            self._is_begun = False
