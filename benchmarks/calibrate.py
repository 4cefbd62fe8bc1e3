"""The accuracy of `pdla calibrate` against known limits, and of the model against measured times: docs/benchmarks.md.

python -m benchmarks.calibrate [--rounds 3] [--seconds 30] [--directory /dev/shm]

Needs root: it throttles loop devices, and removes them again.
"""

from __future__ import annotations

import argparse
import mmap
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cleanup import workspace
from benchmarks.results import add_rows, row
from benchmarks.throttled import HDD, SSD, Limits, throttled_disk
from pdla.layouts.candidates import candidates
from pdla.layouts.config import load_cluster
from pdla.layouts.striping import locate
from pdla.model import Cluster, Layout, Loop, Pool, Signature
from pdla.units import KiB, MiB, format_bytes

HERE = Path(__file__).parent
DISKS = 4  # of each kind
IMAGE = 640 * MiB
SCRATCH = 256 * MiB
FILE = 256 * MiB
STRIP = 64 * KiB
KINDS = {"hdd": HDD, "ssd": SSD}


class Pattern(NamedTuple):
    """``ranks`` read ``size`` bytes at every ``stride`` of their part of a file, all of it ``repeats`` times."""

    size: int
    stride: int
    ranks: int
    repeats: dict[str, int]  # by kind of disk, so that the fastest case takes two seconds

    def signature(self, kind: str) -> Signature:
        """The signature that the analyzer would find. A rank's part begins on the server after the previous one's."""
        calls = FILE // self.ranks // self.stride
        loops = [Loop(0, self.repeats[kind]), Loop(self.stride, calls)]
        if self.ranks > 1:
            loops.insert(0, Loop(FILE // self.ranks + STRIP, self.ranks))
        total = self.ranks * self.repeats[kind] * calls
        return Signature(
            "file", "read", False, 0, self.size, tuple(loops), tuple(range(self.ranks)), int(self.ranks > 1), total
        )


PATTERNS = (
    Pattern(4 * KiB, 256 * KiB, 4, {"hdd": 1, "ssd": 16}),
    Pattern(16 * KiB, 256 * KiB, 4, {"hdd": 1, "ssd": 16}),
    Pattern(64 * KiB, 256 * KiB, 4, {"hdd": 1, "ssd": 16}),
    Pattern(4 * MiB, 8 * MiB, 1, {"hdd": 4, "ssd": 16}),
)


class Component(NamedTuple):
    """``length`` bytes at ``offset`` of what one disk has of a request."""

    disk: int
    offset: int
    length: int


def split(layout: Layout, offset: int, size: int) -> list[Component]:
    """A request as each disk sees it: its strips are adjacent there."""
    parts: dict[int, list[Component]] = {}
    for piece in locate(layout, offset, offset + size):
        parts.setdefault(piece.component, []).append(Component(piece.component, piece.offset, piece.length))
    return [Component(disk, found[0].offset, sum(one.length for one in found)) for disk, found in parts.items()]


def written(directory: Path, size: int) -> int:
    """A new file of ``size`` bytes, written to the disk, open for O_DIRECT."""
    descriptor = os.open(directory / "file", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    buffer = mmap.mmap(-1, 4 * MiB)
    buffer[:] = os.urandom(len(buffer))
    for offset in range(0, size, len(buffer)):
        os.pwrite(descriptor, buffer, offset)
    return descriptor


def measured(signature: Signature, directories: Sequence[Path]) -> float:
    """Seconds that the reads take from a file striped over the disks in 1-DH, a thread for each rank."""
    count = len(directories)
    layout = Layout("disks", count, 1, (STRIP,) * count, 1 << 40)
    offsets, ranks, _ = signature.expand()
    requests = [
        [split(layout, int(offset), signature.length) for offset in offsets[ranks == rank]] for rank in signature.ranks
    ]
    with ThreadPoolExecutor(DISKS) as disks, ThreadPoolExecutor(DISKS) as programs, ExitStack() as stack:
        size = FILE // count + 4 * MiB
        files = list(disks.map(lambda directory: written(directory, size), directories))
        for file in files:
            stack.callback(os.close, file)

        def read(part: Component, buffer: mmap.mmap) -> None:
            os.preadv(files[part.disk], [memoryview(buffer)[: part.length]], part.offset)

        def program(mine: list[list[Component]]) -> None:
            buffers = [mmap.mmap(-1, signature.length) for _ in files]
            for parts in mine:
                if len(parts) == 1:
                    read(parts[0], buffers[0])
                else:
                    list(disks.map(read, parts, buffers))

        begin = time.perf_counter()
        list(programs.map(program, requests))
        return time.perf_counter() - begin


def predicted(signature: Signature, cluster: Cluster, kind: str, servers: int) -> float:
    """The cost model's prediction for these reads."""
    home = replace(cluster, home_pool=kind, home_servers=servers, home_strip=STRIP)
    return candidates(signature, FILE, home, [])[0].cost.total


def calibrated(disks: dict[str, list[Path]], seconds: float, directory: Path) -> Cluster:
    """What `pdla calibrate` writes about all the disks."""
    output = directory / "cluster.toml"
    pools = [f"--pool={kind}={','.join(map(str, found))}" for kind, found in disks.items()]
    command = [Path(sys.executable).parent / "pdla", "calibrate", *pools, "-o", output, "--force"]
    subprocess.run([*command, f"--seconds={seconds}", f"--size={SCRATCH}"], check=True)
    return load_cluster(output)


def limit_rows(kind: str, limits: Limits, pools: list[Pool]) -> list[dict[str, Any]]:
    """The parameters, compared with the limits."""
    apart = [statistics.mean(seconds for distance, seconds in pool.startup if distance) for pool in pools]
    requests, rate = [float(limits.requests_per_second)], [limits.bytes_per_second / 1e6]
    reads = [1e-6 / pool.read_seconds_per_byte for pool in pools]
    writes = [1e-6 / pool.write_seconds_per_byte for pool in pools]
    return [
        row(f"{kind}: 1 / start-up", [1 / one for one in apart], "requests/s", 0.15, requests),
        row(f"{kind}: reading", reads, "MB/s", 0.15, rate),
        row(f"{kind}: writing", writes, "MB/s", 0.15, rate),
    ]


def main() -> None:
    """Measure, print a table, add rows to build/bench.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with ExitStack() as stack:
        directory = stack.enter_context(workspace(options.directory))
        disks = {
            kind: [
                stack.enter_context(throttled_disk(directory, f"{kind}{number}", IMAGE, limits))
                for number in range(DISKS)
            ]
            for kind, limits in KINDS.items()
        }
        clusters = [calibrated(disks, options.seconds, directory) for _ in range(options.rounds)]
        rows = []
        for kind, limits in KINDS.items():
            rows += limit_rows(kind, limits, [cluster.pool(kind) for cluster in clusters])
        for kind in KINDS:
            for pattern in PATTERNS:
                for servers in (1, 2, 4):
                    signature = pattern.signature(kind)
                    took = [measured(signature, disks[kind][:servers]) for _ in range(options.rounds)]
                    said = [predicted(signature, cluster, kind, servers) for cluster in clusters]
                    name = f"{kind}: {format_bytes(pattern.size)} strided, from {servers}"
                    rows.append(row(name, said, "s, predicted", 0.25, took))
    add_rows("calibration", rows)


if __name__ == "__main__":
    main()
