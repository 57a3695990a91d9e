"""Who keeps a site's broker going?

`SiteBroker` is the port `Broker` on Kafka, and the watch over the broker's process: taken over from an earlier agent
where it still runs, started where it does not, and started again when it dies.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headwater.bind import topics
from headwater.bind.kafka import ExternalBroker, KafkaBroker
from headwater.errors import BindError

__all__ = ["SiteBroker"]

LOOK_S = 0.5  # between two looks at the process
READY_S = 120.0
MOST_PAUSE_S = 15.0  # before one that does not start is started again


class SiteBroker:
    """The broker of one site."""

    def __init__(self, broker: KafkaBroker | ExternalBroker, say: Callable[[str], None] = lambda _: None) -> None:
        """Take the broker; `keep` keeps it going."""
        self._broker = broker
        self._say = say
        self.restarts = 0

    @property
    def address(self) -> str:
        """Return 'host:port' for clients on this machine."""
        return self._broker.address

    @property
    def address_between(self) -> str:
        """Return 'host:port' for clients at the sites."""
        return self._broker.address_between

    @property
    def told(self) -> Mapping[str, Any]:
        """Return what is shown of it."""
        one = self._broker
        return {
            "pid": one.pid,
            "address": self.address,
            "memory_bytes": one.memory_bytes,
            "cpu_s": one.cpu_s,
            "restarts": self.restarts,
        }

    def up(self) -> None:
        """Let it serve clients; returns when it does.

        Raises:
            BindError: it does not start.
        """
        if isinstance(self._broker, KafkaBroker) and not self._broker.is_alive and not self._broker.adopt():
            self._broker.start()
        self._broker.wait_ready(READY_S)

    def keep(self, stop: threading.Event) -> None:
        """Start it again whenever it dies, until stopped; it goes on then."""
        failures = 0
        while not stop.wait(LOOK_S if failures == 0 else min(MOST_PAUSE_S, 0.5 * 2**failures)):
            if isinstance(self._broker, ExternalBroker) or self._broker.is_alive:
                continue
            begun_s = time.monotonic()
            try:
                self.restarts += 1
                self._say("the broker died; it is started again")
                self.up()
                self._say(f"the broker is back after {time.monotonic() - begun_s:.1f} s")
                failures = 0
            except BindError as error:
                failures += 1
                self._say(str(error))

    def end(self) -> None:
        """Stop it, in order."""
        self._broker.stop()

    def ensure_topics(self, names: Iterable[str]) -> None:
        """Make the topics that are not there."""
        topics.ensure_topics(self.address, names)

    def clear_topics(self, names: Iterable[str]) -> None:
        """Remove topics with all that they hold."""
        topics.remove_topics(self.address, names)

    def ends(self, names: Iterable[str]) -> Mapping[tuple[str, int], int]:
        """Return the offset that the next record of each partition will get."""
        return topics.end_offsets(self.address, names)
