"""Do sites on other machines work as docs/control.md tells, with tokens, certificates and passwords?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.control import ending_all

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def test_records_go_between_sites_beyond_loopback_and_no_secret_is_told(tmp_path: Path) -> None:
    apart = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*apart, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("a network of its own needs root, or namespaces of the user's own")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [*apart, sys.executable, "-m", "tests.remote", str(tmp_path)]
    with ending_all(tmp_path):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    logs = "".join(f"== {one.name}\n{one.read_text('utf-8', 'replace')[-1500:]}" for one in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:] + logs
