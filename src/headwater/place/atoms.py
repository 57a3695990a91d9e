"""What do the steps of a search stand on? Bits, rules and delays, each a few lines."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = [
    "ONE",
    "ZERO",
    "allows",
    "delay_of",
    "fits_apart",
    "highest_bit",
    "link_in",
    "lowest_bit",
    "note_dirty",
    "over",
]

ZERO, ONE = np.uint64(0), np.uint64(1)


@njit(cache=False)
def note_dirty(op, dirty):
    """Set the bit of an operator."""
    dirty[op >> 6] |= ONE << np.uint64(op & 63)


@njit(cache=False)
def lowest_bit(word):
    """Return the place of the lowest set bit of a word that is not 0."""
    place = 0
    for half in (32, 16, 8, 4, 2, 1):
        if word & ((ONE << np.uint64(half)) - ONE) == ZERO:
            word >>= np.uint64(half)
            place += half
    return place


@njit(cache=False)
def highest_bit(word):
    """Return the place of the highest set bit of a word that is not 0."""
    place = 0
    for half in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(half) != ZERO:
            word >>= np.uint64(half)
            place += half
    return place


@njit(cache=False)
def allows(op, host, ops, rule_at, rule_hosts):
    """Return whether an operator's own rules allow a host."""
    rule = ops[op, 5]
    if rule < 0:
        return True
    low = rule_at[rule]
    high = rule_at[rule + 1]
    while low < high:
        mid = (low + high) // 2
        if rule_hosts[mid] < host:
            low = mid + 1
        else:
            high = mid
    return low < rule_at[rule + 1] and rule_hosts[low] == host


@njit(cache=False)
def fits_apart(op, host, ignore, apart_at, apart, where):
    """Return whether nobody who must stand apart from an operator is on a host, one operator ignored."""
    for k in range(apart_at[op], apart_at[op + 1]):
        if where[apart[k]] == host and apart[k] != ignore:
            return False
    return True


@njit(cache=False)
def delay_of(a, b, size, hosts, tree, way, pairs):
    """Return the seconds that a record of a size takes from host a to host b."""
    if a == b:
        return 0.0
    if pairs.shape[0] > 0:
        return pairs[a, b, 0] + size * pairs[a, b, 1]
    x = hosts[a, 2]
    y = hosts[b, 2]
    z = x
    while z > y or y >= tree[z, 1]:
        z = tree[z, 0]
    return way[x, 0] + way[y, 0] - 2.0 * way[z, 0] + size * (way[x, 1] + way[y, 1] - 2.0 * way[z, 1])


@njit(cache=False)
def over(load, room):
    """Return what of a load does not fit."""
    return load - room if load > room else 0.0


@njit(cache=False)
def link_in(t, host, chain, count):
    """Put an operator at the front of a host's list; `count` operators come before the hosts' heads."""
    follower = chain[count + host, 0]
    chain[t, 0] = follower
    chain[t, 1] = count + host
    chain[count + host, 0] = t
    if follower >= 0:
        chain[follower, 1] = t
