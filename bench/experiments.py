"""How do the reports of the experiments get into the documentation?

    python -m bench.experiments [FOLDER ..]      (out/bench-fire, out/bench-traffic, out/bench-offload, out/bench-cut)

Takes what `headwater bench` wrote and makes docs/experiments.md of it, with the pictures beside it, so that no figure
is copied by hand.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.measure import ROOT

__all__ = ["main"]

PAGE = ROOT / "docs" / "experiments.md"
PICTURES = ROOT / "docs" / "experiments"
FOLDERS = tuple(f"out/bench-{name}" for name in ("fire", "traffic", "offload", "cut"))
HEAD = """# What the experiments have shown

Written by `python -m bench.experiments` from the reports of `headwater bench` ([testbed.md](testbed.md) says how they
are made). Latencies are from the time at which a record is written into the first broker to the time at which its
result is, both by the clock of this one machine.
"""


def section(folder: Path) -> str:
    """Return one report as a section of the page, and put its pictures in their place."""
    text = (folder / "report.md").read_text("utf-8")
    result = json.loads((folder / "result.json").read_text("utf-8"))
    for picture in re.findall(r"\(([a-z-]+\.png)\)", text):
        PICTURES.mkdir(exist_ok=True)
        shutil.copyfile(folder / picture, PICTURES / picture)
    text = re.sub(r"\(([a-z-]+\.png)\)", r"(experiments/\1)", text)
    title, _, rest = re.sub(r"^#", "##", text, flags=re.MULTILINE).partition("\n")
    machine = result["machine"]
    system = machine["system"].partition("-")[0]
    how = (
        f"`headwater bench {result['experiment']}` on {machine['cores']} shared cores ({system}), "
        f"{result['made'][:10]}, {result['seconds'] / 60:.0f} minutes; watched for {result['watched_s']:g} s after "
        f"{result['warm_s']:g} s."
    )
    return f"{title}\n\n{how}\n{rest}"


def main(arguments: Sequence[str]) -> int:
    """Write the page anew; return the exit code."""
    folders = [Path(one) for one in arguments] or [ROOT / one for one in FOLDERS]
    missing = [folder for folder in folders if not (folder / "report.md").exists()]
    if missing:
        print(f"There is no report in {missing[0]}; run the experiment first.", file=sys.stderr)
        return 2
    PAGE.write_text("\n".join([HEAD, *(section(folder) for folder in folders)]), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
