"""What went wrong in the user's own code, and on which of their lines?

Turns an exception that came out of a library or a flow into a mistake, with the traceback cut down to the
project's own files: nobody wants to read Spark's.

    HW1604  the project's code failed
    HW1605  the project's code changes the Spark session
    HW1610  a dataset is read that does not exist, or before there is any
    HW1620  Spark lacks the connector of a format
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection

from pyspark.errors import PySparkException

from headwater.author.files import Files
from headwater.author.names import parts
from headwater.errors import Mistake
from headwater.model.report import Report

__all__ = ["failure", "line_in", "missing_table", "said", "tip"]

MOST_FRAMES = 6
LONGEST_TEXT = 600  # characters of a message
_NOISE = re.compile(r"(?:\s*SQLSTATE: \w+.*|;\n'.*|\n\n?== .*|\nJVM stacktrace.*)\Z", re.DOTALL)
_NO_CONNECTOR = re.compile(r"DATA_SOURCE_NOT_FOUND|Failed to find (?:the )?data source")
_MUTATION = "SESSION_MUTATION_IN_DECLARATIVE_PIPELINE"


def failure(error: BaseException, doing: str, files: Files, line: int | None, file: str) -> Mistake:
    """Return why project code failed.

    Args:
        error: what it raised.
        doing: begins the sentence: "flow 'hot'".
        files: the project.
        line: where to point if the traceback names none of the project's files.
        file: likewise.
    """
    frames = _own_frames(error, files)
    if frames:
        file, line = frames[-1].filename, frames[-1].lineno
    if isinstance(error, SyntaxError) and error.filename is not None:
        file, line = error.filename, error.lineno
    shown = files.show(file)
    if isinstance(error, PySparkException):
        condition = error.getCondition() or ""
        if condition.startswith(_MUTATION):
            return Mistake("HW1605", f"{doing} changes the Spark session. {said(error)}", shown, line)
    if _NO_CONNECTOR.search(said(error)):
        return Mistake(
            "HW1620",
            f"{doing} wants a format whose connector Spark does not have here: {said(error)} "
            "Put its jar on Spark's classpath, or check the format's name.",
            shown,
            line,
        )
    return Mistake("HW1604", f"{doing} failed: {said(error)}{_trace(frames, files)}", shown, line)


def missing_table(error: BaseException) -> str | None:
    """Return the name of the table that Spark could not find, or None if that is not what happened."""
    if isinstance(error, PySparkException) and error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        return ".".join(parts((error.getMessageParameters() or {}).get("relationName", "")))
    return None


def line_in(error: BaseException, files: Files) -> tuple[str, int] | None:
    """Return the innermost of the project's own lines that an exception came through."""
    frames = _own_frames(error, files)
    return (files.show(frames[-1].filename), frames[-1].lineno or 1) if frames else None


def tip(name: str, known: Collection[str]) -> str:
    """Return ' Did you mean ...?' if something known is close to the name, else nothing."""
    return Report("").tip(name, known)


def _own_frames(error: BaseException, files: Files) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if files.holds(frame.filename)]


def said(error: BaseException) -> str:
    """Return the message of an exception, without its appendix of plans and stack traces."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    from_java = getattr(error, "java_exception", None)  # of a Py4JJavaError
    if from_java is not None:
        text = str(from_java.getMessage())
    text = _NOISE.sub("", text).strip()
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT] + "…"
    is_sparks = isinstance(error, PySparkException) or from_java is not None
    named = text if is_sparks and text else f"{type(error).__name__}: {text}".rstrip(": ")
    return named if named.endswith((".", "?", "!", "…")) else f"{named}."


def _trace(frames: list[traceback.FrameSummary], files: Files) -> str:
    lines = [
        f"\n    {files.show(frame.filename)}:{frame.lineno} in {frame.name}: {(frame.line or '').strip()}"
        for frame in frames[-MOST_FRAMES:]
    ]
    return "".join(lines)
