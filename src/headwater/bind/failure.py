"""Why did a query fail, and may it pass?

Reads the chain of a failed query's causes. A failure lies with a **record** or the code that met it (a
Python function raised, a value could not be converted), with something **lost** that will not come back by
itself (a topic deleted, a checkpoint that does not fit the query), or with the **outside** (a broker away,
a disk full), which may pass.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Failure", "failure_of"]

Blame = Literal["record", "lost", "outside"]
# Of what a record can be guilty: data exceptions (SQL state 22...), and what a query raises on purpose (P0001).
_DATA = re.compile(r"SQLSTATE: (22\d{3}|P0001)|org\.apache\.avro\.\w+Exception|java\.time\.DateTimeException")
_LOST = re.compile(
    r"UnknownTopicOrPartition|OffsetOutOfRange|data loss|DATA_LOSS|aged out|may have been deleted|"
    r"StateSchema|STATE_STORE_\w*SCHEMA|STATEFUL_OPERATOR_NOT_MATCH|was deleted|topics? .* (?:is|are) (?:gone|deleted)"
)
LONGEST_TEXT = 4_000  # characters
MOST_CAUSES = 30


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query ended."""

    blame: Blame
    text: str  # what went wrong, for a person
    trace: str = ""  # the user's own traceback, if it is the user's code


def failure_of(error: Exception) -> Failure:
    """Return what lies behind the exception of a query."""
    causes = _causes(error)
    whole = "\n".join(f"{name}: {message}" for name, message in causes)
    text = _told(causes)
    for name, message in causes:
        if "PythonException" in name or "Traceback (most recent call last)" in message:
            trace = _user_trace(message)
            return Failure("record", trace.rstrip().rpartition("\n")[2] or "a Python function failed", trace)
    if any(name == "AnalysisException" for name, _ in causes) or _LOST.search(whole):
        return Failure("lost", text)
    return Failure("record" if _DATA.search(whole) else "outside", text)


def _causes(error: Exception) -> list[tuple[str, str]]:
    """Return names and messages of an exception and what caused it, first to last, on both sides of the JVM."""
    found: list[tuple[str, str]] = []
    here: Any = error
    while here is not None and len(found) < MOST_CAUSES:
        found.append((type(here).__name__, str(here)))
        cause: Any = getattr(here, "_origin", None)
        while cause is not None and hasattr(cause, "getCause") and len(found) < MOST_CAUSES:
            found.append((str(cause.getClass().getName()), str(cause.getMessage() or "")))
            cause = cause.getCause()
        here = getattr(here, "_cause", None) or here.__cause__
    return found


def _user_trace(message: str) -> str:
    """Return the part of a Python failure that is about the user's code."""
    begin = message.find("Traceback (most recent call last)")
    return _without_plan(message[begin if begin >= 0 else 0 :])


def _told(causes: list[tuple[str, str]]) -> str:
    """Return the innermost message, without the parts that only developers of Spark can read."""
    told = [message for _, message in causes if message.strip()]
    text = told[-1] if told else causes[0][0]
    return _without_plan(text)


def _without_plan(text: str) -> str:
    for border in ("\n== ", "\n=== ", " SQLSTATE", "\n\tat ", "\nJVM stacktrace"):
        text = text.partition(border)[0]
    return text.strip()[:LONGEST_TEXT]
