"""What can go wrong, and who must act?

The whole tree of exceptions, in one place; this module imports nothing of the project.

    HeadwaterError
      SpecError        HW1xxx   a file or an argument is wrong       exit 2
      PlanError        HW2xxx   no answer satisfies the demands      exit 3
      BindError        HW4xxx   the outside refused                  exit 4
      BrokenInvariant  HW9xxx   our bug                              exit 70

A message says what is wrong, what was found against what was allowed, where, and what to do next.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BindError", "BrokenInvariant", "HeadwaterError", "Mistake", "PlanError", "SpecError"]


class HeadwaterError(Exception):
    """The root of every error that Headwater raises on purpose."""

    exit_code = 70


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing wrong in the user's input."""

    code: str  # 'HW1004'
    text: str  # what is wrong, what was found, what to do
    file: str | None = None  # as the user named it
    line: int | None = None  # counted from 1

    def __str__(self) -> str:
        """Return 'HW1004 city.yaml:17: text'."""
        if self.file is None:
            return f"{self.code} {self.text}"
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{self.code} {where}: {self.text}"


class SpecError(HeadwaterError):
    """The user's input is wrong; carries every mistake that was found."""

    exit_code = 2

    def __init__(self, *mistakes: Mistake) -> None:
        """Collect the mistakes; there is at least one."""
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes


class PlanError(HeadwaterError):
    """No answer satisfies the demands; infeasible placements are values and become this only at the command."""

    exit_code = 3


class BindError(HeadwaterError):
    """Something outside Headwater refused: a file system, a broker, an engine."""

    exit_code = 4


class BrokenInvariant(HeadwaterError):
    """Headwater is wrong; please report it."""

    exit_code = 70
