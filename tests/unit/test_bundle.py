"""Is an upload the same for the same content, complete, and nothing but the project?"""

from __future__ import annotations

import io
import os
import shutil
import stat
import time
import zipfile
from pathlib import Path

import pytest

from headwater.author.files import find
from headwater.errors import SpecError
from headwater.serve import bundle
from headwater.serve.bundle import bundle_folder, bundle_project, single_file

READINGS = Path(__file__).parents[2] / "examples" / "readings"
SPEC = "name: town\nlibraries:\n  - glob: {include: 'flows/**'}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "town"
    for name, text in {
        "spark-pipeline.yml": SPEC,
        "flows/town.py": "x = 1\n",
        "tables/areas.csv": "a,b\n",
        "schema.json": "{}",
        "models/weights.bin": "\0\1",
    }.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def names(content: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(content)).namelist()


def test_the_same_content_gives_the_same_bytes_wherever_and_whenever_it_is(project: Path, tmp_path: Path) -> None:
    first = bundle_project(str(project))
    elsewhere = tmp_path / "another" / "place"
    shutil.copytree(project, elsewhere)
    for file in elsewhere.rglob("*"):
        os.utime(file, (time.time() + 1e6,) * 2)
        file.chmod(stat.S_IRWXU)
    second = bundle_project(str(elsewhere))
    assert second.content == first.content
    assert second.hash == first.hash
    assert bundle_project(str(project / "spark-pipeline.yml")).hash == first.hash
    (elsewhere / "flows/town.py").write_text("x = 2\n")
    assert bundle_project(str(elsewhere)).hash != first.hash


def test_everything_that_code_may_read_goes_along_and_nothing_else(project: Path) -> None:
    (project / ".secret").write_text("no")
    for hidden in (".venv/lib.py", "__pycache__/town.pyc", "env/pyvenv.cfg", "env/lib.py", "checkpoints/1"):
        file = project / hidden
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("no")
    for inside in ("offsets", "commits"):  # what a checkpoint of Spark looks like, whatever its folder is called
        (project / "kept" / inside).mkdir(parents=True)
        (project / "kept" / inside / "0").write_text("no")
    assert names(bundle_project(str(project)).content) == [
        "flows/town.py",
        "models/weights.bin",
        "schema.json",
        "spark-pipeline.yml",
        "tables/areas.csv",
    ]


def test_what_only_describes_the_project_changes_no_hash(project: Path) -> None:
    before = bundle_project(str(project)).hash
    sites = project / "sites.yaml"
    for file in (project / "headwater.yml", project / "README.md", sites):
        file.write_text("another word")
    assert bundle_project(str(project), [str(sites)]).hash == before
    assert bundle_project(str(project)).hash != before  # a file that nobody said is the sites file is the project's


def test_what_is_uploaded_is_a_project_again(project: Path, tmp_path: Path) -> None:
    for number, path in enumerate([str(project), str(READINGS), str(READINGS / "readings.py")]):
        target = tmp_path / f"unpacked {number}"
        zipfile.ZipFile(io.BytesIO(bundle_project(path).content)).extractall(target)
        there, here = find(str(target)), find(path)
        assert there.name == here.name
        assert [os.path.relpath(one, there.folder) for one in there.libraries] == [
            os.path.relpath(one, here.folder) for one in here.libraries
        ]


def test_a_description_of_another_name_becomes_the_project_of_the_zip(project: Path, tmp_path: Path) -> None:
    (project / "flows" / "other.py").write_text("y = 1\n")
    (project / "night.yml").write_text("name: night\nlibraries:\n  - glob: {include: flows/other.py}\n")
    zipfile.ZipFile(io.BytesIO(bundle_project(str(project / "night.yml")).content)).extractall(tmp_path / "night")
    assert find(str(tmp_path / "night")).name == "night"


def test_a_link_out_of_the_project_is_refused_and_one_inside_is_followed(project: Path, tmp_path: Path) -> None:
    (project / "alias.py").symlink_to(project / "flows" / "town.py")
    packed = zipfile.ZipFile(io.BytesIO(bundle_project(str(project)).content))
    assert packed.read("alias.py") == b"x = 1\n"
    outside = tmp_path / "outside.txt"
    outside.write_text("a secret")
    (project / "stolen.txt").symlink_to(outside)
    with pytest.raises(SpecError, match=r"HW1336 .*'stolen.txt' is a link to a folder or out of the project"):
        bundle_project(str(project))
    (project / "stolen.txt").unlink()
    (project / "more").symlink_to(tmp_path)
    with pytest.raises(SpecError, match=r"HW1336 .*'more'"):
        bundle_project(str(project))


def test_what_is_too_large_is_refused_with_the_largest_files(project: Path, monkeypatch) -> None:
    monkeypatch.setattr(bundle, "MOST_BYTES", 2_000)
    (project / "data.csv").write_bytes(b"x" * 3_000)
    with pytest.raises(SpecError, match=r"HW1336 .*The largest: 'data.csv' \(3 kB\)"):
        bundle_project(str(project))
    with pytest.raises(SpecError, match=r"HW1336 .*data.csv: the file has 3 kB"):
        single_file(str(project / "data.csv"))
    monkeypatch.setattr(bundle, "MOST_FILES", 3)
    with pytest.raises(SpecError, match=r"HW1336 .*has 6 files; at most 3"):
        bundle_project(str(project))


def test_a_folder_of_modules_and_a_single_file_are_uploads_too(project: Path) -> None:
    assert names(bundle_folder(str(project / "flows")).content) == ["town.py"]
    one = single_file(str(project / "flows" / "town.py"))
    assert (one.name, one.content) == ("town.py", b"x = 1\n")
