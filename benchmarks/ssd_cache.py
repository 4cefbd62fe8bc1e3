"""What S4D-Cache gains while programs run, after the figures of its paper: docs/benchmarks.md.

    python -m benchmarks.ssd_cache [--rounds 3] [--amount 32M] [--only 'disks: ten IOR*'] [--smoke] [--list]

Programs run on throttled disks, on disks that seek and on CephFS: natively, collectively, with plans, with an oracle,
and with pdla run --policy s4d. Reads are those of a first and of a second run. Every ratio is of runs of the same
round, in turns. This prints a line for each figure, adds rows to build/bench.json, and draws build/bench-ssd-cache-*.
It needs root; what is not possible here is named and skipped.

The paper is He, Sun, Feng: "S4D-Cache: Smart Selective SSD Cache for Parallel I/O Systems", ICDCS 2014, section V.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench import failures_noted
from benchmarks.cases import COLLECTIVE, H_PDLA, INDEPENDENT, S_LEASE, S_ORIG, S_PDLA
from benchmarks.cephfs import ceph_obstacle, throttled_cephfs
from benchmarks.chosen import add_measured, is_chosen, list_chosen, options_of
from benchmarks.cleanup import workspace
from benchmarks.contestants import compile_programs
from benchmarks.processes import end_on_signals
from benchmarks.results import BENCH, row
from benchmarks.seeking import seeking_disks, seeking_obstacle
from benchmarks.ssd_cache_plots import draw
from benchmarks.ssd_cache_runs import (
    CACHED,
    FIRST,
    ORACLE,
    SECOND,
    WRITTEN,
    Experiment,
    Job,
    Storage,
    hpio,
    ior,
    make_synchronous,
    mix,
    tiles,
)
from benchmarks.ssd_cache_simulated import simulated
from benchmarks.storage import throttled_disks
from benchmarks.throttled import obstacle
from pdla.units import KiB, MiB

OF_NATIVE, OF_SSDS, OF_ORACLE, WRITES = 0.98, 0.9, 0.95, 2.0
USUAL = 0.2
"""Of the data, that the cache has room for (V.A)."""
MORE = 4
"""Times the bytes where programs are fast, so that their opens count little."""


@dataclass(frozen=True)
class Case:
    """Programs, and SSDs with room for a ``share`` of their data, or for all; so many SSDs, or all."""

    job: Job
    share: float | None = None
    ssds: int | None = None
    ops: tuple[str, ...] = ("read", "write")

    @property
    def title(self) -> str:
        """The name in rows."""
        room = "" if self.share is None else f", room for {100 * self.share:.0f} %"
        return f"{self.job.title}{room}" + ("" if self.ssds is None else f", {self.ssds} SSD")

    @property
    def critical(self) -> bool:
        """Whether its writes are those that gain most: small, at random, and all of them have room."""
        return self.share is None and "-z" in self.job.programs[0].options and self.job.request <= 16 * KiB


class Kind(NamedTuple):
    """A storage: why it is not possible here, what makes it for files of so many bytes, and what is measured on it."""

    obstacle: Callable[[], str]
    opened: Callable[[Path, int], AbstractContextManager[Storage]]
    cases: Callable[[int], list[Case]]


def full(amount: int) -> list[Case]:
    """What the paper varies, the most informative first."""
    many = MORE * amount
    found = [Case(mix(amount, 16 * KiB), USUAL), Case(ior(amount, 16 * KiB, True))]
    found += [Case(ior(many, 256 * KiB, True)), Case(ior(many, MiB, False))]
    found += [*in_order(lambda size: ior(size, 16 * KiB, False), amount), Case(ior(amount, 16 * KiB, True), 0.0)]
    found += [*in_order(lambda size: hpio(size, 4 * KiB), amount), *in_order(lambda size: hpio(size, 0), amount)]
    found += [Case(tiles(many, ranks)) for ranks in (4, 8, 16)]
    found += [
        Case(mix(size, request), USUAL) for size, request in ((amount, 8 * KiB), (many, 64 * KiB), (many, 4 * MiB))
    ]
    found += [Case(mix(amount, 16 * KiB), share) for share in (0.1, 0.3)]
    found += [Case(mix(amount, 16 * KiB, ranks), USUAL) for ranks in (16, 8, 32)]
    found += [Case(mix(amount, 16 * KiB), USUAL, 1), Case(mix(amount, 32 * KiB), USUAL)]
    found += [*in_order(lambda size: hpio(size, KiB), amount), *in_order(lambda size: hpio(size, 2 * KiB), amount)]
    found += [Case(ior(amount, request, True)) for request in (8 * KiB, 64 * KiB)]
    found += [Case(ior(many, request, True)) for request in (MiB, 4 * MiB)]
    found += [*in_order(lambda size: ior(size, 8 * KiB, False), amount)]
    found += [*in_order(lambda size: ior(size, 64 * KiB, False), amount)]
    found += [Case(ior(many, request, False)) for request in (256 * KiB, 4 * MiB)]
    return [*found, *(Case(ior(amount, request, True), 0.0) for request in (8 * KiB, 32 * KiB))]


def in_order(made: Callable[[int], Job], amount: int) -> list[Case]:
    """Of small pieces in order reads are so fast that they need more bytes."""
    return [Case(made(MORE * amount), ops=("read",)), Case(made(amount), ops=("write",))]


def some(amount: int) -> list[Case]:
    """What may differ with clients and servers that speak through a network."""
    found = [Case(ior(amount, 16 * KiB, True)), Case(ior(MORE * amount, MiB, False)), Case(tiles(MORE * amount, 8))]
    return [*found, *in_order(lambda size: hpio(size, 4 * KiB), amount), Case(mix(amount, 16 * KiB), USUAL)]


def smoke(amount: int) -> list[Case]:
    """One with an oracle, and one with plans."""
    return [Case(ior(amount, 64 * KiB, True), USUAL), Case(hpio(amount, 4 * KiB))]


STORAGES = {
    "disks": Kind(obstacle, throttled_disks, full),
    "seeking": Kind(seeking_obstacle, seeking_disks, full),
    "cephfs": Kind(ceph_obstacle, throttled_cephfs, some),
}


def contestants(case: Case, op: str) -> tuple[str, ...]:
    """Who is measured; a first run is right before the second."""
    regular, reads = case.job.regular, op == "read"
    cached = (FIRST, SECOND) if reads else (WRITTEN,)
    planned = (H_PDLA, S_PDLA) if reads else (S_LEASE,)
    oracle = (ORACLE,) if reads and case.share else ()
    return (INDEPENDENT, *((COLLECTIVE,) if regular else ()), *cached, S_ORIG, *(planned if regular else ()), *oracle)


def measure(storage: Storage, case: Case, op: str, rounds: int, programs: Path, work: Path) -> list[dict[str, Any]]:
    """All contestants of a case in turns."""
    chosen = contestants(case, op)
    with storage.unlimited():
        experiment = Experiment(storage, case.job, programs, work, case.share, case.ssds)
    rates: dict[str, list[float]] = {one: [] for one in chosen}
    try:
        with storage.unlimited():
            experiment.prepare(op, chosen)
        for _ in range(rounds):
            experiment.forget()
            for one, found in rates.items():
                found.append(experiment.rate(op, one))
    finally:
        with storage.unlimited():
            experiment.remove()
    native, last = rates[INDEPENDENT], rates[SECOND if op == "read" else WRITTEN]
    rows = [row(INDEPENDENT, native, "MiB/s")]
    for one, found in rates.items():
        goal = None if one not in CACHED else WRITES if one == WRITTEN and case.critical else OF_NATIVE
        rows += [] if one == INDEPENDENT else [row(one, found, "MiB/s", goal, native)]
    if op == "read" and case.share is None:
        rows.append(row(f"{SECOND}, of the SSDs", last, "MiB/s", OF_SSDS, rates[S_ORIG]))
    if ORACLE in rates:
        gains = [_saved(native, rates[one], case.job.bytes) for one in (SECOND, ORACLE)]
        rows.append(row(f"{SECOND}, of the oracle's gain", gains[0], "s", OF_ORACLE, gains[1]))
    said = simulated(case.job, op, experiment.cluster) if storage.name != "cephfs" else {}
    return [*rows, *(row(f"{one}, x simulated", rates[one], "MiB/s", None, [rate]) for one, rate in said.items())]


def _saved(native: Sequence[float], rates: Sequence[float], size: int) -> list[float]:
    """Seconds that a contestant saves in each round; ``rates`` are MiB/s."""
    return [size / MiB * (1 / slow - 1 / fast) for slow, fast in zip(native, rates, strict=True)]


def chosen_cases(options: argparse.Namespace) -> Iterator[tuple[str, Case, str]]:
    """The storage, the case, and the operation of all that the options select."""
    kinds = [("disks", smoke)] if options.smoke else [(name, kind.cases) for name, kind in STORAGES.items()]
    for storage, cases in kinds:
        for case in cases(options.amount):
            for op in case.ops:
                title = f"{storage}: {case.title}, {op}"
                if is_chosen(title, options):
                    yield storage, case, op


def main() -> None:
    """The command line; exit code 1 if something failed, after everything else was measured."""
    options = options_of(__doc__, 64, "all files of slow programs")
    found = list(chosen_cases(options))
    list_chosen((f"{storage}: {case.title}, {op}" for storage, case, op in found), options)
    end_on_signals()
    failed: list[str] = []
    with workspace(options.directory) as scratch:
        compile_programs(scratch, {case.job.programs[0].program for _, case, _ in found})
        for storage, cases in groupby(found, lambda one: one[0]):
            if why := STORAGES[storage].obstacle():
                sys.stdout.write(f"\n{storage}: skipped: {why}\n")
                continue
            with failures_noted(storage, failed):
                run(storage, [one[1:] for one in cases], scratch, options, failed)
    plots = [] if options.smoke else draw(BENCH)
    sys.stdout.writelines(f"drawn: {plot}\n" for plot in plots)
    if failed:
        sys.exit(f"not measured: {'; '.join(failed)}")


def run(
    name: str, cases: Sequence[tuple[Case, str]], scratch: Path, options: argparse.Namespace, failed: list[str]
) -> None:
    """Measure all cases on one storage; those that fail are added to ``failed``."""
    disks, work = scratch / name, scratch / "work"
    disks.mkdir()
    with STORAGES[name].opened(disks, max(2 * case.job.bytes for case, _ in cases)) as storage:
        make_synchronous(storage)
        for case, op in cases:
            title = f"{'smoke ' * options.smoke}{name}: {case.title}, {op}"
            add_measured("ssd cache", title, partial(measure, storage, case, op, options.rounds, scratch), work, failed)


if __name__ == "__main__":
    main()
