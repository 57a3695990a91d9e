"""What do the sensors send?

`records` gives the readings of one site without end: the same site, seed and start give the same readings,
so that whatever was fed can be made again and compared with what came out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

Record = tuple[str, bytes | None, bytes]  # topic, key, value

TOPIC = "readings"
SENSORS = 8  # on each site
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # of the first reading; they come a second apart
HOT_SHARE = 0.25  # of the readings, above 30 degrees


def records(site: str, seed: int, start: int = 0) -> Iterator[Record]:
    """Give the readings of a site, from the one numbered `start` on."""
    for number in count(start):
        chance = random.Random(f"{seed}/{site}/{number}")
        is_hot = chance.random() < HOT_SHARE
        sensor = f"{site}/{number % SENSORS}"
        reading = {
            "sensor": sensor,
            "celsius": round(chance.uniform(30.1, 45) if is_hot else chance.uniform(-10, 30), 1),
            "at": (BEGIN + timedelta(seconds=number)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        yield TOPIC, sensor.encode(), json.dumps(reading).encode()
