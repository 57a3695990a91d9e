"""Whose is each folder of a runner?

Beside what a runner keeps in its folder lies a mark: the composition whose jobs it runs, and the code that it was
started with. It is how the next agent knows the runners that it finds. The folder belongs to the user that the runner
runs as, so a mark is only believed if it is of the right form and of that very folder.

    HW4515   a folder does not tell whose it is
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from headwater.bind.handed_over import put, take
from headwater.errors import BindError
from headwater.plan.cut import safe

__all__ = ["folder_of", "mark", "marked", "runner_folders"]

MARK = "composition.json"
CODE = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{64}")  # see `bind.code.pipeline_code`


def folder_of(state: Path, composition: str) -> Path:
    """Return the folder of a composition's runner, in the state folder of an agent."""
    return state / "runners" / safe(composition)


def runner_folders(state: Path) -> list[Path]:
    """Return the folders of runners, with a mark or without."""
    return sorted(one for one in state.glob("runners/*") if one.is_dir())


def mark(folder: Path, composition: str, code: str) -> None:
    """Let a folder be that of a composition's runner with this code; '': it runs jobs by themselves.

    Raises:
        OSError: the folder refuses.
    """
    put(folder / MARK, json.dumps([composition, code]))


def marked(folder: Path) -> tuple[str, str]:
    """Return the composition and the code of the runner of a folder.

    Raises:
        BindError: HW4515.
    """
    try:
        found = json.loads(take(folder / MARK))
        if not (isinstance(found, list) and len(found) == 2 and all(isinstance(one, str) for one in found)):
            raise ValueError("it holds something else")
        composition, code = found
        composition.encode("utf-8")
        if safe(composition) != folder.name:
            raise ValueError("it is of another folder")
        if code and not CODE.fullmatch(code):
            raise ValueError("what it calls code is none")
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BindError(
            f"HW4515 '{folder / MARK}' does not tell whose it is: {why}. Nothing is to be done: it is ended, and "
            "started again for its jobs."
        ) from error
    return composition, code
