"""Who gets how much of a machine?

`by_weight` solves equations 2 and 3 of paper 003: the sum of `weight * (share - demand)` is to be as large as possible,
no share is above its demand, and all of them together are within the machine. That is a fractional knapsack, so the
heaviest class is filled first and so on; one class may be filled in part, and in it everybody gets the same part of
its demand. One pass over the applications, exactly as good as dynamic programming (`control.bellman`).

`by_delay` is the concave variant: the sum of `weight * rate * wait` is to be as small as possible.

Both keep least shares, so that nobody starves to death, and both change little when their input changes little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.control.readings import Floats, Ints

__all__ = ["Classes", "by_delay", "by_weight", "classes", "spread"]

PRICE_ROUNDS, SLACK_ROUNDS = 12, 4


@dataclass(frozen=True, slots=True)
class Classes:
    """Applications by weight."""

    of: Ints  # of each application: the number of its class, 0 for the heaviest
    weights: Floats  # of each class, the heaviest first


def classes(weights: Floats) -> Classes:
    """Return applications by their weights.

    >>> classes(np.array([1.0, 6.0, 1.0])).of
    array([1, 0, 1])
    """
    found, of = np.unique(-np.asarray(weights, np.float64), return_inverse=True)
    return Classes(of.astype(np.int64), -found)


def by_weight(demand: Floats, capacity: float, grouped: Classes, least: Floats | float = 0.0) -> Floats:
    """Return shares, none above its demand; what nobody asks for is left over.

    Args:
        demand: Of each application.
        capacity: Of the machine.
        grouped: Applications by weight.
        least: Share that everybody gets first, as far as it asks for it; where even this is too much, all of these
            are made smaller alike.
    """
    first = np.minimum(demand, least)
    needed = float(first.sum())
    if needed > capacity:
        return np.asarray(first * (max(capacity, 0.0) / needed), np.float64)
    rest = demand - first
    filled = _filled(np.bincount(grouped.of, rest, len(grouped.weights)).astype(np.float64), capacity - needed)
    return np.asarray(first + filled[grouped.of] * rest, np.float64)


def _filled(wanted: Floats, room: float) -> Floats:
    """Return which part of its demand each class gets, the heaviest first."""
    filled = np.zeros(len(wanted))
    for number, amount in enumerate(wanted.tolist()):
        if amount > 0.0:
            filled[number] = min(1.0, max(0.0, room) / amount)
            room -= amount
        else:
            filled[number] = 1.0
    return filled


def spread(shares: Floats, capacity: float, by: Floats, most: Floats | float = np.inf) -> Floats:
    """Return shares with what is left over handed out in proportion to something, to nobody beyond the most.

    What is above the most of one goes to the others, so that somebody who comes to its most changes little for them.

    >>> spread(np.array([1.0, 2.0]), 6.0, np.array([1.0, 1.0]))
    array([2.5, 3.5])
    >>> spread(np.array([1.0, 2.0]), 6.0, np.array([1.0, 1.0]), np.array([1.5, 9.0]))
    array([1.5, 4.5])
    """
    left = capacity - float(shares.sum())
    total = float(by.sum())
    if left <= 0.0 or total <= 0.0:
        return shares
    by = np.where(by > 1e-200 * total, by / total, 0.0)  # what is next to nothing cannot be divided by
    room = np.broadcast_to(np.maximum(most - shares, 0.0), shares.shape)
    if bool((room >= left).all()):
        return np.asarray(shares + left * by, np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        full_at = np.where(by > 0.0, room / by, np.inf)  # what each unit of `by` gets when this one has its most
        order = np.argsort(full_at, kind="stable")
        full = np.concatenate(([0.0], np.cumsum(room[order])[:-1]))  # if all before it have their most
        still = np.cumsum(by[order][::-1])[::-1]
        each = (left - full) / still
        is_right = (still > 0.0) & (each <= full_at[order])
    if not bool(is_right.any()):
        return np.asarray(np.where(by > 0.0, shares + room, shares), np.float64)
    return np.asarray(shares + np.minimum(float(each[np.argmax(is_right)]) * by, room), np.float64)


def by_delay(
    rate_rps: Floats, work_s: Floats, weights: Floats, capacity: float, variability: Floats | float = 1.0
) -> Floats:
    """Return shares whose weighted sum of waits is least; together they are the whole machine.

    An application with a load `a = rate * work` and a share `r` waits `variability * work * (a / r) / (r - a)` (one
    server, equation 1). The sum of `weight * rate * wait` is convex in the shares above the loads, so that the best
    is where all marginal waits are the same price: Newton's method in the logarithm of the price, and inside it in
    the logarithm of each slack.

    Where the loads alone are more than the machine, the heaviest are served first and nobody has slack.
    """
    load = rate_rps * work_s
    total = float(load.sum())
    if total >= capacity * (1.0 - 1e-9):
        return by_weight(load, capacity, classes(weights))
    is_wanting = load > 1e-30 * capacity  # others would only bring divisions of nothing by nothing
    if not bool(is_wanting.any()):
        return load
    if not bool(is_wanting.all()):
        each = np.broadcast_to(variability, load.shape)[is_wanting]
        room = capacity - float(load[~is_wanting].sum())
        shares = load.copy()
        shares[is_wanting] = by_delay(rate_rps[is_wanting], work_s[is_wanting], weights[is_wanting], room, each)
        return shares
    cost = weights * rate_rps * variability * work_s * load  # times 1 / (r (r - a)): what is to be made small
    room = capacity - total
    root = np.sqrt(weights * rate_rps * variability * work_s)
    slack = np.maximum(room * root / float(root.sum()), 1e-12 * capacity)  # exact if everybody always had to wait
    log_price = float(np.log(np.average(_marginal(load, slack, cost), weights=slack)))
    for _ in range(PRICE_ROUNDS):
        price = np.exp(log_price)
        for _ in range(SLACK_ROUNDS):
            marginal = _marginal(load, slack, cost)
            share = load + slack
            fall = slack * (1.0 / share + 1.0 / slack) + slack * (1.0 / share + 1.0 / slack - 2.0 / (share + slack))
            slack = slack * np.exp(np.clip(np.log(marginal / price) / fall, -2.0, 2.0))
        used = float(slack.sum())
        if abs(used - room) <= 1e-10 * capacity:
            break
        slope = float((slack / fall).sum())  # how the sum of slack falls with the log price
        log_price += float(np.clip((used - room) / max(slope, 1e-300), -3.0, 3.0))
    return np.asarray(load + slack * (room / float(slack.sum())), np.float64)


def _marginal(load: Floats, slack: Floats, cost: Floats) -> Floats:
    """Return by how much the weighted wait falls with a little more share."""
    share = load + slack
    return np.asarray(cost * (share + slack) / (share * slack) ** 2, np.float64)
