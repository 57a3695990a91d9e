"""Which workloads does paper 004 pack? Its seven experiments, drawn again from seeds.

The paper gives the numbers of operators and machines and the bounds of baseline and amplitude; period 40 is that
of its scenarios, and phases are drawn evenly, for with equal phases its own results could not be reached.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headwater.model.workload import Kind, Sinusoid, Workload

__all__ = ["EXPERIMENTS", "Experiment", "many", "sample"]

CAPACITY, PERIOD = 500.0, 40.0


@dataclass(frozen=True, slots=True)
class Experiment:
    """One row of the paper's Table 1."""

    number: int
    operators: int
    machines: int
    baseline: tuple[float, float]
    amplitude: tuple[float, float]
    rstorm: float  # machines used, as the paper has it
    ga: float
    rstorm_utilisation: float
    ga_utilisation: float
    target: float  # mean machines used that ours should reach


LARGE, SMALL = ((100.0, 200.0), (40.0, 60.0)), ((90.0, 150.0), (30.0, 80.0))
EXPERIMENTS = {
    each.number: each
    for each in (
        Experiment(1, 12, 9, *LARGE, 5.3, 4.3, 0.693, 0.862, math.inf),
        Experiment(2, 50, 25, *LARGE, 19.7, 18.2, 0.755, 0.829, 17.0),
        Experiment(3, 100, 50, *LARGE, 38.8, 35.8, 0.771, 0.837, 32.5),
        Experiment(4, 200, 100, *LARGE, 73.7, 72.8, 0.781, 0.816, 64.5),
        Experiment(5, 50, 25, *SMALL, 16.8, 15.5, 0.710, 0.784, 13.7),
        Experiment(6, 100, 50, *SMALL, 33.0, 31.6, 0.724, 0.789, 26.5),
        Experiment(7, 200, 100, *SMALL, 61.6, 60.2, 0.725, 0.784, 52.0),
    )
}


def sample(experiment: Experiment, number: int) -> Workload:
    """Return one sample of an experiment; the same number gives the same sample."""
    rng = np.random.default_rng((experiment.number, number))
    return _drawn(rng, experiment.operators, experiment.machines, experiment.baseline, experiment.amplitude)


def many(operators: int, number: int = 0) -> Workload:
    """Return a workload of any size with the bounds of the first four experiments."""
    return _drawn(np.random.default_rng((operators, number)), operators, operators, *LARGE)


def _drawn(
    rng: np.random.Generator,
    operators: int,
    machines: int,
    baseline: tuple[float, float],
    amplitude: tuple[float, float],
) -> Workload:
    baselines = rng.uniform(*baseline, operators)
    amplitudes = rng.uniform(*amplitude, operators)
    phases = rng.uniform(0.0, 2.0 * math.pi, operators)
    signals = {
        f"t{i}": Sinusoid(float(b), float(a), PERIOD, float(p))
        for i, (b, a, p) in enumerate(zip(baselines, amplitudes, phases, strict=True))
    }
    return Workload(signals, (Kind(CAPACITY, machines),))
