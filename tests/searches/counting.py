"""Count what each rank asks of the file system and of MPI, as a function of the number of ranks.

python -m tests.searches.counting RANKS...    prints the table of docs/scaling.md
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.command_line import PDLA
from tests.support.loop_on_nodes import CLUSTER
from tests.support.mpi import REPOSITORY, Mpi, available_mpis, compile_preloaded
from tests.support.waiting import PATIENCE

START, PIECE, COUNT = 5, 96, 4
STEPS = dict.fromkeys(("read", "plain", "trace"), ("all:0", "read:1"))
WRITES = ("write:0", "write:1")
CASES = {
    "read": ("run",),
    "plain": ("run",),
    "trace": ("trace", "-o", "DIRECTORY/counted.h5"),
    "close": ("run", "--writes", "close"),
    "s4d": ("run", "--policy", "s4d", "--cluster", "DIRECTORY/cluster.toml"),
    "e10": ("run", "--policy", "e10", "--hint", "e10_cache_path=DIRECTORY/ssd0"),
}
"""What is counted: a program that reads or writes one file, under a verb of pdla; "plain" has no replicas."""
PLACES = (
    ("map", r"home/replicas\.map(\.\d+\.state)?$"),
    ("ranks", r"home/run\.[^/]*/ranks"),
    ("report", r"home/run\."),
    ("log", r"\.raw"),
    ("journals", r"home/journals"),
    ("replica", r"/pdla-replicas-"),
    ("room", r"ssd\d($|/\.$|/pdla-[^/]*\.node(/reserved.*|/\.)?$)"),
    ("cache", r"ssd\d/pdla-"),
    ("original", r"/data$"),
)
REDUCTIONS, TREES, SINGLE = ("Iallreduce", "Comm_dup"), ("Ibcast",), ("Isend", "Irecv")


@dataclass(frozen=True)
class Counted:
    """What ranks did more than natively: the busiest one but the first, the first, and all together.

    Keys are "open map", "create journals"..., "MPI calls", "MPI messages at most" and "MPI bytes".
    """

    ranks: int
    most: Counter[str]
    first: Counter[str]
    all: Counter[str]


class Counting:
    """A program, its replicas and a directory for one number of ranks on this machine, a single node."""

    def __init__(self, mpi: Mpi, ranks: int, directory: Path) -> None:
        self.mpi, self.ranks, self.directory = mpi, ranks, directory
        self.environment = {**os.environ, **mpi.env, "PDLA_HOME": str(directory / "home"), "COUNT": str(COUNT)}
        self.environment.pop("PDLA_CATALOG", None)
        self.program = mpi.compile(REPOSITORY / "tests/programs/cached.c", directory / "cached")
        self.counter = compile_preloaded("counted_calls", directory)
        for name in ("hdd0", "hdd1", "ssd0", "ssd1"):
            (directory / name).mkdir()
        (directory / "cluster.toml").write_text(CLUSTER.format(ranks=ranks) + 'capacity = "64M"\n')
        (directory / "data").write_bytes(np.random.default_rng(1).bytes(START + 2 * PIECE * COUNT * ranks))

    def run(self, *words: str | Path) -> None:
        command = [str(word) for word in words]
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd=self.directory,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

    def job(self, case: str, *starter: str) -> list[str]:
        reads = case in STEPS
        words = [*starter, *(["env", "READ_ONLY=1"] if reads else []), str(self.program)]
        places = [str(self.directory / "data"), str(self.directory / "out")]
        return self.mpi.command(self.ranks, *words, *places, *STEPS.get(case, WRITES))

    def build(self, case: str) -> None:
        """Replicas for the reads or the writes of a case."""
        trace, plan = self.directory / f"{case}.h5", self.directory / f"{case}.json"
        self.run(PDLA, "trace", "-o", trace, "--", *self.job(case))
        self.run(PDLA, "plan", trace, "--writes", "close", "--policy", "ns-pdla", "--simulate", "0", "-o", plan)
        self.run(PDLA, "replicate", plan)

    def count(self, case: str) -> Counted:
        """Run a case and count."""
        if case in ("read", "close"):
            self.build(case)
        native = self._count(f"native-{case}", (), case)
        verb = [PDLA, *(word.replace("DIRECTORY", str(self.directory)) for word in CASES[case]), "--"]
        counted = self._count(case, verb, case)
        pairs = zip(native[0:3], counted[0:3], strict=True)
        return Counted(self.ranks, *(more - less for less, more in pairs))

    def _count(self, name: str, verb: Sequence[str], case: str) -> tuple[Counter[str], Counter[str], Counter[str]]:
        (calls := self.directory / f"calls-{name}").mkdir()
        variables = f"COUNTED={calls} COUNTED_BELOW={self.directory} LD_PRELOAD=$LD_PRELOAD:{self.counter}"
        self.run(*verb, *self.job(case, "sh", "-c", f'export {variables}; exec "$@"', "sh"))
        processes = [counts(path, self.ranks) for path in calls.iterdir()]
        assert len(processes) == self.ranks
        # The first rank is the one that looks for what others left.
        processes.sort(key=lambda one: -sum(one.values()))
        first, others = processes[0], processes[1:]
        everything: Counter[str] = Counter()
        for one in processes:
            everything += one
        most = Counter({key: max(one[key] for one in others) for key in everything})
        return most, first, everything


def counts(path: Path, ranks: int) -> Counter[str]:
    """What one process did."""
    found: Counter[str] = Counter()
    trees = math.ceil(math.log2(ranks))
    for line in path.read_text().splitlines():
        what, rest = line.split(" ", 1)
        if what == "mpi":
            call, given, gotten = rest.split()
            each = {**dict.fromkeys(REDUCTIONS, 2 * trees), **dict.fromkeys(TREES, trees), **dict.fromkeys(SINGLE, 1)}
            messages = each.get(call, ranks - 1)
            found += Counter({"MPI calls": 1, "MPI messages at most": messages, "MPI bytes": int(given) + int(gotten)})
            continue
        place = next((name for name, pattern in PLACES if re.search(pattern, rest)), "")
        if place:
            found[f"{what} {place}"] += 1
    return found


def growth(values: Sequence[tuple[int, int]]) -> tuple[str, float]:
    """How counts (ranks, count) grow, and the count at 100,000 ranks: not any more, by the logarithm, or linearly."""
    (low, first), *_, (_, before), (high, last) = values
    if before == last:
        return "1", float(last)
    slope = (last - first) / math.log2(high / low)
    if all(abs(first + slope * math.log2(ranks / low) - count) < 0.5 for ranks, count in values):
        return "log n", first + slope * math.log2(10**5 / low)
    slope = (last - first) / (high - low)
    return "n", first + slope * (10**5 - low)


def main(words: Sequence[str]) -> None:
    """Print a table for each case."""
    (mpi,) = available_mpis()[0].values
    assert isinstance(mpi, Mpi)
    for case in CASES:
        found = []
        for ranks in map(int, words):
            with tempfile.TemporaryDirectory() as directory:
                found.append(Counting(mpi, ranks, Path(directory)).count(case))
        heads = " | ".join(f"{one.ranks} ranks" for one in found)
        print(f"\n### {case}\n\n| a rank | {heads} | grows as | at 100,000 |\n|---|{'---|' * (len(found) + 2)}")
        for key in sorted({key for one in found for key in one.all}):
            values = [(one.ranks, one.most[key]) for one in found]
            how, far = growth(values)
            print(f"| {key} | {' | '.join(f'{count:,}' for _, count in values)} | {how} | {far:,.0f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
