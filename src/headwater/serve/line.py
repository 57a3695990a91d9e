"""How does an agent reach its controller?

A `Line` calls the agents' routes of one site. It tells three ends apart: an answer, a refusal of the controller
(`Declined`), and nobody there (`Away`). The token is read anew for each session, so that it can be exchanged,
and goes into no message. What HTTP needs is loaded when something is first sent: an agent that comes after one that
was killed has more urgent things to do.

    HW4916   the controller cannot be reached
    HW4917   there is no token
    HW4918   what came is not what was asked for
"""

from __future__ import annotations

import hashlib
import os
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from headwater.errors import BindError

if TYPE_CHECKING:
    import httpx

__all__ = ["Away", "Declined", "Line", "is_address", "read_token"]

CONNECT_S = 5.0
PATIENCE_S = 10.0  # for an answer that nobody has to wait for
KEPT_S = 4.0  # that a connection is kept without use: less than the server keeps it, or a call could meet its end
CHUNK_BYTES = 256 * 1024
LATER = {408, 425, 429}  # refusals that end by themselves
TOKEN = "HEADWATER_TOKEN"
TOKEN_FILE = "HEADWATER_TOKEN_FILE"


class Away(BindError):
    """Nobody answers, or somebody who cannot help now; it may be tried again."""


class Declined(BindError):
    """The controller refuses; the same again would be refused again."""

    def __init__(self, status: int, code: str, text: str) -> None:
        """Take HTTP's status, and the controller's code and text."""
        super().__init__(f"{code} {text}")
        self.status = status
        self.code = code


def read_token(file: Path | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the token from a file, or else from the environment.

    Raises:
        BindError: HW4917.
    """
    if file is None and environment.get(TOKEN_FILE):
        file = Path(environment[TOKEN_FILE])
    if file is None:
        found = environment.get(TOKEN, "")
        where = f"{TOKEN_FILE} and {TOKEN} are not set"
    else:
        where = f"'{file}' cannot be read or is empty"
        found = ""
        with suppress(OSError, UnicodeDecodeError):
            found = file.read_text("utf-8")
    found = found.strip()
    if not found or not found.isascii() or not found.isprintable():
        raise BindError(f"HW4917 there is no token for the controller: {where}. Make one there: headwater token SITE")
    return found


def is_address(url: str) -> bool:
    """Return whether a controller may be there.

    >>> is_address("https://control.example:8470"), is_address("control.example:8470"), is_address("http://a:0")
    (True, False, False)
    """
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class Line:
    """The way from one agent to its controller; any thread may use it."""

    def __init__(self, url: str, site: str, token: Callable[[], str], uploads: Path, ca: Path | None = None) -> None:
        """Make ready; nothing is sent yet.

        Args:
            url: Of the controller.
            site: Of the agent.
            token: Gives the token.
            uploads: Folder for what `fetch_upload` gets, by hash.
            ca: Certificates that the controller's must be signed by; None: those of the system.

        Raises:
            BindError: HW4916, the address is none, or the certificates cannot be read.
        """
        if not is_address(url):
            raise BindError(f"HW4916 '{url}' is no address of a controller; give one like https://HOST:PORT.")
        self._verify: ssl.SSLContext | None = None
        if ca is not None:
            try:
                self._verify = ssl.create_default_context(cafile=str(ca))
            except (OSError, ssl.SSLError) as error:
                raise BindError(f"HW4916 the certificates in '{ca}' cannot be read: {error}.") from error
        self._url = f"{url.rstrip('/')}/agents/{quote(site, safe='')}"
        self._token = token
        self._uploads = uploads
        self._headers: dict[str, str] = {}
        self._fetching: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._made: httpx.Client | None = None

    def _client(self) -> httpx.Client:
        """Return what speaks HTTP; it is made by whoever comes first."""
        import httpx  # noqa: PLC0415 - as the first lines say

        with self._lock:
            if self._made is None:
                self._made = httpx.Client(
                    base_url=self._url,
                    verify=self._verify or ssl.create_default_context(),
                    timeout=httpx.Timeout(PATIENCE_S, connect=CONNECT_S),
                    limits=httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=KEPT_S),
                    trust_env=False,  # a proxy that somebody set for something else would see every order
                )
            return self._made

    def renew(self) -> None:
        """Read the token again; raises BindError HW4917."""
        self._headers = {"Authorization": f"Bearer {self._token()}"}

    def get(self, path: str, query: Mapping[str, str | int | float], wait_s: float = 0.0) -> dict[str, Any]:
        """Ask something that may take so long."""
        return self._json("GET", path, wait_s, params=dict(query))

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Tell something."""
        return self._json("POST", path, 0.0, json=body)

    def put(self, path: str, content: bytes) -> None:
        """Bring bytes."""
        headers = {"Content-Length": str(len(content)), "Content-Type": "application/octet-stream"}
        # The answer comes after all is written there.
        self._json("PUT", path, PATIENCE_S * 5, content=_pieces(content), headers=headers)

    def fetch(self, path: str) -> bytes:
        """Get bytes."""
        return b"".join(self._stream(path))

    def fetch_upload(self, digest: str) -> Path:
        """Return the file that has this hash; it is got first if it is not there.

        Raises:
            BindError: HW4916, HW4918, or the controller does not have it.
        """
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise BindError(f"HW4918 {digest[:80]!r} is not the hash of an upload.")
        place = self._uploads / digest
        with self._lock:
            fetching = self._fetching.setdefault(digest, threading.Lock())
        with fetching:
            try:
                if not place.is_file():
                    self._fetch_into(digest, place)
            except OSError as error:
                raise BindError(f"HW4918 '{place}' cannot be written: {error.strerror or error}.") from error
        return place

    def close(self) -> None:
        """End all connections."""
        self._client().close()

    def _fetch_into(self, digest: str, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", dir=place.parent)
        try:
            found = hashlib.sha256()
            with os.fdopen(handle, "wb") as file:
                for chunk in self._stream(f"/uploads/{digest}"):
                    found.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            if found.hexdigest() != digest:
                raise BindError(
                    f"HW4918 what came for upload '{digest}' has the hash '{found.hexdigest()}'. Upload it again."
                )
            Path(temporary).replace(place)
        finally:
            Path(temporary).unlink(missing_ok=True)

    def _stream(self, path: str) -> Iterator[bytes]:
        import httpx  # noqa: PLC0415 - as the first lines say

        try:
            with self._client().stream("GET", path, headers=self._authorized()) as response:
                if not response.is_success:
                    response.read()
                _check(response)
                yield from response.iter_bytes(CHUNK_BYTES)
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: it was closed meanwhile
            raise _away(error) from error

    def _authorized(self) -> dict[str, str]:
        if not self._headers:
            self.renew()
        return self._headers

    def _json(
        self, method: str, path: str, wait_s: float, headers: Mapping[str, str] | None = None, **what: Any
    ) -> dict[str, Any]:
        import httpx  # noqa: PLC0415 - as the first lines say

        timeout = httpx.Timeout(PATIENCE_S + wait_s, connect=CONNECT_S)
        try:
            response = self._client().request(
                method, path, headers={**self._authorized(), **(headers or {})}, timeout=timeout, **what
            )
        except (httpx.HTTPError, RuntimeError) as error:  # RuntimeError: it was closed meanwhile
            raise _away(error) from error
        _check(response)
        try:
            found = response.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Away(f"HW4918 the controller answers something else than JSON to {method} {path}.")
        return found


def _pieces(content: bytes) -> Iterator[bytes]:
    view = memoryview(content)
    for begin in range(0, len(view), CHUNK_BYTES):
        yield bytes(view[begin : begin + CHUNK_BYTES])


def _check(response: httpx.Response) -> None:
    if response.is_success:
        return
    code, text = "HW4916", f"the controller answers {response.status_code}."
    with suppress(ValueError, KeyError, TypeError):
        error = response.json()["error"]
        code, text = str(error["code"]), str(error["text"])
    if response.is_client_error and response.status_code not in LATER:
        raise Declined(response.status_code, code, text)
    raise Away(f"{code} {text}")


def _away(error: Exception) -> Away:
    return Away(f"HW4916 the controller cannot be reached: {type(error).__name__} {error}".rstrip(" ."))
