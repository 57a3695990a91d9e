"""Do the parts of a file fit together?

Three checks on graphs of names, each fast on large graphs and free of recursion: are all sites
connected, are the operators free of cycles, and do 'with' and 'apart' leave each other room? Each one
reports what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from headwater.model.report import Report, listed, quote

__all__ = ["check_company", "check_connected", "check_cycles"]

MOST_CYCLES = 10  # told one by one
MOST_STEPS = 20  # operators of one cycle that are named

LineOf = Callable[[str], int | None]


def check_connected(report: Report, names: Sequence[str], links: Iterable[tuple[str, str]], line_of: LineOf) -> None:
    """Report the sites that no chain of links joins to the first one."""
    neighbours: dict[str, list[str]] = {name: [] for name in names}
    for a, b in links:
        neighbours[a].append(b)
        neighbours[b].append(a)
    reached = dict.fromkeys(names[:1])
    waiting = list(reached)
    for name in waiting:  # grows while it is walked
        for neighbour in neighbours[name]:
            if neighbour not in reached:
                reached[neighbour] = None
                waiting.append(neighbour)
    lost = [name for name in names if name not in reached]
    if lost:
        of_all = f"{len(lost)} of {len(names)} sites {'is' if len(lost) == 1 else 'are'}"
        report.add(
            "HW1010",
            f"no chain of links joins site {quote(lost[0])} to site {quote(names[0])}; {of_all} cut "
            "off in this way. Add a link.",
            line_of(lost[0]),
        )


def check_cycles(report: Report, inputs: Mapping[str, Sequence[str]], line_of: LineOf) -> None:
    """Report operators that wait for themselves; `inputs` says whom each one reads."""
    left = dict(inputs)
    for _ in range(MOST_CYCLES):
        left = _without_ends(left)
        if not left:
            return
        cycle = _cycle(left)
        shown = [quote(name, 40) for name in [*cycle, cycle[0]]]
        if len(shown) > MOST_STEPS:
            shown[MOST_STEPS - 1 : -1] = [f"... {len(shown) - MOST_STEPS} more ..."]
        report.add(
            "HW1009",
            f"the operators form a cycle: {' -> '.join(shown)}. Remove one of these inputs.",
            line_of(cycle[0]),
        )
        for name in cycle:
            del left[name]


def _without_ends(inputs: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the operators that are left when those without inputs are taken away, again and again."""
    waiting = {name: sum(1 for source in sources if source in inputs) for name, sources in inputs.items()}
    readers: dict[str, list[str]] = {name: [] for name in inputs}
    for name, sources in inputs.items():
        for source in sources:
            if source in readers:
                readers[source].append(name)
    ready = [name for name, count in waiting.items() if count == 0]
    for name in ready:  # grows while it is walked
        for reader in readers[name]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    return {name: inputs[name] for name, count in waiting.items() if count > 0}


def _cycle(inputs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a cycle, writers before readers, from its first operator in file order; every operator has an input."""
    seen: dict[str, int] = {}
    name = next(iter(inputs))
    while name not in seen:
        seen[name] = len(seen)
        name = next(source for source in inputs[name] if source in inputs)
    back = list(seen)[seen[name] :]
    cycle = back[::-1]
    members = set(cycle)
    first = cycle.index(next(name for name in inputs if name in members))
    return cycle[first:] + cycle[:first]


def check_company(
    report: Report, together: Iterable[tuple[str, str]], apart: Iterable[tuple[str, str]], line_of: LineOf
) -> None:
    """Report operators that 'with' joins, directly or through others, while 'apart' parts them."""
    group: dict[str, list[str]] = {}  # the same list for all operators that share a site
    for a, b in together:
        few, many = sorted((group.setdefault(a, [a]), group.setdefault(b, [b])), key=len)
        if few is not many:
            many += few
            group.update(dict.fromkeys(few, many))
    for a, b in apart:
        if a in group and group[a] is group.get(b):
            report.add(
                "HW1011",
                f"operator {quote(a)} must stand apart from {quote(b)}, but 'with' puts both on one "
                f"site ({listed(group[a])}). Remove one of the two demands.",
                line_of(a),
            )
