"""What a cache on the nodes' devices gains: E10 beside the MPI library's methods and planned replicas.

    python -m benchmarks.caches [--rounds 3] [--only 'disks, 2 nodes*'] [--smoke] [--list]

Every figure is a ratio of runs of the same round, in turns. This prints a table and adds rows to build/bench.json. It
needs root; what is not possible here is named and skipped.
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from benchmarks.bench import failures_noted
from benchmarks.cache_costs import OF_NATIVE, TOTAL, equation_2, memory, mover, nothing_to_gain
from benchmarks.cache_nodes import nodes_on_cephfs, nodes_on_disks
from benchmarks.cache_runs import (
    CACHED,
    CONTESTANTS,
    IMMEDIATE,
    LEASE,
    NATIVE,
    ONCLOSE,
    Case,
    Experiment,
    Run,
    coll_perf,
    flash_io,
    ior,
)
from benchmarks.cache_simulated import HIDDEN, simulated
from benchmarks.cases import COLLECTIVE, INDEPENDENT, SIEVING
from benchmarks.cephfs import ceph_obstacle
from benchmarks.cleanup import workspace
from benchmarks.contestants import compile_programs
from benchmarks.processes import end_on_signals
from benchmarks.results import add_rows, row
from benchmarks.simulator_accuracy import in_order
from benchmarks.throttled import obstacle
from pdla.units import KiB, MiB

EXTENTS = 10**6
OF_DEVICES, OF_INDEPENDENT, OF_COLLECTIVE, ERROR, IN_ORDER = 0.9, 10.0, 3.0, 0.15, 0.95
LONGER = 1.25
"""How many times as long as the flush the computation is that hides it."""
SMALL = 16 * KiB
"""Pieces up to this size are small."""


class Part(NamedTuple):
    """What is measured on new nodes with one case."""

    storage: str
    nodes: int
    case: Case
    measure: Callable[[Experiment, int], list[dict[str, Any]]]
    what: str = "contest"

    @property
    def title(self) -> str:
        """The beginning of the rows' names."""
        return f"{self.storage}, {self.nodes} nodes: {self.what}: {self.case.title}"


STORAGES = {"disks": (obstacle, nodes_on_disks), "cephfs": (ceph_obstacle, nodes_on_cephfs)}
"""Why each is not possible here, and what makes it."""


def parts() -> Iterator[Part]:
    """Everything, the most informative first."""
    checkpoints = ior(64 * MiB, MiB, 4)
    for case in cases(2):
        yield Part("disks", 2, case, contest)
    yield Part("disks", 2, checkpoints, equation_2, "Eq. 2")
    full = partial(nothing_to_gain, native=COLLECTIVE, reads=False, hints={"cache_bytes": 8 * MiB})
    yield Part("disks", 2, checkpoints, full, "full cache")
    one = partial(nothing_to_gain, native=COLLECTIVE, reads=False, hints={})
    yield Part("disks", 2, ior(64 * MiB, 4 * MiB, 4, 1), one, "one file")
    read = partial(nothing_to_gain, native=COLLECTIVE, reads=True, hints={})
    yield Part("disks", 2, checkpoints, read, "reads only")
    yield Part("disks", 2, ior(64 * MiB, MiB, 2), mover, "mover")
    yield Part("disks", 1, ior(2 * EXTENTS * 64, 64, 2, 1), memory, "memory")
    for case in cases(4):
        yield Part("disks", 4, case, contest)
    for count in (2, 4):
        for case in cases(count):
            if case.piece >= SMALL:
                yield Part("cephfs", count, case, contest)


def smoke() -> Iterator[Part]:
    """Two small ones."""
    small = ior(4 * MiB, 64 * KiB, 2, 2)
    yield Part("disks", 2, small, partial(contest, contestants=(COLLECTIVE, IMMEDIATE, ONCLOSE)))
    measure = partial(nothing_to_gain, native=COLLECTIVE, reads=False, hints={"cache_bytes": MiB})
    yield Part("disks", 2, small, measure, "full cache")


def cases(nodes: int) -> list[Case]:
    """Programs for so many nodes, two ranks on each; files are smaller where pieces are, to be home in seconds."""
    ranks = 2 * nodes
    sizes = {SMALL: 32, MiB: 64, 4 * KiB: 16, 64 * KiB: 64, 256 * KiB: 64, 4 * MiB: 64}
    found = [ior(size * MiB, piece, ranks) for piece, size in sizes.items()]
    found[2:2] = [coll_perf(64 * MiB, ranks), flash_io(64 * MiB, ranks)]
    return found if nodes == 2 else found[:4]


def contest(experiment: Experiment, rounds: int, contestants: Sequence[str] = CONTESTANTS) -> list[dict[str, Any]]:
    """All contestants in turns without computation, and E10 with as much as hides the flush."""
    nodes, case = experiment.nodes, experiment.case
    with nodes.unlimited():
        planned = LEASE in contestants and experiment.plan()
    # If ROMIO sieves on several ceph-fuse mounts, ranks overwrite one another's bytes.
    lacking = {*([] if planned else [LEASE]), *([SIEVING] if nodes.ceph else [])}
    chosen = [one for one in contestants if one not in lacking]
    pause = round(1000 * LONGER * max(closes for *_, closes, _ in experiment.run(ONCLOSE).files)) + 100
    runs: dict[str, list[Run]] = {one: [] for one in chosen}
    hidden: list[Run] = []
    limits: list[tuple[float, float]] = []
    nodes.sequential(case.size)  # makes the files
    for number in range(rounds):
        for contestant in (*chosen[number % len(chosen) :], *chosen[: number % len(chosen)]):
            runs[contestant].append(experiment.run(contestant))
            if contestant == IMMEDIATE:
                hidden.append(experiment.run(IMMEDIATE, "--pause", pause))
        limits.append(nodes.sequential(case.size))
    devices, storage = ([limit[i] / 1e6 for limit in limits] for i in (0, 1))
    rates = {one: [run.rate / 1e6 for run in found] for one, found in runs.items()}
    native = [rates[one] for one in NATIVE if one in rates]
    best = [max(found) for found in zip(*native, strict=True)]
    behind, small = [run.rate / 1e6 for run in hidden], case.piece <= SMALL
    least = [
        case.files * max(pause / 1000 + case.size / 1e6 / device, case.size / 1e6 / store)
        for device, store in zip(devices, storage, strict=True)
    ]
    rows = [row("devices", devices, "MB/s"), row("storage", storage, "MB/s")]
    rows += [row(one, found, "MB/s", None, best) for one, found in rates.items()]
    rows += [row("E10, hidden", behind, "MB/s", None, best)]
    rows += [
        row(f"E10, hidden, x {one}", behind, "MB/s", goal if small else None, rates[one])
        for one, goal in ((INDEPENDENT, OF_INDEPENDENT), (COLLECTIVE, OF_COLLECTIVE))
        if one in rates
    ]
    rows += [
        row("E10, hidden, perceived, of devices", [one.perceived / 1e6 for one in hidden], "MB/s", OF_DEVICES, devices),
        row("E10, hidden, total time, x least", [run.elapsed for run in hidden], "s", TOTAL, least),
    ]
    rows += [row(f"{one}, x {COLLECTIVE}", rates[one], "MB/s", OF_NATIVE, rates[COLLECTIVE]) for one in CACHED]
    perceived = {one: [run.perceived / 1e6 for run in found] for one, found in {**runs, HIDDEN: hidden}.items()}
    return rows + beside_the_simulator(experiment, pause, perceived)


def beside_the_simulator(
    experiment: Experiment, pause: int, perceived: Mapping[str, Sequence[float]]
) -> list[dict[str, Any]]:
    """What the simulator says for the same contest, and how far it is from that."""
    nodes, case = experiment.nodes, experiment.case
    if nodes.ceph:
        return []
    said = simulated(case, nodes.cluster(case.ranks // len(nodes.launch), "node"), pause / 1000, list(perceived))
    pairs = {one: (median(perceived[one]), rate / 1e6) for one, rate in said.items()}
    rows = [row(f"{one}, x simulated", perceived[one], "MB/s", None, [rate]) for one, (_, rate) in pairs.items()]
    errors = [abs(found / rate - 1) for found, rate in pairs.values()]
    return [
        *rows,
        row("simulator: mean absolute error", [mean(errors)], "of the time", ERROR),
        row("simulator: pairs in order", [mean(in_order(pairs) or [True])], "share", IN_ORDER),
    ]


def main() -> None:
    """The command line; exit code 1 if something failed, after everything else was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="*", help="measure only the parts that match this glob")
    parser.add_argument("--smoke", action="store_true", help="small parts, to check that everything works")
    parser.add_argument("--list", action="store_true", help="print the parts and stop")
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="directory for the disks' images")
    options = parser.parse_args()
    chosen = [one for one in (smoke() if options.smoke else parts()) if fnmatch.fnmatch(one.title, options.only)]
    if not chosen or options.list:
        sys.stdout.writelines(f"{one.title}\n" for one in chosen)
        sys.exit(None if chosen else f"nothing is called {options.only}: --list names the parts")
    end_on_signals()
    failed: list[str] = []
    with workspace(options.directory) as scratch:
        if not obstacle():
            compile_programs(scratch, {one.case.program for one in chosen})
        for storage, found in groupby(chosen, lambda one: one.storage):
            if why := STORAGES[storage][0]():
                sys.stdout.write(f"\n{storage}: skipped: {why}\n")
                continue
            for part in found:
                with failures_noted(part.title, failed):
                    label = f"{'smoke ' * options.smoke}{part.title}"
                    measured = measure(part, scratch, options.rounds)
                    add_rows("caches", [{**one, "name": f"{label}: {one['name']}"} for one in measured])
    if failed:
        sys.exit(f"not measured: {'; '.join(failed)}")


def measure(part: Part, scratch: Path, rounds: int) -> list[dict[str, Any]]:
    """The rows of one part, measured on new nodes."""
    disks, work = scratch / "disks", scratch / "work"
    disks.mkdir()
    work.mkdir()
    try:
        with STORAGES[part.storage][1](disks, part.nodes, (part.case.files + 1) * part.case.size) as nodes:
            with nodes.unlimited():
                experiment = Experiment(nodes, part.case, scratch, work)
            return part.measure(experiment, rounds)
    finally:
        shutil.rmtree(work)
        shutil.rmtree(disks)


if __name__ == "__main__":
    main()
