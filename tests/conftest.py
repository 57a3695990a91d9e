"""What every test shares: how many examples a law is tried on."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from headwater.bind import compiled

# Before anything imports a kernel: numba reads its cache folder once, and without this every test process
# would compile for a minute what the command has compiled already.
compiled.use_cache()

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]  # a loaded machine is no reason to fail
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=QUIET)
settings.register_profile("ci", max_examples=200, deadline=None, suppress_health_check=QUIET, print_blob=True)
settings.register_profile("long", max_examples=5000, deadline=None, suppress_health_check=QUIET, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") == "true" else "dev"))
