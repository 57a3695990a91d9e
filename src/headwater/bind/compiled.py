"""Are the search kernels compiled, and where are they kept?

numba keeps compiled kernels on disk but looks only at the file of the kernel itself, not at the functions
it calls. So they live in a folder named after all kernel sources and the versions: any change means
another folder, and nothing stale is ever loaded. `use_cache` must run before the kernels are imported.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

__all__ = ["cache_folder", "compile_all", "is_compiled", "use_cache"]

DONE = "complete"
ROOMS = ("model", "pack", "place", "sim")  # that hold kernels


def cache_folder() -> Path:
    """Return the folder of the compiled kernels for these sources, versions and processor."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for source in sorted(path for room in ROOMS for path in package.glob(f"{room}/*.py")):
        text = source.read_bytes()
        if b"@njit" in text:
            digest.update(text)
    digest.update(
        " ".join(
            (
                version("numba"),
                version("numpy"),
                version("llvmlite"),
                sys.version,
                platform.machine(),
                _processor(),
            )
        ).encode()
    )
    base = os.environ.get("HEADWATER_CACHE") or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "headwater" / f"kernels-{digest.hexdigest()[:16]}"


def _processor() -> str:
    """Return what tells this processor from others: compiled code uses what it offers."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("flags")), platform.processor())


def use_cache() -> None:
    """Point numba to the folder, unless the user has pointed it elsewhere or no folder can be written."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    if "numba" in sys.modules:  # it has read the environment already
        sys.modules["numba"].config.CACHE_DIR = str(folder)


def is_compiled() -> bool:
    """Return whether every kernel is on disk."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    return (Path(folder) if folder else cache_folder()).joinpath(DONE).exists()


def compile_all(say: Callable[[str], None], more: Sequence[str] = ()) -> None:
    """Compile every kernel that is not on disk yet, and note that it is done.

    Args:
        say: Takes what is done, when there is something to do.
        more: Modules with kernels in rooms that this one does not know.
    """
    use_cache()
    if is_compiled():
        return
    say("compiling the search kernels (once, a minute or two)")
    import headwater.pack  # noqa: PLC0415 - importing compiles
    import headwater.place  # noqa: F401, PLC0415

    for name in more:
        importlib.import_module(name)

    folder = os.environ.get("NUMBA_CACHE_DIR")
    if folder:
        try:
            Path(folder, DONE).write_text("every kernel was compiled\n", "utf-8")
        except OSError:
            say("the compiled kernels cannot be kept: the cache folder is not writable; set HEADWATER_CACHE")
