"""Time reads and writes of a scratch file on the storage to measure, bypassing the page cache if possible."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import mmap
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdla.errors import PdlaError
from pdla.model import Op
from pdla.mounts import kind_of
from pdla.units import KiB, MiB

BLOCK = 4 * KiB  # O_DIRECT needs offsets and sizes in logical blocks of the device, which are 512 B or 4 KiB
CHUNK = 4 * MiB
LARGEST = 8 * MiB
IN_MEMORY = ("tmpfs", "ramfs")  # recent kernels accept O_DIRECT there, but there is only the page cache


@dataclass(frozen=True)
class Trial:
    """Requests of ``size`` bytes, each of which begins ``distance`` bytes after the end of the previous one.

    ``read_ahead``: the requests go through the page cache, which holds only what the system has
    read ahead.
    """

    op: Op
    size: int
    distance: int
    read_ahead: bool = False


class Probe:
    """A file without a name in ``directory``: whatever ends the process, nothing is left of it.

    ``cached`` says why the page cache may be measured, too; it is empty if it is not.

    Raises:
        PdlaError: no file can be made there.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.size = 0
        with self._failures():
            self._file = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115  # __exit__ closes it
        self._direct = self._file.fileno()
        self._through_cache = os.open(f"/proc/self/fd/{self._direct}", os.O_RDONLY | os.O_CLOEXEC)
        self._payload = _aligned(LARGEST)
        self._payload[:] = os.urandom(LARGEST)
        self.cached = ""
        self.cached = self._bypass_cache()

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._through_cache)
        self._file.close()

    def fill(self, least: int, size: int, seconds: float, stop: threading.Event) -> float:
        """Write the file: ``least`` bytes, then up to ``size`` within ``seconds``; return the bytes per second."""
        begin = time.perf_counter()
        while self.size + CHUNK <= size and not stop.is_set():
            if self.size >= least and time.perf_counter() - begin > seconds:
                break
            self._write(self._payload[:CHUNK], self.size)
            self.size += CHUNK
        return self.size / (time.perf_counter() - begin)

    def burst(self, trial: Trial, seconds: float, rng: random.Random, stop: threading.Event) -> float:
        """Seconds per request, from at least three requests and as many as ``seconds`` allow."""
        buffer = self._payload[: trial.size] if trial.op == "write" else _aligned(trial.size)
        source = self._through_cache if trial.read_ahead else self._direct
        ends, last = [time.perf_counter()], self.size
        for offset in offsets(trial, self.size, rng):
            if stop.is_set() or (len(ends) > 3 and ends[-1] - ends[0] > seconds):
                break
            if offset < last:
                os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
            last = offset
            if trial.op == "write":
                self._write(buffer, offset)
            else:
                with self._failures():
                    os.preadv(source, [buffer], offset)
            ends.append(time.perf_counter())
        return stall_to_stall(ends)

    def _write(self, buffer: memoryview, offset: int) -> None:
        with self._failures():
            written = 0
            while written < len(buffer):
                written += os.pwrite(self._direct, buffer[written:], offset + written)
            if self.cached:
                os.fdatasync(self._direct)

    def _bypass_cache(self) -> str:
        """Set O_DIRECT; return why that does not help, or "" if it does."""
        flags = fcntl.fcntl(self._direct, fcntl.F_GETFL)
        kind = kind_of(os.fstat(self._direct).st_dev)
        if kind in IN_MEMORY:
            return f"{kind} is memory"
        try:
            fcntl.fcntl(self._direct, fcntl.F_SETFL, flags | os.O_DIRECT)
            self._write(self._payload[:BLOCK], 0)
        except (OSError, PdlaError):
            fcntl.fcntl(self._direct, fcntl.F_SETFL, flags)
            os.posix_fadvise(self._direct, 0, 0, os.POSIX_FADV_RANDOM)
            return f"{kind} refuses O_DIRECT"
        return ""

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PdlaError(
                f"cannot measure the storage of {self.directory}: {error.strerror}; "
                "give a directory on it that has free space and that you can write to"
            ) from None


def stall_to_stall(ends: Sequence[float]) -> float:
    """Seconds per request, from the time at which the first one begins and those at which each ends.

    The interval goes from the end of the first request that took at least half as long as the
    longest one to the end of the last such request, if that is at least a third of the time. A
    limit on rates (Linux's blkio throttle, cloud volumes) lets requests through in slices of time
    and saves up credit while there are none. Between two stalls there are whole slices, and saved
    credit is spent. For equal requests this changes nothing. The first one may have waited for
    earlier ones.

    >>> stall_to_stall([0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9])  # 3 at once every 3 s, after some for nothing
    1.0
    """
    took = [after - before for before, after in itertools.pairwise(ends)]
    stall = max(took[1:]) / 2
    stalls = [number for number, seconds in enumerate(took) if seconds >= stall]
    first, last = stalls[0], stalls[-1]
    if ends[last + 1] - ends[first + 1] <= (ends[-1] - ends[0]) / 3:
        first, last = 0, len(took) - 1
    return (ends[last + 1] - ends[first + 1]) / (last - first)


def _aligned(size: int) -> memoryview:
    return memoryview(mmap.mmap(-1, size))


def offsets(trial: Trial, room: int, rng: random.Random) -> Iterator[int]:
    """Offsets forward from somewhere in the file, then again from near its beginning, never from the same block."""
    step = trial.size + trial.distance
    first = room - trial.size
    while True:
        yield from range(BLOCK * rng.randint(0, first // BLOCK), room - trial.size + 1, step)
        first = min(step, room - trial.size)
