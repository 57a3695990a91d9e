"""What may a program still do after it has given up its rights? Tried for real, as root."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.bind.adopted import Adopted, started_at
from headwater.bind.privilege import DEFAULT, Identity, dropped, hand_over, identity, prefix, switched
from headwater.bind.process import RunnerProcess, RunnerSpec
from headwater.errors import BindError
from tests.unit.test_process import STAND_IN

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
SOURCE = Path(__file__).parents[2] / "src"
READY_S = 60.0
# With a user's own rights, what it is and what it may.
TELL = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
told = {name: status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs")}
def tries(act):
    try:
        act()
    except OSError:
        return False
    return True
told |= {"ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups()],
         "kills": tries(lambda: os.kill(os.getppid(), 0)), "chowns": tries(lambda: os.chown("/proc/self/fd/1", 1, 1))}
print(json.dumps(told))
"""


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder that all users can enter, unlike that of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def python() -> str:
    """An interpreter that all users can reach; the one of these tests may lie in the home folder of root."""
    for one in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        tried = [
            *switched("nobody"),
            one,
            "-c",
            "import os, sys; os.listdir(sys.base_prefix); assert sys.version_info >= (3, 11)",
        ]
        real = Path(one).resolve()
        if real.exists() and not _closed(real) and subprocess.run(tried, check=False, cwd="/").returncode == 0:
            return one
    pytest.skip("there is no interpreter here that user 'nobody' can reach")


def _closed(path: Path) -> bool:
    return any(not one.stat().st_mode & 0o001 for one in path.parents)


def told(words: tuple[str, ...], python: str) -> dict[str, object]:
    done = subprocess.run([*words, python, "-c", TELL], capture_output=True, text=True, check=True, cwd="/")
    found: dict[str, object] = json.loads(done.stdout)
    return found


NONE = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16) | {"NoNewPrivs": "1"}


@as_root
@pytest.mark.parametrize("tools", ["setpriv", "none"])
def test_a_program_becomes_another_user_with_no_capability(
    python: str, monkeypatch: pytest.MonkeyPatch, tools: str
) -> None:
    if tools == "none":
        monkeypatch.setenv("PATH", "/nowhere")
    nobody = pwd.getpwnam("nobody")
    words = switched("nobody")
    assert words[0].endswith("setpriv") == (tools == "setpriv" and shutil.which("setpriv") is not None)
    ids = [nobody.pw_uid] * 2 + [nobody.pw_gid] * 2
    assert told(words, python) == NONE | {"ids": ids, "kills": False, "chowns": False}


@as_root
@pytest.mark.parametrize("tools", ["setpriv", "none"])
def test_a_program_that_stays_root_loses_all_capabilities(monkeypatch: pytest.MonkeyPatch, tools: str) -> None:
    if tools == "none":
        monkeypatch.setenv("PATH", "/nowhere")
    found = told(dropped(), sys.executable)
    assert {name: found[name] for name in NONE} == NONE
    assert found["chowns"] is False
    assert set(found["ids"][:4]) == {0}  # type: ignore[index]


@as_root
def test_without_words_a_program_has_all_rights(python: str) -> None:
    """So that what the tests above find is not there anyway."""
    found = told((), python)
    assert found["NoNewPrivs"] == "0"
    assert found["CapEff"] != "0" * 16
    assert found["chowns"] is True


@as_root
def test_the_usual_user_is_taken_where_it_reaches_all_it_needs(python: str) -> None:
    program = "import sys; from headwater.bind.privilege import identity; from pathlib import Path; "
    program += "found = identity(None, [Path(one) for one in sys.argv[1:]]); print(found.user, found.note, sep='|')"
    environment = {"PYTHONPATH": str(SOURCE), "PATH": os.environ["PATH"]}

    def asked(*needs: str) -> tuple[str, str]:
        done = subprocess.run(
            [python, "-c", program, *needs], env=environment, capture_output=True, text=True, check=True, cwd="/"
        )
        user, _, note = done.stdout.strip().partition("|")
        return user, note

    if _closed(SOURCE / "headwater"):
        pytest.skip("user 'nobody' cannot reach this copy of Headwater")
    usual = "headwater" if "headwater" in {one.pw_name for one in pwd.getpwall()} else "nobody"
    assert asked() == (usual, "None")
    with tempfile.TemporaryDirectory(dir="/tmp") as closed:  # for its owner alone
        file = Path(closed, "some.jar")
        file.touch()
        user, note = asked(str(file))
        assert user == "root"
        assert f"'{file}' lies in '{closed}', which user '{usual}' may not enter" in note
        Path(closed).chmod(0o755)
        assert asked(str(file)) == (usual, "None")
        file.chmod(0o600)
        assert f"user '{usual}' may not use '{file}'" in asked(str(file))[1]


@as_root
def test_where_the_user_cannot_reach_the_program_it_stays_root_and_the_note_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "home"
    closed.mkdir(0o700)
    (closed / "python").symlink_to(sys.executable)
    (closed / "jar").touch()
    monkeypatch.setattr(sys, "executable", str(closed / "python"))
    words, note = prefix(None, [closed / "jar"])
    assert note is not None
    assert note.startswith("it runs as root without capabilities and not as user")
    assert "may not enter" in note
    found = told(words, sys.executable)
    assert {name: found[name] for name in NONE} == NONE


@as_root
def test_the_superuser_by_name_loses_its_capabilities_too() -> None:
    found = identity("root")
    assert found.user == "root"
    assert "superuser" in (found.note or "")
    assert found.words == dropped()


@as_root
@pytest.mark.parametrize("user", ["no-such-user", "a b", "-x"])
def test_a_user_that_is_not_there_is_told(tmp_path: Path, user: str) -> None:
    for act in (lambda: identity(user), lambda: switched(user), lambda: hand_over(tmp_path, user)):
        with pytest.raises(BindError, match=rf"HW4512 there is no user '{user}'"):
            act()


def test_who_is_not_root_has_nothing_to_give_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert identity("no-such-user") == Identity((), None, None)
    assert prefix() == ((), None)


@as_root
def test_a_folder_is_handed_over_and_nothing_outside_of_it(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "file").touch(0o600)
    (outside / "in it").mkdir(parents=True)
    for name in ("linked", "named twice"):
        (outside / name).touch()
    (folder / "link").symlink_to(outside / "linked")
    (folder / "link to a folder").symlink_to(outside)
    (folder / "twice").hardlink_to(outside / "named twice")
    hand_over(folder, "nobody")
    mine = (nobody.pw_uid, nobody.pw_gid)
    for path in (folder, *(one for one in folder.rglob("*") if one.name != "twice")):
        assert (path.lstat().st_uid, path.lstat().st_gid) == mine, path
    for path in (outside, *outside.rglob("*")):
        assert path.lstat().st_uid == 0, path
    assert stat.S_IMODE((folder / "deep" / "file").stat().st_mode) == 0o600
    with pytest.raises(BindError, match="HW4513"):
        hand_over(tmp_path / "nowhere", "nobody")


RUN = """
import json, sys
from pathlib import Path
from headwater.bind.process import RunnerProcess, RunnerSpec

folder = Path(sys.argv[1])
runner = RunnerProcess(RunnerSpec("pi", folder, "works", None, [], {"pi": "a:1"}, 4, 10.0, user=sys.argv[2] or ""))
runner.start()
runner.wait_ready(60.0)
status = Path(f"/proc/{runner.pid}/status").read_text()
print(json.dumps({"pid": runner.pid, "note": runner.note, "status": status, "ok": runner.ask({"do": "x"})["ok"]}))
sys.stdout.flush()
sys.stdin.read()
"""


@as_root
@pytest.mark.parametrize("interpreter", ["everybody's", "ours"])
def test_a_runner_starts_without_rights_and_its_token_is_for_its_user_alone(
    everybodys: Path, python: str, interpreter: str
) -> None:
    """As another user with an interpreter that it reaches; else as root without capabilities. Bound all the same."""
    site = everybodys / "site"
    for before in ("nobody", "root"):  # what an earlier one with other rights has left
        (site / before).mkdir(parents=True, exist_ok=True)
        hand_over(site / before, before)
    package = site / "headwater" / "serve"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.touch()
    (package / "runner.py").write_text(STAND_IN)
    needed = [Path(one.__file__ or "").parents[1] for one in (sys.modules["psutil"],)]
    program = python if interpreter == "everybody's" else sys.executable
    environment = {"PYTHONPATH": os.pathsep.join(map(str, [SOURCE, *needed])), "PATH": os.environ["PATH"]}
    command = [program, "-c", RUN, str(site), DEFAULT]
    with subprocess.Popen(
        command, env=environment, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        found = json.loads(starter.stdout.readline())
        began = started_at(found["pid"])
        assert began is not None
        token = (site / "token").stat()
        starter.kill()
    status = dict(line.split(":\t", 1) for line in found["status"].splitlines() if ":\t" in line)
    assert found["ok"]
    assert (status["CapEff"], status["CapBnd"], status["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    uid = int(status["Uid"].split()[0])
    assert (uid == 0) == (found["note"] is not None)
    if not _closed(Path(program).resolve()) and not _closed(SOURCE / "headwater") and not _closed(needed[0] / "x"):
        assert uid != 0
    assert (token.st_uid, stat.S_IMODE(token.st_mode)) == (uid, 0o600)
    assert {one.stat().st_uid for one in site.iterdir() if one.name != "runner.pid"} == {uid}
    assert Adopted(found["pid"], began).wait(READY_S), "a runner that has given up its rights ends with its starter"


@as_root
def test_a_runner_that_is_not_asked_to_give_up_its_rights_keeps_them(tmp_path: Path) -> None:
    """As `headwater run` starts it."""
    package = tmp_path / "headwater" / "serve"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.touch()
    (package / "runner.py").write_text(STAND_IN)
    runner = RunnerProcess(RunnerSpec("pi", tmp_path, "works", None, [], {"pi": "a:1"}, 4, 10.0))
    try:
        runner.start()
        runner.wait_ready(READY_S)
        status = Path(f"/proc/{runner.pid}/status").read_text()
        assert "NoNewPrivs:\t0" in status
        assert (tmp_path / "token").stat().st_uid == 0
    finally:
        runner.kill()
