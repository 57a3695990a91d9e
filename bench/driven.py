"""How does a process that holds a query take its orders?

Lines of JSON: the first, on standard input, describes the lane; each one after it starts or stops a query, and is
answered by a line on standard output. Only the standard library: environments with other engines run it too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

__all__ = ["Driven", "drive"]


class Driven(Protocol):
    """A lane that can be measured."""

    def start(self, source: str, sink: str) -> dict[str, Any]:
        """Start the query from one topic to another; say whether it takes records."""
        ...

    def stop(self) -> dict[str, Any]:
        """Stop it; say how it went."""
        ...


def drive(make: Callable[[Mapping[str, Any]], Driven]) -> None:
    """Make the lane and do what the lines on standard input say; the process ends with them."""
    lane = make(json.loads(sys.stdin.readline()))
    _tell({"event": "up"})
    for line in sys.stdin:
        request = json.loads(line)
        _tell(lane.start(request["input"], request["output"]) if request["do"] == "start" else lane.stop())
    sys.stdout.flush()
    os._exit(0)  # nothing of the engine is worth an orderly end


def _tell(answer: Mapping[str, Any]) -> None:
    print(json.dumps(answer), flush=True)
