"""How many placements can be judged in a second?

Four ways to the same F on one problem, in one process on one core, in turns, so that a busy machine slows
all of them alike: a candidate next to a placement by the incremental kernel, the whole placement by the
compiled kernel, and the whole placement in plain Python, lean and as `headwater score` does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench import plain
from headwater.cost.problem import Problem
from headwater.cost.score import evaluate
from headwater.place import kernels
from headwater.place.arrays import arrays
from headwater.place.search import greedy
from headwater.place.state import VERSION, State, seeded

__all__ = ["WAYS", "measure"]

WAYS = ("incremental", "compiled", "lean", "score")
BATCH = 1000  # candidates between two moments at which the kernel forgets what it remembers of a placement
TURN_S = 0.3  # for each way in each round
SAME = 1e-9


def measure(problem: Problem, rounds: int) -> dict[str, Any]:
    """Return evaluations a second of each way in each round, their medians and the medians of the ratios."""
    flat = arrays(problem)
    state = State(flat, greedy(flat).where)
    placement = flat.named(state.where)
    lean = plain.evaluator(problem)
    whole = evaluate(problem, placement).f
    assert whole is not None, "greedy gives a valid placement"
    assert max(abs(lean(placement) - whole), abs(state.f - whole)) <= SAME * whole, "all ways give one F"
    chance = seeded(0)

    def candidates() -> int:
        # In a search something moves now and then, and the longest paths that avoid an operator are sought again.
        state.sums[VERSION] += 1
        kernels.probe(state.problem, state.parts, chance, BATCH)
        return BATCH

    def once(what: Callable[[], object]) -> Callable[[], int]:
        def run() -> int:
            what()
            return 1

        return run

    ways = (candidates, once(state.fill), once(lambda: lean(placement)), once(lambda: evaluate(problem, placement)))
    rates: dict[str, list[float]] = {name: [] for name in WAYS}
    for way in ways:
        way()  # what is made at the first call is not part of the measure
    for _ in range(rounds):
        for name, way in zip(WAYS, ways, strict=True):
            rates[name].append(_rate(way))
    return {
        "rates": rates,
        "rate": {name: median(of) for name, of in rates.items()},
        "ratio": {
            name: median(fast / slow for fast, slow in zip(rates["incremental"], rates[name], strict=True))
            for name in WAYS[1:]
        },
        "counts_bw": bool(flat.weigh[2] > 0.0),
        "f": whole,
    }


def _rate(way: Callable[[], int]) -> float:
    """Return how many evaluations a second of processor time one way makes."""
    start, done = time.process_time(), 0
    while (seconds := time.process_time() - start) < TURN_S:
        done += way()
    return done / seconds
