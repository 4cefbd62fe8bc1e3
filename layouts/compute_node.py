"""A node that runs programs: what its processors need for requests of files, and to move bytes between ranks."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pdla.errors import PdlaError
from pdla.layouts.fit import Estimate, Timing, fit
from pdla.units import KiB, MiB

MOST = 64 * MiB  # of a scratch file: more than the processors' caches hold
SIZES = (4 * KiB, 64 * KiB, MiB)
ROUNDS = 5


@dataclass(frozen=True)
class Node:
    """A compute node, as measured.

    Attributes:
        cores: number of processors.
        read_ahead: bytes that the page cache reads ahead; 0: nothing for this storage, or the
            kernel does not say.
        call: processor seconds for a request.
        copy: processor seconds for each byte of a request that is in the page cache.
        exchange: seconds for a byte from rank to rank in collective calls; None: not measured.
    """

    cores: int
    read_ahead: int
    call: Estimate
    copy: Estimate
    exchange: Estimate | None


def node(directory: Path, room: int, exchange: Estimate | None = None) -> Node:
    """Measure this node, with a file of at most ``room`` bytes in ``directory``, which is removed.

    Raises:
        PdlaError: no file can be made there.
    """
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            room = file.write(os.urandom(min(room, MOST)))
            timings = [Timing(size, 0, _cached(file.fileno(), room, size)) for _ in range(ROUNDS) for size in SIZES]
    except OSError as error:
        raise PdlaError(f"cannot measure the page cache in {directory}: {error.strerror}; free some space") from None
    line = fit(timings)
    cores = len(os.sched_getaffinity(0))
    return Node(cores, _read_ahead(directory), line.startup[0][1], line.seconds_per_byte, exchange)


def _cached(file: int, room: int, size: int) -> float:
    """Processor seconds of a read from the page cache."""
    buffer, begin = memoryview(bytearray(size)), time.thread_time()
    for offset in range(0, room, size):
        os.preadv(file, [buffer], offset)
    return (time.thread_time() - begin) / (room // size)


def _read_ahead(directory: Path) -> int:
    """Bytes that the kernel reads ahead, at most, in files in this directory."""
    device = directory.stat().st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    return int(setting.read_text()) * KiB if setting.exists() else 0
