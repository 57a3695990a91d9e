"""What is installed, what is missing, and how is it got?

Looks at this machine and gives one `Check` for each thing that Headwater needs, now or later. Loads a
package only to find out whether the search kernels are compiled.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rich.text import Text

from headwater import __version__
from headwater.bind.java import GET_JAVA, OLDEST_JAVA, find_java, java_major
from headwater.errors import BindError
from headwater.serve import kernels, render
from headwater.serve.output import Output

__all__ = ["Check", "checks", "doctor", "java_major", "pinned"]

OLDEST_PYTHON = (3, 11)
REPAIR = "run 'make setup' in Headwater's folder"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that Headwater needs."""

    name: str
    found: str | None  # a version or a state; None: nothing
    wanted: str
    ok: bool
    needed: bool  # whether the commands of this version need it
    how: str = ""  # how to get it, when it is not ok; else what is good to know of it


def doctor(output: Output, compile_now: bool = False, prepare_now: bool = False) -> int:
    """Show every check; return 0 when all that the commands need is there, else 4.

    Args:
        output: Where the answer goes.
        compile_now: Whether to compile the search kernels first.
        prepare_now: Whether to do that, and to fetch the jars and make the archives of Java's classes.
    """
    if compile_now or prepare_now:
        kernels.load_core("headwater.place")
    if prepare_now:
        reading = importlib.import_module("headwater.serve.reading")
        reading.made_archives(reading.fetched_jars())
    found = checks(os.environ)
    is_ready = all(check.ok for check in found if check.needed)
    readable = [render.simple_table(("", "what", "found", "wanted"), map(_row, found))]
    output.answer(
        {"ok": is_ready, "version": __version__, "checks": [asdict(check) for check in found]},
        *readable,
        *(Text(f"{check.name}: {check.how}") for check in found if check.how),
        Text("all that the commands need is here" if is_ready else "some of what the commands need is missing"),
    )
    return 0 if is_ready else 4


def checks(environment: Mapping[str, str]) -> tuple[Check, ...]:
    """Return what was found on this machine."""
    packages = _packages()
    can_load = all(check.ok for check in packages)
    return (_python(), *packages, _kernels(can_load), _java(environment), *(_run_time() if can_load else ()))


def _run_time() -> tuple[Check, ...]:
    """Return what running pipelines needs beside Java, fetched and made at first use."""
    how = "at first use, or now: 'headwater doctor --prepare'"
    jars = importlib.import_module("headwater.bind.jars")  # not before the packages that it needs were found
    archive = importlib.import_module("headwater.bind.archive")
    has_jars = jars.is_complete()
    found = [Check("jars", "complete" if has_jars else None, "complete", has_jars, False, "" if has_jars else how)]
    with contextlib.suppress(BindError):  # without Java there is nothing to archive for
        is_made = archive.are_made()
        state = "made" if is_made else "not made"
        found.append(Check("java archives", state, "made, for a quick start", is_made, False, "" if is_made else how))
    return (*found, _testbed())


def _testbed() -> Check:
    """Return which kind of testbed this machine can carry, and why that one."""
    ground = importlib.import_module("headwater.testbed.ground")
    tier, because = ground.choose(ground.probe())
    best, next_best, third, none = ground.TIERS
    wanted = f"{best}, else {next_best}, else {third}"
    return Check("testbed", tier, wanted, tier != none, False, because)


def pinned(requirement: str) -> tuple[str, str | None] | None:
    """Return name and exact version of a requirement, or None for one of an extra.

    >>> pinned("numpy==2.4.6"), pinned("pytest==9.2.0; extra == 'dev'")
    (('numpy', '2.4.6'), None)
    """
    text, _, marker = requirement.partition(";")
    if "extra" in marker:
        return None
    match = re.match(r"\s*([\w.-]+)(?:\[[^\]]*\])?\s*\(?(?:==\s*([\w.+!]+))?", text)
    return (match[1], match[2]) if match else None


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, OLDEST_PYTHON))
    ok = sys.version_info[:2] >= OLDEST_PYTHON
    return Check("python", found, f"{wanted} or newer", ok, True, "" if ok else f"install Python {wanted} or newer")


def _packages() -> tuple[Check, ...]:
    try:
        requirements = importlib.metadata.requires("headwater") or []
    except importlib.metadata.PackageNotFoundError:
        return (Check("headwater", None, __version__, False, True, REPAIR),)
    return tuple(_package(*found) for found in map(pinned, requirements) if found is not None)


def _package(name: str, wanted: str | None) -> Check:
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, None, wanted or "any", False, True, REPAIR)
    how = "" if wanted in (None, found) else f"this version is not the one that was tested; {REPAIR}"
    return Check(name, found, wanted or "any", True, True, how)


def _kernels(can_load: bool) -> Check:
    wanted = "compiled"
    how = "compiled at first use, which takes a minute or two; 'headwater doctor --compile' does it now"
    if not can_load:
        return Check("search kernels", None, wanted, False, False, "needs the packages above")
    try:
        is_compiled = kernels.are_compiled()
    except (ImportError, OSError, RuntimeError, AttributeError) as error:
        return Check("search kernels", None, wanted, False, True, f"cannot be loaded ({error}); {REPAIR}")
    return Check(
        "search kernels",
        wanted if is_compiled else "not compiled",
        wanted,
        is_compiled,
        False,
        "" if is_compiled else how,
    )


def _java(environment: Mapping[str, str]) -> Check:
    wanted = f"{OLDEST_JAVA} or newer, to run pipelines"
    _, major = find_java(environment)
    ok = major is not None and major >= OLDEST_JAVA
    return Check("java", None if major is None else str(major), wanted, ok, False, "" if ok else GET_JAVA)


def _row(check: Check) -> tuple[Text, str, str, str]:
    if check.ok:
        mark = Text("ok", style="yellow" if check.how else "green")
    else:
        mark = Text("missing" if check.needed else "later", style="bold red" if check.needed else "yellow")
    return mark, check.name, check.found or "-", check.wanted
