"""How old are the records that leave a site's runners, and how large are those that come?

`Ages` looks at the ends of topics (`bind.latency`) in a thread of its own: on a machine that is full a look may take a
second, which nobody who decides every second can wait for. Whoever asks gets what was found since it asked last.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from headwater.bind.latency import LatencyReader

__all__ = ["Ages"]

EVERY_S = 0.5
WEIGH_LOOKS = 20  # looks between two at how large records are, which seldom changes
MOST = 2_000  # ages of one topic that are kept for whoever asks


class Ages:
    """Ages of the records of some topics of one broker."""

    def __init__(self, address: str) -> None:
        """Begin to look; nothing is looked at before `watch` says what."""
        self._address = address
        self._topics: list[str] = []
        self._inputs: list[str] = []
        self._bytes: dict[str, float] = {}
        self._found: dict[str, list[float]] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ages", daemon=True)
        self._thread.start()

    def watch(self, topics: Iterable[str], inputs: Iterable[str] = ()) -> None:
        """Look at how old the records of these topics are from now on, and at how large those of the inputs are."""
        self._topics, self._inputs = sorted(set(topics)), sorted(set(inputs))

    def taken(self, topic: str) -> list[float]:
        """Return the ages in seconds that were found since this was asked last."""
        with self._lock:
            return self._found.pop(topic, [])

    def record_bytes(self, topic: str) -> float | None:
        """Return how large the records of an input are, in the mean; None: not known yet."""
        return self._bytes.get(topic)

    def close(self) -> None:
        """End looking; a look that is under way ends by itself."""
        self._over.set()

    def _run(self) -> None:
        reader: LatencyReader | None = None
        weighed = 0
        while not self._over.wait(EVERY_S):
            topics, inputs = self._topics, self._inputs
            try:
                if reader is None:
                    reader = LatencyReader(self._address)
                reader.look(topics)
                if weighed <= 0 or not self._bytes.keys() >= set(inputs):
                    reader.weigh(inputs)
                    weighed = WEIGH_LOOKS
                weighed -= 1
            except Exception:  # noqa: BLE001 - whatever a record or the broker does, the next look tells
                if reader is None:
                    continue
            sizes = {topic: reader.record_bytes(topic) for topic in inputs}
            self._bytes = {topic: size for topic, size in sizes.items() if size is not None}
            with self._lock:
                self._found = {topic: one for topic, one in self._found.items() if topic in topics}
                for topic in topics:
                    self._found[topic] = (self._found.get(topic, []) + reader.fresh(topic))[-MOST:]
        if reader is not None:
            reader.close()
