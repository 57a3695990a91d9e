"""What does `headwater up` say when all of it is up?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["up_object", "up_text"]


def up_object(url: str, brokers: Mapping[str, str], testbed: str | None) -> dict[str, Any]:
    """Return what there is: the address of the controller, the broker of each site, and the testbed if there is one."""
    return {"controller": url, "brokers": dict(brokers), **({} if testbed is None else {"testbed": testbed})}


def up_text(found: Mapping[str, Any], state: Path) -> str:
    """Return the same for people, with what to do next."""
    brokers: Mapping[str, str] = found["brokers"]
    width = max((len(site) for site in brokers), default=0)
    lines = [f"controller at {found['controller']}", ""]
    lines += [f"  {site:{width}}  broker at {address}" for site, address in brokers.items()]
    if "testbed" in found:
        lines += ["", f"  headwater testbed status --name {found['testbed']}    what its links do; 'link' changes them"]
    lines += [
        "",
        f"  export HEADWATER_STATE={state}",
        "  headwater apply PROJECT --sites SITES    deploy a pipeline, or a composition",
        "  headwater feed PROJECT                   made records for its sources",
        "  headwater status                         how everything is",
        "  headwater down                           end all of it",
    ]
    return "\n".join(lines)
