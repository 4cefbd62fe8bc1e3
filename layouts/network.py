"""Measure messages: between compute nodes by ping-pong (e and v of the cost model), and inside a node."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pdla.errors import PdlaError
from pdla.layouts.fit import Estimate, Timing, fit
from pdla.units import KiB, MiB

if TYPE_CHECKING:
    from mpi4py import MPI

LAUNCHED = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")  # variables that launchers set for a rank
SIZES = (8, 64 * KiB, 1 * MiB, 4 * MiB)
ROUNDS = 5
_REPEATS = 20  # round trips of a message in one round
_WARM_UP = 5
PIECE = 16 * KiB
SHARES = (512 * KiB, 1 * MiB, 4 * MiB)


@dataclass(frozen=True)
class Network:
    """Between two nodes: ``connect`` seconds of the shortest message one way, and seconds per byte."""

    nodes: int
    connect: Estimate
    seconds_per_byte: Estimate


@contextmanager
def network() -> Iterator[tuple[bool, Network | None, Estimate | None]]:
    """Measure messages under mpiexec: between the first rank and another node, and among the ranks of the first node.

    Yields (is this the first rank?, the network, seconds per byte that an aggregator exchanges with
    the ranks of its node). Without MPI nothing is measured; with all ranks on one node there is no
    network, and with one rank no exchange. The other ranks leave the block when the first one does;
    they wait without using the processor.

    Raises:
        PdlaError: under mpiexec, without mpi4py.
    """
    if not any(name in os.environ for name in LAUNCHED):
        yield True, None, None
        return
    try:
        from mpi4py import MPI
    except ImportError:
        raise PdlaError("measuring the network needs mpi4py for this MPI: pip install mpi4py") from None
    world = MPI.COMM_WORLD
    first = world.rank == 0
    try:
        yield first, _between_nodes(world), _inside_node(world)
    finally:
        done = world.Ibarrier()
        while not done.Test():
            time.sleep(0.05)


def _between_nodes(world: MPI.Comm) -> Network | None:
    from mpi4py import MPI

    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    leaders = [leader for leader in world.allgather(world.rank if node.rank == 0 else -1) if leader >= 0]
    node.Free()
    if len(leaders) == 1:
        return None
    timings = []
    if world.rank in leaders[:2]:
        other = leaders[1] if world.rank == leaders[0] else leaders[0]
        timings = [Timing(size, 0, _one_way(world, other, size)) for _ in range(ROUNDS) for size in SIZES]
    line = fit(world.bcast(timings, leaders[0]))
    return Network(len(leaders), line.startup[0][1], line.seconds_per_byte)


def _inside_node(world: MPI.Comm) -> Estimate | None:
    """Seconds per byte inside the first rank's node."""
    from mpi4py import MPI

    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    timings = []
    if node.size > 1 and node.bcast(world.rank, 0) == 0:
        shares = [share for _ in range(ROUNDS) for share in SHARES]
        timings = [Timing((node.size - 1) * share, 0, _exchange(node, share)) for share in shares]
    node.Free()
    timings = world.bcast(timings, 0)
    return fit(timings).seconds_per_byte if timings else None


def _exchange(node: MPI.Comm, share: int) -> float:
    """Seconds in which the first rank sends so many bytes to each of the others.

    The messages are like those of ROMIO's two-phase reads: the pieces of the ranks alternate in the buffer.
    """
    from mpi4py import MPI

    count = share // PIECE
    buffer = bytearray(node.size * share if node.rank == 0 else share)
    node.Barrier()
    begin = time.perf_counter()
    if node.rank > 0:
        node.Recv(buffer, 0)
    else:
        places = [[(turn * node.size + rank) * PIECE for turn in range(count)] for rank in range(1, node.size)]
        types = [MPI.BYTE.Create_hindexed([PIECE] * count, of_rank).Commit() for of_rank in places]
        MPI.Request.Waitall([node.Isend([buffer, 1, one], rank) for rank, one in enumerate(types, 1)])
        for one in types:
            one.Free()
    node.Barrier()
    return time.perf_counter() - begin


def _one_way(world: MPI.Comm, other: int, size: int) -> float:
    """Seconds of a message of ``size`` bytes from one rank to another: half of the median round trip."""
    buffer, took = bytearray(size), []
    for _ in range(_WARM_UP + _REPEATS):
        begin = time.perf_counter()
        if world.rank < other:
            world.Send(buffer, other)
            world.Recv(buffer, other)
        else:
            world.Recv(buffer, other)
            world.Send(buffer, other)
        took.append((time.perf_counter() - begin) / 2)
    return float(np.median(took[_WARM_UP:]))
