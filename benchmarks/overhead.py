"""What pdla costs a program that it cannot help, and after how many runs it has paid for others (PDLA 5.3).

    python -m benchmarks.overhead [--rounds 9] [--amount 256M] [--directory /dev/shm]

IOR without a pattern runs from memory, natively and redirected in turns. The programs with patterns run on throttled
disks, which need root, and each step from the trace to the replica is timed there, once.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bench import too_small
from benchmarks.cases import Case, ior_mixed, ior_segmented, ior_strided, pio_nested
from benchmarks.cleanup import workspace
from benchmarks.contestants import BINARIES, FILE, SHARED_PROCESSORS, compile_programs, fill
from benchmarks.library import map_of_others
from benchmarks.processes import end_on_signals, output_of
from benchmarks.results import add_rows, row
from benchmarks.storage import Storage, throttled_disks
from benchmarks.throttled import obstacle
from pdla.cli.launch import preloaded
from pdla.policies.planfile import read_plan
from pdla.replicator.backends.base import folder_in
from pdla.units import KiB, MiB, parse_bytes

RANKS = (8, 16, 32, 64)
REQUEST = 256 * KiB
MORE = 1.03
"""Goal for the time of a program without a pattern, compared with the native one: the paper's figure has bars of some
percent, and no numbers."""


def launched(case: Case, programs: Path, file: Path) -> list[str]:
    """The command of a program."""
    program = [str(programs / case.program), *case.options, "--testFile", str(file)]
    return [str(BINARIES / "mpiexec"), "-n", str(case.ranks), *program]


def without_pattern(programs: Path, own: int, rounds: int) -> list[dict[str, Any]]:
    """Fig. 13b: seconds from before the open to after the close, of runs with replicas of other files only.

    ``own`` are the bytes of a rank.
    """
    file = programs / FILE
    file.touch()
    fill(file, own * max(RANKS))
    redirection = preloaded({**SHARED_PROCESSORS, "PDLA_MAP": str(map_of_others(programs))})
    rows = []
    for ranks in RANKS:
        command = launched(ior_segmented(own * ranks, REQUEST, ranks), programs, file)
        said = [[output_of(command, one) for one in (SHARED_PROCESSORS, redirection)] for _ in range(rounds)]
        native, redirected = ([float(json.loads(one)["seconds"]) for one in turn] for turn in zip(*said, strict=True))
        rows.append(row(f"IOR without a pattern, {ranks} ranks, redirected", redirected, "s", MORE, native))
    file.unlink()
    return rows


def until_paid(storage: Storage, case: Case, programs: Path, work: Path, rounds: int) -> list[dict[str, Any]]:
    """5.3.1 and 5.3.2: the seconds of each whole command, and the runs after which all of them together are gained."""
    file = storage.nodes[0].originals["hdd"] / FILE
    trace, plan, cluster = (work / name for name in ("run.h5", "plan.json", "cluster.toml"))
    cluster.write_text(storage.cluster)
    with storage.unlimited():
        storage.place("hdd", file, case.size)
        fill(file, case.size)
    program = launched(case, programs, file)

    def seconds(*words: object) -> float:
        """Of a command that finds nothing in memory."""
        storage.drop_caches()
        begin = time.perf_counter()
        output_of([*map(str, words)], SHARED_PROCESSORS | {"PDLA_HOME": str(work / "home")})
        return time.perf_counter() - begin

    pdla = BINARIES / "pdla"
    native = [seconds(*program) for _ in range(rounds)]
    steps = {
        "recorded": seconds(pdla, "trace", "-o", trace, "--", *program),
        "analyzed and planned": seconds(pdla, "plan", trace, "--cluster", cluster, "--policy", "pdla-h", "-o", plan),
        "built": seconds(pdla, "replicate", plan),
    }
    redirected = [seconds(pdla, "run", "--", *program) for _ in range(rounds)]
    with storage.unlimited():
        for where in (Path(one) for pool in read_plan(plan).cluster.pools for one in pool.where):
            shutil.rmtree(folder_in(where), ignore_errors=True)
        file.unlink()
    spent = sum(steps.values()) - median(native)
    gained = median(native) - median(redirected)
    rows = [row(f"{case.title}: {step}", [value], "s", None, [median(native)]) for step, value in steps.items()]
    rows.append(row(f"{case.title}: redirected", redirected, "s", None, native))
    if gained > 0:
        rows.append(row(f"{case.title}: has paid after", [math.ceil(spent / gained)], "runs"))
    return rows


def main() -> None:
    """Measure, print a table, add rows to build/bench.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--amount", type=parse_bytes, default=256 * MiB)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"))
    options = parser.parse_args()
    end_on_signals()
    cases = [made(options.amount, 64 * KiB, 4) for made in (ior_strided, pio_nested)]
    cases.append(ior_mixed(options.amount, 4))
    with workspace(options.directory) as scratch:
        compile_programs(scratch, {"ior", *(case.program for case in cases)})
        add_rows("overhead", without_pattern(scratch, options.amount // min(RANKS), options.rounds))
        if why := obstacle() or too_small(scratch, cases):
            sys.stdout.write(f"programs with patterns: skipped: {why}\n")
            return
        (scratch / "disks").mkdir()
        with throttled_disks(scratch / "disks", max(case.size for case in cases)) as storage:
            for case in cases:
                work = scratch / "work"
                work.mkdir()
                add_rows("overhead", until_paid(storage, case, scratch, work, -(-options.rounds // 3)))
                shutil.rmtree(work)


if __name__ == "__main__":
    main()
