"""Give way to others on this machine: measure their load, take lower priorities, and limit the bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pdla.units import format_bytes

LEAST_SECONDS = 1.0  # the kernel's counters are too coarse for shorter intervals


@dataclass(frozen=True)
class Activity:
    """What this machine did since it started: its processors, its disks, and this process on both."""

    time: float
    processors: float
    disks: int
    own_processors: float
    own_disks: int


def activity() -> Activity:
    """The present counters, in seconds of processor time and in bytes."""
    of_all, own = psutil.cpu_times(), psutil.Process()
    of_disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    own_times, own_io = own.cpu_times(), own.io_counters()
    return Activity(
        time=time.monotonic(),
        # Work at a low priority (nice) gives way by itself, as this process does.
        processors=of_all.user + of_all.system + of_all.irq + of_all.softirq,
        disks=sum(disk.read_bytes + disk.write_bytes for name, disk in of_disks.items() if _is_disk(name)),
        own_processors=own_times.system,
        own_disks=own_io.read_bytes + own_io.write_bytes,
    )


def _is_disk(name: str) -> bool:
    """Whether a block device is a disk: no partition, and not made of other devices, whose bytes would count twice."""
    device = Path("/sys/block") / name
    return device.exists() and not any((device / "slaves").glob("*")) and not name.startswith(("loop", "ram", "zram"))


class Gate:
    """Whether others leave the machine idle enough.

    ``share`` is the share of the processors that others may keep busy. ``rate`` is the bytes per
    second that they may move from and to the disks of this machine.
    """

    def __init__(self, share: float, rate: float, look: Callable[[], Activity] = activity) -> None:
        self._share, self._rate, self._look = share, rate, look
        self._last = look()
        self._ahead = 0  # own bytes that have not reached the disks yet
        self._busy = ""

    def busy(self) -> str:
        """What others used too much of since the last call; empty if nothing."""
        now, last = self._look(), self._last
        seconds = now.time - last.time
        if seconds < LEAST_SECONDS:
            return self._busy
        self._last = now
        used = (now.processors - last.processors) - (now.own_processors - last.own_processors)
        # The counters and the clock are not read at one moment: the sum may seem to be more than
        # all processors.
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
    """Give this process, and threads that it starts from now on, the lowest priority for processors and disks."""
    process = psutil.Process()
    process.nice(19)
    process.ionice(psutil.IOPRIO_CLASS_IDLE)


class Limit:
    """A limit of bytes per second, over any interval of a second or longer."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._due = time.monotonic()

    def wait(self, count: int) -> float:
        """Seconds to wait after ``count`` bytes were moved."""
        now = time.monotonic()
        self._due = max(self._due, now - 1.0) + count / self._rate
        return max(0.0, self._due - now)
