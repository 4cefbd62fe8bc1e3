"""What redirection costs a program without a pattern: time, and the memory of the library. See docs/benchmarks.md.

python -m benchmarks.library [--rounds 5] [--directory /dev/shm]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.recorder import compiled
from benchmarks.results import add_rows, row
from pdla.cli.launch import preloaded
from tests.support.handmade_maps import Replica, write_map

REPLICAS = 10_000
CALLS = 200_000


def map_of_others(directory: Path) -> Path:
    """A map that does not contain the program's file."""
    component = Replica(8, 0, 8).build(bytes(8), directory / "replica")
    files = []
    for number in range(REPLICAS):
        original = directory / f"other{number}"
        original.write_bytes(bytes(8))
        files.append((original, [Replica(8, 0, 8, components=component.components)]))
    write_map(directory / "map", files)
    return directory / "map"


def main() -> None:
    """Measure, print a table, add rows to build/bench.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        program = compiled("inline", directory)
        environments = (dict(os.environ), preloaded({"PDLA_MAP": str(map_of_others(directory))}))
        command = [program, directory / "data", str(CALLS), "random"]
        turns = []
        for _ in range(options.rounds):
            said = [
                subprocess.run(command, env=one, capture_output=True, text=True, check=True) for one in environments
            ]
            turns.append([[float(word) for word in done.stdout.split()] for done in said])
    add_rows(
        "library",
        [
            row(
                "random reads of 512 B of a file without a replica",
                [redirected[0] for _, redirected in turns],
                "ns of CPU",
                1.01,
                [native[0] for native, _ in turns],
            ),
            row(
                f"memory of a program, {REPLICAS:,} replicas in the map: more by",
                [(redirected[1] - native[1]) / 1024 for native, redirected in turns],
                "MiB",
            ),
        ],
    )


if __name__ == "__main__":
    main()
