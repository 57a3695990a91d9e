"""What do the cameras send?

`records` gives the reports of one site without end: key = JSON with camera, sequence number and temperature,
value = the image as a binary PPM file (P6: a header of three lines, then red, green and blue of each pixel).
The same site, seed, start and sides give the same reports, so that whatever was fed can be made again.

A site with an 'a' among the parts of its name ('pi-a', 'edge-a-1') has the cameras at trees, one with a 'b' those
that watch locations; any other has both, four tree reports to one location report, as 100 and 25 a second are.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from itertools import count

import numpy as np

Record = tuple[str, bytes | None, bytes]  # topic, key, value

TREES, LOCATIONS = "tree-reports", "location-reports"
CAMERAS = 10  # of each kind on each site
TREE_SIDE = 100  # pixels: 30 kB
LOCATION_SIDE = 408  # pixels: 499 kB
FIRE_SHARE = 0.1  # of the reports
WARM_SHARE = 0.5  # of the reports, at 25 degrees or more


def records(
    site: str, seed: int, start: int = 0, tree_side: int | str = TREE_SIDE, location_side: int | str = LOCATION_SIDE
) -> Iterator[Record]:
    """Give the reports of a site, from the one numbered `start` on.

    Args:
        site: its name; it decides which cameras there are.
        seed: what all chance comes from.
        start: number of the first report.
        tree_side: pixels on each side of a tree's image; smaller for small machines.
        location_side: the same for a location's image: 102 makes 31 kB.
    """
    place, parts = zlib.crc32(site.encode()), site.split("-")
    for number in count(start):
        is_tree = "a" in parts or ("b" not in parts and number % 5 != 4)
        kind, topic, side = ("tree", TREES, tree_side) if is_tree else ("location", LOCATIONS, location_side)
        chance = np.random.default_rng((seed, place, number))
        celsius = chance.uniform(25, 60) if chance.random() < WARM_SHARE else chance.uniform(-5, 24.9)
        image = _image(int(side), chance.random() < FIRE_SHARE, chance)
        report = {
            "camera": f"{site}/{kind}-{chance.integers(CAMERAS)}",
            "sequence": number,
            "celsius": round(float(celsius), 1),
        }
        yield topic, json.dumps(report).encode(), image


def _image(side: int, is_fire: bool, chance: np.random.Generator) -> bytes:
    """Return a forest: noise in dark green; a fire is a red square on 6 to 25 % of it."""
    pixels = chance.integers(0, 90, (side, side, 3), np.uint8)
    pixels[:, :, 1] += 60
    if is_fire:
        width = int(np.ceil(side * np.sqrt(chance.uniform(0.06, 0.25))))
        top, left = chance.integers(0, side - width + 1, 2)
        pixels[top : top + width, left : left + width] //= 2
        pixels[top : top + width, left : left + width, 0] += 190
    return f"P6\n{side} {side}\n255\n".encode() + pixels.tobytes()
