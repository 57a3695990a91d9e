"""Do decisions become limits that the kernel holds, and is nobody pressed below what it needs to live?"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headwater.bind import cgroup
from headwater.bind.limiter import Limiter
from headwater.bind.site_governor import SiteGovernor

LEAST = 0.15


@pytest.fixture
def limiter() -> Iterator[Limiter]:
    found = cgroup.find()
    if found is None:
        pytest.skip("this machine has no control groups that may be written; it takes root")
    limiter = Limiter(f"governor-{os.getpid()}", found, lambda _: None)
    yield limiter
    for name in limiter.limits():
        limiter.drop(name)
    limiter.close()


@pytest.fixture
def runner(limiter: Limiter) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-I", "-S", "-c", "print(flush=True)\nimport time\ntime.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as one:
        assert one.stdout is not None
        one.stdout.readline()
        limiter.take("one", one.pid)
        yield one
        one.kill()


def cores(limiter: Limiter, name: str = "one") -> float | None:
    return limiter.limits()[name].cores


def test_nobody_gets_less_than_the_least_and_a_limit_that_is_no_number_changes_nothing(
    limiter: Limiter, runner: subprocess.Popen[bytes]
) -> None:
    del runner
    governor = SiteGovernor(limiter, 2.0, LEAST)
    governor.set({"one": 0.0}, {"one": 0.0})
    assert cores(limiter) == pytest.approx(LEAST)
    governor.set({"one": 0.8}, {"one": 0.8})
    governor.set({"one": math.nan}, {"one": math.nan})
    assert cores(limiter) == pytest.approx(0.8)


def test_a_runner_that_starts_is_not_limited_but_keeps_its_weight_and_memory(
    limiter: Limiter, runner: subprocess.Popen[bytes]
) -> None:
    del runner
    governor = SiteGovernor(limiter, 2.0, LEAST)
    governor.set({"one": 0.5}, {"one": 0.5})
    governor.bound({"one": 1 << 30})
    before = limiter.limits()["one"]
    governor.loosen(["one", "another"])
    after = limiter.limits()["one"]
    assert before.cores == pytest.approx(0.5)
    assert after.cores is None
    assert (after.weight, after.memory_bytes) == (before.weight, before.memory_bytes)
    governor.set({"one": 0.5}, {"one": 0.5})
    assert cores(limiter) == pytest.approx(0.5), "it is limited again as soon as it is decided about"


def test_one_that_comes_again_under_the_same_name_is_limited_anew(
    limiter: Limiter, runner: subprocess.Popen[bytes]
) -> None:
    governor = SiteGovernor(limiter, 2.0, LEAST)
    governor.set({"one": 0.5}, {"one": 0.5})
    governor.forget(())
    assert cores(limiter) == pytest.approx(0.5), "it has processes: it may be of an agent that was killed"
    runner.kill()
    runner.wait()
    governor.forget(())
    assert not limiter.limits()
    command = [sys.executable, "-I", "-S", "-c", "print(flush=True)\nimport time\ntime.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        limiter.take("one", other.pid)
        governor.set({"one": 0.5}, {"one": 0.5})
        assert cores(limiter) == pytest.approx(0.5)
        other.kill()
