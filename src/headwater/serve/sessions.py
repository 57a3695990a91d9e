"""Which agents are there, and what have they been ordered to do?

An agent begins a session for its site and is then heard of every second or so. Orders belong to a session: an
order that a session did not answer fails with it, and is never given to the next one, because nobody knows how
far it came. Whoever gave it looks at the world again. An order is given at every poll that does not say that it
has come, so a poll that breaks off loses none.

    HW4932   a site that does not answer
    HW4933   a session that ended while it had an order
    HW4936   a session that is over
    HW4937   two agents for one site
    HW4913   a report or an answer that was sent before
    HW4914   the controller is stopping
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from headwater.errors import BindError
from headwater.plan.jobs import Held

__all__ = ["Hello", "Order", "Presence", "Refused", "Sessions"]

SILENT_S = 5.0  # not heard of for so long, a site gets no orders
LOST_S = 15.0  # nor is an order waited for that it has; longer, as it may only be busy
MOST_REMEMBERED = 4096  # sessions of a site that cannot be begun again


class Refused(BindError):
    """What an agent asked for is not done; `status` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        """Take both."""
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Hello:
    """How an agent introduces itself."""

    session: str  # by chance, another one each time
    instance: str  # of its state folder; '' : not told
    broker: str  # 'host:port' of the site's broker
    address: str | None = None  # a label that jobs may call the site by
    version: str = ""
    held: tuple[Held, ...] = ()
    busy: frozenset[str] = frozenset()  # jobs about which it still carries out an order of an earlier session
    password: str | None = field(
        default=None, repr=False
    )  # of its broker; kept in memory alone, None: it asks for none


@dataclass(frozen=True, slots=True)
class Presence:
    """How a site is known."""

    site: str
    is_reached: bool
    silence_s: float | None  # since it was heard of; None: not since the controller began
    hello: Hello | None  # its last
    told: Mapping[str, Any] = field(default_factory=dict)  # with its last report, only shown


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Something that an agent is to do."""

    number: int
    site: str
    session: _Session
    body: Mapping[str, Any]
    end_s: float  # on our clock: nobody waits for it any longer
    done: Future[Mapping[str, Any]] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Session:
    hello: Hello
    heard_s: float
    number: int = -1  # of the last report
    told: Mapping[str, Any] = field(default_factory=dict)
    open: dict[int, Order] = field(default_factory=dict)  # not answered yet
    ring: Callable[[], None] | None = None  # wakes the poll that waits
    is_over: bool = False

    def wake(self) -> None:
        if self.ring is not None:
            self.ring()
            self.ring = None


@dataclass(slots=True)
class _Site:
    session: _Session | None = None
    hello: Hello | None = None
    heard_s: float | None = None
    used: dict[str, None] = field(default_factory=dict)  # sessions that were begun, oldest first


class Sessions:
    """All agents that there are; any thread may use it."""

    def __init__(self, silent_s: float = SILENT_S, lost_s: float = LOST_S) -> None:
        """Begin with nobody."""
        self.silent_s = silent_s
        self._lost_s = max(lost_s, silent_s)
        self._lock = threading.Lock()
        self._sites: dict[str, _Site] = {}
        self._number = 0
        self._is_closed = False

    # For agents; quick, so that an event loop may call them.

    def begin(self, site: str, hello: Hello, take: Callable[[], bool]) -> bool:
        """Begin a session and end the one before; `take` is called if it counts, and what it returns is returned.

        It is called before anybody can send an order to the new session.

        Raises:
            Refused: HW4936, it was begun before; HW4937, another agent is there.
        """
        with self._lock:
            self._stopping()
            known = self._sites.setdefault(site, _Site())
            if hello.session in known.used:
                raise _over(site)
            before, now_s = known.session, time.monotonic()
            is_same = before is not None and bool(hello.instance) and before.hello.instance == hello.instance
            if before is not None and not is_same and now_s - before.heard_s < self.silent_s:
                raise Refused(
                    409,
                    f"HW4937 site '{site}' has an agent already, with another state folder, which was heard of "
                    f"{now_s - before.heard_s:.1f} s ago. Stop that one first, or give this one another site's name "
                    "and token.",
                )
            self._end(known)
            known.session, known.hello, known.heard_s = _Session(hello, now_s), hello, now_s
            known.used[hello.session] = None
            if len(known.used) > MOST_REMEMBERED:
                del known.used[next(iter(known.used))]
            return take()

    def report(self, site: str, session: str, number: int, told: Mapping[str, Any], take: Callable[[], bool]) -> bool:
        """Take a report: `take` is called if it counts, and what it returns is returned.

        Raises:
            Refused: HW4936; HW4913, a later one has come already.
        """
        with self._lock:
            found = self._heard(site, session)
            if number <= found.number:
                raise Refused(
                    409,
                    f"HW4913 report {number} of site '{site}' comes after report {found.number}: it was sent before, "
                    "and does not count.",
                )
            found.number, found.told = number, told
            return take()

    def answer(self, site: str, session: str, number: int, error: str | None, result: Mapping[str, Any]) -> None:
        """Take the end of an order; `error` says why it was not done.

        Raises:
            Refused: HW4936; HW4913, nobody waits for it.
        """
        with self._lock:
            order = self._heard(site, session).open.pop(number, None)
        if order is None:
            raise Refused(
                409,
                f"HW4913 nobody waits for an answer of site '{site}' to order {number}: it was answered before, or "
                "took too long.",
            )
        if error is None:
            order.done.set_result(result)
        else:
            order.done.set_exception(BindError(error))

    async def orders(self, site: str, session: str, after: int, wait_s: float) -> list[dict[str, Any]]:
        """Return the orders above a number, as soon as there is one; one poll waits at a time, the last.

        Raises:
            Refused: HW4936.
        """
        loop, bell = asyncio.get_running_loop(), asyncio.Event()

        def ring() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and who waited with it
                loop.call_soon_threadsafe(bell.set)

        with self._lock:
            found = self._heard(site, session)
            given = _given(found, after)
            found.wake()
            if given or wait_s <= 0:
                return given
            found.ring = ring
        try:
            async with asyncio.timeout(wait_s):
                await bell.wait()
        except TimeoutError:
            pass
        finally:
            with self._lock:
                if found.ring is ring:
                    found.ring = None
        with self._lock:
            self._stopping()
            if found.is_over:
                raise _over(site)
            return _given(found, after)

    def heard(self, site: str, session: str | None = None) -> None:
        """Note that a site gave a sign of life.

        Raises:
            Refused: HW4936.
        """
        with self._lock:
            self._heard(site, session)

    # For the controller.

    def check(self, site: str) -> None:
        """Raise BindError HW4932 unless a site answers."""
        with self._lock:
            self._reached(site)

    def send(self, site: str, do: str, within_s: float, what: Mapping[str, Any]) -> Order:
        """Give an order to a site.

        Raises:
            BindError: HW4932.
        """
        with self._lock:
            self._stopping()
            session = self._reached(site)
            self._number += 1
            order = Order(self._number, site, session, {"do": do, **what}, time.monotonic() + within_s)
            session.open[order.number] = order
            session.wake()
            return order

    def wait(self, order: Order, lost_s: float | None = None) -> Mapping[str, Any]:
        """Wait for an order's end and return its result.

        Raises:
            BindError: HW4932 or HW4933, nobody knows how far it came; or what the site answers.
        """
        lost_s = self._lost_s if lost_s is None else lost_s
        while True:
            with self._lock:
                heard_s = order.session.heard_s
            with contextlib.suppress(TimeoutError):
                return order.done.result(max(0.0, min(order.end_s, heard_s + lost_s) - time.monotonic()))
            now_s = time.monotonic()
            with self._lock:
                silence_s = now_s - order.session.heard_s
                if order.done.done() or (now_s < order.end_s and silence_s < lost_s):
                    continue
                if order.session.open.pop(order.number, None) is None:
                    continue  # its answer is being taken just now
            if silence_s >= lost_s:
                raise _silent(order.site, silence_s, lost_s)
            raise BindError(
                f"HW4932 site '{order.site}' did not finish '{order.body['do']}' in time, though it answers. It may "
                "still do so; the controller looks again and does what is missing."
            )

    def leave(self, site: str, session: str) -> None:
        """End a session, as its agent wishes, and fail the orders that it has.

        Raises:
            Refused: HW4936.
        """
        with self._lock:
            self._heard(site, session)
            self._end(self._sites[site])

    def end(self, site: str) -> None:
        """End a site's session, and fail the orders that it has."""
        with self._lock:
            known = self._sites.get(site)
            if known is not None:
                self._end(known)

    def close(self) -> None:
        """End all sessions, and begin none any more."""
        with self._lock:
            self._is_closed = True
            for known in self._sites.values():
                self._end(known)

    def presence(self) -> dict[str, Presence]:
        """Return how every site is known that was ever heard of, by name."""
        with self._lock:
            now_s = time.monotonic()
            found = {}
            for site, known in sorted(self._sites.items()):
                session = known.session
                heard_s = known.heard_s if session is None else session.heard_s
                silence_s = None if heard_s is None else now_s - heard_s
                is_reached = session is not None and silence_s is not None and silence_s < self.silent_s
                told = {} if session is None else session.told
                found[site] = Presence(site, is_reached, silence_s, known.hello, told)
            return found

    def _heard(self, site: str, session: str | None) -> _Session:
        self._stopping()
        known = self._sites.get(site)
        found = None if known is None else known.session
        if known is None or found is None or session not in {None, found.hello.session}:
            raise _over(site)
        found.heard_s = known.heard_s = time.monotonic()
        return found

    def _reached(self, site: str) -> _Session:
        known = self._sites.get(site)
        if known is None or known.heard_s is None:
            raise BindError(
                f"HW4932 site '{site}' has not been heard of since the controller began. Start its agent: headwater "
                f"agent --site {site}"
            )
        silence_s = time.monotonic() - known.heard_s
        if known.session is None:
            raise BindError(
                f"HW4932 site '{site}' does not answer since {silence_s:.1f} s: its agent was stopped, or its token "
                "counts no more. What it runs goes on. Start the agent again, with a token that counts."
            )
        if silence_s >= self.silent_s:
            raise _silent(site, silence_s, self.silent_s)
        return known.session

    def _end(self, known: _Site) -> None:
        session, known.session = known.session, None
        if session is None:
            return
        session.is_over = True
        for order in session.open.values():
            order.done.set_exception(
                BindError(
                    f"HW4933 the agent of site '{order.site}' began anew or was sent away while it had the order "
                    f"'{order.body['do']}'. How far it came is looked up, and what is missing is done."
                )
            )
        session.open.clear()
        session.wake()

    def _stopping(self) -> None:
        if self._is_closed:
            raise Refused(503, "HW4914 the controller is stopping. It is asked again until it is back.")


def _given(session: _Session, after: int) -> list[dict[str, Any]]:
    now_s = time.monotonic()
    return [
        {"id": order.number, "within_s": round(order.end_s - now_s, 3), **order.body}
        for order in session.open.values()
        if order.number > after and order.end_s > now_s
    ]


def _over(site: str) -> Refused:
    return Refused(
        409,
        f"HW4936 this session of site '{site}' is over: another one has begun since, or the controller has. Say hello "
        "with another session.",
    )


def _silent(site: str, silence_s: float, most_s: float) -> BindError:
    return BindError(
        f"HW4932 site '{site}' does not answer since {silence_s:.1f} s (at most {most_s:g} s). What it runs goes on. "
        "Look whether its agent runs and reaches this controller; it is asked again when it is back."
    )
