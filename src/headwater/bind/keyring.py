"""By which user and password is a broker reached?

A process has one keyring: a file that only its user can read, with what each broker asks for, by the broker's
address. It is read again whenever it changes, so a process that runs for months learns of new brokers. An
address that is not in it is reached without a password. Who writes the file: whoever starts the process
(`write`). No message and no repr holds a password.

    HW4209   the keyring cannot be used
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headwater.errors import BindError

__all__ = [
    "USER",
    "Credentials",
    "broker_password",
    "entries",
    "find",
    "jaas",
    "rdkafka_settings",
    "spark_options",
    "use",
    "write",
    "write_private",
]

USER = "headwater"  # of the brokers that are ours
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a broker asks for."""

    user: str
    password: str = field(repr=False)
    ca: str  # the file with the certificate that the broker's own is signed by


class _Keyring:
    """The keyring of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file: Path | None = None
        self._seen: tuple[int, int, int] | None = None  # what the file looked like when it was read
        self._entries: Mapping[str, Credentials] = {}

    def use(self, file: Path | None) -> None:
        with self._lock:
            self._file, self._seen, self._entries = file, None, {}

    def entries(self) -> tuple[Path, Mapping[str, Credentials]]:
        with self._lock:
            if self._file is None:
                return Path(), {}
            try:
                with self._file.open("rb") as opened:
                    status = os.fstat(opened.fileno())
                    seen = (status.st_mtime_ns, status.st_size, status.st_ino)
                    if seen == self._seen:
                        return self._file, self._entries
                    if status.st_mode & 0o077:
                        raise _unusable(self._file, "others than its owner can use it", "chmod 600 it")
                    self._entries, self._seen = _parsed(self._file, opened.read()), seen
            except FileNotFoundError:
                self._entries, self._seen = {}, None
            except OSError as error:
                raise _unusable(
                    self._file, error.strerror or str(error), "let the user that runs this read it"
                ) from None
            return self._file, self._entries


_KEYRING = _Keyring()


def use(file: Path | None) -> None:
    """Take this file as the keyring of this process; None: none. A file that is not there holds nothing yet."""
    _KEYRING.use(file)


def entries() -> Mapping[str, Credentials]:
    """Return all that this process's keyring holds, by address.

    Raises:
        BindError: HW4209.
    """
    return _KEYRING.entries()[1]


def find(address: str) -> Credentials | None:
    """Return what the broker at an address asks for; of several with commas, the first that is known counts.

    Raises:
        BindError: HW4209.
    """
    file, entries = _KEYRING.entries()
    found = next((entries[one.strip()] for one in address.split(",") if one.strip() in entries), None)
    if found is not None:
        # Kafka's clients would say of a wrong one only that nobody answers.
        why = ""
        try:
            if b"-----BEGIN CERTIFICATE-----" not in Path(found.ca).read_bytes():
                why = "it holds no certificate in PEM form"
        except OSError as error:
            why = error.strerror or str(error)
        if why:
            raise _unusable(file, f"it names '{found.ca}' for {address}: {why}", "name the certificate of an authority")
    return found


def rdkafka_settings(credentials: Credentials | None) -> dict[str, str]:
    """Return the settings of a client on librdkafka; none without credentials."""
    if credentials is None:
        return {}
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": credentials.user,
        "sasl.password": credentials.password,
        "ssl.ca.location": credentials.ca,
    }


def spark_options(address: str) -> dict[str, str]:
    """Return the options with which Spark's Kafka source and sink reach the broker at an address.

    Raises:
        BindError: HW4209.
    """
    found = find(address)
    if found is None:
        return {}
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": jaas(found.user, found.password),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": found.ca,
    }


def jaas(user: str, password: str, *, is_server: bool = False) -> str:
    """Return the login of a client in Java's words; of a server: also whom it lets in.

    >>> jaas("me", "word", is_server=True)
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="word" user_me="word";'
    """
    words = [_MODULE, f"username={_quoted(user)}", f"password={_quoted(password)}"]
    if is_server:
        words.append(f"user_{user}={_quoted(password)}")
    return " ".join(words) + ";"


def broker_password(secret: bytes, site: str) -> str:
    """Return the password of a site's broker: whoever knows one cannot tell that of another.

    >>> broker_password(b"s", "a") == broker_password(b"s", "b")
    False
    """
    return hmac.new(secret, site.encode(), hashlib.sha256).hexdigest()


def write(file: Path, entries: Mapping[str, Credentials], uid: int | None = None) -> None:
    """Write a keyring in the place of the one before, all of it or nothing; only its owner can read it.

    Args:
        file: The keyring.
        entries: What each broker asks for, by address.
        uid: The user to own it; None: this one.

    Raises:
        BindError: HW4209.
    """
    found = {address: asdict(one) for address, one in sorted(entries.items())}
    try:
        write_private(file, json.dumps(found).encode(), uid)
    except OSError as error:
        raise _unusable(file, error.strerror or str(error), "check that its folder can be written") from None


def write_private(file: Path, content: bytes, uid: int | None = None) -> None:
    """Write a file that only its owner can read, in the place of the one before, all of it or nothing.

    Raises:
        OSError: it cannot be written.
    """
    passing = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(content)
            if uid is not None:
                os.fchown(opened.fileno(), uid, -1)
            opened.flush()
            os.fsync(opened.fileno())
        passing.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            passing.unlink(missing_ok=True)
        raise


def _parsed(file: Path, content: bytes) -> dict[str, Credentials]:
    """Return what a keyring holds; a message must not quote it."""
    try:
        found = {
            address: Credentials(str(one["user"]), str(one["password"]), str(one["ca"]))
            for address, one in json.loads(content).items()
        }
        if not all(one.user and one.password for one in found.values()):
            raise ValueError
        return found
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _unusable(
            file, 'it is not JSON of the form {"HOST:PORT": {"user": .., "password": .., "ca": ..}}', "write it again"
        ) from None


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unusable(file: Path, why: str, then: str) -> BindError:
    return BindError(f"HW4209 the keyring '{file}' cannot be used: {why}; {then}")
