"""What tests put into catalogs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pdla.accessmap import AccessMap
from pdla.model import Identity, Layout, Loop, Signature

PATTERN = Signature("/data", "read", True, 5, 64, (Loop(64, 2), Loop(256, 8)), (4, 6), 1, calls=16, t_end=1.5)
MAP = AccessMap.from_signature(PATTERN)
LAYOUT = Layout("disk", 2, 1, (64, 128), 512)
IDENTITY = Identity(2**64 - 3, 2**63 + 5, 4096, 1_700_000_000_123_456_789, 1_700_000_000_987_654_321)


@dataclass
class Plain:
    """A report of plain values."""

    values: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return self.values
