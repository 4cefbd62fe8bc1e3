"""Simulations of a workload on a cluster, by one scheme or another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from pdla.model import Cluster, Plan
from pdla.simulator import core
from pdla.simulator.machine import Machine
from pdla.simulator.replicas import Replicas
from pdla.simulator.schemes import Scheme, home_pool, methods
from pdla.simulator.workload import Workload


@dataclass(frozen=True)
class Result:
    """The result of a scheme.

    Attributes:
        seconds: in which at least one rank was in an I/O call, or waited for a policy's work at the
            close of a file.
        slowest: seconds of the rank that is in I/O calls for longest, and of work after the last call.
        until: seconds from the first call to the end of the last, including the time between calls.
        settled: when the last move in the background was done; 0 without one.
        space: the most bytes that replicas and copies take in each pool.
        moved: bytes to and from each space by requests, and in the background.
        wait: mean seconds that a request waits in a server's queue.
        latency: for each file, the mean seconds that a request takes on a server, including waits
            for moves.
        distance: for each pool, the mean bytes between the end of a device's request and the start
            of its next one.
        served: for each pool, how many requests its devices served.
        stuck: collective calls that not all of their ranks made, so that the others went on without
            them.
    """

    scheme: str
    seconds: float
    slowest: float
    until: float
    settled: float
    bytes_read: int
    bytes_written: int
    calls: int
    call_seconds: float
    longest_call: float
    requests: int
    subrequests: int
    moves: int
    wait: float
    latency: tuple[float, ...]
    distance: Mapping[str, float]
    served: Mapping[str, int]
    stuck: int
    refused: int
    space: Mapping[str, int]
    moved: Mapping[str, tuple[int, int]]
    reasons: Mapping[str, int] = field(default_factory=dict)  # why wishes were refused, and how often

    @property
    def bandwidth(self) -> float:
        """Bytes/s of the calls."""
        return (self.bytes_read + self.bytes_written) / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "bandwidth": self.bandwidth}


def simulate(
    workload: Workload,
    cluster: Cluster,
    scheme: Scheme,
    plan: Plan | None = None,
    *,
    leased: bool = False,
    open_loop: bool = False,
    seed: int = 0,
) -> Result:
    """Simulate ``workload`` with the replicas of ``plan``.

    What is written to replicas comes home when the file is closed; if it is ``leased``, after the
    run, unless the program opens the file again. With ``open_loop`` calls begin when they did in the
    trace, even if earlier calls have not ended.
    """
    machine = Machine(cluster, home_pool(scheme, cluster))
    for size in workload.sizes:
        machine.add_file(size)
    replicas = Replicas.of(plan, workload, machine)
    outcome = outcome_of(
        workload,
        machine,
        scheme,
        replicas,
        open_loop=open_loop,
        seed=seed,
        clients={"flush_replicas": leased or cluster.per_node(workload.ranks) < workload.ranks},
        **_closing(replicas, workload, cluster, leased),
    )
    return result_of(scheme.name, outcome, machine, replicas.sizes)


def outcome_of(
    workload: Workload,
    machine: Machine,
    scheme: Scheme,
    replicas: Replicas,
    *,
    open_loop: bool = False,
    seed: int = 0,
    clients: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> core.Outcome:
    """The core's outcome; ``clients`` are those of a policy, ``options`` those of core.simulate."""
    programs = workload.together() if scheme.together else workload
    numbers = {
        **machine.numbers(workload.ranks),
        **methods(scheme, machine.cluster),
        "files": len(workload.files),
        "seed": seed,
        "open_loop": open_loop,
        **clients,
    }
    return core.simulate(numbers, {**programs.arrays, **machine.arrays(), **replicas.arrays()}, **options)


def result_of(scheme: str, outcome: core.Outcome, machine: Machine, space: Mapping[str, int], **more: Any) -> Result:
    """The result of an outcome; ``space`` are the bytes taken in each pool."""
    return Result(
        scheme=scheme,
        seconds=outcome.io_seconds + outcome.closing,
        slowest=float(outcome.rank_seconds.max(initial=0.0)) + outcome.closing,
        until=outcome.seconds,
        settled=outcome.settled,
        bytes_read=outcome.bytes[0],
        bytes_written=outcome.bytes[1],
        calls=outcome.calls,
        call_seconds=outcome.call_seconds,
        longest_call=outcome.longest_call,
        requests=outcome.requests,
        subrequests=outcome.subrequests,
        moves=outcome.moves,
        wait=float(outcome.waited.sum()) / max(int(outcome.served.sum()), 1),
        latency=tuple((outcome.latency / np.maximum(outcome.latencies, 1)).tolist()),
        distance=machine.by_pool(outcome.distance, outcome.served),
        served={name: int(count) for name, count in machine.by_pool(outcome.served).items()},
        stuck=outcome.stuck,
        space=dict(space),
        moved={
            name: (int(by[:2].sum()), int(by[2:].sum()))
            for name, by in zip(machine.spaces, outcome.space_bytes, strict=True)
        },
        **{"refused": 0, **more},
    )


def _closing(replicas: Replicas, workload: Workload, cluster: Cluster, leased: bool) -> dict[str, Any]:
    """The option of core.simulate that writes a file back when it is closed for the first time.

    Of a leased file the next open would do so, which comes right after.
    """
    left = {file for file, _, _ in replicas.written}
    if leased:
        left &= workload.closed_again
    if not left:
        return {}

    def closing(file: int) -> core.Array:
        files = left if file < 0 else left & {file}
        transfers = replicas.written_back(files, workload.ranks, cluster.per_node(workload.ranks))
        left.difference_update(set(files))
        return transfers

    return {"closing": closing}
