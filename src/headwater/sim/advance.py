"""How does load move on, step by step? The compiled loop of the simulator.

One kernel advances all instances by many steps; nothing of Python runs in between. Instances, queues, lines and
machines are rows of flat arrays (`sim.flat` makes them and says what each one holds). In every step

    s = x + q                               what is there: arrivals and what waited (equation 8)
    r = h * min(RR, cap) / sum of these     the machine's resources by demand (10); all of it where it suffices
    processed = s * r / RR                  in equal parts of every input stream (IP)
    q = s - processed                       what waits (9); above the bound of a queue it is dropped
    y = alpha * processed                   what goes out (OP, 11), to arrive after the delay of its line

A link is a machine whose resource is bandwidth, and a stream on it an instance whose work is the bits of a record.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from headwater.sim.chance import poisson

__all__ = ["BINS", "BINS_PER_OCTAVE", "LEAST_BIN_S", "MARKS", "RENEWAL", "SIGNATURE", "advance", "bin_of"]

RENEWAL = 256  # steps after which rotated sinusoids are computed anew, so that rounding does not pile up
MARKS = 32  # points of the curve of arrivals that are kept for a queue that waits; a power of 2
LAST = MARKS - 1
BINS_PER_OCTAVE = 8
LEAST_BIN_S = 1e-5  # upper end of the first bin of delays
BINS = 36 * BINS_PER_OCTAVE  # the last one ends at 190 hours
POISSON, EXPONENTIAL = 1, 2  # bits of `chance`

I1, N1, N2, U8 = "int64[::1]", "float64[::1]", "float64[:, ::1]", "uint8[::1]"
FIXED = f"Tuple(({I1},{I1},{I1},{I1},{N1},{I1},{I1},{N1},{I1}))"
LOADS = f"Tuple(({U8},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{I1},{I1},{N1},{N1}))"
KNOBS = f"Tuple(({I1},{N1},{N1},{N1},{N1},{N1},{U8},{U8},{N1},{U8}))"
STATE = f"Tuple(({N1},{N1},{N1},{N1},{N2},{N2},{I1},{I1},{I1}))"
COUNTS = f"Tuple(({N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1},{N1}))"
DETAIL = f"Tuple(({N2},{N2},{N2},{N2},{N2},{N2},{N2},{N2},{N2},{N2},{N2}))"
SIGNATURE = f"void(int64, int64, float64, uint64, int64, int64, {FIXED}, {LOADS}, {KNOBS}, {STATE}, {COUNTS}, {DETAIL})"


@njit("int64(float64)", cache=True)
def bin_of(delay_s):
    """Return the bin of a delay."""
    if delay_s <= LEAST_BIN_S:
        return 0
    found = np.int64(math.log2(delay_s / LEAST_BIN_S) * BINS_PER_OCTAVE) + 1
    return found if found < BINS else BINS - 1


@njit(f"float64(int64, float64, float64, float64, float64, float64, float64, {N2}, {N2}, {I1}, {I1}, {I1})", cache=True)
def _waited(i, t, came_before, came, left_before, left, rest, mark_n, mark_t, heads, marks, gaps):
    """Return how many steps the records waited that leave in this step, first come first served.

    The curve of arrivals is kept as points (records so far, time) in a ring; a record that leaves as the n-th came
    when the curve passed n. The last point is that of the present. When there is no more room, every second point
    is given up, and from then on points lie twice as far apart.
    """
    count = marks[i]
    head = heads[i]
    if count == 0:
        head = 0
        mark_n[i, 0] = came_before
        mark_t[i, 0] = t
        count = 1
        gaps[i] = 1
    if count >= 3 and t + 1.0 - mark_t[i, (head + count - 2) & LAST] <= gaps[i]:
        count -= 1  # the present moves on
    elif count == MARKS:
        kept = 1
        for j in range(2, count, 2):
            mark_n[i, (head + kept) & LAST] = mark_n[i, (head + j) & LAST]
            mark_t[i, (head + kept) & LAST] = mark_t[i, (head + j) & LAST]
            kept += 1
        count = kept
        gaps[i] *= 2
    mark_n[i, (head + count) & LAST] = came
    mark_t[i, (head + count) & LAST] = t + 1.0
    count += 1
    waited = 0.0
    if left > left_before:
        middle = 0.5 * (left_before + left)
        while count > 2 and mark_n[i, (head + 1) & LAST] <= middle:
            head = (head + 1) & LAST
            count -= 1
        low = mark_n[i, head]
        rise = mark_n[i, (head + 1) & LAST] - low
        part = (middle - low) / rise if rise > 0.0 else 0.0
        if part < 0.0:
            part = 0.0
        if part > 1.0:
            part = 1.0
        begin = mark_t[i, head]
        waited = t + 0.5 - (begin + part * (mark_t[i, (head + 1) & LAST] - begin))
        if waited < 0.0:
            waited = 0.0
        if count < 8 and gaps[i] > 1:
            gaps[i] //= 2
    marks[i] = count if rest > 0.0 else 0
    heads[i] = head
    return waited


@njit(SIGNATURE, cache=True)
def advance(first, last, dt, seed, bucket_steps, sample_steps, fixed, loads, knobs, state, counts, detail):
    """Advance the state from step `first` to before step `last`.

    Args:
        first: Of the steps to make, counted from the beginning of the run.
        last: The step after them.
        dt: Seconds of a step.
        seed: Of all chance.
        bucket_steps: Steps that one row of the series holds.
        sample_steps: Steps that one row of the history of arrivals holds.
        fixed: What runs where: see `sim.flat.Fixed`.
        loads: What comes from outside, by queue: see `sim.flat.Loads`.
        knobs: What may change between two calls: see `sim.flat.Knobs`.
        state: What waits and what is on the way: see `sim.flat.State`.
        counts: What was counted, by instance and machine: see `sim.flat.Counts`.
        detail: Series, histograms and history, empty for large runs: see `sim.flat.Detail`.
    """
    queue_at, line_of, out_at, out_line, out_part, line_at, line_long, line_delay, sink_row = fixed
    kind, base, swing, sine, cosine, turn_s, turn_c, omega, phase, share, trace_at, trace_long, trace_dt, traces = loads
    machine, work, cap, alpha, bound, own_s, chance, is_active, power, is_up = knobs
    q, age, way_n, way_a, mark_n, mark_t, heads, marks, gaps = state
    (
        came, done, lost, area, peak, ratio, busy, stalled, spent, aged, calm, strange,
        demand, asked, full, over, strained,
    ) = counts
    flow_in, flow_out, wait_mean, wait_most, late, m_full, m_over, delays, ends, history, m_most = detail
    n = machine.size
    outside = kind.size  # queues of links come after these
    machines = power.size
    is_series = flow_in.shape[0] > 0
    is_detail = delays.shape[0] > 0
    is_history = history.shape[0] > 0
    there = np.empty(n)
    new = np.empty(n)
    wish = np.empty(n)
    scale = np.empty(machines)
    for t in range(first, last):
        row = t // bucket_steps
        sample = t // sample_steps
        renew = t % RENEWAL == 0
        for m in range(machines):
            demand[m] = 0.0
            asked[m] = 0.0
        for i in range(n):
            total = 0.0
            fresh = 0.0
            for k in range(queue_at[i], queue_at[i + 1]):
                x = 0.0
                load = kind[k] if k < outside else 0
                if load == 1:
                    if renew:
                        angle = omega[k] * (t * dt) + phase[k]
                        sine[k] = math.sin(angle)
                        cosine[k] = math.cos(angle)
                    x = base[k] + swing[k] * sine[k]
                    turned = sine[k] * turn_c[k] + cosine[k] * turn_s[k]
                    cosine[k] = cosine[k] * turn_c[k] - sine[k] * turn_s[k]
                    sine[k] = turned
                elif load == 2:
                    x = traces[trace_at[k] + np.int64(t * dt / trace_dt[k] + 1e-9) % trace_long[k]]
                if x > 0.0 and is_active[i]:
                    x *= share[k] * dt
                    if chance[i] & POISSON:
                        x = poisson(x, seed, k, t, 0)
                else:
                    x = 0.0
                line = line_of[k]
                if line >= 0:
                    slot = line_at[line] + t % line_long[line]
                    x += way_n[slot]
                    age[k] += way_a[slot]
                    way_n[slot] = 0.0
                    way_a[slot] = 0.0
                q[k] += x
                fresh += x
                total += q[k]
            new[i] = fresh
            there[i] = total
            d = 0.0
            m = machine[i]
            if m >= 0 and is_up[m]:
                whole = work[i] * total
                d = whole
                if d > cap[i] * dt:
                    d = cap[i] * dt
                demand[m] += d
                asked[m] += whole
            wish[i] = d
        for m in range(machines):
            can = power[m] * dt
            scale[m] = 1.0
            if is_up[m]:
                if demand[m] > can:
                    scale[m] = can / demand[m]
                part = demand[m] * scale[m] / can
                burden = asked[m] / can
                full[m] += part
                if burden > over[m]:
                    over[m] = burden
                if burden > 1.0 + 1e-9:
                    strained[m] += 1.0
                if is_series and m < m_full.shape[1]:
                    m_full[row, m] += part
                    m_over[row, m] += burden
                    if burden > m_most[row, m]:
                        m_most[row, m] = burden
        for i in range(n):
            s = there[i]
            x = new[i]
            if is_history and x > 0.0:
                history[sample, i] += x
            if s <= 0.0:
                continue
            came_before = came[i] - lost[i]
            came[i] += x
            m = machine[i]
            p = 0.0
            if not is_active[i]:  # what still comes to an operator that is gone is lost
                lost[i] += s
                for k in range(queue_at[i], queue_at[i + 1]):
                    q[k] = 0.0
                    age[k] = 0.0
                continue
            if m >= 0 and is_up[m]:
                whole = work[i] * s
                if whole <= 0.0:  # what costs nothing waits for nobody
                    p = 1.0
                elif chance[i] & EXPONENTIAL:
                    can = power[m] * dt * wish[i] / demand[m] if demand[m] > 0.0 else 0.0
                    if can > cap[i] * dt:
                        can = cap[i] * dt
                    p = poisson(can / work[i], seed, i, t, 1 << 20) / s
                    if p > 1.0:
                        p = 1.0
                else:
                    p = scale[m]
                    if wish[i] < whole:
                        p *= wish[i] / whole
            out = s
            rest = 0.0
            before = s - x
            inherited = 0.0
            if p >= 1.0:
                for k in range(queue_at[i], queue_at[i + 1]):
                    q[k] = 0.0
                    inherited += age[k]
                    age[k] = 0.0
            else:
                out = p * s
                rest = s - out
                keep = 1.0 - p
                if rest > bound[i]:
                    lost[i] += rest - bound[i]
                    keep *= bound[i] / rest
                    rest = bound[i]
                for k in range(queue_at[i], queue_at[i + 1]):
                    q[k] *= keep
                    inherited += age[k] * p
                    age[k] *= keep
                if p > 0.0:
                    ratio[i] += 1.0 / p - 1.0
                else:
                    stalled[i] += 1.0
                if rest > peak[i]:
                    peak[i] = rest
            busy[i] += 1.0
            left_before = done[i]
            done[i] += out
            wait = 0.0
            is_calm = rest <= 0.0 and before <= 0.0
            if not is_calm:
                area[i] += 0.5 * (before + rest) * dt
                if is_detail:
                    wait = dt * _waited(
                        i, np.float64(t), came_before, came[i] - lost[i], left_before, done[i], rest,
                        mark_n, mark_t, heads, marks, gaps,
                    )
                    spent[i] += out * (wait + own_s[i])
                    delays[i, bin_of(wait + own_s[i])] += out
                    if is_series:
                        wait_mean[row, i] += 0.5 * (before + rest)
                        if rest > wait_most[row, i]:
                            wait_most[row, i] = rest
                        late[row, i] += out * wait
            if is_series:
                flow_in[row, i] += x
                flow_out[row, i] += out
            if is_calm:
                calm[i] += out
            if out > 0.0:
                old = inherited + out * (wait + own_s[i])
                if sink_row[i] >= 0 and not (is_calm and inherited == 0.0):
                    aged[i] += old
                    if is_detail:
                        ends[sink_row[i], bin_of(old / out)] += out
                    if is_calm:
                        strange[i] += out
                for e in range(out_at[i], out_at[i + 1]):
                    y = out_part[e] * alpha[i]
                    if y > 0.0:
                        line = out_line[e]
                        slot = line_at[line] + (t + line_long[line] - 1) % line_long[line]
                        way_n[slot] += y * out
                        way_a[slot] += y * (old + out * line_delay[line])
