"""What does the controller remember, whatever happens to it?

One SQLite file: the jobs that are wanted, the pipelines that some of them come from, which uploads there are,
hashes of tokens, what was changed by whom, and what each site said last that it holds. A change is one
transaction: all of it is there afterwards, or nothing. What is wanted, latency goals included, is also kept in
memory, so that asking for it costs nothing; the store is the only writer of its file (the controller holds a lock
on its folder).
Any thread may call anything.

    HW4220  the file cannot be opened, or another version wrote it
    HW4221  the file cannot be written or read
"""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from headwater.errors import BindError
from headwater.plan.jobs import Job, Topic, job_from, job_object

__all__ = ["Alias", "Change", "Deployed", "Entry", "Goal", "Kind", "Store", "Token"]

FORM = 1  # of the tables; another number means another meaning
MOST_HISTORY = 5000  # changes that are remembered

POLICY = "@policy"  # in the place of a name among the goals: nothing else is called so

Goal = Mapping[str, str | float | None]  # `class` and `p99_s` of a composition or pipeline
Kind = Literal["operator", "agent"]

_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE wanted (
  name TEXT PRIMARY KEY, composition TEXT NOT NULL, site TEXT NOT NULL, wiring TEXT NOT NULL, code BLOB NOT NULL,
  entry TEXT NOT NULL, part BLOB, is_stateful INTEGER, is_run INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE forced (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE pipelines (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE uploads (hash BLOB PRIMARY KEY, size_bytes INTEGER NOT NULL, at_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE aliases (name TEXT PRIMARY KEY, hash BLOB NOT NULL, at_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, site TEXT, hash BLOB NOT NULL, created_s REAL NOT NULL, revoked_s REAL)
  WITHOUT ROWID;
CREATE TABLE history (
  id INTEGER PRIMARY KEY, at_s REAL NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, outcome TEXT);
CREATE TABLE held (site TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
"""
_LATER = (
    "CREATE TABLE IF NOT EXISTS begun (circle TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS goals (composition TEXT PRIMARY KEY, quality TEXT, p99_s REAL) WITHOUT ROWID",
)


@dataclass(frozen=True, slots=True)
class Deployed:
    """A pipeline as it was asked for, and where its operators went."""

    project: str  # as `model.keep.to_json` gives it
    upload: str  # hash of its files
    sites: str  # text of the sites file
    method: str
    seed: int
    asked: Mapping[str, str] | None  # the user's placement; None: searched for
    placement: Mapping[str, str]  # site of every instance


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of what is wanted."""

    who: str  # id of the token that asked
    what: str  # in a few words
    at_s: float  # time of day, seconds since 1970
    put: Mapping[str, Job] = field(default_factory=dict)
    removed: Collection[str] = ()
    pipelines: Mapping[str, Deployed | None] = field(default_factory=dict)  # None: removed
    forced: Collection[str] = ()  # jobs that may leave a site that does not answer
    begun: Mapping[str, Mapping[str, Job] | None] = field(
        default_factory=dict
    )  # circles to be finished first; None: no more


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of the past."""

    id: int
    at_s: float
    who: str
    what: str
    outcome: str | None  # None: it is still under way


@dataclass(frozen=True, slots=True)
class Alias:
    """What was uploaded under a name."""

    name: str
    hash: str
    size_bytes: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Token:
    """A token, of which only the hash is known."""

    id: str
    kind: Kind
    site: str | None  # of an agent
    hash: bytes
    created_s: float
    revoked_s: float | None = None


class Store:
    """The controller's memory."""

    def __init__(self, file: Path) -> None:
        """Open the file, or make it.

        Raises:
            BindError: HW4220.
        """
        self._file = file
        self._lock = threading.RLock()
        self._kept_held: dict[str, bytes] = {}
        try:
            file.touch(mode=0o600)
            self._base = sqlite3.connect(file, check_same_thread=False, isolation_level=None, timeout=10.0)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "wal_autocheckpoint=500", "secure_delete=ON"):
                self._base.execute(f"PRAGMA {pragma}")
            self._prepare()
            self._wanted = self._read_wanted()
            self._forced = frozenset(name for (name,) in self._base.execute("SELECT name FROM forced"))
            self._begun = self._read_begun()
            self._goals, self._policy = self._read_goals()
            self._revision = self._number("revision")
        except (OSError, sqlite3.Error, ValueError, TypeError, zlib.error) as error:
            raise BindError(
                f"HW4220 the store '{file}' cannot be opened: {error}. Give the controller another --state, or put a "
                "copy of the file in its place."
            ) from error

    def close(self) -> None:
        """Put everything into the one file, and close it."""
        with self._lock:
            self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._base.close()

    @property
    def revision(self) -> int:
        """Return how many changes there have been."""
        return self._revision

    def wanted(self) -> Mapping[str, Job]:
        """Return the jobs that are wanted, by name; the mapping does not change any more."""
        return self._wanted

    def forced(self) -> frozenset[str]:
        """Return the jobs that may leave a site that does not answer."""
        return self._forced

    def begun(self) -> Mapping[str, Mapping[str, Job]]:
        """Return, by circle, the jobs as they were wanted when steps began that come to their end first."""
        return self._begun

    def change(self, change: Change) -> int:
        """Make a change, and return its number in the history; afterwards it is there whatever happens.

        Jobs that are put are no longer forced unless the change says so. A composition or pipeline that no job is
        left of takes its latency goal along: another of its name is another thing.
        """
        with self._lock:
            wanted = {name: job for name, job in self._wanted.items() if name not in change.removed} | dict(change.put)
            forced = (self._forced - {*change.put, *change.removed}) | frozenset(change.forced)
            begun = {**self._begun, **change.begun}
            left = {job.composition for job in wanted.values()}
            goals = {name: goal for name, goal in self._goals.items() if name in left}
            with self._writing() as base:
                self._put_jobs(base, change, forced)
                base.executemany(
                    "DELETE FROM goals WHERE composition = ?", [(name,) for name in self._goals if name not in goals]
                )
                self._put_begun(base, change.begun)
                for name, deployed in change.pipelines.items():
                    base.execute("DELETE FROM pipelines WHERE name = ?", (name,))
                    if deployed is not None:
                        base.execute("INSERT INTO pipelines VALUES (?,?)", (name, _packed(asdict(deployed))))
                base.execute("INSERT OR REPLACE INTO meta VALUES ('revision', ?)", (self._revision + 1,))
                number = self._add_history(base, change.at_s, change.who, change.what, None)
            self._wanted, self._forced, self._goals = MappingProxyType(wanted), forced, MappingProxyType(goals)
            self._begun = {name: jobs for name, jobs in begun.items() if jobs is not None}
            self._revision += 1
        return number

    def release(self, circles: Collection[str]) -> None:
        """Let circles go on to what is wanted of them: what was begun before is through, or cannot be."""
        with self._lock:
            with self._writing() as base:
                self._put_begun(base, dict.fromkeys(circles))
            self._begun = {name: jobs for name, jobs in self._begun.items() if name not in circles}

    def unforce(self, names: Collection[str]) -> None:
        """Let jobs stay where they are again when their site does not answer."""
        with self._lock:
            if not self._forced.isdisjoint(names):
                with self._writing() as base:
                    base.executemany("DELETE FROM forced WHERE name = ?", [(name,) for name in names])
                self._forced -= frozenset(names)

    def policy(self) -> str | None:
        """Return the policy by which sites hold goals; None: each as its agent was told."""
        return self._policy

    def goals(self) -> Mapping[str, Goal]:
        """Return the latency goals that were set, by composition or pipeline; the mapping does not change any more."""
        return self._goals

    def set_policy(self, policy: str | None) -> None:
        """Set the policy by which sites hold goals; None: each as its agent was told."""
        self.set_goal(POLICY, None if policy is None else (policy, None))

    def set_goal(self, name: str, goal: tuple[str | None, float | None] | None) -> None:
        """Set the class and the 99th percentile of a composition or pipeline; None: as its project says."""
        with self._lock:
            with self._writing() as base:
                base.execute("DELETE FROM goals WHERE composition = ?", (name,))
                if goal is not None:
                    base.execute("INSERT INTO goals VALUES (?,?,?)", (name, *goal))
            self._goals, self._policy = self._read_goals()

    def note(self, who: str, what: str, at_s: float, outcome: str) -> None:
        """Remember something that changes no job."""
        with self._writing() as base:
            self._add_history(base, at_s, who, what, outcome)

    def conclude(self, outcomes: Mapping[int, str]) -> None:
        """Say what became of changes, by their numbers."""
        if outcomes:
            with self._writing() as base:
                rows = [(text, number) for number, text in outcomes.items()]
                base.executemany("UPDATE history SET outcome = ? WHERE id = ?", rows)

    def history(self, limit: int) -> tuple[Entry, ...]:
        """Return the last changes, the last first."""
        with self._reading() as base:
            rows = base.execute(
                "SELECT id, at_s, who, what, outcome FROM history ORDER BY id DESC LIMIT ?", (limit,)
            ).fetchall()
        return tuple(Entry(*row) for row in rows)

    def pipelines(self) -> tuple[str, ...]:
        """Return the names of all pipelines."""
        with self._reading() as base:
            return tuple(name for (name,) in base.execute("SELECT name FROM pipelines ORDER BY name"))

    def pipeline(self, name: str) -> Deployed | None:
        """Return a pipeline."""
        with self._reading() as base:
            row = base.execute("SELECT body FROM pipelines WHERE name = ?", (name,)).fetchone()
        return None if row is None else Deployed(**_unpacked(row[0]))

    def add_upload(self, alias: Alias) -> bool:
        """Remember that something was uploaded, and its name; return whether its content is new."""
        with self._writing() as base:
            code = _code(alias.hash)
            is_new = base.execute("SELECT 1 FROM uploads WHERE hash = ?", (code,)).fetchone() is None
            base.execute("INSERT OR IGNORE INTO uploads VALUES (?,?,?)", (code, alias.size_bytes, alias.at_s))
            base.execute("INSERT OR REPLACE INTO aliases VALUES (?,?,?)", (alias.name, code, alias.at_s))
        return is_new

    def uploads(self) -> tuple[Alias, ...]:
        """Return what was uploaded, by name."""
        with self._reading() as base:
            rows = base.execute(
                "SELECT name, a.hash, size_bytes, a.at_s FROM aliases a JOIN uploads u ON a.hash = u.hash ORDER BY name"
            ).fetchall()
        return tuple(Alias(name, _hash(code), size, at_s) for name, code, size, at_s in rows)

    def upload(self, name: str) -> str | None:
        """Return the hash of an upload that is named by its alias or by its hash, or None."""
        with self._reading() as base:
            row = base.execute("SELECT hash FROM aliases WHERE name = ?", (name,)).fetchone()
            if row is None:
                row = base.execute("SELECT hash FROM uploads WHERE hash = ?", (_code(name),)).fetchone()
        return None if row is None else _hash(row[0])

    def add_token(self, token: Token) -> None:
        """Remember a token."""
        with self._writing() as base:
            base.execute(
                "INSERT INTO tokens VALUES (?,?,?,?,?,?)", tuple(getattr(token, one.name) for one in fields(token))
            )

    def revoke_token(self, token_id: str, at_s: float) -> None:
        """Let a token count no more."""
        with self._writing() as base:
            base.execute("UPDATE tokens SET revoked_s = ? WHERE id = ? AND revoked_s IS NULL", (at_s, token_id))

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens there ever were, the oldest first."""
        with self._reading() as base:
            rows = base.execute("SELECT * FROM tokens ORDER BY created_s, id").fetchall()
        return tuple(Token(*row) for row in rows)

    def keep_held(self, site: str, held: Sequence[Mapping[str, Any]]) -> None:
        """Remember what a site holds, as `plan.jobs.held_object` has it; the same again costs nothing."""
        body = _packed(list(held))
        with self._lock:
            if self._kept_held.get(site) == body:
                return
            with self._writing() as base:
                base.execute("INSERT OR REPLACE INTO held VALUES (?,?)", (site, body))
            self._kept_held[site] = body

    def forget_held(self, site: str) -> None:
        """Forget what a site said: it is no more."""
        with self._lock:
            with self._writing() as base:
                base.execute("DELETE FROM held WHERE site = ?", (site,))
            self._kept_held.pop(site, None)

    def held(self) -> dict[str, list[dict[str, Any]]]:
        """Return what each site held last, as `keep_held` was told."""
        with self._reading() as base:
            return {site: _unpacked(body) for site, body in base.execute("SELECT site, body FROM held ORDER BY site")}

    def _prepare(self) -> None:
        tables = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables:
            self._base.executescript(f"BEGIN; {_TABLES} INSERT INTO meta VALUES ('form', {FORM}); COMMIT;")
        for table in _LATER:
            self._base.execute(table)
        if self._number("form") != FORM:
            raise ValueError(f"it has form {self._number('form')}, and this version reads form {FORM}")

    def _number(self, key: str) -> int:
        row = self._base.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return 0 if row is None else int(row[0])

    def _read_wanted(self) -> Mapping[str, Job]:
        jobs = (_job(row) for row in self._base.execute("SELECT * FROM wanted ORDER BY name"))
        return MappingProxyType({job.name: job for job in jobs})

    def _put_jobs(self, base: sqlite3.Connection, change: Change, forced: frozenset[str]) -> None:
        base.executemany("DELETE FROM wanted WHERE name = ?", [(name,) for name in change.removed])
        base.executemany(
            "INSERT OR REPLACE INTO wanted VALUES (?,?,?,?,?,?,?,?,?)", [_row(job) for job in change.put.values()]
        )
        if forced != self._forced:
            base.execute("DELETE FROM forced")
            base.executemany("INSERT INTO forced VALUES (?)", [(name,) for name in sorted(forced)])

    def _read_begun(self) -> Mapping[str, Mapping[str, Job]]:
        rows = self._base.execute("SELECT circle, body FROM begun").fetchall()
        return {name: {job.name: job for job in map(job_from, _unpacked(body))} for name, body in rows}

    def _read_goals(self) -> tuple[Mapping[str, Goal], str | None]:
        rows = self._base.execute("SELECT composition, quality, p99_s FROM goals ORDER BY composition").fetchall()
        goals: dict[str, Goal] = {name: {"class": quality, "p99_s": p99_s} for name, quality, p99_s in rows}
        policy = goals.pop(POLICY, None)
        return MappingProxyType(goals), None if policy is None else str(policy["class"])

    @staticmethod
    def _put_begun(base: sqlite3.Connection, begun: Mapping[str, Mapping[str, Job] | None]) -> None:
        base.executemany("DELETE FROM begun WHERE circle = ?", [(name,) for name in begun])
        rows = [
            (name, _packed([job_object(job) for job in jobs.values()]))
            for name, jobs in begun.items()
            if jobs is not None
        ]
        base.executemany("INSERT INTO begun VALUES (?,?)", rows)

    @staticmethod
    def _add_history(base: sqlite3.Connection, at_s: float, who: str, what: str, outcome: str | None) -> int:
        added = base.execute(
            "INSERT INTO history (at_s, who, what, outcome) VALUES (?,?,?,?)", (at_s, who, what, outcome)
        ).lastrowid
        assert added is not None, "a row was added"
        base.execute("DELETE FROM history WHERE id <= ?", (added - MOST_HISTORY,))
        return added

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Give the file within a transaction: all that the block writes is kept, or nothing of it."""
        with self._lock, self._told():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
                self._base.execute("COMMIT")
            finally:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._told():
            yield self._base

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise BindError(
                f"HW4221 the store '{self._file}' cannot be used: {error}. Look at the disk's space and permissions."
            ) from error


def _row(job: Job) -> tuple[Any, ...]:
    """Return a job as the table has it: short, since there may be many."""
    wiring = [[one.broker, one.name] for one in job.sources]
    sink = None if job.sink is None else [job.sink.broker, job.sink.name]
    part = zlib.compress(job.part.encode()) if job.part else None
    text = json.dumps([sink, *wiring], separators=(",", ":"))
    stateful = None if job.is_stateful is None else int(job.is_stateful)
    return (
        job.name, job.composition, job.site, text, _code(job.code), job.entry, part, stateful, int(job.is_run),
    )  # fmt: skip


def _job(row: tuple[Any, ...]) -> Job:
    name, composition, site, wiring, code, entry, part, stateful, is_run = row
    sink, *sources = json.loads(wiring)
    return Job(
        name,
        composition,
        site,
        tuple(Topic(*one) for one in sources),
        None if sink is None else Topic(*sink),
        _hash(code),
        entry,
        "" if part is None else zlib.decompress(part).decode(),
        None if stateful is None else bool(stateful),
        bool(is_run),
    )


def _code(hash_: str) -> bytes | str:
    """Return a hash in half its length; what is none stays as it is."""
    try:
        code = bytes.fromhex(hash_)
    except ValueError:
        return hash_
    return code if code.hex() == hash_ else hash_


def _hash(code: bytes | str) -> str:
    return code if isinstance(code, str) else code.hex()


def _packed(value: object) -> bytes:
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)


def _unpacked(body: bytes) -> Any:
    return json.loads(zlib.decompress(body))
