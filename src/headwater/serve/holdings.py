"""What does each site hold, as far as the controller knows?

What a site said last, and above that the jobs that it was ordered to run and has not spoken of since: an order
whose answer never came may have been carried out, and a job that may run somewhere must not be started
elsewhere. Such a job is noted before its order is sent, and both are written to the store, so that a restarted
controller knows them. A note ends when the site says something that it said after it had the order, and says
too that it does nothing about that job any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.plan.jobs import Held, held_from, held_object

__all__ = ["Holdings", "KeepHoldings", "LoadHoldings", "Note"]

LoadHoldings = Callable[[], Mapping[str, Sequence[Mapping[str, Any]]]]  # by site, what `keep` was given last
KeepHoldings = Callable[[str, list[dict[str, Any]]], None]  # a site, and all that it holds


@dataclass(slots=True)
class Note:
    """A job that a site may hold, because it was ordered to run it."""

    held: Held
    order: int | None = None  # its number; None: not sent yet


class Holdings:
    """What all sites hold; any thread may use it."""

    def __init__(self, load: LoadHoldings, keep: KeepHoldings) -> None:
        """Begin with what the store knows."""
        self._keep = keep
        self._lock = threading.Lock()
        self._said: dict[str, dict[str, Held]] = {
            site: {one.job.name: one for one in map(held_from, held)} for site, held in load().items()
        }
        self._notes: dict[str, dict[str, Note]] = {}
        self._kept = {site: self._of(site) for site in self._said}
        self._keeping: dict[str, threading.Lock] = {}

    def sites(self) -> frozenset[str]:
        """Return the sites that hold something or once did."""
        with self._lock:
            return frozenset({*self._said, *self._notes})

    def of(self, site: str) -> tuple[Held, ...]:
        """Return what a site holds, by job."""
        with self._lock:
            return self._of(site)

    def say(self, site: str, held: Iterable[Held], busy: Collection[str], after: int | None) -> bool:
        """Take what a site says.

        Args:
            site: Who says it.
            held: All that it holds.
            busy: Jobs about which it is carrying out an order; looked up before `held`.
            after: The last order that it had got when it looked; None: it is new, and knows of no order.

        Returns:
            Whether it must be written (`keep`).
        """
        with self._lock:
            before = self._said.get(site, {})
            told = {one.job.name: one for one in held}
            notes = {
                name: note
                for name, note in self._notes.get(site, {}).items()
                if name in busy or note.order is None or (after is not None and note.order > after)
            }
            for name in busy:
                if name in before and name not in told and name not in notes:
                    notes[name] = Note(before[name], 0)
            self._said[site], self._notes[site] = told, notes
            return self._of(site) != self._kept.get(site, ())

    def expect(self, held: Held) -> Note:
        """Note that a site is about to be ordered to run a job, and write it."""
        note = Note(held)
        with self._lock:
            self._notes.setdefault(held.site, {})[held.job.name] = note
        self.keep(held.site)
        return note

    def withdraw(self, note: Note) -> None:
        """Forget a note whose order was never sent; whoever writes next writes that too."""
        with self._lock:
            notes = self._notes.get(note.held.site, {})
            if notes.get(note.held.job.name) is note:
                del notes[note.held.job.name]

    def keep(self, site: str) -> None:
        """Write what a site holds, if that has changed; those who come meanwhile wait, and then need not write."""
        with self._lock:
            keeping = self._keeping.setdefault(site, threading.Lock())
        with keeping:
            with self._lock:
                found = self._of(site)
                if found == self._kept.get(site, ()):
                    return
            self._keep(site, [held_object(one) for one in found])
            with self._lock:
                self._kept[site] = found

    def _of(self, site: str) -> tuple[Held, ...]:
        found = dict(self._said.get(site, {}))
        for name, note in self._notes.get(site, {}).items():
            before = found.get(name)
            if before is None or before.epoch <= note.held.epoch:
                found[name] = note.held
        return tuple(found[name] for name in sorted(found))
