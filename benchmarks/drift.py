"""How far ranks drift apart in real runs of the bench's programs on throttled disks. docs/simulator.md has the results.

    python -m benchmarks.drift [--amount 64M] [--directory /dev/shm]

A rank is late with a call by the time since its previous call ended, beyond the least such time of
the run, which the program needs there. The mean over all calls is the simulator's
``clients.jitter_seconds``. In a run with the file in memory, where no storage makes ranks wait, the
time since the begin of the previous call counts, beyond the least: what the node delays within
calls, too. How far the ranks are apart in a round, the i-th call of each, is the time from the first
begin to the last. The same calls are also simulated without pauses, in step and with the jitter of
the run in memory. This needs root.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.cases import INDEPENDENT, Case, ior_strided, pio_nested, tile_io
from benchmarks.cleanup import workspace
from benchmarks.contestants import Experiment, compile_programs
from benchmarks.processes import end_on_signals
from benchmarks.results import keep
from benchmarks.simulator_accuracy import NODE
from benchmarks.storage import Storage, throttled_disks
from benchmarks.throttled import obstacle
from pdla.collectors.tracefile import read_trace
from pdla.layouts.config import load_cluster
from pdla.model import Cluster
from pdla.simulator import core
from pdla.simulator.core import Array
from pdla.simulator.machine import Machine
from pdla.simulator.replicas import Replicas
from pdla.simulator.run import outcome_of
from pdla.simulator.schemes import BASELINES
from pdla.simulator.workload import from_trace
from pdla.traces.trace import Trace
from pdla.units import KiB, MiB, parse_bytes

RANKS = (2, 4, 8, 16)
"""The machine on which the figures of docs/simulator.md were measured has two processors: two ranks have one each."""
EVENTS = 256
"""Most events of a call in the simulator's log."""
INDEPENDENTLY = next(scheme for scheme in BASELINES if scheme.name == "independent")
HEAD = """\
| program | ranks | calls | a call | late | in memory: a call | late | half | 99 % | apart | simulated, in step | late |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


class Times(NamedTuple):
    """Of calls, in seconds, of shape (ranks, rounds)."""

    begins: Array
    ends: Array

    @property
    def takes(self) -> float:
        """A call, on average."""
        return float((self.ends - self.begins).mean())

    @property
    def apart(self) -> float:
        """The ranks in a round, from the first to the last; the median over the rounds."""
        return float(np.median(self.begins.max(axis=0) - self.begins.min(axis=0)))

    @property
    def late(self) -> Array:
        """Each call after a rank's first, since the end of the previous one."""
        pauses = self.begins[:, 1:] - self.ends[:, :-1]
        return pauses - pauses.min()

    @property
    def late_in_all(self) -> Array:
        """Likewise, since the begin of the previous one."""
        turns = np.diff(self.begins)
        return turns - turns.min()


def main() -> None:
    """Measure, print the table, add rows to build/bench.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--amount", type=parse_bytes, default=64 * MiB, help="bytes that the ranks access")
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="directory for the disks' images")
    options = parser.parse_args()
    end_on_signals()
    if why := obstacle():
        sys.exit(why)
    cases = [
        *(ior_strided(options.amount, 64 * KiB, ranks) for ranks in RANKS),
        *(pio_nested(options.amount, 64 * KiB, ranks) for ranks in RANKS),
        *(tile_io(options.amount, 16 * KiB, (2 * ranks, 1), ranks) for ranks in RANKS),
    ]
    with workspace(options.directory) as scratch:
        compile_programs(scratch, {case.program for case in cases})
        disks = scratch / "disks"
        disks.mkdir()
        with throttled_disks(disks, max(case.size for case in cases)) as storage:
            sys.stdout.write(HEAD)
            for case in cases:
                work = scratch / f"{case.name}-{case.ranks}"
                work.mkdir()
                _measure(case, storage, scratch, work)


def _measure(case: Case, storage: Storage, programs: Path, work: Path) -> None:
    experiment = Experiment(storage, case, programs, work)
    try:
        with storage.unlimited():
            experiment.prepare(())
            in_memory = _times(read_trace(experiment.traced(INDEPENDENT)))
        storage.drop_caches()
        trace = read_trace(experiment.traced(INDEPENDENT))
    finally:
        experiment.remove()
    found, late = _times(trace), in_memory.late_in_all
    cluster = replace(load_cluster(work / "cluster.toml"), **NODE)
    simulated = [_simulated(trace, replace(cluster, jitter_seconds=jitter)) for jitter in (0.0, float(late.mean()))]
    cells = [case.name, str(case.ranks), str(found.begins.size)]
    cells += [f"{1e3 * found.takes:.2f} ms", f"{1e6 * found.late.mean():.1f} us"]
    cells += [f"{1e6 * in_memory.takes:.0f} us"]
    cells += [f"{1e6 * one:.1f} us" for one in (late.mean(), *np.quantile(late, (0.5, 0.99)))]
    cells += [f"{1e3 * one.apart:.2f} ms" for one in (found, *simulated)]
    sys.stdout.write(f"| {' | '.join(cells)} |\n")
    sys.stdout.flush()
    figures = {"late": found.late.mean(), "late in memory": late.mean(), "apart": found.apart}
    keep([{"name": f"drift: {case.title}: {what}", "value": float(one), "unit": "s"} for what, one in figures.items()])


def _times(trace: Trace) -> Times:
    reads = trace.records[trace.records["op"] == "read"]
    own = [of_rank.sort_values("call") for _, of_rank in reads.groupby("rank")]
    return Times(*(_rounds([one[name].to_numpy() for one in own]) for name in ("t_start", "t_end")))


def _simulated(trace: Trace, cluster: Cluster) -> Times:
    workload, machine = from_trace(trace).at_once(), Machine(cluster)
    for size in workload.sizes:
        machine.add_file(size)
    replicas, room = Replicas.of(None, workload, machine), EVENTS * len(trace.records)
    log = outcome_of(workload, machine, INDEPENDENTLY, replicas, log_room=room).log
    times = []
    for what in ("call", "returned"):
        events = log[(log["what"] == core.EVENTS.index(what)) & (log["length"] > 0)]
        times.append(_rounds([events["time"][events["rank"] == rank] for rank in range(workload.ranks)]))
    return Times(*times)


def _rounds(times: Sequence[Array]) -> Array:
    """As many rounds as all ranks have."""
    rounds = min(map(len, times))
    return np.stack([one[:rounds] for one in times])


if __name__ == "__main__":
    main()
