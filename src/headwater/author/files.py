"""Which files is a project made of?

Takes a folder with a spark-pipeline.yml, that file itself, or one Python file, and finds the libraries as
`spark-pipelines` finds them. Runs none of them and needs no Spark. The fingerprint covers everything in
the project's folder that a library could read as text, so that what was learned can be kept.

    HW1601  no project at this path, or two
    HW1602  something wrong in spark-pipeline.yml
    HW1603  a library of a kind that is not read
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType

from headwater.errors import Mistake, SpecError
from headwater.model import fields
from headwater.model.fields import Body, Field, Spot, read_fields
from headwater.model.report import Report, describe, quote
from headwater.model.text import parse
from headwater.model.tree import line_of

__all__ = ["Files", "find"]

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
SETTINGS_NAMES = ("headwater.yml", "headwater.yaml")
TEXT = frozenset((".py", ".yml", ".yaml", ".json", ".sql", ".csv", ".txt", ".toml", ".avsc", ".ddl", ".cfg", ".ini"))
LARGEST_BYTES = 4_000_000  # a file above this is data, not part of a project
MOST_FILES = 2_000  # in a project's folder

SPEC = {
    "name": Field("name", fields.name),
    "storage": Field("storage", fields.name),
    "catalog": Field("catalog", fields.name),
    "database": Field("database", fields.name),
    "schema": Field("schema", fields.name),
    "configuration": Field("configuration", fields.mapping),
    "libraries": Field("libraries", fields.entries),
}
LIBRARY = {
    "glob": Field("glob", fields.section({"include": Field("include", fields.name, "fire.py")}), "{include: ..}")
}


@dataclass(frozen=True, slots=True)
class Files:
    """What a project is made of, before any of it runs."""

    folder: str  # absolute
    shown: str  # the folder as the user named it
    name: str  # of the pipeline, as far as Spark's file says
    libraries: tuple[str, ...]  # absolute, in the order in which they run
    settings: str | None  # headwater.yml, absolute
    configuration: Mapping[str, str]  # for Spark's session
    catalog: str | None
    database: str | None
    fingerprint: str

    def show(self, path: str) -> str:
        """Return how messages name a file of the project."""
        try:
            inside = os.path.relpath(os.path.realpath(path), self.folder)
        except ValueError:  # another drive
            return path
        return path if inside.startswith(os.pardir) else os.path.join(self.shown, inside)

    def holds(self, path: str) -> bool:
        """Return whether a file is the project's own, and no installed package's."""
        real = os.path.realpath(path)
        return real.startswith(self.folder + os.sep) and "site-packages" not in Path(real).parts


def find(path: str) -> Files:
    """Return the files of a project.

    Raises:
        SpecError: HW1601 to HW1603, and what is wrong in spark-pipeline.yml as such.
    """
    given = Path(path)
    if given.is_dir():
        return _of_folder(given, _only(given, SPEC_NAMES) or _stop_without_spec(path), path)
    if not given.is_file():
        raise _wrong("HW1601", f"there is no such file or folder; paths start at '{os.getcwd()}'.", path)
    folder = given.parent
    if given.suffix == ".py":
        root = folder.resolve()
        settings = _only(folder, SETTINGS_NAMES)
        return Files(
            str(root),
            os.path.dirname(path),
            given.stem,
            (str(given.resolve()),),
            None if settings is None else str(settings.resolve()),
            MappingProxyType({}),
            None,
            None,
            _fingerprint(root, [each for each in root.iterdir() if each.suffix == ".py"], settings),
        )
    if given.suffix in {".yml", ".yaml"}:
        return _of_folder(folder, given, os.path.dirname(path))
    raise _wrong(
        "HW1601", f"a project is a folder with a {SPEC_NAMES[0]}, that file, or a .py file; found {quote(path)}.", path
    )


def _of_folder(folder: Path, spec: Path, shown: str) -> Files:
    file = os.path.join(shown, spec.name)
    report = Report(file)
    root = parse(spec.read_bytes(), report, with_lines=True).root
    if not isinstance(root, dict):
        raise report.stop("HW1602", f"the file must hold a mapping; found {describe(root)}.", line_of(root) or 1)
    found = read_fields(Spot(report, root, "the file"), SPEC)
    configuration = dict(_strings(report, found.get("configuration", {})))
    real = folder.resolve()
    libraries = tuple(dict.fromkeys(_libraries(report, root, found, real)))
    if report:
        raise report.error()
    settings = _only(folder, SETTINGS_NAMES)
    return Files(
        str(real),
        shown,
        found.get("name") or real.name or "pipeline",
        libraries,
        None if settings is None else str(settings.resolve()),
        MappingProxyType(configuration),
        found.get("catalog"),
        found.get("database", found.get("schema")),
        _fingerprint(real, [*_texts(real), *map(Path, libraries), spec.resolve()], settings),
    )


def _strings(report: Report, given: Body) -> Iterator[tuple[str, str]]:
    for key, value in given.items():
        if isinstance(value, str):
            yield key, value
        else:
            report.add(
                "HW1602",
                f"'configuration': the value of {quote(key)} must be text, as Spark wants it; found {describe(value)}. "
                "Put it in quotes.",
                line_of(given, key),
            )


def _libraries(report: Report, root: Body, found: Mapping[str, object], folder: Path) -> Iterator[str]:
    """Yield the files that 'libraries' names, by the rules of spark-pipelines."""
    entries = found.get("libraries")
    if not isinstance(entries, list) or not entries:
        if root.get("libraries") in (None, []):
            report.add(
                "HW1602",
                "the file names no libraries. Add them, such as 'libraries: [{glob: {include: fire.py}}]'.",
                line_of(root, "libraries"),
            )
        return
    for i, entry in enumerate(entries):
        line = line_of(entries, i)
        if not isinstance(entry, dict):
            report.add(
                "HW1602", f"library {i + 1} must be '{{glob: {{include: PATH}}}}'; found {describe(entry)}.", line
            )
            continue
        read = read_fields(Spot(report, entry, f"library {i + 1}"), LIBRARY)
        include = read.get("glob", {}).get("include")
        if include is None:
            continue
        is_tree = include.endswith("/**")
        if glob.has_magic(include.removesuffix("/**") if is_tree else include):
            report.add(
                "HW1602",
                f"library {i + 1}: Spark takes a file's path or a folder's followed by '/**'; found {quote(include)}.",
                line,
            )
            continue
        try:
            matching = sorted(folder.glob(include + "/*" if is_tree else include))
        except (NotImplementedError, ValueError):
            report.add("HW1602", f"library {i + 1}: the path must lie in the folder; found {quote(include)}.", line)
            continue
        files = [each for each in matching if each.is_file() and "__pycache__" not in each.parts]
        if not files:
            report.add("HW1602", f"library {i + 1}: {quote(include)} matches no file in '{folder}'.", line)
        for each in files:
            if each.suffix == ".py":
                yield str(each.resolve())
            else:
                what = "SQL files are" if each.suffix == ".sql" else f"files that end in {quote(each.suffix)} are"
                report.add(
                    "HW1603",
                    f"library {i + 1}: {what} not read; found {quote(each.name)}. Write its statements in a .py file "
                    "with spark.sql, inside functions marked as flows.",
                    line,
                )


def _only(folder: Path, names: tuple[str, ...]) -> Path | None:
    """Return the one file of these names that a folder holds, or None."""
    there = [folder / name for name in names if (folder / name).is_file()]
    if len(there) > 1:
        raise _wrong("HW1601", f"the folder holds both '{names[0]}' and '{names[1]}'. Remove one.", str(folder))
    return there[0] if there else None


def _stop_without_spec(path: str) -> Path:
    raise _wrong(
        "HW1601",
        f"the folder holds no {SPEC_NAMES[0]}, which names its libraries. Add one, or name a .py file.",
        path,
    )


def _wrong(code: str, text: str, file: str) -> SpecError:
    return SpecError(Mistake(code, text, file))


def _texts(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, and below it, that a library could read as text."""
    count = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__")) and not os.path.exists(os.path.join(here, name, "pyvenv.cfg"))
        )
        for name in sorted(files):
            if Path(name).suffix.lower() in TEXT and not name.startswith("."):
                count += 1
                if count > MOST_FILES:
                    raise _wrong(
                        "HW1601",
                        f"the project's folder holds more than {MOST_FILES} text files. Give it a folder of its own.",
                        str(folder),
                    )
                yield Path(here, name)


def _fingerprint(folder: Path, files: list[Path], settings: Path | None) -> str:
    """Return a digest of names and contents, free of where the folder lies, and of the versions that read them."""
    digest = hashlib.sha256()
    for package in ("headwater", "pyspark"):
        digest.update(f"{package} {_version(package)}\n".encode())
    digest.update(f"python {'.'.join(platform.python_version_tuple()[:2])}\n".encode())
    every = {each.resolve() for each in files} | ({settings.resolve()} if settings is not None else set())
    for each in sorted(every):
        status = each.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_BYTES:
            content = hashlib.sha256(each.read_bytes()).hexdigest()
            digest.update(f"{os.path.relpath(each, folder)} {content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
