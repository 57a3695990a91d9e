"""What do the taxis send?

`records` gives the fixes of one site's taxis without end, as lines of CSV: id, taxi, time, lat, lon, speed in
km/h, heading in degrees. The same site, seed, start and file give the same fixes, so that whatever was fed can
be made again. Times rise, but a fix may be up to DISORDER_S behind the latest one before it; one in fifty cannot
be read and one in thirty cannot be true, for there to be something to clean.

`closing` gives the fixes, far in the future, that let every window end.
"""

from __future__ import annotations

import csv
import random
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count

Record = tuple[str, bytes | None, bytes]  # topic, key, value

TOPIC = "taxis"
TAXIS = 300  # on each site; each sends about once a minute
STEP_S = 0.2  # from one fix to the next
DISORDER_S = 20  # less than the pipeline waits for late records
UNREADABLE_SHARE, UNTRUE_SHARE = 1 / 50, 1 / 30
BEGIN = datetime(2009, 1, 6)  # noqa: DTZ001 - the records name no zone
CLOSING_TIMES = (datetime(2030, 1, 1), datetime(2030, 1, 3))  # noqa: DTZ001 - the same
EDGES = ("edge-a", "edge-b", "edge-c")  # that share the taxis of a real file
UNREADABLE = ("", "fix lost", "7,?,yesterday,north,east,fast,up", "12,33556,2009-01-06T")


def records(site: str, seed: int, start: int = 0, file: str | None = None) -> Iterator[Record]:
    """Give the fixes of a site's taxis, from the one numbered `start` on.

    Args:
        site: its name; taxis of different sites have different numbers.
        seed: what all chance comes from.
        start: number of the first fix.
        file: a real file with the same columns, played in the order of time and again from its beginning, a
            whole number of days later, when it ends. Its taxis are shared out to EDGES; any other site gets all.
    """
    rows = [] if file is None else _rows(file, EDGES.index(site) if site in EDGES else None)
    if file is not None and not rows:
        return
    for number in count(start):
        yield _made(site, seed, number) if file is None else _played(rows, number)


def closing(site: str, seed: int) -> Iterator[Record]:
    """Give two fixes: the first ends every local window, the second ends the first one's, which ends all others.

    The second may be sent only when what the first set free has arrived from every site.
    """
    taxi = _first_taxi(site)
    for number, time in enumerate(CLOSING_TIMES):
        yield _record(-1 - number, taxi, time, 39.9, 116.4, 0.0, 0)


def _made(site: str, seed: int, number: int) -> Record:
    chance = random.Random(f"{seed}/{site}/{number}")
    taxi = _first_taxi(site) + number % TAXIS
    kind = chance.random()
    if kind < UNREADABLE_SHARE:
        return TOPIC, str(taxi).encode(), chance.choice(UNREADABLE).encode()
    behind_s = chance.uniform(0, DISORDER_S) if chance.random() < 0.3 else 0.0
    time = BEGIN + timedelta(seconds=DISORDER_S + int(number * STEP_S - behind_s))
    lat, lon = chance.gauss(39.92, 0.06), chance.gauss(116.4, 0.08)
    speed = 0.0 if chance.random() < 0.4 else chance.uniform(3, 72)
    if kind < UNREADABLE_SHARE + UNTRUE_SHARE:
        lat, lon, speed = chance.choice(((0.0, 0.0, speed), (lat, -lon, speed), (lat, lon, -1.0), (lat, lon, 999.0)))
    return _record(number, taxi, time, lat, lon, speed, chance.randrange(360))


def _played(rows: list[list[str]], number: int) -> Record:
    lap, place = divmod(number, len(rows))
    id_, taxi, time, *rest = rows[place]
    days = (datetime.fromisoformat(rows[-1][2]) - datetime.fromisoformat(rows[0][2])).days + 1
    later = datetime.fromisoformat(time) + timedelta(days=days * lap)
    return TOPIC, taxi.encode(), ",".join((id_, taxi, later.isoformat(), *rest)).encode()


def _rows(file: str, share: int | None) -> list[list[str]]:
    """Return the rows of a site's taxis in the order of time."""
    with open(file, encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.reader(lines) if share is None or zlib.crc32(row[1].encode()) % len(EDGES) == share]
    return sorted(rows, key=lambda row: (row[2], row[0]))


def _record(id_: int, taxi: int, time: datetime, lat: float, lon: float, speed: float, heading: int) -> Record:
    line = f"{id_},{taxi},{time.isoformat(timespec='seconds')},{lat:.4f},{lon:.4f},{speed:.4f},{heading}"
    return TOPIC, str(taxi).encode(), line.encode()


def _first_taxi(site: str) -> int:
    """Return the number of a site's first taxi."""
    return zlib.crc32(site.encode()) % 100_000 * 1_000
