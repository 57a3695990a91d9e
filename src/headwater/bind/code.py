"""Where does the code of a job lie, ready to run?

What was uploaded is fetched by its hash when a job needs it, unpacked once into a folder of its own, and never
changed there. A pipeline's code is two uploads: the project, and what was read of it (`PROJECT.READ`, two hashes).
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from headwater.bind.uploads import unpack

__all__ = ["Code", "pipeline_code"]

PROJECT, READ = "project", "project.json"


def pipeline_code(project: str, read: str) -> str:
    """Return the code of a pipeline's jobs: the hash of the project and that of what was read of it."""
    return f"{project}.{read}"


class Code:
    """The code that jobs of one site run."""

    def __init__(self, folder: Path, fetch: Callable[[str], Path]) -> None:
        """Take a folder of its own, and how an upload is fetched by its hash."""
        self._folder = folder
        self._fetch = fetch
        self._lock = threading.Lock()

    def of_job(self, code: str, entry: str) -> Path:
        """Return the folder with a job's module; one that is a single file has the name that the job calls it by."""
        module = entry.partition(":")[0]
        return self._made(f"{code}-{module}", lambda folder: unpack(self._fetch(code), folder, module))

    def of_pipeline(self, code: str) -> tuple[Path, Path]:
        """Return a pipeline's project, and the file with what was read of it."""
        project, _, read = code.partition(".")

        def fill(folder: Path) -> None:
            folder.mkdir()
            unpack(self._fetch(project), folder / PROJECT)
            shutil.copyfile(self._fetch(read), folder / READ)

        folder = self._made(code, fill)
        return folder / PROJECT, folder / READ

    def read_of(self, code: str) -> Path:
        """Return the file with what was read of a pipeline's project, which is there once it was asked for."""
        return self._folder / code / READ

    def _made(self, name: str, fill: Callable[[Path], None]) -> Path:
        folder = self._folder / name
        with self._lock:
            if not folder.exists():
                passing = self._folder / f".{name}.new"
                shutil.rmtree(passing, ignore_errors=True)
                self._folder.mkdir(parents=True, exist_ok=True)
                fill(passing)
                os.replace(passing, folder)
        return folder
