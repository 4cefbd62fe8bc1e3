"""What the simulator says for a contest of benchmarks/caches.py."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.cache_runs import IMMEDIATE, ONCLOSE, Case
from benchmarks.cases import COLLECTIVE, INDEPENDENT, SIEVING
from benchmarks.simulator_accuracy import NODE, _counting
from pdla.collectors import workloads
from pdla.layouts.config import load_cluster
from pdla.policies.e10 import E10, Phase, bandwidth
from pdla.simulator import core
from pdla.simulator.online import simulate_online
from pdla.simulator.run import simulate
from pdla.simulator.schemes import Scheme
from pdla.simulator.workload import Workload, from_signatures
from pdla.units import KiB

TWO_PHASE = Scheme("two-phase", together=True)
SCHEMES = {
    INDEPENDENT: Scheme("independent", collective=False, sieve=False),
    SIEVING: Scheme("sieving", collective=False),
    COLLECTIVE: TWO_PHASE,
}
SIEVED = 512 * KiB
"""ROMIO's ind_wr_buffer_size."""
POLICIES = {IMMEDIATE: lambda: E10(exchange="disable"), ONCLOSE: lambda: E10(flush="close", exchange="disable")}
CLIENTS = {name: value for name, value in NODE.items() if name != "cores"} | {"client_sync": True}
GRIDS = {4: (2, 2, 1), 8: (2, 2, 2)}
"""Of MPI_Dims_create."""
HIDDEN = f"{IMMEDIATE}, hidden"


def simulated(case: Case, description: str, pause: float, contestants: Sequence[str]) -> dict[str, float]:
    """Bytes/s by Eq. 2 of each contestant without computation, and ``HIDDEN`` with ``pause`` seconds before each close.

    E10 is as in the library. All bytes go through the page cache of the one machine, except those of collective calls
    of the MPI library, whose aggregators read nothing that others have written.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(description)
        file.flush()
        cluster = replace(load_cluster(file.name), sieve_write=SIEVED, **CLIENTS)
    cluster = replace(cluster, pools=tuple(map(_counting, cluster.pools)))
    found = {}
    for contestant in contestants:
        workload = one_file(case)
        if contestant in SCHEMES:
            # Ranks of all nodes share the page cache of the one machine.
            machine = cluster if contestant == COLLECTIVE else replace(cluster, nodes=1, processes_per_node=case.ranks)
            found[contestant] = simulate(workload, machine, SCHEMES[contestant]).bandwidth
        elif contestant in POLICIES:
            closes: list[tuple[int, float]] = []
            result = simulate_online(workload, cluster, POLICIES[contestant](), TWO_PHASE, closes=closes)
            phase = Phase(case.size, closes[0][1], result.until - closes[0][1], 0.0)
            found[contestant] = bandwidth([phase])
            if contestant == IMMEDIATE:
                found[HIDDEN] = bandwidth([phase._replace(compute=pause)])
    return found


def one_file(case: Case) -> Workload:
    """The program's calls for one of its files, all collective; then the close."""
    given = dict(itertools.pairwise(case.options))
    if case.program == "coll_perf":
        trace = workloads.coll_perf(GRIDS[case.ranks], (int(given["--asize"]),) * 3)
    elif case.program == "flash_io":
        trace = workloads.flash_io(case.ranks, 16, 16, 16, int(given["--blocks"]))
    else:
        trace = workloads.ior(case.ranks, case.piece, case.piece, int(given["-s"]), ["write"], collective=True)
    accesses = trace.accesses()
    accesses = accesses[(accesses["op"] == "write") & (accesses["file"] == accesses["file"].iloc[0])]
    accesses = accesses.sort_values("rank", kind="stable")
    items = np.zeros(len(accesses), core.ITEM)
    items["offset"], items["length"], items["form"] = accesses["offset"], accesses["length"], -1
    each = len(items) // case.ranks
    pieces = max(1, int(given["--bufferSize"]) // int(items["length"][0]))
    count = -(-each // pieces)
    calls = np.zeros(case.ranks * (count + 1) + 1, core.CALL)
    calls["collective"], calls["participants"] = -1, 1
    for rank in range(case.ranks):
        own = calls[rank * (count + 1) : (rank + 1) * (count + 1)]
        own["item"] = [*range(rank * each, (rank + 1) * each, pieces), (rank + 1) * each]
        own["flags"] = [core.WRITES] * count + [core.WRITES | core.CLOSES]
        own["collective"], own["participants"] = np.arange(count + 1), case.ranks
    calls["item"][-1] = len(items)
    first = np.arange(case.ranks + 1) * (count + 1)
    arrays = {**from_signatures((), case.ranks).arrays, "first_call": first, "call": calls, "item": items}
    return Workload(case.ranks, ("file",), (case.size,), arrays, (0, case.size))
