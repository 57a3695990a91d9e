"""Which function is a job, and what does it make of its records?

A job by itself is a function from a DataFrame to a DataFrame, named 'module:function', in a Python file or in a
folder of them. It gets the records of its topic as Spark's Kafka source gives them and returns what Spark's Kafka
sink takes: `value`, and `key` and `headers` if it likes. Its code runs in the surroundings of a project's: modules
of two jobs may have the same names, functions travel to Spark's Python processes whole.

    HW1650   the entry cannot be loaded
    HW1651   what the function returns cannot be written
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headwater.author.failures import failure, said
from headwater.author.files import Files
from headwater.author.surroundings import Modules, running
from headwater.author.traits import held
from headwater.errors import Mistake, SpecError
from headwater.model.project import Trait

__all__ = ["Entry", "load_entry", "traits_of"]

_TAKEN = frozenset({"key", "value", "headers", "partition"})  # columns that a Kafka sink takes, but for the topic


@dataclass(frozen=True)
class Entry:
    """A job's function, ready to be called."""

    name: str  # 'module:function'
    files: Files
    modules: Modules
    function: Callable[..., Any]

    def rows(self, records: DataFrame) -> DataFrame:
        """Return what the function makes of the records, as a Kafka sink takes it.

        Raises:
            SpecError: HW1604, it fails; HW1651, it returns something else.
        """
        with running(self.files, self.modules):
            try:
                found = self.function(records)
            except (Exception, SystemExit) as error:
                raise SpecError(
                    failure(error, f"job function '{self.name}'", self.files, None, self.files.folder)
                ) from error
        return self._checked(found)

    def _checked(self, found: object) -> DataFrame:
        if not isinstance(found, DataFrame) or not found.isStreaming:
            what = "a DataFrame that is no stream" if isinstance(found, DataFrame) else f"a {type(found).__name__}"
            raise SpecError(
                Mistake(
                    "HW1651", f"job function '{self.name}' returns {what}; it must return a stream made of its input"
                )
            )
        if "value" not in found.columns:
            raise SpecError(
                Mistake(
                    "HW1651",
                    f"job function '{self.name}' returns the columns {', '.join(found.columns)}; a topic takes "
                    "'value', and 'key' and 'headers' if there are any. Make one of your columns with "
                    'F.to_json(F.struct("*")).alias("value").',
                )
            )
        kept = [name for name in found.columns if name in _TAKEN]
        return found.select(*kept)


def load_entry(folder: Path, entry: str) -> Entry:
    """Return the function of a job.

    Args:
        folder: Where its code lies.
        entry: 'module:function'.

    Raises:
        SpecError: HW1650 or HW1604.
    """
    module_name, _, function_name = entry.partition(":")
    home = os.path.realpath(folder)
    files = Files(home, "job", entry, (), None, {}, None, None, "")
    modules: Modules = {}
    with running(files, modules):
        try:
            module = importlib.import_module(module_name)
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and error.name == module_name:
                there = sorted(one.stem for one in Path(home).glob("*.py"))
                text = (
                    f"there is no module '{module_name}' in what was uploaded; there is: {', '.join(there) or 'none'}"
                )
                raise SpecError(Mistake("HW1650", text)) from None
            raise SpecError(failure(error, f"module '{module_name}'", files, 1, home)) from error
        function = getattr(module, function_name, None)
    if not callable(function):
        raise SpecError(Mistake("HW1650", f"module '{module_name}' has no function '{function_name}'"))
    return Entry(entry, files, modules, function)


def traits_of(frame: DataFrame) -> frozenset[Trait]:
    """Return what the plan of a job's rows holds.

    Raises:
        SpecError: HW1616, Spark refuses it.
    """
    try:
        return held(frame, ()).traits
    except PySparkException as error:
        raise SpecError(Mistake("HW1616", f"Spark refuses this job: {said(error)}")) from error
