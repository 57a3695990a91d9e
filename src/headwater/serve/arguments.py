"""What do the words on the command line mean?

Checks the values of options and says what is wrong with them in the same form as for files. Reads no
files and loads nothing heavy, so that a slip is answered at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.errors import Mistake, SpecError
from headwater.model import units
from headwater.model.pipeline import LEVELS
from headwater.model.report import near, quote
from headwater.serve import disk

__all__ = [
    "LARGEST_SEED",
    "Holding",
    "Search",
    "Simulation",
    "addresses",
    "check_compared",
    "check_picture",
    "check_policy",
    "check_record",
    "check_simulated",
    "holding",
    "level",
    "method_names",
    "named_or",
    "quantity",
    "search",
    "settings",
    "simulation",
]

LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Search:
    """How to search for a placement."""

    method: str = "auto"
    seed: int = 0
    seconds: float = math.inf  # outer fence, in wall seconds


@dataclass(frozen=True, slots=True)
class Simulation:
    """How to simulate."""

    seed: int | None = None  # None: the scenario's own
    until_s: float | None = None  # None: to its end
    methods: tuple[str, ...] = ()  # to compare; none: as the scenario has it
    out: str | None = None  # a folder
    speed: float | None = None  # simulated seconds in a second; None: as fast as it goes


def simulation(
    seed: int | None, until: str | None, methods: Sequence[str], out: str | None, speed: float | None
) -> Simulation:
    """Return how to simulate.

    Raises:
        SpecError: HW1317, when time would stand still; HW1318, when several runs are to be watched at once.
    """
    if speed is not None and not 0.0 < speed < math.inf:
        raise SpecError(Mistake("HW1317", f"--speed is {speed:g}; time goes on only above 0"))
    if speed is not None and methods:
        raise SpecError(Mistake("HW1318", "--online shows one run; leave out --compare, or --online"))
    until_s = None if until is None else quantity("--until", until, "time")
    if until_s is not None and until_s <= 0.0:
        raise SpecError(Mistake("HW1317", f"--until is '{until}'; a run takes more than no time"))
    return Simulation(seed, until_s, tuple(methods), out, speed)


@dataclass(frozen=True, slots=True)
class Holding:
    """How to simulate a scenario whose goals are held."""

    policies: tuple[str, ...] = ("predictive",)  # 'all' stands for all of them
    is_compared: bool = False
    seed: int | None = None  # None: the scenario's own
    until_s: float | None = None  # None: to its end
    every_s: float = 1.0
    out: str | None = None  # a folder
    record: str | None = None  # a file


def holding(
    policy: str | None, compare: str | None, seed: int | None, until: str | None, every: str, out: str | None,
    record: str | None,
) -> Holding:  # fmt: skip
    """Return how to simulate a scenario whose goals are held.

    Raises:
        SpecError: HW1342, when nothing would ever be decided; HW1343, when options do not go together; HW1317, when
            time would stand still.
    """
    if compare is not None:
        for option, given in (("--policy", policy), ("--record", record)):
            if given is not None:
                raise SpecError(
                    Mistake("HW1343", f"{option} is about one policy, and --compare runs several; keep one")
                )
    every_s = quantity("--every", every, "time")
    if every_s <= 0.0:
        raise SpecError(Mistake("HW1342", f"--every is '{every}'; between two decisions lies more than no time"))
    until_s = simulation(seed, until, (), out, None).until_s
    named = method_names(compare)
    if compare is not None and not named:
        raise SpecError(Mistake("HW1341", "--compare names no policy; 'headwater control policies' lists them"))
    return Holding(named or (policy or "predictive",), compare is not None, seed, until_s, every_s, out, record)


def check_policy(option: str, name: str) -> None:
    """Refuse a policy that there is not.

    Raises:
        SpecError: HW1341.
    """
    from headwater.control.policies import POLICIES  # noqa: PLC0415 - numpy, which help does not need

    if name not in POLICIES:
        text = f"{option} is {quote(name, 60)}; there are {', '.join(POLICIES)}.{near(name, POLICIES)}"
        raise SpecError(Mistake("HW1341", text))


def check_record(record: str, scenario: str) -> None:
    """Refuse to write a record where there is no file for it.

    Raises:
        SpecError: HW1343.
    """
    if record == "-":
        raise SpecError(Mistake("HW1343", "--record is '-'; a record is a file, and standard output has the answer"))
    if os.path.realpath(record) == os.path.realpath(scenario):
        raise SpecError(Mistake("HW1343", f"--record is '{record}', which is the scenario itself; name another file"))


def check_simulated(given: Mapping[str, bool], command: str | None) -> None:
    """Refuse options of a simulation where there is none.

    Args:
        given: Options, and whether each was given.
        command: Another command that was given beside them.

    Raises:
        SpecError: HW1343.
    """
    options = [option for option, is_given in given.items() if is_given]
    if command is not None and options:
        raise SpecError(
            Mistake("HW1343", f"{options[0]} does not go with '{command}'; options of '{command}' come after its name")
        )
    if command is None and "--simulate" not in options:
        first = f"{options[0]} goes with a scenario" if options else "nothing is asked for"
        raise SpecError(Mistake("HW1343", f"{first}; name one, such as --simulate examples/control/burst.yaml"))


def search(method: str, seed: int, seconds: float | None) -> Search:
    """Return how to search.

    Raises:
        SpecError: HW1306, when there is no time at all.
    """
    if seconds is not None and not seconds > 0:
        raise SpecError(Mistake("HW1306", f"--seconds is {seconds:g}; a search needs more than 0 seconds"))
    return Search(method, seed, math.inf if seconds is None else seconds)


def method_names(text: str | None) -> tuple[str, ...]:
    """Return the names in a list with commas; none for None.

    >>> method_names("td, anneal")
    ('td', 'anneal')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def check_picture(path: str) -> None:
    """Refuse a picture of a kind that cannot be drawn, or where nothing can be written.

    Raises:
        SpecError: HW1307, for another kind of file.
        BindError: HW4001 or HW4002, when the file system refuses.
    """
    if not path.lower().endswith((".svg", ".png")):
        raise SpecError(Mistake("HW1307", f"a picture is an .svg or a .png file; found '{path}'"))
    disk.check_writable(path)


def check_compared(is_asked: bool, methods: str | None, out: str | None, picture: str | None) -> None:
    """Refuse options that do not go with a comparison, or only with one.

    Raises:
        SpecError: HW1319.
    """
    if is_asked and (out is not None or picture is not None):
        raise SpecError(Mistake("HW1319", "--out and --draw want one packing, and --compare makes several; choose one"))
    if not is_asked and methods is not None:
        raise SpecError(Mistake("HW1319", "--methods goes with --compare; for one method use --method"))


def quantity(option: str, text: str, kind: units.Kind) -> float:
    """Return a quantity that was given to an option.

    Raises:
        SpecError: HW1308, when it is none of that kind.
    """
    try:
        return units.parse(text, kind)
    except ValueError as error:
        raise SpecError(Mistake("HW1308", f"{option}: {error}")) from None


def addresses(option: str, values: Sequence[str]) -> dict[str, str]:
    """Return addresses by site, of texts such as 'pi=127.0.0.1:9092'.

    >>> addresses("--broker", ["pi=127.0.0.1:9092"])
    {'pi': '127.0.0.1:9092'}

    Raises:
        SpecError: HW1313, for anything else.
    """
    found = {}
    for value in values:
        site, _, address = value.partition("=")
        host, _, port = address.rpartition(":")
        if not site or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise SpecError(
                Mistake("HW1313", f"{option} is '{value}'; wanted is SITE=HOST:PORT, such as pi=127.0.0.1:9092")
            )
        found[site] = address
    return found


def settings(option: str, values: Sequence[str]) -> dict[str, str]:
    """Return values by name, of texts such as 'width=64'.

    Raises:
        SpecError: HW1314, for anything else.
    """
    found = {}
    for value in values:
        name, sign, text = value.partition("=")
        if not name or not sign:
            raise SpecError(Mistake("HW1314", f"{option} is '{value}'; wanted is NAME=VALUE"))
        found[name] = text
    return found


def level(option: str, text: str) -> int:
    """Return the level of a class of machine.

    Raises:
        SpecError: HW1309, for any other word.
    """
    if text not in LEVELS:
        raise SpecError(Mistake("HW1309", f"{option} is '{text}'; a class is one of {', '.join(LEVELS)}"))
    return LEVELS[text]


def named_or(word: str, values: Sequence[str]) -> str | tuple[str, ...]:
    """Return the word when it is all that was given, else the values as names.

    >>> named_or("center", ["center"]), named_or("center", ["Oslo", "Bergen"])
    ('center', ('Oslo', 'Bergen'))
    """
    return word if list(values) in ([], [word]) else tuple(values)
