"""Does the benchmark of forecasts judge all methods on the same readings, and statsmodels' by what it would say?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from statsmodels.tsa.arima.model import ARIMA

from bench.forecast import METHODS, main


def rates() -> np.ndarray:
    return np.asarray(500.0 + np.cumsum(np.random.default_rng(1).normal(0.0, 5.0, 120)))


def test_paths_of_statsmodels_are_its_own_forecasts() -> None:
    mean, deviation = METHODS["statsmodels"](rates(), 60)
    fit = ARIMA(rates()[:60], order=(3, 1, 1)).fit()
    for origin in (0, 30, 59):
        wanted = fit.append(rates()[60 : 60 + origin]).get_forecast(5) if origin else fit.get_forecast(5)
        assert mean[:, origin] == pytest.approx(wanted.predicted_mean)
        assert deviation[:, origin] == pytest.approx(wanted.se_mean, rel=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_forecasts_from_each_reading_of_the_second_half(method: str) -> None:
    mean, deviation = METHODS[method](rates(), 60)
    assert mean.shape == deviation.shape == (5, 60)
    assert np.abs(mean[0] - rates()[59:-1]).max() < 30.0  # not one reading late or early


def test_errors_and_times_are_written_and_traces_may_be_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f"2020-01-01 00:{i:02},{rate}" for i, rate in enumerate(rates())]
    (tmp_path / "walk.csv").write_text("\n".join(["timestamp,value", *lines]))
    file = tmp_path / "out" / "forecast.json"
    assert main(["--traces", str(tmp_path), "--out", str(file)]) == 0
    report = json.loads(file.read_text())
    assert [row["method"] for row in report["errors"]] == list(METHODS)
    changes = np.diff(rates())[59:115]  # five steps after the last origin are known, too
    assert report["errors"][0]["mae_1"] == pytest.approx(np.abs(changes).mean())
    assert [row["applications"] for row in report["times"]] == [60, 400, 1000, 4000]
    assert main(["--traces", str(tmp_path / "none"), "--out", str(file)]) == 0
    assert "errors are left out" in capsys.readouterr().err
