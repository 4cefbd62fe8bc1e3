"""What the autopilot may use of the storage: the table [autopilot] of cluster.toml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True)
class Budget:
    """The limits of what the autopilot builds in the background.

    Attributes:
        space: bytes of all its replicas; None: what the pools hold.
        files: components of all its replicas; None: any number.
        bandwidth: bytes per second that it copies at most; None: no limit.
        hours: it builds only from the first to the second minute of the day, local time; None:
            always. The second may be on the next day.
    """

    space: int | None = None
    files: int | None = None
    bandwidth: int | None = None
    hours: tuple[int, int] | None = None

    def is_open(self, now: datetime) -> bool:
        """Whether this is a time of day at which it builds.

        >>> night = Budget(hours=parse_hours("22:00-06:00"))
        >>> night.is_open(datetime(2026, 1, 1, 5, 59)), night.is_open(datetime(2026, 1, 1, 6, 0))
        (True, False)
        """
        if self.hours is None:
            return True
        start, stop = self.hours
        minute = now.hour * 60 + now.minute
        return start <= minute < stop if start < stop else minute >= start or minute < stop

    @property
    def hours_text(self) -> str:
        """The time of day in words."""
        return "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in self.hours or ())


def parse_hours(value: object) -> tuple[int, int]:
    """The minutes of the day of a text such as "22:00-06:00".

    Raises:
        ValueError: it is something else.
    """
    found = _HOURS.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('two times of day like "22:00-06:00"')
    hours = [int(part) for part in found.groups()]
    return hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
