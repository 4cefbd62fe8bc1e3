"""What requests of many clients cost an OrangeFS server: processor seconds a request, by clients and sizes.

One I/O server on 127.0.0.1 keeps its data in memory; a metadata server is beside it. Clients are
processes with a connection each, which share the machine's processors with the server. So the
processor seconds of the server are the figure, and the rates stand beside it. docs/simulator.md
has the results.

python -m benchmarks.orangefs_clients [--rounds 2] [--seconds 0.5] [--idle]
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.processes import end_on_signals
from benchmarks.results import keep, row
from pdla.units import KiB, MiB, format_bytes
from tools.loopback_orangefs import SERVER, OrangeFSServers, missing, search_path

SOURCE = Path(__file__).with_suffix(".c")
CLIENTS = (8, 16, 32, 64, 128, 256, 512)
SIZES = (4 * KiB, 16 * KiB, 64 * KiB, 256 * KiB, MiB, 4 * MiB)
ACTIVE = 8
"""With --idle: the clients that make requests; all others only keep their connections."""
OPS = ("read", "write")


class Case(NamedTuple):
    """What the active ones of so many clients do."""

    clients: int
    active: int
    op: str
    size: int


class Served(NamedTuple):
    """What the server did in ``seconds``: ``cpu`` are those of its processors, ``threads`` the most at a time.

    ``least`` and ``most`` are the requests of its slowest and its fastest client.
    """

    requests: int
    least: int
    most: int
    seconds: float
    cpu: float
    threads: int
    connections: int


FIGURES: Mapping[str, Callable[[Case, Served], float]] = {
    "us of the server's processors a request": lambda _, served: served.cpu / served.requests * 1e6,
    "requests/s": lambda _, served: served.requests / served.seconds,
    "MB/s": lambda case, served: served.requests * case.size / served.seconds / 1e6,
    "threads": lambda _, served: served.threads,
    "connections": lambda _, served: served.connections,
    "requests of the slowest client, of the fastest one's": lambda _, served: served.least / served.most,
}


def main() -> None:
    """Measure, print the tables, add rows to build/bench.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="least time of each measurement")
    parser.add_argument("--idle", action="store_true", help=f"only {ACTIVE} of the clients make requests")
    options = parser.parse_args()
    end_on_signals()
    if why := missing((*SERVER, "pvfs2-config")):
        sys.exit(why)
    os.environ["PATH"] = search_path()
    found: dict[Case, list[Served]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        directory = Path(name)
        program = built(directory)
        for _ in range(options.rounds):
            for clients in CLIENTS:
                active = ACTIVE if options.idle else clients
                for case, served in measured(program, clients, active, options.seconds):
                    found[case].append(served)
    _report(found)


def built(directory: Path) -> Path:
    """The clients' program."""
    program = directory / "clients"
    said = [
        subprocess.run(["pvfs2-config", flag], capture_output=True, text=True, check=True).stdout.split()
        for flag in ("--cflags", "--libs")
    ]
    subprocess.run(["gcc", "-O2", SOURCE, *said[0], "-o", program, *said[1]], check=True)
    return program


def measured(program: Path, clients: int, active: int, seconds: float) -> list[tuple[Case, Served]]:
    """All sizes, on a fresh server that is gone afterwards, with its data. OrangeFS must be in PATH."""
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        servers = OrangeFSServers(Path(folder), 1)
        try:
            servers.serve()
            servers.list_mount(servers.mount)
            process = servers.processes[servers.names[0]].pid
            words = [program, servers.mount / "file", clients, active, process, seconds, *SIZES]
            environment = {**os.environ, "PVFS2TAB_FILE": str(servers.table)}
            done = subprocess.run([*map(str, words)], env=environment, capture_output=True, text=True, check=True)
        finally:
            servers.down()
    measured = []
    for line in done.stdout.splitlines():
        write, size, *counts, taken, cpu, threads, connections = line.split()
        served = Served(*map(int, counts), float(taken), float(cpu), int(threads), int(connections))
        measured.append((Case(clients, active, OPS[int(write)], int(size)), served))
    return measured


def _report(found: dict[Case, list[Served]]) -> None:
    for op, (what, figure) in itertools.product(OPS, FIGURES.items()):
        sys.stdout.write(f"\n{op}s: {what}\n\n| clients | {' | '.join(map(format_bytes, SIZES))} |\n")
        sys.stdout.write(f"|{'---|' * (1 + len(SIZES))}\n")
        for clients in CLIENTS:
            cells = [
                f"{median(figure(case, one) for one in runs):,.4g}"
                for case, runs in found.items()
                if (case.clients, case.op) == (clients, op)
            ]
            sys.stdout.write(f"| {clients} | {' | '.join(cells)} |\n")
    keep(
        [
            row(f"orangefs clients: {', '.join(map(str, case))}: {what}", [figure(case, one) for one in runs], what)
            for case, runs in found.items()
            for what, figure in FIGURES.items()
        ]
    )


if __name__ == "__main__":
    main()
