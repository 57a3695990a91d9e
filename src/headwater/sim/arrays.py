"""What does the kernel work on?

Groups of flat arrays, one row for each queue, instance, line or machine; the order of fields is that in which
`sim.advance` unpacks them. An instance of an operator reads one queue for what comes from outside, if anything
does, and one for each instance of a writer. A line brings records from a writer to a queue after some steps.
The first machines are the scenario's, then come the directions of links.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.sim.advance import BINS, BINS_PER_OCTAVE, LEAST_BIN_S, MARKS

__all__ = [
    "Bools",
    "Counts",
    "Detail",
    "Fixed",
    "Floats",
    "Ints",
    "Knobs",
    "Loads",
    "State",
    "bins_of",
    "empty_counts",
    "empty_detail",
    "settle",
]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.uint8]


class Fixed(NamedTuple):
    """What is joined to what, as long as no operator moves."""

    queue_at: Ints  # by instance: its first queue; one more at the end
    line_of: Ints  # by queue: the line that fills it; -1: none
    out_at: Ints  # by instance: the first of what it writes; one more at the end
    out_line: Ints  # by output: the line that it goes to
    out_part: Floats  # by output: records for each one written; 0 while its reader is not there
    line_at: Ints  # by line: where its ring of slots begins
    line_long: Ints  # by line: slots of its ring, one more than the steps it takes
    line_delay: Floats  # by line: seconds that it counts for
    sink_row: Ints  # by instance: its row in `Detail.ends`; -1: others read it


class Loads(NamedTuple):
    """What comes from outside, by queue."""

    kind: Bools  # 0 nothing, 1 sinusoid, 2 trace
    base: Floats
    swing: Floats
    sine: Floats  # of the angle at the next step
    cosine: Floats
    turn_s: Floats  # of the angle of one step
    turn_c: Floats
    omega: Floats  # radians a second
    phase: Floats
    share: Floats  # what it is multiplied by
    trace_at: Ints  # where in `traces` its values begin
    trace_long: Ints
    trace_dt: Floats  # seconds of a value
    traces: Floats  # the values of all


class Knobs(NamedTuple):
    """What may change between two steps, by instance, and by machine from `power` on."""

    machine: Ints  # -1: not placed
    work: Floats  # of a record: seconds at speed 1, or bits on a link
    cap: Floats  # of work in a second
    alpha: Floats  # records out per record in
    bound: Floats  # records that may wait
    own_s: Floats  # what a record spends there without any waiting
    chance: Bools  # 1: arrivals by chance, 2: service by chance, 3: both
    is_active: Bools
    power: Floats  # work in a second
    is_up: Bools


class State(NamedTuple):
    """What waits and what is on the way."""

    q: Floats  # by queue
    age: Floats  # by queue: seconds since their birth, summed over records, when they came in
    way_n: Floats  # by slot of a line: records
    way_a: Floats  # and their seconds
    mark_n: Floats  # by instance: points of its curve of arrivals
    mark_t: Floats
    heads: Ints  # by instance: the place of the first point in its ring
    marks: Ints  # how many there are
    gaps: Ints  # how many steps they lie apart


class Counts(NamedTuple):
    """What was counted, by instance up to `strange`, then by machine.

    Records that met no queue are only counted in `calm`; `settle` says of them what the others say themselves.
    """

    came: Floats
    done: Floats
    lost: Floats
    area: Floats  # records times seconds that they waited
    peak: Floats  # most that waited
    ratio: Floats  # of equation 13, what it is above 1, summed over steps
    busy: Floats  # steps with anything to do
    stalled: Floats  # those in which nothing was done
    spent: Floats  # seconds summed over records that left
    aged: Floats  # seconds since their birth, summed over records that left a sink
    calm: Floats  # records that waited nowhere here, since `settle` was called last
    strange: Floats  # those of them that left a sink and are in `aged` and `Detail.ends` already
    demand: Floats  # of the last step
    asked: Floats  # of the last step, whatever shares allow
    full: Floats  # utilisation (14) summed over steps
    over: Floats  # greatest overload (15)
    strained: Floats  # steps with more asked than there is


class Detail(NamedTuple):
    """Series, one row for each bucket of steps, and histograms; without rows in large runs."""

    flow_in: Floats
    flow_out: Floats
    wait_mean: Floats
    wait_most: Floats
    late: Floats
    m_full: Floats
    m_over: Floats
    delays: Floats  # by instance and bin of delay: records
    ends: Floats  # by sink and bin of age: records
    history: Floats  # by sample and instance: records that came
    m_most: Floats


def empty_counts(instances: int, machines: int) -> Counts:
    """Return counts of nothing."""
    made: list[Any] = [np.zeros(instances) for _ in range(12)] + [np.zeros(machines) for _ in range(5)]
    return Counts(*made)


def empty_detail(
    instances: int, machines: int, sinks: int, rows: int, samples: int, *, is_kept: bool
) -> tuple[Detail, tuple[Floats, Floats, Ints, Ints, Ints]]:
    """Return detail of nothing, and the marks of queues; all without rows unless it is kept."""
    n, r, h = (instances, rows, samples) if is_kept else (0, 0, 0)
    made: list[Any] = [np.zeros((r, n)) for _ in range(5)]
    made += [np.zeros((r, machines)), np.zeros((r, machines)), np.zeros((n, BINS))]
    made += [np.zeros((sinks if is_kept else 0, BINS)), np.zeros((h, n)), np.zeros((r, machines))]
    detail = Detail(*made)
    marks = (np.zeros((n, MARKS)), np.zeros((n, MARKS)), *(np.zeros(n, np.int64) for _ in range(3)))
    return detail, marks  # type: ignore[return-value]


def settle(counts: Counts, detail: Detail, own_s: Floats, sink_row: Ints) -> None:
    """Add the records that met no queue to times and histograms; must be called before their own times change."""
    calm, strange = counts.calm, counts.strange
    counts.spent[:] += calm * own_s
    counts.aged[:] += (calm - strange) * own_s * (sink_row >= 0)
    if len(detail.delays):
        bins = bins_of(own_s)
        detail.delays[np.arange(len(calm)), bins] += calm
        sinks = np.flatnonzero(sink_row >= 0)
        detail.ends[sink_row[sinks], bins[sinks]] += (calm - strange)[sinks]
    calm[:] = 0.0
    strange[:] = 0.0


def bins_of(delay_s: Floats) -> Ints:
    """Return the bins of delays."""
    with np.errstate(divide="ignore"):
        octaves = np.log2(np.maximum(delay_s, LEAST_BIN_S) / LEAST_BIN_S)
    found = np.where(delay_s <= LEAST_BIN_S, 0, (octaves * BINS_PER_OCTAVE).astype(np.int64) + 1)
    return np.minimum(found, BINS - 1)
