"""What was decided for the applications of one machine, and why?

A `Decision` is a value: columns over applications, with the reasons made into sentences only when somebody asks,
since there may be thousands of them every second.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headwater.control.allocate import Classes, classes
from headwater.control.normal import quantile
from headwater.control.readings import Floats, Ints
from headwater.model.quality import Quality
from headwater.model.units import show

__all__ = ["Applications", "Decision", "GivesWay", "applications", "given_way"]

HELD = 1e-9  # of a demand may be missing without anybody noticing


@dataclass(frozen=True)
class Applications:
    """Those that share a machine, and what each is held to."""

    names: tuple[str, ...]
    qualities: tuple[Quality, ...]
    goal_s: Floats
    weight: Floats
    tolerated: Floats
    caution: Floats  # deviations above what is expected, within which all but the tolerated part comes
    least: Floats  # share below which one is never pressed
    most: Floats  # share above which one can use nothing
    grouped: Classes


def applications(
    names: tuple[str, ...],
    qualities: tuple[Quality, ...],
    least: Floats | float = 0.0,
    most: Floats | float = np.inf,
) -> Applications:
    """Return columns of what applications are held to."""
    count = len(names)
    weight = np.array([one.weight for one in qualities], np.float64)
    tolerated = np.array([one.tolerated for one in qualities], np.float64)
    return Applications(
        names,
        qualities,
        np.array([one.goal_s for one in qualities], np.float64),
        weight,
        tolerated,
        quantile(1.0 - tolerated),
        np.broadcast_to(np.asarray(least, np.float64), (count,)),
        np.broadcast_to(np.asarray(most, np.float64), (count,)),
        classes(weight),
    )


@dataclass(frozen=True, slots=True)
class GivesWay:
    """A goal that no admissible shares hold: the sign that operators should be placed anew."""

    quality: str
    count: int  # applications of it that lack something
    lacking: float  # processor that they lack together
    worst: str  # the one whose goal is missed by most
    goal_s: float  # of that one
    predicted_s: float  # of that one: 99th percentile at the end of the horizon
    work_s: float = 0.0  # of a record of that one, in seconds of one core

    def __str__(self) -> str:
        """Say it in a sentence."""
        others = "" if self.count == 1 else f" and {self.count - 1} more of '{self.quality}'"
        return (
            f"'{self.worst}'{others} give{'s' if self.count == 1 else ''} way: {show(self.predicted_s, 'time')} "
            f"expected where {show(self.goal_s, 'time')} is the goal; "
            + (
                f"a record alone takes {show(self.work_s, 'time')} of a core"
                if self.work_s > self.goal_s
                else f"{self.lacking:.3g} cores are missing"
            )
        )


@dataclass(frozen=True)
class Decision:
    """Shares for one machine."""

    now_s: float
    names: tuple[str, ...]
    shares: Floats  # of the machine; together they are within it
    reach: Floats  # what each can reckon with: its share, and what others are expected to leave
    limits: Floats  # what it may use at most, where weights keep shares: what lighter classes have beside that
    alone: (
        Floats  # what it may use at most where limits alone keep shares: what it can reckon with or, if more, its part
    )
    demand: Floats  # that the goals ask for, as far as the machine has it and the application can use it
    asked: Floats  # that they ask for, whatever there is
    rate_rps: Floats  # that was reckoned with
    queue: Floats
    late_s: Floats  # 99th percentile of latency as it seems to be
    predicted_s: Floats  # and as it is expected at the end of the horizon, with what it can reckon with
    goal_s: Floats
    most: Floats  # above which one can use nothing
    rank: Ints  # of its class, 0 for the heaviest
    capacity: float
    gives_way: tuple[GivesWay, ...] = ()
    nonsense: int = 0  # entries of the meter that were not believed
    because: str = ""  # of the machine as a whole
    is_by_class: bool = True  # whether heavier classes come first

    def set_limits(self, weighs: bool) -> Floats:
        """Return the limits for a governor that weighs, or for one that does not."""
        return self.limits if weighs else self.alone

    @cached_property
    def limit_of(self) -> dict[str, float]:
        """Limits by name."""
        return dict(zip(self.names, self.limits.tolist(), strict=True))

    @cached_property
    def alone_of(self) -> dict[str, float]:
        """Limits by name, where nothing but limits keeps shares."""
        return dict(zip(self.names, self.alone.tolist(), strict=True))

    @cached_property
    def share_of(self) -> dict[str, float]:
        """Shares by name."""
        return dict(zip(self.names, self.shares.tolist(), strict=True))

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each name in the columns."""
        return {name: i for i, name in enumerate(self.names)}

    def reason(self, name: str) -> str:
        """Say why an application gets its share."""
        i = self.places[name]
        share, asked = float(self.shares[i]), float(self.asked[i])
        parts = [f"{self.rate_rps[i]:.4g} records/s expected"]
        if self.queue[i] >= 1.0:
            parts.append(f"{self.queue[i]:.0f} wait")
        parts.append(f"its goal of {show(float(self.goal_s[i]), 'time')} asks for {asked:.3g} cores")
        if share == np.inf:
            parts.append("nothing is limited")
        elif share < asked * (1.0 - HELD):
            parts.append(self._why_less(i, share))
        elif share > asked * (1.0 + HELD):
            parts.append(f"{share - asked:.3g} more are spare")
        return "; ".join(parts)

    def _why_less(self, i: int, share: float) -> str:
        if share >= float(self.most[i]) * (1.0 - HELD):
            return f"it can use {share:.3g} at most"
        lent = float(self.reach[i]) - share
        if not self.is_by_class:
            text = f"{share:.3g} are its part"
        elif self.rank[i] > 0:
            text = f"heavier classes come first: {share:.3g} are left"
        else:
            text = f"the machine has no more for its class: {share:.3g} are its part"
        return f"{text}, and {lent:.3g} that others do not use are lent to it" if lent > HELD * share else text

    def row(self, name: str) -> dict[str, Any]:
        """Return all that is known of one application."""
        i = self.places[name]
        return {
            "share": float(self.shares[i]),
            "limit": float(self.limits[i]),
            "demand": float(self.demand[i]),
            "rate_rps": float(self.rate_rps[i]),
            "queue": float(self.queue[i]),
            "late_s": float(self.late_s[i]),
            "predicted_s": float(self.predicted_s[i]),
            "goal_s": float(self.goal_s[i]),
            "because": self.reason(name),
        }


def given_way(
    apps: Applications, reach: Floats, asked: Floats, predicted_s: Floats, work_s: Floats
) -> tuple[GivesWay, ...]:
    """Return which goals give way, the heaviest first: those that lack something and are expected to be missed.

    What one can reckon with is its share and what is lent to it, so that what is lent is not lacking. What its goal
    asks for beyond what it could ever use is: no other shares would hold that goal here, but another place would.
    """
    lacks = np.maximum(0.0, asked - reach)
    is_missed = (lacks > HELD * asked) & (predicted_s > apps.goal_s)
    if not bool(is_missed.any()):
        return ()
    found = []
    for number in range(len(apps.grouped.weights)):
        mine = np.flatnonzero(is_missed & (apps.grouped.of == number))
        if len(mine):
            worst = int(mine[np.argmax(predicted_s[mine] - apps.goal_s[mine])])
            found.append(
                GivesWay(
                    apps.qualities[worst].name,
                    len(mine),
                    float(lacks[mine].sum()),
                    apps.names[worst],
                    float(apps.goal_s[worst]),
                    float(predicted_s[worst]),
                    float(np.nan_to_num(work_s[worst])),
                )
            )
    return tuple(found)
