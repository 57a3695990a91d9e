"""What does a scenario file say of a machine?"""

from __future__ import annotations

from dataclasses import replace

from headwater.model import fields
from headwater.model.fields import Field, Spot, read_fields
from headwater.model.scenario import Machine

__all__ = ["read_machine"]

MACHINE = {
    "capacity": Field("capacity", fields.quantity("number", above_zero=True)),
    "cores": Field("cores", fields.quantity("cores", above_zero=True)),
    "speed": Field("speed", fields.quantity("number", above_zero=True)),
    "price": Field("price", fields.quantity("number")),
}


def read_machine(spot: Spot, name: str, also: dict[str, Field] | None = None) -> Machine:
    """Return a machine; what is reported as wrong is left out. `also` holds keys that are read elsewhere."""
    found = read_fields(spot, MACHINE | (also or {}))
    if "capacity" in found and ("cores" in found or "speed" in found):
        spot.add("HW1011", "capacity", "is cores times speed. Give either the one or the others.")
    one = Machine(name, found.get("cores", 1.0), found.get("speed", 1.0), found.get("price", 0.0))
    return replace(one, cores=1.0, speed=found["capacity"]) if "capacity" in found else one
