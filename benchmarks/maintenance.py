"""How long pdla status takes with many replicas, and how fast pdla verify reads.

    python -m benchmarks.maintenance [REPLICAS] [--size GiB] [--directory DIRECTORY]

This prints a table and adds rows to build/bench.json. The replicas of pdla status are rows with
components, each of an original of its own. pdla verify reads one real replica, four files in
DIRECTORY, from storage, in turn with `cat` of the same files.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from sqlalchemy import insert

from benchmarks.results import add_rows, row
from pdla.accessmap import AccessMap
from pdla.catalog import Catalog, open_catalog
from pdla.catalog.records import signature_to_json
from pdla.catalog.tables import COMPONENTS, ORIGINALS, REPLICAS
from pdla.model import Layout, Loop, Pool, Signature
from pdla.replicator.builder import build
from pdla.replicator.mapfile import publish
from pdla.replicator.verify import verify
from pdla.units import GiB, KiB, MiB

SERVERS, ROUNDS = 4, 7


def pattern(path: Path, size: int) -> Signature:
    """Four ranks alternate, with 64 KiB each."""
    loops = (Loop(64 * KiB, SERVERS), Loop(256 * KiB, size // (256 * KiB)))
    return Signature(str(path), "read", True, 0, 64 * KiB, loops, tuple(range(SERVERS)), 1)


def fill(catalog: Catalog, directory: Path, count: int) -> None:
    """Record so many valid replicas, and publish them."""
    (directory / "originals").mkdir()
    (directory / "pool").mkdir()
    originals, replicas, components = [], [], []
    signature = pattern(directory, MiB)
    access_map = AccessMap.from_signature(signature)
    layout = Layout("disks", SERVERS, 1, (64 * KiB,) * SERVERS, AccessMap.section(signature))
    for number in range(1, count + 1):
        path = directory / "originals" / f"{number:06}.dat"
        with path.open("wb") as file:
            file.truncate(MiB)
        at = path.stat()
        identity = {
            "device": at.st_dev,
            "inode": at.st_ino,
            "size": MiB,
            "mtime_ns": at.st_mtime_ns,
            "ctime_ns": at.st_ctime_ns,
        }
        originals.append({"id": number, "path": str(path), **identity})
        replicas.append(
            {
                "id": number,
                "original_id": number,
                "signature": {**signature_to_json(signature), "file": str(path)},
                "access_map": access_map.to_json(),
                "layout": asdict(layout),
                "pool": "disks",
                "size": MiB,
                "state": "valid",
                "why": "",
                "created": datetime.now(UTC),
            }
        )
        for n in range(SERVERS):
            place = str(directory / "pool" / f"{number}.{n}")
            components.append({"replica_id": number, "number": n, "path": place, "size": MiB // SERVERS})
    with catalog.database.transaction() as connection:
        for table, rows in ((ORIGINALS, originals), (REPLICAS, replicas), (COMPONENTS, components)):
            connection.execute(insert(table), rows)
    publish(catalog)


def seconds_of_status(*words: str) -> list[tuple[float, float]]:
    """Wall-clock and processor time of the whole command, for each round."""
    command = [str(Path(sys.executable).parent / "pdla"), "status", *words]
    times = []
    for _ in range(ROUNDS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append((wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return times


def rates(directory: Path, size: int) -> tuple[list[float], list[float]]:
    """Bytes per second of verifying a replica, and of `cat` of its components, in turn, both from storage."""
    original = directory / "data"
    with original.open("wb") as file:
        for _ in range(size // (64 * MiB)):
            file.write(np.random.default_rng(1).bytes(64 * MiB))
    where = tuple(str(directory / "pools" / str(n)) for n in range(SERVERS))
    for one in where:
        Path(one).mkdir(parents=True)
    pool = Pool("disks", "hdd", SERVERS, ((0, 0.0),), 1e-8, 1e-8, None, 64 * KiB, "directories", where)
    catalog = open_catalog(f"sqlite:///{directory}/verified.db")
    signature = pattern(original, size)
    layout = Layout("disks", SERVERS, 1, (64 * KiB,) * SERVERS, AccessMap.section(signature))
    build(signature, layout, pool, catalog)
    publish(catalog, directory / "map")
    files = [component.path for component in catalog.replicas.find()[0].components]

    def cat() -> None:
        subprocess.run(["cat", *files], check=True, stdout=subprocess.DEVNULL)

    def check() -> None:
        assert verify(catalog, map_path=directory / "map") == []

    verified, read = [], []
    for _ in range(ROUNDS):
        for rate, work in ((read, cat), (verified, check)):
            rate.append(size / from_storage(files, work))
    catalog.close()
    return verified, read


def from_storage(files: Sequence[Path], work: Callable[[], object]) -> float:
    """Seconds of some work when no file is in memory."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("replicas", nargs="?", type=int, default=10_000)
    parser.add_argument("--size", type=float, default=1.0, help="GiB to verify")
    parser.add_argument("--directory", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        directory = Path(folder)
        os.environ["PDLA_HOME"] = str(directory / "home")
        catalog = open_catalog()
        fill(catalog, directory, asked.replicas)
        catalog.close()
        text, plain = seconds_of_status(), seconds_of_status("--json")
        verified, read = rates(directory, int(asked.size * GiB) // (64 * MiB) * 64 * MiB)
    rows = [
        row(f"status of {asked.replicas:,} replicas", [wall for wall, _ in text], "s", 1.0),
        row(f"status of {asked.replicas:,} replicas, processor time", [used for _, used in text], "s"),
        row(f"status --json of {asked.replicas:,} replicas", [wall for wall, _ in plain], "s"),
        row(f"status --json of {asked.replicas:,} replicas, processor time", [used for _, used in plain], "s"),
        row(
            "verifying, compared with cat",
            [rate / MiB for rate in verified],
            "MiB/s",
            0.9,
            [rate / MiB for rate in read],
        ),
    ]
    add_rows("maintenance", rows)


if __name__ == "__main__":
    main()
