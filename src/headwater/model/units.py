"""How much is '100 Mbit/s'?

Turns a quantity as people write it into a number in its base unit, and back. Knows nothing of files:
`model.files` says where a wrong quantity stands.

    kind        base unit         examples
    time        second            '40 ms', '1.5 s', '250 us', '2 min'
    size        byte              '30 kB' (30 000), '16 GB', '4 KiB' (4 096)
    bandwidth   bit per second    '100 Mbit/s', '1 Gbps', '12 MB/s' (96 Mbit/s)
    rate        record per second '100/s', '6000/min'
    cores       core              '0.5', '8'
    number      none              '1.5'
"""

from __future__ import annotations

import math
import re
from decimal import Context, Decimal
from functools import lru_cache
from typing import Literal, NamedTuple

from headwater.model.report import quote

__all__ = ["Kind", "parse", "show"]

Kind = Literal["time", "size", "bandwidth", "rate", "cores", "number"]

LONGEST = 100  # characters of a quantity; more is a slip, not a number
SHOWN_DIGITS = 4  # significant digits that a reader needs


class _Kind(NamedTuple):
    """How to speak of a kind of quantity."""

    named: str  # with its article
    example: str


class _Unit(NamedTuple):
    """A number with this unit is number * 10**power * factor / divisor in the base unit."""

    kind: Kind
    power: int = 0
    factor: float = 1.0
    divisor: float = 1.0


_KINDS: dict[Kind, _Kind] = {
    "time": _Kind("a time", "40 ms"),
    "size": _Kind("a size", "30 kB"),
    "bandwidth": _Kind("a bandwidth", "100 Mbit/s"),
    "rate": _Kind("a rate", "100/s"),
    "cores": _Kind("a number of cores", "0.5"),
    "number": _Kind("a plain number", "1.5"),
}


def _units() -> dict[str, _Unit]:
    units = {
        "ns": _Unit("time", -9),
        "us": _Unit("time", -6),
        "\u00b5s": _Unit("time", -6),  # the micro sign
        "\u03bcs": _Unit("time", -6),  # the Greek letter, which looks the same
        "ms": _Unit("time", -3),
        "s": _Unit("time"),
        "min": _Unit("time", factor=60.0),
        "h": _Unit("time", factor=3600.0),
        "/s": _Unit("rate"),
        "/min": _Unit("rate", divisor=60.0),
        "/h": _Unit("rate", divisor=3600.0),
        "core": _Unit("cores"),
        "cores": _Unit("cores"),
    }
    for step, prefix in enumerate(("", "k", "M", "G", "T", "P")):
        units[f"{prefix}B"] = _Unit("size", 3 * step)
        units[f"{prefix}B/s"] = _Unit("bandwidth", 3 * step, 8.0)
        units[f"{prefix}bit/s"] = units[f"{prefix}bps"] = _Unit("bandwidth", 3 * step)
    for step, prefix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), start=1):
        units[f"{prefix}B"] = _Unit("size", factor=1024.0**step)
        units[f"{prefix}B/s"] = _Unit("bandwidth", factor=8.0 * 1024.0**step)
        units[f"{prefix}bit/s"] = _Unit("bandwidth", factor=1024.0**step)
    return units


_UNITS = _units()
_QUANTITY = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:[eE]([-+]?[0-9]{1,9}))?[ \t]*(.*)", re.ASCII)

# The units that `show` chooses from, the largest first; all of them decimal, so that no digit is lost.
_SHOWN: dict[Kind, tuple[tuple[int, str], ...]] = {
    "time": ((0, " s"), (-3, " ms"), (-6, " us"), (-9, " ns")),
    "size": ((12, " TB"), (9, " GB"), (6, " MB"), (3, " kB"), (0, " B")),
    "bandwidth": ((12, " Tbit/s"), (9, " Gbit/s"), (6, " Mbit/s"), (3, " kbit/s"), (0, " bit/s")),
    "rate": ((0, "/s"),),
    "cores": ((0, ""),),
    "number": ((0, ""),),
}
_ROUND = Context(prec=SHOWN_DIGITS)
_PLAIN_POWERS = range(-7, 16)  # powers of ten that are written out instead of as 1E+20


def parse(value: object, kind: Kind) -> float:
    """Return a quantity in the base unit of its kind; a bare number is in that unit already.

    >>> parse("12 MB/s", "bandwidth")
    96000000.0

    Raises:
        ValueError: it is no quantity of that kind; the text is a sentence without its full stop.
    """
    if type(value) is str:
        return _parse_text(value, kind)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"a quantity is a number or text, not {type(value).__name__}; {_wanted(kind)}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"the number is too large; {_wanted(kind)}") from None
    if not math.isfinite(number):
        raise ValueError(f"{number} is not a finite number; {_wanted(kind)}")
    if number < 0.0:
        raise ValueError(f"{_named(kind)} must not be negative; found {value!r:.40}")
    return number + 0.0  # makes -0.0 an ordinary zero


def show(value: float, kind: Kind, *, exact: bool = False) -> str:
    """Return a quantity as people write it, to four significant digits, or to the last one if `exact`.

    What `exact` gives, `parse` turns into the same value again.

    >>> show(100e6, "bandwidth"), show(0.0801234, "time"), show(0.0801234, "time", exact=True)
    ('100 Mbit/s', '80.12 ms', '80.1234 ms')
    """
    if not math.isfinite(value):
        return f"{value}{_SHOWN[kind][0][1]}"
    number = Decimal(repr(float(value)))
    if not exact:
        number = _ROUND.plus(number)
    scales = _SHOWN[kind]
    if number:
        power, unit = next((scale for scale in scales if number.adjusted() >= scale[0]), scales[-1])
    else:
        power, unit = next(scale for scale in scales if scale[0] == 0)
    number = number.scaleb(-power).normalize()
    plain = not number or number.adjusted() in _PLAIN_POWERS
    return f"{number:f}{unit}" if plain else f"{number}{unit}"


@lru_cache(maxsize=1 << 14)
def _parse_text(text: str, kind: Kind) -> float:
    if len(text) > LONGEST:
        raise ValueError(f"text of {len(text)} characters is no quantity; {_wanted(kind)}")
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{quote(text, 40)} is not a quantity; {_wanted(kind)}")
    digits, power, name = match.groups()
    unit = _Unit(kind)
    if name:
        found = _UNITS.get("".join(name.split()))
        if found is None:
            raise ValueError(f"{quote(text, 40)} has an unknown unit; {_wanted(kind)}{_known(kind)}")
        unit = found
        if unit.kind != kind:
            raise ValueError(f"{quote(text, 40)} is {_named(unit.kind)}; {_wanted(kind)}")
    # Moving the decimal point in the text, not in the number, makes '0.3 ms' the float nearest to 0.0003.
    number = float(f"{digits}e{int(power or 0) + unit.power}") * unit.factor / unit.divisor
    if number < 0.0:
        raise ValueError(f"{_named(kind)} must not be negative; found {quote(text, 40)}")
    if math.isinf(number):
        raise ValueError(f"{quote(text, 40)} is too large; {_wanted(kind)}")
    return number + 0.0


def _named(kind: Kind) -> str:
    return _KINDS[kind].named


def _wanted(kind: Kind) -> str:
    return f"{_named(kind)} is wanted, such as '{_KINDS[kind].example}'"


def _known(kind: Kind) -> str:
    names = [name for name, unit in _UNITS.items() if unit.kind == kind and name.isascii()]
    return f" (known units: {', '.join(names)})" if names else ""
