"""What does `headwater control --simulate` do?

Reads a scenario, runs it with a controller for each machine, once or once for each of several policies, and hands
the answer on.

    HW1341  there is no such policy
    HW1342  a scenario that cannot be controlled as it is asked for
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

from headwater.control.policies import POLICIES
from headwater.errors import BindError, Mistake, SpecError
from headwater.model.scenario import NewOperator, Scenario
from headwater.model.units import show
from headwater.ports import Journal
from headwater.serve import arguments, disk, hold_files, hold_view, hold_wire
from headwater.serve.arguments import Holding
from headwater.serve.output import Output
from headwater.serve.progress import Teller, note
from headwater.serve.simulate import ended, load_scenario
from headwater.sim.held import Held, hold
from headwater.sim.plant import MOST_DETAILED

__all__ = ["simulate_file"]

DONE = 0
ALL = ("all",)


def simulate_file(path: str, asked: Holding, output: Output) -> int:
    """Run a scenario file as it is asked for."""
    policies = _checked(asked.policies, asked.is_compared)
    scenario = ended(load_scenario(path), asked.until_s)
    _check(scenario, asked.every_s)
    if asked.out is not None:
        _make_folder(asked.out)
    rows: list[tuple[Held, float]] = []
    with contextlib.ExitStack() as stack:
        journal = None if asked.record is None else stack.enter_context(_journals(asked.record))
        for policy in policies:
            begun_s = time.perf_counter()
            with Teller(f"{scenario.name} with {policy}") as teller:
                found = hold(scenario, policy, asked.seed, asked.every_s, teller.say, journal or (lambda _: None))
            rows.append((found, time.perf_counter() - begun_s))
            if asked.out is not None:
                folder = os.path.join(asked.out, policy) if asked.is_compared else asked.out
                _make_folder(folder)
                hold_files.write(found, folder)
    _tell_times(asked, scenario, rows[0][0])
    for where in filter(None, (asked.out, asked.record)):
        note(f"{'results' if where == asked.out else 'decisions'} written to {where}")
    if asked.is_compared:
        output.answer(hold_wire.compared_object(rows), hold_view.compared(rows))
    else:
        found, wall_s = rows[0]
        output.answer({**hold_wire.held_object(found), "seconds": wall_s}, hold_view.shown(found, wall_s))
    return DONE


def _tell_times(asked: Holding, scenario: Scenario, held: Held) -> None:
    """Say where times are others than they were asked for."""
    if abs(held.every_s - asked.every_s) > 1e-9 * asked.every_s:
        every, step = show(held.every_s, "time"), show(held.step_s, "time")
        note(f"decided every {every}: it goes in whole steps of {step}")
    if asked.until_s is not None and asked.until_s > scenario.duration_s * (1.0 + 1e-9):
        note(f"the scenario ends after {show(scenario.duration_s, 'time')}; --until only ends it earlier")


def _checked(policies: tuple[str, ...], is_compared: bool) -> tuple[str, ...]:
    if is_compared and policies == ALL:
        return tuple(POLICIES)
    for name in policies:
        arguments.check_policy("a policy of --compare" if is_compared else "--policy", name)
    return tuple(dict.fromkeys(policies))


def _check(scenario: Scenario, every_s: float) -> None:
    if every_s < scenario.step_s * (1.0 - 1e-9):
        every, step = (show(value, "time") for value in (every_s, scenario.step_s))
        raise SpecError(
            Mistake(
                "HW1342",
                f"--every is {every}, and the scenario goes in steps of {step}; make its 'step' as short (goals of "
                f"less than a second want steps of about 10 ms), or decide less often with --every {step!r}",
            )
        )
    later = [event.change.operator for event in scenario.events if isinstance(event.change, NewOperator)]
    instances = sum(len(one.weights) for one in (*scenario.operators, *later))
    if instances > MOST_DETAILED:
        raise SpecError(
            Mistake(
                "HW1342",
                f"the scenario has {instances} instances of operators; how late records are is known for up to "
                f"{MOST_DETAILED}. Simulate a part of them",
            )
        )


class _Lines:
    """The port `Journal`: a line of JSON for each entry, with the machine that it is about."""

    def __init__(self, file: TextIO, machine: str) -> None:
        self._file, self._machine = file, machine

    def write(self, entry: Mapping[str, object]) -> bool:
        """Write an entry; all of them are in one file."""
        self._file.write(json.dumps({"machine": self._machine, **entry}, allow_nan=False) + "\n")
        return False


@contextlib.contextmanager
def _journals(path: str) -> Iterator[Callable[[str], Journal]]:
    """Give what makes the journal of a machine; the file is there when all went well."""
    with disk.replacing(path) as part, open(part, "w", encoding="utf-8") as file:
        yield lambda machine: _Lines(file, machine)


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise BindError(f"HW4001 {path}: this folder cannot be made: {error.strerror or error}") from None
