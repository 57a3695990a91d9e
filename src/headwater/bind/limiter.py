"""How are the runners of one site limited and watched while they run?

`Limiter` is the hands of whoever decides how much each runner gets. Each runner has a control group of its own,
'headwater/runners_NAME/RUNNER' or below the group of a testbed's site. Limits are in the kernel and nowhere else: they
hold when the process that set them ends, and the next one reads them there. Where control groups may not be written,
`bind.duty` does what can be done without them.

'headwater' stands below the group of the process that limits, so that a runner keeps what the service or container
is limited to that it belongs to; when its limits are lifted, it is back in there. In version 2 a group with processes
has none below it that limit, and 'headwater' stands at the top. The groups above the runners' count as much as all
runners below them: without that, many runners together would get as much as one session beside them.

Nothing here ends a process.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from headwater.bind import cgroup
from headwater.bind import cgroup_files as files
from headwater.bind.cgroup import Group, Hierarchy
from headwater.bind.duty import SignalHands
from headwater.bind.duty_process import let_go_on, members
from headwater.bind.limits import Limit, Tally, Usage, memory_bytes, used_ns, waited_ns
from headwater.errors import BindError

__all__ = ["Limit", "Limiter", "Usage", "from_group_name", "group_name"]

WHOLE = "headwater"
OWN = "runners_"  # no bed of a testbed is called so: what takes beds away must not find these
PROBE = "the__probe"  # no runner's group is called so
PROBE_CORES = 1.0
TRIES = 3  # of the probe: another process of the same site may take away what it makes
PASSES = 5  # until no process is found that was made meanwhile
PLAIN = re.compile(r"[A-Za-z0-9-]")
ESCAPED = re.compile(r"_([0-9A-F]{2})")
BEFORE = "0__"  # stands before a name that would else begin with no letter or digit


def group_name(name: str) -> str:
    """Return a name for a control group from which the name itself can be had again.

    >>> group_name("hub-1"), group_name("far_out é"), group_name("-x")
    ('hub-1', 'far_5Fout_20_C3_A9', '0__-x')
    """
    text = "".join(chr(one) if one < 128 and PLAIN.match(chr(one)) else f"_{one:02X}" for one in name.encode("utf-8"))
    return text if text[:1].isalnum() else BEFORE + text


def from_group_name(group: str) -> str | None:
    """Return the name that a control group was named by; None: it was not named by `group_name`.

    >>> from_group_name("far_5Fout_20_C3_A9"), from_group_name("0__-x"), from_group_name("the__rest")
    ('far_out é', '-x', None)
    """
    text = group.removeprefix(BEFORE)
    plain = ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    try:
        name = plain.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return None
    return name if group_name(name) == group else None


class _Hands(Protocol):
    """What a way of limiting can do."""

    @property
    def how(self) -> str: ...
    @property
    def weighs(self) -> bool: ...
    def take(self, runner: str, leader: int) -> None: ...
    def set(self, limits: Mapping[str, Limit]) -> None: ...
    def limits(self) -> Mapping[str, Limit]: ...
    def usage(self) -> Mapping[str, Usage]: ...
    def drop(self, runner: str) -> None: ...
    def drop_dead(self, alive: Collection[str]) -> None: ...
    def sweep(self, leaders: Mapping[str, int]) -> None: ...
    def close(self) -> None: ...


class Limiter:
    """Limits and watches the runners of one site."""

    def __init__(self, name: str, hierarchy: Hierarchy | None, say: Callable[[str], None], parent: str = "") -> None:
        """Begin; what an earlier process set still holds.

        Args:
            name: Of the site: no two that run on this machine at once may have the same.
            hierarchy: As `cgroup.find` tells; None: no control groups may be written.
            say: Hears, once each, what is not as it was asked.
            parent: The control group below which the runners' stand; it must be there. Without, it is made.
        """
        self._hierarchy = hierarchy if not parent else None
        self._above = f"{WHOLE}/{OWN}{group_name(name)}"
        self._leaders: dict[str, int] = {}
        self._hands: _Hands = _hands(hierarchy, parent, self._above, say)

    @property
    def how(self) -> str:
        """Return by what runners are limited."""
        return self._hands.how

    @property
    def weighs(self) -> bool:
        """Return whether weights are kept: by control groups, or where nice values may be lowered as well as raised."""
        return self._hands.weighs

    @property
    def is_nice(self) -> bool:
        """Return whether weights are nice values."""
        return isinstance(self._hands, SignalHands) and self._hands.weighs

    def take(self, runner: str, leader: int) -> None:
        """Let all processes of a session be this runner's: done again, it finds those that are new.

        Processes that these make are the runner's by themselves. Best done right after the start: the kernel counts
        memory that was taken before somewhere else.

        Raises:
            BindError: HW4802, the kernel refuses.
        """
        if self._leaders.get(runner) != leader:
            # An earlier process of this site and its program that stops runners may have been killed at once.
            let_go_on(members(leader))
            self._leaders[runner] = leader
        self._hands.take(runner, leader)

    def set(self, limits: Mapping[str, Limit]) -> None:
        """Set the limits of these runners; what is so already is not written, and who is not named stays as it is.

        Raises:
            BindError: HW4802, the kernel refuses; HW4803, a limit that cannot be: then none is set.
        """
        for limit in limits.values():
            if limit.cores is not None:
                files.quota(limit.cores)
            if not limit.weight > 0:
                raise BindError(
                    f"HW4803 a weight of {limit.weight:g} cannot be set; it is above 0, and 1 is normal. Give more."
                )
        self._hands.set(limits)

    def limits(self) -> Mapping[str, Limit]:
        """Return the limits of all runners as the kernel has them; without control groups, as they were set here.

        Raises:
            BindError: HW4802, they cannot be read.
        """
        return self._hands.limits()

    def usage(self) -> Mapping[str, Usage]:
        """Return what each runner has used.

        Raises:
            BindError: HW4802, it cannot be read.
        """
        return self._hands.usage()

    def drop(self, runner: str) -> None:
        """Lift the limits of a runner and forget it; it runs on.

        Raises:
            BindError: HW4802 or HW4804, its control group does not go away.
        """
        self._leaders.pop(runner, None)
        self._hands.drop(runner)

    def drop_dead(self, alive: Collection[str]) -> None:
        """Forget the runners that are not among these and have no process: they ended while nobody limited.

        Raises:
            BindError: HW4802, the kernel refuses.
        """
        for runner in self._leaders.keys() - set(alive):
            del self._leaders[runner]
        self._hands.drop_dead(alive)

    def sweep(self, leaders: Mapping[str, int]) -> None:
        """Lift what an earlier process of this site has set where this one does not find it.

        That one may have stood in other control groups; without control groups, its nice values are left.

        Args:
            leaders: Of the runners, by name, that are not limited by this process.

        Raises:
            BindError: HW4802 or HW4804, a control group does not go away; the others are gone then.
        """
        self._hands.sweep(leaders)

    def end(self) -> None:
        """Lift the limits of all runners of this site and leave no control group of it; they run on.

        Those are found, too, that an earlier process made which stood in other groups than this one, or was killed
        while it made or removed them. Nobody else may limit for this site meanwhile.

        Raises:
            BindError: HW4802 or HW4804, a control group does not go away; the others are gone then.
        """
        troubles = []
        for runner in self.limits():
            try:
                self.drop(runner)
            except BindError as error:
                troubles.append(error)
        if self._hierarchy is not None:
            troubles += _swept(self._hierarchy, self._above)
        if troubles:
            raise troubles[0]

    def close(self) -> None:
        """End what this process needs for limiting; limits of control groups stay, those by signals end."""
        self._hands.close()


def _hands(hierarchy: Hierarchy | None, parent: str, above: str, say: Callable[[str], None]) -> _Hands:
    """Return the way of limiting that works here."""
    if hierarchy is None:
        return SignalHands(say)
    if parent:
        return _GroupHands(hierarchy, Group(hierarchy, parent), say)
    home = cgroup.own(hierarchy)
    place = home if hierarchy.version == 1 else hierarchy
    hands = _GroupHands(place, Group(place, above, home), say, Group(place, WHOLE, home), hierarchy)
    because = hands.refusal()
    return SignalHands(say, because) if because else hands


def _swept(hierarchy: Hierarchy, above: str, but: Collection[Path] = ()) -> list[BindError]:
    """Dissolve all groups of a site, wherever they stand, but for some places; return what was in the way."""
    troubles = []
    for place in cgroup.places(hierarchy, above):
        if place.cpu in but:
            continue
        home = place if hierarchy.version == 1 else cgroup.own(hierarchy)
        whole, site = Group(place, WHOLE, home), Group(place, above, home)
        steps = [*(site.below(one).dissolve for one in site.groups()), site.retire, whole.retire]
        if place.cpu.is_relative_to(hierarchy.cpu):  # and no tree that weighs nothing
            steps.append(functools.partial(_weigh, whole, site))
        for step in steps:
            try:
                step()
            except BindError as error:
                troubles.append(error)
    return troubles


class _GroupHands:
    """Limits runners by control groups."""

    weighs = True

    def __init__(
        self,
        hierarchy: Hierarchy,
        above: Group,
        say: Callable[[str], None],
        whole: Group | None = None,
        everything: Hierarchy | None = None,
    ) -> None:
        """Describe them; with `whole`, that and `above` are made, weighed and removed here, too.

        `everything` has all places in which an earlier process may have made them.
        """
        self.how = f"control groups version {hierarchy.version}"
        self._everything = everything
        self._hierarchy, self._above, self._whole = hierarchy, above, whole
        self._say = say
        self._groups: dict[str, Group] = {}
        self._tallies: dict[str, tuple[Tally, Tally]] = {}
        self._said: dict[str, int] = {}  # what limit of memory was asked when it was told that it cannot be

    def _group(self, runner: str) -> Group:
        group = self._groups.get(runner)
        if group is None:
            group = self._groups[runner] = self._above.below(group_name(runner))
        return group

    def _made(self, runner: str) -> Group:
        group = self._group(runner)
        if not group.is_there:
            group.make()
            if self._whole is not None:
                _weigh(self._whole, self._above)
        return group

    def refusal(self) -> str:
        """Try to make a group and to limit it; return why the kernel does not let us, or nothing if it does."""
        probe, because = self._above.below(PROBE), ""
        for _ in range(TRIES):
            try:
                probe.make()
                probe.set_cores(PROBE_CORES)
            except BindError as error:
                because = str(error)
            else:
                because = ""
                break
        probe.remove_empty()
        with contextlib.suppress(BindError):  # who may not be made may refuse to go, and that was told
            self._settle_above()
        return because

    def _settle_above(self) -> None:
        """Remove the groups above if no runner is left below them, else weigh them."""
        if self._whole is not None:
            self._above.retire()
            self._whole.retire()
            _weigh(self._whole, self._above)

    def take(self, runner: str, leader: int) -> None:
        group = self._made(runner)
        group.count_memory()
        before: set[int] = set()
        for _ in range(PASSES):
            strangers = set(members(leader)) - group.settled()
            if strangers <= before:  # none, or dead ones that nobody has buried
                return
            group.join(strangers)
            before = strangers

    def set(self, limits: Mapping[str, Limit]) -> None:
        for runner, limit in limits.items():
            group = self._made(runner)
            group.set_cores(limit.cores)
            group.set_weight(limit.weight)
            self._set_memory(runner, group, limit.memory_bytes)

    def _set_memory(self, runner: str, group: Group, asked: int | None) -> None:
        if asked is not None and self._hierarchy.memory is None:
            self._say_memory(runner, asked, "is not limited: this machine has no control groups for memory")
            return
        if files.is_same_memory(group.memory(), asked):
            return
        held = group.set_memory(asked, memory_bytes(group.pids()))
        if asked is None or held == asked:
            self._said.pop(runner, None)
        elif held is None:
            self._say_memory(runner, asked, f"is not limited to {asked} bytes: more than that is in use")
        else:
            self._say_memory(runner, asked, f"is limited to {held} bytes and not to {asked}: more than that is in use")

    def _say_memory(self, runner: str, asked: int, text: str) -> None:
        if self._said.get(runner) != asked:
            self._said[runner] = asked
            self._say(f"the memory of runner '{runner}' {text}")

    def limits(self) -> Mapping[str, Limit]:
        found = {}
        for runner in _runners(self._above):
            group = self._group(runner)
            found[runner] = Limit(group.cores(), group.weight(), group.memory())
        return found

    def usage(self) -> Mapping[str, Usage]:
        found = {}
        for runner in _runners(self._above):
            group = self._group(runner)
            if not group.is_there:  # it was made or removed by one who was killed at it
                continue
            waited, used = self._tallies.setdefault(runner, (Tally(), Tally()))
            pids = group.pids()
            counts = self._hierarchy.version == 2 or self._hierarchy.usage is not None
            found[runner] = Usage(
                group.used_s() if counts else used.add(used_ns(pids)) / 1e9,
                group.throttled_s(),
                waited.add(waited_ns(pids)) / 1e9,
                # Memory that was taken before a process joined is counted elsewhere by the kernel, and here by hand.
                max(group.memory_used() or 0, memory_bytes(pids)),
            )
        return found

    def drop(self, runner: str) -> None:
        self._group(runner).dissolve()
        self._forget(runner)
        self._settle_above()

    def _forget(self, runner: str) -> None:
        for kept in (self._groups, self._tallies, self._said):
            kept.pop(runner, None)

    def drop_dead(self, alive: Collection[str]) -> None:
        there = _runners(self._above)
        gone = [one for one in there if one not in alive and self._group(one).remove_empty()]
        for runner in gone:
            self._forget(runner)
        if gone or not there:
            self._settle_above()

    def sweep(self, leaders: Mapping[str, int]) -> None:
        del leaders  # what was made here is found here
        own = {one for one in (self._hierarchy.cpu, self._hierarchy.usage, self._hierarchy.memory) if one is not None}
        if self._everything is not None:
            for error in _swept(self._everything, self._above.name, own)[:1]:
                raise error

    def close(self) -> None:
        """Do nothing: the kernel limits by itself."""


def _weigh(whole: Group, above: Group) -> None:
    """Let the groups above the runners' count as much as all runners below them."""
    counts = {one: len(_runners(whole.below(one))) for one in whole.groups() if one.startswith(OWN)}
    for group, count in ((whole, sum(counts.values())), (above, counts.get(above.name.rpartition("/")[2], 0))):
        try:
            if group.is_there:
                group.set_weight(max(1, count))
        except BindError:
            if group.is_there:  # and not removed by another site meanwhile
                raise


def _runners(above: Group) -> list[str]:
    """Return the runners that have a group below this one."""
    found = map(from_group_name, above.groups())
    return [one for one in found if one is not None]
