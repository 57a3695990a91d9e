"""Which placement is better? The methods that look at F: descent, tabu search, annealing, evolution.

Each takes the arrays, a seed and limits and gives `Found`. They are bounded by counted steps, so that
the same seed gives the same answer; the wall clock only cuts short, and then they say so.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.errors import Mistake, SpecError
from headwater.model.routes import Ints
from headwater.place import growth, kernels, neighbourhood, population
from headwater.place.arrays import LEVEL, NEED, RULE, SLOTS, Arrays
from headwater.place.constructive import hlf
from headwater.place.feasible import random_start, unit_hosts
from headwater.place.result import Limits
from headwater.place.state import State, seeded

__all__ = ["Found", "anneal", "descend", "exhaustive", "ga", "greedy", "sd", "tidied", "ts"]

STEP_BUDGET = 30_000_000  # steps that sd and ts may evaluate in all
ROUND_BUDGET = 4_000_000  # steps of one call of the neighbourhood kernel, between looks at the clock
CHUNK = 100_000  # annealing steps between looks at the clock
HEATS = (0.5, 0.1, 0.2, 0.03, 0.1, 0.01)  # of the coolings, as shares of what a random move changes
TABU_LENGTH = 16
TABU_IDLE = 60  # rounds without a better placement after which tabu search ends
MOST_ENUMERATED = 20_000_000
POPULATION, GENERATIONS, MATING, MUTATION, ELITE = 100, 1000, 0.3, 0.2, 3  # paper 004, section 5
EVOLUTION_WORK = 3_000_000_000  # operators and streams that evolution may evaluate in all
TIDY_WIDTH = 64  # hosts up to which tidying looks at all of them
GREEDY_WIDTH = 24  # hosts near the writers that greedy looks at
NEAR_ZERO = 1e-13


@dataclass(frozen=True, slots=True)
class Found:
    """What a method came to."""

    where: Ints  # host of each operator
    evaluations: int
    cut_short: bool = False
    lower_bound: float = -np.inf  # what the method itself proved
    because: tuple[str, ...] = ()


def _start(arrays: Arrays, seed: int) -> Ints:
    where = random_start(arrays, np.random.default_rng(seed))
    assert where is not None, "feasibility was checked before"
    return where


def sd(arrays: Arrays, seed: int, limits: Limits) -> Found:
    """Steepest descent: the best of all switch and swap steps, from a random valid start, while it improves."""
    state = State(arrays, _start(arrays, seed))
    none = np.full(1, -1, np.int32)
    rounds, is_cut = 0, False
    while True:
        before = state.evaluations
        f, kind, one, two = neighbourhood.best_step(state.problem, state.parts, none, none, -np.inf, ROUND_BUDGET)
        rounds += 1
        is_whole = state.evaluations - before < ROUND_BUDGET
        limits.say(f"steepest descent, round {rounds}, F {state.f:.6g}", None)
        if kind < 0 or f >= state.f - NEAR_ZERO:
            break
        neighbourhood.make_step(state.problem, state.parts, kind, one, two)
        if state.evaluations >= STEP_BUDGET:
            is_whole = False
            break
        if limits.remaining_s() <= 0:
            is_cut = True
            break
    note = f"{rounds} rounds from a random start" + ("" if is_whole else "; neighbourhood too large to be seen whole")
    return Found(state.where.copy(), state.evaluations, is_cut, because=(note,))


def ts(arrays: Arrays, seed: int, limits: Limits) -> Found:
    """Tabu search: the best step that does not undo a recent one, better or not, from a random valid start."""
    state = State(arrays, _start(arrays, seed))
    best, best_f, idle, rounds, is_cut = state.where.copy(), state.f, 0, 0, False
    recent: deque[tuple[int, int]] = deque([(-1, -1)] * TABU_LENGTH, TABU_LENGTH)
    while idle < TABU_IDLE and state.evaluations < STEP_BUDGET:
        tabu = np.array(recent, np.int32)
        _, kind, one, two = neighbourhood.best_step(
            state.problem, state.parts, tabu[:, 0].copy(), tabu[:, 1].copy(), best_f - NEAR_ZERO, ROUND_BUDGET
        )
        if kind < 0:
            break
        recent.append((one, int(state.where[one])))
        if kind == 1:
            recent.append((two, int(state.where[two])))
        neighbourhood.make_step(state.problem, state.parts, kind, one, two)
        rounds += 1
        idle += 1
        if state.f < best_f - NEAR_ZERO:
            best, best_f, idle = state.where.copy(), state.f, 0
        limits.say(f"tabu search, round {rounds}, best F {best_f:.6g}", None)
        if limits.remaining_s() <= 0:
            is_cut = True
            break
    note = f"{rounds} rounds from a random start, tabu list of {TABU_LENGTH}"
    return Found(best, state.evaluations, is_cut, because=(note,))


def greedy(arrays: Arrays, passes: int = 2) -> Found:
    """Place in topological order, each operator where F is least; then once more with all in place."""
    where = hlf(arrays)
    assert where is not None, "feasibility was checked before"
    is_floating = (arrays.ops[:, RULE] < 0).astype(np.uint8)
    for unit in np.flatnonzero(np.diff(arrays.unit_at) > 1):
        is_floating[arrays.unit_ops[arrays.unit_at[unit] : arrays.unit_at[unit + 1]]] = 0
    ranked = _strongest(arrays)
    extra = ranked[:8]
    fallback = where.copy()
    where[is_floating == 1] = extra[0]
    _seat_needy(arrays, where, is_floating, ranked)
    state = State(arrays, where)
    growth.construct(state.problem, state.parts, is_floating, extra, GREEDY_WIDTH)
    count = state.evaluations
    if (state.used > arrays.hosts[:, SLOTS]).any() or _breaks_apart(arrays, state.where):
        state.set(fallback)
    for _ in range(passes - 1):
        growth.construct(state.problem, state.parts, np.zeros_like(is_floating), extra, GREEDY_WIDTH)
    start = State(arrays, fallback)
    if start.f < state.f:
        return Found(fallback, count, because=("the structure alone was better than greedy",))
    return Found(state.where.copy(), state.evaluations, because=("greedy in topological order",))


def _breaks_apart(arrays: Arrays, where: Ints) -> bool:
    owner = np.repeat(np.arange(len(where)), np.diff(arrays.apart_at))
    return bool((where[owner] == where[arrays.apart]).any())


def _strongest(arrays: Arrays) -> Ints:
    """Return the hosts in the order in which they suit any operator: roots, high classes, quick ones, roomy ones."""
    hosts = arrays.problem.hosts
    is_root = np.fromiter((site.kind == "root" for site in hosts), bool, len(hosts))
    columns = (np.arange(len(hosts)), -arrays.hosts[:, SLOTS], arrays.pace, -arrays.hosts[:, LEVEL], ~is_root)
    return np.lexsort(columns).astype(np.int32)


def _seat_needy(arrays: Arrays, where: Ints, is_floating: npt.NDArray[np.uint8], ranked: Ints) -> None:
    """Give floating operators that need a class a slot of that class first, before others take them all.

    They may still move when their turn comes. Where there is room for everybody this changes nothing much;
    where there is not, it saves the strong sites for those who need them.
    """
    free = arrays.hosts[:, SLOTS] - np.bincount(where[is_floating == 0], minlength=len(arrays.hosts))
    for need in (3, 2):
        able = [int(h) for h in ranked if arrays.hosts[h, LEVEL] >= need and free[h] > 0]
        seats = iter(able)
        seat = next(seats, None)
        for op in np.flatnonzero((arrays.ops[:, NEED] == need) & (is_floating == 1))[::-1]:
            while seat is not None and free[seat] <= 0:
                seat = next(seats, None)
            if seat is None:
                break
            where[op] = seat
            free[seat] -= 1
            is_floating[op] = 0


def descend(arrays: Arrays, where: Ints, seed: int, steps: int, limits: Limits) -> Found:
    """Take random improving steps only, biased to the critical path."""
    return _cool(arrays, State(arrays, where), seed, steps, (0.0,), limits)


def anneal(
    arrays: Arrays,
    seed: int,
    limits: Limits,
    *,
    where: Ints | None = None,
    floor: float = -np.inf,
    most: int = 12_000_000,
) -> Found:
    """Simulated annealing with delta evaluation, from greedy, several times with falling heat.

    At most about `most` steps in all. Ends as soon as F reaches `floor`, a bound known already.
    """
    count = 0
    if where is None:
        found = greedy(arrays)
        where, count = found.where, found.evaluations
    state = State(arrays, where)
    state.sums[5] = count
    spread = float(kernels.probe(state.problem, state.parts, seeded(seed, 1), 2000))
    heats = tuple(max(spread, 1e-9) * share for share in HEATS)
    steps = min(most // len(heats), 60_000 + 6_000 * len(arrays.names))
    return _cool(arrays, state, seed, steps, heats, limits, floor)


def _cool(
    arrays: Arrays,
    state: State,
    seed: int,
    steps: int,
    heats: tuple[float, ...],
    limits: Limits,
    floor: float = -np.inf,
) -> Found:
    best, best_f, is_cut = state.where.copy(), state.f, False
    chance = seeded(seed, 2)
    for number, hot in enumerate(heats):
        state.set(best)
        done = 0
        while done < steps and not is_cut and best_f > floor + 1e-12:
            some = min(CHUNK, steps - done)
            best_f = kernels.improve(
                state.problem, state.parts, best, chance, done, some, steps, hot, hot * 1e-3, best_f
            )
            done += some
            is_cut = limits.remaining_s() <= 0
            limits.say(f"annealing, F {best_f:.6g}", (number + done / steps) / len(heats))
    what = "descent by random steps" if heats == (0.0,) else f"annealing in {len(heats)} coolings of {steps} steps"
    return Found(best, state.evaluations, is_cut, because=(what,))


def tidied(arrays: Arrays, where: Ints) -> Ints:
    """Return a placement with the same F, or a smaller one, and less traffic on the network."""
    state = State(arrays, where)
    before = state.f
    growth.tidy(state.problem, state.parts, TIDY_WIDTH, before + 1e-12)
    state.fill()
    return state.where.copy() if state.f <= before + 1e-12 else where


def ga(arrays: Arrays, seed: int, limits: Limits) -> Found:
    """A genetic algorithm with the operators and settings of paper 004."""
    rng = np.random.default_rng(seed)
    hosts = unit_hosts(arrays)
    first = arrays.unit_ops[arrays.unit_at[:-1]]
    people = np.array(
        [
            np.array([rng.choice(some) for some in hosts]) if i >= ELITE else _start(arrays, seed * ELITE + i)[first]
            for i in range(POPULATION)
        ],
        np.int32,
    )
    state = State(arrays, _start(arrays, seed))
    work = len(arrays.names) + len(arrays.streams)
    generations = max(10, min(GENERATIONS, EVOLUTION_WORK // (work * work.bit_length() * POPULATION)))
    fitness = np.zeros(POPULATION)
    chance = seeded(seed, 3)
    done, is_cut = 0, False
    while done < generations and not is_cut:
        some = min(20, generations - done)
        population.evolve(state.problem, state.parts, people, fitness, chance, some, MATING, MUTATION, ELITE)
        done += some
        is_cut = limits.remaining_s() <= 0
        limits.say(f"generation {done} of {generations}, best F {fitness[0]:.6g}", done / generations)
    where = np.empty(len(arrays.names), np.int32)
    where[arrays.unit_ops] = np.repeat(people[0], np.diff(arrays.unit_at))
    note = f"{done} generations of {POPULATION}" + ("" if generations == GENERATIONS else f" (of {GENERATIONS}: large)")
    return Found(where, state.evaluations, is_cut, because=(note,))


def exhaustive(arrays: Arrays, seed: int, limits: Limits) -> Found:
    """Try every valid placement; only for small problems."""
    del seed
    digits = sum(math.log10(max(1, len(some))) for some in unit_hosts(arrays))
    state = State(arrays, _start(arrays, 0))
    best, best_f = state.where.copy(), np.zeros(1)
    limits.say(f"trying up to 10^{digits:.0f} placements", None)
    valid = -1
    if digits <= math.log10(MOST_ENUMERATED):
        valid = population.enumerate_all(state.problem, state.parts, best, best_f, 4 * MOST_ENUMERATED)
    if valid < 0:
        raise SpecError(
            Mistake(
                "HW1401",
                f"the method 'exhaustive' would have to try up to 10^{digits:.0f} placements; it stops at "
                f"{MOST_ENUMERATED:.0e}. Use 'exact' or 'auto'.",
            )
        )
    return Found(best, state.evaluations, False, float(best_f[0]), (f"all {valid} valid placements tried",))
