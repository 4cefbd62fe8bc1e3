"""Staying out of the way: what others do on this machine, priorities below theirs, and a limit on bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pdla.units import format_bytes

LEAST_SECONDS = 1.0  # counters of the kernel are too coarse for shorter looks


@dataclass(frozen=True)
class Activity:
    """What this machine has done since it started: of its processors, of its disks, and of both this process."""

    time: float
    processors: float
    disks: int
    own_processors: float
    own_disks: int


def activity() -> Activity:
    """The counters of now, in seconds of processor time and in bytes."""
    of_all, own = psutil.cpu_times(), psutil.Process()
    of_disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    own_times, own_io = own.cpu_times(), own.io_counters()
    return Activity(
        time=time.monotonic(),
        # Work at a low priority (nice) gives way by itself, as this does.
        processors=of_all.user + of_all.system + of_all.irq + of_all.softirq,
        disks=sum(disk.read_bytes + disk.write_bytes for name, disk in of_disks.items() if _is_disk(name)),
        own_processors=own_times.system,
        own_disks=own_io.read_bytes + own_io.write_bytes,
    )


def _is_disk(name: str) -> bool:
    """Whether a block device is one by itself: no partition, and not made of others, whose bytes would count twice."""
    device = Path("/sys/block") / name
    return device.exists() and not any((device / "slaves").glob("*")) and not name.startswith(("loop", "ram", "zram"))


class Gate:
    """Whether others leave the machine idle enough.

    ``share``: of the processors, that they may keep busy; ``rate``: bytes per second, that they may move from and to
    the disks of this machine.
    """

    def __init__(self, share: float, rate: float, look: Callable[[], Activity] = activity) -> None:
        self._share, self._rate, self._look = share, rate, look
        self._last = look()
        self._ahead = 0  # own bytes that have still to reach the disks
        self._busy = ""

    def busy(self) -> str:
        """What others have been doing too much of since the last look; empty: nothing."""
        now, last = self._look(), self._last
        seconds = now.time - last.time
        if seconds < LEAST_SECONDS:
            return self._busy
        self._last = now
        used = (now.processors - last.processors) - (now.own_processors - last.own_processors)
        # The counters and the clock are not read at one moment: there may seem to be more than all of them.
        share = min(1.0, max(0.0, used / seconds / (psutil.cpu_count() or 1)))
        moved = (now.disks - last.disks) - (now.own_disks - last.own_disks) - self._ahead
        self._ahead = max(0, -moved)
        rate = max(0, moved) / seconds
        self._busy = ""
        if share > self._share:
            self._busy = f"others keep {share:.0%} of the processors busy (limit {self._share:.0%})"
        elif rate > self._rate:
            self._busy = f"others move {format_bytes(rate)}/s from and to disks (limit {format_bytes(self._rate)}/s)"
        return self._busy


def give_way() -> None:
    """Have this process, and threads that it starts from now on, computed and served by disks after all others."""
    process = psutil.Process()
    process.nice(19)
    process.ionice(psutil.IOPRIO_CLASS_IDLE)


class Limit:
    """At most so many bytes per second, over any second or longer."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def wait(self, count: int) -> float:
        """Seconds to wait after ``count`` bytes were moved."""
        now = time.monotonic()
        self._due = max(self._due, now - 1.0) + count / self._rate
        return max(0.0, self._due - now)
