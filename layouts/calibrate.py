"""Measure the cost model's parameters of a pool of storage servers (docs/calibration.md)."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pdla.errors import PdlaError
from pdla.layouts.fit import Fit, Timing, fit
from pdla.layouts.storage_probe import CHUNK, Trial
from pdla.layouts.timed_requests import LEAST_SIZE, STREAMS, Group, Measurement, Measurements, measure
from pdla.model import Op, Pool
from pdla.units import GiB, format_bytes

DEFAULT_SIZE = GiB
ROTATING_STARTUP = 1e-3  # seconds of start-up: every disk needs more, every flash device less
MARKED = 1.25  # values whose ratio is larger than this count as different

Kind = Literal["hdd", "ssd", "node"]


@dataclass(frozen=True)
class Storage:
    """What to measure as one pool, with a directory per server. No kind: find it out; no name: that of the kind."""

    directories: tuple[Path, ...]
    name: str = ""
    kind: Kind | None = None


class SmallAndLarge(NamedTuple):
    """A ratio for the smallest requests and one for the largest."""

    small: float
    large: float


@dataclass(frozen=True)
class Calibration:
    """A pool as measured, with scratch files of ``size`` bytes.

    Attributes:
        cached: why the page cache may have been measured too; empty if it was not.
        together: the time of requests while all servers are busy, relative to that on one server
            alone.
        streams: the requests per second that STREAMS streams at once get from one server, relative
            to one stream.
        slowest, uneven: the slowest server, and its time relative to that of the fastest.
        doubtful: the measured start-up does not look like the kind that the kernel named.
    """

    pool: Pool
    reads: Fit
    writes: Fit
    size: int
    cached: str
    together: SmallAndLarge
    streams: SmallAndLarge
    slowest: str
    uneven: float
    doubtful: bool


def scratch_sizes(storages: Sequence[Storage], size: int | None) -> list[int]:
    """Bytes of every scratch file in each pool: ``size``, or else 1 GiB but at most a tenth of the free space.

    Raises:
        PdlaError: a directory does not exist, is named twice, or has too little space.
    """
    seen: set[str] = set()
    for directory in (directory for storage in storages for directory in storage.directories):
        if not directory.is_dir():
            raise PdlaError(f"cannot measure {directory}: no such directory; make it on the storage to measure")
        if (real := os.path.realpath(directory)) in seen:
            raise PdlaError(f"{directory} is named twice; every server needs a directory of its own")
        seen.add(real)
    return [_scratch_size(storage.directories, size) for storage in storages]


def calibrate(
    storage: Storage, size: int, seconds: float, advance: Callable[[float], None] = lambda _: None, seed: int = 0
) -> Calibration:
    """Measure one pool in about ``seconds``, with at most ``size`` bytes in each directory, all removed at the end.

    The parameters are those of servers that are all busy, as in the model. If the servers are
    unequal, they are those of the slowest one, because whatever is spread over all servers waits
    for it. ``advance`` is called with the seconds that passed since its last call. ``seed`` determines
    the order of the trials.

    Raises:
        PdlaError: a directory cannot be written, or is full.
    """
    done = measure(storage.directories, size, seconds, advance, seed)
    rows = [row for row in done.rows if row.group == "all"]
    taken = [sum(row.seconds for row in rows if row.server == n) for n in range(len(storage.directories))]
    slowest, uneven = taken.index(max(taken)), max(taken) / min(taken)
    if uneven > MARKED:
        rows = [row for row in rows if row.server == slowest]
    reads, writes = _fit(rows, "read"), _fit(rows, "write")
    says, looks = _kernel_says(storage.directories), _looks_like(reads)
    kind = storage.kind or says or looks
    return Calibration(
        pool=Pool(
            name=storage.name or kind,
            kind=kind,
            servers=len(storage.directories),
            startup=tuple((distance, estimate.value) for distance, estimate in reads.startup),
            overlap=reads.overlap,
            read_seconds_per_byte=reads.seconds_per_byte.value,
            write_seconds_per_byte=writes.seconds_per_byte.value,
            capacity=None,
            grain=max(directory.stat().st_blksize for directory in storage.directories),
            backend="directories",
            where=tuple(str(directory.absolute()) for directory in storage.directories),
        ),
        reads=reads,
        writes=writes,
        size=done.size,
        cached=done.cached,
        together=SmallAndLarge(*(_first(done, t, "all") / _alone(done, t) for t in (done.small, done.large))),
        streams=SmallAndLarge(
            *(STREAMS * _alone(done, t) / _first(done, t, "streams") for t in (done.small, done.large))
        ),
        slowest=str(storage.directories[slowest]),
        uneven=uneven,
        doubtful=storage.kind is None and kind != looks,
    )


def _scratch_size(directories: Sequence[Path], size: int | None) -> int:
    devices = [directory.stat().st_dev for directory in directories]
    room = []
    for directory, device in zip(directories, devices, strict=True):
        status = os.statvfs(directory)
        room.append(status.f_bavail * status.f_frsize // devices.count(device))
    if size is None:
        size = max(LEAST_SIZE, min(DEFAULT_SIZE, min(room) // 10 // CHUNK * CHUNK))
    elif size < LEAST_SIZE:
        raise PdlaError(f"measuring needs at least {format_bytes(LEAST_SIZE)} in each directory (got --size {size})")
    for directory, free in zip(directories, room, strict=True):
        if free < size:
            raise PdlaError(
                f"measuring {directory} needs {format_bytes(size)}, but only {format_bytes(free)} are free for it; "
                f"free some space, or give a smaller --size (at least {format_bytes(LEAST_SIZE)})"
            )
    return size


def _fit(rows: Sequence[Measurement], op: Op) -> Fit:
    """Successors were read with and without read-ahead; the faster way counts."""
    by_trial: dict[Trial, list[float]] = defaultdict(list)
    for row in rows:
        if row.trial.op == op:
            by_trial[row.trial].append(row.seconds)
    successors = [trial for trial in by_trial if trial.distance == 0]
    for slower in sorted(successors, key=lambda trial: statistics.median(by_trial[trial]))[1:]:
        del by_trial[slower]
    return fit([Timing(trial.size, trial.distance, one) for trial, seconds in by_trial.items() for one in seconds])


def _first(done: Measurements, trial: Trial, group: Group) -> float:
    """Median seconds of a request on the first server."""
    return statistics.median(
        row.seconds for row in done.rows if row.server == 0 and (row.trial, row.group) == (trial, group)
    )


def _alone(done: Measurements, trial: Trial) -> float:
    single = not any(row.group == "alone" for row in done.rows)
    return _first(done, trial, "all" if single else "alone")


def _kernel_says(directories: Sequence[Path]) -> Kind | None:
    """The kind of the block devices. File systems in memory or on a network have none."""
    answers = []
    for directory in directories:
        device = directory.stat().st_dev
        block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
        # A partition has no queue of its own.
        answers += [
            rotational.read_text().strip()
            for rotational in (block / "queue/rotational", block.parent / "queue/rotational")
            if rotational.exists()
        ]
    if len(answers) < len(directories):
        return None
    return "hdd" if "1" in answers else "ssd"


def _looks_like(reads: Fit) -> Kind:
    return "hdd" if max(estimate.value for _, estimate in reads.startup) > ROTATING_STARTUP else "ssd"
