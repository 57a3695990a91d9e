"""What is safe to show on a terminal?

Names and messages come from files that somebody else may have written. Everything that a terminal
would obey instead of show (escape sequences, carriage returns, bidirectional overrides) is spelled out.
"""

from __future__ import annotations

import unicodedata

__all__ = ["plain"]


def plain(text: str, keep: str = "") -> str:
    r"""Return the text with every control character spelled out, except those in `keep`.

    >>> plain("red\x1b[31m")
    'red\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(character if character in keep or _shows(character) else _spelled(character) for character in text)


def _shows(character: str) -> bool:
    return unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
