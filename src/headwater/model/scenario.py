"""What is to be simulated?

A `Scenario` is what a scenario file says, already checked by `model.scenario_file`: machines or sites, operators
whose load rises and falls, and what happens to them when. How load moves on is for `sim`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from headwater.model.pipeline import Pipeline, Stream
from headwater.model.sites import Sites
from headwater.model.workload import Sinusoid

__all__ = [
    "LANE_HOP_S",
    "Change",
    "Event",
    "KillMachine",
    "KillOperator",
    "LinkChange",
    "Machine",
    "NewMachine",
    "NewOperator",
    "RateChange",
    "Samples",
    "Scenario",
    "Schedule",
    "Simulated",
]

# What a record spends in Kafka and Spark before an operator of each lane has it, measured for built-in functions.
LANE_HOP_S: Mapping[str, float] = MappingProxyType({"real-time": 0.0014, "micro-batch": 0.082})


@dataclass(frozen=True, slots=True)
class Samples:
    """A load that was measured: a value for every `step_s`, from time 0 on, repeated."""

    rates_rps: tuple[float, ...]
    step_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Machine:
    """Something that runs operators."""

    name: str
    cores: float = 1.0
    speed: float = 1.0  # work done per core second, relative to a reference machine
    price: float = 0.0  # per hour

    @property
    def capacity(self) -> float:
        """Seconds of work at speed 1 that it does in a second."""
        return self.cores * self.speed


@dataclass(frozen=True, slots=True)
class Simulated:
    """An operator as it is simulated."""

    name: str
    load: Sinusoid | Samples | None = None  # what comes from outside, in records per second; None: only its inputs
    inputs: tuple[Stream, ...] = ()
    work_s: float = 1.0  # processor seconds per record at speed 1
    rate_factor: float = 1.0  # records out per record in
    size_bytes: float = 0.0  # of a record that comes from outside
    size_factor: float = 1.0  # bytes out per byte in
    weights: tuple[float, ...] = (1.0,)  # the part of the records that each instance gets; their sum is 1
    queue: float = math.inf  # records that may wait at an instance; what comes above is dropped
    is_poisson: bool = False  # whether records come by chance; else evenly
    is_exponential: bool = False  # whether the work of a record is a matter of chance; else it is always the same
    lane: str | None = None  # 'real-time' or 'micro-batch'; None: hops cost nothing
    hop_s: float | None = None  # what a hop costs; None: as its lane does
    on: tuple[str, ...] = ()  # the machine of each instance, in turn; empty: not placed before a schedule says where
    share: float = math.inf  # of processor that an instance gets at most: seconds of work at speed 1 in a second
    quality: str | None = None  # 'class' in files: what it is held to where goals are held; None: the lowest
    goal_s: float | None = None  # 'p99' in files: a goal of its own; None: that of its class

    @property
    def hop(self) -> float:
        """Seconds that a record spends on the way in from another site, from outside, or from another lane."""
        if self.hop_s is not None:
            return self.hop_s
        return 0.0 if self.lane is None else LANE_HOP_S[self.lane]

    def instance(self, number: int) -> str:
        """Return the name of one of its instances."""
        return self.name if len(self.weights) == 1 else f"{self.name}/{number}"


@dataclass(frozen=True, slots=True)
class NewMachine:
    """A machine is added, or one that was killed comes back."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class NewOperator:
    """An operator is added; what comes in waits until it is placed."""

    operator: Simulated


@dataclass(frozen=True, slots=True)
class KillMachine:
    """A machine dies; its operators stop until a schedule places them elsewhere."""

    machine: str
    drops: bool = False  # whether what waited there is lost; else brokers have it


@dataclass(frozen=True, slots=True)
class KillOperator:
    """An operator is removed; what waits for it is dropped."""

    operator: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """A method decides which machine runs each operator."""

    method: str


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A link becomes another."""

    between: tuple[str, str]
    latency_s: float | None = None  # None: as before
    bandwidth_bps: float | None = None


@dataclass(frozen=True, slots=True)
class RateChange:
    """The load of an operator is multiplied, counted from what its load says."""

    operator: str
    factor: float


Change = NewMachine | NewOperator | KillMachine | KillOperator | Schedule | LinkChange | RateChange


@dataclass(frozen=True, slots=True)
class Event:
    """Something happens."""

    at_s: float
    change: Change


@dataclass(frozen=True, slots=True)
class Scenario:
    """Machines, operators and what happens."""

    name: str
    duration_s: float
    machines: tuple[Machine, ...]  # those that are there at time 0
    operators: tuple[Simulated, ...]  # those that are there at time 0
    events: tuple[Event, ...] = ()  # by time; those of one time in file order
    step_s: float = 1.0
    seed: int = 0
    sites: Sites | None = None  # the network between machines; None: all are together, and hops cost no time
    pipeline: Pipeline | None = None  # whose operators these are; None: they are the scenario's own
    knows: str = "measured"  # what schedules know of loads: 'measured' so far, or as 'declared'

    @property
    def steps(self) -> int:
        """Number of steps."""
        return max(1, round(self.duration_s / self.step_s))

    def step_at(self, at_s: float) -> int:
        """Return the step before which something at this time happens."""
        return min(self.steps, math.ceil(at_s / self.step_s - 1e-9))
