"""Does a process have a folder for itself?

HW4603   the folder cannot be used
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from headwater.errors import BindError

__all__ = ["alone"]


@contextlib.contextmanager
def alone(folder: Path, file: str, refusal: str) -> Iterator[None]:
    """Hold a state folder for this process alone; the folder is made if it is not there.

    Args:
        folder: The state folder.
        file: In it; locked as long as this lasts, also if the process is killed.
        refusal: What to say if another process has it.

    Raises:
        BindError: HW4603, or the refusal.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / file).open("w")
    except OSError as error:
        raise BindError(f"HW4603 the state folder '{folder}' cannot be used: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BindError(refusal) from None
        yield
