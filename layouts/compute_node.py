"""A node that runs programs: what its processors take for requests of files, and to move bytes from rank to rank."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pdla.errors import PdlaError
from pdla.layouts.fit import Estimate, Timing, fit
from pdla.units import KiB, MiB

MOST = 64 * MiB  # of a scratch file: more than processors' caches hold
SIZES = (4 * KiB, 64 * KiB, MiB)
ROUNDS = 5


@dataclass(frozen=True)
class Node:
    """``cores`` processors, which take ``call`` seconds for a request and ``copy`` for each of its bytes, if it is in
    the page cache, and ``exchange`` for a byte from rank to rank in collective calls (None: nobody has measured it).
    The page cache reads ahead ``read_ahead`` bytes; 0: there is none for this storage, or the kernel does not say."""

    cores: int
    read_ahead: int
    call: Estimate
    copy: Estimate
    exchange: Estimate | None


def node(directory: Path, room: int, exchange: Estimate | None = None) -> Node:
    """Measure on this node, with a file of at most ``room`` bytes in ``directory``, of which nothing is left.

    Raises:
        PdlaError: no file can be made there.
    """
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            room = file.write(os.urandom(min(room, MOST)))
            timings = [Timing(size, 0, _cached(file.fileno(), room, size)) for _ in range(ROUNDS) for size in SIZES]
    except OSError as error:
        raise PdlaError(f"cannot measure the page cache in {directory}: {error.strerror}; make room there") from None
    line = fit(timings)
    cores = len(os.sched_getaffinity(0))
    return Node(cores, _read_ahead(directory), line.startup[0][1], line.seconds_per_byte, exchange)


def _cached(file: int, room: int, size: int) -> float:
    """Seconds of a processor for a read of what is in the page cache."""
    buffer, begin = memoryview(bytearray(size)), time.thread_time()
    for offset in range(0, room, size):
        os.preadv(file, [buffer], offset)
    return (time.thread_time() - begin) / (room // size)


def _read_ahead(directory: Path) -> int:
    """Bytes that the kernel reads ahead at most in files there."""
    device = directory.stat().st_dev
    told = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    return int(told.read_text()) * KiB if told.exists() else 0
