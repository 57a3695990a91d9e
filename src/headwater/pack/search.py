"""Which packings does chance find? The genetic algorithm of paper 004, and annealing."""

from __future__ import annotations

import numpy as np

from headwater.model.chance import seeded
from headwater.pack.evolve import evolve
from headwater.pack.kernels import above_of, peak_of
from headwater.pack.loads import Found, Ints, Loads, room_of, volume_bound
from headwater.pack.result import Limits, is_reached
from headwater.pack.shake import shake
from headwater.pack.simple import fitted

__all__ = ["PENALTY", "anneal", "cost_of", "ga", "ga_with", "shaken"]

POPULATION, GENERATIONS, MATING, MUTATION, ELITE = 100, 1000, 0.3, 0.2, 3  # as paper 004 gives them
PENALTY = 4.0  # machines that a peak of twice the capacity is counted as; paper 004 does not give its own
STEPS = 3_000_000  # of annealing, for each number of machines
TRIES = 3  # for each number of machines, each with other chance
SLICE = 250_000  # steps between two looks at the fence
HOT, COLD = 0.12, 0.004  # heat at both ends, relative to the mean load of an operator


def ga(loads: Loads, seed: int, limits: Limits) -> Found:
    """Return the best packing of the genetic algorithm of paper 004; it may overload."""
    return ga_with(loads, seed, limits, PENALTY)


def ga_with(loads: Loads, seed: int, limits: Limits, penalty: float) -> Found:
    """Return the best packing of the genetic algorithm of paper 004, overload fined by a penalty."""
    kinds, numbers = room_of(loads)
    chance = seeded(seed, 4)
    rng = np.random.default_rng(seed)
    people = rng.integers(0, len(kinds), (POPULATION, len(loads.names)), dtype=np.int64)
    fitness = np.zeros(POPULATION)
    made = 0
    while made < GENERATIONS and limits.remaining_s() > 0.0:
        limits.say("evolving", made / GENERATIONS)
        part = min(50, GENERATIONS - made)
        evolve(
            loads.vectors, loads.means, loads.is_wave, loads.capacities[kinds], loads.prices[kinds],
            loads.overload_price, penalty, people, fitness, chance, part, MATING, MUTATION, ELITE,
        )  # fmt: skip
        made += part
    note = f"{made} generations of {POPULATION} from a random start; overload fined, not forbidden"
    return Found(numbers[_counted(people[0], kinds)], cut_short=made < GENERATIONS, because=(note,))


def _counted(where: Ints, kinds: Ints) -> Ints:
    """Return a packing with the machines of each kind numbered as they come, without holes."""
    placed = where.copy()
    for kind in np.unique(kinds):
        first = int(np.flatnonzero(kinds == kind)[0])
        used = [m for m in dict.fromkeys(where.tolist()) if kinds[m] == kind]
        for number, machine in enumerate(used):
            placed[where == machine] = first + number
    return placed


def cost_of(loads: Loads, where: Ints | None) -> float:
    """Return what a packing costs; infinite where there is none, or where it overloads and must not."""
    if where is None:
        return np.inf
    kinds, _ = room_of(loads)
    cost = 0.0
    for machine in np.unique(where):
        load = loads.vectors[where == machine].sum(axis=0)
        kind = kinds[machine]
        cost += float(loads.prices[kind])
        if peak_of(load, loads.is_wave) > loads.capacities[kind]:
            cost += loads.overload_price * above_of(load, float(loads.capacities[kind]), loads.is_wave)
            if loads.is_hard:
                return np.inf
    return cost


def anneal(loads: Loads, seed: int, limits: Limits) -> Found:
    """Return what annealing makes of best fit: one machine less at a time, as long as that succeeds."""
    start = fitted(loads, np.argsort(-loads.peaks, kind="stable"))
    where, is_cut = shaken(loads, start, volume_bound(loads), seed, limits)
    if where is None:
        return Found(None, cut_short=is_cut, because=("annealing found no packing without overload",))
    note = "best fit, then annealing: " + (
        "machines emptied one by one" if loads.is_plain else "operators moved and exchanged for the least cost"
    )
    return Found(where, cut_short=is_cut, because=(note,))


def shaken(
    loads: Loads, where: Ints | None, goal: float, seed: int, limits: Limits, steps: int = STEPS, tries: int = TRIES
) -> tuple[Ints | None, bool]:
    """Return a packing at most as dear, and whether the fence ended the search; `goal` is a cost to be content with."""
    if not loads.is_plain:
        return _cheaper(loads, where, goal, seed, limits, steps)
    most = int(loads.counts[0])
    best = None if where is None else _counted(where, np.zeros(most, np.int64))
    used = most + 1 if best is None else int(best.max()) + 1
    while used - 1 >= max(1.0, goal - 1e-9):
        limits.say(f"annealing on {used - 1} machines", None)
        fewer, is_cut = _emptied(loads, best, used - 1, seed, limits, steps, tries)
        if fewer is None:
            return best, is_cut
        best, used = fewer, used - 1
    return best, False


def _emptied(
    loads: Loads, where: Ints | None, machines: int, seed: int, limits: Limits, steps: int, tries: int
) -> tuple[Ints | None, bool]:
    """Return a packing on so many machines, or None."""
    mean = float(loads.means.mean())
    capacities = np.full(machines, loads.capacities[0])
    for again in range(tries):
        chance = seeded(seed, 100 + 1000 * machines + again)
        now = _squeezed(loads, where, machines, seed)
        best = now.copy()
        least = np.inf
        for done in range(0, steps, SLICE):
            if limits.remaining_s() <= 0.0:
                return None, True
            least = shake(
                loads.vectors, loads.is_wave, capacities, np.zeros(machines), np.inf, 1.0, now, best, chance, done,
                SLICE, steps, HOT * mean, COLD * mean, 0.0, least,
            )  # fmt: skip
            if least <= 0.0:
                if np.isfinite(cost_of(loads, best)):
                    return best, False
                break
    return None, False


def _squeezed(loads: Loads, where: Ints | None, machines: int, seed: int) -> Ints:
    """Return operators on fewer machines: the emptiest one's go where their mean load fits best."""
    if where is None:
        return np.random.default_rng(seed).integers(0, machines, len(loads.names), dtype=np.int64)
    held = np.bincount(where, loads.means, machines + 1)
    empty = int(np.argmin(held))
    now = where.copy()
    now[now == machines] = empty if empty != machines else machines
    moving = np.flatnonzero(where == empty)
    kept = np.delete(held, empty) if empty == machines else np.where(np.arange(machines) == empty, held[-1], held[:-1])
    for i in moving:
        target = int(np.argmin(kept))
        now[i] = target
        kept[target] += loads.means[i]
    return now


def _cheaper(
    loads: Loads, where: Ints | None, goal: float, seed: int, limits: Limits, steps: int
) -> tuple[Ints | None, bool]:
    """Return the cheapest packing that annealing finds over machines of all kinds."""
    kinds, _ = room_of(loads)
    rng = np.random.default_rng(seed)
    now = rng.integers(0, len(kinds), len(loads.names), dtype=np.int64) if where is None else where.copy()
    best = now.copy()
    found, cost = where, cost_of(loads, where)
    scale = float(loads.prices.mean())
    heavy = 3.0 * scale / float(loads.means.mean())  # what does not fit is dearer than a machine for it
    chance, least = seeded(seed, 5), np.inf
    for done in range(0, steps, SLICE):
        if is_reached(cost, goal):
            break
        if limits.remaining_s() <= 0.0:
            return found, True
        limits.say("annealing", done / steps)
        least = shake(
            loads.vectors, loads.is_wave, loads.capacities[kinds], loads.prices[kinds], loads.overload_price, heavy,
            now, best, chance, done, SLICE, steps, 0.5 * scale, 0.01 * scale, goal, least,
        )  # fmt: skip
        if cost_of(loads, best) < cost:
            found, cost = best.copy(), cost_of(loads, best)
    return (None if found is None else _counted(found, kinds)), False
