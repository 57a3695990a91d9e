"""Do runners get what they are limited to, live, by control groups, and where do these stand?"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from headwater.bind import cgroup, cgroup_files
from headwater.bind.cgroup import Group, Hierarchy
from headwater.bind.limiter import Limit, Limiter
from headwater.testbed.bed import leftovers
from tests.contract.beds import tries
from tests.contract.limiting import AGENT, BURN, NAME, Start, ask, hold, kill, place, shares, starts, uses

ABOVE = f"headwater/runners_{NAME}"
ANSWER = (  # takes so many bytes as it is told, and tells when it has them
    "import sys\nheld = []\nprint(flush=True)\n"
    "for line in sys.stdin:\n    held.append(b'x' * int(line))\n    print(len(held), flush=True)"
)
FORK = (
    "import os, sys\nprint(flush=True)\nfor line in sys.stdin:\n    pid = os.fork()\n    pid and print(pid, flush=True)"
)


@pytest.fixture
def start() -> Iterator[Start]:
    yield from starts()


@pytest.fixture
def hierarchy(start: Start) -> Iterator[Hierarchy]:
    """Control groups from where this process stands on, in which nothing is left in the end."""
    found = place()
    if found is None:
        pytest.skip("this machine has no control groups that may be written; it takes root")
    yield found
    Group(found, ABOVE).remove()
    Group(found, "headwater").retire()
    assert not cgroup.places(found, ABOVE)


def stands(pid: int, hierarchy: Hierarchy, name: str) -> bool:
    """Return whether a process is in a group, in all trees."""
    trees = (hierarchy.cpu, hierarchy.usage, hierarchy.memory)
    return all(pid in cgroup_files.pids_in(tree / name) for tree in trees if tree is not None)


@pytest.fixture
def outer(hierarchy: Hierarchy) -> Iterator[Group]:
    """A group as a service or container has, with less than this machine has."""
    group = Group(hierarchy, f"outer-{os.getpid()}")
    group.make()
    group.count_memory()
    group.set_cores(0.3)
    yield group
    group.remove()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def limiter(hierarchy: Hierarchy, said: list[str]) -> Limiter:
    return Limiter(NAME, hierarchy, said.append)


def test_a_quota_holds_and_changes_while_the_runner_runs(limiter: Limiter, start: Start) -> None:
    burner = start(BURN)
    limiter.take("one", burner.pid)
    for cores in (0.2, 0.5, 0.2):
        limiter.set({"one": Limit(cores)})
        assert limiter.limits() == {"one": Limit(cores)}
        uses(limiter, cores, 0.10)
    usage = limiter.usage()["one"]
    assert usage.throttled_s > 1.0
    assert usage.run_delay_s > 1.0  # a thread that its limit lets stand still waits for a processor
    assert usage.memory_bytes > 1_000_000
    assert limiter.how in {"control groups version 1", "control groups version 2"}


def test_a_limit_that_is_set_already_is_not_written(
    limiter: Limiter, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Limit(0.2, 2.0, 300_000_000)
    limiter.set({"one": limit})
    written: list[str] = []
    monkeypatch.setattr(cgroup_files, "put", lambda file, text: written.append(f"{file.name} {text}"))
    limiter.set({"one": limit})
    assert written == []
    limiter.set({"one": Limit(0.3, 2.0, 300_000_000)})
    assert len(written) == 1, "the period stays, and so only the quota is written: there is always one"
    assert "6000" in written[0]


def test_weights_share_a_core(limiter: Limiter, start: Start) -> None:
    core = max(os.sched_getaffinity(0))
    for name, weight in (("heavy", 3.0), ("light", 1.0)):
        burner = start(BURN)
        os.sched_setaffinity(burner.pid, {core})
        limiter.take(name, burner.pid)
        limiter.set({name: Limit(None, weight)})
    found = []
    for _ in tries():
        both = shares(limiter, 2.0)
        found.append(both["heavy"] / both["light"])
        if 2.5 <= found[-1] <= 3.5:
            return
    pytest.fail(f"ratios of {found}, asked 3")


def test_processes_that_are_made_later_belong_to_the_runner(
    limiter: Limiter, start: Start, hierarchy: Hierarchy
) -> None:
    parent = start(FORK)
    assert parent.stdin is not None
    assert parent.stdout is not None
    before = start(BURN)
    limiter.take("one", parent.pid)
    parent.stdin.write("\n")
    parent.stdin.flush()
    child = int(parent.stdout.readline())
    assert Group(hierarchy, f"{ABOVE}/one").pids() == tuple(sorted((parent.pid, child)))
    limiter.take("one", before.pid)  # started again under another number
    assert before.pid in Group(hierarchy, f"{ABOVE}/one").pids()
    gone = subprocess.Popen(["true"])
    gone.wait()
    Group(hierarchy, f"{ABOVE}/one").join([gone.pid])


def test_limits_survive_who_set_them(limiter: Limiter, start: Start) -> None:
    burner = start(BURN)
    agent = start(AGENT, NAME, "groups", plain=False)
    hold(agent, burner.pid)
    kill(agent)
    limit = limiter.limits()["one"]
    assert (limit.cores, limit.weight) == (0.2, 2.0)
    assert limit.memory_bytes is not None
    assert 0 <= 300_000_000 - limit.memory_bytes < os.sysconf("SC_PAGE_SIZE")
    assert burner.poll() is None
    uses(limiter, 0.2, 0.10)


def test_memory_is_limited_and_nobody_is_killed_by_a_limit_below_what_is_used(
    limiter: Limiter, start: Start, said: list[str], hierarchy: Hierarchy
) -> None:
    if hierarchy.memory is None:
        pytest.skip("this machine has no control groups for memory")
    runner = start(ANSWER)
    assert runner.stdin is not None
    assert runner.stdout is not None

    def take(size: int) -> str:
        assert runner.stdin is not None
        assert runner.stdout is not None
        runner.stdin.write(f"{size}\n")
        runner.stdin.flush()
        return runner.stdout.readline()

    limiter.take("one", runner.pid)
    limiter.set({"one": Limit(None, memory_bytes=200_000_000)})
    assert take(100_000_000) == "1\n"
    assert 100_000_000 <= limiter.usage()["one"].memory_bytes < 140_000_000
    assert said == []
    for _ in range(2):
        limiter.set({"one": Limit(None, memory_bytes=50_000_000)})
        held = limiter.limits()["one"].memory_bytes
        assert held is not None
        assert 105_000_000 < held < 160_000_000
        assert take(1_000) in {"2\n", "3\n"}
    assert len(said) == 1
    assert "'one'" in said[0]
    assert "more than that is in use" in said[0]
    limiter.set({"one": Limit(None, memory_bytes=None)})
    assert limiter.limits()["one"].memory_bytes is None
    assert take(100_000_000) == "4\n"
    limiter.set({"one": Limit(None, memory_bytes=250_000_000)})
    assert take(200_000_000) == ""
    assert runner.wait(10) == -signal.SIGKILL


def test_who_is_dropped_runs_on_without_a_limit(limiter: Limiter, start: Start, hierarchy: Hierarchy) -> None:
    burner, other = start(BURN), start(BURN)
    limiter.take("one", burner.pid)
    limiter.take("two, with ä", other.pid)
    limiter.set({"one": Limit(0.05, 0.5, 300_000_000), "two, with ä": Limit(0.05)})
    assert set(limiter.limits()) == {"one", "two, with ä"}
    assert not [bed for bed in leftovers() if NAME in bed], "who takes all testbeds down must not end runners"
    limiter.drop("one")
    assert limiter.limits() == {"two, with ä": Limit(0.05)}
    assert burner.poll() is None
    assert stands(burner.pid, cgroup.own(hierarchy), "."), "it is where who limits is, and so nothing of ours limits it"
    limiter.drop("two, with ä")
    assert limiter.limits() == {}
    assert not (hierarchy.cpu / ABOVE).exists()
    assert other.poll() is None
    limiter.drop("nobody")


def test_below_a_group_with_less_a_runner_gets_what_that_has(hierarchy: Hierarchy, start: Start) -> None:
    site = Group(hierarchy, f"{ABOVE}/0")
    site.make(is_parent=True)
    site.set_cores(0.3)
    limiter = Limiter("any", hierarchy, pytest.fail, parent=site.name)
    burner = start(BURN)
    site.join([burner.pid])
    limiter.take("one", burner.pid)
    limiter.set({"one": Limit(0.8)})
    uses(limiter, 0.3, 0.10)
    site.set_cores(0.04)  # another period, and less than the one below has
    assert site.cores() == pytest.approx(0.04)
    limiter.set({"one": Limit(0.8)})
    uses(limiter, 0.04, 0.35)  # the quota of a period more or less counts much
    limiter.drop("one")
    assert burner.pid in site.pids()
    site.set_cores(None)


def test_a_runner_stays_in_the_group_of_who_limits_it(hierarchy: Hierarchy, outer: Group, start: Start) -> None:
    if hierarchy.version == 2:
        pytest.skip("there, groups of runners stand in one place")
    burner, files = start(BURN), [str(file) for file in outer.procs_files]
    agent = start(AGENT, NAME, "groups", *files, plain=False)
    ask(agent, f"limiter.take('one', {burner.pid})")
    assert stands(burner.pid, hierarchy, f"{outer.name}/{ABOVE}/one")
    ask(agent, "limiter.set({'one': Limit(0.8)})")
    assert ask(agent, "limiter.limits()['one'].cores") == "0.3", "more than it has in there cannot be"
    kill(agent)
    later = start(AGENT, NAME, "groups", *files, plain=False)
    assert ask(later, "limiter.limits()['one'].cores") == "0.3", "it was started from the same place"
    elsewhere = Limiter(NAME, hierarchy, pytest.fail)
    assert elsewhere.limits() == {}
    elsewhere.take("one", burner.pid)
    elsewhere.set({"one": Limit(0.2)})
    assert stands(burner.pid, hierarchy, f"{ABOVE}/one")
    ask(later, f"limiter.take('one', {burner.pid})")
    assert stands(burner.pid, hierarchy, f"{outer.name}/{ABOVE}/one")
    elsewhere.drop("one")
    ask(later, "limiter.drop('one')")
    assert stands(burner.pid, hierarchy, outer.name)
    assert not cgroup.places(hierarchy, "headwater/runners_" + NAME)


def test_the_end_of_a_site_leaves_no_group_wherever_it_was_made(
    limiter: Limiter, hierarchy: Hierarchy, outer: Group, start: Start
) -> None:
    assert not cgroup.places(hierarchy, ABOVE), "nothing is left of what was tried"
    far, near = start(BURN), start(BURN)
    agent = start(AGENT, NAME, "groups", *map(str, outer.procs_files), plain=False)
    hold(agent, far.pid)
    kill(agent)
    limiter.take("two", near.pid)
    for tree in {hierarchy.usage, hierarchy.memory} - {hierarchy.cpu, None}:
        assert tree is not None
        (tree / ABOVE / "half").mkdir(parents=True)  # as one who was killed at it leaves it
    limiter.end()
    assert not cgroup.places(hierarchy, ABOVE)
    here = cgroup.own(hierarchy)
    assert stands(far.pid, hierarchy, outer.name) if hierarchy.version == 1 else stands(far.pid, here, ".")
    assert stands(near.pid, here, ".")
    assert (far.poll(), near.poll()) == (None, None)
    limiter.end()


def test_what_an_agent_left_that_stood_elsewhere_is_swept_and_what_is_here_stays(
    limiter: Limiter, hierarchy: Hierarchy, outer: Group, start: Start
) -> None:
    if hierarchy.version == 2:
        pytest.skip("there, groups of runners stand in one place")
    far, near = start(BURN), start(BURN)
    agent = start(AGENT, NAME, "groups", *map(str, outer.procs_files), plain=False)
    hold(agent, far.pid)
    kill(agent)
    limiter.take("near", near.pid)
    limiter.set({"near": Limit(0.5)})
    assert "one" not in limiter.limits(), "it stands where this one does not look"
    limiter.sweep({})
    assert stands(far.pid, hierarchy, outer.name), "it runs on, without limits of its own"
    assert not Group(hierarchy, f"{outer.name}/{ABOVE}").is_there
    assert limiter.limits() == {"near": Limit(0.5)}


def test_groups_above_count_as_much_as_the_runners_in_them(hierarchy: Hierarchy, outer: Group) -> None:
    usage, memory = (tree and tree / outer.name for tree in (hierarchy.usage, hierarchy.memory))
    alone = Hierarchy(hierarchy.version, hierarchy.cpu / outer.name, usage, memory)
    limiter, neighbour = Limiter("a", alone, pytest.fail), Limiter("b", alone, pytest.fail)
    site, whole = Group(alone, "headwater/runners_a"), Group(alone, "headwater")
    limiter.set({name: Limit(None, 5.0) for name in ("a", "b", "c")})
    assert (site.weight(), whole.weight()) == (3.0, 3.0)
    neighbour.set({"a": Limit(None)})
    assert (site.weight(), whole.weight()) == (3.0, 4.0)
    limiter.drop("b")
    assert (site.weight(), whole.weight()) == (2.0, 3.0)
    Limiter("b", hierarchy, pytest.fail).end()  # from elsewhere
    assert (site.weight(), whole.weight()) == (2.0, 2.0)
    whole.set_weight(1.0)
    Limiter("b", alone, pytest.fail)
    assert whole.weight() == 2.0, "one who finds groups there sees to it, too"


def test_a_process_that_is_in_one_tree_only_joins_the_others(
    limiter: Limiter, hierarchy: Hierarchy, start: Start
) -> None:
    burner, group = start(BURN), Group(hierarchy, f"{ABOVE}/one")
    group.make()
    cgroup_files.join(hierarchy.cpu / group.name, burner.pid)
    assert group.pids() == (burner.pid,)
    if hierarchy.usage not in {hierarchy.cpu, None}:
        assert hierarchy.usage is not None
        (hierarchy.usage / group.name).rmdir()
        assert limiter.usage() == {}, "half a group is no error"
    limiter.take("one", burner.pid)
    assert stands(burner.pid, hierarchy, group.name)


def test_groups_of_runners_that_died_go_and_those_with_processes_stay(
    limiter: Limiter, hierarchy: Hierarchy, start: Start
) -> None:
    burner = start(BURN)
    limiter.take("unknown", burner.pid)
    limiter.set({name: Limit(0.1) for name in ("dead", "starting", "unknown")})
    limiter.drop_dead({"starting"})
    assert limiter.limits().keys() == {"starting", "unknown"}
    assert Group(hierarchy, ABOVE).weight() == 2.0
    assert stands(burner.pid, hierarchy, f"{ABOVE}/unknown")
    limiter.drop("unknown")
    limiter.drop_dead([])
    assert not cgroup.places(hierarchy, ABOVE)
