from __future__ import annotations

import io
import os
import stat
import sys
from pathlib import Path

import pytest

from headwater.errors import BindError, SpecError
from headwater.serve import disk


def mistake(path: str, **options: int) -> tuple[str, str]:
    with pytest.raises(SpecError) as caught:
        disk.read(path, **options)
    (only,) = caught.value.mistakes
    assert only.file is not None
    return only.code, only.text


def test_a_missing_file_says_from_where_paths_start(tmp_path: Path) -> None:
    code, text = mistake(str(tmp_path / "no.yaml"))
    assert code == "HW1301"
    assert os.getcwd() in text
    assert mistake(str(tmp_path / "none" / "no.yaml"))[1].count("no folder") == 1


def test_a_folder_or_a_path_through_a_file_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert mistake(str(tmp_path))[0] == "HW1302"
    assert mistake(str(tmp_path / "file" / "more"))[0] == "HW1301"
    assert mistake("a\0b")[0] == "HW1303"


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"12345")
    assert disk.read(str(path), largest_bytes=5) == b"12345"
    assert mistake(str(path), largest_bytes=4)[0] == "HW1304"


def test_what_has_no_size_is_read_up_to_the_limit() -> None:
    assert mistake("/dev/zero", largest_bytes=1000)[0] == "HW1304"


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc")))
    assert disk.read("-") == b"abc"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.yaml"
    path.write_text("old")

    def fail_while_writing() -> None:
        with disk.replacing(str(path)) as part:
            Path(part).write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(BindError, match=r"HW4003.*No space left"):
        fail_while_writing()
    assert path.read_text() == "old"
    disk.write_text(str(path), "new")
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["out.yaml"]


def test_a_part_keeps_the_suffix_and_the_result_the_usual_permissions(tmp_path: Path) -> None:
    with disk.replacing(str(tmp_path / "a.svg")) as part:
        assert part.endswith(".svg")
        Path(part).touch()
    usual = tmp_path / "usual"
    usual.touch()
    assert (tmp_path / "a.svg").stat().st_mode == usual.stat().st_mode


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    disk.write_text(str(tmp_path / "link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_device_is_written_to_and_not_replaced() -> None:
    disk.write_text("/dev/null", "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_missing_folder_or_a_folder_in_its_place_is_refused_early(tmp_path: Path) -> None:
    with pytest.raises(BindError, match=r"HW4001.*no folder"):
        disk.check_writable(str(tmp_path / "none" / "out.yaml"))
    with pytest.raises(BindError, match=r"HW4002.*is a folder"):
        disk.check_writable(str(tmp_path))
    with pytest.raises(BindError, match="HW4001"):
        disk.check_writable("")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_where_nothing_may_be_written_is_refused_early(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BindError, match="HW4002"):
        disk.check_writable(str(tmp_path / "out.yaml"))
