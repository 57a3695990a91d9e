"""How does a site come to know the passwords of other sites' brokers?

The controller tells an agent, with the order that needs it, what a broker asks for. The agent keeps that in two
keyrings: its own, and one that belongs to whoever the runners run as. Both are files that only their owner can read,
so that jobs start again without the controller.
"""

from __future__ import annotations

import pwd
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from headwater.bind import keyring
from headwater.bind.keyring import USER, Credentials

__all__ = ["Keys"]


class Keys:
    """The keyrings of one site."""

    def __init__(self, own: Path, runners: Path, ca: Path | None, runner_user: Callable[[], str | None]) -> None:
        """Read what is known from before, and let this process use it.

        Args:
            own: The agent's keyring.
            runners: The runners' keyring.
            ca: What brokers' certificates are signed by.
            runner_user: Gives whom the runners' belongs to; None: this user.
        """
        self._own, self._runners, self._ca = own, runners, ca
        self._user = runner_user
        self._lock = threading.Lock()
        keyring.use(own)
        self._known = dict(keyring.entries())

    def add(self, passwords: Mapping[str, str]) -> None:
        """Learn what brokers ask for, by address."""
        with self._lock:
            new = {
                address: Credentials(USER, password, "" if self._ca is None else str(self._ca))
                for address, password in passwords.items()
            }
            if any(self._known.get(address) != one for address, one in new.items()):
                self._known |= new
                keyring.write(self._own, self._known)
                user = self._user()
                keyring.write(self._runners, self._known, None if user is None else pwd.getpwnam(user).pw_uid)
