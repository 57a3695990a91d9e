"""How do the figures get into the documentation?

`python -m bench.page [FILE.json]` puts the figures of a run between the two marks of its benchmark in
docs/benchmarks.md, so that they are never copied by hand: those of `bench.placement`, or those of `bench.lanes`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import lanes_tables
from bench.measure import ROOT
from bench.sections import SECTIONS
from bench.tables import LAYOUTS, Layout

__all__ = ["main", "markdown"]

PAGE = ROOT / "docs" / "benchmarks.md"
MARKS = {  # by benchmark: between which lines its figures go
    "placement": ("<!-- figures: written by python -m bench.page -->", "<!-- end of figures -->"),
    "lanes": ("<!-- lanes: written by python -m bench.page out/lanes.json -->", "<!-- end of lanes -->"),
}


def markdown(report: Mapping[str, Any]) -> str:
    """Return the figures of a run as tables in Markdown."""
    machine = report["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    lines = [
        f"Measured on {machine['cores']} shared cores ({machine['system']}, load {machine['load_at_start']} before the "
        f"run), Python {machine['python']}, {packages}; sources {report['sources']}; "
        f"{report['seconds'] / 60:.0f} minutes in all.",
    ]
    if report["sources_changed"]:
        lines += ["", "The sources changed during the run: the figures are of several versions."]
    for name, rows in report["sections"].items():
        title, layout = _shown(name)
        lines += ["", f"### {title}", "", *_table(layout, rows)]
    return "\n".join(lines) + "\n"


def _shown(section: str) -> tuple[str, Layout]:
    if section in lanes_tables.LAYOUTS:
        return lanes_tables.TITLES[section], lanes_tables.LAYOUTS[section]
    return SECTIONS[section].title, LAYOUTS[section]


def _table(layout: Layout, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(layout.heads)} |"
    yield f"|{'|'.join('---' if layout.is_text(column) else '---:' for column in range(len(layout.heads)))}|"
    for row in rows:
        if "left_out" not in row:
            yield f"| {' | '.join(layout.row(row))} |"
    left = [
        f"- {', '.join(row[name] for name in layout.names)}: {row['left_out']}" for row in rows if "left_out" in row
    ]
    if left:
        yield from ("", "Left out:", "", *left)


def main(arguments: Sequence[str]) -> int:
    """Write the page anew; return the exit code."""
    file = Path(arguments[0]) if arguments else ROOT / "out" / "placement.json"
    report = json.loads(file.read_text("utf-8"))
    begin, end = MARKS[report.get("benchmark", "placement")]
    before, _, rest = PAGE.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    if not after:
        print(f"docs/{PAGE.name} lacks the marks between which figures go.", file=sys.stderr)
        return 2
    PAGE.write_text(f"{before}{begin}\n{markdown(report)}{end}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
