"""The speed of building and verifying replicas, compared with `cp` of the same bytes: docs/benchmarks.md.

python -m benchmarks.builder [--size 1GiB] [--rounds 5] [--directory DIRECTORY] [--ranks 1] [--only
NAME ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import google_crc32c

from benchmarks.results import add_rows, row
from pdla.accessmap import AccessMap
from pdla.model import Layout, Loop, Pool, Signature
from pdla.replicator.transpose import aligned
from pdla.units import GiB, KiB, MiB, parse_bytes

SERVERS = 4
RANKS = 4
"""Number of strided patterns; each has every fourth piece."""
GOAL = 0.8
LEAST = "the least"
"""The name of a copy that only writes everything to storage and reads it back, without putting it in order."""
THREADS = 4
PIECE = 4 * MiB


def shapes(size: int) -> dict[str, tuple[int, tuple[Loop, ...], int]]:
    """Patterns that cover a file of ``size`` bytes: length of a piece, loops, number of loops over the ranks."""

    def strided(piece: int) -> tuple[int, tuple[Loop, ...], int]:
        return piece, (Loop(piece, RANKS), Loop(piece * RANKS, size // piece // RANKS)), 1

    row = 16 * KiB
    tile = (4 * KiB, (Loop(size // 4, 4), Loop(4 * KiB, 4), Loop(row, size // row // 4)), 2)
    return {
        "1 MiB": strided(MiB),
        "64 KiB": strided(64 * KiB),
        "4 KiB": strided(4 * KiB),
        "4 x 4 tiles of 4 KiB rows": tile,
        "64 B": strided(64),
        "8 B": strided(8),
    }


CHILD = """
import json, sys
from benchmarks.builder import child
child(*sys.argv[1:])
"""


def child(original: str, pools: str, name: str) -> None:
    """Build one replica in this process, or as one of several; process 0 prints the seconds and MiB of memory."""
    from pdla.catalog import open_catalog
    from pdla.cli.processes import mpi_processes
    from pdla.replicator.builder import build
    from pdla.replicator.collective_steps import Alone
    from pdla.replicator.copying import assist, dismiss

    processes = mpi_processes() or Alone()
    if processes.rank:
        assist(processes)
    else:
        size = Path(original).stat().st_size
        length, loops, rank_loops = shapes(size)[name]
        ranks = 1
        for loop in loops[:rank_loops]:
            ranks *= loop.count
        signature = Signature(original, "read", True, 0, length, loops, tuple(range(ranks)), rank_loops)
        where = tuple(f"{pools}/{n}" for n in range(SERVERS))
        pool = Pool("disks", "hdd", SERVERS, ((0, 0.0),), 1e-8, 1e-8, 1 << 50, 4096, "directories", where)
        layout = Layout("disks", SERVERS, 1, (64 * KiB,) * SERVERS, AccessMap.section(signature))
        built = build(signature, layout, pool, open_catalog(), processes=processes)
        dismiss(processes)
        print(built.seconds, flush=True)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    memory = max(processes.gather(int(peak.split()[1])) or [0])
    if not processes.rank:
        print(memory / 1024)


def built(original: Path, scratch: Path, name: str, ranks: int) -> tuple[float, float]:
    """Seconds to build a replica, and the largest memory of a process in MiB; the replica is removed."""
    for number in range(SERVERS):
        (scratch / f"pools/{number}").mkdir(parents=True)
    command = [sys.executable, "-c", CHILD, str(original), str(scratch / "pools"), name]
    if ranks > 1:
        command = [str(Path(sys.executable).parent / "mpiexec"), "-n", str(ranks), *command]
    environment = {**os.environ, "PDLA_HOME": str(scratch / "home"), "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    seconds, memory = map(float, done.stdout.split())
    for directory in ("pools", "home"):
        shutil.rmtree(scratch / directory)
    return seconds, memory


def copied(original: Path, scratch: Path, synced: bool) -> float:
    """Seconds of ``cp``, with ``sync`` of the copy if wanted; the copy is removed."""
    copy = scratch / "copy"
    began = time.perf_counter()
    subprocess.run(["cp", original, copy], check=True)
    if synced:
        subprocess.run(["sync", copy], check=True)
    seconds = time.perf_counter() - began
    subprocess.run(["sync", copy], check=True)
    copy.unlink()
    return seconds


def least(original: Path, scratch: Path, cached: bool) -> float:
    """Seconds of the work that every build must do: read the original, here piece by piece, write it to storage, into
    equally many files with reserved space, and read it back. The copy is removed.
    """
    size = original.stat().st_size
    paths = [scratch / f"copy{number}" for number in range(SERVERS)]

    def share(number: int) -> None:
        data, back = aligned(PIECE), aligned(PIECE)
        for offset in range(number * PIECE, size, THREADS * PIECE):
            file, at = files[offset // PIECE % SERVERS], offset // PIECE // SERVERS * PIECE
            counts = (
                os.preadv(source, [data.data], offset),
                os.pwritev(file, [data.data], at),
                os.preadv(file, [back.data], at),
            )
            if counts != (PIECE,) * 3 or google_crc32c.value(data) != google_crc32c.value(back):
                raise OSError(f"{paths[offset // PIECE % SERVERS]} did not come back as it was written")

    began = time.perf_counter()
    with ExitStack() as stack:
        source = os.open(original, os.O_RDONLY | (0 if cached else os.O_DIRECT))
        files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT) for path in paths]
        for file in (source, *files):
            stack.callback(os.close, file)
        for file in files:
            os.posix_fallocate(file, 0, size // SERVERS)
        list(stack.enter_context(ThreadPoolExecutor(THREADS)).map(share, range(THREADS)))
        for file in files:
            os.fsync(file)
        seconds = time.perf_counter() - began
    for path in paths:
        path.unlink()
    return seconds


def prepare(original: Path, cached: bool) -> None:
    """Put the original into the page cache, or drop it."""
    with original.open("rb", buffering=0) as file:
        if cached:
            buffer = bytearray(4 * MiB)
            while file.readinto(buffer):
                pass
        else:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def make(original: Path, size: int) -> None:
    """Write random bytes."""
    with original.open("wb", buffering=0) as file:
        for _ in range(size // MiB):
            file.write(os.urandom(MiB))
        os.fsync(file.fileno())


def main() -> None:
    """Measure in turn, print a table, add rows to build/bench.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=parse_bytes, default=GiB)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="names of shapes")
    parser.add_argument("--state", choices=["cold", "warm"], nargs="*", default=["cold", "warm"])
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        scratch = Path(name)
        original = scratch / "original"
        make(original, options.size)
        for shape in options.only or shapes(options.size):
            for state in options.state:
                seconds: dict[str, list[float]] = {"cp": [], "cp + fsync": [], LEAST: [], "built": []}
                memory = 0.0
                for _ in range(options.rounds):
                    for how, values in seconds.items():
                        prepare(original, state == "warm")
                        if how == "built":
                            spent, used = built(original, scratch, shape, options.ranks)
                            memory = max(memory, used)
                        elif how == LEAST:
                            spent = least(original, scratch, state == "warm")
                        else:
                            spent = copied(original, scratch, how != "cp")
                        values.append(spent)
                rows += compared(f"{shape}, {state}", options.size, seconds, memory)
    add_rows("builder", rows)


def compared(name: str, size: int, seconds: dict[str, list[float]], memory: float) -> list[dict[str, Any]]:
    """The rows of a shape."""
    rates = {how: [size / MiB / value for value in values] for how, values in seconds.items()}
    return [
        *(
            row(f"{name}, compared with {how}", rates["built"], "MiB/s", GOAL, rates[how])
            for how in (LEAST, "cp + fsync", "cp")
        ),
        row(f"{name}, resident", [memory], "MiB"),
    ]


if __name__ == "__main__":
    main()
