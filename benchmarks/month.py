"""A month of twelve applications that drift, natively and with pdla run --learn: docs/autopilot.md.

    python -m benchmarks.month [--rounds 20] [--amount 32M] [--only 'IOR*'] [--policy auto]
        [--writes lease] [--smoke] [--list]

Each application runs about --rounds times (half as often to 1.5 times), all in one random order, on disks that seek.
Most change their pattern once or twice. Each run is made natively and, at once after or before it, with --learn, whose
learning is waited for and counted as background work. This prints a line for each application, and for all of them, and
adds the rows to build/bench.json. The learned runs share one home with the limits of its cluster.toml. It needs root.

--policy and --writes are those of the learned runs. What both runs of a turn wrote is compared byte by byte. That the
bytes of a lease come home after the run is background work, too.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import cases
from benchmarks.bench import failures_noted
from benchmarks.cases import Case
from benchmarks.chosen import is_chosen, list_chosen, parser_of
from benchmarks.cleanup import workspace
from benchmarks.contestants import BINARIES, SHARED_PROCESSORS, compile_programs, fill
from benchmarks.processes import end_on_signals, output_of
from benchmarks.results import add_rows, row
from benchmarks.seeking import SeekingDisks, seeking_disks, seeking_obstacle
from benchmarks.ssd_cache_runs import make_usual
from pdla.layouts.config import load_cluster
from pdla.replicator.backends.base import folder_in
from pdla.units import KiB, MiB

SEED = 1
GAIN = 3.0
"""So many times less time in I/O than natively."""
SLOWER = 1.03
"""No run may take longer, as a multiple of native ones; native runs differ, too, and their worst is beside it."""


@dataclass
class Application:
    """A program whose pattern changes: ``versions`` in their order; of each run its version, and seconds of I/O."""

    name: str
    versions: tuple[Case, ...]
    made: list[Case] = field(default_factory=list)
    native: list[float] = field(default_factory=list)
    learned: list[float] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of its file."""
        return max(one.size for one in self.versions)

    def worst(self, took: Sequence[float]) -> float:
        """The run that ``took`` longest, as a multiple of what native runs of its version took in the median."""
        usual = self._medians(self.native)
        return max(taken / usual[case] for case, taken in zip(self.made, took, strict=True))

    @property
    def slower(self) -> float:
        """What the runs of a version took in the median, as a multiple of its native runs; the largest of all."""
        usual, served = self._medians(self.native), self._medians(self.learned)
        return max(served[case] / usual[case] for case in usual)

    def _medians(self, took: Sequence[float]) -> dict[Case, float]:
        return {
            case: median(taken for each, taken in zip(self.made, took, strict=True) if each == case)
            for case in set(self.made)
        }


def applications(amount: int) -> list[Application]:
    """Twelve of them, that access about so many bytes; two have nothing to gain, and two write."""

    def cube(points: int) -> int:
        return round(points ** (1 / 3)) // 16 * 16

    strided, nested, tiles = cases.ior_strided, cases.pio_nested, cases.tile_io
    return [
        Application("IOR, 64 KiB, then 128 KiB", (strided(amount, 64 * KiB, 4), strided(amount, 128 * KiB, 4))),
        Application("IOR, 16 KiB", (strided(amount // 4, 16 * KiB, 4),)),
        Application("IOR, 256 KiB, 8 ranks, then 4", (strided(amount, 256 * KiB, 8), strided(amount, 256 * KiB, 4))),
        Application("IOR, mixed", (cases.ior_mixed(amount, 4),)),
        Application("IOR, in order", (cases.ior_segmented(amount, MiB, 4),)),
        Application("IOR, at random", (cases.ior_random(amount // 4, 64 * KiB, 4),)),
        Application("IOR, writes", (strided(amount // 4, 64 * KiB, 4, "write"),)),
        Application("PIO-Bench", (nested(amount, 64 * KiB, 4), nested(amount, 32 * KiB, 4), nested(amount, MiB, 4))),
        Application("MPI-Tile-IO", (tiles(amount, 16 * KiB, (8, 1), 4), tiles(amount, 64 * KiB, (2, 2), 4))),
        Application("MPI-Tile-IO, writes", (tiles(amount // 2, 64 * KiB, (8, 1), 4, op="write"),)),
        Application("BTIO", (cases.btio(cube(amount // 40), 8, 4),)),
        Application("coll_perf", (cases.coll_perf(cube(amount // 4), 8),)),
    ]


def schedule(those: Sequence[Application], runs: int, draw: random.Random) -> list[tuple[int, Case]]:
    """The number of the application, and its version, of each run; of an application, versions in their order."""
    order: list[int] = []
    turns: list[Iterator[Case]] = []
    for number, one in enumerate(those):
        count = max(draw.randint(runs // 2, runs * 3 // 2), len(one.versions))
        changes = draw.sample(range(1, count), len(one.versions) - 1)
        turns.append(iter([one.versions[sum(turn >= change for change in changes)] for turn in range(count)]))
        order += [number] * count
    draw.shuffle(order)
    return [(number, next(turns[number])) for number in order]


class Month:
    """Runs of applications on one storage, with one home."""

    def __init__(
        self, storage: SeekingDisks, programs: Path, directory: Path, those: Sequence[Application], words: Sequence[str]
    ) -> None:
        self.storage, self.programs, self.directory, self.those = storage, programs, directory, those
        self.words = words
        self.cluster = directory / "cluster.toml"
        self.cluster.write_text(storage.cluster)
        (directory / "hints").touch()
        self.background = 0.0
        with storage.unlimited():
            for number, one in enumerate(those):
                storage.place("hdd", self._file(number), one.size)
                fill(self._file(number), one.size)

    def run(self, number: int, case: Case, learned_first: bool) -> None:
        """Both runs of one turn."""
        one, compared = self.those[number], case.op == "write"
        written = set()
        one.made.append(case)
        for learns in (True, False) if learned_first else (False, True):
            command = self._command(number, case)
            tool = self._tool() if learns else []
            if compared:
                self._clear(number)
            self.storage.drop_caches()
            begin = time.perf_counter()
            said = json.loads(next(line for line in self._output(*tool, *command).splitlines() if line[0] == "{"))
            if learns:
                self.background += time.perf_counter() - begin - said["elapsed"]
            (one.learned if learns else one.native).append(said["seconds"])
            if compared:
                written.add(self._digest(number))
        if len(written) > 1:
            raise RuntimeError(f"{one.name}: with and without pdla the file has other bytes")

    def decisions(self) -> Mapping[str, int]:
        """How many of each kind are in the log."""
        found = json.loads(self._output(BINARIES / "pdla", "log", "--last", str(10**6), "--json"))
        return Counter(one["kind"] for one in found["decisions"])

    def space(self) -> int:
        """Bytes of the replicas at the end."""
        found = json.loads(self._output(BINARIES / "pdla", "status", "--json"))
        return sum(one["bytes"] for one in found["replicas"])

    def remove(self) -> None:
        """Remove the files and replicas from the storage."""
        for pool in load_cluster(self.cluster).pools:
            for where in pool.where:
                shutil.rmtree(folder_in(Path(where)), ignore_errors=True)
        for number in range(len(self.those)):
            self._file(number).unlink(missing_ok=True)

    def _file(self, number: int) -> Path:
        return self.storage.nodes[0].originals["hdd"] / f"data{number}"

    def _clear(self, number: int) -> None:
        """Take from a file what the last run wrote."""
        with self.storage.unlimited(), self._file(number).open("r+b") as file:
            for _ in range(self.those[number].size // MiB):
                file.write(bytes(MiB))

    def _digest(self, number: int) -> str:
        with self.storage.unlimited(), self._file(number).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def _tool(self) -> list[str | Path]:
        return [BINARIES / "pdla", "run", "--learn", "--wait", "--cluster", self.cluster, *self.words, "--"]

    def _command(self, number: int, case: Case) -> list[str | Path]:
        words: list[str | Path] = [BINARIES / "mpiexec", "-n", str(case.ranks), self.programs / case.program]
        words += [*case.options, "--testFile", self._file(number)]
        # A sync would begin the write-back of a lease. Without one all bytes are durable, too: those in replicas at the
        # close, those in originals by a mount that is synchronous.
        durable = [] if "--writes=lease" in self.words else ["--fsync"]
        return [*words, "--writeFile", *durable] if case.op == "write" else words

    def _output(self, *words: str | Path) -> str:
        home = {"PDLA_HOME": str(self.directory / "home"), "PDLA_CATALOG": ""}
        return output_of(list(words), SHARED_PROCESSORS | home | {"ROMIO_HINTS": str(self.directory / "hints")})


def rows_of(month: Month) -> list[dict[str, Any]]:
    """What the month was: of each application its seconds, and of all, with the worst run."""
    rows = [
        row(f"{one.name}, {len(one.native)} runs", [sum(one.learned)], "s of I/O", None, [sum(one.native)])
        for one in month.those
    ]
    native, learned = (sum(sum(getattr(one, kind)) for one in month.those) for kind in ("native", "learned"))
    slowest = max(month.those, key=lambda one: one.worst(one.learned))
    slower = max(month.those, key=lambda one: one.slower)
    apart = max(one.worst(one.native) for one in month.those)
    rows += [
        row("all, as a multiple of pdla's", [native], "s of I/O", GAIN, [learned]),
        row(f"the worst run, {slowest.name}", [slowest.worst(slowest.learned)], "x native", SLOWER, [apart]),
        row(f"the slowest version, {slower.name}", [slower.slower], "x native in the median", SLOWER),
        row("background work", [month.background], "s"),
        row("space of replicas at the end", [month.space() / MiB], "MiB"),
    ]
    return [*rows, *(row(f"in the log: {kind}", [count], "") for kind, count in sorted(month.decisions().items()))]


def main() -> None:
    """The command line; exit code 1 if a run failed."""
    parser = parser_of(__doc__, 32, "an application's run", rounds=20)
    parser.add_argument("--writes", choices=["close", "lease"], help="of learned runs")
    parser.add_argument("--policy", choices=["auto"], help="of learned runs")
    options = parser.parse_args()
    those = [one for one in applications(options.amount) if is_chosen(one.name, options)]
    those = those[:: max(len(those) // 2, 1)] if options.smoke else those
    list_chosen([one.name for one in those], options)
    if why := seeking_obstacle():
        sys.stdout.write(f"skipped: {why}\n")
        return
    end_on_signals()
    failed: list[str] = []
    with workspace(options.directory) as scratch:
        compile_programs(scratch, {case.program for one in those for case in one.versions})
        disks, work = scratch / "disks", scratch / "work"
        disks.mkdir()
        work.mkdir()
        with seeking_disks(disks, sum(one.size for one in those)) as storage, failures_noted("month", failed):
            make_usual(storage)
            words = [f"--{one}={value}" for one in ("policy", "writes") if (value := getattr(options, one))]
            month, draw = Month(storage, scratch, work, those, words), random.Random(SEED)
            try:
                for number, case in schedule(those, options.rounds, draw):
                    month.run(number, case, draw.random() < 0.5)
                add_rows(" ".join(["smoke " * options.smoke + "month", *words]), rows_of(month))
            finally:
                with storage.unlimited():
                    month.remove()
    if failed:
        sys.exit("not measured")


if __name__ == "__main__":
    main()
