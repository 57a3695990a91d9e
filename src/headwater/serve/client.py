"""How does a command reach the controller?

`find` says where it is and which token opens it; a `Client` asks it and gives back what it says. What the
controller refuses is raised as if this process had refused it: same class, same code, same text. The token goes
nowhere but to the controller that it belongs to, and never in clear over a network.

    HW1330   an address of a controller that is none, or to which a token would travel in clear
    HW4920   nobody answers
    HW4921   TLS: the certificate cannot be trusted, or one side speaks it and the other does not
    HW4922   the token is refused
    HW4923   there is no token, or it cannot be read
    HW4924   what answers is no controller of this version
    HW4925   the answer broke off or did not come in time; whether something was done is unknown
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote as in_address
from urllib.parse import urlsplit

import httpx

from headwater.errors import BindError, BrokenInvariant, HeadwaterError, Mistake, PlanError, SpecError
from headwater.serve.control_options import state_folder
from headwater.serve.line import is_address

__all__ = ["CA_FILE", "Client", "Place", "find", "in_address"]

CONTROLLER = "HEADWATER_CONTROLLER"
TOKEN, TOKEN_FILE, CA = "HEADWATER_TOKEN", "HEADWATER_TOKEN_FILE", "HEADWATER_CA"
CA_FILE = "ca.pem"  # in the state folder
CONNECT_S = 5.0
ANSWER_S = 30.0  # that the controller may think, on top of the time that it was asked to wait
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
MOST_SHOWN = 160  # characters of an answer that nobody understands
IS_UP = "Is 'headwater up' (or 'headwater serve') running?"

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a controller is, and how to be let in."""

    url: str
    token: str = field(repr=False)
    token_from: str  # how messages name where the token came from
    ca: Path | None  # None: what the system trusts


def find(controller: str | None = None, state: str | None = None) -> Place:
    """Return where the controller is.

    Args:
        controller: Its URL; None: of the state folder, if one is named, else HEADWATER_CONTROLLER, else of the
            usual state folder.
        state: Its state folder, where it tells its own URL; None: the usual one.

    Raises:
        SpecError: HW1330.
        BindError: HW4920, no controller is known; HW4923, no token.
    """
    folder = state_folder(state)
    named = controller or (None if state is not None else os.environ.get(CONTROLLER))
    told = _told(folder)
    if named is None and told is None:
        raise BindError(
            f"HW4920 no controller is known: '{folder}' tells of none that runs, and neither --controller nor "
            f"{CONTROLLER} names one. {IS_UP}"
        )
    url = _checked(named or str((told or {}).get("url", "")))
    is_own = state is not None or _is_loopback(url) or url == str((told or {}).get("url", "")).rstrip("/")
    token, token_from = _token(folder if is_own else None, url)
    return Place(url, token, token_from, _authority(folder, told if is_own else None))


def _authority(folder: Path, told: Object | None) -> Path | None:
    """Return the certificate of whoever vouches for the controller: as it was named, or as the controller says."""
    named = os.environ.get(CA) or (told or {}).get("ca")
    if named:
        return Path(named)
    return folder / CA_FILE if (folder / CA_FILE).is_file() else None


class Client:
    """Asks one controller; to be closed, or used in a `with` block."""

    def __init__(self, place: Place, answer_s: float = ANSWER_S) -> None:
        """Make ready; nothing is asked yet.

        Raises:
            BindError: HW4921, the certificate of the authority cannot be read.
        """
        self.place = place
        self._answer_s = answer_s
        self._http = httpx.Client(
            base_url=place.url,
            headers={"Authorization": f"Bearer {place.token}", "Accept": "application/json"},
            verify=_trust(place),
            timeout=httpx.Timeout(answer_s, connect=CONNECT_S),
            trust_env=not _is_loopback(place.url),  # a proxy knows no way to this machine
        )

    def __enter__(self) -> Client:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the connection go."""
        self._http.close()

    def get(self, path: str, **query: object) -> Any:
        """Ask for something."""
        return self.call("GET", path, query)

    def put(self, path: str, content: bytes | Object, **query: object) -> Any:
        """Put something in the place of what is there."""
        return self.call("PUT", path, query, content)

    def post(self, path: str, content: Object | None = None, **query: object) -> Any:
        """Ask for something to be done."""
        return self.call("POST", path, query, content)

    def delete(self, path: str, **query: object) -> Any:
        """Ask for something to be removed."""
        return self.call("DELETE", path, query)

    def part(self, answer: object, key: str) -> Any:
        """Return a part of an answer without which it is none of a controller.

        Raises:
            BindError: HW4924, it is not there.
        """
        if not isinstance(answer, Mapping) or key not in answer:
            raise self._stranger(f"without '{key}'", json.dumps(answer))
        return answer[key]

    def call(self, method: str, path: str, query: Mapping[str, object], content: bytes | Object | None = None) -> Any:
        """Ask, and return what the JSON of the answer says; None where it says nothing.

        Args:
            method: GET, PUT, POST or DELETE.
            path: With a slash in front.
            query: Values by name; those that are None are left out.
            content: What goes along: bytes as they are, an object as JSON.

        Raises:
            HeadwaterError: what the controller says; HW4920 to HW4925.
        """
        wait_s = query.get("wait_s")
        more_s = float(wait_s) if isinstance(wait_s, int | float) else 0.0
        is_raw = isinstance(content, bytes)
        body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
        try:
            answer = self._http.request(
                method,
                path,
                params={name: _worded(value) for name, value in query.items() if value is not None},
                content=body,
                headers={"Content-Type": "application/octet-stream" if is_raw else "application/json"},
                timeout=httpx.Timeout(self._answer_s + more_s, connect=CONNECT_S),
            )
        except httpx.HTTPError as error:
            raise self._unanswered(error, method) from error
        return self._understood(answer)

    def _unanswered(self, error: httpx.HTTPError, method: str) -> BindError:
        url, why = self.place.url, " ".join(str(error).split()) or type(error).__name__
        if "SSL" in why or isinstance(error.__cause__, ssl.SSLError) or "CERTIFICATE" in why:
            return BindError(
                f"HW4921 no trusted connection to the controller at {url}: {why[:MOST_SHOWN]}. {_ca(self.place)}"
            )
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return BindError(f"HW4920 nobody answers at {url}: {why[:MOST_SHOWN]}. {IS_UP}")
        is_plain = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and url.startswith("http:")
        hint = " If it speaks TLS, its address begins with https." if is_plain else ""
        known = "" if method == "GET" else " Whether it was done is not known: look with 'headwater status'."
        return BindError(
            f"HW4925 the controller at {url} broke off or took too long ({why[:MOST_SHOWN]}).{hint}{known}"
        )

    def _understood(self, answer: httpx.Response) -> Any:
        try:
            said = answer.json() if answer.content else None
        except ValueError:
            said = answer.text
        if answer.is_success and not isinstance(said, str):
            return said
        if answer.status_code in {401, 403}:
            raise BindError(
                f"HW4922 the controller at {self.place.url} refuses the token from {self.place.token_from}. Give one "
                f"of an operator in {TOKEN} or {TOKEN_FILE}; the controller's state folder has one in 'operator.token'."
            )
        error = said.get("error") if isinstance(said, dict) else None
        if isinstance(error, dict):
            raise _as_raised_there(error)
        raise self._stranger(str(answer.status_code), answer.text)

    def _stranger(self, how: str, text: str) -> BindError:
        begin = " ".join(text.split())[:MOST_SHOWN]
        return BindError(
            f"HW4924 what answers at {self.place.url} is no controller of this version: it said {how} "
            f"with '{begin}'. Check the address."
        )


def _as_raised_there(error: Mapping[str, Any]) -> HeadwaterError:
    """Return the error that the controller raised, as if it had been raised here."""
    code, text = str(error.get("code") or ""), str(error.get("text") or "")
    mistakes = [
        Mistake(str(one.get("code") or code), str(one.get("text") or ""), one.get("file"), one.get("line"))
        for one in error.get("mistakes") or []
        if isinstance(one, dict)
    ]
    whole = text if text.startswith("HW") else f"{code} {text}".strip()
    if code.startswith("HW1") or (mistakes and not code):
        return SpecError(*(mistakes or [Mistake(code, text.removeprefix(code).strip())]))
    kinds: dict[str, Callable[[str], HeadwaterError]] = {"HW2": PlanError, "HW4": BindError, "HW9": BrokenInvariant}
    return kinds.get(code[:3], BindError)(whole)


def _told(folder: Path) -> dict[str, Any] | None:
    """Return what a running controller says of itself in its state folder."""
    try:
        found = json.loads((folder / "controller.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("url") else None


def _checked(url: str) -> str:
    if not is_address(url):
        text = f"'{url}' is no address of a controller; wanted is one such as https://control.example:8470"
        raise SpecError(Mistake("HW1330", text))
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise SpecError(Mistake("HW1330", f"a controller's address holds no name or password; use {TOKEN}"))
    if parts.scheme == "http" and not _is_loopback(url):
        text = f"the token would travel to '{parts.hostname}' in clear; the address must begin with https"
        raise SpecError(Mistake("HW1330", text))
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in LOOPBACK or host.startswith("127.")


def _token(folder: Path | None, url: str) -> tuple[str, str]:
    """Return the token and where it is from; that of a state folder is given to its own controller only."""
    if os.environ.get(TOKEN):
        return _sound(os.environ[TOKEN], TOKEN)
    named = os.environ.get(TOKEN_FILE)
    file = Path(named) if named else None if folder is None else folder / "operator.token"
    if file is None:
        raise BindError(f"HW4923 there is no token for {url}. Give one in {TOKEN}, or name its file in {TOKEN_FILE}.")
    try:
        token = file.read_text("ascii")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is no token"
        raise BindError(
            f"HW4923 the token in '{file}' cannot be read: {why}. Give one in {TOKEN}, name its file in {TOKEN_FILE}, "
            "or name the controller's state folder with --state."
        ) from None
    return _sound(token, f"'{file}'")


def _sound(token: str, token_from: str) -> tuple[str, str]:
    """Return a token that may stand in a header; what it says is never shown."""
    found = token.strip()
    if not found or not found.isascii() or not found.isprintable() or " " in found:
        raise BindError(f"HW4923 what {token_from} holds is no token: one is a single word that begins with 'hw_'.")
    return found, token_from


def _trust(place: Place) -> ssl.SSLContext:
    if place.url.startswith("http:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, and trusts nobody
    try:
        context = ssl.create_default_context(cafile=None if place.ca is None else str(place.ca))
    except (OSError, ssl.SSLError) as error:
        raise BindError(
            f"HW4921 the authority's certificate '{place.ca}' cannot be read: {error}. {_ca(place)}"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _ca(place: Place) -> str:
    trusted = "what this system trusts" if place.ca is None else f"'{place.ca}'"
    return f"It was checked against {trusted}; name the authority's certificate in {CA}."


def _worded(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
