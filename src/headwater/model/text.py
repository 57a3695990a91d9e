"""Which values does a file hold, and on which lines?

Takes the bytes of a YAML or JSON file, gives plain values: mappings, lists, text, numbers, true, false
and null. What they mean is the business of `model.files`; how YAML is read, that of `model.yaml_events`.

A file is JSON if its name ends in .json; one that begins like JSON is tried as such before it is taken
for YAML. The json module is fast and knows no lines; a second walk finds them, and is taken only when
there is a mistake to tell.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from headwater.errors import SpecError
from headwater.model.report import Report
from headwater.model.tree import Builder, Entries, Fields
from headwater.model.yaml_events import parse_yaml

__all__ = ["Tree", "parse"]

MOST_YAML_BYTES = 32_000_000
MOST_JSON_BYTES = 1_000_000_000

_BOM = b"\xef\xbb\xbf"
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BLANK = re.compile(rb"[ \t\r\n]*")
_JSON_TOKEN = re.compile(r'[ \t\r\n]*([{}\[\],:]|"(?:[^"\\]+|\\.)*"|[^ \t\r\n{}\[\],:"]+)')


class Tree(NamedTuple):
    """The values of a file."""

    root: object
    has_lines: bool  # else mappings and lists are plain ones


def parse(text: bytes, report: Report, *, with_lines: bool = False) -> Tree:
    """Return the values of a file.

    Args:
        text: the file, UTF-8, with or without a byte order mark.
        report: takes the mistakes that leave the rest readable; its file's ending says what is JSON.
        with_lines: wanted even where they take more time; YAML has them always.

    Raises:
        SpecError: nothing can be read.
    """
    must_be_json = report.file.lower().endswith(".json")
    start = _start(text)
    looks_like_json = text[start : start + 1] in (b"{", b"[")
    if len(text) > MOST_JSON_BYTES:
        raise report.stop("HW1014", f"the file has {_millions(text)}; at most {MOST_JSON_BYTES // 10**6} MB are read.")
    if len(text) > MOST_YAML_BYTES and not (must_be_json or looks_like_json):
        raise report.stop(
            "HW1014",
            f"the file has {_millions(text)}, and YAML is read up to "
            f"{MOST_YAML_BYTES // 10**6} MB. Use JSON for that much.",
        )
    if start == len(text):
        raise report.stop("HW1002", "the file is empty.")
    decoded = _decoded(text, report)
    tree = None
    if must_be_json or looks_like_json:
        try:
            tree = _parse_json(decoded, report, with_lines)
        except ValueError as error:
            if must_be_json or len(text) > MOST_YAML_BYTES:
                raise _json_stop(error, report) from None
    if tree is None:
        tree = Tree(parse_yaml(decoded, report), True)
    if tree.root is None:
        raise report.stop("HW1002", "the file is empty: it holds nothing but comments or null.")
    return tree


def _start(text: bytes) -> int:
    blank = _BLANK.match(text, 3 if text.startswith(_BOM) else 0)
    assert blank is not None, "the pattern matches nothing at all as well"
    return blank.end()


def _millions(text: bytes) -> str:
    return f"{len(text) / 1e6:.1f} MB"


def _decoded(text: bytes, report: Report) -> str:
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise report.stop("HW1001", "the file is UTF-16 text; UTF-8 is wanted. Save it as UTF-8.", 1)
    control = _CONTROL.search(text)
    if control is not None:
        line = text.count(b"\n", 0, control.start()) + 1
        raise report.stop(
            "HW1001",
            f"the file holds the control byte 0x{control.group().hex()}, so it is neither "
            "YAML nor JSON text. Check that it is the file you meant.",
            line,
        )
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise report.stop(
            "HW1001",
            f"the file is not UTF-8 text: byte 0x{text[error.start]:02x} does not fit. Save it as UTF-8.",
            line,
        ) from None


def _parse_json(text: str, report: Report, with_lines: bool) -> Tree:
    """Return the values of a JSON text; raises ValueError, as the json module does, when it is none."""
    is_clean = not with_lines

    def mapping(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal is_clean
        fields = dict(pairs)
        is_clean = is_clean and len(fields) == len(pairs)
        return fields

    def constant(name: str) -> None:
        nonlocal is_clean
        del name
        is_clean = False

    try:
        root = json.loads(text, object_pairs_hook=mapping, parse_constant=constant)
    except RecursionError:
        is_clean = False
    return Tree(root, False) if is_clean else Tree(_walk_json(text, report), True)


def _walk_json(text: str, report: Report) -> object:
    """Return the values of a text that is known to be JSON, with lines, and report what JSON itself allows."""
    builder = Builder(report)
    line, end = 1, 0
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", end, token.start(1))
        end = token.start(1)
        word = token.group(1)
        match word:
            case "{":
                builder.open(Fields(line))
            case "[":
                builder.open(Entries(line))
            case "}" | "]":
                builder.close()
            case ":" | ",":
                pass
            case "NaN" | "Infinity" | "-Infinity":
                report.add("HW1001", f"{word} is not JSON. Write a finite number.", line)
                builder.put(None, line)
            case _:
                value = word[1:-1] if word[0] == '"' and "\\" not in word else json.loads(word)
                if builder.fields is not None and builder.key is None:
                    builder.name(value, line)
                else:
                    builder.put(value, line)
    return builder.root[0]


def _json_stop(error: ValueError, report: Report) -> SpecError:
    if isinstance(error, json.JSONDecodeError):
        return report.stop(
            "HW1001",
            f"not readable as JSON: {error.msg}, at column {error.colno}. Look at quotes, "
            "commas and brackets, here and just above.",
            error.lineno,
        )
    return report.stop("HW1001", "not readable as JSON: a number has too many digits.")
