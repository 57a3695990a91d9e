"""What does `headwater pack` do, once its file is read?

Runs a method of packing, or several, and hands the answer on: to `render_pack` for a person, to `wire_pack` for a
program. Loads the search, so the command line imports it only after the file has been found to be right.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.errors import SpecError
from headwater.model.files import write_placement
from headwater.model.workload import Workload
from headwater.pack import METHODS, Limits, Packing, Unpackable, method_named
from headwater.pack import pack as run_method
from headwater.serve import disk, render_pack, wire_pack
from headwater.serve.arguments import Search
from headwater.serve.output import Output
from headwater.serve.progress import Teller, note

__all__ = ["compare", "pack", "packed"]

DONE, NO_ANSWER = 0, 3  # exit codes


def pack(workload: Workload, search: Search, out: str | None, picture: str | None, output: Output) -> int:
    """Find a packing, and write it and its picture where they are asked for."""
    answer, wall_s = packed(workload, search)
    if isinstance(answer, Unpackable):
        output.refusal(wire_pack.unpackable_object(search.method, answer), render_pack.unpackable(answer))
        return NO_ANSWER
    if out is not None:
        disk.write_text(out, _text(out, answer.assignment))
        note(f"assignment written to {out}")
    if picture is not None:
        _draw(workload, answer, picture)
    output.answer(wire_pack.packing_object(workload, answer, wall_s), render_pack.packed(workload, answer, wall_s))
    return DONE


def compare(workload: Workload, names: Sequence[str], search: Search, output: Output) -> int:
    """Pack with several methods and show them side by side."""
    chosen = [method_named(name).name for name in names] or list(METHODS)
    answers: list[tuple[str, Packing | Unpackable | str, float]] = []
    for name in dict.fromkeys(chosen):
        try:
            answer, wall_s = packed(workload, replace(search, method=name))
        except SpecError as refusal:
            answers.append((name, str(refusal), 0.0))
        else:
            answers.append((name, answer, wall_s))
    # a bound holds for the workload, whichever method proved it
    bound = max((found.lower_bound for _, found, _ in answers if isinstance(found, Packing)), default=0.0)
    answers = [
        (name, replace(found, lower_bound=bound) if isinstance(found, Packing) else found, wall_s)
        for name, found, wall_s in answers
    ]
    allowed = [found for _, found, _ in answers if isinstance(found, Packing) and found.measured.is_allowed]
    best = min(allowed, key=lambda found: found.cost, default=None)
    objects = [wire_pack.any_object(workload, name, found, wall_s) for name, found, wall_s in answers]
    value = {"seed": search.seed, "best": None if best is None else best.method, "results": objects}
    shown = render_pack.compared(workload, answers, best)
    if any(isinstance(found, Packing) for _, found, _ in answers):
        output.answer(value, shown)
        return DONE
    output.refusal(value, shown)
    return NO_ANSWER


def packed(workload: Workload, search: Search) -> tuple[Packing | Unpackable, float]:
    """Return the answer of one method and the wall seconds that it took, compiling not counted."""
    method_named(search.method)  # a wrong name is told before anything is done
    begun_s = time.perf_counter()
    fence_s = begun_s + search.seconds
    with Teller(f"packing with {search.method}") as teller:
        limits = Limits(remaining_s=lambda: fence_s - time.perf_counter(), say=teller.say)
        answer = run_method(workload, search.method, search.seed, limits)
    return answer, time.perf_counter() - begun_s


def _text(path: str, assignment: Mapping[str, int]) -> str:
    if path.lower().endswith(".json"):
        return json.dumps(dict(assignment), indent=2) + "\n"
    return write_placement({name: str(machine) for name, machine in assignment.items()}).replace('"', "")


def _draw(workload: Workload, answer: Packing, picture: str) -> None:
    from headwater.serve.draw_pack import draw  # noqa: PLC0415 - loads matplotlib, over a second

    title = f"{len(answer.assignment)} operators on {answer.used} machines, packed by {answer.method}"
    with Teller("drawing"), disk.replacing(picture) as part:
        draw(workload, answer, part, title)
    note(f"picture written to {picture}")
