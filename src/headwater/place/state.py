"""Where does a search stand?

`State` owns the arrays that the kernels change: one placement of one problem, with its sums and labels.
The decisions are elsewhere; this only carries arrays to kernels and answers back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headwater.model.chance import seeded
from headwater.model.routes import Ints
from headwater.place import kernels
from headwater.place.arrays import IN, IN_END, OUT, OUT_END, Arrays

__all__ = ["State", "problem_parts", "seeded"]

RT, RF, BW, F, VERSION, COUNT = range(6)


class State:
    """One placement under search."""

    def __init__(self, arrays: Arrays, where: npt.NDArray[np.int32]) -> None:
        """Compute sums and labels of a placement; the array is copied."""
        count, hosts = len(arrays.names), len(arrays.hosts)
        self.arrays = arrays
        self.where: Ints = np.array(where, np.int32)
        self.sums = np.zeros(6)
        directions = len(arrays.ends)
        degree = arrays.ops[:, IN_END] - arrays.ops[:, IN] + arrays.ops[:, OUT_END] - arrays.ops[:, OUT]
        widest = int(degree.max(initial=0)) + 1
        self.parts = (
            self.where,
            np.zeros((count, 4)),
            np.zeros(len(arrays.streams)),
            np.zeros((directions, 3)),
            np.zeros(hosts, np.int32),
            np.zeros((count + hosts, 2), np.int32),
            self.sums,
            np.zeros(count // 64 + 1, np.uint64),
            np.zeros(directions + 1, np.int32),
            np.zeros(widest, np.int32),
            np.zeros(widest),
        )
        self.problem = problem_parts(arrays)
        self.fill()

    def fill(self) -> None:
        """Compute everything from `where`."""
        kernels.fill(self.problem, self.parts)

    def set(self, where: npt.NDArray[np.int32]) -> None:
        """Take another placement."""
        self.where[:] = where
        self.fill()

    @property
    def f(self) -> float:
        """F of the placement."""
        return float(self.sums[F])

    @property
    def used(self) -> Ints:
        """Slots taken on each host."""
        return self.parts[4]

    @property
    def evaluations(self) -> int:
        """How many candidates were evaluated."""
        return int(self.sums[COUNT])


def problem_parts(arrays: Arrays, *, with_reach: bool = True) -> tuple[npt.NDArray[np.generic], ...]:
    """Return the arrays in the order of `kernels.PROBLEM`; only searches need `reach`, which takes time to make."""
    a = arrays
    starts = np.flatnonzero(np.isfinite(a.work[:, 1])).astype(np.int32)
    finals = np.flatnonzero(np.isfinite(a.work[:, 2])).astype(np.int32)
    return (
        a.ops,
        a.work,
        a.outs,
        a.streams,
        np.ascontiguousarray(a.flow),
        a.hosts,
        a.pace,
        np.ascontiguousarray(a.tree),
        np.ascontiguousarray(a.way),
        np.ascontiguousarray(a.pairs),
        a.last,
        np.ascontiguousarray(a.ends),
        a.room,
        a.weigh,
        starts,
        finals,
        a.rule_at,
        a.rule_hosts,
        a.apart_at,
        a.apart,
        a.unit_at,
        a.unit_ops,
        a.start,
        a.leaving,
        a.host_at,
        np.ascontiguousarray(a.problem.routes.towards),
        a.reach if with_reach else np.zeros((0, 0), np.uint64),
    )
