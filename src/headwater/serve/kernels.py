"""Are the search kernels ready?

What needs the search is loaded through here: it points numba to the kept kernels first and, when they are
not there, says that it compiles, once for each machine and version. A silent minute would look like a fault.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from headwater.bind import compiled
from headwater.serve.progress import note

__all__ = ["are_compiled", "load_core"]


def load_core(name: str) -> ModuleType:
    """Return a module that needs the search, loaded; compiles the kernels unless that has been done."""
    compiled.compile_all(note, ("headwater.sim.advance",))
    return importlib.import_module(name)


def are_compiled() -> bool:
    """Return whether a search can start at once."""
    compiled.use_cache()
    return compiled.is_compiled()
