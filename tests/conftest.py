"""What every test shares: how many examples a law is tried on, and a name of its own."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

from headwater.bind import compiled

# Whatever a shell starts in its background ignores Ctrl-C, and so does all that it starts; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before anything imports a kernel: numba reads its cache folder once, and without this every test process
# would compile for a minute what the command has compiled already.
compiled.use_cache()

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]  # a loaded machine is no reason to fail
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=QUIET)
settings.register_profile("ci", max_examples=200, deadline=None, suppress_health_check=QUIET, print_blob=True)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=QUIET, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let no two tests share a name: where tests run side by side, only one of them would run, and nobody would know.

    Schemathesis makes a test for each operation and tells which in its name, but not in what pytest knows it by.
    """
    for item in items:
        _, bracket, operation = item.name.partition("[")
        if bracket and isinstance(item, pytest.Function) and item.id.params is None:
            item._id = item.id.with_params(operation.removesuffix("]"))
    twice = [name for name, count in Counter(item.nodeid for item in items).items() if count > 1]
    if twice:
        raise pytest.UsageError(f"tests with one name: {', '.join(twice[:5])}")
