"""What may a search see of the outside?

How much time is left, and somebody to tell how far it has come. Both are arguments, so that searches stay pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Limits"]


def _forever() -> float:
    return math.inf


def _silent(text: str, share: float | None) -> None:
    del text, share


@dataclass(frozen=True, slots=True)
class Limits:
    """The outside, as far as a method may see it."""

    remaining_s: Callable[[], float] = _forever  # wall seconds left before the outer fence
    say: Callable[[str, float | None], None] = _silent  # progress: what is done now, and which share of it
