"""Is each field of a mapping what it should be?

A table of `Field`s says which keys a mapping may have, where each value goes and how it is read;
`read_fields` walks the mapping by the table and reports what does not fit. To add a key to a file,
add a line to its table in `model.sites_file` or `model.pipeline_file`. What fields mean together is
checked there.

A `Reader` is called with a `Spot` and a key, and gives the value, or None after it has reported why there
is none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from headwater.model import units
from headwater.model.report import Report, describe, quote
from headwater.model.tree import line_of

__all__ = [
    "Body",
    "Field",
    "Known",
    "Reader",
    "Spot",
    "entries",
    "mapping",
    "name",
    "names",
    "one_of",
    "quantity",
    "read_fields",
    "read_file",
    "read_name",
    "read_named",
    "read_pair",
    "section",
    "truth",
    "whole",
]

LONGEST_NAME = 200  # characters
# Beside control characters: what YAML cannot hold (lone surrogates, U+FFFE, U+FFFF) or takes for a line's end.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")

Body = dict[str, object]


class Known(NamedTuple):
    """The names that a reference may have."""

    kind: str  # what they are names of
    names: Collection[str]


class Spot(NamedTuple):
    """A mapping, and how to speak of it."""

    report: Report
    body: Body
    what: str  # begins the sentence: "site 'pi-1'"

    def add(self, code: str, key: str, text: str) -> None:
        """Report a mistake in one field."""
        self.report.add(code, f"{self.what}: '{key}' {text}", line_of(self.body, key))

    def has(self, key: str) -> bool:
        """Return whether a field says anything; null and an empty list do not."""
        value = self.body.get(key)
        return value is not None and value != []

    def line_in(self, key: str, name: str) -> int | None:
        """Return the line of a name in the list that a field holds."""
        given = self.body[key]
        assert isinstance(given, list), "only a list of names was read"
        is_it = (isinstance(value, (str, int)) and str(value) == name for value in given)
        return next((line_of(given, i) for i, found in enumerate(is_it) if found), line_of(given))

    def are_known(self, key: str, names: Collection[str], known: Known) -> bool:
        """Return whether all names that were read from a list are known, and report those that are not."""
        unknown = [name for name in names if name not in known.names]
        for name in unknown:
            self.report.add(
                "HW1004",
                f"{self.what}: '{key}' names the {known.kind} {quote(name)}, which does not "
                f"exist.{self.report.tip(name, known.names)}",
                self.line_in(key, name),
            )
        return not unknown


Reader = Callable[[Spot, str], Any]


class Field(NamedTuple):
    """What one key of a mapping means."""

    attribute: str  # the name under which `read_fields` gives its value
    read: Reader
    example: str | None = None  # of a field that must be there


def read_fields(spot: Spot, table: Mapping[str, Field]) -> dict[str, Any]:
    """Return the values of a mapping by attribute, and report keys that are unknown, wrong or missing.

    Null counts as not given. What is wrong is left out, so that the rest can be checked on.
    """
    report, body, what = spot
    found = {}
    for key, given in body.items():
        field = table.get(key)
        if field is None:
            report.add(
                "HW1003",
                f"{what} has the unknown key {quote(key, 40)}; allowed: {', '.join(table)}.{report.tip(key, table)}",
                line_of(body, key),
            )
        elif given is not None:
            value = field.read(spot, key)
            if value is not None:
                found[field.attribute] = value
    for key, field in table.items():
        if field.example is not None and body.get(key) is None:
            report.add(
                "HW1012", f"{what} has no '{key}'. Add one, such as '{key}: {field.example}'.", line_of(body, key)
            )
    return found


def read_file(spot: Spot, table: Mapping[str, Field], main: str, other: str) -> dict[str, Any] | None:
    """Return the fields of a whole file, or None if its main one is not there; `other` is that of another file."""
    report, root, what = spot
    if main not in root and other in root:
        report.add(
            "HW1012",
            f"{what} has '{other}' and no '{main}'. Were two files given in the wrong order?",
            line_of(root, other),
        )
        return None
    found = read_fields(spot, table)
    if root.get(main) is None or found.get(main) == {}:
        report.add("HW1012", f"{what} has no {main}. Add at least one under '{main}'.", line_of(root, main))
        return None
    return found if main in found else None


def read_named(report: Report, items: Body, name: str, kind: str) -> Spot:
    """Return one of several named mappings, after a look at its name; null is an empty one."""
    line = line_of(items, name)
    read_name(report, name, line, kind)
    body, what = items[name], f"{kind} {quote(name)}"
    if isinstance(body, dict):
        return Spot(report, body, what)
    if body is not None:
        report.add("HW1005", f"{what} must be a mapping; found {describe(body)}.", line)
    return Spot(report, {}, what)


def read_pair(spot: Spot, key: str, known: Known) -> list[str] | None:
    """Return the two known names that a list must hold, or None."""
    given = spot.body[key]
    if isinstance(given, list) and len(given) != 2:
        spot.add("HW1007", key, f"must name two {known.kind}s; found {describe(given)}.")
        return None
    read = names(spot, key)
    return list(read) if read is not None and spot.are_known(key, read, known) and len(read) == 2 else None


def quantity(kind: units.Kind, *, above_zero: bool = False, least: float = 0.0, most: float = math.inf) -> Reader:
    """Return a reader of quantities in base units, within bounds if there are any."""

    def read(spot: Spot, key: str) -> float | None:
        value = spot.body[key]
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            _wrong_type(spot, key, "a number" if kind == "number" else "a number with a unit")
            return None
        try:
            number = units.parse(value, kind)
        except ValueError as error:
            spot.add("HW1006", key, f"is wrong: {error}.")
            return None
        if above_zero and number == 0.0:
            spot.add("HW1007", key, f"must be above 0; found {quote(str(value), 40)}.")
            return None
        if not least <= number <= most:
            bounds = f"from {units.show(least, kind)} to {units.show(most, kind)}"
            spot.add("HW1007", key, f"must be {bounds}; found {quote(str(value), 40)}.")
            return None
        return number

    return read


def whole(least: int, most: int) -> Reader:
    """Return a reader of whole numbers within bounds."""

    def read(spot: Spot, key: str) -> int | None:
        value = spot.body[key]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            _wrong_type(spot, key, "a whole number")
            return None
        if not least <= value <= most:
            spot.add("HW1007", key, f"must be from {least} to {most}; found {describe(value)}.")
            return None
        return value

    return read


def one_of(words: Mapping[str, Any]) -> Reader:
    """Return a reader of a few allowed words, which gives what each stands for."""

    def read(spot: Spot, key: str) -> Any:
        value = spot.body[key]
        if isinstance(value, str) and value in words:
            return words[value]
        tip = spot.report.tip(value, words) if isinstance(value, str) else ""
        spot.add("HW1007", key, f"must be one of {', '.join(words)}; found {describe(value)}.{tip}")
        return None

    return read


def section(table: Mapping[str, Field]) -> Reader:
    """Return a reader of a mapping that has a table of its own."""

    def read(spot: Spot, key: str) -> dict[str, Any] | None:
        value = mapping(spot, key)
        return None if value is None else read_fields(Spot(spot.report, value, f"'{key}' of {spot.what}"), table)

    return read


def truth(spot: Spot, key: str) -> bool | None:
    """Read true or false."""
    value = spot.body[key]
    if isinstance(value, bool):
        return value
    _wrong_type(spot, key, "true or false")
    return None


def mapping(spot: Spot, key: str) -> Body | None:
    """Read a mapping as it is."""
    value = spot.body[key]
    if isinstance(value, dict):
        return value
    _wrong_type(spot, key, "a mapping")
    return None


def entries(spot: Spot, key: str) -> list[object] | None:
    """Read a list as it is."""
    value = spot.body[key]
    if isinstance(value, list):
        return value
    _wrong_type(
        spot, key, "a list", f" Write '{key}: [{value}]'." if isinstance(value, str) and _because(value) is None else ""
    )
    return None


def name(spot: Spot, key: str) -> str | None:
    """Read a name."""
    return read_name(spot.report, spot.body[key], line_of(spot.body, key), f"{spot.what}: '{key}'")


def names(spot: Spot, key: str) -> tuple[str, ...] | None:
    """Read a list of names."""
    given = entries(spot, key)
    if given is None:
        return None
    what = f"{spot.what}: '{key}'"
    read = [read_name(spot.report, value, line_of(given, i), what) for i, value in enumerate(given)]
    return tuple(one for one in read if one is not None)


def read_name(report: Report, value: object, line: int | None, what: str) -> str | None:
    """Return a value as a name, or report why it cannot be one; a whole number is taken as its text."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= LONGEST_NAME:
        return str(value)
    if not isinstance(value, str):
        tip = " Put it in quotes." if isinstance(value, (int, float)) else ""
        report.add("HW1005", f"{what} wants a name; found {describe(value)}.{tip}", line)
        return None
    because = _because(value)
    if because is None:
        return value
    report.add("HW1013", f"{what}: the name {quote(value, 40)} {because}.", line)
    return None


def _because(name: str) -> str | None:
    """Return why text is not allowed as a name."""
    if not name:
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters; at most {LONGEST_NAME} are allowed"
    if name != name.strip():
        return "begins or ends with a blank; remove it"
    if _FORBIDDEN.search(name):
        return "holds a control character; remove it"
    return None


def _wrong_type(spot: Spot, key: str, wanted: str, tip: str = "") -> None:
    spot.add("HW1005", key, f"must be {wanted}; found {describe(spot.body[key])}.{tip}")
