"""Are the files of control groups written as each version wants them? On folders that look like them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.bind import cgroup_files as files
from headwater.bind.cgroup import REST, Group, Hierarchy, find, own, places
from headwater.bind.limiter import Limit, Limiter
from headwater.errors import BindError

MB = 2**20


@pytest.fixture
def group(second: Hierarchy) -> Group:
    made = Group(second, "headwater/city/0")
    made.make()
    return made


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written, in its order: file and text."""
    done: list[str] = []
    put = files.put

    def note(file: Path, text: str) -> None:
        done.append(f"{file.name} {text}")
        put(file, text)

    monkeypatch.setattr(files, "put", note)
    return done


def test_version_2_takes_quotas_weights_and_memory_and_gives_them_back(group: Group, tmp_path: Path) -> None:
    folder = tmp_path / "headwater/city/0"
    assert (group.cores(), group.weight(), group.memory(), group.memory_used()) == (None, 1.0, None, None)
    group.set_cores(0.25)
    group.set_weight(2.5)
    assert group.set_memory(700 * MB) == 700 * MB
    assert (folder / "cpu.max").read_text() == "5000 20000"
    assert (folder / "cpu.weight").read_text() == "250"
    assert (folder / "memory.max").read_text() == str(700 * MB)
    assert (group.cores(), group.weight(), group.memory()) == (0.25, 2.5, 700 * MB)
    (folder / "cpu.max").write_text("max 100000\n")
    (folder / "memory.max").write_text("max\n")
    assert (group.cores(), group.memory()) == (None, None)


@pytest.mark.parametrize(("weight", "first", "second"), [(1.0, 1024, 100), (1e-9, 2, 1), (1e9, 262_144, 10_000)])
def test_a_weight_stays_within_what_the_kernel_takes(weight: float, first: int, second: int) -> None:
    assert (files.kernel_weight(1, weight), files.kernel_weight(2, weight)) == (first, second)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_a_weight_that_is_not_above_0_is_refused(group: Group, second: Hierarchy, weight: float) -> None:
    with pytest.raises(BindError, match="HW4803 a weight of"):
        group.set_weight(weight)
    limiter = Limiter("city", second, pytest.fail)
    with pytest.raises(BindError, match="HW4803 a weight of"):
        limiter.set({"a": Limit(0.5), "b": Limit(0.5, weight)})
    for cores in (0.0, float("nan"), float("inf")):
        with pytest.raises(BindError, match=f"HW4803 a limit of {cores:g} cores"):
            limiter.set({"a": Limit(0.5), "b": Limit(cores)})
    assert limiter.limits() == {}


def test_what_is_so_already_is_not_written(group: Group, written: list[str]) -> None:
    for _ in range(3):
        group.set_cores(0.5)
        group.set_weight(2.0)
        group.set_memory(MB * 100)
    assert written == ["cpu.max 10000 20000", "cpu.weight 200", f"memory.max {MB * 100}"]
    for _ in range(2):
        group.set_cores(None)
        group.set_memory(None)
    assert written[3:] == ["cpu.max max 100000", "memory.max max"]


@pytest.mark.parametrize("version", [1, 2])
def test_memory_is_not_limited_to_less_than_is_in_use(version: int, tmp_path: Path) -> None:
    current, limit = {1: ("memory.usage_in_bytes", "memory.limit_in_bytes"), 2: ("memory.current", "memory.max")}[
        version
    ]
    idle = "total_inactive_file" if version == 1 else "inactive_file"

    def use(size: int) -> None:
        (tmp_path / current).write_text(f"{size + 50 * MB}\n")
        (tmp_path / "memory.stat").write_text(f"anon {size}\n{idle} {50 * MB}\nother 3\n")

    use(400 * MB)
    assert files.read_memory_used(version, tmp_path) == 400 * MB
    assert files.write_memory(version, tmp_path, 100 * MB) == 420 * MB
    use(100 * MB)
    assert files.write_memory(version, tmp_path, 50 * MB) == 116 * MB
    assert (tmp_path / limit).read_text() == str(116 * MB)
    use(115 * MB)
    assert files.write_memory(version, tmp_path, 50 * MB) == 116 * MB, "it is not raised either"
    assert files.write_memory(version, tmp_path, 117 * MB) == 117 * MB, "more than now is never too little"
    assert files.write_memory(version, tmp_path, 50 * MB, used_bytes=80 * MB) == 117 * MB
    use(10 * MB)
    assert files.write_memory(version, tmp_path, 50 * MB, used_bytes=80 * MB) == 96 * MB
    assert files.write_memory(version, tmp_path, 50 * MB) == 50 * MB
    assert files.write_memory(version, tmp_path, None) is None


def test_a_limit_of_memory_that_the_kernel_finds_too_low_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files.write_memory(1, tmp_path, 100 * MB) == 100 * MB

    def refuse(file: Path, text: str) -> None:
        raise OSError(errno.EBUSY, "busy", str(file))

    monkeypatch.setattr(files, "put", refuse)
    assert files.write_memory(1, tmp_path, 50 * MB) == 100 * MB


def first(folder: Path, quota_us: int, period_us: int) -> None:
    (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
    (folder / "cpu.cfs_period_us").write_text(str(period_us))


@pytest.mark.parametrize("old", [0.5, 0.04, 0.06, 0.002, 1.7, 0.05])
@pytest.mark.parametrize("new", [0.5, 0.04, 0.06, 0.002, 1.7, 0.05])
def test_in_version_1_no_moment_of_a_change_allows_more_than_before_and_after(
    old: float, new: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(tmp_path, *files.quota(old))
    moments = []
    put = files.put

    def note(file: Path, text: str) -> None:
        put(file, text)
        moments.append(files.read_cores(1, tmp_path))

    monkeypatch.setattr(files, "put", note)
    files.write_cores(1, tmp_path, new)
    assert files.read_cores(1, tmp_path) == pytest.approx(new)
    assert all(one is not None and one <= max(old, new) + 1e-12 for one in moments)
    same_period = files.quota(old)[1] == files.quota(new)[1]
    assert len(moments) == (0 if old == new else 1 if same_period else 2)


def test_in_version_1_a_change_that_cannot_be_made_in_two_steps_is_made_in_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(tmp_path, 10_000, 20_000)
    texts: list[str] = []
    put = files.put

    def refuse_lower(file: Path, text: str) -> None:
        texts.append(text)
        put(file, text)
        cores = files.read_cores(1, tmp_path)
        if cores is not None and cores < 0.25 and len(texts) == 1:  # as if a group below had so much
            first(tmp_path, 10_000, 20_000)
            raise OSError(errno.EINVAL, "invalid", str(file))

    monkeypatch.setattr(files, "put", refuse_lower)
    files.write_cores(1, tmp_path, 0.04)
    assert texts[1:] == ["-1", "100000", "4000"]


def test_a_refusal_names_the_file(group: Group, tmp_path: Path) -> None:
    (tmp_path / "headwater/city/0/cpu.max").mkdir()
    with pytest.raises(BindError, match=r"HW4802 control group 'headwater/city/0' cannot .*cpu\.max"):
        group.set_cores(0.5)


def test_in_version_2_a_group_with_groups_below_has_its_processes_beside_them(
    second: Hierarchy, tmp_path: Path
) -> None:
    site = Group(second, "headwater/city/0")
    site.make(is_parent=True)
    folder = tmp_path / "headwater/city/0"
    assert (folder / "cgroup.subtree_control").read_text() == "+cpu +memory"
    assert site.procs_files == (folder / REST / "cgroup.procs",)
    limiter = Limiter("any", second, pytest.fail, parent=site.name)
    limiter.set({"one": Limit(0.5, 2.0, 100 * MB)})
    assert limiter.limits() == {"one": Limit(0.5, 2.0, 100 * MB)}
    assert limiter.how == "control groups version 2"
    assert (folder / "one" / "cpu.max").read_text() == "10000 20000"
    assert site.groups() == ("one",)
    assert not list(tmp_path.glob("headwater/cpu.weight")), "who gave the group weighs it and those above it"
    assert not list(tmp_path.glob("headwater/city/**/0/cpu.weight"))


def test_where_the_kernel_hands_no_controllers_down_runners_are_limited_by_signals(
    second: Hierarchy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = files.put
    said: list[str] = []

    def refuse(file: Path, text: str) -> None:
        if file.name == "cgroup.subtree_control" and file.parent == tmp_path:  # as in a container that has processes
            raise OSError(errno.EBUSY, "Device or resource busy", str(file))
        put(file, text)

    monkeypatch.setattr(files, "put", refuse)
    limiter = Limiter("city", second, said.append)
    assert limiter.how.startswith("nice and duty cycle" if limiter.weighs else "duty cycle")
    assert limiter.is_nice == limiter.weighs
    assert len(said) == 1
    assert "Device or resource busy" in said[0]
    assert not (tmp_path / "headwater").exists()
    limiter.set({"a": Limit(None, 2.0)})
    limiter.end()
    limiter.close()


def test_where_a_group_takes_no_quota_runners_are_limited_by_signals(
    second: Hierarchy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "rmdir", rmdir_with_files)
    put = files.put
    said: list[str] = []

    def refuse(file: Path, text: str) -> None:
        if file.name == "cpu.max":
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        put(file, text)

    monkeypatch.setattr(files, "put", refuse)
    limiter = Limiter("city", second, said.append)
    limiter.close()
    assert "duty cycle" in limiter.how
    assert "cpu.max" in said[0]
    assert not (tmp_path / "headwater").exists(), "what was made for the trial is gone"


def tree(folder: Path, *pids: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return folder


@pytest.mark.parametrize("above", ["", "/docker/0a1b", "/../.."])
def test_the_own_group_is_found_in_each_tree_wherever_that_begins(tmp_path: Path, above: str) -> None:
    for name in ("cpu,cpuacct", "memory"):
        tree(tmp_path / name, 1)
    for name in ("cpu", "cpuacct"):
        (tmp_path / name).symlink_to("cpu,cpuacct")
    found = find(tmp_path)
    assert found is not None
    told = tmp_path / "told"
    told.write_text(f"4:cpu,cpuacct:{above}/a.slice/b.service\n2:memory:{above}/a.slice\n1:name=systemd:/x\n0::/y\n")
    assert own(found, told) == found, "there are no such folders"
    cpu, memory = tmp_path / "cpu,cpuacct/a.slice/b.service", tmp_path / "memory/a.slice"
    tree(cpu, 1, 2)
    tree(memory, 3, os.getpid())
    assert own(found, told) == Hierarchy(1, found.cpu, found.usage, memory), "this process is not in the first"
    tree(cpu, 1, os.getpid())
    assert own(found, told) == Hierarchy(1, cpu, cpu, memory)
    assert own(own(found, told), told) == own(found, told)
    assert own(found, tmp_path / "none") == found


def test_in_an_own_group_that_may_not_be_written_the_whole_tree_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path / "cpu", 1)
    found = find(tmp_path)
    assert found is not None
    folder, told = tree(tmp_path / "cpu/a", os.getpid()), tmp_path / "told"
    told.write_text("1:cpu:/a\n")
    assert own(found, told).cpu == folder
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder and may(path, mode))
    assert own(found, told) == found


def test_in_version_2_processes_go_back_to_the_group_that_is_their_home(
    second: Hierarchy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "put", emptied(files.put))
    monkeypatch.setattr(Path, "rmdir", rmdir_with_files)
    service, told = tree(tmp_path / "a.slice/b.service", os.getpid()), tmp_path / "told"
    told.write_text("0::/a.slice/b.service\n")
    home = own(second, told)
    assert home == Hierarchy(2, service, service, service)
    for number, target in ((7, service), (12, tmp_path)):
        runner = Group(second, "headwater/runners_x/one", home)
        runner.make()
        runner.join([number])
        assert places(second, "headwater/runners_x") == [Hierarchy(2, tmp_path, None, None)]
        runner.dissolve()
        assert str(number) in (target / "cgroup.procs").read_text().split()
        for one in (Group(second, "headwater/runners_x", home), Group(second, "headwater", home)):
            one.retire()
        assert places(second, "headwater/runners_x") == []
        (service / "cgroup.subtree_control").write_text("+cpu")  # and so it takes no processes


def emptied(put: Callable[[Path, str], None]) -> Callable[[Path, str], None]:
    """Behave like the kernel of version 2: a process is in one group, and not in one that has groups below it."""

    def join(file: Path, text: str) -> None:
        if file.name != "cgroup.procs":
            put(file, text)
            return
        is_root = (file.parent / "cgroup.controllers").exists()
        if not is_root and (file.parent / "cgroup.subtree_control").exists():
            raise OSError(errno.EBUSY, "busy", str(file))
        root = next(one for one in file.parents if (one / "cgroup.controllers").exists())
        for other in root.rglob("cgroup.procs"):
            kept = [word for word in other.read_text().split() if word != text]
            other.write_text("".join(f"{word}\n" for word in kept))
        with file.open("a") as opened:
            opened.write(f"{text}\n")

    return join


@pytest.mark.parametrize("is_parent", [True, False])
def test_in_version_2_who_is_left_in_a_group_goes_to_the_next_that_takes_them(
    second: Hierarchy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_parent: bool
) -> None:
    monkeypatch.setattr(files, "put", emptied(files.put))
    monkeypatch.setattr(Path, "rmdir", rmdir_with_files)
    site, runner = Group(second, "headwater/city/0"), Group(second, "headwater/city/0/one")
    site.make(is_parent=is_parent)
    runner.make()
    runner.join([7, 12])
    assert runner.pids() == (7, 12)
    runner.dissolve()
    assert not runner.is_there
    target = tmp_path / "headwater/city/0" / REST if is_parent else tmp_path
    assert (target / "cgroup.procs").read_text().split() == ["7", "12"]
    runner.dissolve()  # it is gone


def test_a_site_has_no_more_cores_than_any_group_above_it(tmp_path: Path) -> None:
    below = tmp_path / "service" / "agent"
    below.mkdir(parents=True)
    for folder, most in ((tmp_path, "max"), (below.parent, "150000"), (below, "max")):
        (folder / "cgroup.procs").write_text("")
        (folder / "cpu.max").write_text(f"{most} 100000\n")
    assert files.least_cores(2, below) == 1.5
    (below / "cpu.max").write_text("50000 100000\n")
    assert files.least_cores(2, below) == 0.5
    assert files.least_cores(2, tmp_path) is None


def rmdir_with_files(folder: Path) -> None:
    """Remove a folder as the kernel does: its files go with it, but not while there are processes or groups in it."""
    if [one for one in folder.iterdir() if one.is_dir()] or (
        (folder / "cgroup.procs").exists() and (folder / "cgroup.procs").read_text().split()
    ):
        raise OSError(errno.EBUSY, "busy", str(folder))
    for one in folder.iterdir():
        one.unlink()
    os.rmdir(folder)


def test_a_group_retires_only_when_none_is_below_it(
    second: Hierarchy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "rmdir", rmdir_with_files)
    above, below = Group(second, "headwater"), Group(second, "headwater/city")
    below.make()
    above.retire()
    assert below.is_there
    below.retire()
    above.retire()
    assert not (tmp_path / "headwater").exists()


def test_what_a_container_may_use_is_seen_where_its_groups_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, may = tmp_path / "told", os.access
    told.write_text("0::/\n")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and may(path, mode))
    tree(tmp_path, os.getpid())
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    assert find(tmp_path) is None
    assert files.own_cores(tmp_path, told) == 2.0
    pod = tree(tmp_path / "pod", os.getpid())
    (pod / "cpu.max").write_text("50000 100000\n")
    told.write_text("0::/kubepods/pod\n")
    assert files.own_cores(tmp_path, told) == 0.5

    (tmp_path / "cgroup.controllers").unlink()
    first = tree(tmp_path / "cpu" / "docker", os.getpid())
    tree(tmp_path / "cpu")
    told.write_text("4:cpu,cpuacct:/docker\n")
    assert files.own_cores(tmp_path, told) is None
    (first / "cpu.cfs_quota_us").write_text("150000\n")
    (first / "cpu.cfs_period_us").write_text("100000\n")
    assert files.own_cores(tmp_path, told) == 1.5
    assert files.own_cores(tmp_path / "none", told) is None
