"""Is a scenario file read as it is written, and is every mistake told with its line?"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from headwater.errors import Mistake, SpecError
from headwater.model.scenario import KillMachine, Machine, NewMachine, NewOperator, Samples, Scenario, Schedule
from headwater.model.scenario_file import read_scenario
from headwater.model.scenario_operators import keyed_weights
from headwater.model.workload import Sinusoid

ROOT = Path(__file__).parent.parent.parent
METHODS = ("bestfit", "balance")
HEAD = "duration: 100 s\nmachines: {m: {capacity: 10}}\n"
ONE = "operators: {o: {rate: 1/s}}\n"


def read(text: str, files: dict[str, str] | None = None) -> Scenario:
    return read_scenario(text.encode(), "s.yaml", lambda name: (files or {})[name].encode(), METHODS, ("hlf",))


def mistakes(text: str, files: dict[str, str] | None = None) -> tuple[Mistake, ...]:
    with pytest.raises(SpecError) as caught:
        read(text, files)
    return caught.value.mistakes


def test_the_scenario_of_paper_004_says_what_the_paper_says() -> None:
    file = ROOT / "examples/simulate/paper.yaml"
    scenario = read_scenario(file.read_bytes(), str(file), lambda _: b"", METHODS, ())
    assert [one.capacity for one in scenario.machines] == [500.0, 500.0]
    assert [one.load for one in scenario.operators] == [
        Sinusoid(249.0, 40.0, 40.0, 0.0),
        Sinusoid(249.0, 40.0, 40.0, math.pi),
    ]
    later = [event.change.operator.load for event in scenario.events if isinstance(event.change, NewOperator)]
    assert later == [Sinusoid(249.0, 40.0, 40.0, math.pi / 2), Sinusoid(249.0, 40.0, 40.0, 3 * math.pi / 2)]
    assert [event.at_s for event in scenario.events if isinstance(event.change, Schedule)] == [0.0, 100.0, 300.0]


def test_a_machine_that_was_killed_comes_back_as_it_was() -> None:
    events = "events: [{at: 1, do: kill-machine, machine: m, queues: drop}, {at: 2, do: new-machine, machine: m}]"
    scenario = read(HEAD + ONE + events)
    assert [event.change for event in scenario.events] == [KillMachine("m", True), NewMachine(Machine("m", 1.0, 10.0))]


def test_a_schedule_can_come_again_and_again() -> None:
    scenario = read(HEAD + ONE + "events: [{at: 10 s, do: schedule, method: balance, every: 30 s}]")
    assert [event.at_s for event in scenario.events] == [10.0, 40.0, 70.0]


def test_a_trace_comes_from_a_list_or_a_table() -> None:
    text = HEAD + "operators: {a: {trace: [1, 2], every: 5 s}, b: {trace: rates.csv}}"
    scenario = read(text, {"rates.csv": "time,rate\n0,7\n1,8\n"})
    assert [one.load for one in scenario.operators] == [Samples((1.0, 2.0), 5.0), Samples((7.0, 8.0), 1.0)]


def test_an_operator_says_what_it_is_held_to() -> None:
    scenario = read(HEAD + "operators: {a: {rate: 1/s, class: gold, p99: 200 ms}, b: {rate: 1/s}}")
    assert [(one.quality, one.goal_s) for one in scenario.operators] == [("gold", 0.2), (None, None)]


def test_keys_that_are_not_skewed_spread_evenly_and_skewed_ones_do_not() -> None:
    even, skewed = keyed_weights(4, 10_000, 0.0), keyed_weights(4, 10_000, 1.5)
    assert sum(even) == pytest.approx(1.0)
    assert max(even) < 0.27
    assert max(skewed) > 0.4


WRONG = [
    ("operators: {o: {rate: 1/s}}\nevents: [{at: -5 s, do: schedule}]", "HW1030", "before time 0"),
    ("operators: {o: {rate: 1/s}}\nevents: [{at: 101 s, do: schedule}]", "HW1030", "after the end at 100 s"),
    ("operators: {o: {rate: 1/s}}\nevents: [{at: 1, do: kill-operator, operator: oo}]", "HW1004", "Did you mean 'o'?"),
    ("operators: {o: {rate: 1/s}}\nevents: [{at: 1, do: kill-machine, machine: x}]", "HW1004", "machine 'x'"),
    ("operators: {o: {rate: 1/s, on: n}}", "HW1004", "machine 'n'"),
    ("operators: {o: {rate: 1/s}}\nevents: [{at: 1, do: kill-machine, machine: m}, {at: 2, do: schedule, "
     "method: bestfit}]", "HW1031", "no machine runs"),
    ("operators: {o: {trace: [1, null, 3]}}", "HW1021", "gap at entry 2"),
    ("operators: {o: {trace: t.csv}}", "HW1021", "fill the gap"),
    ("operators: {o: {trace: [1, 2], every: 10 ms}}", "HW1032", "between the steps"),
    ("operators: {o: {rate: 1/s}}\nevents: [{at: 1, do: new-operator, operator: o, rate: 1/s}]", "HW1008", "'o'"),
    ("operators: {o: {rate: 1/s}}\nevents: [{at: 1, do: new-machine, machine: m}]", "HW1008", "'m'"),
    ("operators: {o: {rate: 1/s}, o: {rate: 2/s}}", "HW1008", "'o'"),
    ("operators: {o: {rate: 1/s}}\nevents: [{at: 1, do: shedule}]", "HW1007", "Did you mean 'schedule'?"),
    ("operators: {o: {rate: 1/s}}\nevents: [{at: 1, do: schedule, method: best}]", "HW1007", "'bestfit'"),
    ("operators: {o: {inputs: [p]}}", "HW1004", "reads 'p'"),
    ("operators: {o: {inputs: [p]}, p: {inputs: [o]}}", "HW1009", "circle"),
    ("operators: {o: {baseline: 1/s, amplitude: 2/s, period: 1 s}}", "HW1007", "above the baseline"),
    ("operators: {o: {rate: 1/s, skew: 1}}", "HW1011", "routing: keyed"),
    ("operators: {o: {}}", "HW1012", "no load"),
    ("operators: {o: {rate: 1/s, class: platinum}}", "HW1007", "gold, silver, bronze; found text 'platinum'"),
    ("operators: {o: {rate: 1/s, class: glod}}", "HW1007", "Did you mean 'gold'?"),
    ("operators: {o: {rate: 1/s, p99: 0.9 ms}}", "HW1007", "from 1 ms to 1000000 s; found '0.9 ms'"),
    ("operators: {o: {rate: 1/s, p99: 2000000 s}}", "HW1007", "from 1 ms to 1000000 s"),
    ("operators: {o: {rate: 1/s, p99: fast}}", "HW1006", "'p99'"),
    ("operators: {o: {rate: 1/s}}\nevents: [{at: 1, do: link, between: [a, b], latency: 1 s}]", "HW1011", "no 'sites'"),
    ("operators: {o: {inputs: [p]}, p: {rate: 1/s}}\nevents: [{at: 1, do: rate, operator: o, factor: 2}]", "HW1011",
     "nothing comes from outside"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "words"), WRONG, ids=[f"{code}-{words}" for _, code, words in WRONG])
def test_a_mistake_is_told_with_its_code_file_and_line(text: str, code: str, words: str) -> None:
    found = mistakes(HEAD + text, {"t.csv": "time,rate\n0,1\n1,2\n3,3\n"})
    assert code in {one.code for one in found}
    one = next(one for one in found if one.code == code)
    assert words in one.text
    assert one.file == "s.yaml"
    assert one.line is not None
    assert one.line >= 2


def test_all_mistakes_come_at_once() -> None:
    found = mistakes("duration: 0 s\nmachines: {m: {capacity: -1}}\noperators: {o: {rate: x}}\n")
    assert {one.line for one in found} == {1, 2, 3}
