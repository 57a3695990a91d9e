"""What of a project goes to the sites?

Makes one zip of a project's files, with the same bytes for the same content: nothing in it tells when, where or
by whom it was made, and nothing is compressed, because compressors differ between machines. So its hash changes
only when a file does, and a job is started again for new code and for nothing else. What describes a project to
Headwater (`headwater.yml`, sites, placements) stays here: it travels in other ways, and editing it is no new code.

    HW1336   a project that is too large to be uploaded, or that links to files elsewhere
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.author.files import find
from headwater.errors import Mistake, SpecError
from headwater.model.report import quote
from headwater.model.units import show

__all__ = ["MOST_BYTES", "MOST_FILES", "Bundle", "bundle_folder", "bundle_project", "single_file"]

MOST_BYTES = 64 * 1024 * 1024  # of an upload; the controller takes no more
MOST_FILES = 10_000  # the same
SPEC = "spark-pipeline.yml"
SPECS = frozenset({SPEC, "spark-pipeline.yaml"})
DESCRIBING = frozenset({"headwater.yml", "headwater.yaml"})
LEFT_OUT_FOLDERS = frozenset(
    {"__pycache__", "node_modules", "site-packages", "spark-warehouse", "metastore_db", "checkpoint", "checkpoints"}
)
LEFT_OUT_SUFFIXES = frozenset({".pyc", ".pyo", ".md", ".rst", ".log", ".profile", ".tmp", ".swp"})
CHECKPOINT = frozenset({"commits", "offsets"})  # folders that lie in every checkpoint of Spark
FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can tell
PLAIN_FILE = (stat.S_IFREG | 0o644) << 16
LARGEST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Bundle:
    """What is uploaded."""

    name: str
    content: bytes
    files: tuple[str, ...]  # in the zip; of a single file: none

    @property
    def hash(self) -> str:
        """Return the name by which the controller knows the content: sha256 as hex."""
        return hashlib.sha256(self.content).hexdigest()


def bundle_project(path: str, leave_out: Collection[str] = ()) -> Bundle:
    """Return a project as one zip that is a project itself: a folder with a spark-pipeline.yml.

    Args:
        path: As `author.files.find` takes it; of a single .py file, the .py files beside it come along.
        leave_out: Files that describe the project to Headwater and are no part of it.

    Raises:
        SpecError: no project; HW1336.
    """
    found = find(path)
    folder, given = Path(found.folder), Path(path)
    outside = [one for one in found.libraries if not Path(one).is_relative_to(folder)]
    if outside:
        text = f"the library {quote(outside[0])} lies outside of the project's folder. Put it inside."
        raise SpecError(Mistake("HW1336", text, path))
    without = {os.path.realpath(one) for one in leave_out}
    if given.suffix == ".py":
        spec = f"name: {json.dumps(found.name)}\nlibraries:\n  - glob: {{include: {json.dumps(given.name)}}}\n"
        files = {one.name: one for one in folder.glob("*.py") if not one.name.startswith(".")}
        return _packed(found.name, files, {SPEC: spec.encode()}, path)
    files = {
        name: file
        for name, file in _files(folder, path)
        if name not in DESCRIBING and os.path.realpath(file) not in without
    }
    if given.is_file() and given.name not in SPECS:  # a description of another name: there it gets the usual one
        files = {name: file for name, file in files.items() if name not in {*SPECS, given.name}}
        return _packed(found.name, files, {SPEC: given.read_bytes()}, path)
    return _packed(found.name, files, {}, path)


def bundle_folder(path: str) -> Bundle:
    """Return a folder of Python modules as a zip.

    Raises:
        SpecError: HW1336.
    """
    return _packed(Path(path).resolve().name, dict(_files(Path(path).resolve(), path)), {}, path)


def single_file(path: str) -> Bundle:
    """Return a .py or a .zip of the user's as it is.

    Raises:
        SpecError: HW1336, it is too large.
    """
    file = Path(path)
    size_bytes = file.stat().st_size
    if size_bytes > MOST_BYTES:
        text = f"the file has {show(size_bytes, 'size')}; at most {show(MOST_BYTES, 'size')} are uploaded."
        raise SpecError(Mistake("HW1336", text, path))
    return Bundle(file.name, file.read_bytes(), ())


def _files(folder: Path, shown: str) -> Iterator[tuple[str, Path]]:
    """Yield the files in a folder that a job may need, with their names in the zip."""
    for here, folders, names in os.walk(folder):
        inside = Path(here)
        kept = [one for one in sorted(folders) if _is_wanted_folder(inside / one)]
        linked = next((one for one in kept if (inside / one).is_symlink()), None)
        if linked is not None:
            raise _linked(shown, (inside / linked).relative_to(folder))
        folders[:] = kept
        for one in sorted(names):
            file = inside / one
            if one.startswith(".") or file.suffix.lower() in LEFT_OUT_SUFFIXES:
                continue
            if file.is_symlink() and not file.resolve().is_relative_to(folder):
                raise _linked(shown, file.relative_to(folder))
            if file.is_file():
                yield file.relative_to(folder).as_posix(), file


def _is_wanted_folder(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in LEFT_OUT_FOLDERS or folder.name.endswith(".egg-info"):
        return False
    inside = set(os.listdir(folder)) if os.access(folder, os.R_OK | os.X_OK) else set()
    return "pyvenv.cfg" not in inside and not inside >= CHECKPOINT


def _linked(shown: str, inside: Path) -> SpecError:
    text = (
        f"{quote(str(inside))} is a link to a folder or out of the project, and only the project's own files are "
        "uploaded. Put a copy in its place, or begin its name with a dot to leave it out."
    )
    return SpecError(Mistake("HW1336", text, shown))


def _packed(name: str, files: dict[str, Path], more: dict[str, bytes], shown: str) -> Bundle:
    """Return the zip, or say what is too large."""
    if len(files) + len(more) > MOST_FILES:
        text = f"the project has {len(files)} files; at most {MOST_FILES} are uploaded. Give it a folder of its own."
        raise SpecError(Mistake("HW1336", text, shown))
    sizes = {one: file.stat().st_size for one, file in files.items()}
    if sum(sizes.values()) > MOST_BYTES:
        largest = sorted(sizes, key=lambda one: -sizes[one])[:LARGEST_NAMED]
        named = ", ".join(f"{quote(one)} ({show(sizes[one], 'size')})" for one in largest)
        text = (
            f"the project's files have {show(sum(sizes.values()), 'size')}; at most {show(MOST_BYTES, 'size')} are "
            f"uploaded. The largest: {named}. Move data out of the folder, or begin its name with a dot."
        )
        raise SpecError(Mistake("HW1336", text, shown))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for one in sorted({*files, *more}):
            info = zipfile.ZipInfo(one, FIRST_DATE)
            info.create_system, info.external_attr = 3, PLAIN_FILE  # the same on every kind of machine
            archive.writestr(info, more[one] if one in more else files[one].read_bytes())
    content = packed.getvalue()
    if len(content) > MOST_BYTES:  # the names and a little for each file come on top
        text = f"the zip has {show(len(content), 'size')}; at most {show(MOST_BYTES, 'size')} are uploaded."
        raise SpecError(Mistake("HW1336", text, shown))
    return Bundle(f"{name}.zip", content, tuple(sorted({*files, *more})))
