"""Every kind of broken file gets its code, its line and a sentence that helps; none takes long or talks long."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from functools import cache

import pytest

from headwater.errors import SpecError
from headwater.model.files import read_pipeline, read_placement, read_sites
from headwater.model.pipeline import Operator, Pipeline
from headwater.model.sites import Link, Site, Sites

SITES = Sites((Site("dc-1", tags=("gpu",)), Site("pi-1")), (Link("dc-1", "pi-1", 0.1, 1e6),))
PIPELINE = Pipeline("fire", (Operator("source"), Operator("monitor")))
SOURCE = "operators:\n  src: {source: true, rate: 1/s, size: 1 kB}\n"
PAIR = "sites:\n  a:\n  b:\nlinks:\n"
LINE_4 = "- {between: [a, b], latency: 1 ms, bandwidth: 1}\n"

Read = Callable[[bytes, str], object]


def pipeline_on_sites(text: bytes, file: str) -> Pipeline:
    return read_pipeline(text, file, SITES)


def placement(text: bytes, file: str) -> dict[str, str]:
    return read_placement(text, file, PIPELINE, SITES)


def mistakes(read: Read, text: str | bytes, file: str = "x.yaml") -> list[tuple[str, int | None, str]]:
    with pytest.raises(SpecError) as caught:
        read(text.encode() if isinstance(text, str) else text, file)
    assert all(mistake.file == file for mistake in caught.value.mistakes)
    return [(mistake.code, mistake.line, mistake.text) for mistake in caught.value.mistakes]


UNREADABLE = {
    "empty": ("", "HW1002", None, "empty"),
    "only blanks": (" \n\n ", "HW1002", None, "empty"),
    "only a comment": ("# nothing\n", "HW1002", None, "nothing but comments"),
    "null": ("~\n", "HW1002", None, "empty"),
    "not UTF-8": (b"sites:\n  \xff: {}\n", "HW1001", 2, "byte 0xff"),
    "UTF-16": ("sites: {}".encode("utf-16"), "HW1001", 1, "UTF-16"),
    "NUL byte": (b"sites:\n\n  a\x00: {}\n", "HW1001", 3, "control byte 0x00"),
    "forbidden character": ("sites:\n  a\u0080b: {}\n", "HW1001", 2, "'\\x80' is not allowed"),
    "bad indentation": ("sites:\n  a: {}\n b: {}\n", "HW1001", 3, "not readable as YAML"),
    "tab": ("sites:\n\ta: {}\n", "HW1001", 2, "not readable as YAML"),
    "open bracket": ("sites: {a: {}\n", "HW1001", 2, "not readable as YAML"),
    "two documents": ("sites: {a: }\n---\nsites: {b: }\n", "HW1001", 2, "second document"),
    "unknown tag": ("sites:\n  a: !!python/object:os.system {}\n", "HW1001", 2, "tag 'tag:yaml.org,2002:python"),
    "tag directive": ("%TAG ! tag:x,2000:\n---\nsites: {a: }\n", "HW1001", 1, "%TAG"),
    "alias of nothing": ("sites:\n  a: *b\n", "HW1001", 2, "'*b' stands for nothing"),
    "alias inside of itself": ("sites: &s\n  a: *s\n", "HW1001", 2, "inside of its own value"),
    "alias as a key": ("sites:\n  a: &k x\n  *k : {}\n", "HW1001", 3, "must be written out"),
    "list as a key": ("sites:\n  [a, b]: {}\n", "HW1001", 2, "a key must be text"),
    "root is a list": ("- a\n- b\n", "HW1005", 1, "found a list of 2 entries"),
    "root is text": ("hello", "HW1005", 1, "found text 'hello'"),
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("read", [read_sites, read_pipeline, placement])
def test_a_file_that_cannot_be_read_says_why(read: Read, name: str) -> None:
    text, code, line, piece = UNREADABLE[name]
    assert isinstance(text, (str, bytes))
    ((found_code, found_line, found_text),) = mistakes(read, text)
    assert (found_code, found_line) == (code, line)
    assert str(piece) in found_text


BROKEN_JSON = {
    "missing comma": ('{"sites": {"a": {}\n"b": {}}}', "HW1001", 2, "not readable as JSON"),
    "yaml in a json file": ("sites: {a: }", "HW1001", 1, "not readable as JSON"),
    "NaN": ('{"sites": {"a":\n {"speed": NaN}}}', "HW1001", 2, "NaN is not JSON"),
    "duplicate key": ('{"sites": {"a": {},\n"b": {},\n"a": {}}}', "HW1008", 3, "'a' stands here and on line 1"),
    "escaped duplicate": ('{"sites": {"a": {},\n"\\u0061": {}}}', "HW1008", 2, "'a' stands here and on line 1"),
    "wrong value": ('{"sites": {\n\n"a": {"kind": "leef"}}}', "HW1007", 3, "Did you mean 'leaf'?"),
    "root is a list": ("\n[1]", "HW1005", 2, "found a list of 1 entry"),
    "null": ("null", "HW1002", None, "empty"),
    "long number": ('{"sites": ' + "9" * 5000 + "}", "HW1001", None, "too many digits"),
}


@pytest.mark.parametrize("name", BROKEN_JSON)
def test_mistakes_in_json_have_lines_too(name: str) -> None:
    text, code, line, piece = BROKEN_JSON[name]
    assert (code, line) in [(found[0], found[1]) for found in mistakes(read_sites, text, "x.json")]
    assert piece in " ".join(found[2] for found in mistakes(read_sites, text, "x.json"))


BROKEN_SITES = {
    "a pipeline file": ("operators: {}", "HW1012", 1, "wrong order"),
    "no sites": ("links: []\n", "HW1012", 1, "no sites"),
    "empty sites": ("sites: {}\n", "HW1012", 1, "no sites"),
    "sites is a list": ("sites: [a, b]\n", "HW1005", 1, "'sites' must be a mapping; found a list of 2 entries"),
    "unknown key at the top": ("sites: {a: }\nlink: []\n", "HW1003", 2, "Did you mean 'links'?"),
    "unknown key of a site": ("sites:\n  a:\n    slot: 1\n", "HW1003", 3, "Did you mean 'slots'?"),
    "duplicate site": ("sites:\n  a:\n  b:\n  a:\n", "HW1008", 4, "'a' stands here and on line 2"),
    "site is a number": ("sites:\n  a: 5\n", "HW1005", 2, "site 'a' must be a mapping; found the number 5"),
    "kind": ("sites:\n  a: {kind: edge}\n", "HW1007", 2, "must be one of leaf, middle, root; found text 'edge'"),
    "class": ("sites:\n  a: {class: 3}\n", "HW1007", 2, "must be one of low, medium, high; found the number 3"),
    "slots below zero": (
        "sites:\n  a: {slots: -1}\n",
        "HW1007",
        2,
        "must be from 0 to 1000000000; found the number -1",
    ),
    "too many slots": ("sites:\n  a: {slots: 2000000000}\n", "HW1007", 2, "from 0 to 1000000000"),
    "half a slot": ("sites:\n  a: {slots: 1.5}\n", "HW1005", 2, "must be a whole number; found the number 1.5"),
    "slots as text": ("sites:\n  a: {slots: '2'}\n", "HW1005", 2, "must be a whole number; found text '2'"),
    "true slots": ("sites:\n  a: {slots: true}\n", "HW1005", 2, "must be a whole number; found true"),
    "speed of zero": ("sites:\n  a: {speed: 0}\n", "HW1007", 2, "'speed' must be above 0"),
    "cores of zero": ("sites:\n  a: {cores: 0}\n", "HW1007", 2, "'cores' must be above 0"),
    "infinite speed": ("sites:\n  a: {speed: 1e999}\n", "HW1006", 2, "not a finite number"),
    "memory is a time": ("sites:\n  a: {memory: 40 ms}\n", "HW1006", 2, "'40 ms' is a time; a size is wanted"),
    "price below zero": ("sites:\n  a: {price: -1}\n", "HW1006", 2, "must not be negative"),
    "speed is a list": ("sites:\n  a: {speed: [1, 2]}\n", "HW1005", 2, "must be a number; found a list of 2 entries"),
    "tags is text": ("sites:\n  a: {tags: gpu}\n", "HW1005", 2, "Write 'tags: [gpu]'"),
    "tag is a number": ("sites:\n  a:\n    tags:\n      - x\n      - 1.5\n", "HW1005", 5, "Put it in quotes"),
    "tag is a word for truth": ("sites:\n  a: {tags: [true]}\n", "HW1005", 2, "found true. Put it in quotes"),
    "empty name": ("sites:\n  '': {}\n", "HW1013", 2, "is empty"),
    "long name": (f"sites:\n  {'a' * 300}: \n", "HW1013", 2, "300 characters; at most 200"),
    "blank around a name": ("sites:\n  ' a': \n", "HW1013", 2, "begins or ends with a blank"),
    "control character": ('sites:\n  "a\\nb": \n', "HW1013", 2, "'a\\nb' holds a control character"),
    "site called like a tag": ("sites:\n  'tag:x': \n", "HW1013", 2, "marks a tag"),
    "merge of no mapping": ("sites:\n  a:\n    <<: 5\n", "HW1005", 3, "'<<' wants a mapping"),
    "links is a mapping": (f"{PAIR}  a: b\n", "HW1005", 4, "'links' must be a list; found a mapping of 1 entry"),
    "link is text": (f"{PAIR}- a-b\n", "HW1005", 5, "link 1 must be a mapping"),
    "unknown key of a link": (f"{PAIR}- {{between: [a, b], latency: 1, bandwith: 1}}\n", "HW1003", 5, "'bandwidth'?"),
    "no latency": (f"{PAIR}- {{between: [a, b], bandwidth: 1}}\n", "HW1012", 5, "'latency: 40 ms'"),
    "no bandwidth": (f"{PAIR}- {{between: [a, b], latency: 1}}\n", "HW1012", 5, "'bandwidth: 100 Mbit/s'"),
    "no ends": (f"{PAIR}- {{latency: 1, bandwidth: 1}}\n", "HW1012", 5, "no 'between'"),
    "three ends": (f"{PAIR}- {{between: [a, b, a], latency: 1, bandwidth: 1}}\n", "HW1007", 5, "must name two sites"),
    "unknown end": (f"{PAIR}{LINE_4}- {{between: [a, bb], latency: 1, bandwidth: 1}}\n", "HW1004", 6, "mean 'b'?"),
    "no bandwidth at all": (f"{PAIR}- {{between: [a, b], latency: 1, bandwidth: 0}}\n", "HW1007", 5, "above 0"),
    "latency is a rate": (f"{PAIR}- {{between: [a, b], latency: 1/s, bandwidth: 1}}\n", "HW1006", 5, "is a rate"),
    "link to itself": (f"{PAIR}- {{between: [a, a], latency: 1, bandwidth: 1}}\n", "HW1011", 5, "'a' to itself"),
    "two links": (f"{PAIR}{LINE_4}{LINE_4.replace('a, b', 'b, a')}", "HW1008", 6, "as the link on line 5 does"),
    "no links": ("sites:\n  a:\n  b:\n  c:\n", "HW1010", 3, "no chain of links joins site 'b' to site 'a'; 2 of 3"),
    "cut off": (f"{PAIR.replace('links', '  c: {}' + chr(10) + 'links')}{LINE_4}", "HW1010", 4, "1 of 3 sites is cut"),
}


@pytest.mark.parametrize("name", BROKEN_SITES)
def test_a_broken_sites_file_names_its_mistake(name: str) -> None:
    text, code, line, piece = BROKEN_SITES[name]
    found = mistakes(read_sites, text)
    assert [(code, line)] == [each[:2] for each in found if each[0] == code]
    assert piece in " ".join(each[2] for each in found if each[0] == code)


BROKEN_PIPELINES = {
    "a sites file": ("sites: {}", "HW1012", 1, "wrong order"),
    "no operators": ("pipeline: p\noperators:\n", "HW1012", 2, "no operators"),
    "name is a list": (f"pipeline: [p]\n{SOURCE}", "HW1005", 1, "wants a name; found a list"),
    "unknown key": (f"{SOURCE}  a: {{input: [src]}}\n", "HW1003", 3, "Did you mean 'inputs'?"),
    "source without rate": ("operators:\n  a: {source: true, size: 1}\n", "HW1012", 2, "no 'rate'. Add one"),
    "source without size": ("operators:\n  a: {source: true, rate: 1}\n", "HW1012", 2, "no 'size'. Add one"),
    "source that reads": (f"{SOURCE}  b: {{source: true, rate: 1, size: 1, inputs: [src]}}\n", "HW1011", 3, "'inputs'"),
    "source with a factor": (
        "operators:\n  a: {source: true, rate: 1, size: 1, rate_factor: 2}\n",
        "HW1011",
        2,
        "one of",
    ),
    "rate of no source": (f"{SOURCE}  a: {{inputs: [src], rate: 5/s}}\n", "HW1011", 3, "write 'rate_factor'"),
    "neither": (f"{SOURCE}  a: {{work: 1 ms}}\n", "HW1012", 3, "is neither a source nor reads anything; add inputs or"),
    "no body": (f"{SOURCE}  a:\n", "HW1012", 3, "is neither a source nor reads anything"),
    "source is text": ("operators:\n  a: {source: yes}\n", "HW1005", 2, "must be true or false; found text 'yes'"),
    "inputs is a name": (
        f"{SOURCE}  a: {{inputs: src}}\n",
        "HW1005",
        3,
        "must be a list; found text 'src'. Write 'inputs: [src]'",
    ),
    "unknown input": (f"{SOURCE}  a:\n    inputs:\n    - src\n    - scr\n", "HW1004", 6, "Did you mean 'src'?"),
    "input without from": (f"{SOURCE}  a: {{inputs: [{{rate_factor: 1}}]}}\n", "HW1012", 3, "has no 'from'"),
    "unknown key of an input": (f"{SOURCE}  a: {{inputs: [{{form: src, from: src}}]}}\n", "HW1003", 3, "mean 'from'?"),
    "factor below zero": (f"{SOURCE}  a: {{inputs: [src], size_factor: -1}}\n", "HW1006", 3, "must not be negative"),
    "work is a size": (f"{SOURCE}  a: {{inputs: [src], work: 3 kB}}\n", "HW1006", 3, "is a size; a time is wanted"),
    "needs": (f"{SOURCE}  a: {{inputs: [src], needs: hihg}}\n", "HW1007", 3, "Did you mean 'high'?"),
    "sink that is read": (
        f"{SOURCE}  a: {{inputs: [src],\n    sink: true}}\n  b: {{inputs: [a]}}\n",
        "HW1011",
        4,
        "'b' reads it",
    ),
    "reads itself": (f"{SOURCE}  a: {{inputs: [src, a]}}\n", "HW1009", 3, "'a' -> 'a'"),
    "cycle": (
        f"{SOURCE}  c: {{inputs: [b]}}\n  a: {{inputs: [src, c]}}\n  b: {{inputs: [a]}}\n",
        "HW1009",
        3,
        "'c' -> 'a' -> 'b' -> 'c'",
    ),
    "at is empty": (f"{SOURCE}  a: {{inputs: [src], at: []}}\n", "HW1007", 3, "no site is allowed"),
    "at has a fraction": (f"{SOURCE}  a: {{inputs: [src], at: [1.5]}}\n", "HW1005", 3, "Put it in quotes"),
    "at has a tag without a name": (f"{SOURCE}  a: {{inputs: [src], at: ['tag:']}}\n", "HW1013", 3, "Write 'tag:NAME'"),
    "at has an unknown site": (f"{SOURCE}  a: {{inputs: [src], at: [dc-1,\n  dc1]}}\n", "HW1004", 4, "mean 'dc-1'?"),
    "at has an unknown tag": (f"{SOURCE}  a: {{inputs: [src], at: ['tag:gpus']}}\n", "HW1004", 3, "which no site has"),
    "with nobody": (f"{SOURCE}  a: {{inputs: [src], with: [srcc]}}\n", "HW1004", 3, "Did you mean 'src'?"),
    "apart from itself": (f"{SOURCE}  a: {{inputs: [src], apart: [a]}}\n", "HW1011", 3, "names itself in 'apart'"),
    "with and apart": (f"{SOURCE}  a: {{inputs: [src], with: [src], apart: [src]}}\n", "HW1011", 3, "must stand apart"),
    "with and apart through another": (
        f"{SOURCE}  a: {{inputs: [src], with: [src]}}\n  b: {{inputs: [src], with: [a], apart: [src]}}\n",
        "HW1011",
        4,
        "'b' must stand apart from 'src'",
    ),
    "unknown weight": (f"{SOURCE}objective: {{weights: {{rtt: 1}}}}\n", "HW1003", 3, "Did you mean 'rt'?"),
    "weight below zero": (f"{SOURCE}objective:\n  weights: {{rt: -1}}\n", "HW1006", 4, "must not be negative"),
    "bound of the wrong kind": (f"{SOURCE}objective: {{bw: {{max: 3 s}}}}\n", "HW1006", 3, "a bandwidth is wanted"),
    "bounds in the wrong order": (f"{SOURCE}objective: {{rt: {{min: 2, max: 1}}}}\n", "HW1011", 3, "2 s above"),
    "between one": (f"{SOURCE}objective: {{between: [src]}}\n", "HW1007", 3, "must name two operators"),
    "between strangers": (
        f"{SOURCE}objective: {{between: [src, x]}}\n",
        "HW1004",
        3,
        "operator 'x', which does not exist",
    ),
    "between the wrong way": (
        f"{SOURCE}  a: {{inputs: [src], rate_factor: 1}}\nobjective: {{between: [a, a]}}\n",
        "HW1011",
        4,
        "'a' is no source",
    ),
}


@pytest.mark.parametrize("name", BROKEN_PIPELINES)
def test_a_broken_pipeline_file_names_its_mistake(name: str) -> None:
    text, code, line, piece = BROKEN_PIPELINES[name]
    found = mistakes(pipeline_on_sites, text)
    assert [(code, line)] == [each[:2] for each in found if each[0] == code][:1]
    assert piece in " ".join(each[2] for each in found if each[0] == code)


@pytest.mark.parametrize(
    ("text", "code", "line", "piece"),
    [
        ("source: pi-1\nmonitr: dc-1\n", "HW1004", 2, "Did you mean 'monitor'?"),
        ("source: pi-1\nmonitor: dc1\n", "HW1004", 2, "placed on 'dc1', which is no site. Did you mean 'dc-1'?"),
        ("source: [pi-1]\n", "HW1005", 1, "wants a name; found a list of 1 entry"),
        ("source:\n", "HW1005", 1, "wants a name; found nothing"),
        ("source: 1.5\n", "HW1005", 1, "Put it in quotes"),
        ('{"method": "td",\n"placement": {"x": "pi-1"}}', "HW1004", 2, "no operator of pipeline 'fire'"),
    ],
)
def test_a_broken_placement_file_names_its_mistake(text: str, code: str, line: int, piece: str) -> None:
    ((found_code, found_line, found_text),) = mistakes(placement, text)
    assert (found_code, found_line) == (code, line)
    assert piece in found_text


def test_an_unknown_site_in_at_is_found_only_when_the_sites_are_known() -> None:
    text = f"{SOURCE}  a: {{inputs: [src], at: [nowhere]}}\n".encode()
    assert read_pipeline(text, "p.yaml").by_name["a"].at == ("nowhere",)
    assert mistakes(pipeline_on_sites, text)[0][0] == "HW1004"


def levels(first: str, line: Callable[[str, str], str], last: str = "i") -> str:
    names = [chr(letter) for letter in range(ord("a"), ord(last) + 1)]
    return first + "".join(line(below, name) for below, name in itertools.pairwise(names))


def lists_of(below: str, name: str) -> str:
    return f"  {name}: &{name} [{', '.join(['*' + below] * 9)}]\n"


def merges_of(below: str, name: str) -> str:
    return f"  {name}: &{name} {{<<: [{', '.join(['*' + below] * 9)}], {name}: 1}}\n"


@cache
def noise() -> bytes:
    return random.Random(1).randbytes(50_000_000)


@cache
def letters() -> bytes:
    return bytes(random.Random(2).choices(b"abc:{}[],-&*!|>'\"%# \n", k=1_000_000)) * 20


HOSTILE: dict[str, tuple[Callable[[], bytes], str, str, str]] = {
    "noise": (noise, "x.yaml", "HW1014", "Use JSON for that much"),
    "noise as json": (noise, "x.json", "HW1001", "control byte"),
    "less noise": (lambda: noise()[:20_000_000], "x.yaml", "HW1001", "control byte"),
    "noise of letters": (letters, "x.yaml", "HW1001", "not readable as YAML"),
    "noise of letters as json": (letters, "x.json", "HW1001", "not readable as JSON"),
    "much text": (lambda: b"a" * 31_000_000, "x.yaml", "HW1005", "found text 'aaaa"),
    "long key": (lambda: b"sites: {? '" + b"a" * 10_000_000 + b"' : 3}", "x.yaml", "HW1013", "10000000 characters"),
    "nested lists": (lambda: b"[" * 100_000, "x.yaml", "HW1014", "more than 50 deep"),
    "nested mappings": (lambda: b"{a: " * 100_000, "x.yaml", "HW1014", "more than 50 deep"),
    "nested dashes": (lambda: b"- " * 100_000, "x.yaml", "HW1014", "more than 50 deep"),
    "nested json lists": (lambda: b"[" * 100_000 + b"]" * 100_000, "x.json", "HW1014", "more than 50 deep"),
    "nested json mappings": (lambda: b'{"sites": ' * 100_000, "x.json", "HW1014", "more than 50 deep"),
    "json 60 deep": (lambda: b'{"sites": ' + b"[" * 60 + b"]" * 60 + b"}", "x.json", "HW1014", "more than 50 deep"),
    "laughs": (
        lambda: levels("sites:\n  a: &a [x, x]\n", lists_of).encode(),
        "x.yaml",
        "HW1014",
        "more than 1000000 values",
    ),
    "merged laughs": (
        lambda: levels("sites:\n  a: &a {x: 1}\n", merges_of).encode(),
        "x.yaml",
        "HW1014",
        "more than 1000000",
    ),
    "few laughs": (
        lambda: levels("sites:\n  a: &a [x, x]\n", lists_of, "e").encode(),
        "x.yaml",
        "HW1005",
        "a list of 9 entries",
    ),
    "few merged laughs": (
        lambda: levels("sites:\n  a: &a {x: 1}\n", merges_of, "e").encode(),
        "x.yaml",
        "HW1003",
        "key 'x'",
    ),
    "same key again and again": (lambda: b"a: 1\n" * 50_000, "x.yaml", "HW1008", "and 49951 more"),
    "tag directives": (
        lambda: b"".join(b"%%TAG !%d! x\n" % i for i in range(100_000)) + b"---\na: 1\n",
        "x.yaml",
        "HW1001",
        "%TAG",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_at_once_and_in_few_words(name: str) -> None:
    make, file, code, piece = HOSTILE[name]
    text = make()
    start = time.process_time()
    with pytest.raises(SpecError) as caught:
        read_sites(text, file)
    assert time.process_time() - start < 3.0  # each takes less than one; the margin is for a slow machine
    assert code in {mistake.code for mistake in caught.value.mistakes}
    assert piece in str(caught.value)
    assert len(str(caught.value)) < 10_000


def test_many_unknown_names_among_many_sites_take_no_time() -> None:
    count = 10_000
    lines = ["sites:", *(f"  site-number-{i}:" for i in range(count)), "links:"]
    lines += [f"- {{between: [site-number-{i}, site-nmber-{i}], latency: 1, bandwidth: 1}}" for i in range(count)]
    start = time.process_time()
    found = mistakes(read_sites, "\n".join(lines))
    assert time.process_time() - start < 5.0
    assert "'site-nmber-0', which does not exist. Did you mean 'site-number-0'?" in found[0][2]
    assert found[-1][2] == "and 9950 more"


def test_a_long_cycle_and_a_long_chain_of_company_are_told_in_few_words() -> None:
    count = 5000
    text = "operators:\n" + "".join(f"  o{i}: {{inputs: [o{(i + 1) % count}]}}\n" for i in range(count))
    ((code, line, said),) = mistakes(read_pipeline, text)
    assert (code, line) == ("HW1009", 2)
    assert "'o0' -> 'o4999'" in said
    assert "... 4981 more ..." in said
    chain = "".join(f"  o{i}: {{inputs: [src], with: [o{i - 1}], apart: [o1]}}\n" for i in range(2, count))
    found = mistakes(read_pipeline, f"{SOURCE}  o1: {{inputs: [src]}}\n{chain}")
    assert {each[0] for each in found} == {"HW1011", "HW1000"}
    assert len("".join(each[2] for each in found)) < 20_000
