"""Quantities as people write them become numbers in base units, and numbers become quantities again."""

from __future__ import annotations

import math
import re

import pytest

from headwater.model.units import Kind, parse, show


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("40 ms", "time", 0.04),
        ("1.5 s", "time", 1.5),
        ("250 us", "time", 250e-6),
        ("250 \u00b5s", "time", 250e-6),
        ("250 \u03bcs", "time", 250e-6),
        ("7ns", "time", 7e-9),
        ("2 min", "time", 120.0),
        ("1 h", "time", 3600.0),
        ("30 kB", "size", 30_000.0),
        ("16 GB", "size", 16e9),
        ("4 KiB", "size", 4096.0),
        ("1 MiB", "size", 1_048_576.0),
        ("2 GiB", "size", 2.0**31),
        ("3 TB", "size", 3e12),
        ("12 B", "size", 12.0),
        ("100 Mbit/s", "bandwidth", 100e6),
        ("1 Gbit/s", "bandwidth", 1e9),
        ("12 MB/s", "bandwidth", 96e6),
        ("1 KiB/s", "bandwidth", 8192.0),
        ("5 kbps", "bandwidth", 5e3),
        ("9 bps", "bandwidth", 9.0),
        ("2 Tbit/s", "bandwidth", 2e12),
        ("100/s", "rate", 100.0),
        ("6000/min", "rate", 100.0),
        ("7200 / h", "rate", 2.0),
        ("0.5", "cores", 0.5),
        ("8", "cores", 8.0),
        ("2 cores", "cores", 2.0),
        ("1e3", "number", 1000.0),
        ("2.5E-1 s", "time", 0.25),
        (".5", "number", 0.5),
        ("+5.", "number", 5.0),
        ("  3  s ", "time", 3.0),
    ],
)
def test_text_becomes_a_number_in_the_base_unit(text: str, kind: Kind, value: float) -> None:
    assert parse(text, kind) == value


@pytest.mark.parametrize(("number", "value"), [(3, 3.0), (0.25, 0.25), (0, 0.0)])
def test_a_bare_number_is_in_the_base_unit(number: float, value: float) -> None:
    assert parse(number, "time") == value
    assert parse(str(number), "time") == value


@pytest.mark.parametrize("zero", [-0.0, "-0", "-0 ms"])
def test_there_is_only_one_zero(zero: object) -> None:
    assert math.copysign(1.0, parse(zero, "time")) == 1.0


def test_a_decimal_prefix_costs_no_accuracy() -> None:
    assert parse("0.3 ms", "time") == 0.0003  # 0.3 * 1e-3 is another number
    assert parse("1.1 Gbit/s", "bandwidth") == 1_100_000_000.0


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        ("40 ms", "bandwidth", "'40 ms' is a time; a bandwidth is wanted, such as '100 Mbit/s'"),
        ("100 MB", "bandwidth", "'100 MB' is a size; a bandwidth is wanted, such as '100 Mbit/s'"),
        ("4 GB", "number", "'4 GB' is a size; a plain number is wanted, such as '1.5'"),
        ("100/s", "time", "'100/s' is a rate; a time is wanted, such as '40 ms'"),
        ("fast", "time", "'fast' is not a quantity; a time is wanted, such as '40 ms'"),
        ("", "size", "'' is not a quantity; a size is wanted, such as '30 kB'"),
        ("nan", "number", "'nan' is not a quantity"),
        ("1_000", "number", "'1_000' has an unknown unit"),
        ("30 KB", "size", "'30 KB' has an unknown unit; a size is wanted, such as '30 kB' (known units: B, kB,"),
        ("5 sec", "time", "(known units: ns, us, ms, s, min, h)"),
        ("-5 ms", "time", "a time must not be negative; found '-5 ms'"),
        (-5, "cores", "a number of cores must not be negative; found -5"),
        (float("nan"), "number", "nan is not a finite number"),
        (float("inf"), "size", "inf is not a finite number"),
        ("1e999 s", "time", "'1e999 s' is too large"),
        (10**400, "number", "the number is too large"),
        (True, "number", "a quantity is a number or text, not bool"),
        (None, "time", "a quantity is a number or text, not NoneType"),
        ("9" * 5000, "time", "text of 5000 characters is no quantity"),
        ("5 \x07", "time", "'5 \\x07' has an unknown unit"),
    ],
)
def test_what_is_no_such_quantity_is_refused_with_a_sentence(value: object, kind: Kind, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        parse(value, kind)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (100e6, "bandwidth", "100 Mbit/s"),
        (1e9, "bandwidth", "1 Gbit/s"),
        (12.0, "bandwidth", "12 bit/s"),
        (30_000, "size", "30 kB"),
        (1_234_567, "size", "1.235 MB"),
        (999_999, "size", "1 MB"),
        (0.5, "size", "0.5 B"),
        (0.08, "time", "80 ms"),
        (0.0003, "time", "300 us"),
        (120, "time", "120 s"),
        (5e-9, "time", "5 ns"),
        (0, "time", "0 s"),
        (0, "size", "0 B"),
        (100, "rate", "100/s"),
        (0.01, "rate", "0.01/s"),
        (8, "cores", "8"),
        (2 / 3, "number", "0.6667"),
        (-2e6, "bandwidth", "-2 Mbit/s"),
        (1e30, "number", "1E+30"),
        (math.inf, "time", "inf s"),
    ],
)
def test_a_number_is_shown_as_people_write_it(value: float, kind: Kind, text: str) -> None:
    assert show(value, kind) == text


def test_an_exact_text_keeps_every_digit() -> None:
    assert show(0.0801234, "time") == "80.12 ms"
    assert show(0.0801234, "time", exact=True) == "80.1234 ms"
    assert show(1 / 3, "number", exact=True) == "0.3333333333333333"
