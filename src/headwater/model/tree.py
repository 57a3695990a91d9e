"""What does the text say, before anybody asks what it means?

Mappings and lists that know their lines, and a `Builder` that puts them together from a stream of keys,
values and brackets, with a stack of its own: no nesting is too deep for it, only too deep for the user.
`model.text` feeds it.
"""

from __future__ import annotations

from headwater.model.report import Report, quote

__all__ = ["Builder", "Entries", "Fields", "line_of"]

MOST_DEPTH = 50


class Fields(dict[str, object]):
    """A mapping that knows its lines."""

    __slots__ = ("line", "lines", "merges")

    def __init__(self, line: int) -> None:
        """Begin empty, at a line."""
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}
        self.merges = False  # whether it has a '<<' that is yet to be carried out


class Entries(list[object]):
    """A list that knows its lines."""

    __slots__ = ("line", "lines")

    def __init__(self, line: int) -> None:
        """Begin empty, at a line."""
        super().__init__()
        self.line = line
        self.lines: list[int] = []


def line_of(container: object, key: str | int | None = None) -> int | None:
    """Return the line of a mapping or list, or of one of its entries, if known."""
    if isinstance(container, Fields) and not isinstance(key, int):
        return container.line if key is None else container.lines.get(key, container.line)
    if isinstance(container, Entries):
        return container.lines[key] if isinstance(key, int) else container.line
    return None


class Builder:
    """Values as they come in, one after the other, put together without recursion."""

    def __init__(self, report: Report) -> None:
        """Begin with nothing; the report takes duplicate keys and too deep nesting."""
        self.report = report
        self.root = Entries(1)  # gets the root as its only entry
        self.entries: Entries | None = self.root  # the list that is open, unless a mapping is
        self.fields: Fields | None = None  # the mapping that is open, unless a list is
        self.key: str | None = None  # of the value to come; None: a key is to come
        self.key_line = 0
        self.stack: list[tuple[Entries | None, Fields | None, str | None, int]] = []

    def name(self, key: str, line: int) -> None:
        """Take the key of the value to come."""
        assert self.fields is not None, "only a mapping has keys"
        self.key, self.key_line = key, line
        if key in self.fields.lines:
            self.report.add(
                "HW1008",
                f"the key {quote(key, 40)} stands here and on line {self.fields.lines[key]}. Remove one of the two.",
                line,
            )

    def put(self, value: object, line: int) -> None:
        """Take a value that is complete."""
        if self.fields is None:
            assert self.entries is not None, "either is open"
            self.entries.append(value)
            self.entries.lines.append(line)
            return
        assert self.key is not None, "a value follows its key"
        if self.key not in self.fields.lines:  # of two with the same key, the first one stands
            self.fields[self.key] = value
            self.fields.lines[self.key] = self.key_line
        self.key = None

    def open(self, container: Fields | Entries) -> None:
        """Go into a new mapping or list."""
        if len(self.stack) >= MOST_DEPTH:
            raise self.report.stop("HW1014", f"values are nested more than {MOST_DEPTH} deep.", container.line)
        self.stack.append((self.entries, self.fields, self.key, self.key_line))
        self.key = None
        if isinstance(container, Fields):
            self.fields, self.entries = container, None
        else:
            self.fields, self.entries = None, container

    def close(self) -> Fields | Entries:
        """Leave the mapping or list that is open, and put it into what is around it."""
        container = self.entries if self.fields is None else self.fields
        assert container is not None, "either is open"
        self.entries, self.fields, self.key, self.key_line = self.stack.pop()
        self.put(container, container.line)
        return container
