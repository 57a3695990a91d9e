"""Who comes first, and does what it starts come in line?"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

AHEAD = """
import json, os, subprocess, sys, threading
from headwater.bind.hurry import AHEAD, SESSION, ahead, in_line

def nice():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

begun = nice()
ahead()
found = {"main": nice(), "begun": begun}
in_line()
found["in line"] = nice()
child = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"
found["child"] = int(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)

def run():
    ahead()
    found["thread"] = nice()

thread = threading.Thread(target=run)
thread.start()
thread.join()
found["main after"] = nice()
found["session"] = SESSION.read_text() if SESSION.exists() else f"nice {AHEAD}"
print(json.dumps(found))
"""


def test_a_thread_comes_ahead_and_programs_that_others_start_do_not() -> None:
    command = ["nice", "-n", "7", sys.executable, "-c", AHEAD]  # as a service may be started
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True, check=True)
    found = json.loads(done.stdout)
    if os.geteuid() != 0:
        pytest.skip("only root may lower a nice value")
    begun = found.pop("begun")
    assert begun > -10
    assert found.pop("session").strip().endswith("nice -10")
    assert found == {"main": -10, "in line": begun, "child": begun, "thread": -10, "main after": begun}
