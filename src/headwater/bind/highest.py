"""How much memory did each runner use at most lately?

A runner's use swings and leaps: a limit that follows the use of one moment kills it in the next. What one agent has
seen the next one is told (`known`), for a limit that shrinks because of an agent's start kills as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

__all__ = ["Highest"]

WINDOW_S = 600.0
SLOT_S = 30.0  # what is forgotten at once: a value counts for the window, and for so long more at most


class Highest:
    """The highest value of each of several, within a window that ends now; time is an argument, and never goes back."""

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        """Begin with what an earlier one knew; what cannot be understood of it is left out."""
        self._slots: dict[str, dict[int, int]] = {}
        for name, slots in (known or {}).items():
            with contextlib.suppress(AttributeError, OverflowError, TypeError, ValueError):
                self._slots[str(name)] = {int(slot): int(value) for slot, value in slots.items()}

    def take(self, values: Mapping[str, int], now_s: float) -> None:
        """Take values as they are now."""
        now = int(now_s // SLOT_S)
        for name, value in values.items():
            slots = self._slots.setdefault(name, {})
            slots[now] = max(value, slots.get(now, 0))
        kept = range(now - int(WINDOW_S / SLOT_S), now + 1)  # those of the future are from before the machine's start
        slots_of = {name: {one: slots[one] for one in slots if one in kept} for name, slots in self._slots.items()}
        self._slots = {name: slots for name, slots in slots_of.items() if slots}

    def of(self, name: str) -> int:
        """Return the highest value of one of them, as it was when values were taken last; 0: none is known."""
        return max(self._slots.get(name, {}).values(), default=0)

    @property
    def known(self) -> dict[str, dict[str, int]]:
        """Return what the next one needs, as plain values."""
        return {name: {str(slot): value for slot, value in slots.items()} for name, slots in self._slots.items()}
