"""Does the benchmark of packing draw the paper's workloads, keep what it has measured, and show it beside the paper?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.packing import main, markdown
from bench.samples import EXPERIMENTS, many, sample
from headwater.model.workload import Sinusoid


@pytest.mark.parametrize("number", EXPERIMENTS)
def test_samples_keep_to_the_bounds_of_the_paper_and_repeat(number: int) -> None:
    experiment = EXPERIMENTS[number]
    workload = sample(experiment, 3)
    assert (len(workload.operators), workload.machines) == (experiment.operators, experiment.machines)
    for signal in workload.operators.values():
        assert isinstance(signal, Sinusoid)
        assert experiment.baseline[0] <= signal.baseline <= experiment.baseline[1]
        assert experiment.amplitude[0] <= signal.amplitude <= experiment.amplitude[1]
        assert signal.period == 40.0
    assert workload == sample(experiment, 3) != sample(experiment, 4)
    assert len(many(50).operators) == 50


def test_what_was_measured_is_kept_and_shown_beside_the_paper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "packing.json"
    words = ["--experiments", "1", "--samples", "2", "--methods", "rstorm,auto", "--out", str(file)]
    assert main(words) == 0
    assert capsys.readouterr().err.count("experiment 1,") == 4
    report = json.loads(file.read_text())
    assert set(report["samples"]) == {f"1/{method}/{index}" for method in ("rstorm", "auto") for index in range(2)}
    assert all(each["proved"] for key, each in report["samples"].items() if "auto" in key)
    assert "| 1 | auto | 4.50 | 4.3 (GA) |" in markdown(report)
    assert {path.name for path in tmp_path.iterdir()} == {"packing.json", "packing-rstorm.png", "packing-auto.png"}
    assert main(words) == 0
    assert "experiment 1," not in capsys.readouterr().err
    assert main(["--experiments", "8"]) == 2
