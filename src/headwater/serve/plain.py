"""What is safe to show on a terminal?

Names and messages come from files that somebody else may have written. Everything that a terminal
would obey instead of show (escape sequences, carriage returns, bidirectional overrides) is spelled out, and so are
spaces of other kinds: two names must not look the same.
"""

from __future__ import annotations

__all__ = ["plain"]


def plain(text: str, keep: str = "") -> str:
    r"""Return the text with every control character spelled out, except those in `keep`.

    >>> plain("red\x1b[31m")
    'red\\x1b[31m'
    >>> plain("edge\xa01")
    'edge\\xa01'
    """
    if text.isprintable():
        return text
    return "".join(one if one in keep or one.isprintable() else _spelled(one) for one in text)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
