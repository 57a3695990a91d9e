"""How does the controller speak with its sites?

`Desk` is the port `Sites` over agents that dial in. Orders are handed to agents that wait for them, and callers
wait for the answer: both are woken, nobody polls. A checkpoint goes from one agent to another through a folder
here. `api_agents` is its face for agents; `sessions` has who is there, `holdings` what they hold.

    HW4934   a site refuses and does not say why in our words
    HW4915   the broker of a site whose address is not known
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from headwater.errors import BindError
from headwater.plan.jobs import Held, Job, Observed, Topic, job_object
from headwater.ports import Positions
from headwater.serve.holdings import Holdings, KeepHoldings, LoadHoldings
from headwater.serve.sessions import LOST_S, SILENT_S, Hello, Presence, Sessions
from headwater.serve.spool import MOST_BYTES, Spool

__all__ = ["Desk"]

Found = TypeVar("Found")

LONG_S = 180.0  # warm, run, pack, halt with drain: whatever loads or moves state
SHORT_S = 60.0
REPORT_S = 5.0
CODED = re.compile(r"HW\d{4} ")
HASH = re.compile(r"[0-9a-f]{64}")


class Desk:
    """All sites; any thread may use it, but its blocking verbs must not be called on the server's event loop."""

    def __init__(
        self,
        uploads: Path,
        spool: Path,
        load_holdings: LoadHoldings = dict,
        keep_holdings: KeepHoldings = lambda site, held: None,
        wishes: Callable[[], Mapping[str, Any]] = dict,
        *,
        silent_s: float = SILENT_S,
        lost_s: float = LOST_S,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Begin with nobody there.

        Args:
            uploads: Folder with what was uploaded, by hash.
            spool: Folder for checkpoints on their way; it is emptied.
            load_holdings: Gives what the sites held, as `keep_holdings` was told by an earlier controller.
            keep_holdings: Writes what a site holds; called when that changes, by any thread, one at a time for
                each site.
            wishes: Gives what is wanted of latency goals; agents hear of it with every report, so that it is asked
                on the event loop, every second for every site: it must be in memory.
            silent_s: A site that is not heard of for so long gets no orders.
            lost_s: And orders that it has are not waited for after so long.
            most_bytes: Of a checkpoint.
        """
        self._uploads = uploads
        self.wishes = wishes
        self._spool = Spool(spool, most_bytes)
        self._holdings = Holdings(load_holdings, keep_holdings)
        self._sessions = Sessions(silent_s, lost_s)
        self._hands = ThreadPoolExecutor(4, thread_name_prefix="desk")  # for what would hold up the event loop

    # The port `Sites`.

    def observe(self) -> Observed:
        """Return what all sites hold, asked just now; of those that do not answer, what they said last."""
        asked = []
        for site, one in self._sessions.presence().items():
            if one.is_reached:
                with contextlib.suppress(BindError):  # it went a moment ago
                    asked.append(self._sessions.send(site, "report", REPORT_S, {}))
        reached = set()
        for order in asked:
            with contextlib.suppress(BindError):
                self._sessions.wait(order, self._sessions.silent_s)
                reached.add(order.site)
        return self._observed(reached)

    def warm(self, site: str, job: Job) -> None:
        """Let a site be ready to start a job at once."""
        self._sessions.check(site)
        self._do(site, "warm", LONG_S, {"job": job_object(job), **self._ways(job)})

    def halt(self, site: str, name: str, epoch: int, is_drain: bool) -> Positions:
        """Stop a job of this epoch, and return where its sources go on if it was drained."""
        what = {"name": name, "epoch": epoch, "is_drain": is_drain}
        found = self._do(site, "halt", LONG_S if is_drain else SHORT_S, what).get("positions")
        if not isinstance(found, Mapping):
            raise BindError(f"HW4934 site '{site}' stopped job '{name}' and did not say where its sources go on.")
        return {str(key): str(value) for key, value in found.items()}

    def run(self, site: str, job: Job, epoch: int, seat: Positions, take_from: tuple[str, int] | None) -> None:
        """Let a site run a job, or only hold it where the job says so."""
        self._sessions.check(site)
        what = {"job": job_object(job), "epoch": epoch, "seat": dict(seat), **self._ways(job)}
        note = self._holdings.expect(Held(site, job, epoch, job.is_run, "starting" if job.is_run else "stopped"))
        try:
            with contextlib.ExitStack() as until_taken:
                take = None
                if take_from is not None:
                    packer, of_epoch = take_from
                    take = until_taken.enter_context(self._spool.way(packer, site))
                    self._do(packer, "pack", LONG_S, {"name": job.name, "epoch": of_epoch, "checkpoint": take})
                order = self._sessions.send(site, "run", LONG_S, {**what, "take": take})
                note.order = order.number
                self._end(site, "run", lambda: self._sessions.wait(order))
        finally:
            if note.order is None:
                self._holdings.withdraw(note)

    def rest(self, site: str, name: str, epoch: int) -> None:
        """Let a site keep a job that is not wanted any more."""
        self._do(site, "rest", SHORT_S, {"name": name, "epoch": epoch})

    def drop(self, site: str, name: str, epoch: int) -> None:
        """Let a site forget a job of this epoch or an earlier one."""
        self._do(site, "drop", SHORT_S, {"name": name, "epoch": epoch})

    def clear(self, topic: Topic) -> None:
        """Empty a channel."""
        self._do(topic.broker, "clear", SHORT_S, {"topic": asdict(topic)})

    # More for the controller.

    def latest(self) -> Observed:
        """Return what the sites said last, without asking; at most a second old where they answer."""
        return self._observed({site for site, one in self._sessions.presence().items() if one.is_reached})

    def logs(self, site: str, name: str, lines: int) -> str:
        """Return the last lines of a job's log.

        Raises:
            BindError: HW4932, or the site has none.
        """
        return str(self._do(site, "logs", SHORT_S, {"name": name, "lines": lines}).get("text", ""))

    def sites(self) -> tuple[Presence, ...]:
        """Return how every site is known, by name; also those that an earlier controller knew."""
        found = self._sessions.presence()
        for site in self._holdings.sites():
            found.setdefault(site, Presence(site, False, None, None))
        return tuple(found[site] for site in sorted(found))

    def brokers(self) -> dict[str, str]:
        """Return the address of each site's broker, as its agent said."""
        return {site: one.hello.broker for site, one in self._sessions.presence().items() if one.hello is not None}

    def revoke(self, site: str) -> None:
        """End the session of a site whose token counts no more; orders that it has fail."""
        self._sessions.end(site)

    def close(self) -> None:
        """Send all agents away until the next controller; call it before the server is stopped."""
        self._sessions.close()
        self._hands.shutdown()

    # For `api_agents`.

    async def hello(self, site: str, hello: Hello) -> None:
        """Begin a session; raises Refused."""
        if self._sessions.begin(site, hello, lambda: self._holdings.say(site, hello.held, hello.busy, None)):
            await self.aside(lambda: self._holdings.keep(site))

    async def report(
        self,
        site: str,
        session: str,
        number: int,
        held: tuple[Held, ...],
        told: Mapping[str, Any],
        busy: frozenset[str],
        after: int,
    ) -> None:
        """Take a report; raises Refused."""
        if self._sessions.report(site, session, number, told, lambda: self._holdings.say(site, held, busy, after)):
            await self.aside(lambda: self._holdings.keep(site))

    async def orders(self, site: str, session: str, after: int, wait_s: float) -> list[dict[str, Any]]:
        """Return orders as soon as there are some; raises Refused."""
        return await self._sessions.orders(site, session, after, wait_s)

    def answer(self, site: str, session: str, number: int, error: str | None, result: Mapping[str, Any]) -> None:
        """Take the end of an order; raises Refused."""
        self._sessions.answer(site, session, number, error, result)

    def bye(self, site: str, session: str) -> None:
        """End a session; raises Refused."""
        self._sessions.leave(site, session)

    def spool(self, site: str) -> Spool:
        """Return where checkpoints lie, to an agent that has a session; raises Refused."""
        self._sessions.heard(site)
        return self._spool

    def upload(self, digest: str) -> Path | None:
        """Return a file that was uploaded, if there is one."""
        path = self._uploads / digest
        return path if HASH.fullmatch(digest) and path.is_file() else None

    async def aside(self, act: Callable[[], Found]) -> Found:
        """Do what may take a while, and let the event loop go on."""
        return await asyncio.get_running_loop().run_in_executor(self._hands, act)

    def _do(self, site: str, do: str, within_s: float, what: Mapping[str, Any]) -> Mapping[str, Any]:
        order = self._sessions.send(site, do, within_s, what)
        return self._end(site, do, lambda: self._sessions.wait(order))

    def _end(self, site: str, do: str, wait: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        try:
            return wait()
        except BindError as error:
            if CODED.match(str(error)):
                raise
            raise BindError(f"HW4934 site '{site}' could not '{do}': {error}") from None

    def _observed(self, reached: set[str]) -> Observed:
        known = self._holdings.sites() | reached
        return Observed(tuple(one for site in sorted(known) for one in self._holdings.of(site)), frozenset(reached))

    def _ways(self, job: Job) -> dict[str, Any]:
        """Return how a job reaches its brokers: addresses by name, and passwords by address where one is asked for."""
        addresses = self._addresses(job)
        hellos = {site: one.hello for site, one in self._sessions.presence().items() if one.hello is not None}
        keys = {hellos[site].broker: hellos[site].password for site in addresses if hellos[site].password is not None}
        return {"brokers": addresses, **({"keys": keys} if keys else {})}

    def _addresses(self, job: Job) -> dict[str, str]:
        """Return the addresses of the sites' brokers that a job needs; users' brokers are called by theirs."""
        known, found = self.brokers(), {}
        for topic in job.topics:
            if topic.broker in known:
                found[topic.broker] = known[topic.broker]
            elif topic.broker and ":" not in topic.broker and not topic.name.startswith("@"):
                raise BindError(
                    f"HW4915 job '{job.name}' needs topic '{topic.name}' of site '{topic.broker}', whose broker's "
                    "address is not known: its agent has not been heard of since the controller began. Start that "
                    "agent; the job follows by itself."
                )
        return found
