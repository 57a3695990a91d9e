"""What is wrong in the user's file?

A `Report` gathers every mistake of one file, so that all of them are told at once, and raises them.
`quote` and `describe` speak of what was found in a few words, however large it is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from headwater.errors import Mistake, SpecError

__all__ = ["Report", "describe", "listed", "near", "quote"]

MOST_SHOWN = 50  # mistakes told in full; the rest are counted
MOST_TIPS = 20  # names looked up for 'Did you mean', which is slow among many
MOST_CANDIDATES = 500  # names compared letter by letter for one tip
LONGEST_TIP = 60  # characters of a name that is worth a tip

_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class Report:
    """The mistakes of one file, in the order in which they were found."""

    __slots__ = ("_mistakes", "_more", "_tips", "file")

    def __init__(self, file: str) -> None:
        """Begin with no mistakes; `file` is the name that the user gave."""
        self.file = file
        self._mistakes: list[Mistake] = []
        self._more = 0
        self._tips = MOST_TIPS

    def __bool__(self) -> bool:
        """Return whether there is any mistake."""
        return bool(self._mistakes)

    def add(self, code: str, text: str, line: int | None) -> None:
        """Note one mistake; the reading goes on."""
        if len(self._mistakes) < MOST_SHOWN:
            self._mistakes.append(Mistake(code, text, self.file, line))
        else:
            self._more += 1

    def stop(self, code: str, text: str, line: int | None = None) -> SpecError:
        """Return the error to raise when a mistake leaves nothing to go on with."""
        self.add(code, text, line)
        return self.error()

    def error(self) -> SpecError:
        """Return every mistake as one error, by line."""
        shown = sorted(self._mistakes, key=lambda mistake: mistake.line or 0)
        if self._more:
            shown.append(Mistake("HW1000", f"and {self._more} more", self.file))
        return SpecError(*shown)

    def tip(self, name: str, known: Collection[str]) -> str:
        """Return ' Did you mean ...?' if something known is close to the name, else nothing."""
        if self._tips <= 0 or self._more or len(name) > LONGEST_TIP:
            return ""
        self._tips -= 1
        if len(known) > MOST_CANDIDATES:
            # One wrong letter leaves either the first or the second half of a name as it was.
            half = (len(name) + 1) // 2
            start, end = name[: half - 1] or name, name[half:] or name
            close = (other for other in known if other.startswith(start) or other.endswith(end))
            known = list(islice((other for other in close if abs(len(other) - len(name)) <= 1), MOST_CANDIDATES))
        found = difflib.get_close_matches(name, [other for other in known if len(other) <= LONGEST_TIP], n=1)
        return f" Did you mean {quote(found[0])}?" if found else ""


def quote(text: str, most: int = 200) -> str:
    """Return text in single quotes, cut and made visible.

    >>> quote("frame"), quote("frame", 3)
    ("'frame'", "'fra…'")
    """
    cut = text if len(text) <= most else f"{text[:most]}…"
    return f"'{_HIDDEN.sub(_escape, cut)}'"


def describe(value: object) -> str:
    """Return what a value is, in a few words.

    >>> describe([1, 2]), describe("abc"), describe(None), describe(True)
    ('a list of 2 entries', "text 'abc'", 'nothing', 'true')
    """
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"text {quote(value, 40)}"
    if isinstance(value, (dict, list)):
        count = "1 entry" if len(value) == 1 else f"{len(value)} entries"
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {count}"
    if isinstance(value, int) and value.bit_length() > 128:  # printing it could take long, and would help nobody
        return "a number of very many digits"
    return f"the number {value!r:.40}"


def near(name: str, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' if something known is close to the name, else nothing.

    >>> near("glod", ("gold", "silver")), near("x", ("gold",))
    (" Did you mean 'gold'?", '')
    """
    found = difflib.get_close_matches(name.lower(), list(known), n=1)
    return f" Did you mean {quote(found[0])}?" if found else ""


def listed(names: Sequence[str], most: int = 10) -> str:
    """Return names in quotes, the first of them only if they are many."""
    shown = ", ".join(quote(name, 40) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape", "surrogatepass").decode("ascii")
