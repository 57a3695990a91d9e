"""Whose request is it?

Makes tokens, and knows them again. A token is chance and nothing else; only its hash is kept, so that whoever
reads the store has none. What comes in is compared with the hash of every token that counts, each in the same
time, so that nothing can be learned from how long an answer takes. Tokens come from files or the environment,
and go into no log: what may be shown of a token is its id.

    HW4222  the file of the operator's token cannot be made or read
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.bind.store import Kind, Store, Token
from headwater.errors import BindError

__all__ = ["Caller", "Tokens"]

LETTER: dict[Kind, str] = {"operator": "o", "agent": "a"}
_FORM = re.compile(r"hw_[oa][A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    id: str  # of the token; may be shown
    kind: Kind
    site: str | None = None  # of an agent


class Tokens:
    """The tokens of one controller."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        """Take what the store knows."""
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._live = self._read()

    def issue(self, kind: Kind, site: str | None = None) -> tuple[str, str]:
        """Make a token; return its id and the token itself, which nobody can tell again."""
        text = f"hw_{LETTER[kind]}{secrets.token_urlsafe(32)}"
        return self._add(kind, site, text), text

    def check(self, text: str) -> Caller | None:
        """Return who has this token, or None."""
        digest = _digest(text)
        found: Token | None = None
        for token in self._live:  # all of them: where it is found must not be told by the time
            if hmac.compare_digest(token.hash, digest):
                found = token
        return None if found is None else Caller(found.id, found.kind, found.site)

    def revoke(self, token_id: str) -> Token | None:
        """Let a token count no more, at once; return it, or None if there is none of this id that counts."""
        with self._lock:
            found = next((one for one in self._live if one.id == token_id), None)
            if found is not None:
                self._store.revoke_token(token_id, self._clock())
                self._live = self._read()
        return found

    def all(self) -> tuple[Token, ...]:
        """Return all tokens there ever were, the oldest first."""
        return self._store.tokens()

    def has_agent(self, site: str) -> bool:
        """Return whether there is a token that counts for a site's agent."""
        return any(one.site == site for one in self._live)

    def ensure_operator(self, file: Path) -> str:
        """Return the token that the user's commands on this machine use; makes it and its file at first.

        Raises:
            BindError: HW4222.
        """
        try:
            text = self._read_or_make(file)
        except OSError as error:
            raise BindError(
                f"HW4222 the operator's token '{file}' cannot be made or read: {error}. Look at its permissions."
            ) from error
        if not _FORM.fullmatch(text):
            raise BindError(
                f"HW4222 the file '{file}' holds no operator's token. Remove it, and start the controller again."
            )
        if self.check(text) is None:
            self._add("operator", None, text)
        return text

    def _read_or_make(self, file: Path) -> str:
        with suppress(FileNotFoundError):
            found = file.read_text("utf-8").strip()
            if not self._is_revoked(found):
                return found
        text = f"hw_{LETTER['operator']}{secrets.token_urlsafe(32)}"
        part = file.with_name(f".{file.name}.{os.getpid()}")
        part.unlink(missing_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(f"{text}\n")
            out.flush()
            os.fsync(out.fileno())
        part.replace(file)
        return text

    def _add(self, kind: Kind, site: str | None, text: str) -> str:
        token_id = secrets.token_hex(4)
        with self._lock:
            self._store.add_token(Token(token_id, kind, site, _digest(text), self._clock()))
            self._live = self._read()
        return token_id

    def _is_revoked(self, text: str) -> bool:
        digest = _digest(text)
        return any(one.revoked_s is not None and hmac.compare_digest(one.hash, digest) for one in self._store.tokens())

    def _read(self) -> tuple[Token, ...]:
        return tuple(one for one in self._store.tokens() if one.revoked_s is None)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
