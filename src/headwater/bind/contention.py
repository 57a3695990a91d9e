"""What else uses this machine's processors and its memory's bandwidth beside the runners?

A runner may be slow although its limit is wide: others have the processor, or the memory is busy. `Others` tells how
many cores everything else uses; `MemoryTraffic` how many bytes a second go to memory, where the processor counts that
and the system hands it out (resctrl, '/sys/fs/resctrl'). Counters of the memory controller itself ('uncore_imc') need
an opened performance event for each; reading them through the program `perf` takes more than it tells, so they are
only named in the reason.

Time is an argument. The first reading has nothing to compare with.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

__all__ = ["MemoryTraffic", "Others"]

RESCTRL = Path("/sys/fs/resctrl")
DEVICES = Path("/sys/bus/event_source/devices")
STAT = Path("/proc/stat")
# Places of the numbers in a line of /proc/stat; those after STEAL are parts of others.
NICE, IDLE, IOWAIT, STEAL = 1, 3, 4, 7


class MemoryTraffic:
    """Bytes a second that all processors of this machine exchange with memory."""

    def __init__(self, resctrl: Path = RESCTRL, devices: Path = DEVICES) -> None:
        """Look for counters; `because` tells what was found."""
        self._root = resctrl
        self._before: tuple[float, dict[Path, int]] | None = None
        self.is_there = bool(self._files())
        if self.is_there:
            self.because = f"memory traffic is counted by the processor and read from '{resctrl}'"
        elif found := sorted(one.name for one in devices.glob("uncore_imc*")):
            self.because = (
                f"memory traffic is not read: this machine counts it in '{found[0]}', which takes a program of its "
                f"own; mount resctrl where the processor has it (mount -t resctrl resctrl {resctrl})"
            )
        else:
            self.because = (
                f"memory traffic is not known: neither '{resctrl}' nor a counter 'uncore_imc' of the memory controller "
                "is there, as in most virtual machines"
            )

    def _files(self) -> list[Path]:
        """Return the counters of the uppermost group and of those beside it: each process is counted in one."""
        return sorted(
            file
            for place in ("mon_data", "*/mon_data")
            for file in self._root.glob(f"{place}/mon_L3_*/mbm_total_bytes")
        )

    def read(self, now_s: float) -> float | None:
        """Return bytes a second since the last reading; None: not known, or nothing to compare with."""
        counts = {}
        for file in self._files() if self.is_there else ():
            try:
                counts[file] = int(file.read_text("ascii"))
            except (OSError, ValueError):  # the group is gone, or the hardware says 'Unavailable'
                continue
        before, self._before = self._before, (now_s, counts)
        if before is None or now_s <= before[0]:
            return None
        grown = [counts[file] - before[1][file] for file in counts.keys() & before[1].keys()]
        if not grown or min(grown) < 0:  # a counter began anew
            return None
        return sum(grown) / (now_s - before[0])


class Others:
    """Cores that are used by everything on this machine that is no runner of ours."""

    def __init__(self, stat: Path = STAT, counts_nice: bool = False) -> None:
        """Begin; nothing is read yet.

        Args:
            stat: Where the kernel tells.
            counts_nice: Whether what is done at a lower priority counts, too: runners are among that where weights are
                nice values.
        """
        self._stat = stat
        self._left_out = (IDLE, IOWAIT) if counts_nice else (NICE, IDLE, IOWAIT)
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._before: tuple[float, float, dict[str, float]] | None = None

    def others_cores(self, now_s: float, used_s: Mapping[str, float], ours: Collection[str] | None = None) -> float:
        """Return how many cores others used since the last reading, and 0 at the first.

        What the machine below a virtual one takes away (steal) is used by others, too; what others do at a lower
        priority (nice) gives way and is not counted.

        Args:
            now_s: The time.
            used_s: Processor seconds of each runner as its counter is now; one that comes or goes counts from its
                second reading on.
            ours: Runners that are no others; None: all of them. The rest uses what these cannot have.
        """
        with open(self._stat, encoding="ascii") as opened:
            numbers = [int(word) for word in opened.readline().split()[1 : STEAL + 2]]
        busy_s = (sum(numbers) - sum(numbers[one] for one in self._left_out)) * self._tick_s
        before, self._before = self._before, (now_s, busy_s, dict(used_s))
        if before is None or now_s <= before[0]:
            return 0.0
        counted = used_s.keys() & before[2].keys() & set(used_s if ours is None else ours)
        ours_s = sum(max(0.0, used_s[name] - before[2][name]) for name in counted)
        return max(0.0, busy_s - before[1] - ours_s) / (now_s - before[0])
