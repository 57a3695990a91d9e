"""Can it be placed at all, and if not, why?

`random_start` finds a valid placement by chance and augmenting paths; `explain` gives `Infeasible` with
what rules out each site and a small set of demands that cannot hold together. What chance and
augmenting cannot settle (units of several operators, operators apart) an integer programme settles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from headwater.cost.problem import Problem
from headwater.cost.score import listed
from headwater.errors import PlanError
from headwater.model.routes import Ints
from headwater.place.arrays import RULE, SLOTS, Arrays
from headwater.place.result import Infeasible, Unplaced

__all__ = ["explain", "random_start", "unit_hosts"]

Chance = np.random.Generator
MOST_CHOICES = 400_000  # unit-host pairs that the integer programme may have
NAMES_SHOWN = 4


def unit_hosts(arrays: Arrays) -> list[Ints]:
    """Return the hosts that every operator of a unit may use and whose slots hold them all."""
    found: list[Ints] = []
    whole: dict[tuple[int, int], Ints] = {}
    for unit in range(len(arrays.unit_at) - 1):
        members = arrays.unit_ops[arrays.unit_at[unit] : arrays.unit_at[unit + 1]]
        key = (int(arrays.ops[members[0], RULE]), len(members))
        if len(members) == 1 and key in whole:
            found.append(whole[key])
            continue
        hosts = arrays.allowed(int(members[0]))
        for op in members[1:]:
            hosts = np.intersect1d(hosts, arrays.allowed(int(op)), assume_unique=True)
        hosts = hosts[arrays.hosts[hosts, SLOTS] >= len(members)]
        if _is_torn(arrays, members):
            hosts = hosts[:0]
        if len(members) == 1:
            whole[key] = hosts
        found.append(hosts)
    return found


def random_start(arrays: Arrays, rng: Chance) -> Ints | None:
    """Return a random valid placement, or None where there is none."""
    hosts = unit_hosts(arrays)
    if any(len(some) == 0 for some in hosts):
        return None
    settled = _assign(arrays, hosts, range(len(hosts)), rng)
    return None if settled is None else _spread(arrays, settled)


def explain(arrays: Arrays) -> Infeasible | None:
    """Return why nothing is valid; None when something is."""
    problem = arrays.problem
    hosts = unit_hosts(arrays)
    nowhere = [unit for unit, some in enumerate(hosts) if len(some) == 0]
    if nowhere:
        members = [arrays.names[op] for unit in nowhere for op in _members(arrays, unit)]
        conflict = tuple(_demand(arrays, unit) for unit in nowhere[:8])
        return Infeasible(tuple(_unplaced(problem, name, ()) for name in members), conflict)
    rng = np.random.default_rng(0)
    if _assign(arrays, hosts, range(len(hosts)), rng) is not None:
        return None
    core = _shrink(arrays, hosts, list(range(len(hosts))))
    members = [arrays.names[op] for unit in core for op in _members(arrays, unit)]
    shared = sorted({int(h) for unit in core for h in hosts[unit]})
    slots = int(arrays.hosts[shared, SLOTS].sum())
    contested = tuple(problem.hosts[h].name for h in shared)
    few = listed(contested, NAMES_SHOWN)
    plural = "" if slots == 1 else "s"
    demands = [f"{len(members)} operators must share {slots} slot{plural} on {few}: {listed(members, 8)}"]
    demands += [
        f"'{name}' must be apart from '{other}'"
        for name in members
        for other in problem.pipeline.by_name[name].apart
        if other in members
    ]
    demands += [
        f"'{name}' must be with '{other}'" for name in members for other in problem.pipeline.by_name[name].together
    ]
    return Infeasible(tuple(_unplaced(problem, name, contested) for name in members), tuple(demands))


def _members(arrays: Arrays, unit: int) -> list[int]:
    return [int(op) for op in arrays.unit_ops[arrays.unit_at[unit] : arrays.unit_at[unit + 1]]]


def _is_torn(arrays: Arrays, members: npt.NDArray[np.int32]) -> bool:
    """Return whether two operators of one unit must stand apart."""
    inside = set(members.tolist())
    return any(
        int(other) in inside for op in inside for other in arrays.apart[arrays.apart_at[op] : arrays.apart_at[op + 1]]
    )


def _spread(arrays: Arrays, settled: dict[int, int]) -> Ints:
    where = np.empty(len(arrays.names), np.int32)
    for unit, host in settled.items():
        where[arrays.unit_ops[arrays.unit_at[unit] : arrays.unit_at[unit + 1]]] = host
    return where


def _assign(arrays: Arrays, hosts: Sequence[Ints], wanted: Iterable[int], rng: Chance) -> dict[int, int] | None:
    """Return a host for each wanted unit within slots and apart rules, or None where that cannot be."""
    wanted = list(wanted)
    size = np.diff(arrays.unit_at)
    foes = _foes(arrays)
    free = arrays.hosts[:, SLOTS].astype(np.int64)
    settled: dict[int, int] = {}
    here: dict[int, set[int]] = {}

    def put(unit: int, host: int) -> None:
        settled[unit] = host
        free[host] -= size[unit]
        here.setdefault(host, set()).add(unit)

    def take(unit: int) -> int:
        host = settled.pop(unit)
        free[host] += size[unit]
        here[host].remove(unit)
        return host

    def fits(unit: int, host: int) -> bool:
        return free[host] >= size[unit] and not any(settled.get(foe) == host for foe in foes.get(unit, ()))

    stuck = []
    shuffled = rng.permutation(len(wanted))
    for unit in sorted((wanted[i] for i in shuffled), key=lambda unit: (len(hosts[unit]), -size[unit])):
        some = hosts[unit]
        for host in some[rng.integers(len(some), size=24)]:
            if fits(unit, int(host)):
                put(unit, int(host))
                break
        else:
            with_room = some[free[some] >= size[unit]]
            open_hosts = [int(h) for h in with_room if fits(unit, int(h))]
            if open_hosts:
                put(unit, open_hosts[int(rng.integers(len(open_hosts)))])
            elif not _augment(unit, hosts, size, here, settled, put, take, fits):
                stuck.append(unit)
    if not stuck:
        return settled
    if all(size[unit] == 1 and unit not in foes for unit in wanted):
        return None  # augmenting paths are exact for single operators
    return _programme(arrays, hosts, wanted)


def _augment(unit, hosts, size, here, settled, put, take, fits) -> bool:  # type: ignore[no-untyped-def]
    """Make room for a unit by moving others along the shortest chain of hosts; return whether it worked."""
    came: dict[int, tuple[int, int]] = {}  # host -> (unit that would move in, host where that one is now)
    queue: deque[int] = deque()
    for host in hosts[unit].tolist():
        came[host] = (unit, -1)
        queue.append(host)
    while queue:
        host = queue.popleft()
        for other in sorted(here.get(host, ())):
            if size[other] < size[came[host][0]]:
                continue
            for target in hosts[other].tolist():
                if target in came:
                    continue
                came[target] = (other, host)
                if not fits(other, target):
                    queue.append(target)
                    continue
                chain = []
                step = target
                while step != -1:
                    mover, before = came[step]
                    chain.append((mover, step))
                    step = before
                origin = [(mover, take(mover)) for mover, _ in chain if mover in settled]
                if all(fits(mover, goal) and not put(mover, goal) for mover, goal in chain):
                    return True
                for mover, _ in chain:
                    if mover in settled:
                        take(mover)
                for mover, old in origin:
                    put(mover, old)
    return False


def _foes(arrays: Arrays) -> dict[int, set[int]]:
    """Return the units that must stand apart from a unit."""
    foes: dict[int, set[int]] = {}
    unit_of = arrays.ops[:, 6]
    for op in np.flatnonzero(np.diff(arrays.apart_at)):
        for other in arrays.apart[arrays.apart_at[op] : arrays.apart_at[op + 1]]:
            if unit_of[op] != unit_of[other]:
                foes.setdefault(int(unit_of[op]), set()).add(int(unit_of[other]))
    return foes


def _programme(arrays: Arrays, hosts: Sequence[Ints], wanted: Sequence[int]) -> dict[int, int] | None:
    """Settle by an integer programme whether the wanted units can be placed together."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import, seldom needed
    from scipy.sparse import coo_array  # noqa: PLC0415

    choices = [(unit, int(host)) for unit in wanted for host in hosts[unit]]
    if len(choices) > MOST_CHOICES:
        raise PlanError(
            "HW2004 no valid placement was found, and the problem is too large to prove that none exists. "
            "Add slots, or relax 'apart' and 'with'."
        )
    column = {choice: i for i, choice in enumerate(choices)}
    rows: list[tuple[list[tuple[int, float]], float, float]] = []
    size = np.diff(arrays.unit_at)
    by_host: dict[int, list[tuple[int, float]]] = {}
    for unit in wanted:
        rows.append(([(column[unit, int(h)], 1.0) for h in hosts[unit]], 1.0, 1.0))
    for (unit, host), i in column.items():
        by_host.setdefault(host, []).append((i, float(size[unit])))
    rows += [(entries, 0.0, float(arrays.hosts[host, SLOTS])) for host, entries in by_host.items()]
    for unit, others in _foes(arrays).items():
        for other in others:
            if unit < other:
                shared = set(hosts[unit].tolist()) & set(hosts[other].tolist())
                rows += [
                    ([(column[unit, h], 1.0), (column[other, h], 1.0)], 0.0, 1.0)
                    for h in sorted(shared)
                    if (unit, h) in column and (other, h) in column
                ]
    data = [(r, c, v) for r, (entries, _, _) in enumerate(rows) for c, v in entries]
    r, c, v = (np.array(part) for part in zip(*data, strict=True))
    matrix = coo_array((v, (r, c)), shape=(len(rows), len(choices))).tocsr()
    answer = milp(
        np.zeros(len(choices)),
        integrality=np.ones(len(choices)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, [row[1] for row in rows], [row[2] for row in rows]),
    )
    if answer.x is None:
        return None
    return {unit: host for (unit, host), x in zip(choices, answer.x, strict=True) if x > 0.5}


def _shrink(arrays: Arrays, hosts: Sequence[Ints], core: list[int]) -> list[int]:
    """Return a set of units that cannot be placed together, of which none can be left out."""
    rng = np.random.default_rng(0)

    def is_possible(units: list[int]) -> bool:
        return _assign(arrays, hosts, units, rng) is not None

    step = max(1, len(core) // 2)
    while step >= 1:  # leave out large parts first, then single units
        i = 0
        while i < len(core):
            rest = core[:i] + core[i + step :]
            if rest and not is_possible(rest):
                core = rest
            else:
                i += step
        step = step // 2 if step > 1 else 0
    return core


def _demand(arrays: Arrays, unit: int) -> str:
    names = [arrays.names[op] for op in _members(arrays, unit)]
    if len(names) == 1:
        return f"'{names[0]}' {_wish(arrays.problem, names[0])}"
    return f"{listed(names, 8)} must share one site with {len(names)} slots: " + "; ".join(
        f"'{name}' {_wish(arrays.problem, name)}" for name in names[:8]
    )


def _wish(problem: Problem, name: str) -> str:
    operator = problem.pipeline.by_name[name]
    rule = problem.rule(operator)
    if operator.at is not None:
        return f"allows only {listed(operator.at, NAMES_SHOWN)}"
    return {"leaf": "is a source and needs a leaf", "root": "is a sink and needs a root"}.get(
        str(rule), "may go anywhere"
    ) + " with slots"


def _unplaced(problem: Problem, name: str, contested: Sequence[str]) -> Unplaced:
    """Return what rules out each site for one operator, grouped."""
    operator = problem.pipeline.by_name[name]
    allowed = problem.allowed_set(operator)
    groups: dict[str, list[str]] = {}
    for site in problem.sites.sites:
        number = problem.host_number.get(site.name)
        if number is None:
            groups.setdefault("no slots", []).append(site.name)
        elif number not in allowed:
            why = "not in its 'at'" if operator.at is not None else f"not a {problem.rule(operator)}"
            groups.setdefault(why, []).append(site.name)
        elif site.name in contested:
            groups.setdefault("slots needed by operators that can go nowhere else", []).append(site.name)
        else:
            groups.setdefault("cannot hold all that must be together, or must be apart", []).append(site.name)
    return Unplaced(name, tuple(f"{why}: {listed(sites, NAMES_SHOWN)}" for why, sites in groups.items()))
