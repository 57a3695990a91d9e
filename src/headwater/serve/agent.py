"""How does an agent live?

`AgentLoop` keeps a `run.agent.Agent` going: it tends the jobs every second whether the controller is there or
not, says hello until somebody answers, waits for orders, carries each out in a thread of its own, and says what
the site holds every second and after every change. Orders of a session that is over are not begun; those that
are being carried out are named as `busy`, so that nobody takes their jobs for free.

    HW4937   another agent uses this state folder
    HW4919   an order that came too late, or that this agent does not understand
"""

from __future__ import annotations

import fcntl
import queue
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import BindError, HeadwaterError
from headwater.plan.jobs import Topic, held_object, job_from
from headwater.run.agent import Agent
from headwater.serve.hands import Hands, Tries
from headwater.serve.line import Away, Declined, Line

__all__ = ["AgentLoop", "instance"]

BEAT_S = 1.0  # between two reports, and between two looks at the jobs
HASTE_S = 0.25  # between two reports while a job is starting: somebody waits for it
POLL_S = 2.0  # a poll is a sign of life too, also while a report takes long: shorter than a site may be silent
MOST_AT_ONCE = 32
TRIES = 3  # to move a checkpoint
GRACE_S = 10.0  # for orders that are being carried out when it is stopped
MOST_LOG = 400_000  # characters
CHANGING = {"run", "halt", "rest", "drop"}


@contextmanager
def instance(folder: Path) -> Iterator[str]:
    """Give the id of a state folder, which stays the same, and hold the folder for this process alone.

    Raises:
        BindError: HW4937.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "instance").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BindError(
                f"HW4937 another agent uses the state folder '{folder}'. Stop that one first, or choose another folder."
            ) from None
        file.seek(0)
        found = file.read().strip()
        if len(found) != 32 or not set(found) <= set("0123456789abcdef"):
            found = secrets.token_hex(16)
            file.seek(0)
            file.truncate()
            file.write(found)
            file.flush()
        yield found


@dataclass(eq=False)
class _Session:
    name: str = field(default_factory=lambda: secrets.token_hex(16))
    after: int = 0  # the greatest order that has come
    number: int = 0  # of the last report
    over: threading.Event = field(default_factory=threading.Event)


class AgentLoop:
    """The life of one agent."""

    def __init__(
        self,
        agent: Agent,
        line: Line,
        instance: str,
        broker: Callable[[], str],
        told: Callable[[], Mapping[str, Any]] = dict,
        logs: Callable[[str, int], str] = lambda name, lines: "",
        address: str | None = None,
        version: str = "",
        say: Callable[[str], None] = lambda _: None,
        password: str | None = None,
        keys: Callable[[Mapping[str, str]], None] = lambda _: None,
        goals: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        """Take all parts; `run` begins.

        Args:
            agent: With its engine, broker and shelf.
            line: To the controller.
            instance: Id of the agent's state folder (`instance`).
            broker: Gives 'host:port' of the site's broker.
            told: Gives what else is shown of the site.
            logs: Gives the last lines of a job's log.
            address: A label that jobs may call the site by.
            version: Of this program.
            say: Is told what happens, a sentence each.
            password: Of the site's broker; None: it asks for none.
            keys: Is told the passwords of other brokers that jobs need, by address.
            goals: Is told what is wanted of latency goals.
        """
        self._goals = goals
        self._password, self._keys = password, keys
        self._agent, self._line, self._instance = agent, line, instance
        self._broker, self._told, self._logs = broker, told, logs
        self._address, self._version, self._say = address, version, say
        self._stop = threading.Event()
        self._session: _Session | None = None
        self._busy: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._hands = Hands(MOST_AT_ONCE)
        self._kick = threading.Event()  # a report is due
        self._asked: queue.SimpleQueue[tuple[_Session, int]] = queue.SimpleQueue()  # orders to report
        self._troubles: set[str] = set()
        self._is_starting = False  # whether some job was starting when it was looked last

    def run(self, stop: threading.Event) -> None:
        """Live until stopped; jobs go on afterwards."""
        parts = (self._talk, self._report_always, self._tend_always)
        threads = [threading.Thread(target=part, name=part.__name__.strip("_"), daemon=True) for part in parts]
        for one in threads:
            one.start()
        stop.wait()
        self._stop.set()
        self._kick.set()
        end_s = time.monotonic() + GRACE_S
        self._hands.join(GRACE_S)
        self._leave(self._session)  # the poll that waits comes back with that
        for one in threads:
            one.join(max(0.0, end_s - time.monotonic()))
        self._leave(self._session)  # a hello may have been on its way
        self._line.close()

    # The session: hello, orders, answers.

    def _talk(self) -> None:
        tries = Tries(self._stop)
        while not self._stop.is_set():
            try:
                self._session = session = self._greet()
                self._kick.set()
                try:
                    self._follow(session, tries)
                finally:
                    if (
                        not self._stop.is_set()
                    ):  # else orders in hand are still answered, and `run` says that it is over
                        session.over.set()
            except Exception as error:  # noqa: BLE001 - an agent goes on whatever its engine or the network does
                self._trouble("controller", str(error) or type(error).__name__)
                tries.pause()

    def _greet(self) -> _Session:
        self._line.renew()
        session = _Session()
        busy, held = self._seen()
        self._line.post(
            "/hello",
            {
                "session": session.name,
                "instance": self._instance,
                "broker": self._broker(),
                "address": self._address,
                "version": self._version,
                "held": held,
                "busy": busy,
                "password": self._password,
            },
        )
        return session

    def _leave(self, session: _Session | None) -> None:
        """Say that the session is over, so that nobody waits for its answers."""
        if session is not None and not session.over.is_set():
            session.over.set()
            with suppress(BindError):
                self._line.post("/bye", {"session": session.name})

    def _follow(self, session: _Session, tries: Tries) -> None:
        """Carry out the orders of a session until it is over."""
        has_begun = False
        while not (self._stop.is_set() or session.over.is_set()):
            query: dict[str, str | int | float] = {"session": session.name, "after": session.after, "wait_s": POLL_S}
            try:
                found = self._line.get("/orders", query, POLL_S).get("orders")
                self._accept(session, found if isinstance(found, list) else [])
            except Declined as error:
                if self._stop.is_set():
                    return
                if not has_begun:
                    raise
                self._say(f"controller: {error}")
                return
            except BindError as error:
                self._trouble("controller", str(error))
                tries.pause()
            else:
                self._trouble("controller", "")
                tries.reset()
                has_begun = True

    def _accept(self, session: _Session, orders: Sequence[Mapping[str, Any]]) -> None:
        fresh = [one for one in orders if int(one["id"]) > session.after]  # the others are being done, or are done
        if not fresh:
            return
        with self._lock:  # first all are known to be in hand, then it is said that they have come
            self._busy.update(_name(one) for one in fresh if _name(one))
        session.after = max(int(one["id"]) for one in fresh)
        came_s = time.monotonic()
        for order in fresh:
            if order["do"] == "report":
                self._asked.put((session, int(order["id"])))
                self._kick.set()
            else:
                self._hands.do(lambda order=order: self._carry_out(session, order, came_s))  # type: ignore[misc]

    def _carry_out(self, session: _Session, order: Mapping[str, Any], came_s: float) -> None:
        result: Mapping[str, Any] | None = None
        error = ""
        try:
            late_s = time.monotonic() - came_s - float(order.get("within_s", float("inf")))
            if late_s > 0 or session.over.is_set() or self._stop.is_set():
                raise BindError(f"HW4919 '{order['do']}' was not begun: nobody waits for it any more.")
            result = self._do(order)
        except HeadwaterError as found:
            error = str(found)
        except Exception as found:  # noqa: BLE001 - whoever ordered it must hear of it, whatever it is
            error = f"HW4919 site '{self._agent.site}' failed at '{order.get('do')}': {type(found).__name__}: {found}"
            self._say(error)
        finally:
            with self._lock:
                self._busy -= Counter([_name(order)])
        self._answer(session, int(order["id"]), error, result, tries=None)
        if order["do"] in CHANGING:
            self._kick.set()

    def _do(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        agent, do = self._agent, order["do"]
        if order.get("keys"):
            self._keys(order["keys"])
        if do == "run":
            take = order["take"]
            fetch = None if take is None else lambda: _tried(lambda: self._line.fetch(f"/checkpoints/{take}"))
            agent.run(job_from(order["job"]), order["epoch"], order["seat"], fetch, order["brokers"])
        elif do == "halt":
            return {"positions": dict(agent.halt(order["name"], order["epoch"], order["is_drain"]))}
        elif do == "pack":
            packed = agent.pack(order["name"], order["epoch"])
            _tried(lambda: self._line.put(f"/checkpoints/{order['checkpoint']}", packed))
        elif do == "rest":
            agent.rest(order["name"], order["epoch"])
        elif do == "drop":
            agent.drop(order["name"], order["epoch"])
        elif do == "warm":
            agent.warm(job_from(order["job"]), order["brokers"])
        elif do == "clear":
            agent.clear(Topic(**order["topic"]))
        elif do == "logs":
            return {"text": self._logs(order["name"], order["lines"])[-MOST_LOG:]}
        else:
            raise BindError(f"HW4919 site '{agent.site}' does not know the order '{do}'. Bring it to one version.")
        return {}

    def _answer(
        self, session: _Session, number: int, error: str, result: Mapping[str, Any] | None, tries: int | None
    ) -> None:
        """Say what came of an order, until it is heard or nobody asks any more."""
        body = {
            "session": session.name,
            "id": number,
            "ok": not error,
            "error": _sendable(error) if error else None,
            "result": result,
        }
        pauses = Tries(self._stop)
        while not session.over.is_set() and tries != 0:
            try:
                self._line.post("/answers", body)
                return
            except Declined as declined:
                if declined.status != 409:
                    self._say(f"an answer was refused: {declined}")
                return
            except Away:
                if self._stop.is_set():
                    return
                tries = None if tries is None else tries - 1
                pauses.pause()

    # Reports.

    def _report_always(self) -> None:
        while not self._stop.is_set():
            self._kick.wait(HASTE_S if self._is_starting else BEAT_S)
            self._kick.clear()
            asked: list[tuple[_Session, int]] = []
            with suppress(queue.Empty):
                while True:
                    asked.append(self._asked.get_nowait())
            session = self._session
            if session is None or session.over.is_set() or self._stop.is_set():
                continue
            error = self._report(session)
            for of, number in asked:
                self._answer(of, number, error, {}, tries=2)

    def _report(self, session: _Session) -> str:
        """Say what the site holds; return what went wrong."""
        session.number += 1
        after = session.after
        try:
            busy, held = self._seen()
            body = {"session": session.name, "number": session.number, "held": held, "busy": busy, "after": after}
            answer = self._line.post("/report", {**body, "told": dict(self._told())})
            if isinstance(answer.get("goals"), dict):
                self._goals(answer)
        except Declined as error:
            if error.code == "HW4936":
                session.over.set()
            self._trouble("report", str(error))
            return str(error)
        except Away as error:
            return str(error)  # told by whoever polls
        except Exception as error:  # noqa: BLE001 - the next report may do better
            self._trouble("report", str(error))
            return str(error) or type(error).__name__
        self._trouble("report", "")
        return ""

    def _seen(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Return the jobs in hand and then what is held; in that order, or one could be in neither."""
        with self._lock:
            busy = sorted(self._busy)
        held = self._agent.held()
        self._is_starting = any(one.state == "starting" for one in held)
        return busy, [held_object(one) for one in held]

    # The jobs.

    def _tend_always(self) -> None:
        known: set[str] = set()
        while not self._stop.is_set():
            try:
                found = set(self._agent.tend())
            except Exception as error:  # noqa: BLE001 - jobs are looked after as long as the agent lives
                found = {f"{type(error).__name__}: {error}"}
            for one in sorted(found - known):
                self._say(one)
            known = found
            self._stop.wait(BEAT_S)

    def _trouble(self, about: str, text: str) -> None:
        """Say what is wrong, once as long as it lasts."""
        with self._lock:
            lasting = {one for one in self._troubles if one.startswith(f"{about}: ")}
            news = f"{about}: {text}"
            if text and news in lasting:
                return
            self._troubles -= lasting
            if text:
                self._troubles.add(news)
        if text:
            self._say(news)
        elif lasting:
            self._say(f"{about}: it works again")


def _tried(act: Callable[[], Any]) -> Any:
    """Do what a connection that breaks may spoil; done twice is done once."""
    for _ in range(TRIES - 1):
        with suppress(Away):
            return act()
    return act()


def _name(order: Mapping[str, Any]) -> str:
    """Return the job that an order changes, or nothing."""
    if order["do"] == "run":
        return str(order["job"]["name"])
    return str(order["name"]) if order["do"] in CHANGING else ""


def _sendable(text: str) -> str:
    """Return a text that JSON can carry, short enough."""
    return text.encode("utf-8", "replace").decode()[:20_000]
