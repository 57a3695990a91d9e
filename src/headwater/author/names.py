"""Which dataset does a name in the project's code mean?

Spark's names may have up to three parts, in any case, with or without backticks; a part left out is the
project's catalog or database. Temporary views have one part and belong to no database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Names", "parts", "view_of"]

_PART = re.compile(r"\s*(?:`((?:[^`]|``)*)`|([^`.\s]+))\s*(\.|$)")


def parts(text: str) -> tuple[str, ...]:
    """Return the parts of a name; a text that is no name is one part.

    >>> parts("silver.hot"), parts("`a.b`.c"), parts("not a name")
    (('silver', 'hot'), ('a.b', 'c'), ('not a name',))
    """
    found, at = [], 0
    while True:
        match = _PART.match(text, at)
        if match is None:
            return (text,)
        quoted, plain, end = match.groups()
        found.append(plain if quoted is None else quoted.replace("``", "`"))
        if not end:
            return tuple(found)
        at = match.end()


def view_of(name: str) -> str:
    """Return the temporary view, in backticks, that stands for a dataset: it has one part, whatever the name has.

    >>> view_of("hot"), view_of("silver.hot")
    ('`hot`', '`silver.hot`')
    """
    return "`" + ".".join(parts(name)).replace("`", "``") + "`"


class Names:
    """The datasets of a project, to be found by any of their spellings."""

    def __init__(self, catalog: str | None, database: str | None, names: Iterable[str] = ()) -> None:
        """Take the project's own catalog and database; None: Spark's."""
        self._before = ((catalog or "spark_catalog").lower(), (database or "default").lower())
        self._by_key = {self.key(name): name for name in names}

    def key(self, name: str) -> tuple[str, ...]:
        """Return what two spellings of one dataset have in common."""
        found = tuple(part.lower() for part in parts(name))
        return (*self._before[: 3 - len(found)], *found) if len(found) < 3 else found

    def find(self, name: str) -> str | None:
        """Return the dataset that a name means, as the project spells it, or None."""
        return self._by_key.get(self.key(name))
