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

from pyspark.errors import PySparkException, StreamingQueryException

__all__ = ["Failure", "failure_of"]

Blame = Literal["record", "lost", "outside"]
_PYTHON = "org.apache.spark.api.python.PythonException"
_RECORD = re.compile(
    r"org\.apache\.spark\.(SparkRuntimeException|SparkArithmeticException|SparkNumberFormatException|"
    r"SparkDateTimeException|SparkArrayIndexOutOfBoundsException|SparkNoSuchElementException|"
    r"SparkIllegalArgumentException|SparkUpgradeException)|org\.apache\.avro\.|"
    r"java\.time\.|java\.lang\.(ArithmeticException|NumberFormatException)"
)
_LOST = re.compile(
    r"AnalysisException|UnknownTopicOrPartition|KafkaIllegalStateException|KafkaDataConsumer|OffsetOutOfRange|"
    r"StateSchema|STATE_STORE_(KEY|VALUE)_SCHEMA|data loss|were aged out|may have been deleted|"
    r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH|KAFKA_DATA_LOSS|UNRECOGNIZED|Detected a data reset"
)
LONGEST_TEXT = 4_000  # characters


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query ended."""

    blame: Blame
    text: str  # what went wrong, for a person
    trace: str = ""  # the user's own traceback, if it is the user's code


def failure_of(error: PySparkException | Exception) -> Failure:
    """Return what lies behind the exception of a query."""
    causes = list(_causes(error))
    for name, message in causes:
        if name == _PYTHON or "PythonException" in name:
            trace = _user_trace(message)
            return Failure("record", trace.rstrip().rpartition("\n")[2] or "a Python function failed", trace)
    text = _told(causes, str(error))
    if any(_LOST.search(f"{name} {message}") for name, message in causes):
        return Failure("lost", text)
    if any(_RECORD.match(name) for name, _ in causes):
        return Failure("record", text)
    return Failure("outside", text)


def _causes(error: Exception) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    cause: Any = getattr(error, "_origin", None)
    if cause is None and isinstance(error, StreamingQueryException):
        cause = getattr(error, "_cause", None)
    while cause is not None and len(found) < 20:
        if hasattr(cause, "getClass"):
            found.append((cause.getClass().getName(), str(cause.getMessage() or "")))
            cause = cause.getCause()
        else:
            break
    return found or [(type(error).__name__, str(error))]


def _user_trace(message: str) -> str:
    """Return the part of a Python failure that is about the user's code."""
    begin = message.find("Traceback (most recent call last)")
    return message[begin if begin >= 0 else 0 :][:LONGEST_TEXT].rstrip()


def _told(causes: list[tuple[str, str]], whole: str) -> str:
    told = [message for name, message in causes if message and "StreamingQueryException" not in name]
    text = told[-1] if told else whole
    return text.partition("\n=== ")[0].partition("\nSQLSTATE")[0].strip()[:LONGEST_TEXT]
