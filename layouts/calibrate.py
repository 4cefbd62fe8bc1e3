"""The cost model's parameters of a pool of storage servers, measured on them (docs/calibration.md)."""

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
from pdla.layouts.probe import CHUNK, Trial
from pdla.layouts.timed_requests import LEAST_SIZE, STREAMS, Group, Measurement, Measurements, measure
from pdla.model import Op, Pool
from pdla.units import GiB, format_bytes

DEFAULT_SIZE = GiB
ROTATING_STARTUP = 1e-3  # seconds of start-up: no flash takes as many, no disk as few
MARKED = 1.25  # times: what is more than so far apart is not the same

Kind = Literal["hdd", "ssd", "node"]


@dataclass(frozen=True)
class Storage:
    """What to measure as one pool, a directory per server; no name: the kind's, no kind: as found out."""

    directories: tuple[Path, ...]
    name: str = ""
    kind: Kind | None = None


class SmallAndLarge(NamedTuple):
    """A ratio for the smallest requests and for the largest."""

    small: float
    large: float


@dataclass(frozen=True)
class Calibration:
    """A pool as measured, with scratch files of ``size`` bytes.

    ``cached`` says why the page cache may be measured too (empty: it is not). ``together`` is how many times as long
    requests take while all servers are busy as on one alone, ``streams`` how many times as many of them STREAMS
    at once get from one server as one. ``slowest`` is the server that takes longest, ``uneven`` how many times as long
    as the fastest. ``doubtful``: the kernel named a kind that the start-up does not look like.
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
    """Bytes of every scratch file in each pool: ``size``, or else 1 GiB but at most a tenth of what is free.

    Raises:
        PdlaError: there is no such directory, or one is named twice, or there is not the space.
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
    storage: Storage, size: int, seconds: float, tell: Callable[[float], None] = lambda _: None, seed: int = 0
) -> Calibration:
    """Measure one pool in about ``seconds``, with at most ``size`` bytes in each directory, of which nothing is left.

    The parameters are those of servers that are all busy, as they are in the model; of the slowest where they are
    unequal, for whatever is spread over all waits for it. ``tell`` hears how many seconds have passed since it last
    heard; ``seed`` decides the order of the trials.

    Raises:
        PdlaError: a directory cannot be written, or is full.
    """
    done = measure(storage.directories, size, seconds, tell, seed)
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
        raise PdlaError(f"measuring takes at least {format_bytes(LEAST_SIZE)} in each directory (got --size {size})")
    for directory, free in zip(directories, room, strict=True):
        if free < size:
            raise PdlaError(
                f"measuring {directory} takes {format_bytes(size)}, but {format_bytes(free)} are free for it; "
                f"free some, or give a smaller --size (at least {format_bytes(LEAST_SIZE)})"
            )
    return size


def _fit(rows: Sequence[Measurement], op: Op) -> Fit:
    """Successors were read with and without read-ahead: the faster way counts."""
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
    """Of the block devices, of which there are none behind a network's or memory's file system."""
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
