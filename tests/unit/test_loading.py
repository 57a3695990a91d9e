"""Is the search loaded only where it is announced? Loading it compiles it on a new machine, for a minute or two."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEFORE = ["main", "cli", "load", "output", "doctor", "import_sites", "disk", "render", "wire", "kernels"]


@pytest.mark.parametrize("name", BEFORE)
def test_a_module_that_comes_before_the_search_does_not_load_it(name: str) -> None:
    code = f"import sys, headwater.serve.{name}; print(sorted({{'numba', 'headwater.place'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_agent_loads_neither_http_nor_pictures_nor_spark_before_it_holds_goals() -> None:
    # Whoever comes after an agent that was killed is waited for.
    code = (
        "import sys; from headwater.serve.cli_plane import agent_app; from headwater.serve import agent_main; "
        "agent_app(); print(sorted({'httpx', 'rich', 'pyspark', 'pandas', 'numba', 'scipy', 'fastapi', 'pydantic'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
