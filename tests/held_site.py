"""A site of three applications whose goals are held, as a table says what comes: what tests of holding goals share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from headwater.control.readings import Reading, Readings, of_rows
from headwater.model.quality import QUALITIES
from headwater.run.qos import Holder, Roster

GOLD, SILVER, BRONZE = QUALITIES["gold"], QUALITIES["silver"], QUALITIES["bronze"]
WORK_S = 0.01
ROSTER = Roster({"a": GOLD, "b": SILVER, "c": BRONZE}, least=0.01)


class TableMeter:
    """Says what it was told to say; records flow in the amounts of a table."""

    def __init__(self, rates_rps: Mapping[str, float]) -> None:
        self.rates_rps = dict(rates_rps)
        self.shares: dict[str, float] = {}
        self.queue: dict[str, float] = {}
        self.spoil: dict[tuple[str, str], float] = {}  # by name and column

    def read(self) -> Readings:
        rows = {}
        for name, rate_rps in self.rates_rps.items():
            share = self.shares.get(name, 1.0)
            waiting = self.queue.get(name, 0.0) + rate_rps
            done = min(waiting, share / WORK_S)
            self.queue[name] = waiting - done
            row = Reading(1.0, rate_rps, done, waiting - done, WORK_S, done * WORK_S, share)
            spoiled = {key: value for (of, key), value in self.spoil.items() if of == name}
            rows[name] = replace(row, **spoiled)
        return of_rows(rows)


class TableGovernor:
    """Keeps what is set, and tells the meter."""

    weighs = True

    def __init__(self, meter: TableMeter) -> None:
        self.meter = meter
        self.calls: list[tuple[dict[str, float], dict[str, float]]] = []

    def set(self, limits: Mapping[str, float], shares: Mapping[str, float] | None = None) -> None:
        self.calls.append((dict(limits), dict(shares or {})))
        self.meter.shares.update(limits)


class Lines:
    """Keeps entries as they would lie in a file."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, entry: Mapping[str, object]) -> bool:
        self.lines.append(json.dumps(entry, allow_nan=False))
        return False

    @property
    def entries(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines]


class Site:
    """A holder with all that it touches."""

    def __init__(
        self, rates_rps: Mapping[str, float], capacity: float = 4.0, policy: str = "predictive",
        shares: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.meter = TableMeter(rates_rps)
        self.governor = TableGovernor(self.meter)
        self.journal = Lines()
        self.roster = ROSTER
        self.holder = Holder(
            self.meter, self.governor, lambda: self.roster, lambda: capacity, policy, self.journal, shares
        )
        self.now_s = 1000.0

    def steps(self, count: int) -> list[dict[str, float]]:
        """Go on, and return the shares of each step."""
        found = []
        for _ in range(count):
            self.now_s += 1.0
            decision = self.holder.step(self.now_s)
            assert decision is not None
            found.append(decision.share_of)
        return found


RATES_RPS = {"a": 50.0, "b": 40.0, "c": 30.0}
