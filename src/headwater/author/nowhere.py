"""Where does code run that is only looked at?

A runner's session says on which site it is and which broker is near. A session that only looks at a project
must say so too, and says what can be told from any real place.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["BROKER", "PLACEHOLDERS", "SITE"]

SITE = "headwater.site"  # settings of the session
BROKER = "headwater.broker"
PLACEHOLDERS: Mapping[str, str] = MappingProxyType({SITE: "site.invalid", BROKER: "broker.invalid:9092"})
