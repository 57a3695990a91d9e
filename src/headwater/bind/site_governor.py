"""How do shares become limits of real runners?

`SiteGovernor` keeps the port `Governor` over a `Limiter`. What a runner may use at most becomes its quota; what it gets
at least, when all want more than there is, becomes its weight. Memory is bounded beside that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from headwater.bind.limiter import Limiter
from headwater.bind.limits import Limit

__all__ = ["SiteGovernor"]

LEAST_WEIGHT, MOST_WEIGHT = 0.05, 20.0
ROUGH = 0.02  # relative: a limit that changes by less stays as it is; writing it would cost more than it brings


class SiteGovernor:
    """The port `Governor` over the runners of one site."""

    def __init__(self, limiter: Limiter, cores: float, least: float = 0.0) -> None:
        """Take what limits; a limit of all `cores` is none, and nobody gets less than `least`."""
        self._limiter = limiter
        self._cores = cores
        self._least = least
        self._set: dict[str, Limit] = dict(limiter.limits())

    @property
    def weighs(self) -> bool:
        """Return whether shares are kept to where limits alone allow more than there is."""
        return self._limiter.weighs

    def set(self, limits: Mapping[str, float], shares: Mapping[str, float] | None = None) -> None:
        """Let runners use at most so many cores; those whose limit hardly changes are left alone."""
        total = sum(one for one in (shares or {}).values() if math.isfinite(one))
        news = {}
        for name, limit in limits.items():
            if math.isnan(limit):  # whoever decided does not know: it stays as it is
                continue
            share = (shares or {}).get(name, math.nan)
            weight = share / total * len(limits) if total > 0.0 and math.isfinite(share) else 1.0
            wanted = Limit(
                None if limit >= self._cores else max(limit, self._least),
                min(MOST_WEIGHT, max(LEAST_WEIGHT, weight)),
                self._set.get(name, Limit(None)).memory_bytes,
            )
            if not _is_alike(self._set.get(name), wanted):
                news[name] = wanted
        if news:
            self._limiter.set(news)
            self._set |= news

    def bound(self, memory: Mapping[str, int | None]) -> None:
        """Let runners have at most so much memory."""
        for name, memory_bytes in memory.items():
            before = self._set.get(name, Limit(None))
            if before.memory_bytes != memory_bytes:
                self._put(name, Limit(before.cores, before.weight, memory_bytes))

    def loosen(self, names: Iterable[str]) -> None:
        """Let runners use what they can for a while; weights and memory stay."""
        for name in names:
            before = self._set.get(name)
            if before is not None and before.cores is not None:
                self._put(name, Limit(None, before.weight, before.memory_bytes))

    def _put(self, name: str, limit: Limit) -> None:
        """Set a limit; one that is refused is none, and is tried again."""
        self._limiter.set({name: limit})
        self._set[name] = limit

    def limit_of(self, name: str) -> Limit:
        """Return what was set of a runner last."""
        return self._set.get(name, Limit(None))

    def forget(self, alive: Collection[str]) -> None:
        """Let go of what is left of runners that are gone; one that has processes is not."""
        self._limiter.drop_dead(alive)
        self._set = {name: one for name, one in self._set.items() if name in alive}

    def lift(self, names: Iterable[str]) -> None:
        """Let runners use what they can again."""
        for name in names:
            self._limiter.drop(name)
            self._set.pop(name, None)


def _is_alike(before: Limit | None, now: Limit) -> bool:
    if before is None or before.memory_bytes != now.memory_bytes or (before.cores is None) != (now.cores is None):
        return False
    pairs = [(before.weight, now.weight)]
    if before.cores is not None and now.cores is not None:
        pairs.append((before.cores, now.cores))
    return all(abs(a - b) <= ROUGH * max(abs(a), abs(b)) for a, b in pairs)
