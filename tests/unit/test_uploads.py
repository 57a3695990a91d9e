"""What is taken as an upload and what is refused, and that nothing ever lies outside of its folder."""

from __future__ import annotations

import hashlib
import io
import stat
import struct
import unicodedata
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.bind import uploads as module
from headwater.bind import zips
from headwater.bind.uploads import LARGEST_BYTES, Uploads, check, unpack
from headwater.errors import BindError, SpecError

CODE = b"def forward(rows):\n    return rows\n"
Entry = str | zipfile.ZipInfo


def zipped(*entries: tuple[Entry, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return out.getvalue()


def special(name: str, kind: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (kind | 0o777) << 16
    return info


@pytest.fixture
def uploads(tmp_path: Path) -> Uploads:
    return Uploads(tmp_path / "uploads")


def laid_out(content: bytes, tmp_path: Path) -> Path:
    """Unpack without a check before it, as an agent does with what came over the network."""
    file, folder = tmp_path / "file", tmp_path / "code" / "folder"
    folder.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    unpack(file, folder)
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def test_an_upload_lies_under_the_hash_of_its_content(uploads: Uploads) -> None:
    kept = uploads.take([CODE[:10], CODE[10:]])
    assert (kept.hash, kept.size_bytes) == (hashlib.sha256(CODE).hexdigest(), len(CODE))
    path = uploads.path(kept.hash)
    assert path is not None
    assert path.read_bytes() == CODE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert uploads.take([CODE]) == kept
    assert [one.name for one in uploads.folder.iterdir()] == [kept.hash]


@pytest.mark.parametrize("name", ["", "..", "../operator.token", "ab" * 31, "AB" * 32, "ab" * 32])
def test_only_hashes_of_uploads_are_found(uploads: Uploads, name: str) -> None:
    assert uploads.path(name) is None


def test_what_is_too_large_is_cut_off_and_leaves_nothing(uploads: Uploads) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 2**20
            yield b"#" * 2**20

    with pytest.raises(SpecError, match=r"HW1220 .*64 MiB"):
        uploads.take(endless())
    assert taken <= LARGEST_BYTES + 2**20
    assert list(uploads.folder.iterdir()) == []


def test_one_that_breaks_off_leaves_nothing_and_a_killed_controllers_rest_is_removed(uploads: Uploads) -> None:
    def broken() -> Iterator[bytes]:
        yield CODE
        raise ConnectionError

    with pytest.raises(ConnectionError):
        uploads.take(broken())
    assert list(uploads.folder.iterdir()) == []
    (uploads.folder / ".part-left").write_bytes(b"half")
    Uploads(uploads.folder)
    assert list(uploads.folder.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"  \n", b"\xff\xfe\x00", b"a = 1\x00", b"\x7fELF\x02\x01\x01\x00"])
def test_what_is_neither_python_nor_a_zip_is_refused(uploads: Uploads, content: bytes) -> None:
    with pytest.raises(SpecError, match="HW1221"):
        uploads.take([content])
    assert list(uploads.folder.iterdir()) == []


def test_all_uploads_together_are_bounded(uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_TOTAL_BYTES", LARGEST_BYTES + len(CODE))
    uploads.take([CODE])
    uploads.take([CODE + b"#"])
    with pytest.raises(BindError, match="HW4224"):
        uploads.take([CODE])


def test_a_folder_that_refuses_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BindError, match="HW4223"):
        Uploads(tmp_path / "file")


def test_a_zip_is_laid_out_as_it_is(tmp_path: Path) -> None:
    content = zipped(
        ("a.py", CODE), ("package/", b""), ("package/inner/b.py", CODE * 1000), ("data.bin", bytes(range(256)))
    )
    folder = laid_out(content, tmp_path)
    assert everything(folder) == {
        "a.py": CODE,
        "package/inner/b.py": CODE * 1000,
        "data.bin": bytes(range(256)),
    }


def test_nothing_that_a_zip_holds_can_be_executed_or_is_setuid(tmp_path: Path) -> None:
    info = special("a.py", stat.S_IFREG | stat.S_ISUID)
    folder = laid_out(zipped((info, CODE)), tmp_path)
    assert stat.S_IMODE((folder / "a.py").stat().st_mode) & 0o7133 == 0


def test_a_python_file_is_laid_out_under_the_name_that_its_job_has_for_it(tmp_path: Path) -> None:
    file = tmp_path / "upload"
    file.write_bytes(CODE)
    unpack(file, tmp_path / "one", "filters")
    unpack(file, tmp_path / "two", "package.filters")
    assert everything(tmp_path / "one") == {"filters.py": CODE}
    assert everything(tmp_path / "two") == {"package/filters.py": CODE}
    with pytest.raises(SpecError, match="HW1221"):
        unpack(file, tmp_path / "three", "../filters")
    assert not (tmp_path / "three").exists()


def test_unpacking_twice_is_unpacking_once(tmp_path: Path) -> None:
    folder = laid_out(zipped(("a.py", CODE)), tmp_path)
    (folder / "mark").write_bytes(b"")
    assert laid_out(zipped(("a.py", CODE)), tmp_path) == folder
    assert (folder / "mark").exists()
    assert [one.name for one in folder.parent.iterdir()] == ["folder"]


EVIL = {
    "up": ("../evil.py",),
    "up inside": ("a/../../evil.py",),
    "up, though it stays": ("a/../evil.py",),
    "absolute": ("/tmp/evil.py",),
    "drive": ("C:/evil.py",),
    "drive, relative": ("C:evil.py",),
    "backslash": ("..\\evil.py",),
    "share": ("\\\\server\\evil.py",),
    "dot": ("./evil.py",),
    "empty folder": ("a//evil.py",),
    "device": ("a/NUL",),
    "device with ending": ("con.py",),
    "device with blank": ("aux .py",),
    "port": ("COM1.txt",),
    "stream": ("a.py:hidden",),
    "control": ("a\nb.py",),
    "ends in dot": ("evil.",),
    "ends in blank": ("evil ",),
    "twice": ("a.py", "a.py"),
    "other case": ("a.py", "A.py"),
    "other case of a folder": ("lib/a.py", "LIB/A.PY"),
    "sharp s": ("straße.py", "STRASSE.py"),
    "other form": (unicodedata.normalize("NFC", "é.py"), unicodedata.normalize("NFD", "é.py")),
    "file and folder": ("a", "a/b.py"),
    "folder and file": ("a/b.py", "a"),
    "long name": ("x" * 256,),
    "long path": ("/".join(["x" * 100] * 11),),
    "deep": ("/".join("x" * 41),),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", EVIL.values(), ids=EVIL.keys())
def test_entries_that_leave_their_folder_or_collide_are_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    content = zipped(("good.py", CODE), *((name, CODE) for name in names))
    before = set(tmp_path.parent.rglob("*evil*"))
    with pytest.raises(SpecError, match="HW1222"):
        laid_out(content, tmp_path)
    assert list((tmp_path / "code").iterdir()) == []
    assert set(tmp_path.parent.rglob("*evil*")) == before
    with pytest.raises(SpecError, match="HW1222"):
        Uploads(tmp_path / "uploads").take([content])


@pytest.mark.parametrize(
    ("kind", "said"),
    [(stat.S_IFLNK, "is a link"), (stat.S_IFIFO, "is neither a file"), (stat.S_IFCHR, "is neither a file")],
)
def test_links_and_devices_are_refused(kind: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=f"HW1222 .*'evil' {said}"):
        laid_out(zipped((special("evil", kind), b"/etc/passwd")), tmp_path)


def test_a_link_and_then_a_file_behind_it_writes_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    content = zipped((special("door", stat.S_IFLNK), str(outside).encode()), ("door/evil.py", CODE))
    with pytest.raises(SpecError, match="HW1222"):
        laid_out(content, tmp_path)
    assert list(outside.iterdir()) == []


def test_a_bomb_is_refused_before_it_goes_off(uploads: Uploads) -> None:
    bomb = zipped(("zeros", bytes(40 * 2**20)))
    assert len(bomb) < 50_000
    with pytest.raises(SpecError, match=r"HW1222 .*from \d+, which no program does"):
        uploads.take([bomb])
    big = zipped(*((f"{number}.bin", bytes(2**20)) for number in range(257)))
    with pytest.raises(SpecError, match=r"HW1222 .*257 MiB; at most 256 MiB"):
        uploads.take([big])


def test_a_zip_that_lies_about_its_sizes_is_refused(tmp_path: Path) -> None:
    content = bytearray(zipped(("a.bin", b"x" * 500_000)))
    at = content.rfind(b"PK\x01\x02")
    for size in (10, 400_000, 600_000):
        content[at + 24 : at + 28] = struct.pack("<I", size)
        with pytest.raises(SpecError, match="HW1222"):
            laid_out(bytes(content), tmp_path)


def test_too_many_entries_are_refused_without_reading_them(uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    content = zipped(*((f"{number}", b"") for number in range(zips.MOST_FILES + 1)), method=zipfile.ZIP_STORED)
    with pytest.raises(SpecError, match=r"HW1222 .*10001 entries; at most 10000"):
        uploads.take([content])
    monkeypatch.setattr(zips, "MOST_DIRECTORY_BYTES", 100_000)
    with pytest.raises(SpecError, match=r"HW1222 .*lists more entries"):
        uploads.take([content])


def test_broken_encrypted_and_strangely_packed_zips_are_refused(uploads: Uploads) -> None:
    whole = zipped(("a.py", CODE * 100))
    encrypted = bytearray(whole)
    encrypted[whole.rfind(b"PK\x01\x02") + 8] |= 1
    spoiled = bytearray(whole)
    spoiled[60] ^= 0xFF
    for content in (whole[:-10], whole[:50], b"PK\x03\x04 and so on", bytes(encrypted), bytes(spoiled)):
        with pytest.raises(SpecError, match="HW1222"):
            uploads.take([content])
    with pytest.raises(SpecError, match=r"HW1222 .*another method"):
        uploads.take([zipped(("a.py", CODE), method=zipfile.ZIP_LZMA)])


@given(st.binary(max_size=300))
def test_no_bytes_at_all_can_do_more_than_be_refused(tmp_path_factory: pytest.TempPathFactory, tail: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    whole = zipped(("a.py", CODE))
    for content in (tail, b"PK\x03\x04" + tail, whole + tail, whole[: len(tail)] + tail + whole[len(tail) :]):
        (folder / "file").write_bytes(content)
        with suppress(SpecError):
            check(folder / "file")
