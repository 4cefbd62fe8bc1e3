"""Eq. 2 of E10 for several lengths of computation, and what a cache costs where it gains nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cache_runs import COLLECTIVE, IMMEDIATE, ONCLOSE, Experiment, Run
from benchmarks.results import row
from pdla.policies.e10 import Phase, bandwidth
from pdla.units import MiB

OF_NATIVE, DEVIATION, TOTAL, SLOWER = 0.98, 0.1, 1.05, 1.02
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Lengths of the computation, as shares of the time of the flush."""
STEPS = 400
"""Millions of steps that a rank computes, half a second or so."""
CHUNK = 8 * MiB
"""Bytes that the mover writes at a time (replicator/stub/homeward.h)."""
MEMORY = 64.0
"""MiB that a process may take for 10^6 dirty extents."""

Rows = list[dict[str, Any]]


def equation_2(experiment: Experiment, rounds: int) -> Rows:
    """Perceived bandwidth and total time beside what the limits of the devices and the storage say for them.

    Eq. 2 has a flush that begins after the writes. An early one begins with them.
    """
    case = experiment.case
    runs: dict[float, list[Run]] = {share: [] for share in SHARES}
    perceived: dict[float, list[float]] = {share: [] for share in SHARES}
    early: dict[float, list[float]] = {share: [] for share in SHARES}
    least: dict[float, list[float]] = {share: [] for share in SHARES}
    experiment.nodes.sequential(case.size)
    flush = case.size / experiment.nodes.sequential(case.size)[1]
    for number in range(rounds):
        devices, storage = experiment.nodes.sequential(case.size)
        cached, synced = case.size / devices, case.size / storage
        for share in (*SHARES[number % len(SHARES) :], *SHARES[: number % len(SHARES)]):
            pause = round(1000 * share * flush)
            runs[share].append(experiment.run(IMMEDIATE, "--pause", pause))
            phase = Phase(case.size, cached, synced, pause / 1000)
            perceived[share].append(bandwidth([phase]) / 1e6)
            early[share].append(bandwidth([phase._replace(sync=max(0.0, synced - cached))]) / 1e6)
            least[share].append(case.files * max(cached + pause / 1000, synced))
    rows, away, total = [], [], []
    for share, found in runs.items():
        name = f"computation of {share:g} flushes"
        rates, seconds = [one.perceived / 1e6 for one in found], [one.elapsed for one in found]
        rows += [
            row(f"{name}: perceived, x Eq. 2", rates, "MB/s", None, perceived[share]),
            row(f"{name}: perceived, x Eq. 2 with an early flush", rates, "MB/s", None, early[share]),
            row(f"{name}: total time, x least", seconds, "s", TOTAL, least[share]),
        ]
        away.append(abs(median(rates) / median(perceived[share]) - 1))
        total.append(rows[-1]["ratio"])
    rows.append(row("largest deviation from Eq. 2", [max(away)], "of it", DEVIATION))
    rows.append(row("largest total time", [max(total)], "x least", TOTAL))
    return rows


def nothing_to_gain(experiment: Experiment, rounds: int, native: str, reads: bool, hints: Mapping[str, object]) -> Rows:
    """Bytes/s beside those of the same program without pdla."""
    cached, without = [], []
    for _ in range(rounds):
        without.append(experiment.run(native, reads=reads).rate / 1e6)
        cached.append(experiment.run(IMMEDIATE, reads=reads, **hints).rate / 1e6)
    return [row(f"E10, x {native}", cached, "MB/s", OF_NATIVE, without)]


class Copier(threading.Thread):
    """Copies bytes that are in memory to a file of the storage, over and over: what any mover of them must do."""

    def __init__(self, source: Path, target: Path) -> None:
        super().__init__()
        self._source, self._target, self._ends = source, target, False
        self.seconds = 0.0
        """Processor time for a MiB."""

    def run(self) -> None:
        """Chunk by chunk, with the calls of the mover."""
        buffer, copied = bytearray(CHUNK), 0
        places = cycle(range(0, self._source.stat().st_size, CHUNK))
        with self._source.open("rb") as source, self._target.open("wb") as target:
            while not self._ends:
                place = next(places)
                if place == 0:
                    os.ftruncate(target.fileno(), 0)  # a mover's pages are new, too
                os.preadv(source.fileno(), [buffer], place)
                copied += os.pwrite(target.fileno(), buffer, place)
        self.seconds = time.thread_time() * MiB / max(copied, 1)

    def end(self) -> None:
        """Returns when the thread has ended."""
        self._ends = True
        self.join()


@contextmanager
def copying(experiment: Experiment) -> Iterator[list[Copier]]:
    """Within the block, a copier for each node is at work."""
    source = experiment.directory / "copied"
    source.write_bytes(os.urandom(experiment.case.size))
    targets = [experiment.nodes.originals / f"copy{number}" for number in range(len(experiment.nodes.launch))]
    copiers = [Copier(source, target) for target in targets]
    for copier in copiers:
        copier.start()
    try:
        yield copiers
    finally:
        for copier in copiers:
            copier.end()
        for file in (source, *targets):
            file.unlink()


def mover(experiment: Experiment, rounds: int) -> Rows:
    """Seconds of a computation while bytes go home, beside those while none do, and the mover's processor time.

    What emulates the devices takes processors, too, and only while bytes go home. It does so as well while another
    process copies as many bytes to the storage in requests of the same size: what is more than that is the mover's own.
    """
    beside, alone, copied, moving, copies, share = [], [], [], [], [], []
    storage = experiment.nodes.sequential(experiment.case.size)[1] / len(experiment.nodes.launch)
    for _ in range(rounds):
        alone.append(_computation(experiment.run(ONCLOSE, "--work", STEPS)))
        run = experiment.run(IMMEDIATE, "--work", STEPS)
        beside.append(_computation(run))
        share.append(sum(others for *_, others in run.files) / beside[-1])
        # The storage is busy as long as the program computes.
        moving.append(1000 * share[-1] * MiB / storage)
        with copying(experiment) as copiers:
            copied.append(_computation(experiment.run(ONCLOSE, "--work", STEPS)))
        copies.append(1000 * max(copier.seconds for copier in copiers))
    return [
        row("a computation beside the mover", beside, "s", SLOWER, alone),
        row("a computation beside a copy", copied, "s", None, alone),
        row("a computation beside the mover, x beside a copy", beside, "s", SLOWER, copied),
        row("processor time of the mover, x computation", share, "share", SLOWER - 1),
        row("processor time of the mover for a MiB, x of a copy", moving, "ms", None, copies),
    ]


def _computation(run: Run) -> float:
    return sum(compute for _, _, compute, _, _ in run.files)


def memory(experiment: Experiment, rounds: int) -> Rows:
    """MiB that a process has in memory at most, more than natively, if no piece that it has written is home."""
    native, cached = [], []
    with experiment.nodes.unlimited():
        experiment.nodes = replace(experiment.nodes, limits=())
        for _ in range(rounds):
            native.append(experiment.run(COLLECTIVE))
            cached.append(experiment.run(ONCLOSE))
    more = [(own.memory - other.memory) / MiB for own, other in zip(cached, native, strict=True)]
    kept = [run.report["cache"]["written_bytes"] / run.bytes for run in cached]
    return [row("a process, more by", more, "MiB", MEMORY), row("of the pieces in the cache", kept, "share")]
