"""What does a YAML text say?

Reads libyaml's events one by one into a tree: fast, and safe from deep nesting and from alias bombs,
since an alias shares its value and never copies it. Plain scalars follow the core rules of YAML 1.2, so
that `no`, `on`, `1:30` and `2020-01-01` are text; a key is always text. Merge keys (`<<`) are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import yaml

from headwater.model.report import Report, describe, quote
from headwater.model.tree import Builder, Entries, Fields

__all__ = ["parse_yaml"]

LONGEST_PLAIN = 100  # characters of a number; anything longer is text
MOST_ALIASED = 1_000_000  # values that aliases stand for, all in all

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a PyYAML built without libyaml is slow, but right
_TAG_DIRECTIVE = re.compile(r"^%TAG", re.MULTILINE)
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)", re.ASCII)
_MEANINGS: dict[str, bool | None] = {"": None, "~": None, "null": None, "true": True, "false": False}
_WORDS = {form: meaning for word, meaning in _MEANINGS.items() for form in (word, word.capitalize(), word.upper())}
_YAML_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {f"{_YAML_TAG}{name}" for name in ("int", "float", "bool", "null")}
_OTHER_TAGS = {"!"} | {f"{_YAML_TAG}{name}" for name in ("str", "map", "seq")}


def parse_yaml(text: str, report: Report) -> object:
    """Return the root of the only document; None when there is none.

    Raises:
        SpecError: nothing can be read.
    """
    directive = _TAG_DIRECTIVE.search(text)
    if directive is not None:  # libyaml takes quadratic time for many of them
        line = text.count("\n", 0, directive.start()) + 1
        raise report.stop("HW1001", "a %TAG directive is not supported. Remove it.", line)
    builder = _Events(report)
    take: dict[object, Callable[[Any], None]] = {
        yaml.ScalarEvent: builder.scalar,
        yaml.MappingStartEvent: builder.start,
        yaml.SequenceStartEvent: builder.start,
        yaml.MappingEndEvent: builder.end,
        yaml.SequenceEndEvent: builder.end,
        yaml.AliasEvent: builder.alias,
        yaml.DocumentStartEvent: builder.document,
    }
    try:
        next_event = _LOADER(text).get_event
        while (event := next_event()) is not None:
            act = take.get(type(event))
            if act is not None:
                act(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise report.stop(
            "HW1001",
            f"not readable as YAML: {said:.200}. Look at quotes, brackets and indentation, here and just above.",
            None if mark is None else mark.line + 1,
        ) from None
    except yaml.YAMLError:  # of the reader, which counts characters and no lines
        bad = _FORBIDDEN.search(text)
        found = f" {quote(bad.group())}" if bad else ""
        raise report.stop(
            "HW1001",
            f"not readable as YAML: the character{found} is not allowed. Remove it.",
            text.count("\n", 0, bad.start()) + 1 if bad else None,
        ) from None
    return builder.root[0] if builder.root else None


class _Events(Builder):
    """Puts together what libyaml's events say: anchors, aliases and merge keys are its own affair."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.anchors: dict[str, tuple[object, int | None]] = {}  # value and weight; None: still open
        self.open_anchors: list[tuple[str | None, int]] = []  # of each open container, with the weight before it
        self.weight = 0  # values so far, those behind aliases counted again
        self.aliased = 0  # values behind aliases

    def scalar(self, event: yaml.ScalarEvent) -> None:
        """Take a key or a value."""
        text: str = event.value
        line = _line(event)
        is_plain: bool = event.implicit[0]
        if self.fields is not None and self.key is None:
            self.name(text, line)
            if text == "<<" and is_plain:
                self.fields.merges = True
            if event.anchor is not None:
                self.anchors[event.anchor] = (text, 1)
            return
        if event.tag is not None:
            self._check_tag(event)
            is_plain = event.tag in _PLAIN_TAGS
        value = _plain(text) if is_plain and len(text) <= LONGEST_PLAIN else text
        self.weight += 1
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, 1)
        self.put(value, line)

    def start(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        """Go into a new mapping or list."""
        line = _line(event)
        if self.fields is not None and self.key is None:
            raise self.report.stop("HW1001", "a key must be text; found a list or mapping.", line)
        self._check_tag(event)
        container = Fields(line) if type(event) is yaml.MappingStartEvent else Entries(line)
        self.open(container)
        self.open_anchors.append((event.anchor, self.weight))
        self.weight += 1
        if event.anchor is not None:
            self.anchors[event.anchor] = (container, None)

    def end(self, event: yaml.MappingEndEvent | yaml.SequenceEndEvent) -> None:
        """Leave a mapping or list; only from here on an alias may stand for it."""
        del event
        if self.fields is not None and self.fields.merges:
            self._merge(self.fields)
        container = self.close()
        anchor, weight = self.open_anchors.pop()
        if anchor is not None and self.anchors[anchor][0] is container:
            self.anchors[anchor] = (container, self.weight - weight)

    def alias(self, event: yaml.AliasEvent) -> None:
        """Take the value that an alias stands for: the same one, no copy."""
        line = _line(event)
        name = quote(f"*{event.anchor}", 40)
        if self.fields is not None and self.key is None:
            raise self.report.stop("HW1001", f"a key must be written out; found the alias {name}.", line)
        if event.anchor not in self.anchors:
            raise self.report.stop(
                "HW1001",
                f"the alias {name} stands for nothing. Mark a value above it with {quote(f'&{event.anchor}', 40)}.",
                line,
            )
        value, weight = self.anchors[event.anchor]
        if weight is None:
            raise self.report.stop(
                "HW1001", f"the alias {name} stands inside of its own value, which would never end. Remove it.", line
            )
        self.weight += weight
        self.aliased += weight
        if self.aliased > MOST_ALIASED:
            raise self.report.stop(
                "HW1014", f"the aliases of the file stand for more than {MOST_ALIASED} values. Use fewer of them.", line
            )
        self.put(value, line)

    def document(self, event: yaml.DocumentStartEvent) -> None:
        """Refuse a second document."""
        if self.root:
            raise self.report.stop(
                "HW1001", "a second document begins here; one is wanted. Split the file.", _line(event)
            )

    def _merge(self, fields: Fields) -> None:
        """Add what '<<' names, where the mapping does not say otherwise; the first to say it is right."""
        value, line = fields.pop("<<"), fields.lines.pop("<<")
        for other in value if isinstance(value, Entries) else [value]:
            if not isinstance(other, Fields):
                self.report.add(
                    "HW1005", f"'<<' wants a mapping or a list of mappings to merge; found {describe(other)}.", line
                )
                continue
            for key in other:
                if key not in fields:
                    fields[key] = other[key]
                    fields.lines[key] = other.lines[key]

    def _check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag is not None and event.tag not in _PLAIN_TAGS | _OTHER_TAGS:
            raise self.report.stop(
                "HW1001", f"the tag {quote(event.tag, 40)} is not supported. Remove it.", _line(event)
            )


def _line(event: yaml.Event) -> int:
    line: int = event.start_mark.line  # type: ignore[union-attr]  # events of a text have marks
    return line + 1


@lru_cache(maxsize=1 << 12)
def _plain(text: str) -> object:
    """Return what a scalar without quotes means by the core rules of YAML 1.2."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
