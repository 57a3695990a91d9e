"""What does each command do, once its files are read?

Runs the core and hands the answer on: to `render` for a person, to `wire` for a program. Loads the
search, so the command line imports it only after the files have been found to be right.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.cost.problem import Problem
from headwater.cost.score import Score, evaluate, link_loads
from headwater.errors import PlanError, SpecError
from headwater.model.files import write_placement
from headwater.model.units import show
from headwater.pack import METHODS as PACKING
from headwater.place import METHODS, Infeasible, Limits, Prepared, Result, method_named
from headwater.place import place as run_method
from headwater.serve import disk, render, wire
from headwater.serve.arguments import Search
from headwater.serve.load import Loaded
from headwater.serve.output import Output
from headwater.serve.path import path_steps
from headwater.serve.progress import Teller, note

__all__ = ["compare", "draw", "methods", "place", "score", "searched"]

DONE, NO_ANSWER = 0, 3  # exit codes
SAME_F = 1e-9  # two values of F this close, relative to the larger, count as equal


def score(loaded: Loaded, output: Output) -> int:
    """Judge the placement of the files."""
    problem = Problem(loaded.pipeline, loaded.sites)
    placement = loaded.placement or {}
    judged = evaluate(problem, placement)
    steps = path_steps(problem, placement, judged)
    output.answer(wire.score_object(judged), render.scored(loaded.pipeline, loaded.sites, placement, judged, steps))
    return DONE if judged.valid else NO_ANSWER


def place(loaded: Loaded, search: Search, out: str | None, picture: str | None, output: Output) -> int:
    """Find a placement, and write it and its picture where they are asked for."""
    problem = Problem(loaded.pipeline, loaded.sites)
    answer, wall_s = searched(problem, search)
    if isinstance(answer, Infeasible):
        output.refusal(wire.infeasible_object(search.method, answer), render.infeasible(answer))
        return NO_ANSWER
    if out is not None:
        disk.write_text(out, _placement_text(out, answer.placement))
        note(f"placement written to {out}")
    if picture is not None:
        _draw(problem, answer.placement, answer.score, picture)
    steps = path_steps(problem, answer.placement, answer.score)
    output.answer(
        wire.result_object(answer, wall_s), render.placed(loaded.pipeline, loaded.sites, answer, steps, wall_s)
    )
    return DONE


def compare(loaded: Loaded, names: Sequence[str], search: Search, output: Output) -> int:
    """Place with several methods and show them side by side; a method that refuses is shown with its reason."""
    chosen = [method_named(name).name for name in names] or list(METHODS)
    problem = Problem(loaded.pipeline, loaded.sites)
    with Teller("preparing") as teller:
        begun_s = time.perf_counter()
        prepared = Prepared(problem, Limits(say=teller.say))
        prepared_s = time.perf_counter() - begun_s
    answers: list[tuple[str, Result | Infeasible | str, float]] = []
    for name in dict.fromkeys(chosen):
        begun_s = time.perf_counter()
        try:
            answer, wall_s = searched(problem, Search(name, search.seed, search.seconds), prepared)
        except (PlanError, SpecError) as refusal:
            answers.append((name, str(refusal), time.perf_counter() - begun_s))
        else:
            answers.append((name, answer, wall_s))
    # a bound holds for the problem, whichever method proved it
    proven = max((found.lower_bound for _, found, _ in answers if isinstance(found, Result)), default=0.0)
    answers = [
        (name, replace(found, lower_bound=min(proven, found.f)) if isinstance(found, Result) else found, wall_s)
        for name, found, wall_s in answers
    ]
    best = _best([answer for _, answer, _ in answers if isinstance(answer, Result)])
    objects = []
    rows = []
    for name, found, wall_s in answers:
        if isinstance(found, Result):
            objects.append(wire.result_object(found, wall_s))
            rows.append(render.Row(name, found, wall_s, is_best=found is best))
        elif isinstance(found, Infeasible):
            objects.append(wire.infeasible_object(name, found))
            rows.append(render.Row(name, "finds that no valid placement exists", wall_s))
        else:
            objects.append(wire.refused_object(name, found))
            rows.append(render.Row(name, found, 0.0))
    title = (
        f"{loaded.pipeline.name}: {len(loaded.pipeline.operators)} operators, {len(loaded.sites.sites)} sites, "
        f"prepared for all methods in {show(prepared_s, 'time')}"
    )
    answer_object = {
        "pipeline": loaded.pipeline.name,
        "seed": search.seed,
        "prepared_s": prepared_s,
        "best": None if best is None else best.method,
        "results": objects,
    }
    if best is not None:
        output.answer(answer_object, render.compared(title, rows))
        return DONE
    impossible = next((found for _, found, _ in answers if isinstance(found, Infeasible)), None)
    output.refusal(answer_object, render.compared(title, rows) if impossible is None else render.infeasible(impossible))
    return NO_ANSWER


def draw(loaded: Loaded, search: Search, picture: str, output: Output) -> int:
    """Draw a placement; without one in the files, search for it first."""
    problem = Problem(loaded.pipeline, loaded.sites)
    placement = loaded.placement
    if placement is None:
        answer, _ = searched(problem, search)
        if isinstance(answer, Infeasible):
            output.refusal(wire.infeasible_object(search.method, answer), render.infeasible(answer))
            return NO_ANSWER
        placement, judged = answer.placement, answer.score
    else:
        judged = evaluate(problem, placement)
    drawn = {"out": picture, "placement": dict(placement), "score": wire.score_object(judged)}
    if not judged.valid:
        output.refusal({**drawn, "out": None}, render.scored(loaded.pipeline, loaded.sites, placement, judged, ()))
        return NO_ANSWER
    _draw(problem, placement, judged, picture)
    output.answer(drawn)
    return DONE


def methods(output: Output) -> int:
    """List the methods of placement and of packing."""
    rows = [(method.name, method.summary) for method in METHODS.values()]
    packing = [(method.name, method.summary) for method in PACKING.values()]
    listed, more = ([{"name": name, "summary": summary} for name, summary in each] for each in (rows, packing))
    output.answer(
        {"methods": listed, "default": Search().method, "packing": more},
        render.simple_table(("method of placement", "what it does"), rows),
        render.simple_table(("method of packing", "what it does"), packing),
    )
    return DONE


def searched(problem: Problem, search: Search, prepared: Prepared | None = None) -> tuple[Result | Infeasible, float]:
    """Return the answer of one method and the wall seconds that it took, compiling not counted."""
    method_named(search.method)  # a wrong name is told before anything is compiled
    begun_s = time.perf_counter()
    fence_s = begun_s + search.seconds
    with Teller(f"placing with {search.method}") as teller:
        limits = Limits(remaining_s=lambda: fence_s - time.perf_counter(), say=teller.say)
        answer = run_method(problem, search.method, search.seed, limits, prepared)
    return answer, time.perf_counter() - begun_s


def _best(results: Sequence[Result]) -> Result | None:
    """Return the result with the least F; among equals a proven one, then the first."""
    if not results:
        return None
    least = min(result.f for result in results)
    equal = [result for result in results if result.f - least <= SAME_F * max(abs(least), 1e-3)]
    return next((result for result in equal if result.proved), equal[0])


def _placement_text(path: str, placement: Mapping[str, str]) -> str:
    if path.lower().endswith(".json"):
        return json.dumps(dict(placement), indent=2) + "\n"
    return write_placement(placement)


def _draw(problem: Problem, placement: Mapping[str, str], judged: Score, picture: str) -> None:
    from headwater.serve.draw import draw as draw_picture  # noqa: PLC0415 - loads matplotlib, over a second

    title = f"{problem.pipeline.name}: F {judged.f:.4f}" if judged.f is not None else problem.pipeline.name
    with Teller("drawing"), disk.replacing(picture) as part:
        loads_bps = link_loads(problem, placement)
        draw_picture(problem.pipeline, problem.sites, placement, judged, loads_bps, part, title)
    note(f"picture written to {picture}")
