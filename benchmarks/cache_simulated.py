"""What the simulator says for a contest of benchmarks/caches.py."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.cache_runs import IMMEDIATE, ONCLOSE, Case
from benchmarks.cases import COLLECTIVE, INDEPENDENT, SIEVING
from benchmarks.simulator_accuracy import NODE, _counting
from pdla.collectors import workloads
from pdla.layouts.config import load_cluster
from pdla.policies.e10 import E10
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
CLIENTS = {name: value for name, value in NODE.items() if name != "cores"} | {"client_sync": True}
GRIDS = {4: (2, 2, 1), 8: (2, 2, 2)}
"""Of MPI_Dims_create."""
HIDDEN = f"{IMMEDIATE}, hidden"
POLICIES: Mapping[str, tuple[Mapping[str, Any], bool]] = {
    IMMEDIATE: ({}, False),
    HIDDEN: ({}, True),
    ONCLOSE: ({"flush": "close"}, False),
}
"""What is given to E10, and whether the program computes."""


def simulated(case: Case, description: str, pause: float, contestants: Sequence[str]) -> dict[str, float]:
    """Bytes/s by Eq. 2 of each contestant without computation, and ``HIDDEN`` with ``pause`` seconds before each close.

    E10 is as in the library: without a computation it caches the first file only. All bytes go through the page cache
    of the one machine, except those of collective calls of the MPI library, whose aggregators read nothing that others
    have written.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(description)
        file.flush()
        cluster = replace(load_cluster(file.name), sieve_write=SIEVED, **CLIENTS)
    cluster = replace(cluster, pools=tuple(map(_counting, cluster.pools)))
    together = simulate(program(case, 1, 0.0), cluster, TWO_PHASE).bandwidth
    found = {}
    for contestant in contestants:
        if contestant in SCHEMES:
            # Ranks of all nodes share the page cache of the one machine.
            machine = cluster if contestant == COLLECTIVE else replace(cluster, nodes=1, processes_per_node=case.ranks)
            found[contestant] = simulate(program(case, 1, 0.0), machine, SCHEMES[contestant]).bandwidth
        elif contestant in POLICIES:
            policy, computes = POLICIES[contestant]
            cached = case.files if computes else 1
            result = simulate_online(program(case, cached, pause * computes), cluster, E10(**policy), TWO_PHASE)
            waits = result.until - cached * pause * computes + (case.files - cached) * case.size / together
            found[contestant] = case.files * case.size / waits
    return found


def program(case: Case, files: int, pause: float) -> Workload:
    """The program's calls for so many of its files, all collective; each is closed after ``pause`` seconds."""
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
    calls = np.zeros((case.ranks, files, count + 1), core.CALL)
    # A call has the items up to those of the next one, so each file has items of its own.
    calls["item"] = np.arange(0, case.ranks * files * each, each).reshape(case.ranks, files, 1)
    calls["item"] += [*range(0, each, pieces), each]
    calls["flags"] = [core.WRITES] * count + [core.WRITES | core.CLOSES]
    calls["file"] = np.arange(files)[:, None]
    calls["collective"] = np.arange(files * (count + 1)).reshape(files, count + 1)
    calls["participants"] = case.ranks
    calls["think"][:, :, -1] = pause
    end = np.zeros(1, core.CALL)
    end["item"] = files * len(items)
    arrays = from_signatures((), case.ranks).arrays | {
        "first_call": np.arange(case.ranks + 1) * files * (count + 1),
        "call": np.concatenate([calls.reshape(-1), end]),
        "item": np.repeat(items.reshape(case.ranks, 1, each), files, axis=1).reshape(-1),
    }
    names = tuple(f"file.{number}" for number in range(files))
    return Workload(case.ranks, names, (case.size,) * files, arrays, (0, case.size * files))
