"""What does `headwater simulate` do?

Reads a scenario and the files that it names, runs it, and hands the answer on. Paths in a scenario start at its own
folder. Methods of scheduling are those of `headwater pack` and `headwater place`, run inside the simulation.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace

from headwater.errors import BindError, Mistake, SpecError
from headwater.model.scenario import Event, Scenario
from headwater.model.scenario_file import read_scenario
from headwater.place import METHODS as PLACE_METHODS
from headwater.serve import disk, simulate_files, simulate_view, simulate_wire
from headwater.serve.arguments import Simulation as Asked
from headwater.serve.load import shown_name
from headwater.serve.output import Output
from headwater.serve.progress import Teller, note
from headwater.sim.result import Simulated
from headwater.sim.schedule import pack_methods
from headwater.sim.simulation import Simulation, simulate

__all__ = ["ended", "load_scenario", "simulate_file"]

DONE = 0
BLINK_S = 0.25  # between two looks at a run that is watched


def simulate_file(path: str, asked: Asked, output: Output) -> int:
    """Run a scenario file as it is asked for."""
    scenario = ended(load_scenario(path), asked.until_s)
    methods = _checked(scenario, asked.methods)
    if asked.out is not None:
        _make_folder(asked.out)
    if methods:
        return _compare(scenario, methods, asked, output)
    begun_s = time.perf_counter()
    if asked.speed is not None:
        result = _watched(scenario, asked, output)
    else:
        with Teller(scenario.name) as teller:
            result = simulate(scenario, asked.seed, say=teller.say)
    wall_s = time.perf_counter() - begun_s
    if asked.out is not None:
        simulate_files.write(result, asked.out)
        note(f"results written to {asked.out}")
    output.answer(
        {**simulate_wire.result_object(result), "seconds": wall_s}, simulate_view.shown(result, wall_s)
    )  # fmt: skip
    return DONE


def load_scenario(path: str) -> Scenario:
    """Return what a scenario file says, with the files that it names.

    Raises:
        SpecError: Every mistake in them.
    """
    folder = "" if path == disk.STANDARD_INPUT else os.path.dirname(path)
    return read_scenario(
        disk.read(path),
        shown_name(path),
        lambda name: disk.read(os.path.join(folder, name)),
        pack_methods(),
        tuple(PLACE_METHODS),
    )


def ended(scenario: Scenario, until_s: float | None) -> Scenario:
    """Return a scenario that ends earlier, without what would have happened later."""
    if until_s is None or until_s >= scenario.duration_s:
        return scenario
    events: tuple[Event, ...] = tuple(event for event in scenario.events if event.at_s <= until_s)
    return replace(scenario, duration_s=max(until_s, scenario.step_s), events=events)


def _compare(scenario: Scenario, methods: Sequence[str], asked: Asked, output: Output) -> int:
    rows: list[tuple[str, Simulated, float]] = []
    for method in methods:
        begun_s = time.perf_counter()
        with Teller(f"{scenario.name} with {method}") as teller:
            result = simulate(scenario, asked.seed, method, teller.say)
        rows.append((method, result, time.perf_counter() - begun_s))
        if asked.out is not None:
            folder = os.path.join(asked.out, method)
            _make_folder(folder)
            simulate_files.write(result, folder)
    if asked.out is not None:
        note(f"results written to {asked.out}")
    output.answer(simulate_wire.compared_object(scenario.name, rows), simulate_view.compared(scenario.name, rows))
    return DONE


def _checked(scenario: Scenario, methods: Sequence[str]) -> tuple[str, ...]:
    known = tuple(PLACE_METHODS) if scenario.pipeline is not None else pack_methods()
    for method in methods:
        if method not in known:
            raise SpecError(
                Mistake("HW1340", f"--compare names '{method}'; this scenario can be scheduled by {', '.join(known)}")
            )
    return tuple(dict.fromkeys(methods))


def _watched(scenario: Scenario, asked: Asked, output: Output) -> Simulated:
    """Run in real or scaled time and show how it goes."""
    assert asked.speed is not None, "only a run with a speed is watched"
    simulation = Simulation(scenario, asked.seed)
    end_s = scenario.steps * scenario.step_s
    with simulate_view.Screen(output.as_json) as screen:
        begun_s = time.monotonic()
        while not simulation.is_over:
            due_s = (time.monotonic() - begun_s) * asked.speed
            simulation.advance(min(end_s, due_s))
            screen.show(simulation.result())
            if not simulation.is_over:
                time.sleep(min(BLINK_S, max(0.0, (end_s - simulation.now_s) / asked.speed)))
    return simulation.result()


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise BindError(f"HW4001 {path}: this folder cannot be made: {error.strerror or error}") from None
