"""Which requests to time on the servers of a pool, and how: for a bounded time, in random order, several at once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pdla.layouts.storage_probe import BLOCK, LARGEST, Probe, Trial
from pdla.units import KiB, MiB

LEAST_SIZE = 16 * MiB  # of a scratch file
ROUNDS = 3  # of all bursts, each in its own order
STREAMS = 4  # streams at once on one server, to see what it serves in parallel
SUCCESSOR = 64 * KiB  # size of the requests at distance 0
_FILL_SHARE = 0.25  # share of the time to write the scratch files
_LARGE_SHARE = 2.5  # time of a burst of large requests, in bursts of small ones: it needs several requests, too
_SHARES = 26  # bursts in a round, about
_REQUESTS = 16  # least number of requests in a burst of large ones; their size follows from it

Group = Literal["all", "alone", "streams"]  # all servers at once, the first alone, STREAMS at once on the first


@dataclass(frozen=True)
class Measurement:
    """Requests of ``trial``, issued by ``group``, took ``seconds`` each on this server."""

    trial: Trial
    group: Group
    server: int
    seconds: float


@dataclass(frozen=True)
class Measurements:
    """All timings of a pool.

    ``small`` and ``large`` are the reads with which every group was timed. ``size`` is that of the
    scratch files. ``cached`` says why the page cache may be measured; it is empty if it is not.
    """

    rows: tuple[Measurement, ...]
    small: Trial
    large: Trial
    size: int
    cached: str


def measure(
    directories: Sequence[Path], size: int, seconds: float, advance: Callable[[float], None], seed: int
) -> Measurements:
    """Time requests of many sizes and distances for about ``seconds``, in scratch files of up to ``size`` bytes.

    ``advance`` is called with the seconds that passed since its last call. ``seed`` determines the
    order and the offsets.

    Raises:
        PdlaError: a directory cannot be written, or is full.
    """
    clock, rng = _Clock(advance), random.Random(seed)
    with ExitStack() as stack:
        probes = [stack.enter_context(Probe(directory)) for directory in directories]
        workers, stop = stack.enter_context(_crew(max(len(probes), STREAMS)))
        filling = [workers.submit(probe.fill, LEAST_SIZE, size, _FILL_SHARE * seconds, stop) for probe in probes]
        rate = min(future.result() for future in filling)
        clock.tick()

        filled, left = min(probe.size for probe in probes), max(seconds - clock.passed, 0.0)
        trials = _trials(filled, rate * left * _LARGE_SHARE / ROUNDS / _SHARES / _REQUESTS)
        small, large = trials[0], trials[1]
        bursts: list[tuple[Trial, Group]] = [(trial, "all") for trial in trials]
        bursts += [(trial, "streams") for trial in (small, large)]
        bursts += [(trial, "alone") for trial in (small, large) if len(probes) > 1]

        shares = {trial: _LARGE_SHARE if trial.size >= large.size // 2 else 1.0 for trial in trials}
        share = left / ROUNDS / sum(shares[trial] for trial, _ in bursts)
        rows = []
        for _ in range(ROUNDS):
            rng.shuffle(bursts)
            for trial, group in bursts:
                servers = {"all": list(range(len(probes))), "alone": [0], "streams": [0] * STREAMS}[group]
                length = share * shares[trial]
                jobs = [
                    workers.submit(probes[server].burst, trial, length, random.Random(rng.random()), stop)
                    for server in servers
                ]
                rows += [
                    Measurement(trial, group, server, job.result()) for server, job in zip(servers, jobs, strict=True)
                ]
                clock.tick()
        return Measurements(tuple(rows), small, large, filled, next((p.cached for p in probes if p.cached), ""))


def _trials(room: int, largest: float) -> list[Trial]:
    """Small reads at every distance that a file of this size allows; reads and writes of more sizes at one of them.

    The first two trials are the small and the large reads at that distance.
    """
    distances = [BLOCK << shift for shift in range(0, 40, 4) if BLOCK << shift <= room // 8]
    far = max(distance for distance in distances if distance <= room // 16)
    top = MiB
    while top * 2 <= min(largest, LARGEST, room // 8):
        top *= 2
    return [
        Trial("read", BLOCK, far),
        Trial("read", top, far),
        *(Trial("read", size, far) for size in (64 * KiB, 256 * KiB, top // 2)),
        *(Trial("read", BLOCK, distance) for distance in distances if distance != far),
        *(Trial("read", SUCCESSOR, 0, read_ahead) for read_ahead in (False, True)),
        *(Trial("write", size, far) for size in (BLOCK, top // 2, top)),
    ]


@contextmanager
def _crew(workers: int) -> Iterator[tuple[ThreadPoolExecutor, threading.Event]]:
    """Threads, and the event that ends their work after the present request, also if the block fails."""
    stop = threading.Event()
    with ThreadPoolExecutor(workers) as crew:
        try:
            yield crew, stop
        finally:
            stop.set()


class _Clock:
    """Reports how the time passes."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        self._advance = advance
        self._begin = time.perf_counter()
        self.passed = 0.0

    def tick(self) -> None:
        """Report the time since the last report."""
        before, self.passed = self.passed, time.perf_counter() - self._begin
        self._advance(self.passed - before)
