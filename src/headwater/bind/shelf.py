"""Where does an agent keep what it was told, so that nothing that dies takes it along?

A `FileShelf` is a folder with one JSON file for each job. A file is written beside its place, brought to the
disk and then renamed into its place: whoever dies in between leaves the old file or the new one, never half of
one. A file that cannot be understood is set aside and told; the other jobs go on. One process uses a folder at
a time, so what was read once is remembered.

    HW4805   a file that is no record; it is set aside
    HW4806   the file system refuses
    HW4807   a name that is no name of a job
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from headwater.errors import BindError
from headwater.plan.jobs import JOB_NAME
from headwater.ports import Record
from headwater.run.agent import record_from, record_object

__all__ = ["FileShelf"]

ENDING = ".json"
UNFINISHED = "."  # what the names of files begin with that are being written; jobs' do not
ASIDE = "damaged"


class FileShelf:
    """The records of one agent, as files."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda _: None) -> None:
        """Read the folder, or make it.

        Args:
            folder: Of this agent alone.
            say: Is told of every file that is set aside.

        Raises:
            BindError: HW4806.
        """
        self._folder = folder
        self._say = say
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        self.damaged: list[Path] = []  # where files lie that were set aside
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._read()
        except OSError as error:
            raise _refused(folder, "be read", error) from error

    def get(self, name: str) -> Record | None:
        """Return the record of a job."""
        with self._lock:
            return self._records.get(name)

    def all(self) -> tuple[Record, ...]:
        """Return all records, by name."""
        with self._lock:
            return tuple(self._records[name] for name in sorted(self._records))

    def put(self, record: Record) -> None:
        """Keep a record in the place of the one before.

        Raises:
            BindError: HW4806 or HW4807; the same call again finishes it.
        """
        path = self._path(record.job.name)
        text = json.dumps(record_object(record), indent=1, sort_keys=True).encode()
        with self._lock:
            try:
                self._write(path, text)
            except OSError as error:
                raise _refused(path, "be written", error) from error
            self._records[record.job.name] = record

    def remove(self, name: str) -> None:
        """Forget a job.

        Raises:
            BindError: HW4806 or HW4807; the same call again finishes it.
        """
        path = self._path(name)
        with self._lock:
            try:
                path.unlink(missing_ok=True)
                _to_disk(self._folder)
            except OSError as error:
                raise _refused(path, "be removed", error) from error
            self._records.pop(name, None)

    def _path(self, name: str) -> Path:
        if not JOB_NAME.fullmatch(name):
            raise BindError(
                f"HW4807 {name[:200]!r} cannot be the name of a job: it is made of at most 120 letters, digits, '.', "
                "'_' and '-', and begins with a letter or a digit. Choose another one."
            )
        return self._folder / f"{name}{ENDING}"

    def _write(self, path: Path, text: bytes) -> None:
        handle, temporary = tempfile.mkstemp(prefix=UNFINISHED, dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                Path(temporary).unlink(missing_ok=True)
            raise
        _to_disk(self._folder)

    def _read(self) -> None:
        for path in sorted(self._folder.iterdir()):
            if not path.is_file():
                continue
            if path.name.startswith(UNFINISHED):
                path.unlink()  # whoever wrote it died before it counted
            elif path.name.endswith(ENDING):
                try:
                    record = _record(path)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                    self._set_aside(path, error)
                else:
                    self._records[record.job.name] = record

    def _set_aside(self, path: Path, error: Exception) -> None:
        aside = self._folder / ASIDE
        aside.mkdir(exist_ok=True)
        place = aside / f"{path.name}.{time.time_ns()}"
        path.replace(place)
        self.damaged.append(place)
        self._say(
            f"HW4805 '{path}' is no record of a job ({type(error).__name__}: {str(error)[:200]}), and this site holds "
            f"the job no more. The file is kept at '{place}'; the job's checkpoint is left as it is."
        )


def _record(path: Path) -> Record:
    record = record_from(json.loads(path.read_bytes()))
    if path.name != f"{record.job.name}{ENDING}":
        raise ValueError(f"it is of job {record.job.name!r}")
    for what, kind in (("epoch", int), ("is_run", bool), ("positions", dict), ("seat", dict), ("brokers", dict)):
        if not isinstance(getattr(record, what), kind):
            raise ValueError(f"'{what}' is {getattr(record, what)!r}")
    return record


def _to_disk(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refused(path: Path, what: str, error: OSError) -> BindError:
    return BindError(
        f"HW4806 '{path}' cannot {what}: {error.strerror or error}. The agent keeps there what its site runs: make "
        "room or correct the rights, and it goes on."
    )
