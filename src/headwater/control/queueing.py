"""How long does a record wait?

Allen and Cunneen's approximation of a queue with general arrivals, general work and N servers (equation 1 of paper
003):

    W = P / (mu N (1 - rho)) * (Cs^2 + Ca^2) / 2

with P the probability that all servers are busy (Erlang's formula, exact for random arrivals and exponential work), mu
the records that one server does in a second, rho the utilisation. Beyond the paper: percentiles, by a gamma
distribution of the wait of those who wait at all, whose spread is that of Whitt's queueing network analyser; and what
waits already, which has to be served first.

All functions take arrays over applications. A share of a processor is a slower server: `work_s / share` for a record.
"""

from __future__ import annotations

import numpy as np

from headwater.control.normal import quantile
from headwater.control.readings import Floats

__all__ = ["busy", "least_rate", "mean_wait", "wait_percentile"]

TOO_FULL = 1.0 - 1e-9  # from this utilisation on, waits grow without end
ROUNDS = 12  # of finding a rate at most: 4 to 6 where work and arrivals vary as chance does, more where they vary more
CLOSE = 1e-7  # relative: such a difference from a time is none
LONGEST_STEP = 1.6  # in the logarithm of the slack


def busy(rho: Floats, servers: Floats | float = 1.0) -> Floats:
    """Return the probability that all servers are busy, so that a record has to wait.

    >>> float(busy(np.array([0.5]))[0])
    0.5
    """
    if np.all(np.asarray(servers) == 1.0):
        return np.asarray(rho, np.float64)
    from scipy.special import gammaincc, gammaln, xlogy  # noqa: PLC0415 - slow to load, and not for one server

    load = rho * servers
    # A sum of Poisson's probabilities is an incomplete gamma function, so that parts of a server can be told, too.
    refused = np.exp(xlogy(servers, load) - load - gammaln(servers + 1.0)) / gammaincc(servers + 1.0, load)
    return np.asarray(refused / (1.0 - rho * (1.0 - refused)), np.float64)


def mean_wait(
    rate_rps: Floats, each_rps: Floats, variability: Floats | float = 1.0, servers: Floats | float = 1.0,
    backlog: Floats | float = 0.0,
) -> Floats:  # fmt: skip
    """Return the mean wait in seconds, without the record's own processing; infinite where too much comes in.

    Args:
        rate_rps: Records that come in.
        each_rps: Records that one server does.
        variability: Half the sum of the squared coefficients of variation of arrivals and work; 1: all by chance.
        servers: How many there are.
        backlog: Records that wait already.
    """
    all_rps = each_rps * servers
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.where(all_rps > 0.0, rate_rps / all_rps, np.inf)
        wait = np.where(
            rho < TOO_FULL, busy(np.minimum(rho, 1.0), servers) / (all_rps * (1.0 - rho)) * variability, np.inf
        )
        ahead = np.where(np.asarray(backlog) > 0.0, backlog / all_rps, 0.0)
    return np.asarray(wait + ahead, np.float64)


def wait_percentile(
    rate_rps: Floats, each_rps: Floats, part: float = 0.99, ca2: Floats | float = 1.0, cs2: Floats | float = 1.0,
    servers: Floats | float = 1.0,
) -> Floats:  # fmt: skip
    """Return how long this part of the records waits at most, in seconds; infinite where too much comes in.

    Args:
        rate_rps: Records that come in.
        each_rps: Records that one server does.
        part: Such as 0.99.
        ca2: Squared coefficient of variation of the time between arrivals.
        cs2: Of the work of a record.
        servers: How many there are.
    """
    all_rps = each_rps * servers
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = np.where(all_rps > 0.0, rate_rps / all_rps, np.inf)
    is_calm = rho < TOO_FULL
    rho = np.minimum(rho, TOO_FULL)
    slack_rps = np.maximum(all_rps, 1e-200) * (1.0 - rho)
    found = _wait_s(slack_rps, busy(rho, servers), rho, part, 0.5 * (ca2 + cs2), cs2)
    return np.where(is_calm, found, np.inf)


def _wait_s(
    slack_rps: Floats, waits: Floats, rho: Floats, part: float, variability: Floats | float, cs2: Floats | float
) -> Floats:
    """Return the percentile of the wait: that of those who wait, whose mean is the variability over the slack."""
    found = variability / slack_rps * _gamma_quantile(waits, part, rho, cs2)
    return np.asarray(np.where(waits > 1.0 - part, found, 0.0), np.float64)


def _gamma_quantile(waits: Floats, part: float, rho: Floats, cs2: Floats | float) -> Floats:
    """Return the percentile of the wait of those who wait, over its mean.

    Where work varies as chance does, the spread is 1 and the distribution exponential, which is exact for M/M/N and
    takes a logarithm; elsewhere it is Wilson and Hilferty's approximation.
    """
    if np.ndim(cs2) == 0 and cs2 == 1.0:
        return np.asarray(np.log(np.maximum(waits * (1.0 / (1.0 - part)), 1.0)), np.float64)
    third = np.where(np.asarray(cs2) >= 1.0, 3.0 * cs2 * (1.0 + cs2), (2.0 * cs2 + 1.0) * (cs2 + 1.0))
    spread = 2.0 * rho - 1.0 + 4.0 * (1.0 - rho) * third / (3.0 * (cs2 + 1.0) ** 2)
    spread = np.maximum(spread, 0.05)
    z = quantile(np.clip(1.0 - (1.0 - part) / np.maximum(waits, 1e-300), 1e-9, 1.0 - 1e-9))
    return np.asarray(np.maximum(1.0 - spread / 9.0 + z * np.sqrt(spread) / 3.0, 0.0) ** 3, np.float64)


def least_rate(
    rate_rps: Floats, within_s: Floats, part: float = 0.99, ca2: Floats | float = 1.0, cs2: Floats | float = 1.0
) -> Floats:
    """Return how many records a second one server must do, so that this part of them is done within a time.

    Done is waited and processed. The answer is within 1 % of the inverse of `wait_percentile`: a secant method between
    the logarithms of the slack and of the time, kept within what is known to be too little and enough.
    """
    variability = 0.5 * (ca2 + cs2)
    tail = np.log(1.0 / (1.0 - part))
    at = np.log(np.maximum(variability * tail, 1.0) / within_s) + 0.0 * rate_rps  # as if all had to wait
    too_little = np.log(np.maximum(1.0 / within_s - rate_rps, 1e-9 / within_s))
    enough = np.full(at.shape, np.inf)
    before, off_before = at, np.zeros(at.shape)
    slack = np.exp(at)
    for round_ in range(ROUNDS):
        does = rate_rps + slack
        rho = rate_rps / does
        off = np.log((_wait_s(slack, rho, rho, part, variability, cs2) + 1.0 / does) / within_s)
        is_found = np.abs(off) <= CLOSE
        if bool(is_found.all()):
            break
        is_late = off > 0.0
        np.maximum(at, too_little, out=too_little, where=is_late)
        np.minimum(at, enough, out=enough, where=~is_late)
        step = off  # the first guess: a time falls as one over the slack
        if round_ > 0:
            with np.errstate(divide="ignore", invalid="ignore"):
                secant = -off * (at - before) / (off - off_before)
            step = np.where(secant * off > 0.0, secant, off)
        new = at + np.where(is_found, 0.0, np.clip(step, -LONGEST_STEP, LONGEST_STEP))
        before, off_before, at = at, off, new
        is_outside = (new < too_little) | (new > enough)
        if bool(is_outside.any()):
            middle = np.where(np.isfinite(enough), 0.5 * (too_little + enough), too_little)
            at = np.where(is_outside, middle, new)
        slack = np.exp(at)
    return np.asarray(rate_rps + slack, np.float64)
