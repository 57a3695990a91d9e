"""A project's files are found as spark-pipelines finds them, and what is wrong is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from headwater.author.files import find
from headwater.author.names import Names, parts, view_of
from headwater.errors import SpecError

Write = Callable[[Mapping[str, str]], str]

SPEC = "name: fire\nstorage: file:///x\nlibraries: [{glob: {include: fire.py}}]\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(files: Mapping[str, str]) -> str:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return str(tmp_path)

    return written


def told(path: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        find(path)
    return [f"{each.code} {Path(each.file or '').name}:{each.line}: {each.text}" for each in caught.value.mistakes]


def test_a_folder_its_file_and_a_single_library_are_projects(write: Write, tmp_path: Path) -> None:
    folder = write({"spark-pipeline.yml": SPEC, "fire.py": "", "headwater.yml": ""})
    for path in (folder, f"{folder}/spark-pipeline.yml"):
        files = find(path)
        assert files.name == "fire"
        assert files.libraries == (str(tmp_path / "fire.py"),)
        assert files.settings == str(tmp_path / "headwater.yml")
        assert files.show(files.libraries[0]) == f"{folder}/fire.py"
    alone = find(f"{folder}/fire.py")
    assert (alone.name, alone.libraries) == ("fire", (str(tmp_path / "fire.py"),))


def test_files_are_named_as_the_user_named_the_project(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write({"spark-pipeline.yml": SPEC, "fire.py": ""})
    monkeypatch.chdir(tmp_path)
    assert find("fire.py").show(str(tmp_path / "fire.py")) == "fire.py"
    assert find("spark-pipeline.yml").show(str(tmp_path / "fire.py")) == "fire.py"
    monkeypatch.chdir(tmp_path.parent)
    assert find(tmp_path.name).show(str(tmp_path / "fire.py")) == f"{tmp_path.name}/fire.py"


def test_a_folder_of_libraries_is_read_in_the_order_of_names(write: Write, tmp_path: Path) -> None:
    spec = SPEC.replace("fire.py", "lib/**")
    folder = write({"spark-pipeline.yml": spec, "lib/b.py": "", "lib/a/c.py": "", "lib/__pycache__/x.py": ""})
    found = [Path(each).relative_to(tmp_path).as_posix() for each in find(folder).libraries]
    assert found == ["lib/a/c.py", "lib/b.py"]


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("[]\n", "HW1602 spark-pipeline.yml:1: the file must hold a mapping; found a list of 0 entries."),
        (
            "name: x\n",
            "HW1602 spark-pipeline.yml:1: the file names no libraries. Add them, such as "
            "'libraries: [{glob: {include: fire.py}}]'.",
        ),
        (
            "name: x\nlibrarys: []\nlibraries: [{glob: {include: fire.py}}]\n",
            "HW1003 spark-pipeline.yml:2: the file has the unknown key 'librarys'; allowed: name, storage, catalog, "
            "database, schema, configuration, libraries. Did you mean 'libraries'?",
        ),
        (
            SPEC + "configuration: {a: 1}\n",
            "HW1602 spark-pipeline.yml:4: 'configuration': the value of 'a' must be text, as Spark wants it; found the "
            "number 1. Put it in quotes.",
        ),
        (
            SPEC.replace("fire.py", "'*.py'"),
            "HW1602 spark-pipeline.yml:3: library 1: Spark takes a file's path or a folder's followed by '/**'; found "
            "'*.py'.",
        ),
        (SPEC.replace("{glob: {include: fire.py}}", "fire.py"), "HW1602"),
        (SPEC.replace("fire.py", "nope.py"), "HW1602"),
        (SPEC.replace("fire.py", "/fire.py"), "HW1602"),
        (SPEC.replace("include", "includes"), "HW1003"),
    ],
)
def test_a_mistake_in_spark_pipeline_yml_is_told(write: Write, spec: str, wanted: str) -> None:
    mistakes = told(write({"spark-pipeline.yml": spec, "fire.py": ""}))
    assert mistakes[0] == wanted or (len(wanted) == 6 and mistakes[0].startswith(wanted))


def test_sql_files_are_refused_with_what_to_write_instead(write: Write) -> None:
    folder = write({"spark-pipeline.yml": SPEC.replace("fire.py", "fire.sql"), "fire.sql": "SELECT 1"})
    (mistake,) = told(folder)
    assert mistake.startswith("HW1603 spark-pipeline.yml:3: library 1: SQL files are not read; found 'fire.sql'.")
    assert "spark.sql" in mistake


def test_what_is_no_project_is_told(write: Write, tmp_path: Path) -> None:
    assert told(str(tmp_path / "nope"))[0].startswith("HW1601 nope:None: there is no such file or folder")
    assert "holds no spark-pipeline.yml" in told(str(tmp_path))[0]
    folder = write({"spark-pipeline.yml": SPEC, "fire.py": ""})
    (tmp_path / "spark-pipeline.yaml").write_text(SPEC)
    assert "holds both" in told(folder)[0]
    (tmp_path / "fire.txt").write_text("")
    assert told(str(tmp_path / "fire.txt"))[0].startswith("HW1601 fire.txt:None: a project is a folder")


def test_a_name_is_found_by_every_spelling_of_it() -> None:
    names = Names(None, "silver", ("hot", "gold.cold", "`odd name`"))
    for spelling in ("hot", "HOT", "silver.hot", "`Silver`.`hot`", "spark_catalog.silver.hot"):
        assert names.find(spelling) == "hot"
    assert names.find("gold.hot") is None
    assert names.find("Gold.Cold") == "gold.cold"
    assert names.find("`odd name`") == "`odd name`"
    assert parts("a.`b.c`") == ("a", "b.c")
    assert view_of("gold.cold") == "`gold.cold`"
