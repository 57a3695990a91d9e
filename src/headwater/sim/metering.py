"""What does a controller read of the simulated machines?

A `PlantMeter` keeps the port `Meter` over all machines or one of them. Each one counts for itself, so that several
controllers do not take each other's readings away.
"""

from __future__ import annotations

import numpy as np

from headwater.control.readings import Readings
from headwater.sim.plant import Plant

__all__ = ["PlantMeter"]

COUNTED = ("came", "done", "spent")


class PlantMeter:
    """The port `Meter`."""

    def __init__(self, plant: Plant, machine: str | None = None) -> None:
        """Begin to count; without a machine, of all that are placed."""
        self._plant = plant
        self._machine = None if machine is None else plant.cast.machine_number[machine]
        self._at = plant.step
        self._names = np.array(plant.cast.instances, object)
        plant.settle()
        self._before = {key: getattr(plant.counts, key).copy() for key in COUNTED}

    def read(self) -> Readings:
        """Return what was measured since it was read last."""
        plant = self._plant
        plant.settle()
        seconds = (plant.step - self._at) * plant.dt
        count = len(plant.cast.operator_of)
        machine = plant.machine
        is_mine = machine >= 0 if self._machine is None else machine == self._machine
        here = np.flatnonzero(is_mine) if seconds > 0.0 else np.zeros(0, np.int64)
        came, done, spent = (getattr(plant.counts, key)[:count][here] - self._before[key][:count][here]
                             for key in COUNTED)  # fmt: skip
        knobs, none = plant.knobs, np.zeros(len(here))
        columns = {
            "arrivals_rps": came / seconds if seconds > 0.0 else none,
            "throughput_rps": done / seconds if seconds > 0.0 else none,
            "queue": plant.waiting()[:count][here],
            "latency_s": np.where(done > 0.0, spent / np.where(done > 0.0, done, 1.0), 0.0),
            "used": done * knobs.work[:count][here] / seconds if seconds > 0.0 else none,
            "share": knobs.cap[:count][here],
            "late_s": np.full(len(here), np.nan),
            "run_delay": none,
            "throttled": none,
        }
        self._before = {key: getattr(plant.counts, key).copy() for key in COUNTED}
        self._at = plant.step
        return Readings(tuple(self._names[here].tolist()), seconds, columns)
